//! The one tokio runtime of the process.

use std::future::Future;
use std::sync::OnceLock;

use lakemark_table::ErrorKind;
use tokio::runtime::{Builder, Runtime};

use crate::error::{NativeError, Result};

static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();

/// Runs a future to its end on the calling thread of the JVM; what it spawns runs on the runtime's threads.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = RUNTIME.get_or_init(|| {
        lakemark_allocator::configure();
        Builder::new_multi_thread().thread_name("lakemark").enable_all().build()
    });
    match runtime {
        Ok(runtime) => Ok(runtime.block_on(future)),
        Err(error) => Err(NativeError::new(ErrorKind::Io, format!("cannot start the native threads: {error}"))),
    }
}
