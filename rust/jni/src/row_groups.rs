//! Which row groups of a table's own files a scan of Spark's or Delta's Parquet reader may leave out.
//!
//! Spark lists the files and reads them itself, so that it sees neither buffered changes nor what migrations have not published. The
//! indexes are probed for the files alone, and a file is named with its size and time. A file that Spark has listed otherwise is another
//! one, and read whole.
//!
//! The log of a Delta table says which files count. So its folder is no folder of Parquet files, and Delta's reader names the version that
//! it reads. The answer is about the files and deletion vectors of that version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema};
use lakemark_index::RowSet;
use lakemark_table::{ChangesBesideFiles, DataFile, FileProbe, ProbeOptions, Snapshot, Table, TableFormat};
use serde::Serialize;

use crate::error::Result;
use crate::filter;
use crate::table_cache::TableRef;
use crate::types::spark_type;

/// The answer to Java.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RowGroupSelection {
    /// What such a scan does not see.
    missed: ChangesBesideFiles,
    /// Of all files whose row groups are known.
    row_groups_total: usize,
    row_groups_skipped: usize,
    /// Files of which something may be left out; all others are read whole.
    files: Vec<File>,
}

/// A file of which only some row groups need be read.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    /// Below the table's root, as the names are. That of a file outside of it begins with a scheme.
    path: String,
    size: u64,
    modified_ms: i64,
    /// How many row groups and rows the file has, so that its reader sees that it is still the same one.
    row_groups: usize,
    rows: u64,
    /// Row groups that need be read, by ordinal, as ranges.
    kept: Vec<(usize, usize)>,
}

impl File {
    fn skipped(&self) -> usize {
        self.row_groups - self.kept.iter().map(|(start, end)| end - start).sum::<usize>()
    }
}

/// Probes the indexes; without a filter the answer has only what the scan misses. `columns` are those that the filter may name, with their
/// types in Spark. `version` is the one that a reader of Delta reads: what it misses is [`missed`], which is requested before the version is
/// known. The answer is empty for a Delta table that is read otherwise, and for any other table that is read as one.
pub(crate) async fn answer(
    table: &Arc<Table>,
    version: Option<u64>,
    filter: Option<&str>,
    columns: &BTreeMap<String, String>,
) -> Result<RowGroupSelection> {
    let missed = match (table.format(), version) {
        (TableFormat::Parquet, None) => table.changes_beside_files().await?,
        (TableFormat::Delta, Some(_)) => ChangesBesideFiles::default(),
        (TableFormat::Parquet, Some(_)) | (TableFormat::Delta, None) => return Ok(RowGroupSelection::default()),
    };
    let Some(filter) = filter else { return Ok(RowGroupSelection { missed, ..RowGroupSelection::default() }) };
    let snapshot = match version {
        Some(version) => at_version(table, version).await?,
        None => table.snapshot_of_files().await?,
    };
    let predicate = filter::parse(filter, &usable(&snapshot, columns))?;
    let probe = snapshot.probe(&predicate, &ProbeOptions::default()).await?;
    let files: Vec<File> =
        snapshot.files().iter().zip(&probe.files).filter_map(|(file, found)| kept(file, found)).collect();
    let row_groups_total = snapshot.files().iter().filter_map(|file| file.row_groups.as_ref()).map(Vec::len).sum();
    let row_groups_skipped = files.iter().map(File::skipped).sum();
    Ok(RowGroupSelection { missed, row_groups_total, row_groups_skipped, files })
}

/// What a reader of a table's own files does not see.
pub(crate) async fn missed(table: &TableRef) -> Result<ChangesBesideFiles> {
    let table = table.open().await?;
    let missed = table.changes_beside_files().await?;
    Ok(missed)
}

