//! Turns: so many statements run at a time, and the others wait in a queue for each client.
//!
//! Whose turn ends gives it to the next client that waits, one statement each. So a client with a thousand statements does not keep one
//! with a single statement waiting for longer than a round. Where no more may wait, the youngest statement of the client that has most of
//! them makes room for one of a client that has fewer. A statement that lent its turn waits among those of its client, and is not refused.
//!
//! ```text
//! running 8 of 8       a: ▪▪▪▪▪▪▪▪▪   ─▶ a, b, c, a, c, a, a, …
//!                      b: ▪
//!                      c: ▪▪
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// Hands out turns.
#[derive(Debug)]
pub(crate) struct Turns {
    /// How many there are.
    all: usize,
    /// How many statements may wait for one.
    most_waiting: usize,
    /// How long they wait.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Turns that are taken.
    taken: usize,
    /// Clients that wait, in the order in which they are served.
    clients: VecDeque<Queue>,
    /// Statements that wait for their first turn.
    waiting: usize,
    /// Statements that wait for a turn again.
    returning: usize,
    /// Statements that were refused so far.
    refused: u64,
    /// Whether no turn is given any more.
    is_closed: bool,
}

impl State {
    /// Sends the youngest statement of the client with the most away, if this client has fewer also with one more; says whether it did.
    fn make_room(&mut self, client: &Arc<str>) -> bool {
        let mine = self.clients.iter().find(|queue| queue.client == *client).map_or(0, Queue::new_ones);
        let Some(longest) = self.clients.iter_mut().max_by_key(|queue| queue.new_ones()) else { return false };
        if longest.new_ones() <= mine + 1 {
            return false;
        }
        let youngest = longest.waiting.iter().rposition(|waiting| !waiting.returns);
        if youngest.and_then(|place| longest.waiting.remove(place)).is_some() {
            self.waiting -= 1;
        }
        true
    }

    /// Puts a statement at the end of its client's queue.
    fn enqueue(&mut self, client: &Arc<str>, waiting: Waiting) {
        *self.count(waiting.returns) += 1;
        match self.clients.iter_mut().find(|queue| queue.client == *client) {
            Some(queue) => queue.waiting.push_back(waiting),
            None => {
                self.clients.push_back(Queue { client: Arc::clone(client), waiting: VecDeque::from([waiting]) });
            }
        }
    }

    /// How many wait for a turn again, or for their first one.
    fn count(&mut self, returns: bool) -> &mut usize {
        if returns { &mut self.returning } else { &mut self.waiting }
    }
}

/// What waits of one client, in its order.
#[derive(Debug)]
struct Queue {
    client: Arc<str>,
    waiting: VecDeque<Waiting>,
}

impl Queue {
    /// How many had no turn so far.
    fn new_ones(&self) -> usize {
        self.waiting.iter().filter(|waiting| !waiting.returns).count()
    }
}

/// A statement that waits.
#[derive(Debug)]
struct Waiting {
    sender: oneshot::Sender<Turn>,
    /// Whether it had a turn, and lent it.
    returns: bool,
}

/// A turn; others get it when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<Arc<Turns>>);

/// Why there is no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Too many wait already.
    TooManyWait(usize),
    /// None came in time.
    TooLong(Duration),
    /// The server ends.
    Closed,
}

/// How many statements run and wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) refused: u64,
}

