//! A process that builds and compacts is killed at every step of its work, a watch at any instant, and the disk fails at every step: answers
//! stay right, and the next build and compaction bring coverage and segments to where they would be.
//!
//! `LAKEMARK_BUILD_STRIDE` is how many steps lie from one that fails to the next.
#![cfg(test)]
#![cfg(feature = "failpoints")]

#[path = "builds/due.rs"]
mod due;
mod told;
#[path = "builds/watches.rs"]
mod watches;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use lakemark_format::Key;
use lakemark_format::key::key_of_i64;
use lakemark_index::{KeyRanges, Leaf, Predicate, Test};
use lakemark_table::faults::{InjectedFailure, links, mend, seen, watch};
use lakemark_table::{
    BuildOptions, CoverRequest, Error, FileProbe, IndexKind, IndexSpec, LinkDirection, LinkMemoryLimit, Links, Merging,
    Probe, ProbeOptions, RowSet, RowsOfFile, Snapshot, Table, TableOptions, WalkOptions,
};
use parquet::arrow::ArrowWriter;

const FOLDER: &str = "LAKEMARK_BUILDS_FOLDER";
/// A point and how often it is reached before the process stops there, as the library reads it.
const AT: &str = "LAKEMARK_CRASH_AT";
const FILES: usize = 4;
const ROWS: i64 = 200;

/// The points that a build or a compaction reaches.
const POINTS: [&str; 15] = [
    "created",
    "write",
    "half-written",
    "written",
    "sync",
    "synced",
    "rename",
    "renamed",
    "link",
    "linked",
    "remove",
    "removed",
    "folder-sync",
    "folder-synced",
    "folder-made",
];

async fn open(folder: &Path) -> Arc<Table> {
    Table::open_alone(folder.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

/// One thread builds, so that the steps are always the same; a little memory, so that there are temporary files, too.
fn options() -> BuildOptions {
    BuildOptions { threads: Some(1), memory_bytes: Some(1), ..BuildOptions::default() }
}

/// The rows of the file of a number.
fn rows(file: usize) -> RecordBatch {
    let first = file as i64 * ROWS;
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values((first..first + ROWS).map(|row| row % 17)));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values((first..first + ROWS).map(|row| format!("s{row}"))));
    let t: ArrayRef = Arc::new(StringArray::from_iter_values((first..first + ROWS).map(linked)));
    RecordBatch::try_from_iter([("k", k), ("s", s), ("t", t)]).unwrap()
}

/// What the text of a row is linked with: the text of another one, each of one row.
fn linked(row: i64) -> String {
    format!("s{}", row * 7 % (FILES as i64 * ROWS))
}

