//! `Table::doctor`: each thing that goes wrong has a name and says what to do, and a sound table has nothing to do.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lakemark_table::{BuildOptions, HealthReport, ProblemName, Severity, Table, TableOptions};

use crate::fixture::{batch, create_indexes, folder, open, segments, spec, write};

const HOUR: Duration = Duration::from_secs(3600);

fn names(report: &HealthReport) -> Vec<&'static str> {
    report.problems.iter().map(|found| found.name.name()).collect()
}

/// What is said of a problem that has to be the only one.
fn only(report: &HealthReport, name: ProblemName) -> String {
    assert_eq!(names(report), [name.name()], "{report:?}");
    let found = &report.problems[0];
    assert_eq!((found.severity, report.is_healthy()), (name.severity(), name.severity() == Severity::Note));
    format!("{}; {}", found.problem, found.remedy)
}

fn set_modified(path: &Path, time: SystemTime) {
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[tokio::test]
async fn a_sound_table_has_nothing_to_do_and_stays_as_it_is() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let before = segments(folder.path());
    let report = table.doctor().await.unwrap();
    assert_eq!(names(&report), Vec::<&str>::new(), "{report:?}");
    assert!(report.is_healthy());
    let looked =
        ["data files", "coverage", "index files", "updates", "locks", "leftovers", "disk", "permissions", "clock"];
    assert_eq!(report.checked, looked);
    assert_eq!(report.store.as_deref(), folder.path().join("_lakemark").to_str());
    assert_eq!(segments(folder.path()), before);
}

#[tokio::test]
async fn a_table_without_an_index_or_a_store_is_told_how_to_get_one() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let said = only(&table.doctor().await.unwrap(), ProblemName::NoIndex);
    assert!(said.contains("lakemark index create"), "{said}");
    assert!(!folder.path().join("_lakemark").exists(), "a look makes no store");
    let glob = format!("{}/*.parquet", folder.path().display());
    let globbed = Table::open_alone(&glob, TableOptions::default()).await.unwrap();
    let report = globbed.doctor().await.unwrap();
    assert_eq!(names(&report), ["no_index", "no_store"]);
    assert!(report.is_healthy());
}

#[tokio::test]
async fn files_that_came_later_are_counted_until_a_build_covers_them() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let late = folder.path().join("late.parquet");
    write(&late, &batch(500, 250));
    set_modified(&late, SystemTime::now() - 3 * HOUR);
    let said = only(&table.doctor().await.unwrap(), ProblemName::UncoveredFiles);
    assert!(said.starts_with("1 of 3 files is without an index, the oldest of them for 3 h"), "{said}");
    assert!(said.contains("lakemark index build"), "{said}");
    table.build(BuildOptions::default()).await.unwrap();
    assert!(table.doctor().await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn lost_and_damaged_index_files_are_told_apart() {
    for (name, damage) in [
        (ProblemName::LostIndexFiles, None),
        (ProblemName::LostIndexFiles, Some(100)),
        (ProblemName::DamagedIndexFiles, Some(0)),
    ] {
        let folder = folder(2);
        let table = open(folder.path()).await;
        create_indexes(&table).await;
        let [segment]: [PathBuf; 1] = segments(folder.path()).try_into().unwrap();
        let bytes = fs::read(&segment).unwrap();
        match damage {
            None => fs::remove_file(&segment).unwrap(),
            // The trailer, which is read first, is of no use.
            Some(0) => fs::write(&segment, vec![0; bytes.len()]).unwrap(),
            Some(cut) => fs::write(&segment, &bytes[..cut]).unwrap(),
        }
        let said = only(&table.doctor().await.unwrap(), name);
        assert!(said.starts_with("1 file of the indexes is "), "{said}");
        assert!(said.contains(segment.file_name().unwrap().to_str().unwrap()), "{said}");
        assert_eq!(said.contains("--verify"), name == ProblemName::DamagedIndexFiles, "{said}");
    }
}

#[tokio::test]
async fn what_the_remedies_say_mends_the_table() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let [segment]: [PathBuf; 1] = segments(folder.path()).try_into().unwrap();
    fs::write(&segment, vec![0; usize::try_from(fs::metadata(&segment).unwrap().len()).unwrap()]).unwrap();
    assert!(!table.doctor().await.unwrap().is_healthy());
    table.build(BuildOptions { verify: 1.0, ..BuildOptions::default() }).await.unwrap();
    assert!(table.doctor().await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_is_told_apart_from_the_table_and_the_rest_is_looked_at() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    for entry in fs::read_dir(folder.path().join("_lakemark/manifest")).unwrap() {
        fs::write(entry.unwrap().path(), b"no manifest").unwrap();
    }
    let report = open(folder.path()).await.doctor().await.unwrap();
    assert_eq!(names(&report).first(), Some(&"unreadable_manifest"), "{report:?}");
    assert!(!report.is_healthy());
    assert_eq!(report.checked.last().map(String::as_str), Some("clock"));
}

#[tokio::test]
async fn a_data_file_that_is_no_parquet_is_named() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    fs::write(folder.path().join("broken.parquet"), b"no Parquet").unwrap();
    let report = table.doctor().await.unwrap();
    let found = report.problems.iter().find(|found| found.name == ProblemName::UnreadableFiles).unwrap();
    assert!(found.problem.starts_with("1 file cannot be read, such as broken.parquet"), "{}", found.problem);
    assert!(!names(&report).contains(&"uncovered_files"), "{report:?}");
}

#[tokio::test]
async fn files_of_the_future_and_leftovers_of_the_past_are_found() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let left = folder.path().join("_lakemark/indexes/.tmp-00000000-0000-4000-8000-000000000002");
    fs::write(&left, b"left").unwrap();
    assert!(table.doctor().await.unwrap().problems.is_empty(), "somebody may be writing it");
    set_modified(&left, SystemTime::now() - 48 * HOUR);
    let said = only(&table.doctor().await.unwrap(), ProblemName::Leftovers);
    assert!(said.starts_with("1 file (4 B) is left") && said.contains("lakemark vacuum"), "{said}");
    fs::remove_file(&left).unwrap();
    set_modified(&folder.path().join("f0000.parquet"), SystemTime::now() + 2 * HOUR);
    let report = table.doctor().await.unwrap();
    assert!(names(&report).contains(&"files_of_the_future"), "{report:?}");
}

#[tokio::test]
async fn an_index_whose_column_is_gone_is_to_be_dropped() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    table.create_index(spec("s"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let without = batch(0, 250).project(&[0]).unwrap();
    write(&folder.path().join("f0000.parquet"), &without);
    let said = only(&open(folder.path()).await.doctor().await.unwrap(), ProblemName::UnusableIndex);
    assert!(said.contains("lakemark index drop"), "{said}");
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_named_and_its_clock_is_not_asked() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let indexes = folder.path().join("_lakemark/indexes");
    fs::set_permissions(&indexes, Permissions::from_mode(0o555)).unwrap();
    // A user who may do everything may write it all the same.
    if fs::write(indexes.join("probe"), []).is_ok() {
        fs::remove_file(indexes.join("probe")).unwrap();
    } else {
        let report = table.doctor().await.unwrap();
        let said = only(&report, ProblemName::NotWritable);
        assert!(said.contains("indexes") && !report.checked.contains(&"clock".to_owned()), "{said}");
    }
    fs::set_permissions(&indexes, Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_table_at_a_version_is_refused() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let number = table.snapshot().await.unwrap().manifest_number().unwrap();
    let error = table.at_version(number).doctor().await.unwrap_err();
    assert_eq!(error.kind(), lakemark_table::ErrorKind::InvalidInput);
}
