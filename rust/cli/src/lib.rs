#![doc = include_str!("../README.md")]

mod advise;
pub mod args;
mod completions;
mod doctor;
mod execute;
mod exporter;
pub mod failure;
mod info;
mod input;
mod job;
mod links;
mod log;
mod maintain;
pub mod output;
mod pointed;
mod progress;
mod prompt;
mod queries;
mod reached;
mod serve;
mod shell;
pub mod statements;
mod stop;
mod stores;
mod updates;
mod watch;

use std::ffi::OsString;

use clap::Parser;
use lakemark_table::Operation;

use crate::args::{Cli, IndexVerb, Verb};
use crate::failure::{DONE, FAILED, Failure, WRONG_USAGE};
use crate::log::Log;

/// The stack of a thread. Parts of the engine go down a condition by one call a level, and `serve` takes 4,000 of them.
const STACK_BYTES: usize = 16 << 20;

/// Runs one command line, program name first, and returns its exit code: 0 done, 1 failed, 2 wrong usage, 3 built but for files that could
/// not be indexed, 4 `doctor` found something that asks for somebody, 130 Ctrl-C.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // --help and --version come this way too, and are no error.
        Err(said) => {
            let code = if said.use_stderr() { WRONG_USAGE } else { DONE };
            return if said.print().is_ok() { code } else { FAILED };
        }
    };
    let log = Log::begin(cli.verb.as_ref().and_then(Verb::lines));
    let runtime = match tokio::runtime::Builder::new_multi_thread().thread_stack_size(STACK_BYTES).enable_all().build()
    {
        Ok(runtime) => runtime,
        Err(error) => return report(log, &Failure::Error(format!("threads cannot be started: {error}"))),
    };
    let outcome = runtime.block_on(dispatch(cli, log));
    // A task that still reads must not hold up the exit.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => DONE,
        Err(failure) => report(log, &failure),
    }
}

async fn dispatch(cli: Cli, log: Log) -> Result<(), Failure> {
    match cli.verb {
        None => shell::sql(cli.sql).await,
        Some(Verb::Sql(sql)) => shell::sql(sql).await,
        Some(Verb::Index(IndexVerb::Create(create))) => maintain::create(create).await,
        Some(Verb::Index(IndexVerb::Advise(advise))) => advise::advise(advise).await,
        Some(Verb::Index(IndexVerb::Build(build))) => maintain::build(build, log).await,
        Some(Verb::Index(IndexVerb::Compact(compact))) => maintain::compact(compact, log).await,
        Some(Verb::Index(IndexVerb::Watch(watch))) => watch::watch(watch, log).await,
        Some(Verb::Index(IndexVerb::List(list))) => maintain::list(list).await,
        Some(Verb::Index(IndexVerb::Drop(drop))) => maintain::drop_index(drop).await,
        Some(Verb::Index(IndexVerb::Verify(verify))) => maintain::verify(verify).await,
        Some(Verb::Count(count)) => queries::count(count).await,
        Some(Verb::Lookup(lookup)) => queries::lookup(lookup).await,
        Some(Verb::Links(walk)) => links::links(walk).await,
        Some(Verb::Explain(explain)) => queries::explain(explain).await,
        Some(Verb::Key(key)) => updates::key(key).await,
        Some(Verb::Insert(change)) => updates::change(Operation::Insert, change).await,
        Some(Verb::Upsert(change)) => updates::change(Operation::Upsert, change).await,
        Some(Verb::Update(change)) => updates::change(Operation::Update, change).await,
        Some(Verb::Delete(change)) => updates::change(Operation::Delete, change).await,
        Some(Verb::Flush(flush)) => updates::flush(flush).await,
        Some(Verb::Repair(repair)) => updates::repair(repair).await,
        Some(Verb::Migrate(migrate)) => updates::migrate(migrate, log).await,
        Some(Verb::History(history)) => maintain::history(history).await,
        Some(Verb::Info(info)) => info::info(info).await,
        Some(Verb::Doctor(doctor)) => doctor::doctor(doctor).await,
        Some(Verb::Serve(serve)) => serve::serve(serve, log).await,
        Some(Verb::Vacuum(vacuum)) => maintain::vacuum(vacuum).await,
        Some(Verb::Completions(completions)) => completions::completions(&completions),
    }
}

fn report(log: Log, failure: &Failure) -> i32 {
    log.failure(failure);
    failure.exit_code()
}
