//! Rows of changes on their way from a task to the store of a table.
//!
//! Java holds a number for the rows of each operation of a task. Numbers are looked up, so that one that was closed already is an error and
//! no wild address.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::{ArrayData, MutableArrayData, RecordBatch, StructArray};
use jni::sys::jlong;
use lakemark_table::{ErrorKind, Operation, Staging};

use crate::error::{NativeError, Result};
use crate::table_cache::TableRef;

#[derive(Default)]
struct Open {
    last: jlong,
    files: HashMap<jlong, Staging>,
}

static OPEN: OnceLock<Mutex<Open>> = OnceLock::new();

fn open() -> MutexGuard<'static, Open> {
    OPEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The operation that Java names.
pub(crate) fn operation_of(name: &str) -> Result<Operation> {
    Operation::of_name(name).ok_or_else(|| {
        NativeError::new(
            ErrorKind::InvalidInput,
            format!("operation is {name}; it must be insert, upsert, update or delete"),
        )
    })
}

/// Begins to write rows of one operation aside.
pub(crate) async fn begin(named: TableRef, operation: Operation) -> Result<jlong> {
    let staging = named.open().await?.stage(operation).await?;
    let mut open = open();
    open.last += 1;
    let number = open.last;
    open.files.insert(number, staging);
    Ok(number)
}

/// Adds the rows of a struct; gives the bytes of rows that are in memory then.
pub(crate) async fn write(number: jlong, rows: ArrayData) -> Result<jlong> {
    let rows = RecordBatch::from(StructArray::from(copied(&rows)?));
    // Others go on while this one writes.
    let mut staging = take(number)?;
    let written = staging.write(rows).await;
    let waiting = staging.waiting_bytes();
    open().files.insert(number, staging);
    written?;
    Ok(jlong::try_from(waiting).unwrap_or(jlong::MAX))
}

/// The same values in memory of our own, aligned as Rust has it: Java fills its memory with the next rows.
fn copied(rows: &ArrayData) -> Result<ArrayData> {
    let mut rows = rows.clone();
    // Java aligns its memory to 8 bytes only.
    rows.align_buffers();
    let mut copy = MutableArrayData::new(vec![&rows], false, rows.len());
    copy.try_extend(0, 0, rows.len())?;
    Ok(copy.freeze())
}

/// Makes the rows durable; gives their names as a JSON array.
pub(crate) async fn finish(number: jlong) -> Result<String> {
    Ok(serde_json::to_string(&take(number)?.finish().await?)?)
}

/// Removes what was written, if it was not finished.
pub(crate) async fn abandon(number: jlong) {
    let staging = open().files.remove(&number);
    if let Some(staging) = staging {
        staging.abandon().await;
    }
}

fn take(number: jlong) -> Result<Staging> {
    open().files.remove(&number).ok_or_else(|| NativeError::internal("the staged rows are closed"))
}
