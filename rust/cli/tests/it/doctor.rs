//! `lakemark doctor`: what it prints, and the exit code that monitors go by.

use serde_json::Value;

use crate::table::{Flights, fails, ok, run, with_path};

fn indexed() -> Flights {
    let flights = Flights::new(2, 500);
    ok(with_path(&["index", "create"], &flights.path(), &["--on", "carrier", "--name", "c", "--quiet"]));
    flights
}

#[test]
fn a_sound_table_has_nothing_to_do() {
    let flights = indexed();
    let said = ok(with_path(&["doctor"], &flights.path(), &[]));
    assert!(said.starts_with("nothing to do: checked data files, coverage, index files, "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_file_without_an_index_asks_for_somebody_until_it_is_built() {
    let flights = indexed();
    flights.write(2, 500);
    let ran = run(with_path(&["doctor"], &flights.path(), &[]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(4), ""));
    assert!(ran.stdout.starts_with("1 problem: "), "{}", ran.stdout);
    assert!(ran.stdout.contains("\nwarning: uncovered_files: 1 of 3 files "), "{}", ran.stdout);
    assert!(ran.stdout.contains("lakemark index build"), "{}", ran.stdout);
    ok(with_path(&["index", "build"], &flights.path(), &["--quiet"]));
    ok(with_path(&["doctor"], &flights.path(), &[]));
}

#[test]
fn programs_get_names_severities_and_remedies() {
    let flights = indexed();
    let folder = flights.path().join("_lakemark/indexes");
    for entry in std::fs::read_dir(&folder).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let ran = run(with_path(&["doctor"], &flights.path(), &["--format", "json"]));
    assert_eq!(ran.code, Some(4));
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["release"], env!("CARGO_PKG_VERSION"));
    let problem = &report["problems"][0];
    assert_eq!((&problem["name"], &problem["severity"]), (&Value::from("lost_index_files"), &Value::from("warning")));
    assert!(problem["remedy"].as_str().unwrap().contains("lakemark index build"));
    assert_eq!(report["problems"].as_array().unwrap().len(), 1);
}

#[test]
fn notes_ask_for_nobody() {
    let flights = Flights::new(1, 100);
    let said = ok(with_path(&["doctor"], &flights.path(), &[]));
    assert!(said.starts_with("nothing to do: ") && said.contains("\nnote: no_index: "), "{said}");
    assert!(!flights.path().join("_lakemark").exists());
}

#[test]
fn a_table_that_is_not_there_cannot_be_looked_at() {
    let flights = Flights::new(1, 100);
    let said = fails(1, with_path(&["doctor"], &flights.beside("none"), &[]));
    assert!(said.contains("does not exist"), "{said}");
}
