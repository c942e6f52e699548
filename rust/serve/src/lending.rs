//! Turns that are lent: a query whose rows nobody takes gives its turn to others, and has one again when its client comes.
//!
//! And turns that several have: queries of one statement whose rows are computed once. The turn is for others when the last one gave it away, so
//! that whatever runs has a turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_datafusion::StatementId;

use crate::turns::{NoTurn, Turn, Turns};

/// The turn of a query that may lend it.
pub(crate) struct Lendable {
    turns: Arc<Turns>,
    client: Arc<str>,
    hold: Hold,
}

/// Where the turn is.
pub(crate) enum Hold {
    /// Here.
    Has { _turn: Arc<Turn> },
    /// With others.
    Lent,
    /// On its way back.
    Coming(BoxFuture<'static, Result<Turn, NoTurn>>),
}

impl Lendable {
    /// The turn of a client's query, which others may have as well.
    pub(crate) fn new(turns: &Arc<Turns>, client: &Arc<str>, turn: impl Into<Arc<Turn>>) -> Self {
        Self { turns: Arc::clone(turns), client: Arc::clone(client), hold: Hold::Has { _turn: turn.into() } }
    }

    /// Ready once the turn is here; it is asked for if it was lent. After an error there is none any more.
    pub(crate) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoTurn>> {
        loop {
            self.hold = match &mut self.hold {
                Hold::Has { .. } => return Poll::Ready(Ok(())),
                Hold::Lent => Hold::Coming(Arc::clone(&self.turns).again(Arc::clone(&self.client)).boxed()),
                Hold::Coming(coming) => Hold::Has { _turn: Arc::new(ready!(coming.poll_unpin(context))?) },
            };
        }
    }

    /// Lends the turn; others have it as soon as what this gives is dropped.
    pub(crate) fn lend(&mut self) -> Hold {
        std::mem::replace(&mut self.hold, Hold::Lent)
    }
}

/// The turns of statements that run, for others who ask the same.
#[derive(Debug, Default)]
pub(crate) struct SharedTurns(Mutex<HashMap<StatementId, Weak<Turn>>>);

impl SharedTurns {
    fn known(&self) -> MutexGuard<'_, HashMap<StatementId, Weak<Turn>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn that a statement runs with, if there is one.
    pub(crate) fn of(&self, statement: StatementId) -> Option<Arc<Turn>> {
        self.known().get(&statement).and_then(Weak::upgrade)
    }

    /// A statement runs with a turn, unless it runs with another one.
    pub(crate) fn put(&self, statement: StatementId, turn: &Arc<Turn>) {
        let mut known = self.known();
        known.retain(|_, turn| turn.strong_count() > 0);
        known.entry(statement).or_insert_with(|| Arc::downgrade(turn));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_turn_that_several_have_is_for_others_when_the_last_one_gave_it_away() {
        let (turns, client) = (Turns::new(1, 1, Duration::ZERO), Arc::<str>::from("ann"));
        let turn = Arc::new(turns.take(&client).await.unwrap());
        let of = |turn: Arc<Turn>| Lendable::new(&turns, &client, turn);
        let (mut one, other) = (of(Arc::clone(&turn)), of(turn));
        drop(one.lend());
        assert_eq!(turns.load().running, 1);
        drop(other);
        assert_eq!(turns.load().running, 0);
        // Who lent it has one again, of its own.
        assert!(std::future::poll_fn(|context| one.poll_turn(context)).await.is_ok());
        assert_eq!(turns.load().running, 1);
    }
}
