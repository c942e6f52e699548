//! `fuzz-queries [TRIALS] [SEED]`: random predicates over random tables, with the marks on and off.
//!
//! Prints every difference cut down and with its seed, and at the end `N passed, M failed`; exits with 1 if any failed.

#[path = "../tests/it/differential/mod.rs"]
mod differential;

use std::process::ExitCode;

const DEFAULT_TRIALS: u64 = 10_000;
const DEFAULT_SEED: u64 = 1;

#[tokio::main]
async fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Ok(trials), Ok(seed)) =
        (numbers.next().unwrap_or(Ok(DEFAULT_TRIALS)), numbers.next().unwrap_or(Ok(DEFAULT_SEED)))
    else {
        eprintln!("usage: fuzz-queries [TRIALS] [SEED]");
        return ExitCode::from(2);
    };
    println!("{trials} trials, {} per table, seed {seed}", differential::TRIALS_PER_TABLE);
    let summary = differential::run(trials, seed).await;
    println!("{} passed, {} failed", summary.passed, summary.failed);
    ExitCode::from(u8::from(summary.failed > 0))
}
