//! What the disk may do to a table that changes: it gets full or fails at any step, and loses what was not synced when the power goes.
//!
//! Both tests make the same calls, whose steps of the disk are counted or written down. `LAKEMARK_DISK_STRIDE` is how many steps lie from
//! one that fails to the next, `LAKEMARK_POWER_STATES` how many states are made after a step that is followed by a power cut.
#![cfg(test)]
#![cfg(feature = "failpoints")]

mod counted;
#[path = "disk/power.rs"]
mod power;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use lakemark_table::faults::{InjectedFailure, Seen, journal, mend, seen, watch};
use lakemark_table::{
    BuildOptions, Change, Error, ErrorKind, IndexSpec, MigrateOptions, Operation, Snapshot, Table, TableOptions,
    WriteOptions,
};
use parquet::arrow::ArrowWriter;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::counted::for_each_row;
use self::power::Disk;

type Rows = BTreeMap<i64, String>;

/// A call.
#[derive(Clone, Copy, Debug)]
enum Call {
    Change(Operation, i64, i64),
    Flush,
    Migrate(f64),
    /// Of a Delta table there is nothing to publish.
    Publish,
}

/// Changes in the log, runs of them, a merge, migrations of a part and of the whole, and publications of both.
const CALLS: [Call; 25] = [
    Call::Change(Operation::Upsert, 0, 12),
    Call::Change(Operation::Delete, 4, 7),
    Call::Flush,
    Call::Change(Operation::Update, 8, 40),
    Call::Flush,
    Call::Change(Operation::Insert, 100, 104),
    Call::Change(Operation::Delete, 2, 3),
    Call::Flush,
    Call::Change(Operation::Upsert, 5, 9),
    Call::Flush,
    Call::Change(Operation::Upsert, 3, 30),
    Call::Migrate(0.4),
    Call::Publish,
    Call::Change(Operation::Delete, 28, 33),
    // Larger than the buffer.
    Call::Change(Operation::Upsert, 200, 700),
    Call::Change(Operation::Update, 201, 203),
    Call::Migrate(1.0),
    Call::Change(Operation::Insert, 104, 106),
    Call::Flush,
    Call::Change(Operation::Delete, 105, 205),
    Call::Migrate(1.0),
    Call::Publish,
    Call::Change(Operation::Upsert, 1, 3),
    Call::Publish,
    Call::Change(Operation::Delete, 2, 3),
];

async fn open(folder: &Path) -> Arc<Table> {
    Table::open_alone(folder.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

/// One thread builds, so that the steps are always the same.
fn one_thread() -> BuildOptions {
    BuildOptions { threads: Some(1), ..BuildOptions::default() }
}

async fn make(table: &Arc<Table>, number: usize, call: Call) -> Result<(), Error> {
    match call {
        Call::Flush => table.flush().await,
        Call::Publish => table.publish().await.map(|_| ()),
        Call::Migrate(fraction) => {
            table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await.map(|_| ())
        }
        Call::Change(operation, first, end) => {
            let k: ArrayRef = Arc::new(Int64Array::from_iter_values(first..end));
            let s: ArrayRef = Arc::new(StringArray::from_iter_values((first..end).map(|key| text(number, key))));
            let mut rows = RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap();
            if operation == Operation::Delete {
                rows = rows.project(&[0]).unwrap();
            }
            table.write(vec![Change { operation, rows }], WriteOptions::default()).await.map(|_| ())
        }
    }
}

fn text(number: usize, key: i64) -> String {
    format!("{number} of {key}")
}

fn apply(rows: &mut Rows, number: usize, call: Call) {
    let Call::Change(operation, first, end) = call else { return };
    for key in first..end {
        match operation {
            Operation::Delete => drop(rows.remove(&key)),
            Operation::Update => drop(rows.get_mut(&key).map(|have| *have = text(number, key))),
            _ => drop(rows.insert(key, text(number, key))),
        }
    }
}

/// Keys 0, 2, 4 … 58 in two files of a folder or a Delta table, which has a store already: `s` is indexed.
async fn create(folder: &Path, is_delta: bool) -> Rows {
    let mut adds = String::new();
    let mut all = Rows::new();
    for file in 0..2 {
        let rows: Rows = (file * 30..file * 30 + 30).step_by(2).map(|key| (key, "base".to_owned())).collect();
        let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.keys().copied()));
        let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.values()));
        let batch = RecordBatch::try_from_iter_with_nullable([("k", k, true), ("s", s, true)]).unwrap();
        let name = format!("base-{file}.parquet");
        let mut writer = ArrowWriter::try_new(File::create(folder.join(&name)).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let size = std::fs::metadata(folder.join(&name)).unwrap().len();
        adds += &format!(
            "\n{{\"add\":{{\"path\":\"{name}\",\"partitionValues\":{{}},\"size\":{size},\"modificationTime\":1,\"dataChange\":true}}}}"
        );
        all.extend(rows);
    }
    if is_delta {
        let schema = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"k\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}},{\"name\":\"s\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}"#;
        let log = format!(
            "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n{{\"metaData\":{{\"id\":\"4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{}},\"createdTime\":0}}}}{adds}"
        );
        std::fs::create_dir(folder.join("_delta_log")).unwrap();
        std::fs::write(folder.join("_delta_log/00000000000000000000.json"), log).unwrap();
    }
    let table = open(folder).await;
    table.create_index(IndexSpec { columns: vec!["s".to_owned()], ..IndexSpec::default() }, false).await.unwrap();
    table.build(one_thread()).await.unwrap();
    all
}

