//! Statements that run at once in a session at a level of sharing, and what each has to give.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use lakemark_datafusion::{LakemarkSession, PlanSharing};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fixture::{rows, text};
use crate::sharing::sorted;

/// A session of one partition at a level of sharing, with a registry of its own.
pub struct Together {
    pub session: LakemarkSession,
    pub sharing: Arc<PlanSharing>,
    level: &'static str,
}

impl Together {
    pub async fn at(level: &'static str, sharing: PlanSharing, batch_rows: usize) -> Self {
        let sharing = Arc::new(sharing);
        let session = LakemarkSession::with_config(SessionConfig::new().with_extension(Arc::clone(&sharing)));
        let together = Self { session, sharing, level };
        together.set("datafusion.execution.batch_size", &batch_rows.to_string()).await;
        together.set("datafusion.execution.target_partitions", "1").await;
        together.set("lakemark.share", level).await;
        together
    }

    pub async fn set(&self, name: &str, value: &str) {
        rows(&self.session, &format!("SET {name} = {value}")).await;
    }

    pub async fn begin(&self, sql: &str) -> SendableRecordBatchStream {
        self.session.sql(sql).await.unwrap().execute_stream().await.unwrap()
    }

    /// The rows of a statement that nobody shares.
    pub async fn alone(&self, sql: &str) -> Vec<String> {
        self.set("lakemark.share", "off").await;
        let found = sorted(rows(&self.session, sql).await);
        self.set("lakemark.share", self.level).await;
        found
    }
}

/// A statement that runs, and what it has to give.
pub struct Running {
    pub sql: String,
    pub stream: SendableRecordBatchStream,
    pub given: Vec<String>,
    pub expected: Vec<String>,
}

impl Running {
    pub async fn of(together: &Together, sql: &str) -> Self {
        let expected = together.alone(sql).await;
        Self { sql: sql.to_owned(), stream: together.begin(sql).await, given: Vec::new(), expected }
    }

    /// Takes a batch; false at the end.
    pub async fn step(&mut self) -> bool {
        let Some(batch) = self.stream.next().await else { return false };
        self.given.extend(text(&batch.unwrap()));
        true
    }

    pub async fn finish(mut self, seed: u64) {
        while self.step().await {}
        assert_eq!(sorted(self.given), self.expected, "seed {seed}: {}", self.sql);
    }
}

/// Takes batches of statements in any order, and so many of them, before all go on to their ends one after the other.
pub async fn interleave(mut running: Vec<Running>, batches: usize, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..batches {
        let place = rng.random_range(0..running.len());
        running[place].step().await;
    }
    for own in running {
        own.finish(seed).await;
    }
}
