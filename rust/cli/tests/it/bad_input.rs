//! Bad input: a clear error, the right exit code, and nothing lost.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};

use crate::table::{Flights, fails, flights_of, ok, run, with_path, write};

/// The last committed state still answers.
fn still_answers(path: &Path, rows: i64) {
    let said = ok(with_path(&["count"], path, &["carrier = 'UA'"]));
    assert_eq!(said.trim(), flights_of("UA", rows).to_string());
}

fn indexed() -> Flights {
    let flights = Flights::new(2, 1000);
    ok(with_path(&["index", "create"], &flights.path(), &["--on", "carrier", "--name", "c"]));
    flights
}

#[test]
fn wrong_usage_exits_with_2_and_shows_the_usage() {
    for arguments in [
        vec!["index", "create", "t"],
        vec!["index", "destroy", "t"],
        vec!["count"],
        vec!["count", "t", "true", "--no-such-option"],
        vec!["index", "create", "t", "--on", "c", "--with", "novalue"],
        vec!["index", "build", "t", "--memory", "much"],
        vec!["sql", "--format", "xml"],
        vec!["sql", "-c", "SELECT 1", "-f", "x.sql"],
    ] {
        let stderr = fails(2, &arguments);
        assert!(stderr.contains("--help"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn an_unknown_index_option_names_the_known_ones() {
    let flights = indexed();
    let stderr =
        fails(1, with_path(&["index", "create"], &flights.path(), &["--on", "number", "--with", "no_such_option=7"]));
    assert!(stderr.contains("no_such_option"), "{stderr}");
    let stderr = fails(1, with_path(&["index", "create"], &flights.path(), &["--on", "number", "--using", "magic"]));
    assert!(stderr.contains("magic"), "{stderr}");
    still_answers(&flights.path(), 2000);
}

#[test]
fn a_precision_that_there_is_not_is_an_error_that_says_what_there_is() {
    let flights = indexed();
    for (column, option, expected) in [
        ("carrier", "precision=2", "no precision on strings"),
        ("number", "precision=0", "1 to 15 significant digits"),
        ("number", "precision=20", "1 to 15 significant digits"),
        ("number", "precision=fortnight", "year, month, day, hour, minute or second"),
        ("number", "precision=hour", "numbers have one of 1 to 15 digits"),
        ("number", "encoding=binned", "precision=2"),
    ] {
        let stderr = fails(1, with_path(&["index", "create"], &flights.path(), &["--on", column, "--with", option]));
        assert!(stderr.contains(expected), "{option}: {stderr}");
    }
    let said = ok(with_path(&["index", "create"], &flights.path(), &["--on", "number", "--with", "precision=1"]));
    assert!(said.contains("number"), "{said}");
    still_answers(&flights.path(), 2000);
}

#[test]
fn a_type_that_cannot_be_indexed_is_an_error_at_create() {
    let flights = indexed();
    // Elements of lists have bitmaps alone.
    let stderr = fails(1, with_path(&["index", "create"], &flights.path(), &["--on", "stops", "--using", "key"]));
    assert!(stderr.contains("stops has lists") && stderr.contains("and key was asked for"), "{stderr}");
    still_answers(&flights.path(), 2000);
}

#[test]
fn a_missing_column_is_named() {
    let flights = indexed();
    let stderr = fails(1, with_path(&["index", "create"], &flights.path(), &["--on", "carier"]));
    assert!(stderr.contains("carier"), "{stderr}");
    let stderr = fails(1, with_path(&["count"], &flights.path(), &["carier = 'UA'"]));
    assert!(stderr.contains("carier"), "{stderr}");
    still_answers(&flights.path(), 2000);
}

#[test]
fn a_name_is_taken_once() {
    let flights = indexed();
    let stderr = fails(1, with_path(&["index", "create"], &flights.path(), &["--on", "number", "--name", "c"]));
    assert!(stderr.contains('c') && stderr.contains("exists"), "{stderr}");
    let stderr = fails(1, with_path(&["index", "drop"], &flights.path(), &["nosuch"]));
    assert!(stderr.contains("nosuch"), "{stderr}");
    still_answers(&flights.path(), 2000);
}

#[test]
fn a_store_that_cannot_be_written_is_an_error() {
    let flights = indexed();
    // Below a file there can be no folder, not even for root, whom permissions do not stop.
    let file = flights.beside("file");
    fs::write(&file, "x").unwrap();
    let store = file.join("store");
    let stderr = fails(
        1,
        with_path(&["index", "create"], &flights.path(), &["--on", "number", "--store", store.to_str().unwrap()]),
    );
    assert!(stderr.contains("file"), "{stderr}");
    still_answers(&flights.path(), 2000);
}

#[test]
fn a_folder_without_parquet_is_an_error() {
    let flights = Flights::new(0, 0);
    let stderr = fails(1, with_path(&["count"], &flights.path(), &["true"]));
    assert!(stderr.to_lowercase().contains("parquet"), "{stderr}");
    let missing = flights.beside("nowhere");
    assert!(fails(1, with_path(&["info"], &missing, &[])).contains("nowhere"));
}

#[test]
fn a_data_file_cut_short_is_named_and_spoils_nothing_else() {
    let flights = indexed();
    let file = flights.file(2);
    flights.write(2, 1000);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let ran = run(with_path(&["index", "build"], &flights.path(), &[]));
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stdout.contains("failed: part-2.parquet: "), "{}", ran.stdout);
    let stderr = fails(1, with_path(&["count"], &flights.path(), &["carrier = 'UA'"]));
    assert!(stderr.contains("part-2.parquet"), "{stderr}");
    fs::remove_file(&file).unwrap();
    still_answers(&flights.path(), 2000);
}

#[test]
fn types_that_disagree_name_file_and_column() {
    let flights = indexed();
    let numbers: [(&str, ArrayRef); 1] = [("number", Arc::new(StringArray::from(vec!["one"])))];
    write(&flights.file(7), &RecordBatch::try_from_iter(numbers).unwrap());
    let stderr = fails(1, with_path(&["index", "create"], &flights.path(), &["--on", "number"]));
    assert!(stderr.contains("number") && stderr.contains("part-7.parquet"), "{stderr}");
    fs::remove_file(flights.file(7)).unwrap();
    still_answers(&flights.path(), 2000);
}

#[test]
fn a_predicate_that_is_no_sql_is_an_error() {
    let flights = indexed();
    let ran = run(with_path(&["count"], &flights.path(), &["carrier = = 'UA'"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
}

#[test]
fn a_file_that_cannot_be_indexed_is_named_and_the_exit_code_says_that_the_others_are() {
    let flights = Flights::new(3, 2000);
    let path = flights.path();
    ok(with_path(&["index", "create"], &path, &["--on", "carrier", "--name", "c", "--no-build"]));
    let bytes = std::fs::read(flights.file(1)).unwrap();
    std::fs::write(flights.file(1), &bytes[..bytes.len() / 2]).unwrap();
    let build = |options: &[&str]| run(with_path(&["index", "build"], &path, options));
    let ran = build(&["--max-failures", "0"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("1 files cannot be indexed, and no more than 0 may fail"), "{}", ran.stderr);
    let ran = build(&[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("built c: rows 4,000, files 2, "), "{}", ran.stdout);
    assert!(ran.stdout.contains("failed: part-1.parquet: "), "{}", ran.stdout);
    assert!(ran.stderr.contains("error: 1 file could not be indexed, and queries scan it."), "{}", ran.stderr);
    let ran = build(&["--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &report["failed"][0]["path"]), (Some(3), &"part-1.parquet".into()));
    std::fs::write(flights.file(1), bytes).unwrap();
    assert_eq!(build(&[]).code, Some(0));
}

#[test]
fn shares_and_times_of_a_build_are_checked() {
    let flights = Flights::new(1, 1000);
    let path = flights.path();
    ok(with_path(&["index", "create"], &path, &["--on", "carrier"]));
    for wrong in [["--verify", "2"], ["--verify", "few"], ["--commit-every", "30"], ["--max-failures", "-1"]] {
        fails(2, with_path(&["index", "build"], &path, &wrong));
    }
    for (share, compared) in [("--verify", 1), ("--verify=1%", 1), ("--verify=0.5", 1), ("--quiet", 0)] {
        let report = ok(with_path(&["index", "build"], &path, &["--format", "json", share]));
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["verified"], compared, "{share}");
    }
}
