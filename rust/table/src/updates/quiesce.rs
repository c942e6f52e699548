//! Whoever removes files must know that nobody is about to name them: writers, merges, migrations and builds hold a lock as long as they
//! are.

use std::time::Duration;

use super::locks::{MergeLock, MigrationLock, WriterLock};
use crate::error::Result;
use crate::store::Store;
use crate::store::locks::BuildLock;

/// Times that the lock of writers is tried: their turns are short.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Who does not write while this lives.
pub(crate) struct Quiesced {
    /// Nobody writes changes or merges runs: no run and no log is there that will be named.
    pub writers: bool,
    /// Nobody migrates or publishes: no data file is there that will be named.
    pub migrations: bool,
    /// Nobody builds: no segment is there that will be named.
    pub builds: bool,
    /// The lock of writers.
    _writer: Option<WriterLock>,
    /// The lock of merges.
    _merge: Option<MergeLock>,
    /// The lock of migrations.
    _migration: Option<MigrationLock>,
    /// The lock of builds.
    _build: Option<BuildLock>,
}

/// Keeps writers, migrations and builds from beginning, as far as none of them is under way.
pub(crate) async fn quiesce(store: &Store) -> Result<Quiesced> {
    let takes_updates = store.newest().await?.manifest.is_some_and(|manifest| manifest.updates().is_some());
    if !takes_updates || !store.is_local() {
        let build = BuildLock::try_take(store).await?;
        return Ok(Quiesced {
            writers: true,
            migrations: true,
            builds: build.is_some(),
            _writer: None,
            _merge: None,
            _migration: None,
            _build: build,
        });
    }
    let mut writer = None;
    for _ in 0..TRIES {
        writer = WriterLock::try_take(store).await?;
        if writer.is_some() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let merge = MergeLock::try_take(store).await?;
    let migration = MigrationLock::try_take(store).await?;
    // A migration builds, too.
    let build = BuildLock::try_take(store).await?;
    Ok(Quiesced {
        writers: writer.is_some() && merge.is_some(),
        migrations: migration.is_some(),
        builds: build.is_some(),
        _writer: writer,
        _merge: merge,
        _migration: migration,
        _build: build,
    })
}
