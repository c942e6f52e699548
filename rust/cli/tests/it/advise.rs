//! `index advise`, from queries to indexes.

use std::fs;
use std::path::PathBuf;

use crate::table::{fails, ok, with_path};

/// A table, which lasts as long as its folder.
struct Sales {
    folder: tempfile::TempDir,
    path: PathBuf,
}

/// Writes a file in the order of its rows. Several partitions would write as they come.
fn write(copy: &str) {
    ok(["sql", "-c", "SET datafusion.execution.target_partitions = 1", "-c", copy]);
}

/// 300,000 rows: `shop` has 1,000 values, `customer` some 60,000, both in no order; `id` ascends; `kind` has three.
fn sales() -> Sales {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sales");
    let copy = format!(
        "COPY (SELECT value AS id, value * value % 99991 % 1000 AS shop, value * value % 120011 AS customer, value % 3 AS kind, \
         value * 0.25 AS price FROM generate_series(1, 300000)) TO '{}/part-0.parquet' STORED AS PARQUET",
        path.display()
    );
    write(&copy);
    Sales { folder, path }
}

const QUERIES: &str = "\
SELECT count(*) FROM sales WHERE shop = 7;
SELECT price FROM sales
WHERE customer = 5 AND shop < 900;
SELEC nonsense;
SELECT * FROM other WHERE no_such_column = 1;
SELECT shop, count(*) FROM sales WHERE customer IN (1, 2, 3) GROUP BY shop;
";

