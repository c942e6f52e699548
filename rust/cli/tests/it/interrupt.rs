//! Ctrl-C in the middle of a build: nothing half done stays, and the next build goes on.

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
    assert!(ran.stderr.contains("The last committed state is untouched"), "{}", ran.stderr);
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
