//! What happens to a table with buffered changes between its queries, and beside them: more changes that leave every row as it is, flushes,
//! merges, migrations of a part and of the whole, and vacuums.

use std::fs::{File, read_dir};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use lakemark_table::{
    BuildOptions, Change, ErrorKind, MigrateOptions, Operation, Table, TableOptions, VacuumOptions, WriteOptions,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::column::pick;

/// Trials from one step of the keeper to the next.
const TRIALS_PER_STEP: u64 = 12;
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Somebody who keeps a table while others ask it.
pub struct Keeper {
    table: Arc<Table>,
    /// The rows that the table has all the time.
    rows: RecordBatch,
    seed: u64,
}

/// What a keeper does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Echo,
    Flush,
    Slice,
    Migrate,
    Build,
    Vacuum,
}

impl Keeper {
    pub async fn new(folder: &Path, rows: RecordBatch, seed: u64) -> Self {
        let table = Table::open(folder.to_str().unwrap(), TableOptions::default()).await.unwrap();
        Self { table, rows, seed }
    }

    /// Does what comes before this trial, alone, as far as nobody may ask meanwhile; gives what goes on beside it.
    pub async fn before(&self, trial: u64) -> impl Future<Output = ()> + '_ {
        let mut rng = StdRng::seed_from_u64(self.seed.wrapping_mul(31).wrapping_add(trial));
        let steps =
            [Step::Echo, Step::Echo, Step::Echo, Step::Flush, Step::Slice, Step::Migrate, Step::Build, Step::Vacuum];
        let step = trial.is_multiple_of(TRIALS_PER_STEP).then(|| *pick(&mut rng, &steps)).filter(|_| trial > 0);
        // Old files are made older, which those who are reading must not see.
        if let Some(Step::Vacuum) = step {
            self.vacuum().await;
        }
        async move {
            match step {
                Some(Step::Echo) => self.echo(&mut rng).await,
                Some(Step::Flush) => self.table.flush().await.unwrap(),
                Some(Step::Slice) => self.migrate(rng.random_range(0.1..0.9)).await,
                Some(Step::Migrate) => self.migrate(1.0).await,
                Some(Step::Build) => {
                    let options = BuildOptions { threads: Some(1), ..BuildOptions::default() };
                    match self.table.build(options).await {
                        // A table without any index: none was drawn, and that of the key was dropped.
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        built => drop(built.unwrap()),
                    }
                }
                Some(Step::Vacuum) | None => {}
            }
        }
    }

    /// Changes rows to what they are, in several calls and runs.
    async fn echo(&self, rng: &mut StdRng) {
        if self.rows.num_rows() == 0 {
            return;
        }
        for _ in 0..rng.random_range(1..12) {
            let first = rng.random_range(0..self.rows.num_rows() as u32);
            let chosen = (first..self.rows.num_rows() as u32).step_by(rng.random_range(1..40)).take(200);
            let mut rows = take_record_batch(&self.rows, &UInt32Array::from_iter_values(chosen)).unwrap();
            let mut operation = Operation::Upsert;
            if rng.random_bool(0.4) {
                operation = Operation::Update;
                rows = rows.project(&[0, rng.random_range(1..rows.num_columns())]).unwrap();
            }
            self.table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap();
            if rng.random_bool(0.4) {
                self.table.flush().await.unwrap();
            }
        }
    }

    async fn migrate(&self, fraction: f64) {
        match self.table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await {
            Err(error) if error.kind() != ErrorKind::Unsupported => panic!("seed {}: {error}", self.seed),
            _ => {}
        }
    }

    async fn vacuum(&self) {
        let store = Path::new(self.table.location()).join("_lakemark");
        for folder in ["manifest", "checkpoint", "indexes", "updates"] {
            for entry in read_dir(store.join(folder)).into_iter().flatten() {
                let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
                file.set_modified(SystemTime::now() - 2 * WEEK).unwrap();
            }
        }
        self.table.vacuum(VacuumOptions::default()).await.unwrap();
    }
}
