//! Rust values that Java holds as a `long`.
//!
//! A handle is a leaked box. Java passes it only to the functions of this crate, closes it exactly once, and never uses it
//! after that: `NativeTable.java` guards both with a lock, and zero stands for "closed".

use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use jni::sys::jlong;
use lakemark_table::Snapshot;

use crate::error::{NativeError, Result};
use crate::filter_result::FilterResult;
use crate::split::ScanSpec;
use crate::storage::TableStorage;

/// A pinned table with the options of its queries.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    pub(crate) location: String,
    pub(crate) storage: TableStorage,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) use_index: bool,
    /// The last filter and what is known of it. Whether Spark may forget the filter and which rows Spark gets must come from one look at
    /// the index files: an index file that is damaged in between would change the result.
    pub(crate) probed: Arc<Mutex<Option<CachedProbe>>>,
}

impl Pinned {
    /// A scan of these columns, as its tasks read it.
    pub(crate) fn scan_of(&self, schema: &SchemaRef) -> Result<ScanSpec> {
        let is_read = |name: &str| schema.field_with_name(name).is_ok();
        let mapping = self.snapshot.column_names().map(|mapping| mapping.of_columns(is_read));
        ScanSpec::new(&self.location, &self.storage, mapping, schema)
    }
}

/// A filter, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct CachedProbe {
    /// As Java sent it.
    pub(crate) filter: String,
    /// What is known of it.
    pub(crate) result: Arc<FilterResult>,
}

/// Gives the value to Java.
pub(crate) fn give(pinned: Pinned) -> jlong {
    Box::into_raw(Box::new(pinned)) as jlong
}

/// A clone of the value behind a handle.
pub(crate) fn get(handle: jlong) -> Result<Pinned> {
    if handle == 0 {
        return Err(NativeError::internal("the table is closed"));
    }
    // SAFETY: not zero, so `give` made it and `take_back` has not had it (module documentation).
    Ok(unsafe { &*(handle as *const Pinned) }.clone())
}

/// Takes the value back from Java and drops it.
pub(crate) fn take_back(handle: jlong) {
    if handle != 0 {
        // SAFETY: as in `get`; Java forgets the handle before this call.
        drop(unsafe { Box::from_raw(handle as *mut Pinned) });
    }
}
