//! What keeps a table's indexes and its buffered changes: a request comes as JSON, and a report goes back as JSON.
//!
//! Names, options and reports are those of the shell and of Python.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lakemark_table::{
    BuildOptions, ErrorKind, IndexInfo, IndexSpec, Merging, MigrateOptions, RepairAction, Snapshot, StagedRows, Table,
    TableFormat, Transaction, VacuumOptions, WriteOptions, column_list, kind_or_auto, names_of,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{NativeError, Result};
use crate::read_points;

/// The option of an index that names columns.
const INCLUDE: &str = "include";

/// What is to be done.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum MaintenanceRequest {
    /// What the table is: how its files are known, and where its indexes are.
    Describe,
    Indexes,
    CreateIndex(Declaration),
    DropIndex {
        name: String,
    },
    Compact(Compaction),
    Verify,
    Advise,
    Migrate {
        fraction: f64,
        max_bytes: Option<u64>,
        threshold: Option<f64>,
    },
    Publish,
    /// Decides what becomes of buffered changes whose store does not belong to the table any more.
    Repair {
        /// `keep` or `discard`.
        buffered: String,
    },
    Vacuum {
        older_than_seconds: u64,
        dry_run: bool,
        originals: bool,
    },
    History {
        limit: Option<usize>,
    },
    /// The newest version that was made until a timestamp.
    VersionAt {
        micros: i64,
    },
    /// The columns of the key, or an error if the table cannot be changed.
    Key,
    DeclareKey {
        #[serde(default)]
        columns: Vec<String>,
        #[serde(default)]
        options: BTreeMap<String, String>,
    },
    /// Makes the changes that tasks have staged.
    Write(StagedCall),
    DiscardStaged {
        staged: Vec<StagedRows>,
    },
}

/// One call, of all that the tasks of a statement have staged.
#[derive(Debug, Deserialize)]
pub(crate) struct StagedCall {
    staged: Vec<StagedRows>,
    /// The state that the statement has read, if what it does depends on that.
    read: Option<u64>,
    /// The caller's name for the change, with the number of the change.
    txn_app_id: Option<String>,
    txn_version: Option<u64>,
}

impl StagedCall {
    async fn make(self, table: &Arc<Table>) -> Result<()> {
        let Self { staged, read, txn_app_id, txn_version } = self;
        let transaction = txn_app_id.zip(txn_version);
        let transaction = transaction.map(|(application, version)| Transaction { application, version });
        let read = match read.map(read_points::recall) {
            Some(None) => return Err(forgotten()),
            Some(read) => read,
            None => None,
        };
        let read_at = read.as_ref().and_then(|read| read.sequence());
        table.write_staged(&staged, WriteOptions { read_at, read, transaction }).await?;
        Ok(())
    }
}

/// Too many other statements began since.
fn forgotten() -> NativeError {
    let text = "the state that the statement has read is not remembered any more, so that nobody can tell whether its rows were changed; \
                nothing was written, try again";
    lakemark_table::Error::new(ErrorKind::Conflict, text).into()
}

fn no_repair(given: &str) -> NativeError {
    let text = format!("buffered is {given:?}; give 'keep' or 'discard'");
    lakemark_table::Error::new(ErrorKind::InvalidInput, text).into()
}

/// An index to declare; [`crate::build`] fills it.
#[derive(Debug, Deserialize)]
pub(crate) struct Declaration {
    name: Option<String>,
    columns: Vec<String>,
    /// Empty for `auto`.
    kind: String,
    options: BTreeMap<String, String>,
}

/// How a compaction runs.
#[derive(Debug, Deserialize)]
pub(crate) struct Compaction {
    #[serde(flatten)]
    tuning: BuildTuning,
    /// Whether to merge all that fits, whatever that writes.
    full: Option<bool>,
}

impl Compaction {
    fn options(self) -> BuildOptions {
        let Self { tuning, full } = self;
        let merging = if full == Some(true) { Merging::All } else { Merging::Due };
        BuildOptions { merging, ..tuning.options() }
    }
}

/// How a task of a build runs, and a compaction.
#[derive(Debug, Deserialize)]
pub(crate) struct BuildTuning {
    /// The only index; all of them if none is given.
    index: Option<String>,
    memory: Option<u64>,
    threads: Option<NonZeroUsize>,
}

impl BuildTuning {
    pub(crate) fn options(self) -> BuildOptions {
        let Self { index, memory, threads } = self;
        BuildOptions { index, memory_bytes: memory, threads: threads.map(NonZeroUsize::get), ..BuildOptions::default() }
    }
}

#[derive(Debug, Serialize)]
struct Description<'a> {
    format: TableFormat,
    store: Option<&'a str>,
    partition_columns: Vec<String>,
    key: Option<Vec<String>>,
}

