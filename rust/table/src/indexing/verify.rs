//! Deriving segments from the data again and comparing them with what is stored, value by value.
//!
//! The comparison is of rows and not of bytes, so that a segment which another release encoded otherwise is sound. What is derived has the
//! encoding `equality`. Of a stored segment with a coarse level, the bin of every row is compared as well, and bins of several values are
//! taken apart. Of zones, every value has to be where a search for it would come to, and to be counted.

mod zones;

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{
    Encoding, FileNumbers, Manifest, ManifestIndex, ManifestSegment, NameOf, RidingColumn, SegmentFile, column,
};
use lakemark_index::bitmap::{ChunkSource, SegmentMeta, ValueRows, merge};
use lakemark_index::riding_type_of;
use lakemark_index::zones::ZoneOptions;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::error::{Error, Result};
use crate::files::columns::{IndexedFields, read_columns};
use crate::files::footer::Footer;
use crate::files::trust::false_statistics;
use crate::index_kind::IndexKind;
use crate::report::{Finding, IndexVerdict, VerifyReport};
use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::storage::location::StorePlace;
use crate::store::Store;
use crate::store::hashed::{hash_bits, key_type_of_segments};
use crate::store::included::riding_columns;
use crate::store::manifests::file_of;
use crate::store::segment_cursor::{MovedRows, READ_AHEAD_BYTES, SegmentCursor, moved_value, read_rows, remapped};
use crate::store::segments::{Damage, ReadCounter, Segment};
use zones::compare_zones;

/// Verifies every segment of every index of a manifest.
pub(crate) async fn verify(store: &Arc<Store>, manifest: &Manifest, snapshot: &Snapshot) -> Result<VerifyReport> {
    let files = snapshot.files().iter().zip(snapshot.index_states.iter());
    let files =
        files.filter_map(|(file, state)| false_statistics(&file.path, state.schema.as_ref()?, &file.false_statistics));
    let mut report = VerifyReport { false_statistics: files.collect(), ..VerifyReport::default() };
    for index in manifest.indexes() {
        report.indexes.push(Verified { snapshot, store, manifest, index }.verify().await?);
    }
    Ok(report)
}

/// An index whose segments are compared with the data.
#[derive(Clone, Copy)]
pub(crate) struct Verified<'a> {
    /// The data files.
    pub(crate) snapshot: &'a Snapshot,
    /// Where the segments are.
    pub(crate) store: &'a Arc<Store>,
    /// What says which files a segment covers.
    pub(crate) manifest: &'a Manifest,
    /// The index.
    pub(crate) index: &'a ManifestIndex,
}

impl Verified<'_> {
    /// Verifies every segment of the index.
    async fn verify(self) -> Result<IndexVerdict> {
        let mut verdict = IndexVerdict { name: self.index.name.clone(), ..IndexVerdict::default() };
        for segment in self.manifest.segments().filter(|segment| segment.index_id == self.index.id) {
            self.verify_segment(segment, &mut verdict).await?;
        }
        Ok(verdict)
    }

    /// Verifies a segment. If others took it out of the newest manifest meanwhile, it is no damage.
    pub(crate) async fn verify_segment(self, segment: &ManifestSegment, verdict: &mut IndexVerdict) -> Result<()> {
        let sound = verdict.damaged.len();
        compare_segment(self, segment, verdict).await?;
        if verdict.damaged.len() > sound && !self.store.named_segments().await?.contains(&segment.id) {
            verdict.damaged.truncate(sound);
        }
        Ok(())
    }
}

