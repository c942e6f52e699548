//! Rows that are written aside by several processes and become changes in one call.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lakemark_table::{Result, StagedRows, Transaction, VacuumOptions};

use super::*;

async fn stage(table: &Arc<Table>, operation: Operation, batches: &[RecordBatch]) -> Result<StagedRows> {
    let mut staging = table.stage(operation).await?;
    for rows in batches {
        staging.write(rows.clone()).await?;
    }
    Ok(<[StagedRows; 1]>::try_from(staging.finish().await?).unwrap().into_iter().next().unwrap())
}

async fn take(table: &Arc<Table>, staged: &[StagedRows]) -> Result<Written> {
    table.write_staged(staged, WriteOptions::default()).await
}

/// The staged files, also unfinished ones.
fn files(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder.join("_lakemark/updates")).unwrap().map(|entry| entry.unwrap().path());
    let is_staged = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".arrows") || name.starts_with(".tmp-")
    };
    names.filter(is_staged).collect()
}

/// As if another process had told of them.
fn sent(staged: &StagedRows) -> StagedRows {
    serde_json::from_str(&serde_json::to_string(staged).unwrap()).unwrap()
}

#[tokio::test]
async fn all_that_was_staged_is_one_call() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = table.snapshot().await.unwrap();
    // Another process has opened the table itself.
    let elsewhere = open(folder.path()).await;
    let two = [batch(&[(2, Some(-2), Some("new"))]), batch(&[]), batch(&[(4, Some(-4), None)])];
    let staged = [
        stage(&elsewhere, Operation::Insert, &[batch(&[(6, Some(-6), Some("moved")), (1, Some(-1), None)])]).await,
        stage(&elsewhere, Operation::Upsert, &two).await,
        stage(&table, Operation::Upsert, &[batch(&[(1001, Some(7), Some("added"))])]).await,
        stage(&elsewhere, Operation::Update, &[numbers(&[(10, Some(-10)), (11, Some(-11))])]).await,
        // A row may be found twice by what deletes it.
        stage(&elsewhere, Operation::Delete, &[keys(&[6, 8, 6])]).await,
        stage(&table, Operation::Delete, &[keys(&[8, 3])]).await,
    ];
    let staged: Vec<StagedRows> = staged.into_iter().map(|staged| sent(&staged.unwrap())).collect();
    assert_eq!(staged.iter().map(|staged| staged.rows).collect::<Vec<_>>(), [2, 2, 1, 2, 3, 2]);
    assert_eq!(files(folder.path()).len(), 6);
    assert_eq!(rows(&table).await.len(), 300);
    let written = take(&table, &staged).await.unwrap();
    assert_eq!(written, Written { sequence: before.sequence().unwrap() + 1, rows: 10 });
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    let mut expected = rows_of(&before);
    expected.remove(&8);
    expected.extend([(6, row(-6, "moved")), (1, (Some(-1), None)), (2, row(-2, "new")), (4, (Some(-4), None))]);
    expected.extend([(1001, row(7, "added")), (10, row(-10, "base"))]);
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
    // What was taken in is not there to be taken again.
    assert_eq!(take(&table, &staged).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(rows(&table).await, expected);
}

