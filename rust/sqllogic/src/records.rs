//! One run of a file: what became of each of its records.

use std::path::Path;

use datafusion_sqllogictest::{
    DFColumnType, TestContext, df_value_validator, is_spark_path, setup_scratch_dir, value_normalizer,
};
use sqllogictest::{
    Location, MakeConnection, QueryExpect, Record, RecordOutput, Runner, TestErrorKind, parse_file,
    strict_column_validator,
};
use tempfile::TempDir;

use crate::engine::{Engine, Failure, Seen};
use crate::statement::Kind;
use crate::suite::{SuiteFile, lacks_data};
use crate::tables::TableCounts;
use crate::{Result, session};

/// What the suite calls its own engine in its conditions.
const LABEL: &str = "Datafusion";

/// How a file is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// As the suite runs it.
    Engine,
    /// Over tables of ours.
    IndexOn,
    /// Over tables of ours whose indexes are not used.
    IndexOff,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is as the suite expects it. Of a plan that means that it could be made.
    Same,
    /// Its rows are those that the suite expects, in another order that nobody asked for.
    OtherOrder,
    /// It is not for this engine.
    Skipped,
    /// It is not as expected: what was, and what was expected.
    Differs(String),
}

/// A record that was run.
pub struct Outcome {
    /// Where the record is.
    pub place: String,
    /// What it asks.
    pub kind: Kind,
    /// What it read.
    pub seen: Seen,
    /// What became of it.
    pub verdict: Verdict,
}

/// A run of a file.
pub struct FileRun {
    /// What became of its records, in their order.
    pub outcomes: Vec<Outcome>,
    /// Whether it names data that is not here.
    pub lacks_data: bool,
    /// What became of its tables.
    pub tables: TableCounts,
}

/// Runs a file; none if the suite leaves it out in this build.
pub async fn run(file: &SuiteFile, mode: Mode) -> Result<Option<FileRun>> {
    let relative = Path::new(&file.name);
    if !file.is_of_this_build() {
        return Ok(None);
    }
    let Some(theirs) = TestContext::try_new_for_test_file(relative).await else { return Ok(None) };
    setup_scratch_dir(relative)?;
    let folder = TempDir::new()?;
    let is_spark = is_spark_path(relative);
    let engine = match mode {
        Mode::Engine => Engine::alone(theirs.session_ctx().clone(), is_spark),
        Mode::IndexOn | Mode::IndexOff => {
            let session = session::ours(theirs.session_ctx(), &file.name, mode == Mode::IndexOn).await?;
            Engine::ours(session, folder.path().to_path_buf(), is_spark)
        }
    };
    engine.begin().await;
    let mut runner = Runner::new(|| async { Ok::<Engine, Failure>(engine.clone()) });
    runner.add_label(LABEL);
    runner.with_column_validator(strict_column_validator);
    runner.with_normalizer(value_normalizer);
    runner.with_validator(df_value_validator);

    let mut run = FileRun { outcomes: Vec::new(), lacks_data: false, tables: TableCounts::default() };
    for record in parse_file::<DFColumnType>(&file.path)? {
        let (loc, sql) = match &record {
            Record::Halt { .. } => break,
            Record::Statement { loc, sql, .. } | Record::Query { loc, sql, .. } => (loc, sql),
            other => {
                // What sets the runner itself: conditions, order of rows, substitution.
                let _ = runner.apply_record(other.clone()).await;
                continue;
            }
        };
        run.lacks_data |= lacks_data(sql);
        let place = place(loc);
        let kind = engine.work(sql).kind;
        let verdict = verdict(&mut runner, record, kind, mode).await;
        run.outcomes.push(Outcome { place, kind, seen: engine.seen(), verdict });
    }
    run.tables = engine.tables().await;
    Ok(Some(run))
}

