//! How many rows have each of the values that pass a test, where the index tells that alone and no row is found for it.
//!
//! A join that wants nothing of a table but keys gets them from here: each leaf of the index is read once, for its keys, and never for
//! their rows.

use std::sync::Arc;

use arrow::datatypes::DataType;
use lakemark_format::column;
use lakemark_index::bitmap::Groups;
use lakemark_index::{Leaf, LiteralKey, Test, decode_keys, is_ambiguous};

use super::sources::{Cover, Sources};
use super::tally::{Counted, Tally, TallyPart, enough_rows_each, read_values};
use crate::error::Result;
use crate::segments::{Damage, ReadCounter};
use crate::snapshot::Snapshot;

impl Snapshot {
    /// Counts the rows that pass a test of one column by their values, if the index alone tells that of every file: none was deleted or
    /// replaced, none has a value that the index does not know, and values are not so many that rows are as quickly read.
    pub async fn tally_alone(&self, leaf: &Leaf) -> Result<Option<Tally>> {
        let Test::Ranges(ranges) = &leaf.test else { return Ok(None) };
        if self.files().iter().any(|file| file.deleted.is_some()) {
            return Ok(None);
        }
        let counter = Arc::new(ReadCounter::default());
        let wanted = vec![true; self.files().len()];
        let Some(sources) = Sources::find(self, &leaf.column, &wanted, &counter).await else { return Ok(None) };
        let Sources { data_type, constants, covers } = sources;
        let covered: usize = covers.iter().map(|cover| cover.files.len()).sum();
        if !constants.is_empty() || covered != wanted.len() || !covers.iter().all(is_whole) {
            return Ok(None);
        }
        let mut jobs = Vec::with_capacity(covers.len());
        for cover in covers {
            let groups = Groups::new(&cover.segment.directory, ranges.clone());
            if !enough_rows_each(&groups, cover.segment.directory.rows()) {
                return Ok(None);
            }
            jobs.push(count(cover, groups, data_type.clone(), Arc::clone(&counter)));
        }
        let mut tally = Tally { answered: vec![false; wanted.len()], ..Tally::default() };
        tally.gather(jobs, &column::shown(&leaf.column)).await?;
        (tally.index_reads, tally.index_bytes) = counter.totals();
        Ok(Some(tally).filter(|tally| !tally.answered.contains(&false)))
    }
}

/// Whether a segment is about just these files, and knows all values in them.
fn is_whole(cover: &Cover) -> bool {
    let directory = &cover.segment.directory;
    cover.files.len() == directory.files.len() && directory.opaque.rows == 0
}

async fn count(
    cover: Cover,
    groups: Groups,
    data_type: DataType,
    counter: Arc<ReadCounter>,
) -> std::result::Result<Option<Counted>, Damage> {
    let values = read_values(&cover.segment, groups, &counter).await?;
    if values.iter().any(|value| is_ambiguous(&value.key, &cover.segment.directory.key_type)) {
        return Ok(None);
    }
    let rows = values.iter().map(|value| u64::from(value.rows)).collect();
    let keys: Vec<LiteralKey> = values.into_iter().map(|value| LiteralKey::Key(value.key)).collect();
    let values = decode_keys(&keys, &data_type).map_err(Damage::corrupt)?;
    let files = cover.files.iter().map(|covered| covered.file).collect();
    Ok(Some(Counted { files, part: TallyPart { values: vec![values], rows } }))
}