/// Does what a request says, and reports what was done.
pub(crate) async fn answer(table: &Arc<Table>, request: MaintenanceRequest) -> Result<Value> {
    Ok(match request {
        MaintenanceRequest::Describe => describe(table).await?,
        MaintenanceRequest::Indexes => serde_json::to_value(table.snapshot().await?.checked_indexes().await?)?,
        MaintenanceRequest::CreateIndex(declaration) => serde_json::to_value(create(table, declaration).await?)?,
        MaintenanceRequest::DropIndex { name } => serde_json::to_value(table.drop_index(&name, false).await?)?,
        MaintenanceRequest::Compact(compaction) => serde_json::to_value(table.compact(compaction.options()).await?)?,
        MaintenanceRequest::Verify => serde_json::to_value(table.verify().await?)?,
        MaintenanceRequest::Advise => serde_json::to_value(table.advise(None).await?)?,
        MaintenanceRequest::Migrate { fraction, max_bytes, threshold } => {
            let options = MigrateOptions { fraction, max_bytes, threshold, progress: None };
            serde_json::to_value(table.migrate(options).await?)?
        }
        MaintenanceRequest::Publish => serde_json::to_value(table.publish().await?)?,
        MaintenanceRequest::Repair { buffered } => {
            let action = RepairAction::from_name(&buffered).ok_or_else(|| no_repair(&buffered))?;
            json!({ "repaired": table.repair(action).await? })
        }
        MaintenanceRequest::Vacuum { older_than_seconds, dry_run, originals } => {
            let options = VacuumOptions { older_than: Duration::from_secs(older_than_seconds), dry_run, originals };
            serde_json::to_value(table.vacuum(options).await?)?
        }
        MaintenanceRequest::History { limit } => serde_json::to_value(table.history(limit).await?)?,
        MaintenanceRequest::VersionAt { micros } => json!(table.version_at(micros).await?),
        MaintenanceRequest::Key => serde_json::to_value(table.key().await?)?,
        MaintenanceRequest::DeclareKey { columns, options } => {
            let columns = as_named(table.snapshot().await?.as_ref(), columns);
            let declared = table.declare_key(&columns, &options, BuildOptions::default()).await?;
            json!({ "key": columns, "declared": declared })
        }
        MaintenanceRequest::Write(call) => serde_json::to_value(call.make(table).await?)?,
        MaintenanceRequest::DiscardStaged { staged } => serde_json::to_value(table.discard_staged(&staged).await?)?,
    })
}

/// The columns as the table calls them: to Spark names that differ in case are the same, unless the table has both.
pub(crate) fn as_named(snapshot: &Snapshot, columns: Vec<String>) -> Vec<String> {
    let schema = snapshot.schema();
    let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    let as_named = |column: String| {
        let mut alike = names.iter().filter(|name| name.eq_ignore_ascii_case(&column));
        match (names.contains(&&column), alike.next(), alike.next()) {
            (false, Some(only), None) => (*only).clone(),
            _ => column,
        }
    };
    columns.into_iter().map(as_named).collect()
}

async fn describe(table: &Arc<Table>) -> Result<Value> {
    let snapshot = table.snapshot().await?;
    let description = Description {
        format: table.format(),
        store: table.store_location(),
        partition_columns: snapshot.partition_columns().iter().map(|field| field.name().clone()).collect(),
        key: snapshot.key_columns(),
    };
    Ok(serde_json::to_value(description)?)
}

/// The index as it is now; of links the one that walks from subjects to objects.
async fn create(table: &Arc<Table>, declaration: Declaration) -> Result<IndexInfo> {
    let Declaration { name, columns, kind, mut options } = declaration;
    let snapshot = table.snapshot().await?;
    let before: Vec<String> = names(&snapshot.indexes());
    let kind = kind_or_auto(&kind)?;
    if let Some(included) = options.get_mut(INCLUDE)
        && let Some(given) = names_of(included)
    {
        *included = column_list(as_named(&snapshot, given).iter().map(String::as_str));
    }
    table.create_index(IndexSpec { name, columns, kind, options }, false).await?;
    let indexes = table.snapshot().await?.indexes();
    let created = indexes.into_iter().filter(|index| !before.contains(&index.name));
    // The index that walks links back has the name of the other one, and more behind it.
    created.min_by_key(|index| index.name.len()).ok_or_else(|| {
        NativeError::new(ErrorKind::Conflict, "the index was dropped by someone else just now; create it again")
    })
}

fn names(indexes: &[IndexInfo]) -> Vec<String> {
    indexes.iter().map(|index| index.name.clone()).collect()
}