async fn verdict<M: MakeConnection<Conn = Engine>>(
    runner: &mut Runner<Engine, M>,
    record: Record<DFColumnType>,
    kind: Kind,
    mode: Mode,
) -> Verdict {
    let is_plan = matches!(&record, Record::Query { expected: QueryExpect::Results { .. }, .. })
        && kind == Kind::Explain
        && mode != Mode::Engine;
    if is_plan {
        // Ours is another plan.
        return match runner.apply_record(record).await {
            RecordOutput::Nothing => Verdict::Skipped,
            RecordOutput::Query { error: Some(error), .. } | RecordOutput::Statement { error: Some(error), .. } => {
                Verdict::Differs(format!("the plan cannot be made: {error}"))
            }
            _ => Verdict::Same,
        };
    }
    match runner.run_async(record).await {
        Ok(RecordOutput::Nothing) => Verdict::Skipped,
        Ok(_) => Verdict::Same,
        Err(error) => match error.kind() {
            TestErrorKind::QueryResultMismatch { expected, actual, .. }
                if kind == (Kind::Select { is_ordered: false }) && sorted(&expected) == sorted(&actual) =>
            {
                Verdict::OtherOrder
            }
            kind => Verdict::Differs(kind.to_string()),
        },
    }
}

/// The lines of rows, without the order that they came in.
fn sorted(rows: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = rows.lines().map(str::trim_end).collect();
    lines.sort_unstable();
    lines
}

/// Where a record is: `file:line`, and for one of an included file where that was included.
fn place(loc: &Location) -> String {
    let text = loc.to_string().replace("/./", "/");
    let within = |line: &str| {
        let line = line.trim().trim_start_matches("at ").trim();
        line.rsplit_once("test_files/").map_or(line, |(_, within)| within).to_owned()
    };
    text.lines().map(within).collect::<Vec<_>>().join(" in ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A file of statements in a folder of files, as the suite has them.
    fn written(text: &str) -> (TempDir, SuiteFile) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("test_files/of_ours.slt");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        (folder, SuiteFile { path, name: "of_ours.slt".to_owned() })
    }

    async fn verdicts(text: &str, mode: Mode) -> Vec<(String, Kind, bool, Verdict)> {
        let (folder, file) = written(text);
        let theirs = TestContext::try_new_for_test_file(Path::new(&file.name)).await.unwrap();
        let session = session::ours(theirs.session_ctx(), &file.name, mode == Mode::IndexOn).await.unwrap();
        let engine = Engine::ours(session, folder.path().join("tables"), false);
        let mut runner = Runner::new(|| async { Ok::<Engine, Failure>(engine.clone()) });
        runner.with_column_validator(strict_column_validator);
        runner.with_normalizer(value_normalizer);
        runner.with_validator(df_value_validator);
        let mut found = Vec::new();
        for record in parse_file::<DFColumnType>(&file.path).unwrap() {
            let (loc, sql) = match &record {
                Record::Statement { loc, sql, .. } | Record::Query { loc, sql, .. } => (loc, sql),
                _ => continue,
            };
            let (place, kind) = (place(loc), engine.work(sql).kind);
            let verdict = verdict(&mut runner, record, kind, mode).await;
            found.push((place, kind, engine.seen().reaches_ours, verdict));
        }
        found
    }

    const FILE: &str = "\
statement ok
CREATE TABLE t AS VALUES (1, 'a'), (2, 'b'), (3, NULL), (4, 'd')

query I
SELECT count(*) FROM t
----
4

query IT
SELECT * FROM t WHERE column1 >= 3 ORDER BY column1
----
3 NULL
4 d

query I
SELECT column1 FROM t WHERE column1 < 3
----
2
1

query I
SELECT column1 FROM t WHERE column1 = 2
----
3

query TT
EXPLAIN SELECT * FROM t
----
no such plan

query error DataFusion error: Error during planning: table 'datafusion.public.nothing' not found
SELECT * FROM nothing
";

    #[tokio::test]
    async fn records_are_judged_over_tables_of_ours() {
        for mode in [Mode::IndexOn, Mode::IndexOff] {
            let found = verdicts(FILE, mode).await;
            let verdicts: Vec<&Verdict> = found.iter().map(|(_, _, _, verdict)| verdict).collect();
            assert_eq!(verdicts[..4], [&Verdict::Same, &Verdict::Same, &Verdict::Same, &Verdict::OtherOrder]);
            assert!(matches!(verdicts[4], Verdict::Differs(text) if text.contains('3')), "{:?}", verdicts[4]);
            assert_eq!(verdicts[5..], [&Verdict::Same, &Verdict::Same]);
            let reaching: Vec<bool> = found.iter().map(|(_, _, reaches_ours, _)| *reaches_ours).collect();
            assert_eq!(reaching[1..5], [true; 4], "{mode:?}");
            assert_eq!(found[1].0, "of_ours.slt:4");
        }
    }
}
