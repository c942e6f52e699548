//! A gate that the steps of some threads have to pass: for tests that choose who goes next, and what fails.
//!
//! A thread that [`enter`]s belongs to an actor from then on. Threads that never do pass without a word.

use std::cell::RefCell;
use std::io::Result;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::DiskStep;
use super::faults::of;

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// A folder is made.
    MakeFolder,
    /// A file is made.
    Create,
    /// Bytes are written.
    Write,
    /// The second half of them is.
    WriteRest,
    /// A file is cut off.
    Cut,
    /// Bytes of a file are synced.
    Sync,
    /// A file gets another name; the path is the new one.
    Rename,
    /// A file gets one more name; the path is that.
    Link,
    /// A name is removed.
    Remove,
    /// Names in a folder are synced.
    SyncFolder,
    /// A file was written by somebody else for us.
    Stored,
    /// A file is read that others may be writing to.
    Read,
    /// A lock is taken as soon as it is free: the gate opens when it is.
    Lock,
    /// A lock is shared as soon as nobody has it alone: the gate opens when it is.
    LockShared,
    /// A lock is taken if it is free.
    TryLock,
}

/// Who decides about the steps of an actor.
pub trait Gate: Send + Sync {
    /// Returns when the step may be made.
    ///
    /// # Errors
    /// The error that the step ends with: it is not made.
    fn before(&self, kind: StepKind, path: &Path) -> Result<()>;

    /// Learns that the step was made.
    ///
    /// # Errors
    /// The error that the step ends with all the same.
    fn after(&self, kind: StepKind, path: &Path) -> Result<()>;

    /// Whether the actor was stopped, so that nothing that it does has an effect any more.
    fn is_gone(&self) -> bool;

    /// By how much the actor's clock is ahead. Everything that the actor finds has that age at least, so that nothing depends on how long
    /// its steps take.
    fn ahead(&self) -> Duration;
}

thread_local! {
    static GATE: RefCell<Option<Arc<dyn Gate>>> = const { RefCell::new(None) };
}

/// Lets the steps of this thread pass through a gate from now on, or through none.
pub fn enter(gate: Option<Arc<dyn Gate>>) {
    GATE.with(|here| *here.borrow_mut() = gate);
}

fn here() -> Option<Arc<dyn Gate>> {
    GATE.with(|here| here.borrow().clone())
}

pub(super) fn is_here() -> bool {
    GATE.with(|here| here.borrow().is_some())
}

pub(in crate::storage) fn ahead() -> Duration {
    here().map_or(Duration::ZERO, |gate| gate.ahead())
}

pub(super) fn is_gone() -> bool {
    here().is_some_and(|gate| gate.is_gone())
}

pub(super) fn before(step: DiskStep<'_>) -> Result<()> {
    let Some(gate) = here() else { return Ok(()) };
    gate.before(kind_of(step), path_of(step))
}

pub(super) fn after(step: DiskStep<'_>) -> Result<()> {
    let Some(gate) = here() else { return Ok(()) };
    gate.after(kind_of(step), path_of(step))
}

/// Waits at the gate when half of what is written to a file is there.
pub(super) fn between(path: &Path) -> Result<()> {
    here().map_or(Ok(()), |gate| gate.before(StepKind::WriteRest, path))
}

fn kind_of(step: DiskStep<'_>) -> StepKind {
    match step {
        DiskStep::MakeFolder(_) => StepKind::MakeFolder,
        DiskStep::Create(_) => StepKind::Create,
        DiskStep::Write { .. } => StepKind::Write,
        DiskStep::Cut { .. } => StepKind::Cut,
        DiskStep::Sync(_) => StepKind::Sync,
        DiskStep::Rename { .. } => StepKind::Rename,
        DiskStep::Link { .. } => StepKind::Link,
        DiskStep::Remove(_) => StepKind::Remove,
        DiskStep::SyncFolder(_) => StepKind::SyncFolder,
        DiskStep::Stored(_) => StepKind::Stored,
        DiskStep::Read(_) => StepKind::Read,
        DiskStep::Lock(_) => StepKind::Lock,
        DiskStep::LockShared(_) => StepKind::LockShared,
        DiskStep::TryLock(_) => StepKind::TryLock,
    }
}

/// The path that a gate gets: of a file that gets a name, that name.
fn path_of(step: DiskStep<'_>) -> &Path {
    match step {
        DiskStep::Rename { to, .. } | DiskStep::Link { to, .. } => to,
        step => of(step),
    }
}
