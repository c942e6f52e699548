//! Statements over tables in memory that DataFusion alone answers wrongly, and our sessions do not.

use datafusion::prelude::{SessionConfig, SessionContext};
use lakemark_datafusion::LakemarkSession;

use crate::fixture::{rows, text};

/// A statement with its rows.
#[derive(Clone, Copy)]
pub struct Statement {
    sql: &'static str,
    rows: &'static [&'static str],
    /// Whether DataFusion alone gives others.
    is_wrong: bool,
}

impl Statement {
    /// One that DataFusion alone answers, too.
    pub const fn right(sql: &'static str, rows: &'static [&'static str]) -> Self {
        Self { sql, rows, is_wrong: false }
    }

    /// One to which DataFusion alone gives other rows.
    pub const fn wrong(sql: &'static str, rows: &'static [&'static str]) -> Self {
        Self { sql, rows, is_wrong: true }
    }
}

/// Small batches, so that work is shared out.
const BATCH_SIZE: usize = 16;

/// Fails unless our sessions give the rows, with any number of partitions.
pub async fn ours_are_right(tables: &[&str], statements: &[Statement]) {
    let mut wrong = Vec::new();
    for partitions in [1, 2, 3, 5] {
        let settings = [
            format!("SET datafusion.execution.target_partitions = {partitions}"),
            format!("SET datafusion.execution.batch_size = {BATCH_SIZE}"),
        ];
        let session = LakemarkSession::new();
        for sql in settings.iter().map(String::as_str).chain(tables.iter().copied()) {
            session.sql(sql).await.unwrap().collect().await.unwrap();
        }
        for Statement { sql, rows: expected, .. } in statements {
            let found = rows(&session, sql).await;
            if found != *expected {
                wrong.push(format!("{partitions} partitions: {found:?} of {sql}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Fails if DataFusion alone is right, or wrong, where the statements do not say so.
pub async fn datafusion_alone_is_wrong(tables: &[&str], statements: &[Statement], partitions: usize) {
    let config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(BATCH_SIZE);
    let plain = SessionContext::new_with_config(config);
    for sql in tables {
        plain.sql(sql).await.unwrap().collect().await.unwrap();
    }
    for Statement { sql, rows: expected, is_wrong } in statements {
        let found = plain.sql(sql).await.unwrap().collect().await.unwrap();
        let found: Vec<String> = found.iter().flat_map(text).collect();
        assert_eq!(
            found != *expected,
            *is_wrong,
            "{found:?} of {sql}; if DataFusion has mended this, see whether docs/limits.md and our rule can go"
        );
    }
}
