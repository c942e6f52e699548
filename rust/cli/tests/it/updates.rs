//! Changes from the command line: what the verbs print, what they take, how they fail.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::FileWriter;
use serde_json::Value;
use tempfile::TempDir;

use crate::table::{Ran, command, fails, ok, with_path, write};

/// Rows `id` 0 to 9, `name`, `n` (32 bits) and `day` in two files.
struct Things(TempDir);

impl Things {
    fn new() -> Self {
        let things = Self(tempfile::tempdir().unwrap());
        fs::create_dir(things.path()).unwrap();
        for file in 0..2 {
            let ids = file * 5..file * 5 + 5;
            let columns: [(&str, ArrayRef); 4] = [
                ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
                ("name", Arc::new(ids.clone().map(|id| Some(format!("thing {id}"))).collect::<StringArray>())),
                ("n", Arc::new(ids.clone().map(|id| Some(id as i32)).collect::<Int32Array>())),
                ("day", Arc::new(ids.map(|id| Some(19_723 + id as i32)).collect::<Date32Array>())),
            ];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            write(&things.path().join(format!("part-{file}.parquet")), &batch);
        }
        things
    }

    fn keyed() -> Self {
        let things = Self::new();
        ok(with_path(&["key"], &things.path(), &["--on", "id"]));
        things
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("things")
    }

    /// A file beside the table.
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn change(&self, verb: &str, rest: &[&str]) -> Value {
        let arguments = [rest, &["--format", "json"]].concat();
        let said: Value = serde_json::from_str(&ok(with_path(&[verb], &self.path(), &arguments))).unwrap();
        said[0].clone()
    }

    fn ask(&self, sql: &str) -> String {
        let create = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", self.path().display());
        let said = ok(["sql", "--format", "csv", "-c", &create, "-c", sql]);
        said.lines().skip(1).collect::<Vec<_>>().join(" ")
    }

    fn info(&self) -> Value {
        serde_json::from_str(&ok(with_path(&["info"], &self.path(), &["--format", "json"]))).unwrap()
    }
}

fn made(rows: u64, sequence: u64) -> Value {
    serde_json::json!({ "rows": rows, "sequence": sequence })
}

