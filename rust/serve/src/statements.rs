//! Statements: what clients may run, and how they are planned once.
//!
//! All clients share one session but for who it acts for, so a statement that would change what others see of it is refused by name. So is
//! whatever opens or writes files that nobody named to the server.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::ParamValues;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{
    Erased, LakemarkOptions, LakemarkSession, PlanSharing, PlannedStatement, PlanningCounts, PreparedQuery, Principal,
    ReadyQuery, SharingCounts, StatementKind,
};
use lakemark_table::{Error, ErrorKind, Result};
use tonic::Status;

use crate::chains;
use crate::error::{engine_status, status};
use crate::handles::Owner;
use crate::options::{Limits, ServeOptions};
use crate::planning::Planning;
use crate::recent::Recent;
use crate::tables::{CATALOG, SCHEMA, Tables};
use crate::weight;

/// How many of the largest users of memory an error names.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4);

/// A statement that was planned, and what is kept of one that is prepared as long as this is there.
pub(crate) type PlannedOf = (PlannedStatement, Option<Arc<PreparedQuery>>);

/// What a statement is planned for.
#[derive(Clone)]
enum Purpose {
    /// It is run, with these values.
    Run(Option<ParamValues>),
    /// It is run later, and maybe often.
    Prepare,
}

/// Plans and runs statements over the tables of a server.
pub(crate) struct Statements {
    session: Arc<LakemarkSession>,
    /// The same one for each of those who have tokens, as they come.
    sessions: Mutex<HashMap<Arc<str>, Arc<LakemarkSession>>>,
    /// What the statements of this server share, and no other session of the process.
    sharing: Erased<Arc<PlanSharing>>,
    tables: Tables,
    planning: Planning,
    recent: Recent,
    read_only: bool,
    most_bytes: usize,
}

impl Statements {
    /// Opens the tables.
    pub(crate) async fn open(options: &ServeOptions, planning: Planning) -> Result<Self> {
        let sharing = Arc::new(PlanSharing::new());
        let session = session(options, Arc::clone(&sharing), &planning)?;
        for setting in &options.settings {
            let set = session.set(&setting.name, &setting.value).await;
            set.map_err(|error| setting.place.wrong(error.message()))?;
        }
        // What the server was told counts over the settings of every session.
        let share = options.share.map(|share| ("lakemark.share", share.to_string()));
        let slow = options.slow_query_ms.map(|slow| ("lakemark.slow_query_ms", slow.to_string()));
        for (name, value) in share.into_iter().chain(slow) {
            session.set(name, &value).await?;
        }
        let tables = Tables::open(&session, options.tables.clone(), options.warehouse.clone()).await?;
        let Limits { statement_bytes, .. } = options.limits;
        Ok(Self {
            session: Arc::new(session),
            sessions: Mutex::default(),
            sharing: Erased::new(sharing),
            tables,
            planning,
            recent: Recent::default(),
            read_only: options.read_only,
            most_bytes: statement_bytes,
        })
    }

    /// The session of all clients.
    pub(crate) fn session(&self) -> &LakemarkSession {
        &self.session
    }

    /// The session that plans the statements of a client: those of others share nothing with them.
    fn session_of(&self, owner: &Owner) -> Arc<LakemarkSession> {
        let Some(owner) = owner else { return Arc::clone(&self.session) };
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions
            .entry(Arc::clone(owner))
            .or_insert_with(|| Arc::new(self.session.acting_for(Principal(Arc::clone(owner)))));
        Arc::clone(session)
    }

    /// The tables.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What statements shared so far.
    pub(crate) fn shared(&self) -> SharingCounts {
        self.sharing.counts()
    }

    /// How often statements were planned so far that several clients could ask.
    pub(crate) fn plannings(&self) -> PlanningCounts {
        self.sharing.planning_counts()
    }

    /// Whether changes are refused.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Plans a statement that clients may run, for one of them.
    pub(crate) async fn plan(
        &self,
        owner: &Owner,
        text: &str,
        parameters: Option<ParamValues>,
    ) -> std::result::Result<PlannedStatement, Status> {
        Ok(self.planned_for(owner, text, Purpose::Run(parameters)).await?.0)
    }

    /// The same of a statement that is run later: its client has its columns and parameters now.
    pub(crate) async fn prepare(&self, owner: &Owner, text: &str) -> std::result::Result<PlannedOf, Status> {
        let (planned, kept) = self.planned_for(owner, text, Purpose::Prepare).await?;
        if let Some(kept) = &kept {
            self.recent.add(text, kept);
        }
        Ok((planned, kept))
    }

