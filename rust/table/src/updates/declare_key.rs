//! Declaring the key of a table: from then on it takes updates.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use futures::TryStreamExt;
use lakemark_format::column::{composite, is_composite, is_field};
use lakemark_format::{ManifestDelta, ManifestUpdates};
use lakemark_index::RowSet;

use super::errors::not_local;
use super::indexing::build_listed;
use super::key::KeyColumns;
use super::locks::WriterLock;
use super::log::log_file::new_log;
use super::lookup::fetch::RowFile;
use super::lookup::key_positions::physical_columns;
use super::parameters::Parameters;
use super::state::updatable::UpdatableTable;
use crate::error::{Error, ErrorKind, Result};
use crate::files::delta::DeltaState;
use crate::index_kind::IndexKind;
use crate::indexing::create_index::create_index;
use crate::options::{BuildOptions, CancelFlag, IndexSpec};
use crate::report::IndexInfo;
use crate::rewrite::delta::check_writable;
use crate::snapshot::Snapshot;
use crate::store::hashed::HASH_BITS;
use crate::store::transaction::{Edit, commit};
use crate::table_format::TableFormat;

/// Declares the key of a table; says whether it was declared now. The columns get an index of the kind `key` where they have none.
///
/// # Errors
/// Columns that are not there or cannot be a key; NULL or the same key twice in the table; another key that was declared before.
pub(crate) async fn declare_key(
    table: &Arc<UpdatableTable>,
    columns: &[String],
    options: &BTreeMap<String, String>,
    build: BuildOptions,
) -> Result<bool> {
    let store = table.base.writable_store()?;
    if !store.is_local() {
        return Err(not_local(store));
    }
    let options: Vec<(String, String)> = options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    Parameters::of(&options)?;
    let _lock = WriterLock::take(store).await?;
    let base = Snapshot::pin_base(&table.base).await?;
    if table.base.format == TableFormat::Delta {
        check_writable(&DeltaState::read(&table.base.location).await?)?;
    }
    let key = checked_key(&base, columns)?;
    let stored: Vec<String> = columns.iter().map(|column| base.physical_name(column).into_owned()).collect();
    if let Some(have) = base.manifest.as_ref().and_then(|manifest| manifest.updates()) {
        if have.key == stored {
            return Ok(false);
        }
        return Err(Error::invalid(format!(
            "the key of the table is {} already; a store keeps its key: migrate, then begin a new store",
            have.key.join(", ")
        )));
    }
    check_unique(&base, &key, &build).await?;
    let log = new_log(store, 1).await?;
    let delta = base.table_id().map(|id| ManifestDelta { table_id: id.to_owned(), ..ManifestDelta::default() });
    let updates = ManifestUpdates { key: stored, options, log, delta, ..ManifestUpdates::default() };
    let declared = commit(store, &Edit::DeclareKey { updates: Box::new(updates) }).await?.changed;
    index_key(table, &base, columns, build).await?;
    Ok(declared)
}

fn checked_key(base: &Snapshot, columns: &[String]) -> Result<Arc<KeyColumns>> {
    if columns.is_empty() {
        return Err(Error::invalid("a key needs a column; name one or more"));
    }
    let schema = base.schema();
    for (place, column) in columns.iter().enumerate() {
        let Ok(field) = schema.field_with_name(column) else {
            let known: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::not_found(format!("there is no column {column}; the table has {}", known.join(", "))));
        };
        if columns.iter().take(place).any(|before| before == column) {
            return Err(Error::invalid(format!("the column {column} stands in the key twice; name it once")));
        }
        if is_composite(column) || is_field(column) {
            return Err(Error::unsupported(format!(
                "the name of the column {column:?} holds U+0000 or U+0001, so that no index can be on it; choose another"
            )));
        }
        let of = field.data_type();
        if of.is_floating() || of.is_nested() || matches!(of, DataType::Null) {
            return Err(Error::unsupported(format!(
                "the column {column} is {of}, which cannot tell rows apart reliably; choose columns of integers, texts, dates, \
                 times, decimals or booleans"
            )));
        }
    }
    if base.column_names().is_some() && schema.fields().iter().any(|field| field.data_type().is_nested()) {
        return Err(Error::unsupported(
            "updates of Delta tables that map column names are for flat columns only; this table has nested ones",
        ));
    }
    KeyColumns::new(&schema, columns)
}

