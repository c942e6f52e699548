//! Builds that run as a Spark job: the driver plans and commits, executors run the tasks.
//!
//! Tasks and what they give cross as bytes, which `table` makes and checks. A task looks from time to time whether Spark has given it up.

use std::sync::Arc;
use std::time::Duration;

use jni::objects::{JByteArray, JObject, JValue};
use jni::{Env, jni_sig, jni_str};
use lakemark_table::{BuildOptions, BuildPart, BuildTask, CancelFlag, ErrorKind, Table};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{NativeError, Result};
use crate::maintain::BuildTuning;
use crate::runtime::block_on;
use crate::table_cache::TableRef;

/// How often a task looks whether Spark has given it up.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The driver's request for a build.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuildRequest {
    /// The only index to build; all of them if none is given.
    index: Option<String>,
    /// Whether every segment is compared with the data first.
    #[serde(default)]
    verify: bool,
    /// Tasks that can run at the same time.
    workers: usize,
}

/// Builds what the declared indexes lack, and gives the report in JSON; `job` is an `io.lakemark.spark.jni.TaskRunner`.
pub(crate) fn build(env: &mut Env<'_>, table: &TableRef, request: BuildRequest, job: &JObject<'_>) -> Result<Value> {
    let BuildRequest { index, verify, workers } = request;
    let options = BuildOptions { index, verify, ..BuildOptions::default() };
    let table = block_on(table.open())??;
    let plan = block_on(table.plan_build(&options, workers))??;
    for task in plan.tasks() {
        let task = task.to_bytes()?;
        env.with_local_frame(LOCALS, |env| -> Result<()> {
            let bytes = env.byte_array_from_slice(&task)?;
            env.call_method(job, jni_str!("add"), jni_sig!("([B)V"), &[JValue::Object(&bytes)])?;
            Ok(())
        })?;
    }
    let tasks = plan.tasks().len();
    if tasks > 0 {
        env.call_method(job, jni_str!("run"), jni_sig!("()V"), &[])?;
    }
    let mut parts = Vec::with_capacity(tasks);
    for task in 0..tasks {
        match part(env, job, task) {
            Ok(Some(part)) => parts.push(part),
            Ok(None) => {}
            Err(error) => return give_up(&table, &parts, error),
        }
    }
    if parts.len() < tasks {
        let lacking = tasks - parts.len();
        let error = NativeError::new(
            ErrorKind::Cancelled,
            format!(
                "{lacking} of {tasks} tasks of the build came to no end; nothing was committed, build again at any time"
            ),
        );
        return give_up(&table, &parts, error);
    }
    Ok(serde_json::to_value(block_on(table.finish_build(plan, parts))??)?)
}

/// A call has two arrays at most.
const LOCALS: usize = 4;

/// What a task gave; none if it did not come to an end.
fn part(env: &mut Env<'_>, job: &JObject<'_>, task: usize) -> Result<Option<BuildPart>> {
    let task = i32::try_from(task).map_err(|_| NativeError::internal("too many tasks for Java"))?;
    let bytes = env.with_local_frame(LOCALS, |env| -> Result<Option<Vec<u8>>> {
        let part = env.call_method(job, jni_str!("part"), jni_sig!("(I)[B"), &[JValue::Int(task)])?.l()?;
        if part.is_null() {
            return Ok(None);
        }
        let part = env.cast_local::<JByteArray<'_>>(part)?;
        Ok(Some(env.convert_byte_array(&part)?))
    })?;
    Ok(bytes.map(|bytes| BuildPart::from_bytes(&bytes)).transpose()?)
}

/// Removes what was written before it fails.
fn give_up(table: &Arc<Table>, parts: &[BuildPart], error: NativeError) -> Result<Value> {
    block_on(table.abandon_build(parts))?;
    Err(error)
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
            table.abandon_build(&[part]).await;
            return Err(NativeError::new(ErrorKind::Cancelled, "Spark gave the task up; what it wrote is removed"));
        }
        Ok(part.to_bytes()?)
    })?
}
