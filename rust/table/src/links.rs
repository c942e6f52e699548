//! Walking the links of an edge table: what a node is linked with, what it reaches, and how.
//!
//! ```text
//! frontier ─ sorted ─▶ leaves that have these nodes ─ one round of reads, 32 in flight ─▶ links ─▶ next frontier
//!                      links that no index has ─ read once, kept sorted ─────────────────┘
//! keys of a join ─────▶ the same leaves, and how many rows each link is in ─────────────▶ rows with their values
//! ```
//!
//! Uses `updates` for the rows of files, and the rooms below it. Engines call it as [`Links`], and for joins as [`IndexedLinks`].
//!
//! Invariant: the links are those of the rows that the snapshot has now, each of them once, with the index and without. Files that no index
//! covers, files that changed, and buffered rows are read as they are now. Rows that are deleted or replaced make no link. An index file that
//! is damaged counts as none.

mod answers;
mod columns;
mod indexed_links;
mod loading;
mod memory;
mod nodes;
mod open;
mod read_rows;
mod recent;
mod side;
mod step;
mod unindexed;
mod walk;

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch};
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::store::segments::Damage;

pub use indexed_links::{IndexedLinks, LinkedRequest, LinkedRows};
pub use memory::{LinkMemory, LinkMemoryLimit};

use columns::LinkColumns;
use nodes::Nodes;
use open::OpenLinks;
use recent::Recent;
use walk::Walk;

/// Which way links are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkDirection {
    /// From subjects to objects.
    #[default]
    Out,
    /// From objects to subjects.
    In,
    /// Either way.
    Both,
}

impl LinkDirection {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Out, Self::In, Self::Both];

    /// The name in calls and statements.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
            Self::Both => "both",
        }
    }

    /// The direction of a name.
    ///
    /// # Errors
    /// There is no such direction (`InvalidInput`).
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|direction| direction.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no direction {name} of links; it is one of {names}"))
        })
    }

    fn reversed(self) -> Self {
        match self {
            Self::Out => Self::In,
            Self::In => Self::Out,
            Self::Both => Self::Both,
        }
    }

    fn goes_out(self) -> bool {
        self != Self::In
    }

    fn goes_in(self) -> bool {
        self != Self::Out
    }
}

/// Which links a walk takes, and how far it goes.
#[derive(Clone, Debug)]
pub struct WalkOptions {
    /// The predicates of the links; any if there are none given.
    pub via: Option<ArrayRef>,
    /// Which way they are followed.
    pub direction: LinkDirection,
    /// Nodes that are fewer links away are left out. The start is 0 links away.
    pub min_depth: u32,
    /// Links from the start, at most; as many as there are if there is no number.
    pub max_depth: Option<u32>,
    /// No more rows than these.
    pub limit: Option<usize>,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self { via: None, direction: LinkDirection::Out, min_depth: 1, max_depth: None, limit: None }
    }
}

/// The links of a pinned state of a table.
#[derive(Debug)]
pub struct Links {
    snapshot: Arc<Snapshot>,
    columns: LinkColumns,
    memory_bytes: u64,
    opened: Mutex<Opened>,
}

/// The indexes as they are open.
#[derive(Clone, Debug)]
struct Opened {
    links: Arc<OpenLinks>,
    /// The ids of segments that are of no use.
    damaged: HashSet<[u8; 16]>,
}

/// Why a walk ended early.
#[derive(Debug)]
enum WalkError {
    Failed(Error),
    /// A segment cannot be used.
    Damaged {
        segment: [u8; 16],
        path: String,
        damage: Damage,
    },
}

impl From<Error> for WalkError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Links that stay open for the next walk, with those that no index has: buffered rows are many, and were read.
static RECENT: Mutex<Recent<Arc<Links>>> = Mutex::new(Recent::new());

