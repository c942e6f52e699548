//! The tables that a server serves: those that are named, and those of a folder.
//!
//! ```text
//! --warehouse lake      lake/flights/       the table flights
//!                       lake/sales/orders/  the table sales.orders
//! ```
//!
//! A folder is a table if it has a Delta log, a store of ours, Parquet files, or folders of partitions. Otherwise the tables in it are
//! those of a schema. Folders that come later are found as soon as a statement names a table that is not known.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::catalog::MemorySchemaProvider;
use datafusion::common::TableReference;
use lakemark_datafusion::{Erased, LakemarkSession, LakemarkTable, from_engine};
use lakemark_table::{Error, ErrorKind, Result, Stopwatch, Table, TableOptions};

use crate::options::TableSource;

/// The catalog that all tables are in.
pub(crate) const CATALOG: &str = "lakemark";
/// The schema of tables whose names have none.
pub(crate) const SCHEMA: &str = "public";

/// A table that is served.
#[derive(Clone, Debug)]
pub(crate) struct ServedTable {
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) table: Erased<Arc<Table>>,
}

impl ServedTable {
    /// Its name as it is shown.
    pub(crate) fn shown_name(&self) -> String {
        if self.schema == SCHEMA { self.name.clone() } else { format!("{}.{}", self.schema, self.name) }
    }
}

/// The tables of a server.
pub(crate) struct Tables {
    served: Mutex<Vec<ServedTable>>,
    warehouse: Option<Warehouse>,
}

/// A folder of tables.
struct Warehouse {
    folder: PathBuf,
    /// Names of folders that are no readable tables, so that each is warned of once.
    unreadable: Mutex<BTreeSet<(String, String)>>,
    /// The last look, held while the folder is looked at.
    last: tokio::sync::Mutex<Option<Look>>,
}

/// A look at a warehouse.
#[derive(Clone, Copy)]
struct Look {
    began: Stopwatch,
    /// Whether there were tables that were not served before.
    is_new: bool,
}

/// The time between two looks. Statements with names that nobody knows would otherwise have the folder listed all the time.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

