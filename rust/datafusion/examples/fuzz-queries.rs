//! `fuzz-queries write FOLDER STATEMENTS SEED`: such statements with their tables and answers, for another engine to judge.
//!
//! `fuzz-queries [joins] [TRIALS] [SEED] [TRIAL]`: random predicates over random tables, or with `joins` random statements over several
//! tables, with the indexes on and off.
//!
//! Prints every difference cut down and with the command that brings it back, and at the end `N passed, M failed`; exits
//! with 1 if any failed. With a third number only that trial of the seed's table is run.

#![allow(clippy::restriction, clippy::disallowed_methods, reason = "a program that is run by hand")]

#[path = "../tests/it/differential/mod.rs"]
mod differential;

use std::path::Path;
use std::process::ExitCode;

use differential::{TRIALS_PER_TABLE, joins};

const DEFAULT_TRIALS: u64 = 10_000;
const DEFAULT_SEED: u64 = 1;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, folder, statements, seed] = words.as_slice()
        && word == "write"
        && let (Ok(statements), Ok(seed)) = (statements.parse(), seed.parse())
    {
        joins::write(Path::new(folder), statements, seed);
        return ExitCode::SUCCESS;
    }
    let is_joins = words.first().is_some_and(|word| word == "joins");
    if is_joins {
        words.remove(0);
    }
    let numbers: Result<Vec<u64>, _> = words.iter().map(|text| text.parse()).collect();
    let summary = match (numbers.as_deref(), is_joins) {
        (Ok([_, seed, trial]), false) => differential::run_one(*seed, *trial),
        (Ok([_, seed, trial]), true) => joins::run_one(*seed, *trial),
        (Ok(given @ ([] | [_] | [_, _])), _) => {
            let trials = given.first().copied().unwrap_or(DEFAULT_TRIALS);
            let seed = given.get(1).copied().unwrap_or(DEFAULT_SEED);
            let (of_what, each) =
                if is_joins { ("statements", joins::STATEMENTS_PER_SEED) } else { ("trials", TRIALS_PER_TABLE) };
            println!("{trials} {of_what}, {each} per table, seed {seed}");
            if is_joins { joins::run(trials, seed) } else { differential::run(trials, seed) }
        }
        _ => {
            eprintln!(
                "usage: fuzz-queries [joins] [TRIALS] [SEED] [TRIAL] | fuzz-queries write FOLDER STATEMENTS SEED"
            );
            return ExitCode::from(2);
        }
    };
    println!("{} passed, {} failed", summary.passed, summary.failed);
    ExitCode::from(u8::from(summary.failed > 0))
}
