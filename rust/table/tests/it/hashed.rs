//! Indexes whose keys are hashes of texts: rows that share a hash are told apart, in the index or in the data.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use lakemark_format::Key;
use lakemark_index::{KeyRanges, Predicate};
use lakemark_table::{BuildOptions, ErrorKind, FileProbe, IndexKind, IndexSpec, Merging, Snapshot, Table};

use crate::fixture::{covered_values, exact_rows, is_null, leaf, open, probe, write};

/// Rows of a file.
const ROWS: usize = 250;
/// A text that is longer than any key.
const LONG: usize = 5000;

/// The session of a row: 36 characters, some NULL, some twice, some longer than a key may be.
fn session(row: usize) -> Option<String> {
    match row % 50 {
        7 => None,
        8 => Some(format!("{row}{}", "x".repeat(LONG))),
        9 => session(row - 5),
        _ => Some(format!("session/{:016x}/{row:011}", (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))),
    }
}

fn batch(first: usize) -> RecordBatch {
    let rows = first..first + ROWS;
    let sessions: ArrayRef = Arc::new(rows.clone().map(session).collect::<StringArray>());
    let numbers: ArrayRef = Arc::new(rows.map(|row| Some(row as i32)).collect::<Int32Array>());
    RecordBatch::try_from_iter_with_nullable([("session", sessions, true), ("number", numbers, true)]).unwrap()
}

fn folder(files: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    (0..files).for_each(|file| write(&path(folder.path(), file), &batch(file * ROWS)));
    folder
}

fn path(folder: &Path, file: usize) -> std::path::PathBuf {
    folder.join(format!("f{file}.parquet"))
}

fn spec(columns: &[&str], options: &[(&str, &str)]) -> IndexSpec {
    IndexSpec {
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..IndexSpec::default()
    }
}

