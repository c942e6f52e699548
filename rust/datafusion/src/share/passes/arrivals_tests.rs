//! Scans on the way, as they set out, come, go, wait and come too late.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake};

use super::*;

const LONG: Duration = Duration::from_secs(600);

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn place(number: usize) -> Place {
    Place::of_number(number)
}

/// Whether a scan waits, and how often it was woken so far.
struct Scan {
    id: ScanId,
    woken: Arc<Woken>,
}

impl Scan {
    fn new(id: ScanId) -> Self {
        Self { id, woken: Arc::default() }
    }

    fn waits(&self, arrivals: &Arc<Arrivals>, limit: Option<Duration>) -> bool {
        let waker = Waker::from(Arc::clone(&self.woken));
        arrivals.waits(&place(1), self.id, &Context::from_waker(&waker), limit)
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_scan_waits_for_those_that_are_on_the_way_and_for_nobody_who_sets_out_later() {
    let arrivals = Arc::<Arrivals>::default();
    let scan = Scan::new(7);
    assert!(!scan.waits(&arrivals, Some(LONG)), "nobody is on the way");
    let elsewhere = arrivals.set_out(place(2), 1);
    assert!(!scan.waits(&arrivals, Some(LONG)) && !arrivals.has_any(&place(1), 7));
    let [first, second] = [1, 2].map(|query| arrivals.set_out(place(1), query));
    assert!(scan.waits(&arrivals, Some(LONG)) && scan.waits(&arrivals, None));
    let later = arrivals.set_out(place(1), 3);
    drop(first);
    assert!(scan.woken() == 0 && scan.waits(&arrivals, None));
    drop(second);
    assert_eq!(scan.woken(), 1);
    assert!(!scan.waits(&arrivals, None), "it has waited");
    drop((later, elsewhere));
    assert!(arrivals.lock().is_empty());
}

#[tokio::test]
async fn what_is_read_quickly_waits_for_nobody() {
    let arrivals = Arc::<Arrivals>::default();
    let _coming = arrivals.set_out(place(1), 1);
    let scan = Scan::new(7);
    assert!(!scan.waits(&arrivals, Some(LEAST_WAIT / 4)) && !scan.waits(&arrivals, None));
}

#[tokio::test]
async fn a_query_that_is_there_is_not_waited_for_again() {
    let arrivals = Arc::<Arrivals>::default();
    // A table that is joined with itself: its second scan begins when the first one has ended.
    let [first, _second] = [(); 2].map(|()| arrivals.set_out(place(1), 1));
    let other = arrivals.set_out(place(1), 2);
    let scan = Scan::new(7);
    assert!(scan.waits(&arrivals, Some(LONG)));
    drop(first);
    assert_eq!(scan.woken(), 0);
    drop(other);
    assert_eq!(scan.woken(), 1);
}

#[tokio::test]
async fn who_comes_too_late_for_somebody_is_not_waited_for_again() {
    let arrivals = Arc::<Arrivals>::default();
    let _stalled = arrivals.set_out(place(1), 1);
    let limit = Some(LEAST_WAIT);
    poll_fn(|cx| if arrivals.waits(&place(1), 7, cx, limit) { Poll::Pending } else { Poll::Ready(()) }).await;
    assert!(!Scan::new(8).waits(&arrivals, Some(LONG)));
}

#[tokio::test]
async fn waits_that_nobody_gains_by_become_shorter_until_somebody_does() {
    let arrivals = Arc::<Arrivals>::default();
    let coming = arrivals.set_out(place(1), 1);
    let limit = Some(LEAST_WAIT);
    let waits = |scan: ScanId| {
        let waits = Scan::new(scan).waits(&arrivals, limit);
        arrivals.stop(&place(1), scan);
        waits
    };
    assert!(waits(1));
    arrivals.began(&place(1), true, false);
    assert!(waits(2));
    arrivals.began(&place(1), true, false);
    assert!(!waits(3), "a quarter is too short");
    arrivals.began(&place(1), false, false);
    assert!(!waits(4));
    arrivals.began(&place(1), false, true);
    assert!(waits(5));
    drop(coming);
}

#[test]
fn a_wait_is_as_long_as_all_take_that_are_waited_for() {
    let of = |others: u64, in_vain: u32, threads: usize| {
        let awaited = (0..others).map(|id| (id, 1)).collect();
        Coming { awaited, in_vain, ..Coming::default() }.limit(Duration::from_millis(8), threads).as_millis()
    };
    assert_eq!((of(1, 0, 1), of(1, 0, 2), of(7, 0, 2), of(7, 0, 64)), (16, 8, 32, 8));
    assert_eq!((of(1_000, 0, 2), of(7, 2, 2), of(7, 5, 2), of(7, 99, 1)), (250, 8, 1, 1));
}

#[tokio::test]
async fn a_decode_that_begins_for_several_wakes_who_waits() {
    let arrivals = Arc::<Arrivals>::default();
    let _coming = arrivals.set_out(place(1), 1);
    let scan = Scan::new(7);
    assert!(scan.waits(&arrivals, Some(LONG)));
    arrivals.began(&place(1), false, false);
    assert_eq!(scan.woken(), 0);
    arrivals.began(&place(1), false, true);
    assert_eq!(scan.woken(), 1);
    arrivals.stop(&place(1), 7);
    assert_eq!(scan.woken(), 2);
}
