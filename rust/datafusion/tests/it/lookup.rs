//! Rows by key: the same rows as by a condition, from an index of the kind `key`, without one, and with a damaged one.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int8Array, Int64Array, NullArray, RecordBatch, StringArray, StructArray,
    UInt64Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::Int64Type;
use lakemark_datafusion::{ErrorKind, QueryOptions, explain, lookup};
use lakemark_table::{BuildOptions, IndexKind, IndexSpec, Table};
use tempfile::TempDir;

use crate::fixture::{FILE_ROWS, Ran, batch, create_indexes, folder, metric, open, ran, session, text, write};

const WITHOUT: QueryOptions = QueryOptions { use_index: false, selection_cache: true };

pub async fn create_key_indexes(folder: &Path, columns: &[&str]) {
    let table = open(folder).await;
    for column in columns {
        let spec =
            IndexSpec { columns: vec![(*column).to_owned()], kind: Some(IndexKind::Key), ..IndexSpec::default() };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
}

async fn found(table: &Arc<Table>, keys: impl arrow::array::Array + 'static, on: Option<&str>) -> Vec<String> {
    let keys: ArrayRef = Arc::new(keys);
    let columns = ["id".to_owned()];
    let on: Vec<String> = on.map(|on| on.split(',').map(str::to_owned).collect()).unwrap_or_default();
    let mut rows = Vec::new();
    for options in [QueryOptions::default(), WITHOUT] {
        let given = lookup(table, &keys, &on, Some(&columns), &options).await.unwrap();
        assert_eq!(given.schema.fields().len(), 1);
        let mut found: Vec<String> = given.batches.iter().flat_map(text).collect();
        found.sort();
        rows.push(found);
    }
    assert_eq!(rows[0], rows[1], "with and without the index");
    rows.remove(0)
}

#[tokio::test]
async fn keys_are_found_in_whatever_type_they_come() {
    let folder = folder(2);
    create_key_indexes(folder.path(), &["id"]).await;
    let table = open(folder.path()).await;
    assert_eq!(
        found(&table, Int64Array::from(vec![Some(1999), None, Some(5), Some(2000), Some(5)]), None).await,
        ["1999", "5"]
    );
    assert_eq!(found(&table, Int8Array::from(vec![7, -1]), None).await, ["7"]);
    assert_eq!(found(&table, UInt64Array::from(vec![8, u64::MAX]), None).await, ["8"]);
    // A number between two integers is no integer.
    assert_eq!(found(&table, Float64Array::from(vec![9.0, 9.5, f64::NAN]), None).await, ["9"]);
    assert_eq!(found(&table, StringArray::from(vec!["10"]), None).await, ["10"]);
    assert!(found(&table, NullArray::new(3), None).await.is_empty());
    assert!(found(&table, Int64Array::from(Vec::<i64>::new()), None).await.is_empty());
}

#[tokio::test]
async fn a_lookup_lists_the_data_files_once() {
    let folder = folder(2);
    create_key_indexes(folder.path(), &["id"]).await;
    let table = open(folder.path()).await;
    for key in [5, 1999, 5000] {
        let (keys, before): (ArrayRef, _) = (Arc::new(Int64Array::from(vec![key])), table.metrics().listings.get());
        lookup(&table, &keys, &[], None, &QueryOptions::default()).await.unwrap();
        assert_eq!(table.metrics().listings.get(), before + 1);
    }
}

#[tokio::test]
async fn a_column_of_repeated_values_gives_all_of_its_rows() {
    let folder = folder(2);
    create_key_indexes(folder.path(), &["k", "s", "f"]).await;
    let table = open(folder.path()).await;
    let expected = (0..2 * FILE_ROWS).filter(|row| row % 10 == 4 && row % 7 != 3).count();
    assert_eq!(found(&table, Int64Array::from(vec![4]), Some("k")).await.len(), expected);
    assert_eq!(found(&table, StringArray::from(vec![""]), Some("s")).await.len(), 2 * FILE_ROWS / 5);
    // Rows of NaN are not exact: they are read and tested.
    let zeros = (0..2 * FILE_ROWS).filter(|row| matches!(row % 6, 1 | 2)).count();
    assert_eq!(found(&table, Float64Array::from(vec![-0.0, 0.0]), Some("f")).await.len(), zeros);
}

#[tokio::test]
async fn a_new_file_is_scanned_and_a_damaged_index_costs_time_only() {
    let folder = folder(1);
    create_key_indexes(folder.path(), &["id"]).await;
    write(&folder.path().join("part-9.parquet"), &batch(FILE_ROWS));
    let table = open(folder.path()).await;
    assert_eq!(found(&table, Int64Array::from(vec![3, 1500]), None).await, ["1500", "3"]);
    let index_files = folder.path().join("_lakemark/indexes");
    for entry in fs::read_dir(index_files).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes[70] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    assert_eq!(found(&table, Int64Array::from(vec![4, 1501]), None).await, ["1501", "4"]);
}

#[tokio::test]
async fn a_new_key_takes_one_read_of_a_page() {
    let folder = folder(3);
    create_key_indexes(folder.path(), &["id"]).await;
    let table = open(folder.path()).await;
    explain(&table, Some("id = 1"), &QueryOptions::default()).await.unwrap();
    // The directories are open now.
    let report = explain(&table, Some("id = 2345"), &QueryOptions::default()).await.unwrap();
    assert_eq!((report.index_reads, report.rows_exact), (1, 1), "{report}");
    assert!(report.index_bytes_read <= 4096, "{report}");
}

#[tokio::test]
async fn what_cannot_be_looked_up_says_what_to_do() {
    let folder = folder(1);
    create_indexes(folder.path(), &["id"]).await;
    let table = open(folder.path()).await;
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let error = lookup(&table, &keys, &[], None, &WITHOUT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("--using key"), "{error}");
    create_key_indexes(folder.path(), &["id", "s"]).await;
    let error = lookup(&table, &keys, &[], None, &WITHOUT).await.unwrap_err();
    assert!(error.to_string().contains("(id) and (s)"), "{error}");
    for (on, keys, text) in [
        ("nothing", Arc::clone(&keys), "no column"),
        ("s", keys, "another kind"),
        ("id", Arc::new(StringArray::from(vec!["seven"])) as ArrayRef, "seven"),
    ] {
        let error = lookup(&table, &keys, &[on.to_owned()], None, &WITHOUT).await.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// Keys of `s` and `id`.
fn pairs(names: &[Option<&str>], ids: &[Option<i64>]) -> StructArray {
    let names: ArrayRef = Arc::new(names.iter().copied().collect::<StringArray>());
    let ids: ArrayRef = Arc::new(ids.iter().copied().collect::<Int64Array>());
    StructArray::try_from(vec![("0", names), ("1", ids)]).unwrap()
}

#[tokio::test]
async fn keys_of_several_columns_are_found_together() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    let on = || vec!["s".to_owned(), "id".to_owned()];
    // Whatever row has an id and a name, the key of both is found, and neither with the other's partner.
    let every: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2000));
    let rows = lookup(&table, &every, &["id".to_owned()], Some(&on()), &WITHOUT).await.unwrap();
    let rows = concat_batches(&rows.schema, &rows.batches).unwrap();
    let (names, ids) = (rows.column(0).as_string::<i32>(), rows.column(1).as_primitive::<Int64Type>());
    let named: Vec<(&str, i64)> = (0..rows.num_rows())
        .filter(|row| names.is_valid(*row) && ids.is_valid(*row))
        .map(|row| (names.value(row), ids.value(row)))
        .collect();
    let (one, other) = (named[3], *named.iter().rev().find(|(name, _)| *name != named[3].0).unwrap());
    let keys = pairs(
        &[Some(one.0), Some(other.0), Some(other.0), None, Some(one.0)],
        &[Some(one.1), Some(one.1), Some(other.1), Some(one.1), None],
    );
    let mut expected = vec![one.1.to_string(), other.1.to_string()];
    expected.sort();
    assert_eq!(found(&table, keys.clone(), Some("s,id")).await, expected, "without any index");
    let spec = IndexSpec { columns: on(), ..IndexSpec::default() };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let table = open(folder.path()).await;
    assert_eq!(found(&table, keys.clone(), None).await, expected);
    // The other way around by the columns that are named, and by the names of fields.
    let (names, ids) = (Arc::clone(keys.column(0)), Arc::clone(keys.column(1)));
    let swapped = StructArray::try_from(vec![("0", Arc::clone(&ids)), ("1", Arc::clone(&names))]).unwrap();
    assert_eq!(found(&table, swapped, Some("id,s")).await, expected);
    let named_fields = StructArray::try_from(vec![("id", ids), ("s", names)]).unwrap();
    assert_eq!(found(&table, named_fields, None).await, expected);
    // As typed, with names that hold commas and quotes in quotes.
    let typed = StringArray::from(vec![format!("\"{}\",{}", one.0, one.1), format!("{},{}", other.0, other.1)]);
    assert_eq!(found(&table, typed, None).await, expected);
    let none = StringArray::from(vec![format!("\"{},\"\"\",{}", one.0, one.1)]);
    assert_eq!(found(&table, none, None).await, Vec::<String>::new());
    assert_eq!(found(&table, pairs(&[], &[]), None).await, Vec::<String>::new());
    for (keys, text) in [
        (Arc::new(Int64Array::from(vec![1])) as ArrayRef, "keys of type Int64 were given"),
        (Arc::new(StringArray::from(vec!["x,1,2"])), "\"x,1,2\" is none"),
        (Arc::new(StringArray::from(vec!["x,1\ny,2"])), "is none"),
        (Arc::new(StringArray::from(vec!["x,seven"])), "seven"),
        (
            Arc::new(StructArray::try_from(vec![("s", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap()),
            "keys of 1 values",
        ),
    ] {
        let error = lookup(&table, &keys, &[], None, &QueryOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
    }
    // Counted, and not guessed: the directory is known, then one page answers.
    let filter = format!("s = '{}' AND id = {}", one.0, one.1);
    explain(&table, Some(&filter), &QueryOptions::default()).await.unwrap();
    let filter = format!("id = {} AND s = '{}'", other.1, other.0);
    let report = explain(&table, Some(&filter), &QueryOptions::default()).await.unwrap();
    assert_eq!((report.index_reads, report.rows_exact, report.rows_rechecked), (1, 1, 0), "{report}");
}

#[tokio::test]
async fn zeros_of_floats_are_one_key_with_and_without_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    let values: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 0.0, 1.5, f64::NAN]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "a", "a", "a"]));
    let rows = RecordBatch::try_from_iter([("id", ids), ("v", values), ("s", names)]).unwrap();
    write(&folder.path().join("f.parquet"), &rows);
    let table = open(folder.path()).await;
    let keys = |values: Vec<f64>| {
        let names: ArrayRef = Arc::new(StringArray::from(vec!["a"; values.len()]));
        StructArray::try_from(vec![("0", names), ("1", Arc::new(Float64Array::from(values)) as ArrayRef)]).unwrap()
    };
    // `found` compares with the index and without.
    for is_marked in [false, true] {
        if is_marked {
            let spec = IndexSpec { columns: vec!["s".to_owned(), "v".to_owned()], ..IndexSpec::default() };
            table.create_index(spec, false).await.unwrap();
            table.build(BuildOptions::default()).await.unwrap();
        }
        let table = open(folder.path()).await;
        assert_eq!(found(&table, keys(vec![0.0]), Some("s,v")).await, ["1", "2"]);
        assert_eq!(found(&table, keys(vec![-0.0, 1.5]), Some("s,v")).await, ["1", "2", "3"]);
        let swapped = keys(vec![1.5]);
        let swapped =
            StructArray::try_from(vec![("0", Arc::clone(swapped.column(1))), ("1", Arc::clone(swapped.column(0)))]);
        assert_eq!(found(&table, swapped.unwrap(), Some("v,s")).await, ["3"]);
    }
}

#[tokio::test]
async fn scattered_keys_read_little_more_than_their_leaves() {
    let folder = TempDir::new().unwrap();
    let mut keys: Vec<i64> = (0..200_000u64).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15).cast_signed()).collect();
    let batch = RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(keys.clone())) as ArrayRef)]).unwrap();
    write(&folder.path().join("part-0.parquet"), &batch);
    create_key_indexes(folder.path(), &["id"]).await;
    let session = session(folder.path()).await;
    // On a disk, leaves that are 50 KB apart are read one by one.
    keys.sort_unstable();
    let searched: Vec<String> = keys.iter().step_by(6_000).map(ToString::to_string).collect();
    let Ran { plan, rows: count } =
        ran(&session, &format!("SELECT id FROM t WHERE id IN ({})", searched.join(", "))).await;
    assert_eq!(count, searched.len());
    let (bytes, reads) = (metric(&plan, "index_bytes_read"), metric(&plan, "index_reads"));
    assert!(bytes < searched.len() * 20_000 && reads >= searched.len() / 2, "{bytes} bytes in {reads} reads");
}