/// Reads the key of every row that counts. No key may be NULL or there twice.
async fn check_unique(base: &Snapshot, key: &Arc<KeyColumns>, build: &BuildOptions) -> Result<()> {
    if let Some(progress) = &build.progress {
        progress.start(rows_of(base).await?);
    }
    let suspects = repeated_hashes(base, key, build).await?;
    if suspects.is_empty() {
        return Ok(());
    }
    // Different keys may have the same hash, so that keys with a repeated hash are compared.
    let mut seen: BTreeMap<Box<[u8]>, String> = BTreeMap::new();
    let mut twice = None;
    // Few rows need this, and mostly none, so that no progress is shown.
    let again = BuildOptions { progress: None, ..build.clone() };
    for_each_key(base, key, &again, |name, batch, row, bytes| {
        if twice.is_none() && suspects.binary_search(&hash(bytes)).is_ok() {
            if let Some(first) = seen.get(bytes) {
                twice = Some((key.display(batch, row), first.clone(), name.to_owned()));
            } else {
                seen.insert(bytes.into(), name.to_owned());
            }
        }
    })
    .await?;
    match twice {
        None => Ok(()),
        Some((key, first, second)) => Err(Error::invalid(format!(
            "the key {key} is there twice, in {first} and {second}, so that it tells no rows apart: remove one of the rows, or \
             choose more columns"
        ))),
    }
}

/// The rows of the data files.
async fn rows_of(base: &Snapshot) -> Result<u64> {
    let mut rows = 0;
    for file in base.files() {
        rows += match &file.row_groups {
            Some(known) => known.iter().map(|rows| u64::from(*rows)).sum(),
            None => u64::from(RowFile::of(base, file).open().await?.rows()),
        };
    }
    Ok(rows)
}

/// Hashes that several rows have, ascending.
async fn repeated_hashes(base: &Snapshot, key: &Arc<KeyColumns>, build: &BuildOptions) -> Result<Vec<u64>> {
    let mut hashes: Vec<u64> = Vec::new();
    for_each_key(base, key, build, |_, _, _, bytes| hashes.push(hash(bytes))).await?;
    hashes.sort_unstable();
    let mut repeated: Vec<u64> =
        hashes.windows(2).filter(|pair| pair.first() == pair.last()).filter_map(|pair| pair.first().copied()).collect();
    repeated.dedup();
    Ok(repeated)
}

fn hash(bytes: &[u8]) -> u64 {
    crate::storage::fingerprint::fingerprint(bytes)
}

async fn for_each_key(
    base: &Snapshot,
    key: &Arc<KeyColumns>,
    build: &BuildOptions,
    mut visit: impl FnMut(&str, &arrow::array::RecordBatch, usize, &[u8]),
) -> Result<()> {
    let schema = key.schema();
    for file in base.files() {
        let opened = RowFile::of(base, file).open().await?;
        let live = file.deleted.as_ref().map(|deleted| RowSet::full(opened.rows()).minus(deleted));
        let mut batches = opened.read(&schema, live.as_ref())?;
        while let Some(batch) = batches.try_next().await? {
            if build.cancel.as_ref().is_some_and(CancelFlag::is_cancelled) {
                return Err(Error::new(ErrorKind::Cancelled, "the key was not declared; declare it at any time"));
            }
            if let Some(column) = batch.columns().iter().zip(&key.names).find(|(column, _)| column.null_count() > 0) {
                return Err(Error::invalid(format!(
                    "the column {} has rows without a value in {}, so that it cannot be a key: fill them, or choose others",
                    column.1, file.path
                )));
            }
            for (row, bytes) in key.encode(&batch)?.iter().enumerate() {
                visit(&file.path, &batch, row, bytes.as_ref());
            }
            if let Some(progress) = &build.progress {
                progress.advance(batch.num_rows() as u64);
            }
        }
    }
    Ok(())
}

/// Sees to it that the columns of the key, without partition columns, have an index that knows their rows.
async fn index_key(
    table: &Arc<UpdatableTable>,
    base: &Snapshot,
    columns: &[String],
    build: BuildOptions,
) -> Result<()> {
    let stored = physical_columns(base, columns);
    let name = composite(stored.iter().map(String::as_str));
    if stored.is_empty() || !base.exact_indexes_of(&name).is_empty() {
        return Ok(());
    }
    let (own, taken) = (format!("{}_key", stored.join("_")), base.indexes());
    // An index with hashes of the key is another one, too.
    let is_other =
        |index: &IndexInfo| index.columns != stored || index.options.iter().any(|(option, _)| option == HASH_BITS);
    let is_free = |name: &String| !taken.iter().any(|index| index.name == *name && is_other(index));
    let others = (2..).map(|number| format!("{own}_{number}"));
    let Some(index) = std::iter::once(own.clone()).chain(others).find(is_free) else { return Ok(()) };
    let spec =
        IndexSpec { name: Some(index.clone()), columns: stored, kind: Some(IndexKind::Key), ..IndexSpec::default() };
    create_index(&table.base, base, &spec, true).await?;
    // Files that came since the key was checked are indexed by the next build.
    build_listed(table, BuildOptions { index: Some(index), ..build }).await?;
    Ok(())
}
