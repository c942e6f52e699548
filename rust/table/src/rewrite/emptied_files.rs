//! What is left of a folder of which too many rows are deleted. Nothing but its files says which columns it has. So a file without rows
//! stays where a file with the last rows was.

use std::collections::BTreeSet;

use arrow::array::ArrayRef;

use crate::error::Result;
use crate::files::delta::partition_text;
use crate::files::listing::inferred_type;
use crate::rewrite::RewriteOutput;
use crate::snapshot::Snapshot;
use crate::values::schema::{FileSchema, merge};

/// The files of which nothing is left and that need a successor without rows, by number: one for each partition that they had. None if the
/// files that stay and the new ones show the same columns.
pub(super) fn emptied_files(snapshot: &Snapshot, rewritten: &RewriteOutput) -> Result<Vec<usize>> {
    let with_successor: BTreeSet<usize> = rewritten.files.iter().filter_map(|file| file.replaces).collect();
    let gone: Vec<usize> = rewritten.replaced.iter().filter(|file| !with_successor.contains(file)).copied().collect();
    if gone.is_empty() || (columns_stay(snapshot, rewritten)? && partitions_stay(snapshot, rewritten)?) {
        return Ok(Vec::new());
    }
    let mut seen = BTreeSet::new();
    let mut bare = Vec::new();
    for file in gone {
        let values = snapshot.files().get(file).map(|file| file.partition_values.as_slice()).unwrap_or_default();
        let texts = values.iter().map(partition_text).collect::<Result<Vec<_>>>()?;
        if seen.insert(texts) {
            bare.push(file);
        }
    }
    Ok(bare)
}

/// Files of the snapshot that are not replaced.
fn staying(snapshot: &Snapshot, rewritten: &RewriteOutput) -> impl Iterator<Item = usize> {
    let replaced: BTreeSet<usize> = rewritten.replaced.iter().copied().collect();
    (0..snapshot.files().len()).filter(move |file| !replaced.contains(file))
}

fn columns_stay(snapshot: &Snapshot, rewritten: &RewriteOutput) -> Result<bool> {
    if !rewritten.files.is_empty() {
        // New files have every column.
        return Ok(true);
    }
    let schemas = staying(snapshot, rewritten).filter_map(|file| {
        let schema = snapshot.index_states.get(file)?.schema.as_ref()?;
        Some(FileSchema { file: &snapshot.files().get(file)?.path, schema })
    });
    let left = merge(schemas)?;
    let stays = |name: &str| left.field_with_name(name).ok().map(|field| field.data_type().clone());
    Ok(snapshot.file_schema().fields().iter().all(|field| stays(field.name()).as_ref() == Some(field.data_type())))
}

fn partitions_stay(snapshot: &Snapshot, rewritten: &RewriteOutput) -> Result<bool> {
    let old =
        staying(snapshot, rewritten).filter_map(|file| snapshot.files().get(file)).map(|file| &file.partition_values);
    let files: Vec<&Vec<ArrayRef>> = old.chain(rewritten.files.iter().map(|file| &file.partition_values)).collect();
    for (place, column) in snapshot.partition_columns().iter().enumerate() {
        let texts = files.iter().filter_map(|values| values.get(place)).map(partition_text);
        let texts = texts.collect::<Result<Vec<Option<String>>>>()?;
        let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        if texts.is_empty() || inferred_type(&texts) != *column.data_type() {
            return Ok(false);
        }
    }
    Ok(true)
}