    async fn planned_for(&self, owner: &Owner, text: &str, purpose: Purpose) -> std::result::Result<PlannedOf, Status> {
        if text.len() > self.most_bytes {
            return Err(Status::invalid_argument(format!(
                "the statement has {} bytes, and {} are allowed; give long lists as parameters or as a table, or raise the limit \
                 statement_bytes of the server",
                text.len(),
                self.most_bytes
            )));
        }
        // What is prepared was looked at, and has a plan.
        let is_new = !self.session_of(owner).has_prepared(text);
        if let Some(why) = Some(text).filter(|_| is_new).and_then(chains::refusal) {
            return Err(Status::invalid_argument(why));
        }
        let planned = match self.planned(owner, text, purpose.clone(), is_new).await? {
            // It may name a table that came since.
            Err(error) if self.may_be_new(&error).await => self.planned(owner, text, purpose, is_new).await?,
            planned => planned,
        };
        let (planned, kept) = planned.map_err(status)?;
        self.check(planned.kind(), text)?;
        Ok((planned, kept))
    }

    /// Plans a statement once.
    async fn planned(
        &self,
        owner: &Owner,
        text: &str,
        purpose: Purpose,
        is_new: bool,
    ) -> std::result::Result<Result<PlannedOf>, Status> {
        let (session, text) = (self.session_of(owner), text.to_owned());
        let work = move || async move {
            if is_new {
                weight::check(&session, &text)?;
            }
            match purpose {
                Purpose::Run(parameters) => Ok::<PlannedOf, Error>((session.plan(&text, parameters).await?, None)),
                Purpose::Prepare => {
                    let (planned, kept) = session.prepare(&text).await?;
                    Ok((planned, Some(kept)))
                }
            }
        };
        self.planning.run(work).await
    }

    /// The rows of a query. Most of what takes time to plan is planned here.
    pub(crate) async fn rows(&self, query: ReadyQuery) -> std::result::Result<SendableRecordBatchStream, Status> {
        self.planning.run(move || async move { query.rows().await }).await?.map_err(engine_status)
    }

    /// Runs a statement that was planned: changes at once, queries when their rows are asked for.
    pub(crate) async fn run(&self, planned: PlannedStatement) -> std::result::Result<ReadyQuery, Status> {
        self.session.query_of(planned).await.map_err(status)
    }

    /// Whether an error may come from a table that was not there when the warehouse was looked at last, and is there now.
    async fn may_be_new(&self, error: &Error) -> bool {
        let is_unknown = error.kind() == ErrorKind::NotFound
            || (error.kind() == ErrorKind::InvalidInput && error.message().contains("not found"));
        is_unknown
            && self.tables.look(&self.session).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the warehouse cannot be looked at");
                false
            })
    }

    fn check(&self, kind: StatementKind, text: &str) -> std::result::Result<(), Status> {
        let refusal = match kind {
            StatementKind::Query => return Ok(()),
            StatementKind::Change | StatementKind::Index if self.read_only => {
                let message = "the server is read-only: statements that change rows or indexes are refused";
                return Err(Status::permission_denied(message));
            }
            StatementKind::Change | StatementKind::Index if chains::is_explained(text) => {
                "EXPLAIN ANALYZE would make the change: run EXPLAIN without ANALYZE, or the change itself"
            }
            StatementKind::Change | StatementKind::Index => return Ok(()),
            StatementKind::Definition => {
                "tables are those that the server was started with: add NAME=PATH there, or a folder to its warehouse; views, schemas and \
                 functions cannot be defined"
            }
            StatementKind::Export => {
                "COPY would write to the machine of the server: read the rows, and write them where you are"
            }
            StatementKind::Setting => "settings are those of the server, as all clients share them",
            StatementKind::Prepared => {
                "prepare statements by the driver, with ? in the place of values, and not by PREPARE"
            }
        };
        Err(Status::unimplemented(refusal))
    }
}