fn write_rows(path: &Path, rows: &RecordBatch) {
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

fn write(folder: &Path, file: usize) {
    write_rows(&folder.join(format!("f{file}.parquet")), &rows(file));
}

fn spec_of(column: &str, kind: &str) -> IndexSpec {
    IndexSpec { columns: vec![column.to_owned()], kind: IndexKind::from_name(kind), ..IndexSpec::default() }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Two indexes over three files, each with a segment of its own, and a file that no index has.
async fn create(folder: &Path) {
    create_with(folder, vec![spec_of("k", "bitmap"), spec_of("s", "key")]).await;
}

/// Indexes that give values and links.
fn specs_of_values() -> Vec<IndexSpec> {
    let options = [("include".to_owned(), "s".to_owned())].into();
    let columns = ["s", "t"].map(String::from).to_vec();
    let links = IndexSpec { columns, kind: Some(IndexKind::Links), ..IndexSpec::default() };
    vec![IndexSpec { options, ..spec_of("k", "key") }, links]
}

async fn create_with(folder: &Path, specs: Vec<IndexSpec>) {
    for file in 0..FILES {
        write(folder, file);
        let table = open(folder).await;
        if file == 0 {
            for spec in &specs {
                table.create_index(spec.clone(), false).await.unwrap();
            }
        }
        if file + 1 < FILES {
            table.build(options()).await.unwrap();
        }
    }
}

/// What the victim does.
async fn work(table: &Table) -> Result<(), Error> {
    table.build(options()).await?;
    table.compact(options()).await.map(drop)
}

fn k_is_3() -> Predicate {
    let test = Test::Ranges(KeyRanges::point(Key::Fixed(key_of_i64(3))));
    Predicate::Leaf(Leaf { column: "k".to_owned(), test, text: "k = 3".to_owned() })
}

async fn probe(snapshot: &Snapshot, predicate: &Predicate) -> Probe {
    snapshot.probe(predicate, &ProbeOptions { selection_cache: false, ..ProbeOptions::default() }).await.unwrap()
}

/// Values and links, where indexes give them: they are those of the rows, whichever files are covered.
async fn check_given(snapshot: &Arc<Snapshot>, at: &str) {
    if !snapshot.has_covering_index() {
        return;
    }
    let predicate = k_is_3();
    let found = probe(snapshot, &predicate).await;
    let exact: Vec<(usize, RowSet)> = found
        .files
        .listed()
        .filter_map(|(file, found)| match found {
            FileProbe::Known { exact, .. } if !exact.is_empty() => Some((file, exact.clone())),
            _ => None,
        })
        .collect();
    assert!(!exact.is_empty(), "{at}: no file is covered");
    let rows = exact.iter().map(|(file, rows)| RowsOfFile { file: *file, rows }).collect();
    let request = CoverRequest { predicate: &predicate, columns: vec!["s".to_owned()], rows };
    let values = snapshot.covered_rows(&request).await.unwrap_or_else(|| panic!("{at}: no values"));
    let texts: Vec<&str> = values.columns[0].as_string::<i32>().iter().flatten().collect();
    assert!(texts.iter().all(|text| text[1..].parse::<i64>().unwrap() % 17 == 3), "{at}: {texts:?}");
    assert_eq!(texts.len(), exact.iter().map(|(_, rows)| rows.len() as usize).sum::<usize>(), "{at}");
    let walks = Links::of(Arc::clone(snapshot), &["s", "t"].map(String::from), 64 << 20).await.unwrap();
    for row in [3, ROWS + 4, 3 * ROWS + 5] {
        let (near, far) = (format!("s{row}"), linked(row));
        for (node, direction, expected) in [(&near, LinkDirection::Out, &far), (&far, LinkDirection::In, &near)] {
            let nodes: ArrayRef = Arc::new(StringArray::from_iter_values([node]));
            let options = WalkOptions { direction, ..WalkOptions::default() };
            let found = walks.neighbours(&nodes, &options, &LinkMemoryLimit::new(64 << 20)).await.unwrap();
            let found: Vec<&str> = found.column_by_name("node").unwrap().as_string::<i32>().iter().flatten().collect();
            assert_eq!(found, [expected.as_str()], "{at}: {node} {direction:?}");
        }
    }
}

/// Rows with `k = 3`: what the indexes know is right, and what they do not is scanned.
async fn check_answers(snapshot: &Snapshot, at: &str) {
    let found = probe(snapshot, &k_is_3()).await;
    for (file, found) in snapshot.files().iter().zip(&found.files) {
        let file: i64 = file.path.trim_start_matches('f').trim_end_matches(".parquet").parse().unwrap();
        let first = file * ROWS;
        let expected: Vec<u32> =
            (0..).zip(first..first + ROWS).filter(|(_, row)| row % 17 == 3).map(|(at, _)| at).collect();
        if let FileProbe::Known { exact, recheck, .. } = found {
            assert_eq!(exact.iter().collect::<Vec<_>>(), expected, "{at}, file {file}");
            assert!(recheck.is_empty(), "{at}, file {file}");
        }
    }
}

/// Answers are right now; after one more build and compaction everything is as if nothing had happened.
async fn check(folder: &Path, at: &str) {
    let table = open(folder).await;
    let snapshot = table.snapshot().await.unwrap();
    check_answers(&snapshot, at).await;
    check_given(&snapshot, at).await;
    let report = table.verify().await.unwrap();
    assert!(report.is_ok(), "{at}: {report:?}");
    // Whatever the manifest says to be covered is.
    assert_eq!(snapshot.checked_indexes().await.unwrap(), snapshot.indexes(), "{at}");
    work(&table).await.unwrap_or_else(|error| panic!("{at}, again: {error}"));
    let snapshot = open(folder).await.snapshot().await.unwrap();
    for index in snapshot.checked_indexes().await.unwrap() {
        assert_eq!((index.coverage, index.segments), (1.0, 1), "{at}: {index:?}");
    }
    check_answers(&snapshot, at).await;
    check_given(&snapshot, at).await;
    assert!(table.verify().await.unwrap().is_ok(), "{at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_a_build_and_a_compaction_are_done_by_the_next_ones() {
    if let Ok(folder) = std::env::var(FOLDER) {
        work(&*open(Path::new(&folder)).await).await.unwrap();
        return;
    }
    let mut deaths = 0;
    for (place, point) in POINTS.into_iter().enumerate() {
        let mut times = 1;
        loop {
            let folder = tempfile::tempdir().unwrap();
            // At every second death, and at each point, the indexes are those that give values and links.
            match (place + times).is_multiple_of(2) {
                true => create_with(folder.path(), specs_of_values()).await,
                false => create(folder.path()).await,
            }
            if point == "folder-made" {
                std::fs::remove_dir_all(folder.path().join("_lakemark/indexes")).unwrap();
            }
            let at = format!("{point}:{times}");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "killed_at_any_step_a_build_and_a_compaction_are_done_by_the_next_ones"]);
            command.env(FOLDER, folder.path()).env(AT, &at).stdout(Stdio::null()).stderr(Stdio::null());
            let is_done = command.status().unwrap().success();
            if point == "folder-made" && !is_done {
                // What is lost is lost; the next build makes it again.
                work(&*open(folder.path()).await).await.unwrap();
            }
            check(folder.path(), &at).await;
            if is_done {
                break;
            }
            deaths += 1;
            // The first times one by one, single writes more rarely.
            times += if times < 4 { 1 } else { times };
        }
        assert!(times > 1, "{point} is never reached");
    }
    println!("{deaths} deaths at {} points", POINTS.len());
}

/// Five segments of one file each, which the next build merges.
async fn create_many(folder: &Path) {
    for file in 0..=FILES {
        write(folder, file);
        let table = open(folder).await;
        if file == 0 {
            table.create_index(spec_of("k", "bitmap"), false).await.unwrap();
        }
        table.build(BuildOptions { merging: Merging::Never, ..options() }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_a_build_that_merges_leaves_the_old_segments_or_the_merged_one() {
    if let Ok(folder) = std::env::var(FOLDER) {
        assert_eq!(open(Path::new(&folder)).await.build(options()).await.unwrap().segments_merged, 5);
        return;
    }
    let mut left = Vec::new();
    for point in POINTS {
        let mut times = 1;
        loop {
            let folder = tempfile::tempdir().unwrap();
            create_many(folder.path()).await;
            let at = format!("{point}:{times}");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "killed_at_any_step_a_build_that_merges_leaves_the_old_segments_or_the_merged_one"]);
            command.env(FOLDER, folder.path()).env(AT, &at).stdout(Stdio::null()).stderr(Stdio::null());
            let is_done = command.status().unwrap().success();
            let table = open(folder.path()).await;
            let snapshot = table.snapshot().await.unwrap();
            check_answers(&snapshot, &at).await;
            let index = snapshot.checked_indexes().await.unwrap().remove(0);
            assert!(index.coverage == 1.0 && [1, 5].contains(&index.segments), "{at}: {index:?}");
            assert!(table.verify().await.unwrap().is_ok(), "{at}");
            left.push((is_done, index.segments));
            table.build(options()).await.unwrap();
            assert_eq!(table.snapshot().await.unwrap().indexes()[0].segments, 1, "{at}");
            if is_done {
                break;
            }
            times += if times < 4 { 1 } else { times };
        }
    }
    for expected in [(false, 5), (false, 1), (true, 1)] {
        assert!(left.contains(&expected), "{expected:?} never happened: {left:?}");
    }
}

/// Files that no index has, each to get a segment of its own.
async fn declare(folder: &Path) -> Arc<Table> {
    (0..FILES).for_each(|file| write(folder, file));
    let table = open(folder).await;
    let options = [("files_per_segment".to_owned(), "1".to_owned())].into();
    table.create_index(IndexSpec { options, ..spec_of("k", "bitmap") }, false).await.unwrap();
    table
}

/// A commit for every group that is finished.
fn at_once() -> BuildOptions {
    BuildOptions { commit_every: Some(Duration::ZERO), ..options() }
}

/// What there was when a build went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// Files that were covered.
    covered: usize,
    /// Segments that were left, and committed by nobody.
    left: usize,
}

/// A build covers what was not committed, and nothing else.
async fn check_rest(folder: &Path, at: &str) -> Found {
    let table = open(folder).await;
    let snapshot = table.snapshot().await.unwrap();
    check_answers(&snapshot, at).await;
    let covered = snapshot.checked_indexes().await.unwrap()[0].files_covered as usize;
    let report = table.build(options()).await.unwrap();
    assert_eq!(report.files as usize, FILES - covered, "{at}");
    assert_eq!((report.segments + report.taken_over) as usize, FILES - covered, "{at}");
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.checked_indexes().await.unwrap()[0].coverage, 1.0, "{at}");
    check_answers(&snapshot, at).await;
    assert!(table.verify().await.unwrap().is_ok(), "{at}");
    Found { covered, left: report.taken_over as usize }
}

