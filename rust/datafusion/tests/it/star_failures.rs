//! Star queries of which some fail, go, or are too many: each has the error or the rows that it has alone.

use futures::future::join_all;

use crate::fixture::rows;
use crate::shared_scans::{damage, outcome};
use crate::star_joins::{STREAMS, Stars, files};
use crate::together::Running;

#[tokio::test]
async fn law_a_damaged_page_is_the_error_of_those_who_have_it_alone() {
    let folder = files();
    damage(&folder.path().join("lineorder").join("part-2000.parquet"), 2, 4);
    let stars = Stars::of(folder.path()).await;
    let asked = [STREAMS[0], STREAMS[2], STREAMS[3], STREAMS[7]];
    let mut alone = Vec::new();
    stars.set("lakemark.share", "off").await;
    for sql in asked {
        alone.push(outcome(stars.begin(sql).await, Vec::new()).await);
    }
    // Column 4 is `lo_partkey`.
    assert_eq!(alone.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true]);
    stars.set("lakemark.share", "stars").await;
    for first in 0..asked.len() {
        let mut order: Vec<usize> = (0..asked.len()).collect();
        order.rotate_left(first);
        let mut running = Vec::new();
        for place in order {
            let stream = stars.begin(asked[place]).await;
            running.push(async move { (place, outcome(stream, Vec::new()).await) });
        }
        for (place, found) in join_all(running).await {
            match (found, &alone[place]) {
                (Err(error), Err(_)) => assert!(error.contains("part-2000.parquet"), "first {first}: {error}"),
                (found, alone) => assert_eq!(&found, alone, "first {first}: {}", asked[place]),
            }
        }
    }
}

/// The outcomes of statements that run at once, and those of each alone.
async fn outcomes(stars: &Stars, asked: &[&str]) -> Vec<[Result<Vec<String>, String>; 2]> {
    let mut alone = Vec::new();
    stars.set("lakemark.share", "off").await;
    for sql in asked {
        alone.push(outcome(stars.begin(sql).await, Vec::new()).await);
    }
    stars.set("lakemark.share", "stars").await;
    let mut running = Vec::new();
    for sql in asked {
        running.push(outcome(stars.begin(sql).await, Vec::new()));
    }
    join_all(running).await.into_iter().zip(alone).map(|(shared, alone)| [shared, alone]).collect()
}

#[tokio::test]
async fn law_a_dimension_that_fails_is_the_error_of_its_query_alone() {
    let folder = files();
    // Column 1 is `c_nation`.
    damage(&folder.path().join("customer").join("part.parquet"), 0, 1);
    let stars = Stars::of(folder.path()).await;
    let asked = [
        STREAMS[0],
        "SELECT lo_key, c_nation FROM lineorder, customer WHERE lo_custkey = c_custkey",
        "SELECT lo_key, c_region FROM lineorder, customer WHERE lo_custkey = c_custkey AND c_region = 'R1'",
        "SELECT lo_key FROM lineorder, supplier WHERE lo_suppkey = s_suppkey AND CAST(s_nation AS INT) > 3",
        STREAMS[7],
    ];
    let found = outcomes(&stars, &asked).await;
    let errors = [None, Some("part.parquet"), None, Some("N0"), None];
    for ((sql, [shared, alone]), error) in asked.iter().zip(&found).zip(errors) {
        match (shared, alone, error) {
            (Err(shared), Err(alone), Some(error)) => {
                assert!(shared.contains(error) && alone.contains(error), "{sql}: {shared}, and alone {alone}");
            }
            (Ok(shared), Ok(alone), None) => assert_eq!(shared, alone, "{sql}"),
            other => panic!("{sql}: {other:?}"),
        }
    }
    assert!(stars.sharing.star_pages() > 0);
}

/// An error that a row with a match raises is the error of its query, and of no other one that takes the page.
#[tokio::test]
async fn law_a_row_that_raises_an_error_raises_it_for_its_query_alone() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    let asked = [
        "SELECT lo_key, lo_price / (lo_quantity - 7) FROM lineorder, customer WHERE lo_custkey = c_custkey",
        "SELECT lo_key FROM lineorder, supplier WHERE lo_suppkey = s_suppkey AND lo_price / (lo_discount - 4) > 9",
        STREAMS[0],
        STREAMS[1],
        STREAMS[2],
    ];
    let found = outcomes(&stars, &asked).await;
    for (place, (sql, [shared, alone])) in asked.iter().zip(&found).enumerate() {
        match (shared, alone) {
            (Err(shared), Err(alone)) if place < 2 => {
                assert!(
                    [shared, alone].iter().all(|error| error.contains("Divide by zero")),
                    "{sql}: {shared}, {alone}"
                );
            }
            _ => assert!(place > 1 && shared.is_ok() && shared == alone, "{sql}"),
        }
    }
    assert!(stars.sharing.star_pages() > 0);
}

/// A query that is dropped between two batches leaves its work to the others, and its bit to the next one.
#[tokio::test]
async fn law_queries_that_go_take_nobody_elses_rows_with_them() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    let mut stays = Running::of(&stars, STREAMS[1]).await;
    for round in 0..12 {
        let mut goes = Running::of(&stars, STREAMS[[0, 2, 3][round % 3]]).await;
        goes.step().await;
        stays.step().await;
        drop(goes);
    }
    stays.finish(0).await;
    assert!(stars.sharing.star_pages() > 0);
    // Nothing is left of them: who comes next is alone.
    let before = stars.sharing.star_pages();
    assert!(!rows(&stars.session, STREAMS[0]).await.is_empty());
    assert_eq!(stars.sharing.star_pages(), before);
}

/// A group has 64 bits. Whoever has none takes plain pages, and gets the bit of one that ends.
#[tokio::test]
async fn law_more_queries_than_a_group_has_bits_for_are_as_off() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    let mut running = Vec::new();
    for customer in 0..70 {
        let sql = format!(
            "SELECT lo_key, c_nation FROM lineorder, customer WHERE lo_custkey = c_custkey AND c_custkey <> {customer}"
        );
        let mut own = Running::of(&stars, &sql).await;
        own.step().await;
        running.push(own);
    }
    let shared = stars.sharing.star_pages();
    assert!(shared > 0);
    for own in running {
        own.finish(0).await;
    }
    assert!(stars.sharing.star_pages() > shared);
}
