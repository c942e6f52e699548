//! `lakemark.toml`: names in the place of paths for every verb, what counts over what, and errors that name file and line.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::table::{Flights, Ran, command, flights_of};

/// A project with a file, below a home with another one.
struct Project {
    root: TempDir,
    flights: Flights,
}

impl Project {
    /// Both texts may name the folder of the flights as `FLIGHTS`.
    fn new(user: &str, project: &str) -> Self {
        let made = Self { root: tempfile::tempdir().unwrap(), flights: Flights::new(2, 1000) };
        made.write("config/lakemark/lakemark.toml", user);
        made.write("project/lakemark.toml", project);
        fs::create_dir_all(made.root.path().join("project/deep/er")).unwrap();
        made
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("FLIGHTS", &self.flights.path().display().to_string())).unwrap();
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    /// Runs the command deep in the project.
    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = command();
        command.env_remove("LAKEMARK_CONFIG").env("XDG_CONFIG_HOME", self.path().join("config"));
        command.current_dir(self.path().join("project/deep/er")).args(arguments).output().unwrap().into()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "stdout: {}\nstderr: {}", ran.stdout, ran.stderr);
        ran.stdout
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
        ran.stderr
    }
}

#[test]
fn every_verb_takes_a_name_in_the_place_of_a_path() {
    let project = Project::new(
        "",
        "[tables]\ntrips = 'FLIGHTS'\n[tables.beside]\npath = 'FLIGHTS'\nstore = 'index/trips'\n[stores]\nindex = 'stores'\n",
    );
    let wanted = format!("{}\n", flights_of("UA", 2000));
    project.ok(&["index", "create", "trips", "--on", "carrier", "--quiet"]);
    assert!(project.flights.path().join("_lakemark").is_dir());
    assert_eq!(project.ok(&["count", "trips", "carrier = 'UA'"]), wanted);
    project.ok(&["index", "create", "beside", "--on", "number", "--quiet"]);
    assert!(project.path().join("project/stores/trips").is_dir());
    for arguments in [
        &["info", "beside"][..],
        &["index", "list", "trips"],
        &["index", "build", "trips", "--quiet"],
        &["index", "watch", "trips", "--once", "--quiet"],
        &["explain", "trips", "carrier = 'UA'"],
        &["vacuum", "trips", "--dry-run"],
    ] {
        project.ok(arguments);
    }
    let missing = project.fails(&["count", "tripps"]);
    assert_eq!(missing, "error: there is no table tripps: no such path, and lakemark.toml has beside, trips\n");
}

#[test]
fn the_shell_knows_the_names_and_has_the_settings() {
    let project =
        Project::new("", "[tables]\ntrips = 'FLIGHTS'\ngone = 'nowhere'\n[settings]\n'lakemark.use_index' = false\n");
    let wanted = flights_of("UA", 2000);
    let query = "SELECT count(*) AS n FROM trips WHERE carrier = 'UA'";
    assert_eq!(project.ok(&["sql", "--format", "csv", "-c", query]), format!("n\n{wanted}\n"));
    let setting = "SELECT value FROM information_schema.df_settings WHERE name LIKE '%use_index'";
    assert_eq!(project.ok(&["sql", "--format", "csv", "-c", setting]), "value\nfalse\n");
    // A name whose table is not there is listed, and in nobody's way.
    let tables = project.ok(&["sql", "--format", "csv", "-c", "SHOW TABLES"]);
    assert!(tables.contains(",gone,") && tables.contains(",trips,"), "{tables}");
    let gone = project.fails(&["sql", "-c", "SELECT number FROM gone"]);
    assert!(gone.contains("nowhere does not exist"), "{gone}");
    let dropped = project.fails(&["sql", "-c", "DROP TABLE trips"]);
    assert!(dropped.contains("the table trips is a name of lakemark.toml"), "{dropped}");
    // A statement may name tables as the configuration does, and give such a name to another table.
    let place = "STORED AS LAKEMARK LOCATION";
    let created = format!("CREATE EXTERNAL TABLE t {place} 'trips'; CREATE EXTERNAL TABLE gone {place} 'trips'");
    let counted = "SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM gone) AS n";
    assert_eq!(project.ok(&["sql", "--format", "csv", "-c", &created, "-c", counted]), "n\n4000\n");
}