#[tokio::test]
async fn a_call_that_cannot_be_made_changes_nothing_and_keeps_the_rows() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let read_at = table.snapshot().await.unwrap().sequence();
    make(&table, Operation::Upsert, batch(&[(2, Some(9), None)])).await.unwrap();
    let before = rows(&table).await;
    let there = stage(&table, Operation::Insert, &[batch(&[(4, None, None)])]).await.unwrap();
    let twice = [
        stage(&table, Operation::Upsert, &[batch(&[(7, None, None)])]).await.unwrap(),
        stage(&table, Operation::Upsert, &[batch(&[(7, None, None)])]).await.unwrap(),
    ];
    let changed = stage(&table, Operation::Delete, &[keys(&[2])]).await.unwrap();
    let widths = [
        stage(&table, Operation::Upsert, &[batch(&[(9, None, None)])]).await.unwrap(),
        stage(&table, Operation::Upsert, &[keys(&[11])]).await.unwrap(),
    ];
    let since = WriteOptions { read_at, ..WriteOptions::default() };
    for (staged, options, kind, says) in [
        (vec![there], WriteOptions::default(), ErrorKind::AlreadyExists, "the key k = 4 is there already"),
        (twice.to_vec(), WriteOptions::default(), ErrorKind::InvalidInput, "k = 7 stands in rows 0 and 1"),
        (vec![changed], since, ErrorKind::Conflict, "k = 2 was changed by somebody else"),
        (widths.to_vec(), WriteOptions::default(), ErrorKind::InvalidInput, "staged with different columns"),
    ] {
        let left = files(folder.path()).len();
        let error = table.write_staged(&staged, options).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!((rows(&table).await, files(folder.path()).len()), (before.clone(), left));
        table.discard_staged(&staged).await.unwrap();
        assert_eq!(files(folder.path()).len(), left - staged.len());
    }
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn law_5_damaged_and_foreign_rows_change_nothing() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = rows(&table).await;
    let good = stage(&table, Operation::Upsert, &[batch(&[(2, Some(1), Some("a text"))])]).await.unwrap();
    let staged = stage(&table, Operation::Upsert, &[batch(&[(4, Some(1), Some("a text"))])]).await.unwrap();
    let place = |staged: &StagedRows| {
        let said = serde_json::to_value(staged).unwrap();
        folder.path().join("_lakemark").join(said["path"].as_str().unwrap())
    };
    let path = place(&staged);
    let bytes = fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..bytes.len()).step_by(7).map(|at| flipped(&bytes, at)).collect();
    damaged.extend([Vec::new(), bytes[..bytes.len() - 1].to_vec(), [bytes.as_slice(), b"x"].concat()]);
    // Whole, and another one's.
    damaged.push(fs::read(place(&good)).unwrap());
    for bytes in damaged {
        fs::write(&path, bytes).unwrap();
        let error = take(&table, &[good.clone(), staged.clone()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("are not those that were written; nothing was changed"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let error = take(&table, &[good.clone(), staged]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("a folder that all machines share"), "{error}");
    // A name can be any path.
    for path in ["updates/../../f0.parquet", "f0.parquet", "updates/lock", "updates/.arrows", ""] {
        let mut said = serde_json::to_value(&good).unwrap();
        said["path"] = path.into();
        let named: [StagedRows; 1] = [serde_json::from_value(said).unwrap()];
        for outcome in [take(&table, &named).await.map(|_| ()), table.discard_staged(&named).await] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidInput, "{path}");
        }
    }
    assert_eq!(rows(&table).await, before);
    assert!(folder.path().join("f0.parquet").is_file());
    take(&table, &[good]).await.unwrap();
    assert_eq!(rows(&table).await[&2], row(1, "a text"));
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x10;
    bytes
}

#[tokio::test]
async fn rows_that_nobody_names_have_no_effect_and_go_by_age() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = rows(&table).await;
    // More than is sorted at a time, so that there are a whole file and rows that wait.
    let long = "x".repeat(33 << 20);
    for is_dropped in [true, false] {
        let mut unfinished = table.stage(Operation::Upsert).await.unwrap();
        unfinished.write(batch(&[(2, None, Some(&long))])).await.unwrap();
        unfinished.write(batch(&[(4, None, None)])).await.unwrap();
        let [whole] = <[PathBuf; 1]>::try_from(files(folder.path())).unwrap();
        assert_eq!(whole.extension().unwrap(), "arrows");
        if is_dropped {
            drop(unfinished);
            fs::remove_file(whole).unwrap();
        } else {
            unfinished.abandon().await;
        }
        assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    }
    assert_eq!(table.stage(Operation::Upsert).await.unwrap().finish().await.unwrap(), []);
    stage(&table, Operation::Upsert, &[batch(&[(2, None, None)])]).await.unwrap();
    stage(&table, Operation::Upsert, &[batch(&[(4, None, None)])]).await.unwrap();
    let [old, young] = <[PathBuf; 2]>::try_from(files(folder.path())).unwrap();
    let eight_days = SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60);
    File::options().write(true).open(&old).unwrap().set_modified(eight_days).unwrap();
    let report = table.vacuum(VacuumOptions::default()).await.unwrap();
    let removed: Vec<String> = report.removed.into_iter().map(|waste| waste.path).collect();
    assert_eq!(removed, [format!("updates/{}", old.file_name().unwrap().to_str().unwrap())]);
    assert_eq!(files(folder.path()), [young]);
    assert_eq!(rows(&table).await, before);
}

