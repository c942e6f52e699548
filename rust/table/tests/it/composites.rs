//! Indexes over several columns.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use lakemark_format::Key;
use lakemark_index::{KeyRanges, Predicate, Reason};
use lakemark_table::{AnsweredBy, BuildOptions, ErrorKind, FileProbe, IndexKind, IndexSpec, Merging, Snapshot, Table};
use proptest::prelude::*;

use crate::fixture::{exact_rows, int_key, is_null, leaf, open, probe, spec, write};

type Row = (Option<i32>, Option<String>, Option<i32>);

/// Rows of `a`, `b` and `c`, of which several have the same values, and some NULL.
fn rows(first: usize, count: usize) -> Vec<Row> {
    let of = |row: usize| {
        (
            (!row.is_multiple_of(11)).then_some((row % 5) as i32),
            (!row.is_multiple_of(13)).then(|| ["", "x", "x\0", "y"][row % 4].to_owned()),
            (!row.is_multiple_of(17)).then_some((row % 7) as i32 - 3),
        )
    };
    (first..first + count).map(of).collect()
}

fn batch(rows: &[Row]) -> RecordBatch {
    let a: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int32Array>());
    let b: ArrayRef = Arc::new(rows.iter().map(|row| row.1.clone()).collect::<StringArray>());
    let c: ArrayRef = Arc::new(rows.iter().map(|row| row.2).collect::<Int32Array>());
    RecordBatch::try_from_iter_with_nullable([("a", a, true), ("b", b, true), ("c", c, true)]).unwrap()
}

fn over(columns: &[&str]) -> IndexSpec {
    IndexSpec { columns: columns.iter().map(|column| (*column).to_owned()).collect(), ..IndexSpec::default() }
}

const FILES: usize = 3;
const ROWS: usize = 250;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..FILES {
        write(&folder.path().join(format!("f{file}.parquet")), &batch(&rows(file * ROWS, ROWS)));
    }
    folder
}

