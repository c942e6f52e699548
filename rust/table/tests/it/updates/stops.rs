//! Somebody is stopped at a step of his, until others have done what they do meanwhile, maybe hours later.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use lakemark_table::{Progress, Table, TableOptions, VacuumOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::block_in_place;

use crate::layer::{Layer, Log};

/// Somebody who waits until he may go on.
pub type Waiting = SyncSender<()>;

/// Stops whoever comes by, at one step or at each that begins anew.
#[derive(Debug)]
pub struct Stops {
    steps: AtomicU64,
    /// The step, from 0; every beginning if there is none.
    at: Option<u64>,
    waiting: UnboundedSender<Waiting>,
}

impl Stops {
    pub fn new(at: Option<u64>) -> (Arc<Self>, UnboundedReceiver<Waiting>) {
        let (waiting, stopped) = unbounded_channel();
        (Arc::new(Self { steps: AtomicU64::new(0), at, waiting }), stopped)
    }

    pub fn step(&self, begins: bool) {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        if self.at.map_or(begins, |at| at == step) {
            let (go, went) = sync_channel(1);
            if self.waiting.send(go).is_ok() {
                block_in_place(|| went.recv()).ok();
            }
        }
    }
}

impl Progress for Stops {
    fn start(&self, _: u64) {
        self.step(true);
    }

    fn advance(&self, _: u64) {
        self.step(false);
    }

    fn finish(&self) {}
}

/// A vacuum by somebody for whom two hours have passed since everything was written. Others may have the files open: none is touched.
pub async fn vacuum_hours_later(root: &Path) {
    let (hour, operations) = (Duration::from_secs(60 * 60), Log::new());
    *operations.time.lock().unwrap() = Some((SystemTime::now() - 2 * hour).into());
    let layer = |store| Layer::over(store, &operations);
    let table = Table::open_layered(root.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    table.vacuum(VacuumOptions { older_than: hour, ..VacuumOptions::default() }).await.unwrap();
}
