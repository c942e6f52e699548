//! DataFusion's own suite of SQL, over tables of ours.
//!
//! `lakemark-sqllogic [FILES]`: runs the files of `datafusion-sqllogictest` whose names contain one of the words, or all of them.
//! Each file is run three times:
//!
//! ```text
//! as the suite itself runs it ─▶ what needs data that is not here, and what the engine answers otherwise here
//! over tables of ours, index on  ┐
//! over tables of ours, index off ┴▶ equal to what the suite expects, or listed in `differences.toml` with a reason
//! ```
//!
//! Invariant: a difference that is not listed fails the run, and so does one that is listed and no longer there.

mod counts;
mod differences;
mod engine;
mod records;
mod session;
mod statement;
mod suite;
mod tables;
mod written;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use futures::StreamExt;
use futures::stream;

use counts::Counts;
use differences::{Found, List};
use records::{FileRun, Mode, Verdict};
use suite::{Suite, SuiteFile};

/// What went wrong with a run itself.
type Problem = Box<dyn Error + Send + Sync>;

/// The result of what a run is made of.
type Result<T, E = Problem> = std::result::Result<T, E>;

/// How many differences are shown on the screen; the file has all of them.
const SHOWN: usize = 20;

fn main() -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).collect();
    match run(&filters) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything is as the suite or the list says.
fn run(filters: &[String]) -> Result<bool> {
    let place =
        PathBuf::from(std::env::var("LAKEMARK_CACHE").map_err(|_| "set LAKEMARK_CACHE to a folder to work in")?)
            .join("sqllogic");
    let list = List::read(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("differences.toml"))?;
    let suite = Suite::prepare(&place)?;
    let files = suite.files(filters)?;
    if files.is_empty() {
        return Err(
            format!("no file of the suite has one of {filters:?} in its name; leave them out to run all").into()
        );
    }
    // The suite names its data from here.
    std::env::set_current_dir(&suite.folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(8 << 20).build()?;
    let (counts, found) = runtime.block_on(run_files(files))?;

    println!("{counts}");
    let mut wrong = list.compare(&found, |file| counts.ran(file));
    if filters.is_empty() && !counts.enough_selects_reach_our_scan() {
        wrong.push("fewer than half of the SELECTs over tables reach a scan of ours".to_owned());
    }
    found.write_unlisted(&list, &place.join("unlisted"))?;
    for text in wrong.iter().take(SHOWN) {
        println!("\n{text}");
    }
    if !wrong.is_empty() {
        println!(
            "\n{} in all; {} has every difference that is not listed",
            wrong.len(),
            place.join("unlisted").display()
        );
    }
    Ok(wrong.is_empty())
}

/// Runs the files, some at the same time.
async fn run_files(files: Vec<SuiteFile>) -> Result<(Counts, Found)> {
    // Files of one name write into one folder.
    let mut groups: BTreeMap<String, Vec<SuiteFile>> = BTreeMap::new();
    for file in files {
        groups.entry(file.stem().to_owned()).or_default().push(file);
    }
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut runs = stream::iter(groups.into_values()).map(run_group).buffer_unordered(at_once);
    let (mut counts, mut found) = (Counts::default(), Found::default());
    while let Some(group) = runs.next().await {
        for (file, runs) in group? {
            match runs {
                Some(runs) => judge(&file, &runs, &mut counts, &mut found),
                None => counts.left_out(&file),
            }
            eprintln!("{}", file.name);
        }
    }
    Ok((counts, found))
}

/// The three runs of a file.
struct Runs {
    engine: FileRun,
    on: FileRun,
    off: FileRun,
}

async fn run_group(files: Vec<SuiteFile>) -> Result<Vec<(SuiteFile, Option<Runs>)>> {
    let mut done = Vec::with_capacity(files.len());
    for file in files {
        let runs = run_file(&file).await.map_err(|problem| format!("{}: {problem}", file.name))?;
        done.push((file, runs));
    }
    Ok(done)
}

async fn run_file(file: &SuiteFile) -> Result<Option<Runs>> {
    let Some(engine) = records::run(file, Mode::Engine).await? else { return Ok(None) };
    let Some(on) = records::run(file, Mode::IndexOn).await? else { return Ok(None) };
    let Some(off) = records::run(file, Mode::IndexOff).await? else { return Ok(None) };
    if [on.outcomes.len(), off.outcomes.len()] != [engine.outcomes.len(); 2] {
        return Err("its runs have different numbers of records".into());
    }
    Ok(Some(Runs { engine, on, off }))
}

/// Compares the runs of a file, record by record.
fn judge(file: &SuiteFile, runs: &Runs, counts: &mut Counts, found: &mut Found) {
    counts.begin(file, &runs.on.tables);
    for ((engine, on), off) in runs.engine.outcomes.iter().zip(&runs.on.outcomes).zip(&runs.off.outcomes) {
        match &engine.verdict {
            Verdict::Skipped => counts.skipped += 1,
            Verdict::Differs(_) if runs.engine.lacks_data => counts.lacking_data += 1,
            Verdict::Differs(text) => {
                counts.engine_differs += 1;
                found.add(&engine.place, Mode::Engine, text);
            }
            Verdict::Same | Verdict::OtherOrder => {
                counts.compared(on, off);
                for (outcome, mode) in [(on, Mode::IndexOn), (off, Mode::IndexOff)] {
                    if let Verdict::Differs(text) = &outcome.verdict {
                        found.add(&outcome.place, mode, text);
                    }
                }
            }
        }
    }
}
