//! `fuzz-queries [TRIALS] [SEED] [TRIAL]`: random predicates over random tables, with the marks on and off.
//!
//! Prints every difference cut down and with the command that brings it back, and at the end `N passed, M failed`; exits
//! with 1 if any failed. With a third number only that trial of the seed's table is run.

#[path = "../tests/it/differential/mod.rs"]
mod differential;

use std::process::ExitCode;

const DEFAULT_TRIALS: u64 = 10_000;
const DEFAULT_SEED: u64 = 1;

fn main() -> ExitCode {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let summary = match numbers.as_deref() {
        Ok([_, seed, trial]) => differential::run_one(*seed, *trial),
        Ok(given @ ([] | [_] | [_, _])) => {
            let trials = given.first().copied().unwrap_or(DEFAULT_TRIALS);
            let seed = given.get(1).copied().unwrap_or(DEFAULT_SEED);
            println!("{trials} trials, {} per table, seed {seed}", differential::TRIALS_PER_TABLE);
            differential::run(trials, seed)
        }
        _ => {
            eprintln!("usage: fuzz-queries [TRIALS] [SEED] [TRIAL]");
            return ExitCode::from(2);
        }
    };
    println!("{} passed, {} failed", summary.passed, summary.failed);
    ExitCode::from(u8::from(summary.failed > 0))
}
