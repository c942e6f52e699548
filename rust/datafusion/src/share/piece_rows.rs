//! The rows of a piece: as a scan planned them, or as a set.
//!
//! ```text
//! planned    so many rows, which nobody looked at        read alone as they were planned
//! chosen     a set of rows                               what others want some of, or what is left of that
//! ```
//!
//! To make a set of planned rows takes time with each run of them, and with each page that zone maps are asked about. Whoever reads few rows
//! alone needs neither, so that it is made once somebody else wants rows of the row group, or may enter where they are read.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lakemark_table::{RowSet, RowsToRead};

/// Rows of a row group, which is their universe.
#[derive(Clone, Debug)]
pub(crate) enum PieceRows {
    Planned(Arc<PlannedRows>),
    Chosen(ChosenRows),
}

impl PieceRows {
    /// How many they are, or more as long as nobody looked at them.
    pub(crate) fn most(&self) -> u32 {
        match self {
            Self::Planned(planned) => planned.most,
            Self::Chosen(chosen) => chosen.set.len(),
        }
    }

    /// Whether the set is there.
    pub(crate) fn is_seen(&self) -> bool {
        match self {
            Self::Planned(planned) => planned.chosen.get().is_some(),
            Self::Chosen(_) => true,
        }
    }

    /// In how many runs they lie, or were planned as long as nobody looked at them.
    pub(crate) fn runs(&self) -> f64 {
        match self {
            Self::Planned(planned) if !self.is_seen() => planned.runs as f64,
            Self::Planned(_) | Self::Chosen(_) => self.chosen().to_read().runs,
        }
    }

    /// About what reading them takes, as far as it can be said without a look at them.
    pub(crate) fn to_read_roughly(&self) -> RowsToRead {
        match self {
            Self::Planned(planned) if !self.is_seen() => {
                RowsToRead::spread(planned.among, planned.most, planned.runs as f64)
            }
            Self::Planned(_) | Self::Chosen(_) => self.chosen().to_read(),
        }
    }

    /// The set.
    pub(crate) fn chosen(&self) -> &ChosenRows {
        match self {
            Self::Planned(planned) => planned.chosen(),
            Self::Chosen(chosen) => chosen,
        }
    }
}

/// A set of rows.
#[derive(Clone, Debug)]
pub(crate) struct ChosenRows {
    pub(crate) set: RowSet,
    /// Counted when somebody asks what it costs to read them.
    to_read: OnceLock<RowsToRead>,
}

impl ChosenRows {
    pub(crate) fn new(set: RowSet) -> Self {
        Self { set, to_read: OnceLock::new() }
    }

    pub(crate) fn to_read(&self) -> RowsToRead {
        *self.to_read.get_or_init(|| RowsToRead::of(&self.set))
    }
}

/// Rows as a scan planned them.
pub(crate) struct PlannedRows {
    most: u32,
    runs: usize,
    /// The rows of the row group.
    among: u32,
    find: Box<dyn Fn() -> RowSet + Send + Sync>,
    chosen: OnceLock<ChosenRows>,
}

impl PlannedRows {
    /// At most so many rows. `find` makes a set of them, for whichever query asks first. It must not panic.
    pub(crate) fn new(most: u32, find: impl Fn() -> RowSet + Send + Sync + 'static) -> Self {
        Self { most, runs: 1, among: most, find: Box::new(find), chosen: OnceLock::new() }
    }

    /// The same rows, which were planned in so many runs.
    pub(crate) fn in_runs(self, runs: usize) -> Self {
        Self { runs, ..self }
    }

    /// The same rows, of a row group that has so many.
    pub(crate) fn among(self, rows: u32) -> Self {
        Self { among: rows, ..self }
    }

    fn chosen(&self) -> &ChosenRows {
        self.chosen.get_or_init(|| ChosenRows::new((self.find)()))
    }
}

impl fmt::Debug for PlannedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedRows").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn planned_rows_are_looked_at_once_and_only_if_somebody_asks() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let planned = PlannedRows::new(7, move || {
            counted.fetch_add(1, Ordering::SeqCst);
            RowSet::from_range(2..5, 10)
        });
        let planned = planned.in_runs(4);
        let (one, other) = {
            let rows = PieceRows::Planned(Arc::new(planned));
            (rows.clone(), rows)
        };
        assert_eq!((one.most(), one.runs(), one.is_seen(), looks.load(Ordering::SeqCst)), (7, 4.0, false, 0));
        assert_eq!((one.chosen().set.len(), other.chosen().to_read().selected), (3, 3.0));
        assert_eq!((other.most(), other.runs(), other.is_seen(), looks.load(Ordering::SeqCst)), (7, 1.0, true, 1));
    }
}
