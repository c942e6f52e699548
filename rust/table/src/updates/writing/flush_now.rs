//! A flush that somebody asks for, before the buffer is full.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::turn::flush::flush;
use crate::updates::turn::merge_apart::merge_apart;
use crate::updates::turn::write_turn::WriteTurn;

/// Makes a run of the buffer, and merges runs if there are too many.
pub(crate) async fn flush_now(table: &Arc<UpdatableTable>) -> Result<()> {
    // The flush is a task of its own: the lock of writers is held until the manifest is there, also if the caller goes away.
    let table = Arc::clone(table);
    let flushed = tokio::spawn(async move {
        flush(&mut WriteTurn::begin(&table).await?).await?;
        merge_apart(&table).await;
        Ok(())
    });
    flushed.await.map_err(|error| Error::task(&error))?
}