async fn compare_segment(verified: Verified<'_>, segment: &ManifestSegment, verdict: &mut IndexVerdict) -> Result<()> {
    let Verified { snapshot, store, manifest, index } = verified;
    let counter = ReadCounter::default();
    let damaged = |problem: String| Finding { path: segment.path.clone(), problem };
    let stored = match Segment::open_afresh(store, segment, index, &counter).await {
        Ok(stored) => stored,
        Err(damage) if damage.is_unread => return Err(unread(segment, &damage)),
        Err(damage) => {
            verdict.damaged.push(damaged(damage.problem));
            return Ok(());
        }
    };
    let (Some(field), true) = (snapshot.physical_field(&index.column), snapshot.is_usable(index)) else {
        let path = column::display(&index.column).into_owned();
        verdict.stale.push(Finding { path, problem: "the column is gone or has another type".to_owned() });
        return Ok(());
    };
    let mut fresh: Vec<FreshFile<'_>> = Vec::new();
    for number in segment.files.iter() {
        let Some(known) = file_of(manifest, number) else { continue };
        let Some(entry) = stored.directory.files.iter().find(|entry| entry.path == known.path) else {
            verdict.damaged.push(damaged(format!("the segment does not cover {} as the manifest says", known.path)));
            continue;
        };
        match freshness(snapshot, &known.path, entry, segment, &stored).await {
            Ok(file) => fresh.push(FreshFile { file, entry }),
            Err(problem) => verdict.stale.push(Finding { path: known.path.clone(), problem: problem.to_owned() }),
        }
    }
    fresh.sort_by_key(|fresh| fresh.entry.base);
    let fields = IndexedFields { key: field, riding: riding_of(snapshot, &stored), hash_bits: hash_bits(index) };
    let derived = derive(snapshot, index, &fields, &fresh).await?;
    match compare(&stored, &derived, &counter).await {
        Ok(()) => verdict.files_ok += fresh.len() as u64,
        Err(damage) if damage.is_unread => return Err(unread(segment, &damage)),
        Err(damage) => verdict.damaged.push(damaged(damage.problem)),
    }
    Ok(())
}

/// A segment that the storage does not give is not damaged: who repairs would remove it.
fn unread(segment: &ManifestSegment, damage: &Damage) -> Error {
    Error::io(format!(
        "the segment {} cannot be read, so that nobody knows whether it is sound: {}; try again when the storage answers",
        segment.path, damage.problem
    ))
}

/// A data file that is still what was indexed.
struct FreshFile<'a> {
    /// Its number in the snapshot.
    file: usize,
    /// The segment's entry of the file.
    entry: &'a SegmentFile,
}

/// The file of the snapshot that a segment's entry is about, if it is still the same.
async fn freshness(
    snapshot: &Snapshot,
    path: &str,
    entry: &SegmentFile,
    segment: &ManifestSegment,
    stored: &Segment,
) -> Result<usize, &'static str> {
    let Some(file) = snapshot.files().iter().position(|file| file.path == path) else {
        return Err("the data file is gone");
    };
    if is_same_data(snapshot, file, entry, segment, &stored.directory).await {
        Ok(file)
    } else {
        Err("the data file changed since it was indexed")
    }
}

/// The columns that ride along in a segment, if the table has all of them as they are there: of others nothing could be compared.
fn riding_of(snapshot: &Snapshot, stored: &Segment) -> Vec<FieldRef> {
    let field = |column: &RidingColumn| {
        let field = snapshot.physical_field(&column.column)?;
        (riding_type_of(field.data_type()).as_ref() == Some(&column.key_type)).then_some(field)
    };
    stored.directory.riding.iter().map(field).collect::<Option<_>>().unwrap_or_default()
}