#[test]
fn the_project_counts_over_the_user_and_a_variable_over_both() {
    let project = Project::new("[tables]\ntrips = 'nowhere'\nother = 'FLIGHTS'\n", "[tables]\ntrips = 'FLIGHTS'\n");
    assert_eq!(project.ok(&["count", "trips"]), "2000\n");
    assert_eq!(project.ok(&["count", "other"]), "2000\n");
    project.write("third.toml", "[tables]\nthird = 'FLIGHTS'\n");
    let run = |name: &str, variable: &Path| -> Ran {
        command().env("LAKEMARK_CONFIG", variable).args(["count", name]).output().unwrap().into()
    };
    let third = project.path().join("third.toml");
    assert_eq!(run("third", &third).stdout, "2000\n");
    assert_eq!(run("trips", &third).code, Some(1));
    let missing = run("third", &project.path().join("none.toml"));
    assert!(missing.stderr.contains("none.toml cannot be read"), "{}", missing.stderr);
}

#[test]
fn errors_name_file_and_line_and_no_secret() {
    for (text, says) in [
        ("[tables]\ntrips = 3\n", ":2: tables.trips takes a table"),
        (
            "[profiles.p]\nscope = 'FLIGHTS'\naws_token = { env = 'LAKEMARK_NOBODY_SETS_THIS' }\n",
            ":3: profiles.p.aws_token wants the variable",
        ),
        ("[tables]\na = 'x'\nb = 'hidden\n", "lakemark.toml:"),
        ("[settings]\n'lakemark.nothing' = 'x'\n", ":2: "),
    ] {
        let project = Project::new("", text);
        let path = project.flights.path().display().to_string();
        let (count, sql) = (["count", path.as_str()], ["sql", "-c", "SELECT 1"]);
        let arguments: &[&str] = if text.starts_with("[settings]") { &sql } else { &count };
        let said = project.fails(arguments);
        assert!(
            said.contains("project/lakemark.toml") && said.contains(says) && !said.contains("hidden"),
            "{text}: {said}"
        );
    }
}

#[test]
fn what_is_in_force_is_shown_with_its_place_and_without_secrets() {
    let project = Project::new(
        "[profiles.lake]\naws_secret_access_key = 'hidden'\naws_region = 'r'\n",
        "[tables]\ntrips = 'FLIGHTS'\n[serve.limits]\nrunning = 3\n",
    );
    let said = project.ok(&["config", "--format", "json"]);
    assert!(!said.contains("hidden"), "{said}");
    let rows: Vec<Value> = serde_json::from_str(&said).unwrap();
    let source_of = |kind: &str, key: &str, value: &str| {
        let row = rows.iter().find(|row| row["kind"] == kind && row["key"] == key && row["value"] == value);
        row.unwrap_or_else(|| panic!("{kind} {key} {value}: {said}"))["source"].as_str().unwrap().to_owned()
    };
    assert!(source_of("profile", "aws_secret_access_key", "***").ends_with("config/lakemark/lakemark.toml:2"));
    assert!(source_of("profile", "aws_region", "r").ends_with("config/lakemark/lakemark.toml:3"));
    assert!(source_of("serve", "", "3").ends_with("project/lakemark.toml:4"));
    let flights = project.flights.path().display().to_string();
    assert!(source_of("table", "path", &flights).ends_with("project/lakemark.toml:2"));
    project.write("project/lakemark.toml", "[serve]\nlissten = 'x'\n");
    assert!(project.fails(&["config"]).contains("lakemark.toml:2: there is no key serve.lissten"));
}
