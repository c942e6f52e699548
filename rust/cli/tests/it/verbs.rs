//! Every verb, done right.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use serde_json::Value;

use crate::table::{Flights, flights_of, ok, run, with_path, write};

fn count(flights: &Flights, predicate: &str) -> usize {
    let path = flights.path();
    let said = ok(with_path(&["count"], &path, &[predicate]));
    assert_eq!(said.trim_end().len() + 1, said.len(), "the number stands alone: {said:?}");
    said.trim_end().parse().unwrap()
}

fn json(said: &str) -> Value {
    serde_json::from_str(said).unwrap()
}

#[test]
fn an_index_is_created_listed_used_verified_and_dropped() {
    let flights = Flights::new(3, 2500);
    let path = flights.path();
    let wanted = flights_of("UA", 7500);
    assert_eq!(count(&flights, "carrier = 'UA'"), wanted);

    let said =
        ok(with_path(&["index", "create"], &path, &["--on", "carrier", "--name", "by_carrier", "--using", "bitmap"]));
    assert!(said.contains("created index by_carrier"), "{said}");
    assert!(said.contains("rows 7,500, files 3, "), "{said}");
    assert_eq!(count(&flights, "carrier = 'UA'"), wanted);

    let list = json(&ok(with_path(&["index", "list"], &path, &["--format", "json"])));
    assert_eq!(list[0]["name"], "by_carrier");
    assert_eq!(list[0]["coverage"], 1.0);
    assert_eq!(list[0]["rows"], 7500);
    assert!(
        ok(with_path(&["index", "list"], &path, &["--format", "csv"]))
            .contains("by_carrier,bitmap,equality,user,carrier")
    );

    let said = ok(with_path(&["index", "verify"], &path, &[]));
    assert!(said.contains("by_carrier: 3 files ok, 0 damaged, 0 stale"), "{said}");

    assert_eq!(ok(with_path(&["index", "drop"], &path, &["by_carrier"])), "dropped index by_carrier\n");
    assert_eq!(json(&ok(with_path(&["index", "list"], &path, &["--format", "json"]))), Value::Array(Vec::new()));
    assert_eq!(count(&flights, "carrier = 'UA'"), wanted);
}

#[test]
fn explain_tells_which_index_answered() {
    let flights = Flights::new(2, 1500);
    let path = flights.path();
    ok(with_path(&["index", "create"], &path, &["--on", "carrier", "--name", "c", "--with", "encoding=binary"]));
    let report = json(&ok(with_path(&["explain"], &path, &["carrier = 'DL' AND number < 7", "--format", "json"])));
    assert_eq!(report["leaves"][0]["index"], "c");
    assert_eq!(report["leaves"][0]["encoding"], "binary");
    assert_eq!(report["leaves"][0]["rows"], flights_of("DL", 3000));
    assert_eq!(report["leaves"][1]["reason"], "no_index");
    assert_eq!(report["files_total"], 2);
    let said = ok(with_path(&["explain"], &path, &["carrier = 'DL'"]));
    assert!(said.starts_with("carrier = 'DL'\n"), "{said}");
    assert!(said.contains("\n  carrier = 'DL': index c (binary), "), "{said}");
}

#[test]
fn a_later_build_covers_new_files() {
    let flights = Flights::new(2, 1000);
    let path = flights.path();
    let said = ok(with_path(&["index", "create"], &path, &["--on", "number", "--name", "n", "--no-build"]));
    assert!(said.contains("not built: run `lakemark index build"), "{said}");
    let built = json(&ok(with_path(&["index", "build"], &path, &["--format", "json", "--quiet"])));
    assert_eq!((&built["files"], &built["rows"]), (&Value::from(2), &Value::from(2000)));

    flights.write(2, 1000);
    let list = json(&ok(with_path(&["index", "list"], &path, &["--format", "json"])));
    assert_eq!((&list[0]["files_covered"], &list[0]["files_total"]), (&Value::from(2), &Value::from(3)));
    assert_eq!(count(&flights, "number >= 2990"), 10);
    let built =
        json(&ok(with_path(&["index", "build"], &path, &["--format", "json", "--memory", "64M", "--threads", "1"])));
    assert_eq!(built["files"], 1);
    assert_eq!(count(&flights, "number >= 2990"), 10);
    assert!(ok(with_path(&["index", "build"], &path, &[])).contains("nothing to build"));
}

#[test]
fn if_exists_and_if_not_exists_do_nothing_twice() {
    let flights = Flights::new(1, 100);
    let path = flights.path();
    ok(with_path(&["index", "create"], &path, &["--on", "number", "--name", "n"]));
    let said = ok(with_path(&["index", "create"], &path, &["--on", "number", "--name", "n", "--if-not-exists"]));
    assert!(said.contains("nothing was done"), "{said}");
    ok(with_path(&["index", "drop"], &path, &["n"]));
    let said = ok(with_path(&["index", "drop"], &path, &["n", "--if-exists"]));
    assert!(said.contains("nothing was done"), "{said}");
}

