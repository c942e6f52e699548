//! Ctrl-C in the middle of a build: what is finished is committed, nothing half done stays, and the next build goes on.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::table::{Flights, Ran, command, flights_of, ok, with_path};

const FILES: i64 = 4;
const ROWS: i64 = 300_000;

#[test]
fn ctrl_c_leaves_the_last_committed_state() {
    let flights = Flights::new(FILES, ROWS);
    let path = flights.path();
    let build = command()
        .args(with_path(&["index", "create"], &path, &["--on", "number", "--name", "n", "--threads", "1"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    // The declaration is the last thing that is committed before the build begins.
    let manifests = path.join("_lakemark/manifest");
    let start = Instant::now();
    while !std::fs::read_dir(&manifests).is_ok_and(|entries| entries.count() > 0) {
        assert!(start.elapsed() < Duration::from_secs(60), "the index was never declared");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &build.id().to_string()]).status().unwrap().success());
    let ran = Ran::from(build.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "stdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("0 of 1 tasks of the build are committed"), "{}", ran.stderr);
    let next = format!("Run `lakemark index build {}` to go on", path.display());
    assert!(ran.stderr.contains(&next), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");

    let list = ok(with_path(&["index", "list"], &path, &["--format", "json"]));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!((&list[0]["name"], &list[0]["files_covered"]), (&"n".into(), &0.into()));
    let wanted = flights_of("DL", FILES * ROWS);
    assert_eq!(ok(with_path(&["count"], &path, &["carrier = 'DL'"])), format!("{wanted}\n"));

    ok(with_path(&["index", "build"], &path, &[]));
    assert_eq!(ok(with_path(&["count"], &path, &["number BETWEEN 7 AND 16"])), "10\n");
    assert!(ok(with_path(&["index", "verify"], &path, &[])).contains("n: 4 files ok, 0 damaged, 0 stale"));
}

/// The files that an index covers.
fn covered(path: &Path) -> i64 {
    let list = ok(with_path(&["index", "list"], path, &["--format", "json"]));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    list[0]["files_covered"].as_i64().unwrap()
}

#[test]
fn ctrl_c_commits_what_is_finished() {
    let flights = Flights::new(FILES, ROWS);
    let path = flights.path();
    let options = ["--on", "number", "--name", "n", "--with", "files_per_segment=1", "--no-build"];
    ok(with_path(&["index", "create"], &path, &options));
    let build = command()
        .args(with_path(&["index", "build"], &path, &["--threads", "1", "--commit-every", "0s"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One manifest declares the index, the next one has its first segment.
    let start = Instant::now();
    while std::fs::read_dir(path.join("_lakemark/manifest")).unwrap().count() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was ever committed");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &build.id().to_string()]).status().unwrap().success());
    let ran = Ran::from(build.wait_with_output().unwrap());
    let there = covered(&path);
    assert!(there >= 1);
    // A build that was at its last file is done.
    if ran.code == Some(130) {
        assert!(ran.stderr.contains(&format!("{there} of 4 tasks of the build are committed")), "{}", ran.stderr);
    } else {
        assert_eq!((ran.code, there), (Some(0), FILES), "stdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    }
    let report: serde_json::Value =
        serde_json::from_str(&ok(with_path(&["index", "build"], &path, &["--format", "json"]))).unwrap();
    assert_eq!(report["files"], FILES - there);
    assert_eq!(covered(&path), FILES);
    assert_eq!(ok(with_path(&["count"], &path, &["number BETWEEN 7 AND 16"])), "10\n");
}