/// Builds the segment of the fresh files anew, in memory.
async fn derive(
    snapshot: &Snapshot,
    index: &ManifestIndex,
    fields: &IndexedFields,
    fresh: &[FreshFile<'_>],
) -> Result<Segment> {
    let data = snapshot.object_store();
    let (mut files, mut chunks, mut base) = (Vec::with_capacity(fresh.len()), Vec::new(), 0u32);
    for FreshFile { file, entry } in fresh {
        let Some(data_file) = snapshot.files().get(*file) else { continue };
        let footer = Arc::new(Footer::read(data.as_ref(), &data_file.meta, &data_file.path).await?);
        let mut row = base;
        for (row_group, rows) in footer.row_groups.iter().enumerate() {
            let fields = std::slice::from_ref(fields);
            let columns =
                read_columns(data.as_ref(), &data_file.meta, &data_file.path, &footer, row_group, fields).await?;
            chunks.extend(columns.into_iter().map(|column| ChunkSource::memory(row, column.chunk)));
            row = row.saturating_add(*rows);
        }
        files.push(SegmentFile { base, ..(*entry).clone() });
        base = row.checked_next_multiple_of(BASE_ALIGNMENT).unwrap_or(u32::MAX);
    }
    let id = [0; 16];
    let meta = SegmentMeta {
        segment_id: id,
        index_id: index.id,
        column: index.column.clone(),
        key_type: key_type_of_segments(index),
        files,
        // Hashes and what rides along are in trees alone.
        encoding: match fields.riding.is_empty() && fields.hash_bits.is_none() {
            true => Encoding::Equality,
            false => Encoding::Packed,
        },
        bins: None,
        precision: None,
        zones: ZoneOptions::default(),
        riding: riding_columns(&fields.riding),
    };
    let work = move || {
        let mut bytes = Vec::new();
        let merged = merge(meta, chunks, &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        });
        merged.map(|_| bytes)
    };
    let bytes = tokio::task::spawn_blocking(work).await.map_err(|error| Error::task(&error))?;
    let bytes = bytes.map_err(|error| Error::internal("the segment cannot be derived again").with_source(error))?;
    let memory = Arc::new(InMemory::new());
    let (path, length) = ("derived".to_owned(), bytes.len() as u64);
    memory.put(&Path::from(path.as_str()), PutPayload::from(bytes)).await?;
    let place = StorePlace { text: "memory".to_owned(), prefix: Path::default(), local: None, object_store: memory };
    let segment = ManifestSegment { id, index_id: index.id, path, length, files: FileNumbers::default() };
    // What is derived has single values, whatever is stored.
    let index = ManifestIndex { kind: NameOf::Known(IndexKind::Bitmap), ..index.clone() };
    let opened =
        Segment::open_afresh(&Arc::new(Store::new(place, Arc::default())), &segment, &index, &ReadCounter::default())
            .await;
    opened.map_err(|damage| {
        Error::internal(format!("the segment that was derived again cannot be read: {}", damage.problem))
    })
}

async fn compare(stored: &Segment, derived: &Segment, counter: &ReadCounter) -> Result<(), Damage> {
    let places = places(stored, derived);
    for (name, list) in [("NULL rows", stored.directory.nulls), ("opaque rows", stored.directory.opaque)] {
        let other = if name == "NULL rows" { derived.directory.nulls } else { derived.directory.opaque };
        let have = remapped(read_rows(stored, list, counter).await?, &places);
        if have != read_rows(derived, other, counter).await? {
            return Err(Damage::corrupt(format!("the {name} are not those of the data")));
        }
    }
    if stored.directory.encoding.has_zones() {
        return compare_zones(stored, derived, &places, counter).await;
    }
    let compares_riding = !derived.directory.riding.is_empty();
    let mut have = SegmentCursor::new(stored, READ_AHEAD_BYTES, counter).await?;
    let mut want = SegmentCursor::new(derived, READ_AHEAD_BYTES, counter).await?;
    loop {
        let expected = want.next(counter).await?;
        let found = loop {
            match have.next(counter).await? {
                None => break None,
                // A value that only changed files had is left out.
                Some(value) => match moved_value(value, &places) {
                    None => {}
                    moved => break moved,
                },
            }
        };
        match (found, expected) {
            (None, None) => return Ok(()),
            (Some(found), Some(expected)) if (&found.key, &found.rows) == (&expected.key, &expected.rows) => {
                // Where they do not ride the data is read.
                if compares_riding && found.riding.rides() && found.riding != expected.riding {
                    let problem = format!("other values are stored along with {:?} than the data has", found.key);
                    return Err(Damage::corrupt(problem));
                }
            }
            (found, expected) => {
                let key = |value: Option<ValueRows>| {
                    value.map_or("no value".to_owned(), |value| format!("{:?} in {} rows", value.key, value.rows.len()))
                };
                return Err(Damage::corrupt(format!("{} is stored where the data has {}", key(found), key(expected))));
            }
        }
    }
}

/// Where the rows of each stored file are among the derived ones; none for files that are not compared.
fn places(stored: &Segment, derived: &Segment) -> Vec<MovedRows> {
    let place = |file: &SegmentFile| {
        let rows = u32::try_from(file.rows()).unwrap_or(u32::MAX);
        let to = derived.directory.files.iter().find(|other| other.path == file.path).map(|other| other.base);
        MovedRows { rows: file.base..file.base.saturating_add(rows), to }
    };
    stored.directory.files.iter().map(place).collect()
}