async fn indexed(path: &Path, columns: &[&str]) -> (Arc<Table>, Arc<Snapshot>) {
    let table = open(path).await;
    table.create_index(over(columns), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = open(path).await.snapshot().await.unwrap();
    (table, snapshot)
}

fn text_key(value: &str) -> Key {
    Key::Bytes(value.as_bytes().to_vec())
}

fn number(column: &str, value: i64) -> Predicate {
    leaf(column, KeyRanges::point(int_key(value)))
}

fn text(value: &str) -> Predicate {
    leaf("b", KeyRanges::point(text_key(value)))
}

fn and<const N: usize>(parts: [Predicate; N]) -> Predicate {
    Predicate::And(parts.to_vec())
}

/// Whether a predicate of ranges is true of a row.
fn is_true(predicate: &Predicate, row: &Row) -> bool {
    match predicate {
        Predicate::And(parts) => parts.iter().all(|part| is_true(part, row)),
        Predicate::Or(parts) => parts.iter().any(|part| is_true(part, row)),
        Predicate::Leaf(leaf) => {
            let lakemark_index::Test::Ranges(ranges) = &leaf.test else { panic!("{leaf:?}") };
            let key = match leaf.column.as_str() {
                "a" => row.0.map(|value| int_key(value.into())),
                "b" => row.1.as_deref().map(text_key),
                _ => row.2.map(|value| int_key(value.into())),
            };
            key.is_some_and(|key| ranges.contains(&key))
        }
        other => panic!("{other:?}"),
    }
}

/// Checks the rows of every file, and gives the number of reads.
async fn check(snapshot: &Snapshot, predicate: &Predicate) -> u64 {
    let found = probe(snapshot, predicate).await;
    for (file, found) in found.files.iter().enumerate() {
        let rows = (0..).zip(rows(file * ROWS, ROWS)).filter(|(_, row)| is_true(predicate, row));
        let expected: Vec<u32> = rows.map(|(row, _)| row).collect();
        assert_eq!(exact_rows(found), expected, "{predicate:?} in file {file}");
    }
    found.report.index_reads
}

#[tokio::test]
async fn an_index_over_several_columns_answers_conditions_on_the_first_of_them() {
    let folder = folder();
    let (_, snapshot) = indexed(folder.path(), &["a", "b", "c"]).await;
    let indexes = snapshot.indexes();
    let index = &indexes[0];
    assert_eq!((index.name.as_str(), index.kind.as_str(), index.encoding.as_str()), ("a_b_c_key", "key", "packed"));
    assert_eq!((index.column.as_str(), index.columns.clone()), ("a, b, c", vec!["a".into(), "b".into(), "c".into()]));
    assert!(index.data_type.starts_with("Struct("), "{}", index.data_type);
    assert_eq!((index.files_covered, index.rows), (FILES as u64, (FILES * ROWS) as u64));
    let several = leaf("a", KeyRanges::points(vec![int_key(1), int_key(3), int_key(9)]));
    let below = leaf("c", KeyRanges::less_than(int_key(2), false));
    let between = leaf("c", KeyRanges::between(Bound::Excluded(int_key(-2)), Bound::Included(int_key(1))));
    let not_x = leaf("b", KeyRanges::point(text_key("x")).complement());
    for predicate in [
        number("a", 2),
        leaf("a", KeyRanges::greater_than(int_key(2), false)),
        and([number("a", 2), text("x")]),
        and([text("x"), number("a", 2)]),
        and([number("a", 2), text("x"), number("c", -1)]),
        and([several.clone(), text("")]),
        and([several.clone(), text("x\0"), below]),
        and([number("a", 1), text("y"), between]),
        and([number("a", 4), not_x]),
        Predicate::Or(vec![and([number("a", 0), text("x")]), and([number("a", 1), text("y")]), number("a", 3)]),
    ] {
        assert!(check(&snapshot, &predicate).await > 0);
    }
    // Nothing knows of `c` alone; what is known of the others narrows.
    let found = probe(&snapshot, &and([number("a", 2), number("c", 1)])).await;
    assert_eq!(found.report.leaves.len(), 2);
    let by_column: Vec<_> = found.report.leaves.iter().map(|leaf| (leaf.column.as_deref(), leaf.reason)).collect();
    assert!(by_column.contains(&(Some("a, b, c"), None)), "{by_column:?}");
    assert!(by_column.contains(&(Some("c"), Some(Reason::NoIndex))), "{by_column:?}");
    for (file, found) in found.files.iter().enumerate() {
        let FileProbe::Known { exact, recheck, .. } = found else { panic!("{found:?}") };
        let rows = (0..).zip(rows(file * ROWS, ROWS)).filter(|(_, row)| row.0 == Some(2));
        assert!(exact.is_empty() && recheck.iter().eq(rows.map(|(row, _)| row)));
    }
}

#[tokio::test]
async fn that_a_value_is_not_null_follows_from_what_it_is() {
    let folder = folder();
    let (_, snapshot) = indexed(folder.path(), &["a", "b"]).await;
    let not_null = |column: &str| Predicate::Not(Box::new(is_null(column)));
    let both = [number("a", 2), text("x")];
    let predicate = Predicate::And([&both[..], &[not_null("b"), not_null("a")]].concat());
    let (found, expected) = (probe(&snapshot, &predicate).await, probe(&snapshot, &and(both.clone())).await);
    assert_eq!(found.files, expected.files);
    assert!(found.files.iter().all(|file| !exact_rows(file).is_empty()));
    // Of a column without another condition it does not follow.
    let found = probe(&snapshot, &Predicate::And([&both[..], &[not_null("c")]].concat())).await;
    assert_eq!((found.report.rows_exact, found.report.leaves.len()), (0, 2));
}

#[tokio::test]
async fn what_is_not_below_and_and_or_alone_is_left_as_it_is() {
    let folder = folder();
    let (_, snapshot) = indexed(folder.path(), &["a", "b"]).await;
    // Where `a` or `b` is NULL, NOT is NULL as well: a composite, which is never NULL, must not say that it is true.
    let both = and([number("a", 2), text("x")]);
    let found = probe(&snapshot, &Predicate::Not(Box::new(both))).await;
    assert!(found.files.iter().all(|file| *file == FileProbe::Unknown));
    assert!(found.report.leaves.iter().all(|leaf| leaf.reason == Some(Reason::NoIndex)));
}

#[tokio::test]
async fn indexes_of_single_columns_keep_what_they_answer_better() {
    let folder = folder();
    let (table, _) = indexed(folder.path(), &["a", "b"]).await;
    table.create_index(spec("a"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    let of = async |snapshot: &Snapshot, predicate: &Predicate| {
        let found = probe(snapshot, predicate).await;
        found.report.leaves.into_iter().map(|leaf| (leaf.column.unwrap(), leaf.index)).collect::<Vec<_>>()
    };
    let name = |name: &str| Some(AnsweredBy::Index(name.to_owned()));
    assert_eq!(of(&snapshot, &number("a", 2)).await, [("a".to_owned(), name("a_bitmap"))]);
    let both = and([number("a", 2), text("x")]);
    assert_eq!(of(&snapshot, &both).await, [("a, b".to_owned(), name("a_b_key"))]);
    check(&snapshot, &both).await;

    // Of several over these columns and more, the one over these alone.
    table.create_index(over(&["b", "a", "c"]), false).await.unwrap();
    table.create_index(over(&["a", "b", "c"]), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!(of(&snapshot, &both).await, [("a, b".to_owned(), name("a_b_key"))]);
    let all = and([number("a", 2), text("x"), number("c", 1)]);
    let found = probe(&snapshot, &all).await.report.leaves;
    assert_eq!(found.len(), 1);
    assert!([Some("a, b, c"), Some("b, a, c")].contains(&found[0].column.as_deref()));
    check(&snapshot, &all).await;

    // A file that only the other index knows: that is probed then.
    write(&folder.path().join("f3.parquet"), &batch(&rows(FILES * ROWS, ROWS)));
    let options = BuildOptions { index: Some("a_bitmap".to_owned()), ..BuildOptions::default() };
    open(folder.path()).await.build(options).await.unwrap();
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    let found = probe(&snapshot, &both).await;
    let columns: Vec<_> = found.report.leaves.iter().map(|leaf| leaf.column.clone().unwrap()).collect();
    assert_eq!(columns, ["a", "b, a, c"], "of `b` alone something is known by its prefix");
    assert!(found.files.iter().all(|file| matches!(file, FileProbe::Known { .. })));
}

#[tokio::test]
async fn an_index_that_knows_nothing_yet_takes_nothing_from_others() {
    let folder = folder();
    let (table, _) = indexed(folder.path(), &["a", "b"]).await;
    let spec = IndexSpec { kind: Some(IndexKind::Summary), ..spec("c") };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    // Declared and not built: more columns, or the first one alone, and no file.
    table.create_index(over(&["a", "b", "c"]), false).await.unwrap();
    table.create_index(over(&["c", "a"]), false).await.unwrap();
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    let indexes = async |predicate: &Predicate| {
        let found = probe(&snapshot, predicate).await.report.leaves;
        found.into_iter().filter_map(|leaf| leaf.index).map(|by| by.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(indexes(&number("c", 1)).await, ["c_summary"]);
    let all = and([number("a", 2), text("x"), number("c", 1)]);
    let mut used = indexes(&all).await;
    used.sort();
    assert_eq!(used, ["a_b_key", "c_summary"]);
    let keys: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1])), Arc::new(Int32Array::from(vec![2]))];
    assert_eq!(snapshot.composite_lookup(&["c".to_owned(), "a".to_owned()], &keys), None);
    let keys: Vec<ArrayRef> = vec![Arc::new(StringArray::from(vec!["x"])), Arc::new(Int32Array::from(vec![2]))];
    let by_both = snapshot.composite_lookup(&["b".to_owned(), "a".to_owned()], &keys).unwrap();
    let found = probe(&snapshot, &by_both).await;
    let expected = probe(&snapshot, &and([number("a", 2), text("x")])).await;
    assert_eq!(
        (found.files, found.report.leaves[0].index.as_ref().map(|by| by.name())),
        (expected.files, Some("a_b_key"))
    );
}

#[tokio::test]
async fn a_column_whose_name_reads_as_several_is_no_composite() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = |from: i32| Arc::new(Int32Array::from_iter_values(from..from + 9)) as ArrayRef;
    let rows = [("a", numbers(0)), ("b", numbers(10)), ("a\u{1}b", numbers(20))];
    write(&folder.path().join("f.parquet"), &RecordBatch::try_from_iter(rows).unwrap());
    let (table, snapshot) = indexed(folder.path(), &["a", "b"]).await;
    assert_eq!((snapshot.resolve("a\u{1}b"), snapshot.field("a\u{1}b")), (None, None));
    let error = table.create_index(over(&["a\u{1}b"]), false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let declared = table.declare_key(&["a\u{1}b".to_owned()], &Default::default(), BuildOptions::default()).await;
    assert!(declared.unwrap_err().to_string().contains("U+0001"));
}

#[tokio::test]
async fn files_may_lack_columns_come_later_and_be_compacted() {
    let folder = folder();
    let lacking = batch(&rows(0, 120)).project(&[0, 2]).unwrap();
    write(&folder.path().join("f9.parquet"), &lacking);
    let (table, snapshot) = indexed(folder.path(), &["a", "b", "c"]).await;
    // In a file without `b` it is NULL in each row: a prefix finds its rows, and what asks for a value of `b` none.
    let first = |rows: Vec<Row>, value: i32| -> Vec<u32> {
        (0..).zip(rows).filter(|(_, row)| row.0 == Some(value)).map(|(row, _)| row).collect()
    };
    let found = probe(&snapshot, &number("a", 2)).await;
    assert_eq!(exact_rows(&found.files[FILES]), first(rows(0, 120), 2));
    let found = probe(&snapshot, &and([number("a", 2), text("x")])).await;
    assert!(exact_rows(&found.files[FILES]).is_empty());

    write(&folder.path().join("g.parquet"), &batch(&rows(0, 30)));
    let table_now = open(folder.path()).await;
    let found = probe(&table_now.snapshot().await.unwrap(), &number("a", 2)).await;
    assert_eq!(found.files[FILES + 1], FileProbe::Unknown);
    assert_eq!(exact_rows(&found.files[0]), first(rows(0, ROWS), 2));
    table_now.build(BuildOptions::default()).await.unwrap();
    let before = table_now.snapshot().await.unwrap().indexes()[0].clone();
    assert_eq!((before.segments, before.files_covered), (2, 5));
    check_verdict(&table, FILES as u64 + 2).await;
    let all = BuildOptions { merging: Merging::All, ..BuildOptions::default() };
    table_now.compact(all).await.unwrap();
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!(snapshot.indexes()[0].segments, 1);
    let found = probe(&snapshot, &and([number("a", 2), text("y")])).await;
    for (file, count) in [(0, ROWS), (FILES + 1, 30)] {
        let rows = (0..).zip(rows(0, count)).filter(|(_, row)| row.0 == Some(2) && row.1.as_deref() == Some("y"));
        assert_eq!(exact_rows(&found.files[file]), rows.map(|(row, _)| row).collect::<Vec<_>>());
    }
    check_verdict(&open(folder.path()).await, FILES as u64 + 2).await;
}

async fn check_verdict(table: &Arc<Table>, files: u64) {
    let report = table.verify().await.unwrap();
    let [verdict] = report.indexes.as_slice() else { panic!("{report:?}") };
    assert_eq!((verdict.files_ok, verdict.damaged.len(), verdict.stale.len()), (files, 0, 0), "{verdict:?}");
}

#[tokio::test]
async fn declarations_that_make_no_sense_are_refused_in_words() {
    let folder = folder();
    let table = open(folder.path()).await;
    let refused = async |spec: IndexSpec| {
        let error = table.create_index(spec, false).await.unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = refused(over(&["a", "b", "a"])).await;
    assert!(kind == ErrorKind::InvalidInput && text.contains("the column a stands in the index twice"), "{text}");
    let (kind, text) = refused(IndexSpec { kind: Some(IndexKind::Bitmap), ..over(&["a", "b"]) }).await;
    assert!(
        kind == ErrorKind::Unsupported && text.contains("is of the kind key or links, and bitmap was asked for"),
        "{text}"
    );
    let (kind, text) = refused(over(&["a", "nowhere"])).await;
    assert!(kind == ErrorKind::NotFound && text.contains("there is no column nowhere"), "{text}");
    let many: Vec<String> = (0..65).map(|_| "a".to_owned()).collect();
    let (kind, text) = refused(IndexSpec { columns: many, ..IndexSpec::default() }).await;
    assert!(kind == ErrorKind::InvalidInput && text.contains("64 columns at most, and 65 were given"), "{text}");
    let mut precise = over(&["a", "b"]);
    precise.options.insert("precision".to_owned(), "2".to_owned());
    let (kind, text) = refused(precise).await;
    assert!(kind == ErrorKind::InvalidInput && text.contains("there is no option precision"), "{text}");
}

fn condition() -> impl Strategy<Value = Predicate> {
    let numbers = |column: &'static str| {
        (prop::collection::vec(-4..6i64, 1..4), 0..4u8).prop_map(move |(values, form)| {
            let keys: Vec<Key> = values.iter().map(|value| int_key(*value)).collect();
            leaf(
                column,
                match form {
                    0 => KeyRanges::points(keys),
                    1 => KeyRanges::points(keys).complement(),
                    2 => KeyRanges::less_than(keys[0].clone(), values.len() > 1),
                    _ => KeyRanges::point(keys[0].clone()),
                },
            )
        })
    };
    let texts = prop::sample::subsequence(vec!["", "x", "x\0", "y", "z"], 1..4)
        .prop_map(|values| leaf("b", KeyRanges::points(values.into_iter().map(text_key).collect())));
    prop_oneof![numbers("a"), texts, numbers("c")]
}

#[test]
fn any_mix_of_conditions_is_true_of_the_same_rows() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = folder();
    let (table, _) = runtime.block_on(indexed(folder.path(), &["a", "b", "c"]));
    runtime.block_on(async {
        table.create_index(over(&["b", "c"]), false).await.unwrap();
        table.create_index(spec("c"), false).await.unwrap();
        table.build(BuildOptions::default()).await.unwrap();
    });
    let snapshot = runtime.block_on(async { open(folder.path()).await.snapshot().await.unwrap() });
    let conjunction = prop::collection::vec(condition(), 1..4).prop_map(Predicate::And);
    let predicate = prop::collection::vec(conjunction, 1..4).prop_map(Predicate::Or);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
    let checked = runner.run(&predicate, |predicate| {
        let found = runtime.block_on(probe(&snapshot, &predicate));
        for (file, found) in found.files.iter().enumerate() {
            for (row, values) in (0..).zip(rows(file * ROWS, ROWS)) {
                let (sure, open) = match found {
                    FileProbe::Known { exact, recheck, .. } => (exact.contains(row), recheck.contains(row)),
                    _ => (false, true),
                };
                let expected = is_true(&predicate, &values);
                prop_assert!(
                    sure <= expected && expected <= (sure || open),
                    "row {} of file {}: {:?}",
                    row,
                    file,
                    predicate
                );
            }
        }
        Ok(())
    });
    checked.unwrap();
}