#[tokio::test]
async fn a_staged_call_with_a_name_is_made_once() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let named = |version| WriteOptions {
        transaction: Some(Transaction { application: "stream".to_owned(), version }),
        ..WriteOptions::default()
    };
    for (version, value, made) in [(0, 1, 1), (0, 2, 0), (1, 3, 1)] {
        let staged = stage(&table, Operation::Upsert, &[batch(&[(2, Some(value), None)])]).await.unwrap();
        let written = table.write_staged(&[staged], named(version)).await.unwrap();
        assert_eq!(written.rows, made, "{version} {value}");
        assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    }
    assert_eq!(rows(&table).await[&2], (Some(3), None));
}

#[tokio::test]
async fn tables_that_take_no_changes_say_so() {
    let folder = folder();
    let table = open(folder.path()).await;
    let error = table.stage(Operation::Upsert).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("either the table has no key yet, or"), "{error}");
    assert!(!folder.path().join("_lakemark/updates").exists());
    let error = table.key().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("has no key, which tells changed rows apart"), "{error}");
    let keyed = keyed(folder.path()).await;
    assert_eq!(keyed.key().await.unwrap(), ["k"]);
    let options = TableOptions { version: Some(1), ..TableOptions::default() };
    let old = Table::open_alone(folder.path().to_str().unwrap(), options).await.unwrap();
    let error = old.key().await.unwrap_err();
    assert!(error.to_string().contains("was opened at version 1"), "{error}");
    assert_eq!(old.stage(Operation::Delete).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// A table that holds a small part of a large call at once, beside what is buffered: some in a run, some in the buffer.
async fn with_small_cache(folder: &Path, cache_bytes: u64) -> Arc<Table> {
    let table = open(folder).await;
    let options =
        [("page_bytes", "512".to_owned()), ("cache_bytes", cache_bytes.to_string()), ("alpha", "0.4".to_owned())];
    let options = options.map(|(name, value)| (name.to_owned(), value)).into();
    table.declare_key(&["k".to_owned()], &options, BuildOptions::default()).await.unwrap();
    make(&table, Operation::Upsert, batch(&[(1, Some(1), Some("run")), (2, Some(2), Some("run"))])).await.unwrap();
    table.flush().await.unwrap();
    make(&table, Operation::Delete, keys(&[4, 20_001])).await.unwrap();
    make(&table, Operation::Update, numbers(&[(1, Some(11)), (8, Some(88)), (20_003, Some(3))])).await.unwrap();
    table
}

/// Keys of all files, each with a text of a hundred letters.
fn long_rows(keys: impl Iterator<Item = i64>) -> RecordBatch {
    let rows: Vec<(i64, String)> = keys.map(|key| (key, format!("{key:100}"))).collect();
    batch(&rows.iter().map(|(key, text)| (*key, Some(*key as i32), Some(text.as_str()))).collect::<Vec<_>>())
}

#[tokio::test]
async fn a_call_that_is_larger_than_the_buffer_becomes_one_run_in_parts() {
    let folder = folder();
    let table = with_small_cache(folder.path(), 8 << 20).await;
    let (before, sequence) = (rows(&table).await, table.snapshot().await.unwrap().sequence().unwrap());
    // Neighbouring keys are in different files, and each file is written in no order.
    let mixed =
        |remainder: i64| long_rows((0..5000).map(move |at| at * 1999 % 5000).filter(move |key| key % 4 == remainder));
    let updated = numbers(&[(7, Some(-7)), (598, Some(-598)), (20_003, Some(4)), (20_005, Some(5))]);
    let staged = [
        stage(&table, Operation::Upsert, &[mixed(2)]).await.unwrap(),
        stage(&table, Operation::Upsert, &[mixed(3)]).await.unwrap(),
        stage(&table, Operation::Insert, &[long_rows(5000..6000)]).await.unwrap(),
        stage(&table, Operation::Insert, &[long_rows((6000..7000).chain([12, 4]))]).await.unwrap(),
        stage(&table, Operation::Delete, &[keys(&[24, 12, 24, 0])]).await.unwrap(),
        stage(&table, Operation::Delete, &[keys(&[0, 16])]).await.unwrap(),
        stage(&table, Operation::Update, &[updated]).await.unwrap(),
    ];
    let named = WriteOptions {
        transaction: Some(Transaction { application: "stream".to_owned(), version: 3 }),
        ..WriteOptions::default()
    };
    let written = table.write_staged(&staged, named.clone()).await.unwrap();
    assert_eq!(written, Written { sequence: sequence + 1, rows: 2500 + 2002 + 4 + 4 });
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    let mut expected = before;
    [0, 16, 24].iter().for_each(|key| drop(expected.remove(key)));
    let text = |key: i64| row(key as i32, &format!("{key:100}"));
    expected.insert(7, (Some(-7), None));
    expected.extend((0..5000).filter(|key| key % 4 > 1).map(|key| (key, text(key))));
    expected.extend((5000..7000).chain([12, 4]).map(|key| (key, text(key))));
    // An update comes before an upsert of its key.
    assert_eq!((&expected[&7], &expected[&598], &expected[&1]), (&text(7), &text(598), &row(11, "run")));
    assert_eq!(rows(&table).await, expected);
    let again = open(folder.path()).await;
    assert_eq!(rows(&again).await, expected);
    // What was in the buffer is in the run as well.
    let info = again.updates_info().await.unwrap().unwrap();
    assert_eq!((info.runs.len(), info.buffer_keys), (2, 0), "{info:?}");
    let staged = stage(&table, Operation::Delete, &[keys(&[12])]).await.unwrap();
    assert_eq!(table.write_staged(&[staged], named).await.unwrap().rows, 0);
    make(&table, Operation::Upsert, batch(&[(2, Some(3), None)])).await.unwrap();
    table.migrate(MigrateOptions::default()).await.unwrap();
    expected.insert(2, (Some(3), None));
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
}

#[tokio::test]
async fn a_large_call_that_cannot_be_made_changes_nothing() {
    let folder = folder();
    let table = with_small_cache(folder.path(), 1 << 20).await;
    let (before, read_at) = (rows(&table).await, table.snapshot().await.unwrap().sequence());
    make(&table, Operation::Upsert, batch(&[(2900, Some(9), None)])).await.unwrap();
    let many = stage(&table, Operation::Upsert, &[long_rows((0..3000).filter(|key| key % 2 == 1))]).await.unwrap();
    let there = stage(&table, Operation::Insert, &[long_rows((2000..3000).step_by(2))]).await.unwrap();
    let twice = stage(&table, Operation::Upsert, &[long_rows(2999..3002)]).await.unwrap();
    let changed = stage(&table, Operation::Delete, &[keys(&[2900])]).await.unwrap();
    let lacks = stage(&table, Operation::Upsert, &[keys(&[7001])]).await.unwrap();
    let texts: Vec<String> = (0..20_000u64)
        .map(|key| format!("{:032x}", u128::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
        .collect();
    let random: Vec<_> = texts.iter().zip(10_000..).map(|(text, key)| (key, None, Some(text.as_str()))).collect();
    let full = stage(
        &table,
        Operation::Insert,
        &[batch(&random), batch(&random.iter().map(|(key, a, s)| (key + 20_000, *a, *s)).collect::<Vec<_>>())],
    )
    .await
    .unwrap();
    let since = WriteOptions { read_at, ..WriteOptions::default() };
    let before = {
        let mut before = before;
        before.insert(2900, (Some(9), None));
        before
    };
    for (staged, options, kind, says) in [
        (
            vec![many.clone(), there],
            WriteOptions::default(),
            ErrorKind::AlreadyExists,
            "the key k = 2900 is there already",
        ),
        (
            vec![many.clone(), twice],
            WriteOptions::default(),
            ErrorKind::InvalidInput,
            "the key k = 2999 stands in rows",
        ),
        (vec![many.clone(), changed], since, ErrorKind::Conflict, "k = 2900 was changed by somebody else"),
        (vec![many.clone(), lacks], WriteOptions::default(), ErrorKind::InvalidInput, "staged with different columns"),
        (vec![many.clone(), full], WriteOptions::default(), ErrorKind::CacheFull, "so that these were not made"),
    ] {
        let left = files(folder.path()).len();
        let error = table.write_staged(&staged, options).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!((rows(&table).await, files(folder.path()).len()), (before.clone(), left));
    }
    assert_eq!(take(&table, &[many]).await.unwrap().rows, 1500);
}

/// Of more files than are read at the same time, the smaller ones are held as a whole.
#[tokio::test]
async fn a_call_of_many_small_files_is_made() {
    let folder = folder();
    let table = with_small_cache(folder.path(), 8 << 20).await;
    let mut expected = rows(&table).await;
    let mut staged = vec![stage(&table, Operation::Delete, &[keys(&[0, 2])]).await.unwrap()];
    for key in (0..800).map(|at| at * 7 % 800 + 1000) {
        staged.push(stage(&table, Operation::Insert, &[long_rows([key].into_iter())]).await.unwrap());
        expected.insert(key, row(key as i32, &format!("{key:100}")));
    }
    assert_eq!(take(&table, &staged).await.unwrap().rows, 802);
    [0, 2].iter().for_each(|key| drop(expected.remove(key)));
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
}

/// Keys of a partition column, as text.
fn parts(rows: &[(&str, i64)]) -> RecordBatch {
    let part: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0)));
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
    RecordBatch::try_from_iter([("k", k), ("part", part)]).unwrap()
}

