//! States of tables that statements have read and are going to change: Java names them by numbers.
//!
//! Numbers ascend, so that the least of several numbers names the oldest state. Statements that never wrote leave their numbers behind, so
//! that only the last ones are remembered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use lakemark_table::Snapshot;

/// States that are remembered: more than statements of a driver that read and have not written yet.
const CAPACITY: usize = 256;

static POINTS: Mutex<Points> = Mutex::new(Points { next: 0, last: VecDeque::new() });

/// The states that are remembered.
struct Points {
    /// The number of the next one.
    next: u64,
    /// The last ones, the oldest first.
    last: VecDeque<ReadPoint>,
}

/// A state that a statement has read.
struct ReadPoint {
    /// What Java calls it.
    number: u64,
    /// The state.
    snapshot: Arc<Snapshot>,
}

/// Remembers a state; gives its number.
pub(crate) fn remember(snapshot: Arc<Snapshot>) -> u64 {
    let mut points = POINTS.lock().unwrap_or_else(PoisonError::into_inner);
    let number = points.next;
    points.next += 1;
    if points.last.len() >= CAPACITY {
        points.last.pop_front();
    }
    points.last.push_back(ReadPoint { number, snapshot });
    number
}

/// The state of a number, unless too many came after it.
pub(crate) fn recall(number: u64) -> Option<Arc<Snapshot>> {
    let points = POINTS.lock().unwrap_or_else(PoisonError::into_inner);
    points.last.iter().find(|point| point.number == number).map(|point| Arc::clone(&point.snapshot))
}