/// The session of all clients: one pool of memory, beyond which queries spill.
fn session(options: &ServeOptions, sharing: Arc<PlanSharing>, planning: &Planning) -> Result<LakemarkSession> {
    let config = SessionConfig::new().with_information_schema(true).with_default_catalog_and_schema(CATALOG, SCHEMA);
    let config = config.with_extension(sharing).with_extension(Arc::new(planning.place_for_changes()));
    let config = config.with_option_extension(LakemarkOptions::default());
    let limits = &options.limits;
    let pool = TrackConsumersPool::new(FairSpillPool::new(limits.memory_bytes), NAMED_CONSUMERS);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool));
    let runtime = match &limits.spill {
        Some(folder) => runtime.with_temp_file_path(folder),
        None => runtime,
    };
    LakemarkSession::with_runtime(config, runtime)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::SocketAddr;
    use std::path::Path;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::util::pretty::pretty_format_batches;
    use futures::TryStreamExt;
    use lakemark_table::{Table, TableOptions};
    use parquet::arrow::ArrowWriter;
    use tonic::Code;

    use super::*;
    use crate::error::RETRY_AFTER;
    use crate::options::TableSource;

    /// Statements over the table `t` of a hundred numbers, which is made in this folder and takes updates.
    async fn statements(folder: &Path, planning: Planning) -> Statements {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let file = File::create(folder.join("part-0.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let path = folder.display().to_string();
        let table = Table::open(&path, TableOptions::default()).await.unwrap();
        table.declare_key(&["n".to_owned()], &Default::default(), Default::default()).await.unwrap();
        let mut options = ServeOptions::on(SocketAddr::from(([127, 0, 0, 1], 0)));
        options.tables = vec![TableSource { name: "t".to_owned(), path, ..TableSource::default() }];
        Statements::open(&options, planning).await.unwrap()
    }

    #[tokio::test]
    async fn changes_have_the_limits_of_queries_while_they_are_planned_and_are_not_made_beyond_them() {
        let folder = tempfile::tempdir().unwrap();
        let statements = statements(folder.path(), Planning::closed()).await;
        let session = statements.session();
        let planned = async |text: &str| session.plan(text, None).await.unwrap();
        let query = statements.run(planned("SELECT count(n) FROM t").await).await.unwrap();
        let mut refusals = vec![statements.rows(query.clone()).await.err().unwrap()];
        for change in ["INSERT INTO t VALUES (100)", "UPDATE t SET n = 100 WHERE n = 1", "DELETE FROM t"] {
            refusals.push(statements.run(planned(change).await).await.unwrap_err());
        }
        for refused in refusals {
            assert!(
                refused.code() == Code::ResourceExhausted && refused.message().contains("nobody could plan"),
                "{refused:?}"
            );
            assert!(refused.metadata().contains_key(RETRY_AFTER), "{refused:?}");
        }
        let batches: Vec<RecordBatch> = query.rows().await.unwrap().try_collect().await.unwrap();
        let found = pretty_format_batches(&batches).unwrap().to_string();
        assert!(found.contains("| 100 "), "{found}");
    }

    /// The rows of a query of one row, as text.
    async fn one_row(statements: &Statements, text: &str) -> String {
        let planned = statements.plan(&None, text, None).await.unwrap();
        let query = statements.run(planned).await.unwrap();
        let batches: Vec<RecordBatch> = statements.rows(query).await.unwrap().try_collect().await.unwrap();
        pretty_format_batches(&batches).unwrap().to_string()
    }

    #[tokio::test]
    async fn a_text_that_was_prepared_lately_is_not_planned_again_and_sees_the_newest_rows() {
        let folder = tempfile::tempdir().unwrap();
        let statements = statements(folder.path(), Planning::default()).await;
        let text = "SELECT max(n) + 0 AS m FROM t";
        for last in 99..103 {
            // Its client closes it after each run.
            let (planned, kept) = statements.prepare(&None, text).await.unwrap();
            drop(planned);
            let shown = one_row(&statements, text).await;
            assert!(shown.contains(&format!("| {last}")), "{shown}");
            drop(kept);
            let insert = format!("INSERT INTO t VALUES ({})", last + 1);
            let insert = statements.plan(&None, &insert, None).await.unwrap();
            statements.run(insert).await.unwrap();
            assert_eq!(statements.plannings().planned, 1);
        }
        // Of somebody else it is another text.
        statements.prepare(&Some("ann".into()), text).await.unwrap();
        assert_eq!(statements.plannings().planned, 2);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn clients_share_plans_with_those_alone_who_have_their_token() {
        let folder = tempfile::tempdir().unwrap();
        let statements = statements(folder.path(), Planning::default()).await;
        let mut running = Vec::new();
        for (owner, guests) in [(None, 0), (Some("ann"), 0), (Some("bob"), 0), (Some("ann"), 1), (None, 2)] {
            let owner: Owner = owner.map(Into::into);
            let text = "SELECT n % 7 AS k, sum(n) FROM t GROUP BY n % 7";
            let planned = statements.plan(&owner, text, None).await.unwrap();
            let query = statements.run(planned).await.unwrap();
            running.push(statements.rows(query).await.unwrap());
            assert_eq!(statements.shared().guests, guests, "{owner:?}");
        }
        assert_eq!(statements.plannings(), PlanningCounts { planned: 3, taken: 2, made: 3 });
        for rows in running {
            let batches: Vec<RecordBatch> = rows.try_collect().await.unwrap();
            assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 7);
        }
    }
}
