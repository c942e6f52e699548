//! Equal statements at the same time of which some fail, go or come late: each gives the rows, or has the error, that it has alone.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::DataType;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;
use futures::future::join_all;

use crate::fixture::{FILE_ROWS, batch, create_indexes, folder, open, rows, text, write};
use crate::shared_scans::{damage, outcome};
use crate::sharing::{SHARED, Shared, is_ordered, sorted, taken};

#[tokio::test]
async fn a_plan_that_is_made_late_gives_the_rows_of_its_statement() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "s"]).await;
    let shared = Shared::of(&open(folder.path()).await).await;
    let same = Arc::new(|given: &[ColumnarValue]| Ok(given[0].clone()));
    let same = create_udf("same", vec![DataType::Int64], DataType::Int64, Volatility::Immutable, same);
    shared.session.context().register_udf(same);
    let with_function = "SELECT same(id), regexp_like(s, 'A', 'i') FROM t WHERE same(id) > 10 AND k = 2";
    for sql in SHARED.into_iter().chain([with_function]) {
        let alone = rows(&shared.session, sql).await;
        let host = shared.begin(sql).await;
        let frame = shared.session.sql(sql).await.unwrap();
        let context = Arc::new(frame.task_ctx());
        let late = frame.create_physical_plan().await.unwrap();
        assert!(late.name() == "SharedExec" && late.children().is_empty(), "{sql}");
        // Whoever was to give its rows goes before it asks for them.
        drop(host);
        let before = shared.counts();
        let found = taken(execute_stream(late, context).unwrap()).await;
        if is_ordered(sql) {
            assert_eq!(found, alone, "{sql}");
        } else {
            assert_eq!(sorted(found), sorted(alone), "{sql}");
        }
        assert_eq!((shared.counts().hosts - before.hosts, shared.counts().guests - before.guests), (1, 0), "{sql}");
    }
}

#[tokio::test]
async fn law_a_damaged_page_is_the_error_of_each_statement_that_has_it_alone() {
    let folder = folder(2);
    damage(&folder.path().join("part-0.parquet"), 2, 3);
    let shared = Shared::of(&open(folder.path()).await).await;
    for (sql, fails) in [
        ("SELECT id, s FROM t WHERE abs(id) % 7 = 1", true),
        ("SELECT s, count(*) FROM t WHERE abs(id) % 3 = 0 GROUP BY s", true),
        ("SELECT id, k, f FROM t WHERE abs(id) % 7 = 1", false),
        ("SELECT max(s) FROM t WHERE id >= 1000 AND abs(id) % 5 = 0", false),
    ] {
        shared.set("lakemark.share", "off").await;
        let alone = outcome(shared.begin(sql).await, Vec::new()).await;
        assert_eq!(alone.is_err(), fails, "{sql}: {alone:?}");
        shared.set("lakemark.share", "plans").await;
        for first in 0..3 {
            let before = shared.counts();
            let mut running = Vec::new();
            for _ in 0..3 {
                running.push(shared.begin(sql).await);
            }
            running.rotate_left(first);
            for found in join_all(running.into_iter().map(|stream| outcome(stream, Vec::new()))).await {
                match (found, &alone) {
                    (Err(error), Err(_)) => assert!(error.contains("part-0.parquet"), "{sql}: {error}"),
                    (found, alone) => assert_eq!(&found, alone, "{sql}"),
                }
            }
            let after = shared.counts();
            assert_eq!((after.hosts - before.hosts, after.guests - before.guests), (1, 2), "{sql}");
            // Each guest has tried once by itself, and no more than that.
            assert_eq!(after.detached - before.detached, if fails { 2 } else { 0 }, "{sql}");
        }
    }
}

#[tokio::test]
async fn law_a_file_that_is_replaced_gives_each_statement_its_rows_or_an_error_that_names_it() {
    let sql = "SELECT id, k, s FROM t WHERE abs(id) % 7 = 1";
    for steps in 0..8 {
        let folder = folder(2);
        let shared = Shared::of(&open(folder.path()).await).await;
        shared.set("datafusion.execution.batch_size", "20").await;
        let before = sorted(rows(&shared.session, sql).await);
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push((shared.begin(sql).await, Vec::new()));
        }
        for _ in 0..steps {
            // A guest of a small output has its first row at the end.
            let (host, given) = &mut running[0];
            given.extend(text(&host.next().await.unwrap().unwrap()));
        }
        let path = folder.path().join("part-1.parquet");
        fs::remove_file(&path).unwrap();
        write(&path, &batch(9 * FILE_ROWS));
        let late = shared.begin(sql).await;
        for (stream, given) in running {
            match outcome(stream, given).await {
                Ok(found) => assert_eq!(found, before, "after {steps}"),
                Err(error) => assert!(error.contains("part-1.parquet"), "after {steps}: {error}"),
            }
        }
        let found = sorted(taken(late).await);
        assert!(found != before && found.len() > before.len() / 2, "after {steps}");
        assert_eq!(found, sorted(rows(&shared.session, sql).await), "after {steps}");
    }
}

#[tokio::test]
async fn a_function_that_panics_does_so_for_each_statement_that_calls_it_then() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    // It panics so often, and never again.
    let left = Arc::new(AtomicUsize::new(0));
    let panics = Arc::clone(&left);
    let burst = move |given: &[ColumnarValue]| {
        let is_left = panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(is_left.is_err(), "the function panics");
        Ok(given[0].clone())
    };
    let (number, steady) = (DataType::Int64, Volatility::Immutable);
    shared.session.context().register_udf(create_udf("burst", vec![number.clone()], number, steady, Arc::new(burst)));
    let sql = "SELECT burst(max(id)) FROM t WHERE k = 4 AND abs(id) > 3";
    for (panics, host_comes_last, panicked) in [
        (1, true, [false, false, true]),
        (1, false, [true, false, false]),
        (3, true, [true, true, true]),
        (0, true, [false; 3]),
    ] {
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push(shared.begin(sql).await);
        }
        if host_comes_last {
            running.reverse();
        }
        left.store(panics, Ordering::SeqCst);
        let mut found = Vec::new();
        for stream in running {
            match tokio::spawn(taken(stream)).await {
                Ok(rows) => {
                    assert_eq!(rows, ["994"]);
                    found.push(false);
                }
                Err(error) => found.push(error.is_panic()),
            }
        }
        assert_eq!(found, panicked, "{panics} panics, the host comes last: {host_comes_last}");
    }
}