impl Tables {
    /// Opens the tables and makes them known to the session.
    pub(crate) async fn open(
        session: &LakemarkSession,
        sources: Vec<TableSource>,
        warehouse: Option<PathBuf>,
    ) -> Result<Self> {
        if let Some(folder) = warehouse.as_ref().filter(|folder| !folder.is_dir()) {
            let message =
                format!("the warehouse {} is no folder of this machine; give one as --warehouse", folder.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let warehouse = warehouse.map(|folder| Warehouse {
            folder,
            unreadable: Mutex::default(),
            last: tokio::sync::Mutex::default(),
        });
        let tables = Self { served: Mutex::default(), warehouse };
        for source in sources {
            let shown = format!("{}={}", source.name, source.path);
            let TableSource { name, path, options } = source;
            let opened = tables.add(session, SCHEMA, &name, &path, options).await;
            opened.map_err(|error| Error::new(error.kind(), format!("{shown} cannot be served: {error}")))?;
        }
        tables.look(session).await?;
        Ok(tables)
    }

    fn served(&self) -> MutexGuard<'_, Vec<ServedTable>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables in the order of their names.
    pub(crate) fn list(&self) -> Vec<ServedTable> {
        let mut served = self.served().clone();
        served.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
        served
    }

    async fn add(
        &self,
        session: &LakemarkSession,
        schema: &str,
        name: &str,
        path: &str,
        options: TableOptions,
    ) -> Result<()> {
        let table = Table::open(path, options).await?;
        // The counters of a table have its place as their name, and must not be there twice.
        if let Some(known) = self.served().iter().find(|known| known.table.location() == table.location()) {
            let message = format!("it is served as {} already; a table has one name", known.shown_name());
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        let provider = LakemarkTable::new(Arc::clone(&table)).await?;
        let catalog = session.context().catalog(CATALOG);
        if let Some(catalog) = catalog.filter(|catalog| catalog.schema(schema).is_none()) {
            catalog.register_schema(schema, Arc::new(MemorySchemaProvider::new())).map_err(from_engine)?;
        }
        let reference = TableReference::full(CATALOG, schema, name);
        session.context().register_table(reference, Arc::new(provider)).map_err(from_engine)?;
        self.served().push(ServedTable { schema: schema.to_owned(), name: name.to_owned(), table: Erased::new(table) });
        Ok(())
    }

    /// Looks for tables of the warehouse that are not served yet; says whether there are any. All who ask at the same time share a look.
    ///
    /// # Errors
    /// The folder cannot be listed. A folder in it that is no readable table is a warning.
    pub(crate) async fn look(&self, session: &LakemarkSession) -> Result<bool> {
        let Some(warehouse) = &self.warehouse else { return Ok(false) };
        let came = Stopwatch::start();
        let mut last = warehouse.last.lock().await;
        if let Some(Look { began, is_new }) = *last {
            let (since_came, since_look) = (came.seconds(), began.seconds());
            if since_look < since_came {
                return Ok(is_new);
            }
            tokio::time::sleep(BETWEEN_LOOKS.saturating_sub(Duration::from_secs_f64(since_look))).await;
        }
        let began = Stopwatch::start();
        let looked = self.look_now(warehouse, session).await;
        *last = Some(Look { began, is_new: looked.as_ref().is_ok_and(|is_new| *is_new) });
        looked
    }

    async fn look_now(&self, warehouse: &Warehouse, session: &LakemarkSession) -> Result<bool> {
        let folder = warehouse.folder.clone();
        let found = tokio::task::spawn_blocking(move || found_below(&folder)).await;
        let found =
            found.map_err(|error| Error::new(ErrorKind::Internal, format!("no folder was looked at: {error}")))??;
        let mut is_new = false;
        for Found { schema, name, path } in found {
            let known = self.served().iter().any(|served| served.schema == schema && served.name == name);
            if known {
                continue;
            }
            let added = self.add(session, &schema, &name, &path.to_string_lossy(), TableOptions::default()).await;
            let mut unreadable = warehouse.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
            match added {
                Ok(()) => {
                    unreadable.remove(&(schema, name));
                    is_new = true;
                }
                Err(error) => {
                    if unreadable.insert((schema, name)) {
                        tracing::warn!(folder = %path.display(), %error, "a folder of the warehouse is not served");
                    }
                }
            }
        }
        Ok(is_new)
    }
}

/// A table in a warehouse.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    schema: String,
    name: String,
    path: PathBuf,
}

fn found_below(warehouse: &Path) -> Result<Vec<Found>> {
    let cannot = |error: std::io::Error| {
        Error::new(ErrorKind::Io, format!("the warehouse {} cannot be listed: {error}", warehouse.display()))
    };
    let mut found = Vec::new();
    for (name, path) in folders(warehouse).map_err(cannot)? {
        if is_table(&path) {
            found.push(Found { schema: SCHEMA.to_owned(), name, path });
            continue;
        }
        // A folder that vanished meanwhile has no tables.
        for (table, path) in folders(&path).unwrap_or_default() {
            if is_table(&path) {
                found.push(Found { schema: name.clone(), name: table, path });
            }
        }
    }
    Ok(found)
}

/// The folders in a folder that are not hidden, by their names.
fn folders(folder: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !name.is_empty() && !name.starts_with(['.', '_']) && path.is_dir() {
            found.push((name, path));
        }
    }
    found.sort();
    Ok(found)
}

fn is_table(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_folder = entry.path().is_dir();
        match is_folder {
            true => name == "_delta_log" || name == "_lakemark" || name.contains('='),
            false => name.ends_with(".parquet"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_data_are_tables_and_those_around_them_schemas() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["flights", "sales/orders", "sales/empty", "delta/_delta_log", "parts/day=1", "_hidden/x", ".git"]
        {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for file in ["flights/a.parquet", "sales/orders/b.parquet", "_hidden/x/c.parquet", "notes.txt"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        let found = found_below(root.path()).unwrap();
        let names: Vec<(&str, &str)> = found.iter().map(|f| (f.schema.as_str(), f.name.as_str())).collect();
        assert_eq!(names, [("public", "delta"), ("public", "flights"), ("public", "parts"), ("sales", "orders")]);
        assert!(found_below(&root.path().join("nowhere")).unwrap_err().to_string().contains("nowhere"));
    }
}