#[test]
fn a_store_may_lie_elsewhere() {
    let flights = Flights::new(1, 500);
    let (path, store) = (flights.path(), flights.beside("store"));
    let store = store.to_str().unwrap();
    ok(with_path(&["index", "create"], &path, &["--on", "carrier", "--store", store]));
    assert!(!path.join("_lakemark").exists());
    assert!(flights.beside("store").join("manifest").is_dir());
    let report = json(&ok(with_path(&["explain"], &path, &["carrier = 'AA'", "--store", store, "--format", "json"])));
    assert_eq!(report["coverage"], 1.0);
}

#[test]
fn info_names_columns_files_and_indexes() {
    let flights = Flights::new(2, 300);
    let path = flights.path();
    ok(with_path(&["index", "create"], &path, &["--on", "carrier", "--name", "c"]));
    let info = json(&ok(with_path(&["info"], &path, &["--format", "json"])));
    assert_eq!((&info["format"], &info["files"]), (&Value::from("parquet"), &Value::from(2)));
    assert_eq!(info["columns"][1]["name"], "carrier");
    assert_eq!(info["indexes"][0]["name"], "c");
    let said = ok(with_path(&["info"], &path, &[]));
    assert!(said.contains("carrier:") && said.contains("index c:"), "{said}");
}

#[test]
fn a_damaged_mark_is_found_by_verify_and_changes_no_answer() {
    let flights = Flights::new(2, 2000);
    let path = flights.path();
    ok(with_path(&["index", "create"], &path, &["--on", "carrier", "--name", "c"]));
    for entry in std::fs::read_dir(path.join("_lakemark/indexes")).unwrap() {
        let segment = entry.unwrap().path();
        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[100] ^= 0x10;
        std::fs::write(&segment, bytes).unwrap();
    }
    assert_eq!(count(&flights, "carrier = 'WN'"), flights_of("WN", 4000));
    let ran = run(with_path(&["index", "verify"], &path, &["--format", "json"]));
    assert_eq!(ran.code, Some(1));
    assert_eq!(json(&ran.stdout)["indexes"][0]["name"], "c");
    assert!(!json(&ran.stdout)["indexes"][0]["damaged"].as_array().unwrap().is_empty());
    assert!(ran.stderr.contains("error: damaged: c."), "{}", ran.stderr);
    assert!(ran.stderr.contains("--verify` builds the damaged segments again"), "{}", ran.stderr);
    // All bytes are there: only who compares them sees it.
    assert!(ok(with_path(&["index", "build"], &path, &["--quiet"])).contains("nothing to build"));
    let said = ok(with_path(&["index", "build"], &path, &["--verify", "--quiet"]));
    assert!(said.contains("built c: rows 4,000") && said.contains("1 segments were missing or damaged"), "{said}");
    ok(with_path(&["index", "verify"], &path, &[]));
    // What is gone counts as not covered, and needs no comparison.
    std::fs::remove_dir_all(path.join("_lakemark/indexes")).unwrap();
    let coverage =
        || json(&ok(with_path(&["index", "list"], &path, &["--format", "json"])))[0]["files_covered"].clone();
    assert_eq!(coverage(), 0);
    let report = json(&ok(with_path(&["index", "build"], &path, &["--quiet", "--format", "json"])));
    assert_eq!((&report["repaired"], &report["segments"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(coverage(), 2);
    assert_eq!(count(&flights, "carrier = 'WN'"), flights_of("WN", 4000));
}

#[test]
fn links_are_walked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edges");
    std::fs::create_dir(&path).unwrap();
    // A circle of ten nodes.
    let of = |step: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..10).map(|node| (node + step) % 10))) };
    write(&path.join("a.parquet"), &RecordBatch::try_from_iter([("src", of(0)), ("dst", of(1))]).unwrap());
    let walk = |more: &[&str]| {
        ok(with_path(&["links"], &path, &[["--from", "7", "--format", "csv"].as_slice(), more].concat()))
    };
    let on = ["--on", "src,dst"];
    assert_eq!(walk(&on), "from,node\n7,8\n");
    let said = ok(with_path(&["index", "create"], &path, &["--on", "src,dst", "--using", "links"]));
    assert!(said.contains("created index src_dst_links, src_dst_links_back"), "{said}");
    assert_eq!(walk(&["--in"]), "from,node\n7,6\n");
    assert_eq!(walk(&["--reach", "--max-depth", "2"]), "node,depth\n8,1\n9,2\n");
    assert_eq!(walk(&["--to", "9"]), "step,node\n0,7\n1,8\n2,9\n");
    let refused = run(with_path(&["links"], &path, &["--from", "7", "--via", "x"]));
    assert!(refused.code == Some(1) && refused.stderr.contains("no predicate"), "{}", refused.stderr);
    let refused = run(with_path(&["links"], &path, &["--from", "seven"]));
    assert!(refused.code == Some(1) && refused.stderr.contains("a node of the links"), "{}", refused.stderr);
}