/// Declares the key; the cache is small, so that there are merges.
async fn declare(folder: &Path) -> Result<(), Error> {
    let options = [("page_bytes", "512"), ("cache_bytes", "49152")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    open(folder).await.declare_key(&["k".to_owned()], &BTreeMap::from(options), one_thread()).await.map(|_| ())
}

fn read(snapshot: &Snapshot) -> Rows {
    let mut rows = Rows::new();
    for_each_row(snapshot, |batch, at| {
        let key = batch.column_by_name("k").unwrap().as_primitive::<Int64Type>().value(at);
        let s = batch.column_by_name("s").unwrap();
        let text = s.is_valid(at).then(|| s.as_string::<i32>().value(at).to_owned());
        assert_eq!(rows.insert(key, text.unwrap()), None, "the key {key} is there twice");
    });
    rows
}

async fn rows(folder: &Path) -> Rows {
    read(&open(folder).await.snapshot().await.unwrap())
}

/// An error of the disk says that it is one, and what to do.
fn check_error(error: &Error, at: &str, problems: &mut Vec<String>) {
    let text = error.to_string();
    if error.kind() != ErrorKind::Io || !text.contains("again") {
        problems.push(format!("{at}: {:?}: {text}", error.kind()));
    }
}

/// Makes all calls on a disk that fails somewhere; says what was seen of it.
async fn on_bad_disk(is_delta: bool, failure: InjectedFailure, problems: &mut Vec<String>) -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let mut expected = create(&root, is_delta).await;
    watch(&root, failure, false);
    if let Err(error) = declare(&root).await {
        check_error(&error, &format!("delta {is_delta}, {failure:?}, declaring"), problems);
        assert_eq!(rows(&root).await, expected, "{failure:?}, declaring");
        mend(&root);
        declare(&root).await.unwrap();
    }
    let table = open(&root).await;
    // Calls from the failure on.
    let mut left = 4;
    for (number, call) in CALLS.into_iter().enumerate() {
        let at = format!("delta {is_delta}, {failure:?}, call {number}, {call:?}");
        let made = make(&table, number, call).await;
        let mut after = expected.clone();
        apply(&mut after, number, call);
        if let (Err(error), InjectedFailure::Link(_) | InjectedFailure::LinkAgain(_)) = (&made, failure) {
            problems.push(format!("{at}: a link that was made is no failure: {error}"));
        }
        if let (Err(error), InjectedFailure::Folders(_) | InjectedFailure::Dead(_)) = (&made, failure) {
            check_error(error, &at, problems);
            mend(&root);
            // What cannot be synced, or taken back, may be there all the same, and whoever made the call is told so.
            let found = rows(&root).await;
            assert!(found == expected || found == after, "{at}: {error}");
            if found != expected && !error.to_string().contains("cannot be told") {
                problems.push(format!("{at}: made, and said to be not: {error}"));
            }
            if found == expected
                && let Err(error) = make(&table, number, call).await
            {
                problems.push(format!("{at}, again: {error}"));
            }
        } else if let Err(error) = &made {
            check_error(error, &at, problems);
            // Nothing of it was made, for those who look from here and from elsewhere, also while the disk is bad.
            let mut looks = vec![look(&table).await, look(&*open(&root).await).await];
            mend(&root);
            looks.push(look(&*open(&root).await).await);
            for found in looks {
                if found.as_ref().ok() != Some(&expected) {
                    let is_made = found.as_ref().ok() == Some(&after);
                    problems.push(format!("{at}: {error}: found {}", if is_made { "made" } else { "something else" }));
                }
            }
            if let Err(error) = make(&table, number, call).await {
                problems.push(format!("{at}, again: {error}"));
            }
        }
        expected = after;
        // Failures that nobody was told of, since an index or a merge was given up, may have left something behind, too.
        if seen(&root).failed {
            mend(&root);
            assert_eq!(read(&table.snapshot().await.unwrap()), expected, "{at}");
            assert_eq!(rows(&root).await, expected, "{at}");
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    seen(&root)
}

async fn look(table: &Table) -> Result<Rows, Error> {
    Ok(read(&*table.snapshot().await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_or_fails_at_any_step_loses_nothing_and_stops_nothing_for_good() {
    let stride: u64 = std::env::var("LAKEMARK_DISK_STRIDE").map_or(13, |text| text.parse().unwrap());
    let mut problems = Vec::new();
    for is_delta in [false, true] {
        for failure in [InjectedFailure::Full, InjectedFailure::Once] {
            let (mut at, mut failed) = (1, 0);
            loop {
                let met = on_bad_disk(is_delta, failure(at), &mut problems).await;
                failed += u64::from(met.failed);
                if at > met.steps {
                    break;
                }
                at += stride;
            }
            println!("delta {is_delta}, {:?}: failed at {failed} of {at} steps", failure(0));
            assert!(failed * stride > 100, "{failed} of {at}");
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

/// A failure at the step of this number.
type FailureAt = fn(u64) -> InjectedFailure;

/// What was linked is committed, whatever was answered; what could not be synced may be.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_a_commit() {
    let stride: u64 = std::env::var("LAKEMARK_DISK_STRIDE").map_or(13, |text| text.parse().unwrap());
    let mut problems = Vec::new();
    for is_delta in [false, true] {
        let kinds: [(FailureAt, u64); 4] = [
            (InjectedFailure::Dead, stride * 4),
            (InjectedFailure::Link, stride.div_ceil(4)),
            (InjectedFailure::LinkAgain, stride.div_ceil(4)),
            (InjectedFailure::Folders, stride * 4),
        ];
        for (failure, stride) in kinds {
            let (mut at, mut failed) = (1, 0);
            // Beyond the last one nothing fails.
            while on_bad_disk(is_delta, failure(at), &mut problems).await.failed {
                failed += 1;
                at += stride;
            }
            println!("delta {is_delta}, {:?}: failed {failed} times, the last before {at}", failure(0));
            assert!(failed > 5, "{failed}");
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

/// What a power cut after any step may leave behind: the last acknowledged state, or the one of the call that was under way.
async fn power_cuts(is_delta: bool, states: u64) {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let mut now = create(&root, is_delta).await;
    let start = Disk::of(&root);
    watch(&root, InjectedFailure::None, true);
    declare(&root).await.unwrap();
    // The rows after each call, and how many steps there were when it returned.
    let mut acknowledged = vec![(journal(&root).len(), now.clone())];
    let table = open(&root).await;
    for (number, call) in CALLS.into_iter().enumerate() {
        make(&table, number, call).await.unwrap();
        apply(&mut now, number, call);
        acknowledged.push((journal(&root).len(), now.clone()));
    }
    let events = journal(&root);
    start.after(&events).all_kept().check_is(&root);
    let mut random = StdRng::seed_from_u64(11);
    for steps in 0..=events.len() {
        let disk = start.after(&events[..steps]);
        let last = acknowledged.iter().rposition(|(at, _)| *at <= steps);
        let sure = last.map_or(&acknowledged[0].1, |last| &acknowledged[last].1);
        let begun = acknowledged.get(last.map_or(0, |last| last + 1)).map_or(sure, |(_, rows)| rows);
        for state in 0..states {
            let left = disk.left_behind(&mut random, state);
            let copy = tempfile::tempdir().unwrap();
            let copied = std::fs::canonicalize(copy.path()).unwrap();
            left.write(&root, &copied);
            let at = format!(
                "delta {is_delta}, after step {steps} ({:?}), state {state}",
                events.get(steps.wrapping_sub(1))
            );
            let found = rows(&copied).await;
            assert!(found == *sure || found == *begun, "{at}: {}", left.described());
            if last.is_some() {
                go_on(&copied, found, &at, random.random_bool(0.1)).await;
            }
        }
    }
    println!("delta {is_delta}: {} states after each of {} steps", states, events.len());
}

/// The table takes changes, and keeps them.
async fn go_on(folder: &Path, mut expected: Rows, at: &str, migrates: bool) {
    let table = open(folder).await;
    let calls = [Call::Change(Operation::Upsert, 10, 14), Call::Flush, Call::Change(Operation::Delete, 11, 12)];
    for call in calls.into_iter().chain(migrates.then_some(Call::Migrate(1.0))) {
        make(&table, 99, call).await.unwrap_or_else(|error| panic!("{at}: {call:?}: {error}"));
        apply(&mut expected, 99, call);
    }
    assert_eq!(rows(folder).await, expected, "{at}, going on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let states = std::env::var("LAKEMARK_POWER_STATES").map_or(2, |text| text.parse().unwrap());
    power_cuts(false, states).await;
    power_cuts(true, states).await;
}

/// Makes all calls while some syncs of files fail, in turn by two who do not know of each other, and cuts the power then: what a sync that
/// failed did not bring to the disk is not brought there by a later one. Says whether a sync failed.
async fn lost_syncs(is_delta: bool, first: u64, count: u64, problems: &mut Vec<String>) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let mut possible = vec![create(&root, is_delta).await];
    declare(&root).await.unwrap();
    let start = Disk::of(&root);
    watch(&root, InjectedFailure::Syncs(first, count), true);
    let tables = [open(&root).await, open(&root).await];
    for (number, call) in CALLS.into_iter().enumerate().take(14) {
        let at = format!("delta {is_delta}, {count} syncs from {first} on, call {number}, {call:?}");
        let made = make(&tables[number % 2], number, call).await;
        let mut after = possible.clone();
        after.iter_mut().for_each(|rows| apply(rows, number, call));
        match made {
            Ok(()) => possible = after,
            Err(error) => {
                check_error(&error, &at, problems);
                if error.to_string().contains("cannot be told") {
                    possible.extend(after);
                }
            }
        }
    }
    let left = start.after(&journal(&root)).left_behind(&mut StdRng::seed_from_u64(0), 0);
    let copy = tempfile::tempdir().unwrap();
    let copied = std::fs::canonicalize(copy.path()).unwrap();
    left.write(&root, &copied);
    let at = format!("delta {is_delta}, {count} syncs from {first} on");
    match look(&*open(&copied).await).await {
        Ok(found) if possible.contains(&found) => {}
        Ok(_) => problems.push(format!("{at}: other rows after a power cut")),
        Err(error) => problems.push(format!("{at}: {error}")),
    }
    seen(&root).failed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_takes_no_later_change_along() {
    let stride: u64 = std::env::var("LAKEMARK_DISK_STRIDE").map_or(13, |text| text.parse().unwrap());
    let mut problems = Vec::new();
    for is_delta in [false, true] {
        // Of one frame both syncs fail, and that of whoever looks then.
        for count in 1..=3 {
            let mut first = 1 + count % 2;
            while lost_syncs(is_delta, first, count, &mut problems).await {
                first += stride.div_ceil(5);
            }
            assert!(first > 20, "{first}");
        }
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

/// Somebody may have read it before it was synced: what is taken back then was seen and is no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_frame_whose_sync_fails_is_written_again_and_not_taken_back() {
    for (failing, is_made) in [(1, true), (2, false)] {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let mut expected = create(&root, false).await;
        declare(&root).await.unwrap();
        let table = open(&root).await;
        watch(&root, InjectedFailure::Syncs(1, failing), false);
        let call = Call::Change(Operation::Upsert, 0, 12);
        let made = make(&table, 0, call).await;
        assert!(seen(&root).failed);
        assert_eq!(made.is_ok(), is_made, "{failing} syncs fail");
        if let Err(error) = made {
            assert!(error.to_string().contains("cannot be told"), "{error}");
        }
        apply(&mut expected, 0, call);
        assert_eq!(rows(&root).await, expected, "{failing} syncs fail");
    }
}
