//! One does the work, whoever it is, and whoever goes.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::task::{ArcWake, waker};
use tokio::sync::oneshot;

use super::*;

/// Counts how often it was woken.
#[derive(Default)]
struct Counted(AtomicUsize);

impl ArcWake for Counted {
    fn wake_by_ref(arc_self: &Arc<Self>) {
        arc_self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn polled<T: Clone + Send + 'static>(waiting: &mut Waiting<T>, by: &Arc<Counted>) -> Poll<Option<T>> {
    waiting.poll_unpin(&mut Context::from_waker(&waker(Arc::clone(by))))
}

#[test]
fn all_get_what_one_made() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let (end, ended) = oneshot::channel::<u64>();
    let joint = JointWork::new(
        async move {
            counted.fetch_add(1, Ordering::SeqCst);
            ended.await.unwrap()
        }
        .boxed(),
    );
    let by: [Arc<Counted>; 3] = Default::default();
    let mut all = [joint.wait(), joint.wait(), joint.wait()];
    for (one, by) in all.iter_mut().zip(&by) {
        assert_eq!(polled(one, by), Poll::Pending);
    }
    end.send(7).unwrap();
    assert!(by.iter().all(|by| by.0.load(Ordering::SeqCst) > 0));
    for (one, by) in all.iter_mut().zip(&by) {
        assert_eq!(polled(one, by), Poll::Ready(Some(7)));
    }
    // Who comes late finds it.
    assert_eq!(joint.wait().now_or_never(), Some(Some(7)));
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn whoever_goes_leaves_the_work_to_the_others() {
    let (end, ended) = oneshot::channel::<u64>();
    let joint = JointWork::new(async move { ended.await.unwrap() }.boxed());
    let by: [Arc<Counted>; 2] = Default::default();
    let (mut first, mut second) = (joint.wait(), joint.wait());
    assert_eq!(polled(&mut first, &by[0]), Poll::Pending);
    assert_eq!(polled(&mut second, &by[1]), Poll::Pending);
    end.send(3).unwrap();
    // It was woken, and goes without a look.
    drop(first);
    assert!(by[1].0.load(Ordering::SeqCst) > 0);
    assert_eq!(polled(&mut second, &by[1]), Poll::Ready(Some(3)));
}

/// Work that asks for another poll while it is polled, at the first one.
#[test]
fn a_wake_during_a_poll_is_heard_by_those_who_came_meanwhile() {
    let (given, taken) = std::sync::mpsc::channel::<Waiting<u64>>();
    let by: [Arc<Counted>; 2] = Default::default();
    let other = Arc::clone(&by[1]);
    let mut is_first = true;
    let joint = JointWork::new(
        poll_fn(move |cx| {
            if !is_first {
                return Poll::Ready(5);
            }
            is_first = false;
            let mut late = taken.recv().unwrap();
            assert_eq!(polled(&mut late, &other), Poll::Pending);
            cx.waker().wake_by_ref();
            // It stays among those that wait.
            std::mem::forget(late);
            Poll::Pending
        })
        .boxed(),
    );
    given.send(joint.wait()).unwrap();
    let mut first = joint.wait();
    assert_eq!(polled(&mut first, &by[0]), Poll::Pending);
    assert!(by.iter().all(|by| by.0.load(Ordering::SeqCst) == 1));
    assert_eq!(polled(&mut first, &by[0]), Poll::Ready(Some(5)));
}

#[test]
fn work_ends_with_the_last_who_waits() {
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    let joint = JointWork::new(
        async move {
            let _held = held;
            pending::<u64>().await
        }
        .boxed(),
    );
    let (by, mut one) = (Arc::default(), joint.wait());
    assert_eq!(polled(&mut one, &by), Poll::Pending);
    drop(joint);
    assert!(weak.upgrade().is_some());
    drop(one);
    assert!(weak.upgrade().is_none());
}

#[test]
fn work_that_panics_is_lost_for_all_and_panics_for_none() {
    let joint = JointWork::<u64>::new(async { Vec::<u64>::new().remove(0) }.boxed());
    let mut waiting = joint.wait();
    let by = Arc::default();
    assert_eq!(polled(&mut waiting, &by), Poll::Ready(None));
    assert_eq!(joint.wait().now_or_never(), Some(None));
}
