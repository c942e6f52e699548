//! Builds that run as a Spark job: the driver plans and commits as tasks end, executors run the tasks.
//!
//! Tasks and what they give cross as bytes, which `table` makes and checks. A task looks from time to time whether Spark has given it up.

use std::time::Duration;

use jni::objects::{JByteArray, JObject, JValue};
use jni::{Env, jni_sig, jni_str};
use lakemark_table::{BuildOptions, BuildPart, BuildTask, CancelFlag, Error, ErrorKind, Merging, RunningBuild};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{NativeError, Result};
use crate::maintain::BuildTuning;
use crate::runtime::block_on;
use crate::table_cache::TableRef;

/// How often a task looks whether Spark has given it up.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How long the driver waits for a task's end before it looks whether it is time for a commit.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The driver's request for a build.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuildRequest {
    /// The only index to build; all of them if none is given.
    index: Option<String>,
    /// How large a share of the segments is compared with the data first.
    #[serde(default)]
    verify: f64,
    /// Seconds that finished segments wait for a commit at most.
    commit_every: Option<u64>,
    /// Data files that may fail.
    max_failures: Option<u64>,
    /// Whether segments are merged afterwards, if there are too many. Nobody but the driver would do it, so that it has to be asked for.
    merge: Option<bool>,
    /// Tasks that can run at the same time.
    workers: usize,
}

/// What `TaskRunner.next` gives if no task came to its end in time.
const NONE_YET: i32 = -1;
/// What it gives if none will any more.
const ENDED: i32 = -2;

/// Builds what the declared indexes lack, and gives the report in JSON; `job` is an `io.lakemark.spark.jni.TaskRunner`.
pub(crate) fn build(env: &mut Env<'_>, table: &TableRef, request: BuildRequest, job: &JObject<'_>) -> Result<Value> {
    let BuildRequest { index, verify, commit_every, max_failures, merge, workers } = request;
    let commit_every = commit_every.map(Duration::from_secs);
    let merging = if merge == Some(true) { Merging::Due } else { Merging::Never };
    let options = BuildOptions { index, verify, commit_every, max_failures, merging, ..BuildOptions::default() };
    let table = block_on(table.open())??;
    let plan = block_on(table.plan_build(&options, workers))??;
    let mut running = table.begin_build(plan, &options)?;
    for task in running.tasks() {
        let task = task.to_bytes()?;
        env.with_local_frame(LOCALS, |env| -> Result<()> {
            let bytes = env.byte_array_from_slice(&task)?;
            env.call_method(job, jni_str!("add"), jni_sig!("([B)V"), &[JValue::Object(&bytes)])?;
            Ok(())
        })?;
    }
    let tasks = running.tasks().len();
    match run_all(env, job, &mut running) {
        Ok(ended) if ended == tasks => {
            let report = block_on(running.finish())??;
            Ok(serde_json::to_value(block_on(table.merge_built(report, &options))??)?)
        }
        Ok(ended) => {
            let text = format!("{} of {tasks} tasks of the build came to no end", tasks - ended);
            Err(block_on(running.stop(Error::new(ErrorKind::Cancelled, text)))?.into())
        }
        Err(Stopped::Table(error)) => Err(block_on(running.stop(error))?.into()),
        Err(Stopped::Java(error)) => {
            // What Java says is more than what a commit could add.
            let _ = block_on(running.commit())?;
            Err(error)
        }
    }
}

/// Why not all tasks are waited for.
enum Stopped {
    Table(Error),
    Java(NativeError),
}

impl From<NativeError> for Stopped {
    fn from(error: NativeError) -> Self {
        Self::Java(error)
    }
}

/// Takes what the tasks give until none of them runs any more, and commits that now and then. Says how many came to their end.
fn run_all(
    env: &mut Env<'_>,
    job: &JObject<'_>,
    running: &mut RunningBuild<'_>,
) -> std::result::Result<usize, Stopped> {
    if running.tasks().is_empty() {
        return Ok(0);
    }
    env.call_method(job, jni_str!("start"), jni_sig!("()V"), &[]).map_err(NativeError::from)?;
    let mut ended = 0;
    loop {
        let wait = running.due_in().map_or(LONGEST_WAIT, |due| due.min(LONGEST_WAIT));
        let wait = JValue::Long(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        let next = env.call_method(job, jni_str!("next"), jni_sig!("(J)I"), &[wait]).map_err(NativeError::from)?;
        match next.i().map_err(NativeError::from)? {
            ENDED => return Ok(ended),
            NONE_YET => {}
            task => {
                let part = part(env, job, task)?;
                let task = usize::try_from(task).map_err(|_| NativeError::internal("a task has no number"))?;
                block_on(running.add(task, part))?.map_err(Stopped::Table)?;
                ended += 1;
            }
        }
        if running.due_in() == Some(Duration::ZERO) {
            block_on(running.commit())?.map_err(Stopped::Table)?;
        }
    }
}

/// A call has two arrays at most.
const LOCALS: usize = 4;

/// What a task gave.
fn part(env: &mut Env<'_>, job: &JObject<'_>, task: i32) -> std::result::Result<BuildPart, Stopped> {
    let bytes = env.with_local_frame(LOCALS, |env| -> Result<Vec<u8>> {
        let part = env.call_method(job, jni_str!("part"), jni_sig!("(I)[B"), &[JValue::Int(task)])?.l()?;
        let part = env.cast_local::<JByteArray<'_>>(part)?;
        Ok(env.convert_byte_array(&part)?)
    })?;
    BuildPart::from_bytes(&bytes).map_err(Stopped::Table)
}

/// Runs a task; `is_unwanted` says whether Spark has given it up.
pub(crate) fn run(
    table: &TableRef,
    task: &[u8],
    tuning: BuildTuning,
    mut is_unwanted: impl FnMut() -> Result<bool>,
) -> Result<Vec<u8>> {
    let task = BuildTask::from_bytes(task)?;
    let flag = CancelFlag::new();
    let options = BuildOptions { cancel: Some(flag.clone()), ..tuning.options() };
    block_on(async move {
        let table = table.open().await?;
        let mut work = table.run_build_task(&task, &options);
        let part = loop {
            match tokio::time::timeout(ASK_EVERY, &mut work).await {
                Ok(part) => break part?,
                Err(_) if is_unwanted()? => flag.cancel(),
                Err(_) => {}
            }
        };
        if is_unwanted()? {
            // Spark will not send it on.
            let text = "Spark gave the task up; what it wrote is left for whoever builds the same";
            return Err(NativeError::new(ErrorKind::Cancelled, text));
        }
        Ok(part.to_bytes()?)
    })?
}
