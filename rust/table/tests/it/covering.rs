//! Columns that ride along with the keys of an index: their values from the index alone, against the rows of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int8Type, Int64Type, Schema};
use lakemark_format::Key;
use lakemark_format::key::key_of_i64;
use lakemark_index::{KeyRanges, Predicate};
use lakemark_table::{
    BuildOptions, CoverRequest, CoveredValues, ErrorKind, FileProbe, IndexKind, IndexSpec, Probe, Reason, RowSet,
    RowsOfFile, Snapshot, Table, column_list,
};

use crate::fixture::{covered_values, leaf, open, probe, segments, write};

/// Rows of a file.
const ROWS: usize = 250;
/// A text that is longer than any key.
const LONG: usize = 5000;

/// The id of a row: each once, in no order, some NULL.
fn id(row: usize) -> Option<i64> {
    (!row.is_multiple_of(31)).then_some((row * 7919 % 10_007) as i64)
}

fn price(row: usize) -> Option<f64> {
    match row % 9 {
        0 => None,
        1 => Some(-0.0),
        2 => Some(f64::from_bits(0xfff8_0000_0000_0123)),
        other => Some(row as f64 / other as f64),
    }
}

fn city(row: usize) -> Option<String> {
    match row % 50 {
        7 => None,
        8 => Some("x".repeat(LONG)),
        other => Some(format!("city {}", other % 6)),
    }
}

fn batch(first: usize) -> RecordBatch {
    let rows = first..first + ROWS;
    let ids: ArrayRef = Arc::new(rows.clone().map(id).collect::<Int64Array>());
    let cities: ArrayRef = Arc::new(rows.clone().map(city).collect::<StringArray>());
    let prices: ArrayRef = Arc::new(rows.clone().map(price).collect::<Float64Array>());
    let others: ArrayRef = Arc::new(rows.map(|row| Some(row as i32)).collect::<Int32Array>());
    RecordBatch::try_from_iter_with_nullable([
        ("id", ids, true),
        ("city", cities, true),
        ("price", prices, true),
        ("other", others, true),
    ])
    .unwrap()
}

fn folder(files: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    (0..files).for_each(|file| write(&path(folder.path(), file), &batch(file * ROWS)));
    folder
}

fn path(folder: &Path, file: usize) -> std::path::PathBuf {
    folder.join(format!("f{file}.parquet"))
}

fn spec(columns: &[&str], include: &[&str]) -> IndexSpec {
    IndexSpec {
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        options: BTreeMap::from([("include".to_owned(), column_list(include.iter().copied()))]),
        ..IndexSpec::default()
    }
}