#[tokio::test]
async fn staged_rows_have_the_types_that_buffered_changes_need() {
    let folder = tempfile::tempdir().unwrap();
    let put = |part: &str| write(&folder.path().join(format!("part={part}/f.parquet")), &keys(&[1]));
    put("x");
    put("7");
    let table = open(folder.path()).await;
    let key = ["part".to_owned(), "k".to_owned()];
    table.declare_key(&key, &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    make(&table, Operation::Upsert, parts(&[("007", 1), ("y", 1), ("7", 2)])).await.unwrap();
    // The folders that are left have numbers only.
    fs::remove_dir_all(folder.path().join("part=x")).unwrap();
    let count = async || {
        let snapshot = table.snapshot().await.unwrap();
        let hidden = snapshot.deleted_rows();
        1 - hidden + snapshot.buffered_rows().map_or(0, |buffered| buffered.row_count())
    };
    assert_eq!(count().await, 4);
    let staged = [
        stage(&table, Operation::Upsert, &[parts(&[("z", 3)])]).await.unwrap(),
        stage(&table, Operation::Delete, &[parts(&[("7", 1), ("007", 1), ("y", 1)])]).await.unwrap(),
    ];
    assert_eq!(take(&table, &staged).await.unwrap().rows, 4);
    assert_eq!(count().await, 2);
    table.flush().await.unwrap();
    assert_eq!(count().await, 2);
    table.migrate(MigrateOptions::default()).await.unwrap();
    let folders = table.snapshot().await.unwrap();
    let folders: Vec<_> = folders.files().iter().filter_map(|file| file.path.rsplit('/').nth(1)).collect();
    assert_eq!(folders, ["part=7", "part=z"]);
}

/// Many rows of two partitions.
fn numbered(parts: [i32; 2], rows: i64) -> RecordBatch {
    let of = |part: i32| (0..rows).map(move |row| (part, row));
    let (part, k): (Vec<i32>, Vec<i64>) = parts.into_iter().flat_map(of).unzip();
    let columns: [(&str, ArrayRef); 2] =
        [("k", Arc::new(Int64Array::from(k))), ("part", Arc::new(Int32Array::from(part)))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The order of numbers is not that of texts: the parts of a large call would not be in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_call_whose_key_gets_another_type_before_its_turn_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let put = |part: &str| write(&folder.path().join(format!("part={part}/f.parquet")), &keys(&[1]));
    put("7");
    let table = open(folder.path()).await;
    let options = [("page_bytes", "512"), ("cache_bytes", "2000000"), ("alpha", "0.4")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    table.declare_key(&["part".to_owned(), "k".to_owned()], &options, BuildOptions::default()).await.unwrap();
    let staged = [stage(&table, Operation::Upsert, &[numbered([9, 10], 40_000)]).await.unwrap()];
    let sequence = table.snapshot().await.unwrap().sequence();
    let open_files = || {
        let opened = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let is_staged = |path: &PathBuf| path.extension().is_some_and(|of| of == "arrows");
        opened.filter(|path| path.starts_with(folder.path()) && is_staged(path)).count()
    };
    while open_files() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let lock = File::options().append(true).open(folder.path().join("_lakemark/updates/lock")).unwrap();
    lock.lock().unwrap();
    let call = tokio::spawn({
        let (table, staged) = (Arc::clone(&table), staged.clone());
        async move { take(&table, &staged).await }
    });
    // Where the file is open, the call has looked at the key; now it waits for its turn.
    while open_files() == 0 {
        assert!(!call.is_finished(), "{:?}", call.await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    put("x");
    lock.unlock().unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("whose type was changed meanwhile; nothing was changed"), "{error}");
    assert_eq!(table.snapshot().await.unwrap().sequence(), sequence);
    // As long as the key has that type these rows are not in order.
    assert_eq!(take(&table, &staged).await.unwrap_err().kind(), ErrorKind::Conflict);
    fs::remove_dir_all(folder.path().join("part=x")).unwrap();
    assert_eq!(take(&table, &staged).await.unwrap().rows, 80_000);
}
