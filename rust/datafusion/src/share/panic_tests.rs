//! Plans that panic while queries share them. The panic is the host's, whoever polled.

use super::*;

/// What a query gives in a task of its own, and whether that panics.
async fn outcome(query: Query) -> std::result::Result<Vec<i64>, bool> {
    tokio::spawn(query.rest()).await.map_err(|error| error.is_panic())
}

#[tokio::test]
async fn a_plan_that_panics_at_once_does_so_for_the_host_alone() {
    for guest_comes_first in [true, false] {
        let queries = Queries::new(true);
        let (host, guest) = (queries.query(), queries.query());
        host.plan.feeds.lock().unwrap().clear();
        guest.feed(small(0..2));
        guest.feed.close_channel();
        let (host, guest) = if guest_comes_first {
            let guest = outcome(guest).await;
            (outcome(host).await, guest)
        } else {
            (outcome(host).await, outcome(guest).await)
        };
        assert_eq!((host, guest), (Err(true), Ok(all(0..2))));
        assert_eq!(queries.counts(), SharingCounts { hosts: 1, guests: 1, detached: 1 });
    }
}

#[tokio::test]
async fn who_gave_rows_of_a_plan_that_panics_has_an_error_and_who_gave_none_begins_anew() {
    for host_polls in [true, false] {
        let queries = Queries::new(true);
        let (mut host, mut begun, guest) = (queries.query(), queries.query(), queries.query());
        host.feed(large(0..3));
        host.feed([batch(0, 0)]);
        guest.feed(small(0..2));
        guest.feed.close_channel();
        assert_eq!((host.next().await, begun.next().await), (Some(0), Some(0)));
        if !host_polls {
            assert_eq!((begun.next().await, begun.next().await), (Some(1), Some(2)));
            let error = begun.rows.next().await.unwrap().unwrap_err();
            assert!(error.to_string().contains("panicked"), "{error}");
        }
        assert_eq!((host.next().await, host.next().await), (Some(1), Some(2)));
        assert_eq!(outcome(host).await, Err(true));
        if host_polls {
            assert_eq!((begun.next().await, begun.next().await), (Some(1), Some(2)));
            begun.rows.next().await.unwrap().unwrap_err();
        }
        assert!(begun.rows.next().await.is_none());
        assert_eq!(guest.rest().await, all(0..2));
        assert_eq!(queries.runtime.memory_pool.reserved(), 0);
    }
}

#[tokio::test]
async fn a_plan_that_panics_after_its_host_is_gone_is_nobodys_panic() {
    let queries = Queries::new(true);
    let (mut host, guest) = (queries.query(), queries.query());
    host.feed(small(0..1));
    assert_eq!(host.next().await, Some(0));
    host.feed([batch(0, 0)]);
    drop(host);
    guest.feed(small(5..7));
    guest.feed.close_channel();
    assert_eq!(guest.rest().await, [5, 6]);
}
