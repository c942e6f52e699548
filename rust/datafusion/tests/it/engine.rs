//! Statements over tables in memory that DataFusion alone answers wrongly, and our sessions do not.

use datafusion::prelude::{SessionConfig, SessionContext};
use lakemark_datafusion::LakemarkSession;

use crate::fixture::{rows, text};

/// A statement with its rows, and whether DataFusion alone gives others.
pub type Statement = (&'static str, &'static [&'static str], bool);

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
        for (sql, expected, _) in statements {
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
    for (sql, expected, is_wrong) in statements {
        let found = plain.sql(sql).await.unwrap().collect().await.unwrap();
        let found: Vec<String> = found.iter().flat_map(text).collect();
        assert_eq!(
            found != *expected,
            *is_wrong,
            "{found:?} of {sql}; if DataFusion has mended this, see whether docs/limits.md and our rule can go"
        );
    }
}
