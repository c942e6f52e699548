//! The clock. Nothing else of the crate reads it, which a lint holds (`rust/clippy.toml`), so that tests may set it.
//!
//! [`now`] is the time of day, by which files count as old or young. A [`Stopwatch`] says how long something took, for reports and for
//! what is done from time to time.

use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Utc};

#[cfg(feature = "failpoints")]
use crate::storage::disk::gate;

/// The time. Tests set it ahead.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
pub fn now() -> SystemTime {
    #[cfg(feature = "failpoints")]
    return SystemTime::now() + gate::ahead();
    #[cfg(not(feature = "failpoints"))]
    SystemTime::now()
}

/// The same as a date.
pub(crate) fn utc() -> DateTime<Utc> {
    now().into()
}

/// Runs from its start.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that measures how long something takes")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// What is left of a time that began with it.
    pub(crate) fn left_of(self, time: Duration) -> Duration {
        time.saturating_sub(self.0.elapsed())
    }

    /// Seconds since its start.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}
