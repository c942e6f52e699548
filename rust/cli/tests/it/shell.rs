//! `lakemark sql`: statements from the command line, files and pipes.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::table::{Flights, Ran, command, fails, flights_of, ok, run};

fn pipe(arguments: &[&str], text: &str) -> Ran {
    let mut child =
        command().args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

fn open(flights: &Flights) -> String {
    format!("CREATE EXTERNAL TABLE flights STORED AS LAKEMARK LOCATION '{}'", flights.path().display())
}

#[test]
fn our_statements_and_the_engine_share_a_session() {
    let flights = Flights::new(2, 1000);
    let open = open(&flights);
    let said = ok([
        "sql",
        "--format",
        "csv",
        "-c",
        &open,
        "-c",
        "CREATE INDEX c ON flights USING bitmap (carrier)",
        "-c",
        "SELECT count(*) AS n FROM flights WHERE carrier = 'B6'; SHOW INDEXES FROM flights",
    ]);
    assert!(said.contains(&format!("n\n{}\n", flights_of("B6", 2000))), "{said}");
    assert!(said.contains("\nc,bitmap,equality,user,carrier,"), "{said}");
    let said = ok(["sql", "--format", "csv", "-c", &open, "-c", "DROP INDEX c ON flights; SHOW INDEXES FROM flights"]);
    assert!(!said.contains("\nc,bitmap"), "{said}");
}

#[test]
fn rows_are_the_same_with_the_index_switched_off() {
    let flights = Flights::new(2, 1000);
    let open = open(&flights);
    ok(["sql", "-c", &open, "-c", "CREATE INDEX ON flights (carrier)"]);
    let query = "SELECT * FROM flights WHERE carrier IN ('AA', 'UA') AND number % 3 = 0 ORDER BY number";
    let with = ok(["sql", "--format", "json", "-c", &open, "-c", query]);
    let without = ok(["sql", "--format", "json", "-c", "SET lakemark.use_index = false", "-c", &open, "-c", query]);
    assert!(with.matches("\"number\"").count() > 100);
    assert_eq!(with, without);
}

#[test]
fn settings_are_shown_as_they_are_set() {
    let set = "SET lakemark.share = stars";
    let shown = ok(["sql", "--format", "csv", "-c", set, "-c", "SHOW lakemark.share"]);
    assert_eq!(shown, "name,value\nlakemark.share,stars\n");
}

#[test]
fn slow_queries_are_one_line_each_without_their_values() {
    let flights = Flights::new(1, 1000);
    let (open, slow) = (open(&flights), "SET lakemark.slow_query_ms = 0");
    let query = "SELECT max(number) AS n FROM flights WHERE carrier = 'B6'";
    let ran = run(["sql", "--format", "csv", "-c", &open, "-c", slow, "-c", query]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("a slow query")).collect();
    assert_eq!(lines.len(), 1, "{}", ran.stderr);
    assert!(lines[0].contains("SELECT max(number) AS n FROM flights WHERE carrier = ?"), "{}", lines[0]);
    assert!(lines[0].contains("no_index(carrier)") && !lines[0].contains("B6"), "{}", lines[0]);
    assert_eq!(run(["sql", "--format", "csv", "-c", &open, "-c", query]).stderr, "");
}

#[test]
fn the_bare_command_runs_a_pipe() {
    let ran = pipe(&["--format", "json"], "SELECT 1 AS a;\n-- two\nSELECT 'x;y' AS b WHERE true;\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "[{\"a\":1}]\n[{\"b\":\"x;y\"}]\n"));
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_file_is_run_and_a_missing_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.sql");
    std::fs::write(&file, "SELECT 1 + 1 AS two").unwrap();
    assert_eq!(ok(["sql", "--format", "csv", "-f", file.to_str().unwrap()]), "two\n2\n");
    assert!(fails(1, ["sql", "-f", "/nowhere/q.sql"]).contains("/nowhere/q.sql"));
}

#[test]
fn the_first_failure_stops_the_rest() {
    let ran = run(["sql", "--format", "csv", "-c", "SELECT 1 AS a", "-c", "SELECT nosuch", "-c", "SELECT 3 AS c"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "a\n1\n"));
    assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains("nosuch"), "{}", ran.stderr);
}

#[test]
fn errors_point_at_the_place_in_the_text() {
    for (sql, says) in [
        ("SELEC 1", "line 1, column 1:\n  SELEC 1\n  ^^^^^\n"),
        (
            "SELECT a,\n  nosuch FROM (SELECT 1 AS a)",
            "line 2, column 3:\n    nosuch FROM (SELECT 1 AS a)\n    ^^^^^^\n",
        ),
        ("SELECT 1 +;", "line 1, column 11:\n  SELECT 1 +;\n            ^\n"),
        ("SHOW INDEXES OF t", "line 1, column 14:\n  SHOW INDEXES OF t\n               ^^\n"),
    ] {
        let said = fails(1, ["sql", "-c", sql]);
        assert!(said.ends_with(says), "{said}");
        assert!(!said.contains("Line: "), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.sql");
    std::fs::write(&file, "SELECT 1 AS one;\n\nSELECT nosuch FROM (SELECT 1 AS a);\n").unwrap();
    let ran = run(["sql", "--format", "csv", "-f", file.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "one\n1\n"));
    let says = format!("{}, line 3, column 8:\n  SELECT nosuch FROM", file.display());
    assert!(ran.stderr.contains(&says), "{}", ran.stderr);
    // What fails while it runs has no place.
    assert!(
        !fails(1, ["sql", "-c", "SELECT CAST(concat('a', value) AS INT) FROM generate_series(1, 2)"]).contains("line ")
    );
}

#[test]
fn empty_results_are_well_formed_in_every_format() {
    let query = "SELECT 1 AS a WHERE false";
    assert_eq!(ok(["sql", "--format", "json", "-c", query]), "[]\n");
    assert_eq!(ok(["sql", "--format", "csv", "-c", query]), "a\n");
    assert_eq!(ok(["sql", "-c", query]), "+---+\n| a |\n+---+\n+---+\n");
}

#[test]
fn a_table_is_cut_only_when_asked_and_says_so() {
    let query = "SELECT value FROM generate_series(1, 50)";
    assert_eq!(ok(["sql", "-c", query]).lines().count(), 50 + 4);
    let ran = run(["sql", "--max-rows", "3", "-c", query]);
    assert_eq!(ran.stdout.lines().count(), 3 + 4);
    assert!(ran.stderr.contains("only the first 3 rows"), "{}", ran.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = command()
        .args(["sql", "--format", "csv", "-c", "SELECT value FROM generate_series(1, 3000000)"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn bash_completes_verbs_and_options_and_other_shells_get_scripts() {
    let script = ok(["completions", "bash"]);
    let completed = |words: [&str; 3]| {
        let [_, prev, cur] = words;
        let asks = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD=2; _lakemark lakemark {cur} {prev}; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            words.join(" ")
        );
        let mut bash = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        bash.stdin.take().unwrap().write_all(asks.as_bytes()).unwrap();
        String::from_utf8(bash.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(completed(["lakemark", "index", "ad"]), "advise\n");
    assert_eq!(completed(["lakemark", "sql", "--max"]), "--max-rows\n");
    assert!(ok(["completions", "zsh"]).starts_with("#compdef lakemark\n"));
    assert!(ok(["completions", "fish"]).contains("complete -c lakemark"));
    let said = fails(2, ["completions", "tcsh"]);
    assert!(said.contains("[possible values: bash, zsh, fish]"), "{said}");
}

#[test]
fn help_teaches_and_is_no_error() {
    for (arguments, says) in [
        (vec!["--help"], "Exit codes: 0 done"),
        (vec!["sql", "--help"], "SHOW INDEXES FROM t"),
        (vec!["index", "create", "--help"], "--on <COL[,COL]>"),
        (vec!["index", "build", "--help"], "command takes over what was finished"),
        (vec!["serve", "--help"], "jdbc:arrow-flight-sql://127.0.0.1:8815/?useEncryption=false"),
        (vec!["serve", "--help"], "import adbc_driver_flightsql.dbapi as flight"),
        (vec!["--version"], "lakemark 0.1.0"),
    ] {
        assert!(ok(&arguments).contains(says), "{arguments:?}");
    }
}
