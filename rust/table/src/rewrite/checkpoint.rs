//! What follows a commit: a checkpoint after so many versions as the table says, and the removal of what the log has kept for long enough.
//!
//! The commit was made, whatever becomes of them. So an error is told in the program's log, and whoever makes the next checkpoint makes
//! up for it.

use std::path::PathBuf;

use chrono::Duration;
use object_store::ObjectStoreExt;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::files::delta::{Checkpoint, DeltaState, LOG_FOLDER, WriterFeature};
use crate::rewrite::log_files::{cutoff_ms, expired, interval_ms};
use crate::storage::clock;
use crate::storage::disk::on_a_thread;
use crate::storage::location::{Location, place_of};
use crate::storage::temp_file::TempFile;

/// Versions from one checkpoint to the next unless the table says otherwise.
const INTERVAL: u64 = 10;

/// How long a log keeps its commits unless the table says otherwise.
const RETENTION: &str = "interval 30 days";

/// The file that says which checkpoint is the last one.
const LAST: &str = "_last_checkpoint";

/// Does what is due after a commit as this version. `state` is the one that was committed to, whose properties the commit left alone.
pub(super) async fn after_commit(location: &Location, state: &DeltaState, version: u64) {
    let interval = state.properties().get("delta.checkpointInterval").and_then(|count| count.parse::<u64>().ok());
    let interval = interval.filter(|interval| *interval > 0).unwrap_or(INTERVAL);
    if version == 0 || !version.is_multiple_of(interval) {
        return;
    }
    if let Err(error) = write(location, version).await {
        tracing::warn!(table = location.text, version, %error, "no checkpoint was written; the next one comes {interval} versions later");
        return;
    }
    if let Err(error) = clean(location, state).await {
        tracing::warn!(table = location.text, version, %error, "the log was not cleaned up; that is tried again after the next checkpoint");
    }
}

/// Writes the checkpoint of a version, unless somebody did, and says that it is the last one.
async fn write(location: &Location, version: u64) -> Result<()> {
    let name = format!("{version:020}.checkpoint.parquet");
    let place = place_of(&location.prefix, &format!("{LOG_FOLDER}/{name}"))?;
    match location.object_store.head(&place).await {
        Err(object_store::Error::NotFound { .. }) => {}
        Ok(_) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let Checkpoint { bytes, actions, files } = Checkpoint::of(location, version).await?;
    let size = bytes.len();
    put(location, &name, bytes).await?;
    if last_version(location).await.is_some_and(|last| last > version) {
        return Ok(());
    }
    let last = json!({"version": version, "size": actions, "sizeInBytes": size, "numOfAddFiles": files});
    put(location, LAST, last.to_string().into_bytes()).await
}

/// The version of the last checkpoint, as far as the log says.
async fn last_version(location: &Location) -> Option<u64> {
    let place = place_of(&location.prefix, &format!("{LOG_FOLDER}/{LAST}")).ok()?;
    let last = location.object_store.get(&place).await.ok()?.bytes().await.ok()?;
    serde_json::from_slice::<Value>(&last).ok()?.get("version")?.as_u64()
}

/// Puts a file of the log, in the place of one that may be there. It is there as a whole or not at all.
async fn put(location: &Location, name: &str, bytes: Vec<u8>) -> Result<()> {
    let Some(folder) = location.local.as_ref().map(|root| root.join(LOG_FOLDER)) else {
        let place = place_of(&location.prefix, &format!("{LOG_FOLDER}/{name}"))?;
        location.object_store.put(&place, bytes.into()).await?;
        return Ok(());
    };
    let target: PathBuf = folder.join(name);
    let renamed = on_a_thread(move || TempFile::synced(&folder, &bytes)?.rename(&target));
    let renamed: std::io::Result<()> = renamed.await.map_err(|error| Error::task(&error))?;
    renamed.map_err(|error| Error::io("a file of the Delta log cannot be written").with_source(error))
}

/// Removes what the log has kept for as long as the table says.
async fn clean(location: &Location, state: &DeltaState) -> Result<()> {
    let properties = state.properties();
    let is_off =
        properties.get("delta.enableExpiredLogCleanup").is_some_and(|value| value.eq_ignore_ascii_case("false"));
    // Who may remove what of such a log depends on features that it had.
    if is_off || state.writer_features().contains(&WriterFeature::CheckpointProtection) {
        return Ok(());
    }
    let retention = properties.get("delta.logRetentionDuration").map_or(RETENTION, String::as_str);
    let Some(retention) = interval_ms(retention).and_then(Duration::try_milliseconds) else {
        return Err(Error::unsupported(
            "delta.logRetentionDuration is no interval that is known, such as `interval 30 days`",
        ));
    };
    let folder = location.prefix.clone().join(LOG_FOLDER);
    let listed = location.object_store.list_with_delimiter(Some(&folder)).await?.objects;
    let Some(cutoff) = cutoff_ms(&listed, clock::utc(), retention) else { return Ok(()) };
    let gone = expired(&listed, cutoff);
    if !gone.is_empty() {
        tracing::info!(table = location.text, files = gone.len(), "expired files of the log are removed");
    }
    for place in gone {
        match location.object_store.delete(&place).await {
            // Somebody else cleans up as well.
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
