//! The clock. Nothing else of the crate reads it, which a lint holds (`rust/clippy.toml`), so that tests may set it.
//!
//! [`now`] is the time of day, by which files count as old or young. A [`Moment`] says how long ago something was, whatever becomes of the
//! time of day. A [`Stopwatch`] says how long something took, for reports and for what is done from time to time.

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

/// A moment by a clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Instant);

impl Moment {
    /// Now. Tests set it ahead.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock that never goes back")]
    pub(crate) fn now() -> Self {
        let now = Instant::now();
        #[cfg(feature = "failpoints")]
        let now = now + gate::ahead();
        #[cfg(test)]
        let now = now + stepped::ahead();
        Self(now)
    }

    /// Whether less time than this has passed since.
    pub(crate) fn is_within(self, limit: Duration) -> bool {
        Self::now().0.saturating_duration_since(self.0) < limit
    }
}

/// The clock of a test's thread.
#[cfg(test)]
pub(crate) mod stepped {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(super) fn ahead() -> Duration {
        AHEAD.get()
    }

    /// Sets the clock ahead.
    pub(crate) fn step(by: Duration) {
        AHEAD.set(AHEAD.get() + by);
    }
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
