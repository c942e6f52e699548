//! Turns that are lent: a query whose rows nobody takes gives its turn to others, and has one again when its client comes.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::BoxFuture;

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
    Has { _turn: Turn },
    /// With others.
    Lent,
    /// On its way back.
    Coming(BoxFuture<'static, Result<Turn, NoTurn>>),
}

impl Lendable {
    /// The turn of a client's query.
    pub(crate) fn new(turns: &Arc<Turns>, client: &Arc<str>, turn: Turn) -> Self {
        Self { turns: Arc::clone(turns), client: Arc::clone(client), hold: Hold::Has { _turn: turn } }
    }

    /// Ready once the turn is here; it is asked for if it was lent. After an error there is none any more.
    pub(crate) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoTurn>> {
        loop {
            self.hold = match &mut self.hold {
                Hold::Has { .. } => return Poll::Ready(Ok(())),
                Hold::Lent => Hold::Coming(Arc::clone(&self.turns).again(Arc::clone(&self.client)).boxed()),
                Hold::Coming(coming) => Hold::Has { _turn: ready!(coming.poll_unpin(context))? },
            };
        }
    }

    /// Lends the turn; others have it as soon as what this gives is dropped.
    pub(crate) fn lend(&mut self) -> Hold {
        std::mem::replace(&mut self.hold, Hold::Lent)
    }
}