/// A version of a Delta table without what is buffered. Mostly it is the newest one, which an open table remembers.
async fn at_version(table: &Arc<Table>, version: u64) -> Result<Arc<Snapshot>> {
    let newest = table.snapshot_of_files().await?;
    if newest.delta_version() == Some(version) {
        return Ok(newest);
    }
    let older = table.at_version(version);
    let snapshot = older.snapshot().await?;
    Ok(snapshot)
}

/// The stored columns that Spark reads by these names, with the types that the files have. Spark finds columns whatever their case, so that
/// names which differ in nothing else could mean either.
fn usable(snapshot: &Snapshot, columns: &BTreeMap<String, String>) -> Schema {
    let (all, stored) = (snapshot.schema(), snapshot.file_schema());
    let is_alone = |name: &str| all.fields().iter().filter(|field| folded(field.name()) == folded(name)).count() == 1;
    let is_usable = |name: &str, data_type: &DataType| {
        let wanted = columns.get(name);
        wanted.is_some() && wanted.map(String::as_str) == spark_name(name, data_type).as_deref() && is_alone(name)
    };
    Schema::new(
        stored.fields().iter().filter(|field| is_usable(field.name(), field.data_type())).cloned().collect::<Vec<_>>(),
    )
}

/// A name as Spark compares it.
fn folded(name: &str) -> String {
    name.to_lowercase()
}

/// What Spark calls the type of a column; none for types that it has not, and where names of fields differ in their case only.
fn spark_name(column: &str, data_type: &DataType) -> Option<String> {
    name_of(&spark_type(column, data_type).ok()?)
}

fn name_of(data_type: &DataType) -> Option<String> {
    Some(match data_type {
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int8 => "tinyint".to_owned(),
        DataType::Int16 => "smallint".to_owned(),
        DataType::Int32 => "int".to_owned(),
        DataType::Int64 => "bigint".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
        DataType::Utf8 => "string".to_owned(),
        DataType::Binary => "binary".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Timestamp(_, Some(_)) => "timestamp".to_owned(),
        DataType::Timestamp(_, None) => "timestamp_ntz".to_owned(),
        DataType::List(item) => format!("array<{}>", name_of(item.data_type())?),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                let parts = fields.iter().map(|field| name_of(field.data_type()));
                format!("map<{}>", parts.collect::<Option<Vec<_>>>()?.join(","))
            }
            _ => return None,
        },
        DataType::Struct(fields) => {
            let names: BTreeSet<String> = fields.iter().map(|field| folded(field.name())).collect();
            let part = |field: &FieldRef| Some(format!("{}:{}", field.name(), name_of(field.data_type())?));
            let parts = fields.iter().map(part).collect::<Option<Vec<_>>>()?;
            if names.len() < parts.len() {
                return None;
            }
            format!("struct<{}>", parts.join(","))
        }
        _ => return None,
    })
}

/// What is to be read of a file; none if that is all of it.
fn kept(file: &DataFile, found: &FileProbe) -> Option<File> {
    let FileProbe::Known { row_groups, exact, recheck } = found else { return None };
    let (row_groups, rows) = match &file.row_groups {
        // A file that is ruled out as a whole has no row groups.
        Some(known) if row_groups.is_empty() => {
            (known, RowSet::empty(known.iter().copied().fold(0, u32::saturating_add)))
        }
        _ => (row_groups, exact.or(recheck)),
    };
    let kept = ranges(row_groups, &rows);
    if !row_groups.is_empty() && kept == [(0, row_groups.len())] {
        return None;
    }
    Some(File {
        path: file.path.clone(),
        size: file.meta.size,
        modified_ms: file.meta.last_modified.timestamp_millis(),
        row_groups: row_groups.len(),
        rows: row_groups.iter().copied().map(u64::from).sum(),
        kept,
    })
}

