//! Following a table: what is new is built, as soon as somebody looks.
//!
//! ```text
//! look ─▶ one listing, or one look at the Delta log ─┬─ as after the last build ─▶ nothing to do
//!                                                    └─ something is another one ─▶ build ─▶ commit
//! pause ─▶ how long to wait for the next look: `every`, give or take a tenth; after failures twice as long each time
//! ```
//!
//! A [`Watch`] neither sleeps nor reads the clock to decide anything: whoever has it waits between two looks, for as long as
//! [`Watch::pause`] says.
//!
//! Uses `table` and `updates`, and nothing of the crate uses it.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::metrics::IndexCoverage;
use crate::options::BuildOptions;
use crate::report::BuildReport;
use crate::storage::clock;
use crate::storage::ids::new_id;
use crate::table::Table;
use crate::updates;

/// After failures nobody waits longer than this, unless looks are further apart anyway.
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);

/// The share of a pause that chance makes longer or shorter, so that several watches do not look at the same time for ever.
const JITTER: f64 = 0.1;

/// Follows a table.
pub struct Watch {
    table: Arc<Table>,
    options: BuildOptions,
    pauses: Pauses,
    /// What the last build that went well saw, or something older.
    built: Option<Built>,
}

/// What a look found and did.
#[derive(Clone, Debug)]
pub struct Look {
    /// How much the indexes cover now.
    pub coverage: IndexCoverage,
    /// What was built; none if there was nothing to do.
    pub report: Option<BuildReport>,
}

impl Look {
    /// How many data files could not be indexed; the next look tries them again.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.failed.len())
    }
}

impl Watch {
    /// A watch that looks every so often. The options are those of each build.
    #[must_use]
    pub fn new(table: Arc<Table>, options: BuildOptions, every: Duration) -> Self {
        Self { table, options, pauses: Pauses { every, failures: 0 }, built: None }
    }

    /// The table that it follows.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Looks once, and builds what is new. The first look builds in any case, which also finds segments that were lost. A table that is as
    /// it was costs one listing, or one look at its Delta log.
    ///
    /// # Errors
    /// Those of a snapshot and of a build. The next look tries again.
    pub async fn look(&mut self) -> Result<Look> {
        let outcome = self.look_once().await;
        self.pauses.count(outcome.as_ref().is_ok_and(|look| look.failed() == 0));
        outcome
    }

    async fn look_once(&mut self) -> Result<Look> {
        let readable = updates::pin_to_build(&self.table.updates).await?;
        let coverage = readable.index_coverage();
        self.table.metrics().set_coverage(coverage.clone(), clock::now());
        // What arrives after this snapshot is another state, which the next look sees, whether the build takes it in or not.
        let state = readable.build_state();
        let is_due = match self.built {
            None => true,
            Some(built) => built.is_due(state, coverage.uncovered_files),
        };
        if coverage.indexes.is_empty() || !is_due {
            return Ok(Look { coverage, report: None });
        }
        let report = self.table.build(self.options.clone()).await?;
        let coverage = self.table.index_coverage().await?;
        self.table.metrics().set_coverage(coverage.clone(), clock::now());
        let look = Look { coverage, report: Some(report) };
        self.built = (look.failed() == 0).then_some(Built { state, left: look.coverage.uncovered_files });
        Ok(look)
    }

    /// How long to wait until the next look.
    #[must_use]
    pub fn pause(&self) -> Duration {
        let drawn = new_id().as_u128() as u32;
        self.pauses.next(f64::from(drawn) / f64::from(u32::MAX))
    }
}

/// What the last build saw, and left.
#[derive(Clone, Copy, Debug)]
struct Built {
    state: u64,
    /// Files that it could not cover, such as those whose columns an index cannot take.
    left: u64,
}

impl Built {
    /// Whether there is something to build: other files or indexes, or coverage that was lost meanwhile.
    fn is_due(self, state: u64, uncovered: u64) -> bool {
        uncovered > 0 && (self.state != state || uncovered > self.left)
    }
}

/// How long the pauses are.
#[derive(Debug)]
struct Pauses {
    every: Duration,
    /// Looks in a row that failed.
    failures: u32,
}

impl Pauses {
    fn count(&mut self, is_ok: bool) {
        self.failures = if is_ok { 0 } else { self.failures.saturating_add(1) };
    }

    /// The next pause; `drawn` is a number from 0 to 1.
    fn next(&self, drawn: f64) -> Duration {
        let longest = self.every.max(LONGEST_PAUSE);
        let doubled = 2u32.saturating_pow(self.failures).max(1);
        let pause = self.every.checked_mul(doubled).unwrap_or(longest).min(longest);
        pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(30);

    fn after(outcomes: &[bool]) -> Duration {
        let mut pauses = Pauses { every: EVERY, failures: 0 };
        outcomes.iter().for_each(|is_ok| pauses.count(*is_ok));
        pauses.next(0.5)
    }

    #[test]
    fn pauses_double_with_each_failure_up_to_a_quarter_of_an_hour() {
        assert_eq!(after(&[]), EVERY);
        assert_eq!(after(&[true, true]), EVERY);
        assert_eq!(after(&[false]), 2 * EVERY);
        assert_eq!(after(&[false, false, false]), 8 * EVERY);
        assert_eq!(after(&[false; 5]), LONGEST_PAUSE);
        assert_eq!(after(&[false; 5000]), LONGEST_PAUSE);
        assert_eq!(after(&[false, false, true]), EVERY, "one look that goes well is enough");
    }

    #[test]
    fn who_looks_once_a_day_goes_on_to_after_failures() {
        let day = Duration::from_secs(24 * 60 * 60);
        let pauses = Pauses { every: day, failures: 40 };
        assert_eq!(pauses.next(0.5), day);
    }

    #[test]
    fn chance_moves_a_pause_by_a_tenth_at_most() {
        let pauses = Pauses { every: EVERY, failures: 0 };
        assert_eq!(pauses.next(0.0), Duration::from_secs(27));
        assert_eq!(pauses.next(1.0), Duration::from_secs(33));
    }
}
