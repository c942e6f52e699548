//! The tables that a file makes, each beside one of ours with the same rows, under one name.
//!
//! Statements that change rows get the table that the file made; all others get ours. What a file made is looked for in the catalogs after
//! each statement that may have made or changed something, so that it does not matter how it came about.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::ListingTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use lakemark_datafusion::LakemarkTable;

use crate::statement::Access;
use crate::written::Written;

/// Tables with more rows stay what they are.
const MOST_ROWS: usize = 2_000_000;

/// The schema that the engine makes up.
const MADE_UP: &str = "information_schema";

/// What became of the tables of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Tables that became ours, one that was changed once more.
    pub written: usize,
    /// Their columns.
    pub columns: usize,
    /// Their indexes.
    pub indexes: usize,
    /// Tables that stayed what they were, by the reason.
    pub kept: BTreeMap<String, usize>,
}

/// Catalog, schema and table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    catalog: String,
    schema: String,
    table: String,
}

/// A table that a file made.
struct Made {
    original: Arc<dyn TableProvider>,
    /// Its rows, when they were last looked at.
    rows: Vec<RecordBatch>,
    /// Ours in its place, unless it stays what it is.
    ours: Option<Written>,
    /// Whether the name stands for ours just now.
    is_ours: bool,
}

/// The tables of a session.
pub struct Tables {
    context: SessionContext,
    folder: PathBuf,
    made: BTreeMap<Name, Made>,
    counts: TableCounts,
}

impl Tables {
    /// The tables of a session; ours are written below a folder.
    pub fn new(context: SessionContext, folder: PathBuf) -> Self {
        Self { context, folder, made: BTreeMap::new(), counts: TableCounts::default() }
    }

    /// What became of them.
    pub fn counts(&self) -> &TableCounts {
        &self.counts
    }

    /// Has every name stand for the table that a statement with this access needs.
    pub fn show(&mut self, access: Access) {
        let needs_ours = access != Access::Changes;
        for (name, made) in &mut self.made {
            let Some(ours) = &made.ours else { continue };
            if made.is_ours == needs_ours {
                continue;
            }
            let provider = if needs_ours { &ours.provider } else { &made.original };
            if put(&self.context, name, Arc::clone(provider)) {
                made.is_ours = needs_ours;
            } else {
                made.ours = None;
                self.counts.keep("a schema that takes no tables".to_owned());
            }
        }
    }

    /// Looks for tables that were made, changed or dropped, and puts ours in their places.
    pub async fn settle(&mut self) {
        let mut before = std::mem::take(&mut self.made);
        for (name, provider) in registered(&self.context).await {
            let made = match before.remove(&name) {
                Some(made) if made.is(&provider) => self.again(&name, made).await,
                _ => self.make(provider).await,
            };
            if let Some(made) = made {
                self.made.insert(name, made);
            }
        }
        self.show(Access::Reads);
    }

    /// A table that is new; none if it is no table of rows.
    async fn make(&mut self, original: Arc<dyn TableProvider>) -> Option<Made> {
        if original.is::<LakemarkTable>() || original.table_type() == TableType::View {
            return None;
        }
        let (rows, ours) = match rows_of(&original).await {
            Ok(rows) => {
                let ours = self.written(&original, &rows).await;
                (rows, ours)
            }
            Err(reason) => (Vec::new(), Err(reason)),
        };
        let ours = ours.map_err(|reason| self.counts.keep(reason)).ok();
        Some(Made { original, rows, ours, is_ours: false })
    }

    async fn written(&mut self, original: &Arc<dyn TableProvider>, rows: &[RecordBatch]) -> Result<Written, String> {
        if original.constraints().is_some_and(|constraints| !constraints.is_empty()) {
            return Err("keys that the engine plans by".to_owned());
        }
        if rows.iter().map(RecordBatch::num_rows).sum::<usize>() > MOST_ROWS {
            return Err(format!("more than {MOST_ROWS} rows"));
        }
        let schema = original.schema();
        // Folders stay until the file is done: a view may outlive its table.
        let folder = self.folder.join(format!("table-{}", self.counts.tables()));
        let ours = Written::create(folder, &schema, rows).await?;
        self.counts.written += 1;
        self.counts.columns += schema.fields().len();
        self.counts.indexes += ours.indexes;
        Ok(ours)
    }

    /// A table that was there before, with the rows that it has now.
    async fn again(&mut self, name: &Name, mut made: Made) -> Option<Made> {
        let Some(ours) = &mut made.ours else { return Some(made) };
        let changed = match rows_of(&made.original).await {
            Ok(rows) if rows == made.rows => return Some(made),
            Ok(rows) => {
                let schema = made.original.schema();
                made.rows = rows;
                ours.replace(&schema, &made.rows).await
            }
            Err(reason) => Err(reason),
        };
        match changed {
            Ok(()) => self.counts.written += 1,
            Err(reason) => {
                self.counts.keep(reason);
                made.ours = None;
                if made.is_ours {
                    made.is_ours = !put(&self.context, name, Arc::clone(&made.original));
                }
            }
        }
        Some(made)
    }
}

impl Made {
    /// Whether something that is registered is this table, or ours in its place.
    fn is(&self, provider: &Arc<dyn TableProvider>) -> bool {
        Arc::ptr_eq(&self.original, provider) || self.ours.as_ref().is_some_and(|ours| ours.is(provider))
    }
}

