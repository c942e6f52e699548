//! Queries that were prepared lately. A driver that closes a statement after its run prepares the text again for the next one, as a dashboard
//! does all day: its plan is still there then. It holds no state of a table.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use lakemark_datafusion::PreparedQuery;

/// How many of them there are, those of all clients.
const MOST: usize = 64;
/// Bytes of the longest text: a plan takes some thirty times the bytes of its text.
const LONGEST: usize = 4 << 10;

/// The queries that were prepared last, the latest first.
#[derive(Default)]
pub(crate) struct Recent(Mutex<VecDeque<Arc<PreparedQuery>>>);

impl Recent {
    /// A query of this text was prepared.
    pub(crate) fn add(&self, text: &str, prepared: &Arc<PreparedQuery>) {
        if text.len() > LONGEST || !prepared.has_plan() {
            return;
        }
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = recent.iter().position(|known| Arc::ptr_eq(known, prepared));
        let before = place.and_then(|place| recent.remove(place));
        recent.push_front(Arc::clone(prepared));
        let oldest = if recent.len() > MOST { recent.pop_back() } else { None };
        drop(recent);
        // What nobody else has goes where nothing is locked.
        drop((before, oldest));
    }
}

#[cfg(test)]
mod tests {
    use lakemark_datafusion::LakemarkSession;

    use super::*;

    #[tokio::test]
    async fn the_queries_that_were_prepared_last_are_there_and_no_others() {
        let (session, recent) = (LakemarkSession::new(), Recent::default());
        let prepare = async |text: &str| {
            let (_, prepared) = session.prepare(text).await.unwrap();
            recent.add(text, &prepared);
        };
        let text = |number: usize| format!("SELECT {number}");
        for number in 0..=MOST {
            // The first one is prepared over and over.
            for text in [text(0), text(number)] {
                prepare(&text).await;
            }
        }
        let there = (0..=MOST).filter(|number| session.has_prepared(&text(*number)));
        assert_eq!(there.collect::<Vec<_>>(), [vec![0], (2..=MOST).collect()].concat());
        let long = format!("SELECT '{}'", "x".repeat(LONGEST));
        for text in [long.as_str(), "SELECT now()", "SHOW ALL"] {
            prepare(text).await;
            assert!(!session.has_prepared(text), "{text}");
        }
    }
}
