//! Another process works on the table, is stopped for hours, or killed.
//!
//! The test starts this program again, with an order in its environment.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lakemark_table::{MigrateOptions, Table, VacuumOptions};
use rand::Rng;

use super::rows::{Column, Kind, Reader, Rows};
use super::{Trial, one_thread};
use crate::fixture::open;
use crate::updates::stops::vacuum_hours_later;

pub const ORDER: &str = "LAKEMARK_MODEL_ORDER";
const FOLDER: &str = "LAKEMARK_MODEL_FOLDER";
const COLUMNS: &str = "LAKEMARK_MODEL_COLUMNS";
const HOUR: Duration = Duration::from_secs(60 * 60);

/// What becomes of the process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Ends,
    Killed,
    Stopped,
}

/// Does what it was told, as a process of its own.
pub async fn obey(order: &str) {
    let folder = std::env::var(FOLDER).unwrap();
    let table = open(Path::new(&folder)).await;
    match order.split_once(' ').unwrap_or((order, "")) {
        ("rows", _) => print_rows(&table).await,
        ("migrate", fraction) => {
            let options = MigrateOptions { fraction: fraction.parse().unwrap(), ..MigrateOptions::default() };
            table.migrate(options).await.unwrap();
        }
        ("publish", _) => drop(table.publish().await.unwrap()),
        ("flush", _) => table.flush().await.unwrap(),
        // There may be no index to build .
        ("build", _) if table.snapshot().await.unwrap().indexes().is_empty() => {}
        ("build", _) => drop(table.build(one_thread()).await.unwrap()),
        ("vacuum", hours) => {
            let older_than = hours.parse::<u32>().unwrap() * HOUR;
            drop(table.vacuum(VacuumOptions { older_than, ..VacuumOptions::default() }).await.unwrap());
        }
        other => panic!("no order {other:?}"),
    }
}

async fn print_rows(table: &Table) {
    let text = std::env::var(COLUMNS).unwrap();
    let parts = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<String>>();
    let columns: Vec<Column> = text
        .lines()
        .map(parts)
        .map(|parts| Column {
            id: parts[0].parse().unwrap(),
            shown: parts[1].clone(),
            stored: parts[2].clone(),
            kind: if parts[3] == "Int" {
                Kind::Int
            } else if parts[3] == "Long" {
                Kind::Long
            } else {
                Kind::Text
            },
        })
        .collect();
    let stored = columns.iter().map(|column| (column.stored.clone(), column.id)).collect();
    let rows = Reader::default().rows_of(&table.snapshot().await.unwrap(), &columns, &stored).unwrap();
    // On a single core the name of the test stands before the first line.
    println!();
    lines_of(&rows).iter().for_each(|line| println!("{line}"));
}

fn lines_of(rows: &Rows) -> Vec<String> {
    rows.iter().map(|(key, row)| format!("row {key} {row:?}")).collect()
}

impl Trial {
    fn start(&self, order: &str) -> Child {
        let columns: Vec<String> = self
            .others
            .columns
            .iter()
            .map(|column| format!("{},{},{},{:?}", column.id, column.shown, column.stored, column.kind))
            .collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "updates::model::random_changes_agree_with_a_map", "--nocapture"]);
        command.env(ORDER, order).env(FOLDER, self.root()).env(COLUMNS, columns.join("\n"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// All rows, as another process sees them.
    pub fn check_in_process(&self) {
        let output = self.start("rows").wait_with_output().unwrap();
        assert_success("rows", &output);
        let printed = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<&str> = printed.lines().filter(|line| line.starts_with("row ")).collect();
        assert_eq!(rows, lines_of(&self.expected.rows()), "in another process, after {} operations", self.operations);
    }

    pub async fn process(&mut self) -> &'static str {
        let is_whole = self.random.random_bool(0.5) || !self.classes.has("slices");
        let fraction = if is_whole { 1.0 } else { self.random.random_range(0.05..0.9) };
        let migrates = self.random.random_bool(0.5);
        let order = match self.random.random_range(0..5) {
            _ if migrates => format!("migrate {fraction}"),
            0 | 1 if !self.others.form.is_delta => "publish".to_owned(),
            2 => format!("vacuum {}", [1, 24, 168][self.random.random_range(0..3)]),
            3 => "flush".to_owned(),
            _ => "build".to_owned(),
        };
        if order == "publish" {
            self.backup = None;
        }
        self.held.clear();
        let fate = [Fate::Ends, Fate::Killed, Fate::Killed, Fate::Stopped][self.random.random_range(0..4)];
        self.trace.push(format!("{} process {order}", self.operations));
        let child = self.start(&order);
        let wait = Duration::from_micros(self.random.random_range(10_000..150_000));
        let is_whole = self.with_fate(child, fate, wait, &order).await;
        self.check().await;
        match (is_whole, migrates) {
            (true, true) if fraction >= 1.0 => self.all_migrated().await,
            (true, true) => self.sliced().await,
            (false, _) if migrates || order == "publish" => self.after_kill(&order).await,
            _ => {}
        }
        match fate {
            Fate::Ends => "others: a process",
            Fate::Killed => "others: a process that is killed",
            Fate::Stopped => "others: a process that is stopped",
        }
    }

    /// Lets the process have its fate; says whether it did all of what it was told.
    async fn with_fate(&mut self, mut child: Child, fate: Fate, wait: Duration, order: &str) -> bool {
        if fate != Fate::Ends {
            tokio::time::sleep(wait).await;
        }
        if fate == Fate::Stopped && signal(&child, "STOP") {
            self.check().await;
            vacuum_hours_later(&self.root()).await;
            self.check().await;
            signal(&child, "CONT");
        }
        if fate == Fate::Killed {
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        if fate != Fate::Killed {
            assert_success(order, &output);
        }
        output.status.success()
    }

    /// Nobody knows how far it came: the next one finishes it, at once or later.
    async fn after_kill(&mut self, order: &str) {
        self.is_uncertain = true;
        // Until somebody goes on with a publication, those who look into the folder see a part of it.
        if order == "publish" {
            self.table().publish().await.unwrap();
        }
        if order == "publish" || self.random.random_bool(0.5) {
            self.migrate_part(1.0, None).await;
        }
    }
}

/// Whether the process was there to be told.
fn signal(child: &Child, name: &str) -> bool {
    Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap().success()
}

fn assert_success(order: &str, output: &Output) {
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the process that was told to {order}:\n{printed}\n{said}");
}
