//! Work that several wait for, and that whoever comes does.
//!
//! As with a plan in flight nothing is held between two polls: the one that is polled takes the work, polls it, and puts it back. So one that
//! is never polled again holds nobody up, and one that goes leaves the work to the others. The work ends with the last of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use futures::FutureExt;
use futures::future::BoxFuture;

/// Work that several wait for.
pub(crate) struct JointWork<T> {
    state: Mutex<WorkState<T>>,
    waker: OnceLock<Waker>,
}

struct WorkState<T> {
    work: Work<T>,
    /// Those that wait, as far as they were polled.
    waiting: BTreeMap<u64, Waker>,
    /// The number of the next one.
    next: u64,
}

enum Work<T> {
    Here(BoxFuture<'static, T>),
    /// Somebody polls it just now.
    Polled {
        /// Whether it asked for another poll meanwhile.
        is_woken: bool,
    },
    Done(T),
    /// It panicked.
    Lost,
}

/// What somebody finds who is polled.
enum Look<T> {
    Over(Option<T>),
    Poll(BoxFuture<'static, T>),
    Wait,
}

impl<T: Clone + Send + 'static> JointWork<T> {
    pub(crate) fn new(work: BoxFuture<'static, T>) -> Arc<Self> {
        let state = WorkState { work: Work::Here(work), waiting: BTreeMap::new(), next: 0 };
        Arc::new(Self { state: Mutex::new(state), waker: OnceLock::new() })
    }

    /// What the work gives, as soon as somebody did it; none if it panicked.
    pub(crate) fn wait(self: &Arc<Self>) -> Waiting<T> {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        Waiting { joint: Arc::clone(self), id }
    }

    fn lock(&self) -> MutexGuard<'_, WorkState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is for one that waits. Its waker of before goes where nothing is locked.
    fn look(&self, id: u64, waker: &Waker) -> Look<T> {
        let mut state = self.lock();
        match &state.work {
            Work::Done(made) => return Look::Over(Some(made.clone())),
            Work::Lost => return Look::Over(None),
            Work::Here(_) | Work::Polled { .. } => {}
        }
        let before = state.waiting.insert(id, waker.clone());
        let found = match mem::replace(&mut state.work, Work::Polled { is_woken: false }) {
            Work::Here(work) => Look::Poll(work),
            polled => {
                state.work = polled;
                Look::Wait
            }
        };
        drop(state);
        drop(before);
        found
    }

    /// Polls the work, and puts it back.
    fn poll(self: &Arc<Self>, mut work: BoxFuture<'static, T>) -> Poll<Option<T>> {
        let waker = self.waker.get_or_init(|| Waker::from(Arc::new(WorkWaker(Arc::downgrade(self)))));
        let polled = catch_unwind(AssertUnwindSafe(|| work.poll_unpin(&mut Context::from_waker(waker))));
        let mut state = self.lock();
        let was_woken = matches!(state.work, Work::Polled { is_woken: true });
        let (given, over) = match polled {
            Ok(Poll::Pending) => {
                state.work = Work::Here(work);
                // Whoever came meanwhile was not woken, nor was whoever polled.
                let wakers = if was_woken { state.wakers() } else { Vec::new() };
                drop(state);
                wake(wakers);
                return Poll::Pending;
            }
            Ok(Poll::Ready(made)) => (Some(made.clone()), Work::Done(made)),
            Err(_) => (None, Work::Lost),
        };
        state.work = over;
        let wakers = state.wakers();
        drop(state);
        wake(wakers);
        drop(work);
        Poll::Ready(given)
    }
}

impl<T> WorkState<T> {
    /// All who wait, to be woken.
    fn wakers(&mut self) -> Vec<Waker> {
        mem::take(&mut self.waiting).into_values().collect()
    }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// Wakes all who wait: any of them may have gone.
struct WorkWaker<T>(Weak<JointWork<T>>);

impl<T: Clone + Send + 'static> Wake for WorkWaker<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(joint) = self.0.upgrade() else { return };
        let mut state = joint.lock();
        if let Work::Polled { is_woken } = &mut state.work {
            // Whoever polls it wakes them, as they would only find that it is polled.
            *is_woken = true;
            return;
        }
        let wakers = state.wakers();
        drop(state);
        wake(wakers);
    }
}

/// One that waits.
pub(crate) struct Waiting<T: Clone + Send + 'static> {
    joint: Arc<JointWork<T>>,
    id: u64,
}

impl<T: Clone + Send + 'static> Future for Waiting<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.joint.look(self.id, cx.waker()) {
            Look::Over(made) => Poll::Ready(made),
            Look::Poll(work) => self.joint.poll(work),
            Look::Wait => Poll::Pending,
        }
    }
}

impl<T: Clone + Send + 'static> Drop for Waiting<T> {
    /// The others may have been woken while this one polled, and have found nothing to do.
    fn drop(&mut self) {
        let mut state = self.joint.lock();
        let own = state.waiting.remove(&self.id);
        let is_over = matches!(state.work, Work::Done(_) | Work::Lost);
        let others = if is_over { Vec::new() } else { state.wakers() };
        drop(state);
        drop(own);
        wake(others);
    }
}

#[cfg(test)]
#[path = "joint_work_tests.rs"]
mod tests;
