//! Several builds of a table at once: each leaves to the others what these build, or have committed.
//!
//! ```text
//! task ─▶ committed by others? ─▶ claimed by others? ──no──▶ claim, run, release
//!             │ yes: leave it         │ yes: later
//! at the end: what others claimed ─▶ committed, or free to claim: what they left is taken over, the rest is built
//! ```
//!
//! Claims only save work ([`crate::store::claims`]).

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::run::run;
use super::task::BuildTask;
use super::{BuildPart, RunningBuild, check_cancel};
use crate::error::{Error, Result};
use crate::options::BuildOptions;
use crate::snapshot::BaseTable;
use crate::storage::clock::Moment;
use crate::storage::ids::new_id;
use crate::store::claims::Claims;

/// Runs a task when nobody else runs the same.
pub(crate) async fn run_in_turn(table: &BaseTable, task: &BuildTask, options: &BuildOptions) -> Result<BuildPart> {
    let store = table.writable_store()?;
    let (mut claims, since, id) = (Claims::new(store, task.build()), Moment::now(), task.claim_id()?);
    let claim = loop {
        check_cancel(options.cancel.as_ref())?;
        let claim = claims.take(id).await;
        if claim.is_some() || claims.is_overdue(id, since) {
            break claim;
        }
        claims.pause(id, Duration::MAX).await;
    };
    let part = run(table, task, options).await;
    if let Some(claim) = claim {
        claim.release().await;
    }
    part
}

/// Runs the tasks of a build, but for those whose work others do. Whoever meets others goes on at another place, so that they do not meet
/// all the time.
pub(super) async fn run_all(running: &mut RunningBuild<'_>, options: &BuildOptions) -> Result<()> {
    let Some(build) = running.tasks().first().map(BuildTask::build) else { return Ok(()) };
    let mut left: VecDeque<usize> = (0..running.tasks().len()).collect();
    let mut claimed: VecDeque<ClaimedTask> = VecDeque::new();
    let mut claims = Claims::new(running.table().writable_store()?, build);
    let mut has_met_others = false;
    while let Some(task) = left.pop_front() {
        let task = ClaimedTask { number: task, id: planned(running, task)?.claim_id()? };
        match attempt(running, &mut claims, task, options).await? {
            Attempt::Run => continue,
            Attempt::Committed => {}
            Attempt::Claimed => claimed.push_back(task),
        }
        if !has_met_others && !left.is_empty() {
            has_met_others = true;
            let place = new_id().as_u128() % left.len() as u128;
            left.rotate_left(usize::try_from(place).unwrap_or_default());
        }
    }
    let mut since = Moment::now();
    while let Some(task) = claimed.pop_front() {
        match attempt(running, &mut claims, task, options).await? {
            Attempt::Run | Attempt::Committed => {}
            Attempt::Claimed if claims.is_overdue(task.id, since) => {
                run_and_commit(running, task.number, options).await?;
            }
            Attempt::Claimed => {
                claimed.push_back(task);
                wait(running, &claims, task.id, options).await?;
                continue;
            }
        }
        // Whoever has the next one may have begun it just now.
        since = Moment::now();
    }
    Ok(())
}

/// A task of the plan, and the id of its claim, which takes a hash of the whole task.
#[derive(Clone, Copy)]
struct ClaimedTask {
    number: usize,
    id: [u8; 16],
}

/// What became of a task.
enum Attempt {
    Run,
    /// Others have committed it.
    Committed,
    /// Others are running it.
    Claimed,
}

async fn attempt(
    running: &mut RunningBuild<'_>,
    claims: &mut Claims,
    task: ClaimedTask,
    options: &BuildOptions,
) -> Result<Attempt> {
    if running.is_done_by_others(task.number).await? {
        running.leave_to_others(task.number);
        return Ok(Attempt::Committed);
    }
    let Some(claim) = claims.take(task.id).await else { return Ok(Attempt::Claimed) };
    let outcome = run_and_commit(running, task.number, options).await;
    claim.release().await;
    outcome.map(|()| Attempt::Run)
}

fn planned<'a>(running: &'a RunningBuild<'_>, task: usize) -> Result<&'a BuildTask> {
    running.tasks().get(task).ok_or_else(|| Error::internal("a task out of range"))
}

/// Waits a little for others. What is finished is committed in time.
async fn wait(running: &mut RunningBuild<'_>, claims: &Claims, claim: [u8; 16], options: &BuildOptions) -> Result<()> {
    check_cancel(options.cancel.as_ref())?;
    claims.pause(claim, running.due_in().unwrap_or(Duration::MAX)).await;
    match running.due_in() {
        Some(Duration::ZERO) => running.commit().await,
        _ => Ok(()),
    }
}

/// Runs a task. What other tasks have finished is committed in time, however long this one takes.
async fn run_and_commit(running: &mut RunningBuild<'_>, number: usize, options: &BuildOptions) -> Result<()> {
    let task = planned(running, number)?.clone();
    let table = running.table();
    let mut work = pin!(run(table, &task, options));
    let part = loop {
        let Some(wait) = running.due_in() else { break work.await };
        if let Ok(part) = timeout(wait, &mut work).await {
            break part;
        }
        if let Err(error) = running.commit().await {
            // Whoever stops the build commits it, if that can be done by then.
            if let Ok(part) = work.await {
                let _ = running.add(number, part).await;
            }
            return Err(error);
        }
    };
    running.add(number, part?).await
}
