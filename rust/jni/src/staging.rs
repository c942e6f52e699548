//! Rows of changes on their way from a task to the store of a table.
//!
//! Java holds a number for each file that is being written. Numbers are looked up, so that one that was closed already is an error and no
//! wild address.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::{ArrayData, RecordBatch, StructArray};
use jni::sys::jlong;
use lakemark_table::{ErrorKind, Operation, Staging};

use crate::error::{NativeError, Result};
use crate::tables::Named;

#[derive(Default)]
struct Open {
    last: jlong,
    files: HashMap<jlong, Staging>,
}

static OPEN: OnceLock<Mutex<Open>> = OnceLock::new();

fn open() -> MutexGuard<'static, Open> {
    OPEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a file of rows of one operation.
pub(crate) async fn begin(named: Named, operation: &str) -> Result<jlong> {
    let operation = Operation::of_name(operation).ok_or_else(|| {
        NativeError::new(
            ErrorKind::InvalidInput,
            format!("operation is {operation}; it must be insert, upsert, update or delete"),
        )
    })?;
    let staging = named.open().await?.stage(operation)?;
    let mut open = open();
    open.last += 1;
    let number = open.last;
    open.files.insert(number, staging);
    Ok(number)
}

/// Adds the rows of a struct.
pub(crate) fn write(number: jlong, mut rows: ArrayData) -> Result<()> {
    // Java aligns its memory to 8 bytes only.
    rows.align_buffers();
    let rows = RecordBatch::from(StructArray::from(rows));
    // Others go on while this one writes.
    let mut staging = take(number)?;
    let written = staging.write(&rows);
    open().files.insert(number, staging);
    Ok(written?)
}

/// Makes the rows durable; gives their name as JSON, or nothing if there are no rows.
pub(crate) async fn finish(number: jlong) -> Result<Option<String>> {
    let staged = take(number)?.finish().await?;
    Ok(staged.map(|staged| serde_json::to_string(&staged)).transpose()?)
}

/// Removes a file that was not finished.
pub(crate) fn abandon(number: jlong) {
    let staging = open().files.remove(&number);
    drop(staging);
}

fn take(number: jlong) -> Result<Staging> {
    open().files.remove(&number).ok_or_else(|| NativeError::internal("the staged rows are closed"))
}