#[test]
fn queries_say_which_indexes_to_build_and_apply_builds_them() {
    let Sales { folder, path } = sales();
    let file = folder.path().join("queries.sql");
    fs::write(&file, QUERIES).unwrap();
    let file = file.to_str().unwrap();
    ok(with_path(&["index", "create"], &path, &["--on", "kind", "--quiet"]));
    let said = ok(with_path(&["index", "advise"], &path, &["--queries", file, "--json"]));
    let advice: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((advice["rows"].as_u64(), advice["sampled_rows"].as_u64()), (Some(300_000), Some(300_000)));
    assert_eq!(advice["queries"], 3);
    let columns: Vec<&str> =
        advice["indexes"].as_array().unwrap().iter().map(|m| m["column"].as_str().unwrap()).collect();
    assert_eq!(columns, ["customer", "shop"], "{said}");
    assert_eq!(advice["indexes"][1]["values"], 1000);
    assert_eq!(advice["unused"], serde_json::json!(["kind_bitmap"]));
    let lines: Vec<_> = advice["problems"].as_array().unwrap().iter().map(|p| p["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [4, 5], "{said}");
    assert!(advice["problems"][1]["problem"].as_str().unwrap().contains("no_such_column"), "{said}");
    for gain in advice["gains"].as_array().unwrap() {
        let (now, after) = (gain["bytes_now"].as_f64().unwrap(), gain["bytes_after"].as_f64().unwrap());
        assert!(after < 0.5 * now, "{gain}");
    }
    let said = ok(with_path(&["index", "advise"], &path, &["--queries", file]));
    assert!(said.contains("no query can use: kind_bitmap"), "{said}");
    assert!(said.trim_end().lines().last().unwrap().contains("--apply` builds them all"), "{said}");
    let said = ok(with_path(&["index", "advise"], &path, &["--queries", file, "--apply", "--quiet"]));
    assert!(
        said.contains("created customer_bitmap, shop_bitmap\nbuilt customer_bitmap, shop_bitmap: rows 300,000"),
        "{said}"
    );
    assert_eq!(ok(with_path(&["count"], &path, &["shop = 7"])), "282\n");
    let listed: serde_json::Value =
        serde_json::from_str(&ok(with_path(&["index", "list"], &path, &["--format", "json"]))).unwrap();
    for index in listed.as_array().unwrap() {
        let ratio = index["predicted_bytes"].as_f64().unwrap() / index["bytes"].as_f64().unwrap();
        assert!((0.85..=1.15).contains(&ratio), "{index}");
    }
    // With these indexes there is nothing more to build.
    let said = ok(with_path(&["index", "advise"], &path, &["--queries", file]));
    assert!(said.contains("no further index would save enough"), "{said}");
    assert!(said.contains("next: nothing to do"), "{said}");
}

/// Single keys are found by the kind that is made for them, with less than half of the bytes of a bitmap.
#[test]
fn a_column_of_unique_values_is_proposed_and_built_as_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sales");
    let copy = format!(
        "COPY (SELECT value * 48271 % 300007 AS token, value * 0.25 AS price FROM generate_series(1, 300000)) TO '{}/part-0.parquet' \
         STORED AS PARQUET",
        path.display()
    );
    write(&copy);
    let file = folder.path().join("queries.sql");
    fs::write(&file, "SELECT price FROM sales WHERE token = 77;").unwrap();
    let file = file.to_str().unwrap();
    let said = ok(with_path(&["index", "advise"], &path, &["--queries", file, "--json"]));
    let advice: serde_json::Value = serde_json::from_str(&said).unwrap();
    let proposal = &advice["indexes"][0];
    assert_eq!(
        (&proposal["column"], &proposal["kind"], &proposal["encoding"]),
        (&"token".into(), &"key".into(), &"packed".into())
    );
    assert!(proposal["reason"].as_str().unwrap().contains("nearly every row has its own"), "{said}");
    // What the lookup reads rides along, so that it reads a page of the index and nothing else.
    assert_eq!(proposal["include"], serde_json::json!(["price"]), "{said}");
    // Two reads of the index, each of which counts as 16 KiB beside its bytes.
    assert!(advice["gains"][0]["bytes_after"].as_u64().unwrap() < 50_000, "{said}");
    let said = ok(with_path(&["index", "advise"], &path, &["--queries", file]));
    assert!(said.contains("token INCLUDE (price)") && said.contains("--on token --include price` the first"), "{said}");
    let said = ok(with_path(&["index", "advise"], &path, &["--queries", file, "--apply", "--quiet"]));
    assert!(said.contains("created token_key\nbuilt token_key: rows 300,000"), "{said}");
    let listed = ok(with_path(&["index", "list"], &path, &["--format", "json"]));
    let index = &serde_json::from_str::<serde_json::Value>(&listed).unwrap()[0];
    assert_eq!((&index["kind"], &index["encoding"]), (&"key".into(), &"packed".into()), "{listed}");
    let ratio = proposal["predicted_bytes"].as_f64().unwrap() / index["bytes"].as_f64().unwrap();
    assert!((0.85..=1.15).contains(&ratio), "{ratio}");
    // It counts as an index, which nothing needs beside it, and what rides along counts for the query.
    let said = ok(with_path(&["index", "advise"], &path, &["--queries", file, "--json"]));
    let advice: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(advice["indexes"], serde_json::json!([]), "{said}");
    assert!(advice["gains"][0]["bytes_now"].as_u64().unwrap() < 50_000, "{said}");
}

#[test]
fn without_queries_columns_are_ranked_and_nothing_is_changed() {
    let Sales { folder: _folder, path } = sales();
    let said = ok(with_path(&["index", "advise"], &path, &[]));
    assert!(said.starts_with("standard predicates over every column, 300000 rows of which 300000 were read"), "{said}");
    let at = |column: &str| said.find(&format!("\n  {column} ")).unwrap_or_else(|| panic!("{column} in {said}"));
    // A value of 60,000 is in few pages, one of three in all.
    assert!(at("customer") < said.find("\n  kind ").unwrap_or(said.len()), "{said}");
    assert_eq!(ok(with_path(&["index", "list"], &path, &["--format", "csv"])).lines().count(), 1);
}

#[test]
fn queries_that_are_not_there_are_an_error_that_says_so() {
    let Sales { folder: _folder, path } = sales();
    let said = fails(1, with_path(&["index", "advise"], &path, &["--queries", "/no/such/file.sql"]));
    assert!(said.contains("the queries in /no/such/file.sql cannot be read"), "{said}");
}
