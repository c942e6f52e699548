//! Whether a store and a Delta table belong together, and how far each of them has come.
//!
//! ```text
//! what the store says                                  what the table's log says
//! id of the table                                  =   id in its metadata       else the table was made anew
//! number of the last migration that was begun      ≥   transaction `lakemark-STORE`            else the store was put back from a backup
//! version that has the last migration              ≤   newest version           else the log was set back
//! ```
//!
//! A store that is behind counts the migrations of the log as done. The transaction `lakemark-STORE-through` says up to which
//! sequence number everything is in the data files.

use std::sync::Arc;

use lakemark_format::Manifest;
use uuid::Uuid;

use crate::error::Result;
use crate::files::delta::DeltaState;

/// How a store and the pinned state of a table's log go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lineage {
    /// They belong together.
    Same {
        /// Whether the log has the migration that the manifest names.
        migrated: bool,
    },
    /// The log has this migration, which the store never began; all changes up to a sequence number are in the data files.
    Behind { migrations: u64, through: u64 },
    /// They do not belong together, and why.
    Parted(Arc<str>),
}

impl Default for Lineage {
    fn default() -> Self {
        Self::Same { migrated: false }
    }
}

/// The name of a store in the logs of Delta tables. The version of this application is the number of the last migration.
pub(crate) fn application(store_id: [u8; 16]) -> String {
    format!("lakemark-{}", Uuid::from_bytes(store_id))
}

/// The name under which a log says up to which sequence number all changes are in the data files. A checkpoint forgets the reason of a
/// commit, but it keeps transactions.
pub(crate) fn application_through(store_id: [u8; 16]) -> String {
    format!("{}-through", application(store_id))
}

impl Lineage {
    pub(crate) async fn of(state: &DeltaState, manifest: Option<&Manifest>) -> Result<Self> {
        let Some((manifest, updates)) = manifest.and_then(|manifest| Some((manifest, manifest.updates()?))) else {
            return Ok(Self::default());
        };
        let known = updates.delta.clone().unwrap_or_default();
        if known.table_id != state.table_id() {
            return Ok(Self::Parted("the table was made anew since: it has another id".into()));
        }
        if known.version > state.version {
            let (newest, version) = (state.version, known.version);
            let why = format!(
                "its log ends with version {newest}, where the store has seen version {version}: it was set back"
            );
            return Ok(Self::Parted(why.into()));
        }
        let begun = updates.migrations;
        match number_of(state, &application(manifest.store_id())).await? {
            Some(migrations) if migrations > begun => {
                let through = number_of(state, &application_through(manifest.store_id())).await?.unwrap_or(0);
                Ok(Self::Behind { migrations, through })
            }
            Some(logged) if logged < known.last_migration => {
                let why = format!(
                    "its log has no migration {}, which the store has seen there: it was set back",
                    known.last_migration
                );
                Ok(Self::Parted(why.into()))
            }
            logged => {
                let number = updates.migration.as_ref().map(|migration| migration.number);
                Ok(Self::Same { migrated: number.is_some_and(|number| logged.is_some_and(|logged| logged >= number)) })
            }
        }
    }
}

async fn number_of(state: &DeltaState, application: &str) -> Result<Option<u64>> {
    Ok(state.application_version(application).await?.and_then(|version| u64::try_from(version).ok()))
}
