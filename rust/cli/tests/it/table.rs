//! A table of flights in several files and row groups, and runs of the command on it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

const CARRIERS: [&str; 5] = ["AA", "B6", "DL", "UA", "WN"];

/// The command, with nothing of the user's settings.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lakemark"));
    command.env_remove("LAKEMARK_LOG").env("LAKEMARK_CONFIG", "").stdin(Stdio::null());
    command
}

/// What a run printed and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    command().args(arguments).output().unwrap().into()
}

/// Runs a command that must succeed, and returns its stdout.
pub fn ok<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(0), "stdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    ran.stdout
}

/// Runs a command that must fail with this code, and returns its stderr.
pub fn fails<S: AsRef<OsStr>>(code: i32, arguments: impl IntoIterator<Item = S>) -> String {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(code), "stdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    ran.stderr
}

/// A folder with a table; removed when it goes out of scope.
pub struct Flights {
    folder: TempDir,
}

impl Flights {
    /// Rows `number`, `carrier` (NULL for every 11th) and `stops` (a list) in files of `rows_per_file` rows.
    pub fn new(files: i64, rows_per_file: i64) -> Self {
        let flights = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(flights.path()).unwrap();
        for file in 0..files {
            flights.write(file, rows_per_file);
        }
        flights
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("flights")
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self, number: i64) -> PathBuf {
        self.path().join(format!("part-{number}.parquet"))
    }

    /// Adds data file `file`.
    pub fn write(&self, file: i64, rows: i64) {
        let numbers = file * rows..(file + 1) * rows;
        let carriers: StringArray = numbers.clone().map(carrier).collect();
        let stops = ListArray::from_iter_primitive::<Int32Type, _, _>(numbers.clone().map(|_| Some([Some(1)])));
        let columns: [(&str, ArrayRef); 3] = [
            ("number", Arc::new(Int64Array::from_iter_values(numbers))),
            ("carrier", Arc::new(carriers)),
            ("stops", Arc::new(stops)),
        ];
        write(&self.file(file), &RecordBatch::try_from_iter(columns).unwrap());
    }
}

fn carrier(number: i64) -> Option<&'static str> {
    (number % 11 != 0).then(|| CARRIERS[usize::try_from(number * 7 % 5).unwrap()])
}

/// How many of the first `rows` flights a carrier has, counted here and not by what is tested.
pub fn flights_of(wanted: &str, rows: i64) -> usize {
    (0..rows).filter(|&number| carrier(number) == Some(wanted)).count()
}

pub fn write(path: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// The table's path as an argument, followed by others.
pub fn with_path<'a>(verb: &[&'a str], path: &'a Path, rest: &[&'a str]) -> Vec<&'a OsStr> {
    let words = |words: &[&'a str]| words.iter().map(|word| OsStr::new(*word)).collect::<Vec<_>>();
    [words(verb), vec![path.as_os_str()], words(rest)].concat()
}