impl Turns {
    pub(crate) fn new(all: usize, most_waiting: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self { all, most_waiting, patience, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many run and wait.
    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        Load { running: state.taken, waiting: state.waiting + state.returning, refused: state.refused }
    }

    /// A turn for a statement of this client. Whoever gives up waiting loses the place.
    pub(crate) async fn take(self: &Arc<Self>, client: &Arc<str>) -> Result<Turn, NoTurn> {
        let mut place = match self.come(client, false)? {
            Came::Turn(turn) => return Ok(turn),
            Came::Place(place) => place,
        };
        let turn = tokio::time::timeout(self.patience, place.turn()).await;
        if self.state().is_closed {
            return Err(NoTurn::Closed);
        }
        match turn {
            Ok(Some(turn)) => Ok(turn),
            // It made room for another client.
            Ok(None) => {
                self.state().refused += 1;
                Err(NoTurn::TooManyWait(self.most_waiting))
            }
            Err(_) => {
                self.state().refused += 1;
                Err(NoTurn::TooLong(self.patience))
            }
        }
    }

    /// A turn for a statement that lent its own. It waits beside those that may wait, and for as long as it takes: its client has rows
    /// already, and would lose them.
    pub(crate) async fn again(self: Arc<Self>, client: Arc<str>) -> Result<Turn, NoTurn> {
        match self.come(&client, true)? {
            Came::Turn(turn) => Ok(turn),
            Came::Place(mut place) => place.turn().await.ok_or(NoTurn::Closed),
        }
    }

    /// A turn that is free, or a place in the queue.
    fn come(self: &Arc<Self>, client: &Arc<str>, returns: bool) -> Result<Came, NoTurn> {
        let mut state = self.state();
        if state.is_closed {
            return Err(NoTurn::Closed);
        }
        if state.taken < self.all {
            state.taken += 1;
            return Ok(Came::Turn(Turn(Some(Arc::clone(self)))));
        }
        if !returns && state.waiting >= self.most_waiting && !state.make_room(client) {
            state.refused += 1;
            return Err(NoTurn::TooManyWait(state.waiting));
        }
        let (sender, coming) = oneshot::channel();
        state.enqueue(client, Waiting { sender, returns });
        Ok(Came::Place(Place { turns: Arc::clone(self), coming: Some(coming) }))
    }

    /// Gives no turn any more: what waits is refused, and what runs goes on.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.is_closed = true;
            (state.waiting, state.returning) = (0, 0);
            std::mem::take(&mut state.clients)
        };
        drop(waiting);
    }

    /// The next statement that waits; without one the turn is free.
    fn next(&self) -> Option<oneshot::Sender<Turn>> {
        let mut state = self.state();
        while let Some(mut queue) = state.clients.pop_front() {
            let next = queue.waiting.pop_front();
            if !queue.waiting.is_empty() {
                state.clients.push_back(queue);
            }
            if let Some(Waiting { sender, returns }) = next {
                *state.count(returns) -= 1;
                return Some(sender);
            }
        }
        state.taken -= 1;
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        while let Some(next) = turns.next() {
            match next.send(Self(Some(Arc::clone(&turns)))) {
                Ok(()) => return,
                // It waits no more: the turn that it did not take is still the one that is given on here.
                Err(mut unwanted) => unwanted.0 = None,
            }
        }
    }
}

/// What a statement finds.
enum Came {
    Turn(Turn),
    Place(Place),
}

/// The place of a statement that waits.
struct Place {
    turns: Arc<Turns>,
    coming: Option<oneshot::Receiver<Turn>>,
}