/// On a local disk a manifest gets its name by a link, and nothing else of a build does. A segment that is finished is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_is_killed_loses_the_group_in_hand_and_no_more() {
    if let Ok(folder) = std::env::var(FOLDER) {
        open(Path::new(&folder)).await.build(at_once()).await.unwrap();
        return;
    }
    for (point, before) in [("link", 1), ("linked", 0)] {
        for commit in 1..=FILES {
            let folder = tempfile::tempdir().unwrap();
            declare(folder.path()).await;
            let at = format!("{point}:{commit}");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "a_build_that_is_killed_loses_the_group_in_hand_and_no_more"]);
            command.env(FOLDER, folder.path()).env(AT, &at).stdout(Stdio::null()).stderr(Stdio::null());
            assert!(!command.status().unwrap().success(), "{at} is never reached");
            let found = Found { covered: commit - before, left: before };
            assert_eq!(check_rest(folder.path(), &at).await, found, "{at}");
        }
    }
}

/// Two processes build one table, and one of them is killed once it has published so many segments.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_beside_one_that_is_killed_does_what_that_one_had_claimed() {
    if let Ok(folder) = std::env::var(FOLDER) {
        open(Path::new(&folder)).await.build(at_once()).await.unwrap();
        return;
    }
    let mut deaths = 0;
    for times in 1..=2 * FILES {
        let folder = tempfile::tempdir().unwrap();
        declare(folder.path()).await;
        let at = format!("renamed:{times}");
        let start = |at: Option<&str>| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "a_build_beside_one_that_is_killed_does_what_that_one_had_claimed"]);
            command.env(FOLDER, folder.path()).envs(at.map(|at| (AT, at)));
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let (mut victim, mut other) = (start(Some(&at)), start(None));
        deaths += usize::from(!victim.wait().unwrap().success());
        assert!(other.wait().unwrap().success(), "{at}");
        let table = open(folder.path()).await;
        let snapshot = table.snapshot().await.unwrap();
        assert_eq!(snapshot.checked_indexes().await.unwrap()[0].coverage, 1.0, "{at}");
        check_answers(&snapshot, &at).await;
        assert!(table.verify().await.unwrap().is_ok(), "{at}");
        let names = std::fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap();
        let is_segment = |name: &std::fs::DirEntry| name.path().extension().is_some_and(|of| of == "lmx");
        assert_eq!(names.map(Result::unwrap).filter(is_segment).count(), FILES, "{at}");
    }
    assert!(deaths > 0, "nobody died");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_stops_a_build_and_what_was_committed_stays() {
    let (mut at, mut halves) = (1, 0);
    loop {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let table = declare(&root).await;
        watch(&root, InjectedFailure::Full(at), false);
        let built = table.build(at_once()).await;
        let met = seen(&root);
        mend(&root);
        let text = format!("full at step {at}");
        match &built {
            Ok(report) => assert!(report.failed.is_empty(), "{text}: {report:?}"),
            Err(error) => assert!(error.to_string().contains("again"), "{text}: {error}"),
        }
        let Found { covered, .. } = check_rest(&root, &text).await;
        assert!(built.is_err() || covered == FILES, "{text}");
        halves += usize::from(covered > 0 && covered < FILES);
        if at > met.steps {
            break;
        }
        at += 3;
    }
    assert!(halves > FILES, "{halves}");
}