impl TableCounts {
    fn keep(&mut self, reason: String) {
        *self.kept.entry(reason).or_default() += 1;
    }

    fn tables(&self) -> usize {
        self.written + self.kept.values().sum::<usize>()
    }

    /// Adds those of another file.
    pub fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.columns += other.columns;
        self.indexes += other.indexes;
        for (reason, tables) in &other.kept {
            *self.kept.entry(reason.clone()).or_default() += tables;
        }
    }
}

/// The rows of a table in memory, or of one of files, in their order.
async fn rows_of(table: &Arc<dyn TableProvider>) -> Result<Vec<RecordBatch>, String> {
    if let Some(memory) = table.downcast_ref::<MemTable>() {
        let mut rows = Vec::new();
        for partition in &memory.batches {
            rows.extend(partition.read().await.iter().cloned());
        }
        return Ok(rows);
    }
    if !table.is::<ListingTable>() {
        return Err("neither a table in memory nor one of files".to_owned());
    }
    // In a session of its own, whatever the file has set.
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let unread = |_| "rows that cannot be read".to_owned();
    context.read_table(Arc::clone(table)).map_err(unread)?.collect().await.map_err(unread)
}

/// All tables and views that a session has by a name.
async fn registered(context: &SessionContext) -> Vec<(Name, Arc<dyn TableProvider>)> {
    let mut found = Vec::new();
    for catalog_name in context.catalog_names() {
        let Some(catalog) = context.catalog(&catalog_name) else { continue };
        for schema_name in catalog.schema_names() {
            let Some(schema) = catalog.schema(&schema_name).filter(|_| schema_name != MADE_UP) else { continue };
            for table in schema.table_names() {
                if let Ok(Some(provider)) = schema.table(&table).await {
                    let (catalog, schema) = (catalog_name.clone(), schema_name.clone());
                    found.push((Name { catalog, schema, table }, provider));
                }
            }
        }
    }
    found
}

/// Has a name stand for another table. Some schemas take none.
fn put(context: &SessionContext, name: &Name, provider: Arc<dyn TableProvider>) -> bool {
    let schema = context.catalog(&name.catalog).and_then(|catalog| catalog.schema(&name.schema));
    schema.is_some_and(|schema| {
        schema.deregister_table(&name.table).is_ok() && schema.register_table(name.table.clone(), provider).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use lakemark_datafusion::LakemarkSession;
    use tempfile::TempDir;

    use super::*;

    async fn run(session: &LakemarkSession, sql: &str) -> Vec<RecordBatch> {
        session.sql(sql).await.unwrap().collect().await.unwrap()
    }

    async fn is_ours(session: &LakemarkSession) -> bool {
        let provider = session.context().table_provider("t").await.unwrap();
        provider.is::<LakemarkTable>()
    }

    #[tokio::test]
    async fn a_table_is_ours_but_for_changes_which_ours_follows() {
        let (session, folder) = (LakemarkSession::new(), TempDir::new().unwrap());
        let mut tables = Tables::new(session.context().clone(), folder.path().to_path_buf());
        run(&session, "CREATE TABLE t AS VALUES (1, 'a'), (2, 'b'), (3, NULL), (4, 'd')").await;
        tables.settle().await;
        assert!(is_ours(&session).await);
        let counts = tables.counts();
        assert_eq!((counts.written, counts.columns, counts.indexes, counts.kept.len()), (1, 2, 2, 0));

        run(&session, "CREATE VIEW v AS SELECT column1 FROM t WHERE column1 > 2").await;
        tables.show(Access::Changes);
        assert!(!is_ours(&session).await);
        run(&session, "INSERT INTO t VALUES (5, 'e')").await;
        tables.settle().await;
        assert!(is_ours(&session).await);
        for sql in [
            "SELECT * FROM t",
            "SELECT * FROM t WHERE column1 > 0",
            "SELECT * FROM t WHERE column2 IS NOT NULL OR column1 = 3",
        ] {
            let rows: usize = run(&session, sql).await.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows, 5, "{sql}");
        }
        let seen: usize = run(&session, "SELECT * FROM v").await.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(seen, 3);
    }

    #[tokio::test]
    async fn a_table_that_is_dropped_and_made_again_is_another_one() {
        let (session, folder) = (LakemarkSession::new(), TempDir::new().unwrap());
        let mut tables = Tables::new(session.context().clone(), folder.path().to_path_buf());
        for (sql, columns) in [("CREATE TABLE t AS VALUES (1)", 1), ("CREATE TABLE t(a INT, b TEXT)", 2)] {
            run(&session, sql).await;
            tables.settle().await;
            assert!(is_ours(&session).await, "{sql}");
            assert_eq!(session.context().table_provider("t").await.unwrap().schema().fields().len(), columns);
            run(&session, "DROP TABLE t").await;
            tables.settle().await;
        }
        assert_eq!(tables.counts().written, 2);
    }

    #[tokio::test]
    async fn a_table_with_a_key_stays_what_it_is() {
        let (session, folder) = (LakemarkSession::new(), TempDir::new().unwrap());
        let mut tables = Tables::new(session.context().clone(), folder.path().to_path_buf());
        run(&session, "CREATE TABLE t(a INT PRIMARY KEY, b TEXT)").await;
        tables.settle().await;
        assert!(!is_ours(&session).await);
        assert_eq!(tables.counts().kept.values().sum::<usize>(), 1);
    }
}