impl Place {
    /// The turn when it comes; none if the place is taken away.
    async fn turn(&mut self) -> Option<Turn> {
        match &mut self.coming {
            Some(coming) => coming.await.ok(),
            None => None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A turn that came meanwhile goes on to the next; the other end of what waits sees that nobody is there.
        drop(self.coming.take());
        let mut state = self.turns.state();
        let State { clients, waiting, returning, .. } = &mut *state;
        for queue in clients.iter_mut() {
            queue.waiting.retain(|each| {
                let is_gone = each.sender.is_closed();
                if is_gone {
                    *(if each.returns { &mut *returning } else { &mut *waiting }) -= 1;
                }
                !is_gone
            });
        }
        clients.retain(|queue| !queue.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn load(turns: &Turns) -> (usize, usize, u64) {
        let Load { running, waiting, refused } = turns.load();
        (running, waiting, refused)
    }

    /// A statement that waits, and says so when it has its turn.
    fn begin(turns: &Arc<Turns>, client: &str, order: &Arc<Mutex<Vec<String>>>) -> tokio::task::JoinHandle<Turn> {
        let (turns, order, client) = (Arc::clone(turns), Arc::clone(order), Arc::<str>::from(client));
        tokio::spawn(async move {
            let turn = turns.take(&client).await.unwrap();
            order.lock().unwrap().push(client.to_string());
            turn
        })
    }

    async fn until_waiting(turns: &Turns, count: usize) {
        while turns.load().waiting != count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn clients_take_turns_whatever_each_of_them_has_waiting() {
        let turns = Turns::new(1, 100, LONG);
        let order = Arc::default();
        let first = turns.take(&"x".into()).await.unwrap();
        let mut tasks = Vec::new();
        for (count, client) in (1..).zip(["a", "a", "a", "b", "c", "c"]) {
            tasks.push(begin(&turns, client, &order));
            until_waiting(&turns, count).await;
        }
        assert_eq!(load(&turns), (1, 6, 0));
        drop(first);
        // Whichever task has its turn gives it on.
        let mut left = futures::stream::FuturesUnordered::from_iter(tasks);
        while let Some(turn) = left.next().await {
            drop(turn.unwrap());
        }
        assert_eq!(order.lock().unwrap().join(""), "abcaca");
        assert_eq!(load(&turns), (0, 0, 0));
    }

    #[tokio::test]
    async fn whoever_gives_up_loses_the_place_and_nobody_elses_turn() {
        let turns = Turns::new(1, 2, LONG);
        let order = Arc::default();
        let first = turns.take(&"x".into()).await.unwrap();
        let given_up = begin(&turns, "a", &order);
        until_waiting(&turns, 1).await;
        let patient = begin(&turns, "b", &order);
        until_waiting(&turns, 2).await;
        assert_eq!(turns.take(&"c".into()).await.unwrap_err(), NoTurn::TooManyWait(2));
        given_up.abort();
        until_waiting(&turns, 1).await;
        drop(first);
        drop(patient.await.unwrap());
        assert_eq!((order.lock().unwrap().as_slice(), load(&turns)), (["b".to_owned()].as_slice(), (0, 0, 1)));
    }

    #[tokio::test]
    async fn a_client_that_fills_the_queue_makes_room_for_others_and_nobody_for_it() {
        let turns = Turns::new(1, 3, LONG);
        let order = Arc::default();
        let first = turns.take(&"x".into()).await.unwrap();
        let oldest = begin(&turns, "a", &order);
        until_waiting(&turns, 1).await;
        let middle = begin(&turns, "a", &order);
        until_waiting(&turns, 2).await;
        let asked = Arc::clone(&turns);
        let youngest = tokio::spawn(async move { asked.take(&"a".into()).await });
        until_waiting(&turns, 3).await;
        let newcomer = begin(&turns, "b", &order);
        assert_eq!(youngest.await.unwrap().unwrap_err(), NoTurn::TooManyWait(3));
        for client in ["a", "b"] {
            assert_eq!(turns.take(&client.into()).await.unwrap_err(), NoTurn::TooManyWait(3), "{client}");
        }
        assert_eq!(load(&turns), (1, 3, 3));
        drop(first);
        for task in [oldest, newcomer, middle] {
            drop(task.await.unwrap());
        }
        assert_eq!(order.lock().unwrap().join(""), "aba");
        assert_eq!(load(&turns), (0, 0, 3));
    }

    #[tokio::test]
    async fn whoever_lent_a_turn_gets_one_again_in_its_order_and_makes_no_room_for_others() {
        let turns = Turns::new(1, 1, LONG);
        let order = Arc::<Mutex<Vec<String>>>::default();
        let first = turns.take(&"x".into()).await.unwrap();
        let mut tasks = Vec::new();
        for (count, name) in (1..).zip(["a", "a", "b"]) {
            let (coming, order) = (Arc::clone(&turns).again(name.into()), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let turn = coming.await.unwrap();
                order.lock().unwrap().push(name.to_uppercase());
                drop(turn);
            }));
            until_waiting(&turns, count).await;
        }
        let new = begin(&turns, "a", &order);
        until_waiting(&turns, 4).await;
        for client in ["a", "c"] {
            assert_eq!(turns.take(&client.into()).await.unwrap_err(), NoTurn::TooManyWait(1), "{client}");
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        drop(new.await.unwrap());
        assert_eq!((order.lock().unwrap().join(""), load(&turns)), ("ABAa".to_owned(), (0, 0, 2)));
    }

    #[tokio::test]
    async fn whoever_does_not_come_for_a_turn_again_loses_the_place_and_nobody_elses() {
        let turns = Turns::new(1, 1, LONG);
        let first = turns.take(&"x".into()).await.unwrap();
        let (left, taken) = (Arc::clone(&turns).again("a".into()), Arc::clone(&turns).again("a".into()));
        let (mut left, taken) = (Box::pin(left), tokio::spawn(taken));
        assert!(futures::poll!(left.as_mut()).is_pending());
        until_waiting(&turns, 2).await;
        drop(first);
        // Its turn is there, and it goes.
        drop(left);
        drop(taken.await.unwrap().unwrap());
        assert_eq!(load(&turns), (0, 0, 0));
        turns.close();
        assert_eq!(Arc::clone(&turns).again("a".into()).await.unwrap_err(), NoTurn::Closed);
    }

    #[tokio::test]
    async fn whoever_waits_when_no_turn_is_given_any_more_is_refused() {
        let turns = Turns::new(1, 2, LONG);
        let first = turns.take(&"x".into()).await.unwrap();
        let asked = Arc::clone(&turns);
        let waits = tokio::spawn(async move { asked.take(&"a".into()).await });
        until_waiting(&turns, 1).await;
        turns.close();
        assert_eq!(waits.await.unwrap().unwrap_err(), NoTurn::Closed);
        drop(first);
        assert_eq!(turns.take(&"b".into()).await.unwrap_err(), NoTurn::Closed);
        assert_eq!(load(&turns), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_turn_that_does_not_come_in_time_is_refused() {
        let turns = Turns::new(1, 2, Duration::ZERO);
        let first = turns.take(&"x".into()).await.unwrap();
        assert_eq!(turns.take(&"a".into()).await.unwrap_err(), NoTurn::TooLong(Duration::ZERO));
        assert_eq!(load(&turns), (1, 0, 1));
        drop(first);
        assert!(turns.take(&"a".into()).await.is_ok());
        assert_eq!(load(&turns), (0, 0, 1));
    }
}
