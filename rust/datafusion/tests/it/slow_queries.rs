//! One line of log for each slow query: which are slow, what a line says, and what it never says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use datafusion::error::Result;
use futures::{StreamExt, TryStreamExt};
use lakemark_datafusion::{LakemarkOptions, LakemarkSession, SLOW_QUERIES, SlowQueryLimit, rows_of};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::fixture::{create_indexes, folder, rows, session};
use crate::spans::{Fields, listening};

type Line = BTreeMap<String, String>;

/// The lines that were logged on this thread, in their order.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

impl Lines {
    fn listen() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let guard = listening(lines.clone());
        (lines, guard)
    }

    /// The only line since the last call.
    fn only(&self) -> Line {
        let mut lines = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == SLOW_QUERIES {
            assert_eq!(*event.metadata().level(), Level::WARN);
            let mut line = Line::new();
            event.record(&mut Fields(&mut line));
            self.0.lock().unwrap().push(line);
        }
    }
}

/// The rows of a query, as the shell, the server and Python ask for them.
async fn asked(session: &LakemarkSession, sql: &str) -> Result<Vec<RecordBatch>> {
    let query = session.sql(sql).await.unwrap();
    rows_of(&query).await?.try_collect().await
}

async fn count_of(session: &LakemarkSession, sql: &str) -> usize {
    asked(session, sql).await.unwrap().iter().map(RecordBatch::num_rows).sum()
}

#[tokio::test]
async fn a_line_has_the_shape_of_a_query_and_none_of_its_values() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    rows(&session, "SET lakemark.slow_query_ms = 0").await;
    let (lines, _listening) = Lines::listen();
    let found = count_of(&session, "SELECT id FROM t WHERE s = 'ab' AND k IN (1, 2, 3) -- of my own").await;
    let line = lines.only();
    assert_eq!(line["message"], "a slow query");
    assert_eq!(line["query"], "SELECT id FROM t WHERE s = ? AND k IN (?, …)");
    assert_eq!((line["rows"].as_str(), line["ended"].as_str()), (found.to_string().as_str(), "done"));
    assert!(found > 0);
    // The other column has no index, whatever the index on this one is good for.
    assert!(line["reasons"].split(", ").any(|reason| reason == "no_index(s)"), "{line:?}");
    assert!(line["milliseconds"].parse::<f64>().unwrap() >= line["planning_milliseconds"].parse::<f64>().unwrap());
    assert!(line["bytes_read"].parse::<u64>().unwrap() > 0);
    assert_eq!(line["shared"], "false");
    // Another query of its shape has its hash.
    count_of(&session, "select id from t where s = '' and k in (7, 8)").await;
    assert_eq!(lines.only()["query_hash"], line["query_hash"]);
    count_of(&session, "SELECT id FROM t WHERE s = 'ab'").await;
    assert_ne!(lines.only()["query_hash"], line["query_hash"]);
}

#[tokio::test]
async fn a_line_counts_the_pages_that_an_index_leaves_out() {
    let folder = folder(4);
    create_indexes(folder.path(), &["Mixed Case"]).await;
    let session = session(folder.path()).await;
    rows(&session, "SET lakemark.slow_query_ms = 0").await;
    let (lines, _listening) = Lines::listen();
    let line = loop {
        assert_eq!(count_of(&session, "SELECT s FROM t WHERE \"Mixed Case\" = 12").await, 100);
        let line = lines.only();
        // Of a file that was written just now no footer is remembered.
        if line["pages_read"] != "0" {
            break line;
        }
    };
    // 100 rows in a row at the end of one row group and the beginning of the next one; pages of 50 rows, 20 in a file.
    let pages = (line["files_skipped"].as_str(), line["pages_read"].as_str(), line["pages_skipped"].as_str());
    assert_eq!(pages, ("3", "2", "18"), "{line:?}");
    assert_eq!(line["reasons"], "");
    rows(&session, "SET lakemark.use_index = false").await;
    count_of(&session, "SELECT s FROM t WHERE \"Mixed Case\" = 12").await;
    let without = lines.only();
    assert_eq!(without["reasons"], "index_disabled(Mixed Case)");
    let bytes = |line: &Line| line["bytes_read"].parse::<u64>().unwrap();
    assert!(bytes(&line) < bytes(&without), "{line:?} {without:?}");
}

#[tokio::test]
async fn queries_that_fail_or_whose_reader_has_enough_say_so() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    rows(&session, "SET lakemark.slow_query_ms = 0").await;
    let (lines, _listening) = Lines::listen();
    asked(&session, "SELECT 1 / (id - 17) FROM t").await.unwrap_err();
    assert_eq!(lines.only()["ended"], "failed");
    let query = session.sql("SELECT id FROM t").await.unwrap();
    let mut stream = rows_of(&query).await.unwrap();
    let first = stream.next().await.unwrap().unwrap().num_rows();
    drop(stream);
    let line = lines.only();
    assert_eq!((line["ended"].as_str(), line["rows"].as_str()), ("stopped", first.to_string().as_str()));
}

#[tokio::test]
async fn only_slow_queries_are_logged_and_none_where_nothing_is_set() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    let (lines, _listening) = Lines::listen();
    for setting in ["SET lakemark.slow_query_ms = 4000000000", "SET lakemark.slow_query_ms = off", ""] {
        if !setting.is_empty() {
            rows(&session, setting).await;
        }
        count_of(&session, "SELECT id FROM t").await;
        assert!(lines.is_empty(), "{setting}");
    }
    rows(&session, "SET lakemark.slow_query_ms = 0").await;
    // What defines or sets something is no query.
    rows(&session, "CREATE VIEW v AS SELECT id FROM t").await;
    assert!(lines.is_empty());
    count_of(&session, "SELECT count(*) FROM v").await;
    assert_eq!(lines.only()["rows"], "1");
    // Statements that were parsed before have the same shape.
    let parsed = session.parse("select count(*) from v").unwrap().remove(0);
    let query = session.run(parsed).await.unwrap();
    rows_of(&query).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(lines.only()["query"].to_lowercase(), "select count(*) from v");
}

#[tokio::test]
async fn a_limit_that_is_no_number_changes_nothing() {
    let session = LakemarkSession::new();
    rows(&session, "SET lakemark.slow_query_ms = 4000000000").await;
    for value in ["'1 s'", "-1", "1.5"] {
        let error = session.sql(&format!("SET lakemark.slow_query_ms = {value}")).await.unwrap_err();
        assert!(error.to_string().contains("a whole number of milliseconds or off"), "{error}");
    }
    let state = session.context().state();
    let options = state.config_options().extensions.get::<LakemarkOptions>().unwrap();
    assert_eq!(options.slow_query_ms, SlowQueryLimit(Some(4_000_000_000)));
}