impl Links {
    /// The links that the rows of a snapshot are, by their columns: subject, predicate and object, or subject and object. Links that no
    /// index has are read now, and kept in up to `memory_bytes` of memory.
    ///
    /// # Errors
    /// Columns that the table lacks (`NotFound`), or that are no links (`InvalidInput`, `Unsupported`); too many links without an index
    /// (`Unsupported`).
    pub fn of(snapshot: Arc<Snapshot>, columns: &[String], memory_bytes: u64) -> BoxFuture<'static, Result<Arc<Self>>> {
        let named = LinkColumns::of(&snapshot, columns);
        Box::pin(async move {
            let columns = named?;
            if let Some(known) = still_open(&snapshot, &columns) {
                return Ok(known);
            }
            let damaged = HashSet::new();
            let links = Arc::new(OpenLinks::open(&snapshot, &columns, &damaged, memory_bytes).await?);
            let kept = links.memory_bytes();
            let opened = Mutex::new(Opened { links, damaged });
            let links = Arc::new(Self { snapshot, columns, memory_bytes, opened });
            RECENT.lock().unwrap_or_else(PoisonError::into_inner).keep(Arc::clone(&links), kept);
            Ok(links)
        })
    }

    /// What nodes are linked with: columns `from`, `predicate` where links have one, and `node`. A link that several rows are is there once.
    ///
    /// # Errors
    /// Nodes or predicates of another type (`InvalidInput`), too little memory (`Unsupported`), files that cannot be read.
    pub fn neighbours<'a>(
        &'a self,
        nodes: &'a ArrayRef,
        options: &'a WalkOptions,
        memory: &'a dyn LinkMemory,
    ) -> BoxFuture<'a, Result<RecordBatch>> {
        Box::pin(async move {
            let nodes = &Nodes::of(self, nodes, options)?;
            let found = self.walked(memory, |walk| async move { walk.neighbours(nodes).await }).await?;
            answers::neighbours(self, (nodes.keys.clone(), found))
        })
    }

    /// How many links nodes have: columns `node`, `out` and `in`.
    ///
    /// # Errors
    /// Those of [`Self::neighbours`].
    pub fn degrees<'a>(
        &'a self,
        nodes: &'a ArrayRef,
        options: &'a WalkOptions,
        memory: &'a dyn LinkMemory,
    ) -> BoxFuture<'a, Result<RecordBatch>> {
        Box::pin(async move {
            let nodes = &Nodes::of(self, nodes, options)?;
            let found = self.walked(memory, |walk| async move { walk.degrees(nodes).await });
            answers::degrees(self, found.await?)
        })
    }

    /// The nodes that all of these are linked with: a column `node`.
    ///
    /// # Errors
    /// Those of [`Self::neighbours`].
    pub fn common<'a>(
        &'a self,
        nodes: &'a ArrayRef,
        options: &'a WalkOptions,
        memory: &'a dyn LinkMemory,
    ) -> BoxFuture<'a, Result<RecordBatch>> {
        Box::pin(async move {
            let nodes = &Nodes::of(self, nodes, options)?;
            let found = self.walked(memory, |walk| async move { walk.common(nodes).await });
            answers::common(self, found.await?)
        })
    }

    /// The nodes that links lead to from one of these, over others or not, each with the fewest links to it: columns `node` and `depth`, in
    /// the order of depths. A start is among them if links lead back to it, or if the depth may be 0.
    ///
    /// # Errors
    /// Those of [`Self::neighbours`]; a least depth above the largest one (`InvalidInput`).
    pub fn reach<'a>(
        &'a self,
        starts: &'a ArrayRef,
        options: &'a WalkOptions,
        memory: &'a dyn LinkMemory,
    ) -> BoxFuture<'a, Result<RecordBatch>> {
        Box::pin(async move {
            let nodes = &Nodes::of(self, starts, options)?;
            let found = self.walked(memory, |walk| async move { walk.reach(nodes).await });
            answers::reached(self, found.await?)
        })
    }

    /// A shortest way from one node to another: columns `step`, `node`, and `predicate` where links have one, which is that of the link to the
    /// node. No row if there is no way. Of several ways it is always the same one.
    ///
    /// # Errors
    /// Those of [`Self::reach`].
    pub fn path<'a>(
        &'a self,
        from: &'a ArrayRef,
        to: &'a ArrayRef,
        options: &'a WalkOptions,
        memory: &'a dyn LinkMemory,
    ) -> BoxFuture<'a, Result<RecordBatch>> {
        Box::pin(async move {
            let from = &Nodes::one(self, from, options)?;
            let to = &Nodes::one(self, to, options)?;
            let found = self.walked(memory, |walk| async move { walk.path(from, to).await });
            answers::path(self, found.await?)
        })
    }

    /// Walks, and begins anew without a segment that turns out to be damaged.
    async fn walked<'a, T, F, W>(&self, memory: &'a dyn LinkMemory, walk: F) -> Result<T>
    where
        F: Fn(Walk<'a>) -> W,
        W: Future<Output = std::result::Result<T, WalkError>>,
    {
        loop {
            let links = Arc::clone(&self.now().links);
            match walk(Walk::new(links, memory)).await {
                Ok(found) => return Ok(found),
                Err(WalkError::Failed(error)) => return Err(error),
                Err(WalkError::Damaged { segment, path, damage }) => {
                    let (reason, problem) = (damage.reason.code(), damage.problem);
                    tracing::warn!(
                        segment = path,
                        reason,
                        problem,
                        "an index file of links cannot be used; its rows are read"
                    );
                    self.without(segment).await?;
                }
            }
        }
    }

    fn now(&self) -> Opened {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the links again without a segment.
    async fn without(&self, segment: [u8; 16]) -> Result<()> {
        let mut damaged = self.now().damaged;
        damaged.insert(segment);
        let links = OpenLinks::open(&self.snapshot, &self.columns, &damaged, self.memory_bytes).await?;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Opened { links: Arc::new(links), damaged };
        Ok(())
    }
}

/// The links of the same columns in the same state, if the process has them open.
fn still_open(snapshot: &Arc<Snapshot>, columns: &LinkColumns) -> Option<Arc<Links>> {
    let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |links: &Arc<Links>| {
        links.columns == *columns && (Arc::ptr_eq(&links.snapshot, snapshot) || links.snapshot.is_same_state(snapshot))
    };
    recent.find(is_it).cloned()
}