/// A failure at the step of this number.
type FailureAt = fn(u64) -> InjectedFailure;

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_at_any_step_costs_no_segment_that_is_named() {
    let stride: u64 = std::env::var("LAKEMARK_BUILD_STRIDE").map_or(5, |text| text.parse().unwrap());
    let failures: [(FailureAt, u64); 5] = [
        (InjectedFailure::Once, stride),
        (InjectedFailure::Full, stride),
        (InjectedFailure::Folders, stride),
        (InjectedFailure::Link, 1),
        (InjectedFailure::LinkAgain, 1),
    ];
    for (failure, stride) in failures {
        let (mut at, mut failed) = (1, 0);
        loop {
            let folder = tempfile::tempdir().unwrap();
            let root = std::fs::canonicalize(folder.path()).unwrap();
            create(&root).await;
            let text = format!("{:?}", failure(at));
            let table = open(&root).await;
            watch(&root, failure(at), false);
            let worked = work(&table).await;
            let met = seen(&root);
            mend(&root);
            failed += u64::from(met.failed);
            let is_of_links = matches!(failure(at), InjectedFailure::Link(_) | InjectedFailure::LinkAgain(_));
            if let Err(error) = worked {
                // A link that was made is a commit.
                assert!(!is_of_links, "{text}: {error}");
                assert!(error.to_string().contains("again"), "{text}: {error}");
            }
            check(&root, &text).await;
            if at > if is_of_links { links(&root) } else { met.steps } {
                break;
            }
            at += stride;
        }
        println!("{:?}: failed {failed} times, up to {at}", failure(0));
        assert!(failed >= 2, "{:?}: {failed}", failure(0));
    }
}
