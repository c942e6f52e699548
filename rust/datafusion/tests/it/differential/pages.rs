//! Random statements at once, whose scans share pages: each has the answer that it has alone, whatever happens to the table beside them.

use std::ops::Range;
use std::sync::Arc;

use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use futures::future::join_all;
use lakemark_datafusion::{LakemarkSession, PlanSharing};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::aim::Aim;
use super::answer::{Answer, ask, same};
use super::column::pick;
use super::keeping::Keeper;
use super::query::{Shape, Tree};
use super::table::RandomTable;

/// So often as this a keeper does something.
const TRIALS_OF_A_ROUND: u64 = 12;

/// What a run found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Statements that were asked to their end.
    pub asked: u64,
    /// Those with another answer than alone.
    pub failed: u64,
    /// Those with an error, which they have alone as well.
    pub errors: u64,
    pub pages_shared: u64,
}

/// Asks each random table of these seeds in so many rounds.
pub async fn run(seeds: Range<u64>, rounds: u64) -> Found {
    let mut found = Found::default();
    for seed in seeds {
        let table = RandomTable::create(seed).await;
        let keeper = match table.changed_rows() {
            Some(rows) => Some(Keeper::new(table.location(), rows.clone(), seed).await),
            None => None,
        };
        let mut rng = StdRng::seed_from_u64(seed ^ 0x9a9e5);
        let sharing = Arc::new(PlanSharing::sharing_always());
        let location = table.location().display().to_string();
        let settings =
            Settings { partitions: *pick(&mut rng, &[1, 1, 3]), batch_rows: *pick(&mut rng, &[7, 64, 8192]) };
        let use_index = rng.random_bool(0.5);
        let paged = settings.session(&location, "pages", use_index, &sharing).await;
        let judge = settings.session(&location, "off", use_index, &sharing).await;
        for round in 0..rounds {
            let asked: Vec<(Shape, String)> =
                (0..rng.random_range(2..10)).map(|_| statement(&mut rng, &table)).collect();
            let goes = rng.random_range(0..asked.len());
            let at_once = join_all(asked.iter().enumerate().map(|(place, (shape, sql))| {
                let is_gone = place == goes && asked.len() > 2;
                answered(&paged, shape, sql, is_gone)
            }));
            let answers = match &keeper {
                Some(keeper) => {
                    let beside = keeper.before(round * TRIALS_OF_A_ROUND).await;
                    tokio::join!(at_once, beside).0
                }
                None => at_once.await,
            };
            for ((shape, sql), answer) in asked.iter().zip(answers) {
                let Some(answer) = answer else { continue };
                let alone = ask(&judge, shape, sql).await;
                found.asked += 1;
                found.errors += u64::from(matches!(alone, Answer::Error(_)));
                if !same(shape, &answer, &alone) {
                    found.failed += 1;
                    println!(
                        "DIFFERENCE seed {seed} round {round}: {}\n  {sql}\n  at once: {answer}\n  alone: {alone}",
                        table.description
                    );
                }
            }
        }
        found.pages_shared += sharing.pages_shared();
    }
    found
}

fn statement(rng: &mut StdRng, table: &RandomTable) -> (Shape, String) {
    let depth = rng.random_range(0..3);
    let aim = Aim::random(rng, table);
    let tree = Tree::random(rng, aim, depth);
    let shape = Shape::random(rng, &table.columns);
    let sql = shape.sql(&tree);
    (shape, sql)
}

/// The answer to a statement; none if whoever asked takes a batch, and goes.
async fn answered(session: &LakemarkSession, shape: &Shape, sql: &str, is_gone: bool) -> Option<Answer> {
    if !is_gone {
        return Some(ask(session, shape, sql).await);
    }
    if let Ok(frame) = session.sql(sql).await
        && let Ok(mut rows) = frame.execute_stream().await
    {
        rows.next().await;
    }
    None
}

#[derive(Clone, Copy)]
struct Settings {
    partitions: usize,
    batch_rows: usize,
}

impl Settings {
    async fn session(
        self,
        location: &str,
        share: &str,
        use_index: bool,
        sharing: &Arc<PlanSharing>,
    ) -> LakemarkSession {
        let session = LakemarkSession::with_config(SessionConfig::new().with_extension(Arc::clone(sharing)));
        for statement in [
            format!("SET datafusion.execution.target_partitions = {}", self.partitions),
            format!("SET datafusion.execution.batch_size = {}", self.batch_rows),
            format!("SET lakemark.use_index = {use_index}"),
            format!("SET lakemark.share = {share}"),
            format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{location}'"),
        ] {
            session.sql(&statement).await.unwrap().collect().await.unwrap();
        }
        session
    }
}