async fn indexed(path: &Path) -> Arc<Table> {
    let table = open(path).await;
    table.create_index(spec(&["id"], &["city", "price"]), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table
}

fn keys(ids: &[i64]) -> Predicate {
    leaf("id", KeyRanges::points(ids.iter().map(|id| Key::Fixed(key_of_i64(*id))).collect()))
}

/// What the index gives of the exact rows of a probe.
async fn covered(snapshot: &Snapshot, predicate: &Predicate, columns: &[&str]) -> (Probe, Option<CoveredValues>) {
    let found = probe(snapshot, predicate).await;
    let values = covered_values(snapshot, predicate, &found, columns).await;
    (found, values)
}

/// What rides along, as `id -> (city, bits of the price)`, from columns in this order.
fn by_id(values: &CoveredValues) -> BTreeMap<i64, (Option<String>, Option<u64>)> {
    let [cities, ids, prices] = values.columns.as_slice() else { panic!("{:?}", values.columns) };
    let (cities, ids, prices) =
        (cities.as_string::<i32>(), ids.as_primitive::<Int64Type>(), prices.as_primitive::<Float64Type>());
    let of = |row: usize| {
        let city = cities.is_valid(row).then(|| cities.value(row).to_owned());
        (ids.value(row), (city, prices.is_valid(row).then(|| prices.value(row).to_bits())))
    };
    (0..ids.len()).map(of).collect()
}

/// Checks what is covered of some ids, and gives how many rows are.
async fn check(snapshot: &Snapshot, rows: &[usize]) -> usize {
    let ids: Vec<i64> = rows.iter().filter_map(|row| id(*row)).collect();
    let (_, values) = covered(snapshot, &keys(&ids), &["city", "id", "price"]).await;
    let Some(values) = values else { return 0 };
    let found = by_id(&values);
    let expected = rows.iter().filter_map(|row| Some((id(*row)?, (city(*row), price(*row).map(f64::to_bits)))));
    let expected: BTreeMap<_, _> = expected.collect();
    for (id, values) in &found {
        assert_eq!(Some(values), expected.get(id), "id {id}");
        assert!(values.0.as_ref().is_none_or(|city| city.len() < LONG), "what is too long is read");
    }
    let counted: usize = values.rows.iter().map(|of_file| of_file.rows.len() as usize).sum();
    assert_eq!((counted, values.files.len()), (found.len(), found.len()));
    found.len()
}

/// Rows whose key rides.
fn riding(rows: &[usize]) -> usize {
    rows.iter().filter(|row| id(**row).is_some() && **row % 50 != 8).count()
}

const SOME: [usize; 9] = [1, 5, 8, 31, 57, 300, 301, 308, 499];

#[tokio::test(flavor = "multi_thread")]
async fn values_come_from_the_index_bit_for_bit() {
    let folder = folder(2);
    let table = indexed(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    let info = &snapshot.indexes()[0];
    assert_eq!(info.kind.known(), Some(IndexKind::Key));
    assert_eq!(info.options, [("include".to_owned(), "city,price".to_owned())]);
    assert_eq!(check(&snapshot, &SOME).await, riding(&SOME));
    // A leaf is read once for rows and values; then neither reads it again.
    let (found, values) = covered(&snapshot, &keys(&[id(77).unwrap()]), &["price"]).await;
    assert_eq!(found.exact_row_count(), Some(1));
    let values = values.unwrap();
    assert_eq!((values.index.as_str(), values.columns[0].len()), ("id_key", 1));
    let (_, again) = covered(&snapshot, &keys(&[id(77).unwrap()]), &["price"]).await;
    assert_eq!(again.unwrap().index_reads, 0);
    // The other column is in the data files alone.
    assert!(covered(&snapshot, &keys(&[id(77).unwrap()]), &["price", "other"]).await.1.is_none());
    assert!(covered(&snapshot, &keys(&[-5]), &["price"]).await.1.is_none());
    assert!(table.verify().await.unwrap().indexes.iter().all(|verdict| verdict.damaged.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_probe_leaves_out_get_no_values() {
    let folder = folder(1);
    let snapshot = indexed(folder.path()).await.snapshot().await.unwrap();
    let predicate = keys(&[id(1).unwrap(), id(2).unwrap()]);
    let found = probe(&snapshot, &predicate).await;
    let (file, FileProbe::Known { exact, .. }) = found.files.listed().next().unwrap() else { panic!() };
    assert_eq!(exact.iter().collect::<Vec<_>>(), [1, 2]);
    let one = RowSet::from_rows(vec![2], exact.universe());
    let rows = vec![RowsOfFile { file, rows: &one }];
    let request = CoverRequest { predicate: &predicate, columns: vec!["price".to_owned()], rows };
    let values = snapshot.covered_rows(&request).await.unwrap();
    assert_eq!(values.rows[0].rows, one);
    let price_bits = values.columns[0].as_primitive::<Float64Type>().value(0).to_bits();
    assert_eq!(price_bits, price(2).unwrap().to_bits());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_probe_leaves_open_get_values_to_be_tested_by() {
    let folder = folder(2);
    let snapshot = indexed(folder.path()).await.snapshot().await.unwrap();
    let wanted = [1, 2, 300];
    let ids: Vec<i64> = wanted.iter().filter_map(|row| id(*row)).collect();
    // Nobody but an engine can say what this is true of.
    let unknown = Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: "city < price".to_owned() };
    let predicate = Predicate::And(vec![keys(&ids), unknown.clone()]);
    let found = probe(&snapshot, &predicate).await;
    let open: Vec<(usize, RowSet)> = found
        .files
        .listed()
        .filter_map(|(file, probe)| match probe {
            FileProbe::Known { exact, recheck, .. } if exact.is_empty() => Some((file, recheck.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(open.iter().map(|(_, rows)| rows.len()).sum::<u32>(), 3);
    let rows = open.iter().map(|(file, rows)| RowsOfFile { file: *file, rows }).collect();
    let columns: Vec<String> = ["city", "id", "price"].map(str::to_owned).to_vec();
    assert!(snapshot.is_covered(&predicate, &columns) && !snapshot.is_covered(&unknown, &columns));
    let request = CoverRequest { predicate: &predicate, columns, rows };
    let values = snapshot.covered_rows(&request).await.unwrap();
    let expected = wanted.map(|row| (id(row).unwrap(), (city(row), price(row).map(f64::to_bits))));
    assert_eq!(by_id(&values), BTreeMap::from(expected));
    // A file with more rows than a lookup has leaves the others their answer.
    let many = RowSet::full(1 << 20);
    let few = open.iter().take(1).map(|(file, rows)| RowsOfFile { file: *file, rows });
    let rows = few.chain([RowsOfFile { file: 1, rows: &many }]).collect();
    let request = CoverRequest { predicate: &predicate, columns: vec!["price".to_owned()], rows };
    let values = snapshot.covered_rows(&request).await.unwrap();
    assert_eq!(values.rows.iter().map(|of_file| of_file.file).collect::<Vec<_>>(), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn appended_files_ride_in_segments_of_their_own_and_merges_keep_them() {
    let folder = folder(1);
    let table = indexed(folder.path()).await;
    for file in 1..4 {
        write(&path(folder.path(), file), &batch(file * ROWS));
        table.build(BuildOptions { merging: lakemark_table::Merging::Never, ..BuildOptions::default() }).await.unwrap();
    }
    let rows: Vec<usize> = (0..4 * ROWS).step_by(13).collect();
    assert_eq!(check(&table.snapshot().await.unwrap(), &rows).await, riding(&rows));
    let all = BuildOptions { merging: lakemark_table::Merging::All, ..BuildOptions::default() };
    let merged = table.compact(all).await.unwrap();
    assert_eq!((merged.segments_merged, merged.segments_written), (4, 1));
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!(check(&snapshot, &rows).await, riding(&rows));
    assert!(table.verify().await.unwrap().indexes.iter().all(|verdict| verdict.damaged.is_empty()));
    // A file that no build has seen is left to be read.
    write(&path(folder.path(), 4), &batch(4 * ROWS));
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(check(&snapshot, &[1, 4 * ROWS + 1]).await, 1);
    // A build of the same files writes as many bytes as the merge did.
    fs::remove_file(path(folder.path(), 4)).unwrap();
    fs::remove_dir_all(folder.path().join("_lakemark")).unwrap();
    let table = open(folder.path()).await;
    table.create_index(spec(&["id"], &["city", "price"]), false).await.unwrap();
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().bytes_written, merged.bytes_written);
}

#[tokio::test(flavor = "multi_thread")]
async fn law_1_a_file_that_changed_a_damaged_leaf_and_other_bytes_give_no_values() {
    let folder = folder(2);
    let table = indexed(folder.path()).await;
    assert_eq!(check(&table.snapshot().await.unwrap(), &[1, 301]).await, 2);
    // The same rows at another time: their bytes prove them, those of the columns that ride along as well.
    let bytes = fs::read(path(folder.path(), 0)).unwrap();
    fs::write(path(folder.path(), 0), &bytes).unwrap();
    assert_eq!(check(&table.snapshot().await.unwrap(), &[1, 301]).await, 2);
    // Other cities with the same ids.
    let changed = batch(0);
    let mut columns = changed.columns().to_vec();
    columns[1] = Arc::new((0..ROWS).map(|row| Some(format!("town {row}"))).collect::<StringArray>());
    write(&path(folder.path(), 0), &RecordBatch::try_new(changed.schema(), columns).unwrap());
    assert_eq!(check(&table.snapshot().await.unwrap(), &[1, 301]).await, 1);
    // Leaves that the process has read stay true, and nobody has read these.
    let other = self::folder(2);
    let table = indexed(other.path()).await;
    let segment = segments(other.path()).pop().unwrap();
    let mut damaged = fs::read(&segment).unwrap();
    damaged[200] ^= 1;
    fs::write(&segment, damaged).unwrap();
    // The key of the first leaf.
    let least = (0..2 * ROWS).filter(|row| id(*row).is_some()).min_by_key(|row| id(*row)).unwrap();
    assert_eq!(check(&table.snapshot().await.unwrap(), &[least]).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_lacks_a_column_has_null_in_it() {
    let folder = folder(1);
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![100_001, 100_002]));
    let prices: ArrayRef = Arc::new(Float64Array::from(vec![Some(7.0), None]));
    let rows = [("id", ids, true), ("price", prices, true)];
    write(&path(folder.path(), 1), &RecordBatch::try_from_iter_with_nullable(rows).unwrap());
    let snapshot = indexed(folder.path()).await.snapshot().await.unwrap();
    let (_, values) = covered(&snapshot, &keys(&[100_001, 100_002]), &["city", "id", "price"]).await;
    let expected = BTreeMap::from([(100_001, (None, Some(7.0f64.to_bits()))), (100_002, (None, None))]);
    assert_eq!(by_id(&values.unwrap()), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_several_columns_give_their_parts() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    table.create_index(spec(&["city", "id"], &["price"]), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let city_is = |text: &str| leaf("city", KeyRanges::point(Key::Bytes(text.as_bytes().to_vec())));
    let predicate = Predicate::And(vec![city_is("city 1"), keys(&[id(1).unwrap(), id(13).unwrap(), id(2).unwrap()])]);
    let (found, values) = covered(&snapshot, &predicate, &["city", "id", "price"]).await;
    // Rows whose city is too long for an index are looked at.
    assert_eq!((found.report.rows_exact, found.report.rows_rechecked), (2, 10));
    let expected = [1, 13].map(|row| (id(row).unwrap(), (city(row), price(row).map(f64::to_bits))));
    assert_eq!(by_id(&values.unwrap()), BTreeMap::from(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_ride_is_refused_when_it_is_declared() {
    let folder = tempfile::tempdir().unwrap();
    let inner: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let field = Field::new("x", DataType::Int32, true);
    let structs = arrow::array::StructArray::new(vec![field].into(), vec![Arc::clone(&inner)], None);
    let lists = arrow::array::ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>([Some([Some(1)])]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::clone(&inner)),
        ("a,b", Arc::clone(&inner)),
        ("place", Arc::new(structs)),
        ("tags", Arc::new(lists)),
        ("price", Arc::new(Float64Array::from(vec![-0.0]))),
    ];
    let fields: Vec<Field> =
        columns.iter().map(|(name, values)| Field::new(*name, values.data_type().clone(), true)).collect();
    let values = columns.into_iter().map(|(_, values)| values).collect();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), values).unwrap();
    write(&folder.path().join("year=2026/f.parquet"), &rows);
    let table = open(folder.path()).await;
    let refused = async |spec: IndexSpec| {
        let error = table.create_index(spec, false).await.unwrap_err();
        (error.kind(), error.to_string())
    };
    for (name, kind, said) in [
        ("place", ErrorKind::Unsupported, "single values of flat columns"),
        ("place.x", ErrorKind::Unsupported, "single values of flat columns"),
        ("tags", ErrorKind::Unsupported, "cannot be included"),
        ("year", ErrorKind::Unsupported, "partition column"),
        ("absent", ErrorKind::NotFound, "there is no column absent"),
        ("id", ErrorKind::InvalidInput, "a column of the key"),
    ] {
        let (got, text) = refused(spec(&["id"], &[name])).await;
        assert!(got == kind && text.contains(said), "{name}: {text}");
    }
    assert!(refused(spec(&["id"], &["a,b", "a,b"])).await.1.contains("included twice"));
    let empty = IndexSpec { options: BTreeMap::from([("include".to_owned(), " ".to_owned())]), ..spec(&["id"], &[]) };
    assert!(refused(empty).await.1.contains("names of columns"));
    let bitmap = IndexSpec { kind: Some(IndexKind::Bitmap), ..spec(&["id"], &["a,b"]) };
    assert!(refused(bitmap).await.1.contains("there is no option include"));
    // A float's key is that of its value: both zeros have one. So the column may ride beside its own key.
    table.create_index(spec(&["price"], &["price", "a,b"]), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.indexes()[0].options, [("include".to_owned(), "price,\"a,b\"".to_owned())]);
    let zero = lakemark_format::key::key_of_f64(0.0).unwrap();
    let (_, values) = covered(&snapshot, &leaf("price", KeyRanges::point(Key::Fixed(zero))), &["price"]).await;
    let bits = values.unwrap().columns[0].as_primitive::<Float64Type>().value(0).to_bits();
    assert_eq!(bits, (-0.0f64).to_bits());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verification_compares_what_rides_and_a_range_gives_all_of_it() {
    let folder = folder(1);
    let table = indexed(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    assert!(snapshot.has_covering_index());
    let report = table.verify().await.unwrap();
    assert_eq!((report.indexes[0].files_ok, report.indexes[0].damaged.len()), (1, 0));
    let rows: Vec<usize> = (0..ROWS).collect();
    let range = leaf(
        "id",
        KeyRanges::between(
            std::ops::Bound::Included(Key::Fixed(key_of_i64(0))),
            std::ops::Bound::Included(Key::Fixed(key_of_i64(20_000))),
        ),
    );
    let (_, values) = covered(&snapshot, &range, &["city", "id", "price"]).await;
    assert_eq!(by_id(&values.unwrap()).len(), riding(&rows));
}

/// A build with little memory spills what rides along, and writes the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_rides_counts_in_the_memory_of_a_build() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    table.create_index(spec(&["id"], &["city", "price", "other"]), false).await.unwrap();
    let options = BuildOptions { memory_bytes: Some(10_000), ..BuildOptions::default() };
    let report = table.build(options).await.unwrap();
    assert!(report.spilled > 0, "{report:?}");
    let rows: Vec<usize> = (0..3 * ROWS).collect();
    assert_eq!(check(&table.snapshot().await.unwrap(), &rows).await, riding(&rows));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_rides_along_as_text_however_many_values_all_files_have() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..2 {
        let ids = file as i64 * 100..file as i64 * 100 + 100;
        let texts: Vec<String> = ids.clone().map(|id| format!("text {id}")).collect();
        let texts: DictionaryArray<Int8Type> = texts.iter().map(String::as_str).collect();
        let (ids, texts): (ArrayRef, ArrayRef) = (Arc::new(Int64Array::from_iter_values(ids)), Arc::new(texts));
        write(&path(folder.path(), file), &RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap());
    }
    let table = open(folder.path()).await;
    table.create_index(spec(&["id"], &["text"]), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    for ids in [vec![3, 150], (0..200).collect()] {
        let (found, values) = covered(&snapshot, &keys(&ids), &["text"]).await;
        assert_eq!(found.exact_row_count(), Some(ids.len() as u64));
        let values = values.unwrap();
        let texts: BTreeSet<&str> = values.columns[0].as_string::<i32>().iter().flatten().collect();
        assert_eq!(
            texts,
            ids.iter().map(|id| format!("text {id}")).collect::<Vec<_>>().iter().map(String::as_str).collect()
        );
    }
}
