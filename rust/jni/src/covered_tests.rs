use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type};
use lakemark_table::{BuildOptions, IndexSpec};
use serde_json::{Value, json};

use super::*;
use crate::buffered::tests::{ALL_ROWS, Fixture, Planned, bodies, plan, planned, run, test, whole};
use crate::plan::is_exact;

const IN_MEMORY: &str = "\"memory\"";
const COLUMNS: [&str; 2] = ["k", "a"];

/// The table of buffered rows, with an index on its key that includes `a`.
async fn covered() -> Fixture {
    let fixture = Fixture::new().await;
    let options = [("include".to_owned(), "a".to_owned())].into();
    let spec =
        IndexSpec { name: Some("by_k".to_owned()), columns: vec!["k".to_owned()], options, ..IndexSpec::default() };
    fixture.table.create_index(spec, false).await.expect("an index");
    fixture.table.build(BuildOptions::default()).await.expect("a build");
    fixture
}

fn of_keys(keys: &[i64]) -> Value {
    let values: Vec<Value> = keys.iter().map(|key| json!({"long": key})).collect();
    json!({"op": "in", "column": "k", "values": values})
}

/// The rows of a plan of [`COLUMNS`], as tasks read them.
async fn rows(plan: &Planned) -> Vec<(i64, i32)> {
    let mut rows = Vec::new();
    for batch in run(plan).await {
        let (k, a) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Int32Type>());
        rows.extend(k.values().iter().copied().zip(a.values().iter().copied()));
    }
    rows.sort_unstable();
    rows
}

fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let partitions = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a partition").path());
    partitions.map(|partition| partition.join("f.parquet")).filter(|path| path.exists()).collect()
}

#[test]
fn rows_of_few_keys_open_no_file() {
    test(async {
        let fixture = covered().await;
        let pinned = fixture.pin().await;
        let filter = of_keys(&[1003, 1017, 2050, 7]).to_string();
        let found = plan(&pinned, &filter, &COLUMNS).await;
        // Nothing is left to read them from.
        let files = parquet_files(Path::new(fixture.table.location()));
        assert_eq!(files.len(), 2);
        files.iter().for_each(|file| fs::remove_file(file).expect("a file"));
        assert_eq!(rows(&found).await, [(1003, 3), (1017, 7), (2050, 0)]);
        assert_eq!(bodies(&found), [IN_MEMORY]);
        assert_eq!((&found.json["rowsIndexOnly"], &found.json["coveringIndex"]), (&json!(3), &json!("by_k")));
        let report = &found.json["report"];
        assert_eq!((&report["row_groups_pruned"], &report["files_pruned"]), (&report["row_groups_total"], &json!(2)));
        assert_eq!(report["rows_exact"], 3);
    });
}

#[test]
fn a_column_that_the_index_lacks_is_read_with_all_others() {
    test(async {
        let fixture = covered().await;
        let pinned = fixture.pin().await;
        let filter = of_keys(&[1003, 2050]).to_string();
        let off = Pinned { use_index: false, probed: Arc::default(), ..pinned.clone() };
        for (pinned, columns) in [(&pinned, vec!["k", "s"]), (&pinned, vec!["k", "p"]), (&off, COLUMNS.to_vec())] {
            let found = plan(pinned, &filter, &columns).await;
            assert_eq!((&found.json["rowsIndexOnly"], &found.json["coveringIndex"]), (&json!(0), &Value::Null));
            assert!(bodies(&found).iter().all(|body| body.contains("f.parquet")), "{columns:?}");
        }
    });
}

/// Spark tests the rows that it gets.
#[test]
fn rows_that_are_to_be_rechecked_are_given_too() {
    test(async {
        let fixture = covered().await;
        let pinned = fixture.pin().await;
        let unknown = json!({"op": "unknown", "text": "f(a)"});
        let filter = json!({"op": "and", "children": [of_keys(&[1003, 2050]), unknown]}).to_string();
        assert!(!is_exact(&pinned, &filter).await.expect("an answer"));
        let found = plan(&pinned, &filter, &COLUMNS).await;
        assert_eq!((bodies(&found), rows(&found).await), (vec![IN_MEMORY], vec![(1003, 3), (2050, 0)]));
        assert_eq!(found.json["report"]["rows_exact"], 0);
    });
}

#[test]
fn buffered_changes_take_the_place_of_rows_that_the_index_has() {
    test(async {
        let fixture = covered().await;
        fixture.change().await;
        let filter = of_keys(&[1, 1000, 1001, 2005, 2015]).to_string();
        for _ in 0..2 {
            let found = plan(&fixture.pin().await, &filter, &COLUMNS).await;
            assert_eq!(rows(&found).await, [(1, 5), (1000, 5), (1001, 1), (2005, 5)]);
            assert_eq!((&found.json["rowsIndexOnly"], &found.json["bufferedRows"]), (&json!(1), &json!(3)));
            fixture.table.flush().await.expect("a run");
        }
    });
}

#[test]
fn keys_of_a_join_open_no_file() {
    test(async {
        let fixture = covered().await;
        let pinned = fixture.pin().await;
        let unknown = r#"{"op":"unknown","text":"f(a)"}"#;
        // Most of the rows of a row group are given one by one as well.
        let most: Vec<i64> = (1000..1080).collect();
        for keys in [vec![1003, 2050, 7], most] {
            let expected: Vec<(i64, i32)> =
                keys.iter().filter(|key| **key >= 1000).map(|key| (*key, (*key % 10) as i32)).collect();
            for filter in [ALL_ROWS, unknown] {
                let request = json!({"columns": whole(&COLUMNS), "runtime": of_keys(&keys)});
                let found = planned(&pinned, filter, request).await;
                assert_eq!((bodies(&found), rows(&found).await), (vec![IN_MEMORY], expected.clone()), "{filter}");
                assert_eq!(found.json["rowsIndexOnly"], expected.len());
                let report = &found.json["report"];
                assert_eq!(report["row_groups_pruned"], report["row_groups_total"]);
            }
        }
    });
}