/// The ordinals of row groups that have one of these rows, as ranges.
fn ranges(row_groups: &[u32], rows: &RowSet) -> Vec<(usize, usize)> {
    let (mut ranges, mut start) = (Vec::<(usize, usize)>::new(), 0);
    for (ordinal, length) in row_groups.iter().enumerate() {
        let end = start + length;
        if rows.count_in(start, end) > 0 {
            match ranges.last_mut() {
                Some((_, last)) if *last == ordinal => *last += 1,
                _ => ranges.push((ordinal, ordinal + 1)),
            }
        }
        start = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::datatypes::Field;
    use lakemark_format::key::{Key, key_of_i64};
    use lakemark_index::{KeyRanges, Leaf, Predicate, Test};
    use lakemark_table::{BuildOptions, IndexKind, IndexSpec, TableOptions};
    use parquet::arrow::ArrowWriter;
    use serde_json::json;

    use super::*;
    use crate::storage::TableStorage;

    /// Writes forty files of one row, which have the numbers from 0 to 39.
    fn write_files(root: &Path) {
        for file in 0..40 {
            let column: ArrayRef = Arc::new(Int64Array::from(vec![file]));
            let rows = RecordBatch::try_from_iter([("k", column)]).expect("a batch");
            let output = fs::File::create(root.join(format!("{file:02}.parquet"))).expect("a file");
            let mut writer = ArrowWriter::try_new(output, rows.schema(), None).expect("a writer");
            writer.write(&rows).expect("rows");
            writer.close().expect("a footer");
        }
    }

    /// The table of a folder with such files, with an index.
    async fn indexed(root: &Path) -> Arc<Table> {
        let location = root.to_str().expect("a path");
        let table = Table::open(location, TableOptions::default()).await.expect("a table");
        let columns = vec!["k".to_owned()];
        let spec = IndexSpec { columns, kind: IndexKind::from_name("key"), ..IndexSpec::default() };
        table.create_index(spec, false).await.expect("an index");
        table.build(BuildOptions::default()).await.expect("a build");
        table
    }

    #[test]
    fn a_file_that_the_index_rules_out_is_left_out_with_all_of_its_row_groups() {
        let root = tempfile::tempdir().expect("a folder");
        write_files(root.path());
        let left_out = crate::runtime::block_on(async {
            let table = indexed(root.path()).await;
            let snapshot = table.snapshot_of_files().await.expect("a snapshot");
            let test = Test::Ranges(KeyRanges::point(Key::Fixed(key_of_i64(7))));
            let predicate = Predicate::Leaf(Leaf { column: "k".to_owned(), test, text: "k = 7".to_owned() });
            let probe = snapshot.probe(&predicate, &ProbeOptions::default()).await.expect("a probe");
            assert_eq!(probe.files.listed().map(|(place, _)| place).collect::<Vec<_>>(), [7]);
            let files = snapshot.files().iter().zip(&probe.files);
            files.filter_map(|(file, found)| kept(file, found)).collect::<Vec<File>>()
        });
        let left_out = left_out.expect("threads");
        // All of the one file that has the key is read.
        assert_eq!(left_out.len(), 39);
        let is_whole = |file: &File| file.kept.is_empty() && (file.row_groups, file.rows) == (1, 1);
        assert!(left_out.iter().all(|file| is_whole(file) && file.path != "07.parquet"), "{left_out:?}");
    }

    /// Makes a Delta table of the files of a folder: version 0 has all of them, version 1 lacks the last.
    fn write_log(root: &Path) {
        let column = json!({"name": "k", "type": "long", "nullable": true, "metadata": {}});
        let schema = json!({"type": "struct", "fields": [column]}).to_string();
        let metadata = json!({
            "id": "7c0c36c5-7a8e-4a59-9d5b-6a2f0b8e9d11",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": {},
            "createdTime": 0,
        });
        let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
        let mut first = vec![protocol.to_string(), json!({"metaData": metadata}).to_string()];
        for file in 0..40 {
            let path = format!("{file:02}.parquet");
            let size = fs::metadata(root.join(&path)).expect("a file").len();
            let time = 1_700_000_000_000_u64;
            let add = json!({"path": path, "partitionValues": {}, "size": size, "modificationTime": time, "dataChange": true});
            first.push(json!({"add": add}).to_string());
        }
        let second = json!({"remove": {"path": "39.parquet", "deletionTimestamp": 0, "dataChange": true}});
        let log = root.join("_delta_log");
        fs::create_dir(&log).expect("a folder");
        fs::write(log.join("00000000000000000000.json"), first.join("\n")).expect("a commit");
        fs::write(log.join("00000000000000000001.json"), second.to_string()).expect("a commit");
    }

    #[test]
    fn a_version_of_a_delta_table_is_probed_for_a_reader_of_delta_alone() {
        let root = tempfile::tempdir().expect("a folder");
        write_files(root.path());
        write_log(root.path());
        crate::runtime::block_on(async {
            let table = indexed(root.path()).await;
            let columns = BTreeMap::from([("k".to_owned(), "bigint".to_owned())]);
            let filter = r#"{"op":"ge","column":"k","value":{"long":38}}"#;
            let newest = answer(&table, Some(1), Some(filter), &columns).await.expect("an answer");
            assert_eq!((newest.row_groups_total, newest.row_groups_skipped), (39, 38));
            // Of the file that was removed before the build nothing is known: it is read whole.
            let older = answer(&table, Some(0), Some(filter), &columns).await.expect("an answer");
            assert_eq!((older.row_groups_total, older.row_groups_skipped), (39, 38));
            assert!(older.files.iter().all(|file| file.path != "38.parquet" && file.path != "39.parquet"));
            assert!(older.files.iter().all(|file| file.modified_ms == 1_700_000_000_000 && file.kept.is_empty()));
            let as_folder = answer(&table, None, Some(filter), &columns).await.expect("an answer");
            assert_eq!((as_folder.row_groups_total, as_folder.files.len()), (0, 0));
            assert!(answer(&table, Some(2), Some(filter), &columns).await.is_err(), "there is no version 2");
            let named = TableRef {
                location: root.path().to_str().expect("a path").to_owned(),
                storage: TableStorage::default(),
                version: None,
                max_staleness: Duration::ZERO,
            };
            assert_eq!(missed(&named).await.expect("what is missed"), ChangesBesideFiles::default());
        })
        .expect("threads");
    }

    #[test]
    fn neighbouring_row_groups_are_one_range() {
        let rows = RowSet::from_rows(vec![0, 9, 10, 45, 46, 59], 60);
        assert_eq!(ranges(&[10, 10, 10, 0, 10, 10, 10], &rows), [(0, 2), (5, 7)]);
        assert_eq!(ranges(&[10, 10], &RowSet::empty(20)), []);
        assert_eq!(ranges(&[], &RowSet::empty(0)), []);
    }

    fn of_fields(names: &[&str]) -> DataType {
        DataType::Struct(names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect())
    }

    fn map_of(value: DataType) -> DataType {
        let fields = vec![Field::new("key", DataType::Utf8, false), Field::new("value", value, true)];
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(fields.into()), false)), false)
    }

    #[test]
    fn types_are_called_as_spark_calls_them() {
        for (data_type, name) in [
            (DataType::UInt32, Some("bigint")),
            (DataType::UInt64, Some("decimal(20,0)")),
            (DataType::Utf8View, Some("string")),
            (DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None), Some("timestamp_ntz")),
            (DataType::LargeList(Arc::new(Field::new("item", DataType::Int32, true))), Some("array<int>")),
            (of_fields(&["a", "b"]), Some("struct<a:int,b:int>")),
            (of_fields(&["a", "A"]), None),
            (map_of(of_fields(&["x"])), Some("map<string,struct<x:int>>")),
            (DataType::Time64(arrow::datatypes::TimeUnit::Microsecond), None),
        ] {
            assert_eq!(spark_name("c", &data_type).as_deref(), name, "{data_type}");
        }
    }
}