fn piped(input: &str, path: &Path, verb: &str) -> Ran {
    let mut child = command()
        .args(with_path(&[verb], path, &["-"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output: Output = child.wait_with_output().unwrap();
    output.into()
}

#[test]
fn a_key_is_declared_once() {
    let things = Things::new();
    let path = things.path();
    let said = ok(with_path(&["key"], &path, &["--on", "id,name", "--with", "alpha=2", "--quiet"]));
    assert_eq!(said, format!("declared the key (id, name): {} takes updates now\n", path.display()));
    let said = ok(with_path(&["key"], &path, &["--on", "id,name"]));
    assert_eq!(said, "the key is (id, name) already; nothing was done\n");
    let updates = &things.info()["updates"];
    assert_eq!((&updates["key"], &updates["writes_bound"]), (&serde_json::json!(["id", "name"]), &Value::from(1.0)));
    let stderr = fails(1, with_path(&["key"], &path, &["--on", "n"]));
    assert!(stderr.contains("the key of the table is id, name already"), "{stderr}");
}

#[test]
fn every_verb_changes_what_it_says() {
    let things = Things::keyed();
    let rows = things.file("rows.csv", "id,name,day\n10,ten,2024-05-06\n11,\"a, \"\"b\"\"\",\n");
    assert_eq!(things.change("insert", &[&rows]), made(2, 1));
    let rows = things.file("rows.ndjson", "{\"id\": 1, \"name\": \"one\"}\n{\"id\": 12, \"n\": 7}\n");
    assert_eq!(things.change("upsert", &[&rows]), made(2, 2));
    let rows = things.file("rows.json", "[{\"id\": 2, \"name\": null}, {\"id\": 77, \"name\": \"nobody\"}]");
    assert_eq!(things.change("update", &[&rows]), made(2, 3));
    let rows = things.file("rows.CSV", "id\n0\n3\n4\n");
    assert_eq!(things.change("delete", &[&rows]), made(3, 4));
    let expected = "1,one,, 2,,2,2024-01-03 5,thing 5,5,2024-01-06 10,ten,,2024-05-06 11,\"a, \"\"b\"\"\",, 12,,7,";
    for _ in 0..2 {
        assert_eq!(things.ask("SELECT * FROM t WHERE id NOT BETWEEN 6 AND 9 ORDER BY id"), expected);
        assert_eq!(ok(with_path(&["count"], &things.path(), &[])), "10\n");
        ok(with_path(&["flush"], &things.path(), &[]));
    }
}

#[test]
fn parquet_arrow_and_a_pipe_are_read() {
    let things = Things::keyed();
    let batch = |ids: &[i64]| {
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from(ids.to_vec()))),
            ("n", Arc::new(Int64Array::from_iter_values(ids.iter().map(|id| id * 2)))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let (parquet, arrow) = (things.0.path().join("new.parquet"), things.0.path().join("new.arrow"));
    write(&parquet, &batch(&[20, 21]));
    let mut writer = FileWriter::try_new(File::create(&arrow).unwrap(), &batch(&[]).schema()).unwrap();
    writer.write(&batch(&[22])).unwrap();
    writer.finish().unwrap();
    assert_eq!(things.change("insert", &[parquet.to_str().unwrap()]), made(2, 1));
    assert_eq!(things.change("insert", &[arrow.to_str().unwrap()]), made(1, 2));
    let ran = piped("id,name\n22,piped\n", &things.path(), "update");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(
        ran.stdout,
        "+------+----------+\n| rows | sequence |\n+------+----------+\n| 1    | 3        |\n+------+----------+\n"
    );
    assert_eq!(things.ask("SELECT id, name, n FROM t WHERE id >= 20 ORDER BY id"), "20,,40 21,,42 22,piped,44");
    assert_eq!(piped("id\n20\n21\n", &things.path(), "delete").code, Some(0));
    assert_eq!(things.ask("SELECT id FROM t WHERE id >= 20"), "22");
    let ran = piped("", &things.path(), "delete");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("stdin cannot be read: Csv error: it is empty"), "{}", ran.stderr);
}

#[test]
fn a_change_may_declare_the_key() {
    let things = Things::new();
    let rows = things.file("rows.csv", "id,name\n10,ten\n");
    let stderr = fails(1, with_path(&["insert"], &things.path(), &[&rows]));
    assert!(stderr.contains("has no key") && stderr.contains("`lakemark key TABLE --on COLUMN`"), "{stderr}");
    let missing = things.0.path().join("none.csv");
    fails(1, with_path(&["insert"], &things.path(), &[missing.to_str().unwrap(), "--key", "id"]));
    assert_eq!(things.info()["updates"], Value::Null);
    for sequence in 1..3 {
        assert_eq!(things.change("upsert", &[&rows, "--key", "id"]), made(1, sequence));
    }
    let stderr = fails(1, with_path(&["upsert"], &things.path(), &[&rows, "--key", "name"]));
    assert!(stderr.contains("the key of the table is id already"), "{stderr}");
}

#[test]
fn wrong_files_change_nothing() {
    let things = Things::keyed();
    let path = things.path();
    for (verb, name, content, says) in [
        ("insert", "a.csv", "id,name\n3,x\n", "the key id = 3 is there already"),
        ("upsert", "b.csv", "id,moon\n3,x\n", "the table has no column moon; its columns are id, name, n, day"),
        (
            "upsert",
            "c.csv",
            "id,n\n3,x\n",
            "c.csv cannot be read: Parser error: Error while parsing value 'x' as type 'Int32'",
        ),
        ("upsert", "d.csv", "id,n\n3,1.5\n", "'1.5' as type 'Int32'"),
        ("upsert", "e.csv", "name\nx\n", "lack a column of the key (id)"),
        ("upsert", "f.csv", "id,name\n,x\n", "row 0 has no value for id"),
        ("upsert", "g.csv", "id,name\n3,x\n3,y\n", "the key id = 3 stands in rows 0 and 1"),
        ("upsert", "h.csv", "id,name,name\n3,x,y\n", "the column name twice"),
        ("upsert", "i.csv", "id,name\n3\n", "i.csv cannot be read"),
        ("update", "j.csv", "id\n3\n", "names no column beside the key"),
        ("update", "k.json", "{\"id\": 3, \"n\": 1} {\"id\": 4}", "row 1 of"),
        ("upsert", "l.json", "{\"id\": 3, \"n\": 1.5}", "has 1.5 for n"),
        ("upsert", "m.json", "{\"id\": 3", "m.json cannot be read"),
        ("upsert", "n.parquet", "no parquet", "Parquet"),
        ("upsert", "o.xlsx", "", "give a file .parquet, .csv, .json, .ndjson or .arrow, or - for CSV from stdin"),
    ] {
        let file = things.file(name, content);
        let stderr = fails(1, with_path(&[verb], &path, &[&file]));
        assert!(stderr.contains(says), "{name}: {stderr}");
    }
    for missing in ["none.csv", "none.json", "none.parquet", "none.arrow"] {
        let stderr = fails(1, with_path(&["upsert"], &path, &[missing]));
        assert!(stderr.contains(&format!("{missing} cannot be read: No such file")), "{stderr}");
    }
    assert_eq!(things.info()["updates"]["sequence"], 0);
    assert_eq!(things.ask("SELECT count(*), sum(n) FROM t"), "10,45");
}

#[test]
fn wrong_usage_shows_the_usage() {
    for arguments in [vec!["key", "t"], vec!["insert", "t"], vec!["delete", "t", "f", "--key"], vec!["flush"]] {
        let stderr = fails(2, &arguments);
        assert!(stderr.contains("--help"), "{arguments:?}: {stderr}");
    }
    let things = Things::new();
    let stderr =
        fails(1, with_path(&["key"], &things.path(), &["--on", "id", "--with", "alpha=1", "--with", "alpha=2"]));
    assert!(stderr.contains("--with alpha is given twice"), "{stderr}");
    let stderr = fails(1, with_path(&["key"], &things.path(), &["--on", "id", "--with", "colour=blue"]));
    assert!(stderr.contains("there is no option colour of updates"), "{stderr}");
    let stderr = fails(1, with_path(&["flush"], &things.path(), &[]));
    assert!(stderr.contains("has no key"), "{stderr}");
}

#[test]
fn flush_and_info_tell_how_updates_stand() {
    let things = Things::new();
    let path = things.path();
    let info = things.info();
    assert_eq!((&info["rows"], &info["files"], &info["updates"]), (&Value::from(10), &Value::from(2), &Value::Null));
    let said = ok(with_path(&["info"], &path, &[]));
    assert!(said.contains("rows:     10\n") && said.contains("`lakemark key TABLE"), "{said}");
    ok(with_path(&["key"], &path, &["--on", "id"]));
    assert_eq!(ok(with_path(&["flush"], &path, &[])), "nothing to flush: the buffer is empty\n");
    let rows = things.file("rows.csv", "id,name\n1,one\n10,ten\n");
    ok(with_path(&["upsert"], &path, &[&rows]));
    let info = things.info();
    assert_eq!((&info["rows"], &info["updates"]["rows_buffered"]), (&Value::from(11), &Value::from(2)));
    assert_eq!((&info["updates"]["buffer_keys"], &info["updates"]["rows_deleted"]), (&Value::from(2), &Value::from(1)));
    let said = ok(with_path(&["info"], &path, &[]));
    assert!(said.contains("buffered rows:     2, 1 rows of data files deleted"), "{said}");
    let said = ok(with_path(&["flush"], &path, &[]));
    assert!(said.starts_with("flushed the changes of 2 keys; runs now: 1, "), "{said}");
    let updates = &things.info()["updates"];
    assert_eq!((&updates["runs"][0]["rows"], &updates["buffer_keys"]), (&Value::from(2), &Value::from(0)));
    assert_eq!(updates["writes_per_update"], 1.0);
}

#[test]
fn migrate_writes_what_is_buffered_into_the_files() {
    let things = Things::new();
    let path = things.path();
    ok(with_path(&["key"], &path, &["--on", "id"]));
    assert_eq!(ok(with_path(&["migrate"], &path, &[])), "nothing to migrate\n");
    let rows = things.file("rows.csv", "id,name\n1,one\n10,ten\n");
    ok(with_path(&["upsert"], &path, &[&rows]));
    assert_eq!(ok(with_path(&["migrate"], &path, &["--threshold", "50%"])), "nothing to migrate\n");
    let said = ok(with_path(&["migrate"], &path, &["--format", "json"]));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["rows"], &said["rows_replaced"], &said["files_replaced"]), (&2.into(), &1.into(), &1.into()));
    let updates = &things.info()["updates"];
    assert_eq!((&updates["rows_buffered"], &updates["rows_deleted"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(things.info()["rows"], 11);
    let stderr = fails(2, with_path(&["migrate"], &path, &["--fraction", "120%"]));
    assert!(stderr.contains("give a share from 0 to 1"), "{stderr}");
    ok(with_path(&["upsert"], &path, &[&things.file("more.csv", "id,name\n2,two\n11,eleven\n")]));
    let said = ok(with_path(&["migrate"], &path, &["--max-bytes", "1K", "--format", "json"]));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["rows"], &things.info()["updates"]["rows_buffered"]), (&2.into(), &0.into()));
    let stderr = fails(2, with_path(&["migrate"], &path, &["--max-bytes", "some"]));
    assert!(stderr.contains("a number with an optional K, M or G"), "{stderr}");
}

#[test]
fn a_key_is_declared_in_sql_and_statements_change_the_table() {
    let things = Things::new();
    let path = things.path();
    let plain = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", path.display());
    let stderr = fails(1, ["sql", "-c", &plain, "-c", "DELETE FROM t WHERE id = 1"]);
    assert!(stderr.contains("OPTIONS (key 'COLUMN')") && stderr.contains("lakemark key"), "{stderr}");
    let keyed = format!("{plain} OPTIONS (key 'id, name', alpha '2')");
    let sql = |statement: &str| ok(["sql", "--format", "csv", "-c", &keyed, "-c", statement]);
    assert_eq!(sql("DELETE FROM t WHERE id = 1"), "count\n1\n");
    assert_eq!(sql("UPDATE t SET n = n + 1 WHERE id < 4"), "count\n3\n");
    assert_eq!(sql("SELECT sum(n) FROM t"), "sum(t.n)\n47\n");
    assert!(sql("SHOW INDEXES FROM t").contains("id_name_key,key,"));
    assert_eq!(things.info()["updates"]["key"], serde_json::json!(["id", "name"]));
    for (options, says) in [
        ("key 'id'", "the key of the table is id, name already"),
        ("alpha '2'", "give 'key' as well"),
        ("colour 'blue'", "unknown option"),
    ] {
        let stderr = fails(1, ["sql", "-c", &format!("{plain} OPTIONS ({options})")]);
        assert!(stderr.contains(says), "{options}: {stderr}");
    }
}

#[test]
fn help_teaches_by_examples() {
    for (arguments, says) in [
        (&["--help"][..], "lakemark upsert flights/ late.csv --key flight"),
        (&["sql", "--help"], "MERGE INTO t USING"),
        (&["key", "--help"], "lakemark key orders/ --on customer,number"),
        (&["update", "--help"], "absent keys change nothing"),
        (&["migrate", "--help"], "--threshold 50%"),
    ] {
        let said = ok(arguments);
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn older_versions_are_listed_and_read() {
    let things = Things::keyed();
    let rows = things.file("rows.csv", "id\n0\n3\n4\n");
    things.change("delete", &[&rows]);
    ok(with_path(&["flush"], &things.path(), &[]));
    let list = ok(with_path(&["history"], &things.path(), &["--format", "json"]));
    let list: Value = serde_json::from_str(&list).unwrap();
    let said =
        list.as_array().unwrap().iter().map(|version| (version["version"].as_u64(), version["operation"].clone()));
    let expected = ["flush changes", "build indexes", "create index id_key", "declare key (id)"];
    let numbered = (1..=4).rev().zip(expected).map(|(number, words)| (Some(number), Value::from(words)));
    assert_eq!(said.collect::<Vec<_>>(), numbered.collect::<Vec<_>>());
    assert_eq!((&list[0]["rows"], &list[0]["files_added"]), (&Value::from(3), &Value::from(1)));
    let counted = |version: &str| ok(with_path(&["count"], &things.path(), &["--version", version, "id < 5"]));
    assert_eq!((counted("3"), counted("4")), ("5\n".to_owned(), "2\n".to_owned()));
    let stderr = fails(1, with_path(&["count"], &things.path(), &["--version", "9"]));
    assert!(stderr.contains("has no version 9: the newest is 4"), "{stderr}");
    let create = format!(
        "CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}' OPTIONS (version '3')",
        things.path().display()
    );
    let said = ok(["sql", "--format", "csv", "-c", &create, "-c", "SELECT count(*) AS n FROM t"]);
    assert_eq!(said, "n\n10\n");
    let stderr = fails(1, ["sql", "-c", &create, "-c", "DELETE FROM t WHERE id = 77"]);
    assert!(stderr.contains("opened at version 3"), "{stderr}");
}

#[test]
fn a_call_with_a_number_is_made_once() {
    let things = Things::keyed();
    let rows = things.file("rows.csv", "id\n0\n3\n");
    let call = ["--txn-app-id", "loader", "--txn-version", "4"];
    assert_eq!(things.change("delete", &[&[rows.as_str()], call.as_slice()].concat()), made(2, 1));
    ok(with_path(&["flush"], &things.path(), &[]));
    let others = things.file("others.csv", "id\n5\n");
    assert_eq!(things.change("delete", &[&[others.as_str()], call.as_slice()].concat()), made(0, 1));
    assert_eq!(ok(with_path(&["count"], &things.path(), &[])), "8\n");
    fails(2, with_path(&["delete"], &things.path(), &[&others, "--txn-app-id", "loader"]));
}

#[test]
fn a_migrated_folder_is_published() {
    let things = Things::keyed();
    let rows = things.file("rows.csv", "id\n0\n3\n");
    things.change("delete", &[&rows]);
    let said = ok(with_path(&["migrate"], &things.path(), &["--publish"]));
    assert!(said.contains("\npublished: files 1, originals moved to the store 1, "), "{said}");
    assert!(!things.path().join("part-0.parquet").exists() && things.path().join("part-1.parquet").exists());
    assert_eq!(ok(with_path(&["count"], &things.path(), &[])), "8\n");
    assert!(ok(with_path(&["history"], &things.path(), &[])).contains("publish"));
    let said = ok(with_path(&["vacuum"], &things.path(), &["--originals", "--dry-run"]));
    assert!(said.starts_with("would remove: files 0, "), "{said}");
    let said = ok(with_path(&["migrate"], &things.path(), &["--publish", "--format", "json"]));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["migrated"]["rows"], &said["published"]["files_published"]), (&Value::from(0), &Value::from(0)));
}
