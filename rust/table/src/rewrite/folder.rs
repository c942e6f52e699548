//! New data files of a table of Parquet files: they lie in the store, and a manifest has to name them before anyone
//! sees them.

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::files::delta::partition_text;
use crate::files::listing::hive_folder_name;
use crate::rewrite::refill::name_start;
use crate::rewrite::target::{FILE_BYTES, FileTarget};
use crate::rewrite::{RewriteInput, RewriteOutput, rewrite_files};
use crate::snapshot::{DataFile, Snapshot};
use crate::storage::failpoint::reach;
use crate::storage::ids::new_id;
use crate::store::Store;

/// The folder of the store that has new data files.
const DATA: &str = "data";

/// Writes what a migration makes of the files of a snapshot into the store, below a folder of the migration's own.
/// Paths of the result are paths in the store.
pub(crate) async fn write(
    store: &Store,
    snapshot: &Snapshot,
    input: &RewriteInput<'_>,
    migration: Uuid,
) -> Result<RewriteOutput> {
    let place = store.place();
    if place.local.is_none() || snapshot.root_url().scheme() != "file" {
        return Err(Error::unsupported(
            "updates are compacted into a folder of Parquet files only where table and store are on a local file system; \
             copy the table there, or make it a Delta table",
        ));
    }
    let path = |number: usize, replaces: Option<&DataFile>, partition: &[ArrayRef]| {
        let folders = hive_folders(snapshot.partition_columns(), partition)?;
        Ok(format!("{DATA}/{migration}/{folders}{}-{number:05}-{}.parquet", name_start(replaces), new_id()))
    };
    let target = FileTarget {
        object_store: place.object_store.clone(),
        prefix: place.prefix.clone(),
        local: place.local.clone(),
        schema: snapshot.file_schema(),
        file_bytes: FILE_BYTES,
        columns_are_in_files: true,
        tracks_nan: false,
        row_ids: None,
        changes: None,
        spark_schema: snapshot.spark_schema_of_files().await?,
        path: &path,
    };
    let rewritten = rewrite_files(snapshot, input, &target).await?;
    reach("migration-written");
    Ok(rewritten)
}

/// The folders of a partition, each with a slash at its end.
pub(super) fn hive_folders(columns: &[Field], values: &[ArrayRef]) -> Result<String> {
    let mut folders = String::new();
    for (column, value) in columns.iter().zip(values) {
        folders += &hive_folder_name(column.name(), partition_text(value)?.as_deref());
        folders.push('/');
    }
    Ok(folders)
}