async fn indexed(path: &Path, options: &[(&str, &str)]) -> Arc<Table> {
    let table = open(path).await;
    table.create_index(spec(&["session"], options), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table
}

fn is_one_of(sessions: &[String]) -> Predicate {
    leaf("session", KeyRanges::points(sessions.iter().map(|text| Key::Bytes(text.clone().into_bytes())).collect()))
}

/// Checks the rows of some sessions, and gives how many are exact and how many are to be rechecked.
async fn check(snapshot: &Snapshot, wanted: &[String]) -> (u64, u64) {
    let found = probe(snapshot, &is_one_of(wanted)).await;
    let (mut exact_count, mut open_count) = (0, 0);
    for (file, known) in found.files.iter().enumerate() {
        let FileProbe::Known { exact, recheck, .. } = known else { panic!("{known:?}") };
        for row in 0..ROWS {
            let is_wanted = session(file * ROWS + row).is_some_and(|text| wanted.contains(&text));
            let (is_exact, is_open) = (exact.contains(row as u32), recheck.contains(row as u32));
            assert!(!is_exact || is_wanted, "row {row} of file {file} has another session");
            assert!(is_exact || is_open || !is_wanted, "row {row} of file {file} is not found");
        }
        exact_count += u64::from(exact.len());
        open_count += u64::from(recheck.len());
    }
    (exact_count, open_count)
}

fn sessions(rows: &[usize]) -> Vec<String> {
    rows.iter().filter_map(|row| session(*row)).collect()
}

/// Five sessions, of which one is that of two rows.
const SOME: [usize; 5] = [0, 4, 31, 300, 499];

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_hashes_are_rechecked_and_no_row_is_missed() {
    let folder = folder(2);
    let table = indexed(folder.path(), &[("hashed", "true")]).await;
    let snapshot = table.snapshot().await.unwrap();
    let info = &snapshot.indexes()[0];
    assert_eq!((info.kind.known(), info.name.as_str()), (Some(IndexKind::Key), "session_key"));
    let options: BTreeMap<_, _> = info.options.iter().cloned().collect();
    let expected = [("hash_bits", "32"), ("hashed", "true")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(options, BTreeMap::from(expected));
    assert_eq!(check(&snapshot, &sessions(&SOME)).await, (0, 6));
    assert_eq!(check(&snapshot, &["elsewhere".to_owned()]).await, (0, 0));
    // Which rows are NULL is exact, and long texts are no others.
    let nulls = probe(&snapshot, &is_null("session")).await;
    assert_eq!(exact_rows(&nulls.files[1]), [7, 57, 107, 157, 207]);
    // Their order is not known to hashes.
    let above = leaf("session", KeyRanges::greater_than(Key::Bytes(b"session/7".to_vec()), true));
    assert!(probe(&snapshot, &above).await.files.iter().all(|file| matches!(file, FileProbe::Unknown)));
    let others = Predicate::Not(Box::new(is_one_of(&sessions(&SOME))));
    assert!(probe(&snapshot, &others).await.files.iter().all(|file| matches!(file, FileProbe::Unknown)));
    assert!(table.verify().await.unwrap().indexes.iter().all(|verdict| verdict.damaged.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn short_hashes_have_more_rows_to_recheck_and_find_the_same() {
    let folder = folder(2);
    let table = indexed(folder.path(), &[("hash_bits", "8")]).await;
    let snapshot = table.snapshot().await.unwrap();
    let (exact, open) = check(&snapshot, &sessions(&SOME)).await;
    // 490 texts have 256 hashes.
    assert!(exact == 0 && (7..60).contains(&open), "{open} rows");
    assert!(table.verify().await.unwrap().indexes.iter().all(|verdict| verdict.damaged.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_included_tells_its_rows_apart_and_is_given() {
    let folder = folder(2);
    let table = indexed(folder.path(), &[("hash_bits", "12"), ("include", "session,number")]).await;
    let snapshot = table.snapshot().await.unwrap();
    let (exact, open) = check(&snapshot, &sessions(&SOME)).await;
    // A key with a text that is too long does not ride, so that its rows stay open.
    assert!(exact + open >= 6 && open <= 2, "{exact} rows and {open}");
    let predicate = is_one_of(&sessions(&SOME));
    assert!(snapshot.is_covered(&predicate, &["session".to_owned(), "number".to_owned()]));
    let found = probe(&snapshot, &predicate).await;
    let values = covered_values(&snapshot, &predicate, &found, &["session", "number"]).await.unwrap();
    let [texts, numbers] = values.columns.as_slice() else { panic!("{:?}", values.columns) };
    assert_eq!(texts.len() as u64, exact);
    for (text, number) in texts.as_string::<i32>().iter().zip(numbers.as_primitive::<arrow::datatypes::Int32Type>()) {
        assert_eq!(text.map(str::to_owned), session(number.unwrap() as usize));
    }
    // Without the text among the columns nothing says which rows of a hash are meant.
    let other = self::folder(1);
    let table = indexed(other.path(), &[("hashed", "true"), ("include", "number")]).await;
    assert!(!table.snapshot().await.unwrap().is_covered(&is_one_of(&sessions(&SOME)), &["number".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn appended_files_and_merges_keep_hashes() {
    let folder = folder(1);
    let table = indexed(folder.path(), &[("hashed", "true")]).await;
    for file in 1..4 {
        write(&path(folder.path(), file), &batch(file * ROWS));
        table.build(BuildOptions { merging: Merging::Never, ..BuildOptions::default() }).await.unwrap();
    }
    let rows: Vec<usize> = (0..4 * ROWS).step_by(13).collect();
    let wanted = sessions(&rows);
    let before = check(&table.snapshot().await.unwrap(), &wanted).await;
    let merged = table.compact(BuildOptions { merging: Merging::All, ..BuildOptions::default() }).await.unwrap();
    assert_eq!((merged.segments_merged, merged.segments_written), (4, 1));
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!(check(&snapshot, &wanted).await, before);
    assert!(table.verify().await.unwrap().indexes.iter().all(|verdict| verdict.damaged.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_values_is_asked_before_one_of_hashes() {
    let folder = folder(1);
    let table = indexed(folder.path(), &[("hashed", "true")]).await;
    let values = IndexSpec { kind: Some(IndexKind::Key), name: Some("values".to_owned()), ..spec(&["session"], &[]) };
    table.create_index(values, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &is_one_of(&sessions(&[4]))).await;
    let FileProbe::Known { exact, recheck, .. } = &found.files[0] else { panic!("{:?}", found.files[0]) };
    assert_eq!(exact.iter().collect::<Vec<_>>(), [4, 9]);
    // No key has texts as long as these.
    assert_eq!(recheck.iter().collect::<Vec<_>>(), [8, 58, 108, 158, 208]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_hashed_values_are_left_to_an_index_that_begins_with_them() {
    let folder = folder(1);
    let table = indexed(folder.path(), &[("hashed", "true")]).await;
    let both = IndexSpec { kind: Some(IndexKind::Key), ..spec(&["session", "number"], &[]) };
    table.create_index(both, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let above = leaf("session", KeyRanges::greater_than(Key::Bytes(b"session/7".to_vec()), true));
    let found = probe(&table.snapshot().await.unwrap(), &above).await;
    let FileProbe::Known { exact, recheck, .. } = &found.files[0] else { panic!("{:?}", found.files[0]) };
    let is_above = |row: &usize| session(*row).is_some_and(|text| text.as_str() >= "session/7");
    assert_eq!(exact.iter().collect::<Vec<_>>(), (0..ROWS).filter(is_above).map(|row| row as u32).collect::<Vec<_>>());
    // No key has texts as long as these.
    assert_eq!(recheck.iter().collect::<Vec<_>>(), [8, 58, 108, 158, 208]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_table_has_an_index_of_values_beside_one_of_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let text = |row: usize| format!("session/{row:028}");
    let sessions: ArrayRef = Arc::new((0..ROWS).map(|row| Some(text(row))).collect::<StringArray>());
    write(&path(folder.path(), 0), &RecordBatch::try_from_iter([("session", sessions)]).unwrap());
    let table = indexed(folder.path(), &[("hash_bits", "8")]).await;
    let key = ["session".to_owned()];
    assert!(table.declare_key(&key, &BTreeMap::new(), BuildOptions::default()).await.unwrap());
    let snapshot = table.snapshot().await.unwrap();
    let names: Vec<String> = snapshot.indexes().into_iter().map(|index| index.name).collect();
    assert_eq!(names, ["session_key", "session_key_2"]);
    assert_eq!(exact_rows(&probe(&snapshot, &is_one_of(&[text(7)])).await.files[0]), [7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_hashed_is_refused_when_it_is_declared() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let refused = async |spec: IndexSpec| {
        let error = table.create_index(spec, false).await.unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = refused(spec(&["number"], &[("hashed", "true")])).await;
    assert!(kind == ErrorKind::Unsupported && text.contains("hashes save nothing"), "{text}");
    let (kind, text) = refused(spec(&["session", "number"], &[("hashed", "true")])).await;
    assert!(kind == ErrorKind::Unsupported && text.contains("on one column"), "{text}");
    for (options, said) in [
        ([("hashed", "perhaps"), ("hash_bits", "40")], "true or false"),
        ([("hashed", "true"), ("hash_bits", "7")], "from 8 to 64"),
        ([("hashed", "true"), ("hash_bits", "65")], "from 8 to 64"),
        ([("hashed", "false"), ("hash_bits", "40")], "leave one of the two out"),
    ] {
        let (kind, text) = refused(spec(&["session"], &options)).await;
        assert!(kind == ErrorKind::InvalidInput && text.contains(said), "{text}");
    }
    let bitmap = IndexSpec { kind: Some(IndexKind::Bitmap), ..spec(&["session"], &[("hashed", "true")]) };
    assert!(refused(bitmap).await.1.contains("there is no option hashed"));
    // The same as without the option.
    table.create_index(spec(&["session"], &[("hashed", "FALSE")]), false).await.unwrap();
    assert!(table.snapshot().await.unwrap().indexes()[0].options.is_empty());
}
