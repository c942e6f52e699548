//! Catalogs and schemas of tables whose snapshot is pinned once per statement.
//!
//! DataFusion resolves a table's name once per statement. That is where a snapshot is taken: a self-join sees one state of the table, and
//! the next statement sees the newest. It is so in every schema of every catalog of a session, also in those that are made later: each gets
//! its [`PinningSchema`] as it is looked up. What cannot be pinned is [`Unreadable`].

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::listing_schema::ListingSchemaProvider;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{TableReference, plan_err};
use datafusion::datasource::{TableType, ViewTable, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::prelude::SessionContext;
use lakemark_table::TableNames;

use crate::error::to_engine;
use crate::plan::provider::LakemarkTable;
use crate::plan::statement_snapshots::note_found;
use crate::plan::unpinned::{of_table, with_tables};
use crate::share::bound_query::FoundTable;
use crate::sql::names::{NamedTables, OpenedTables, RemoteCatalog, SessionNames};
use crate::sql::unreadable::Unreadable;
use crate::sql::versions::VersionedName;

/// The catalogs of a session, whose schemas pin their tables.
#[derive(Debug)]
pub(crate) struct PinningCatalogs {
    inner: Arc<dyn CatalogProviderList>,
}

impl PinningCatalogs {
    pub(crate) fn new(inner: Arc<dyn CatalogProviderList>) -> Self {
        Self { inner }
    }
}

impl CatalogProviderList for PinningCatalogs {
    fn register_catalog(&self, name: String, catalog: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        self.inner.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.inner.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let inner = self.inner.catalog(name)?;
        Some(if inner.is::<PinningCatalog>() { inner } else { Arc::new(PinningCatalog { inner }) })
    }
}

/// A catalog whose schemas pin their tables.
#[derive(Debug)]
struct PinningCatalog {
    inner: Arc<dyn CatalogProvider>,
}

impl CatalogProvider for PinningCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.inner.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let inner = self.inner.schema(name)?;
        Some(if inner.is::<PinningSchema>() { inner } else { Arc::new(PinningSchema { inner }) })
    }

    fn register_schema(&self, name: &str, schema: Arc<dyn SchemaProvider>) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.inner.register_schema(name, schema)
    }

    fn deregister_schema(&self, name: &str, cascade: bool) -> Result<Option<Arc<dyn SchemaProvider>>> {
        self.inner.deregister_schema(name, cascade)
    }
}

/// The table or view of a name as it was registered; nothing is read or pinned for it.
pub(crate) async fn registered(state: &SessionState, name: &TableReference) -> Result<Option<Arc<dyn TableProvider>>> {
    let Ok(schema) = state.schema_for_ref(name.clone()) else { return Ok(None) };
    let inner = unwrapped(&schema);
    match (inner.table(name.table()).await?, VersionedName::of(name.table())) {
        (None, Some(versioned)) => inner.table(versioned.table).await,
        (found, _) => Ok(found),
    }
}

/// Whether a name stands for what it stood for when a statement looked it up. Nothing is read or pinned for it.
pub(crate) async fn is_still(state: &SessionState, name: &TableReference, found: &[FoundTable]) -> bool {
    let Ok(schema) = state.schema_for_ref(name.clone()) else { return false };
    let inner = unwrapped(&schema);
    let is_meant = |found: &&FoundTable| found.name == name.table() && Arc::ptr_eq(&found.schema, inner);
    let before: Vec<&FoundTable> = found.iter().filter(is_meant).collect();
    let Ok(Some(now)) = inner.table(name.table()).await else { return false };
    !before.is_empty() && before.iter().all(|found| Arc::ptr_eq(&found.provider, &now))
}

/// Looks again for the tables of schemas that DataFusion makes of folders. Its own way to do so does not see them behind a
/// [`PinningSchema`].
pub(crate) async fn refresh(state: &SessionState) -> Result<()> {
    let catalogs = state.catalog_list();
    let mut schemas = Vec::new();
    for catalog in catalogs.catalog_names().iter().filter_map(|name| catalogs.catalog(name)) {
        schemas.extend(catalog.schema_names().iter().filter_map(|name| catalog.schema(name)));
    }
    for schema in &schemas {
        if let Some(folders) = unwrapped(schema).downcast_ref::<ListingSchemaProvider>() {
            folders.refresh(state).await?;
        }
    }
    Ok(())
}

/// Makes names known in the default schema of a session, beside the tables that its statements define, and catalogs beside its own.
///
/// # Errors
/// The session has no default schema.
pub(crate) fn know(context: &SessionContext, names: Arc<dyn TableNames>) -> Result<()> {
    let state = context.state_ref();
    let (catalog, schema) = {
        let state = state.read();
        let own = &state.config_options().catalog;
        (own.default_catalog.clone(), own.default_schema.clone())
    };
    let found = context.catalog(&catalog).and_then(|catalog| Some((catalog.schema(&schema)?, catalog)));
    let Some((defined, catalog)) = found else {
        return plan_err!("the session has no schema {catalog}.{schema} that names could be known in");
    };
    let tables = Arc::new(OpenedTables::new(Arc::clone(&names)));
    let named = NamedTables::new(Arc::clone(unwrapped(&defined)), Arc::clone(&tables));
    catalog.register_schema(&schema, Arc::new(named))?;
    for name in names.catalogs().iter().filter(|name| context.catalog(name).is_none()) {
        context.register_catalog(name, Arc::new(RemoteCatalog::new(name, Arc::clone(&tables))));
    }
    state.write().config_mut().set_extension(Arc::new(SessionNames(names)));
    Ok(())
}

/// Refuses to drop what no statement defined.
pub(crate) fn check_drop(state: &SessionState, plan: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Ddl(DdlStatement::DropTable(drop)) = plan else { return Ok(()) };
    let Ok(schema) = state.schema_for_ref(drop.name.clone()) else { return Ok(()) };
    let name = drop.name.table();
    match unwrapped(&schema).downcast_ref::<NamedTables>() {
        Some(named) if named.is_undefined(name) => {
            plan_err!("the table {name} is a name of lakemark.toml; take it out there")
        }
        _ => Ok(()),
    }
}

/// Whether a schema knows a table by name alone: it was not opened yet, and looking at it would do so.
#[must_use]
pub fn is_unopened(schema: &Arc<dyn SchemaProvider>, name: &str) -> bool {
    unwrapped(schema).downcast_ref::<NamedTables>().is_some_and(|named| named.is_unopened(name))
}

/// A schema as it was registered.
fn unwrapped(schema: &Arc<dyn SchemaProvider>) -> &Arc<dyn SchemaProvider> {
    schema.downcast_ref::<PinningSchema>().map_or(schema, |pinning| &pinning.inner)
}

/// A table or view over the newest states of its tables.
async fn pinned(found: &Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    if let Some(table) = found.downcast_ref::<LakemarkTable>() {
        return Ok(Arc::new(table.pin().await.map_err(to_engine)?));
    }
    // A view keeps the plan that was made when it was created.
    if let Some(view) = found.downcast_ref::<ViewTable>() {
        let plan = pinned_anew(view.logical_plan().clone(), "put into a view; create the view").await?;
        return Ok(Arc::new(ViewTable::new(plan, view.definition().cloned())));
    }
    Ok(Arc::clone(found))
}

/// Pins the Lakemark tables of another schema as they are looked up.
#[derive(Debug)]
struct PinningSchema {
    inner: Arc<dyn SchemaProvider>,
}

impl PinningSchema {
    /// The table of a name that says at which version the table is read.
    async fn table_at(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(VersionedName { table: plain, at }) = VersionedName::of(name) else { return Ok(None) };
        let Some(found) = self.inner.table(plain).await? else { return Ok(None) };
        let Some(newest) = found.downcast_ref::<LakemarkTable>() else {
            return plan_err!("{plain} is not a Lakemark table: only those can be read at a version");
        };
        let table = at.of_table(newest.table()).await.map_err(to_engine)?;
        let snapshot = table.snapshot().await.map_err(to_engine)?;
        Ok(Some(Arc::new(LakemarkTable::pinned_to(table, snapshot))))
    }
}

#[async_trait]
impl SchemaProvider for PinningSchema {
    fn owner_name(&self) -> Option<&str> {
        self.inner.owner_name()
    }

    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let Some(found) = self.inner.table(name).await? else {
            return self.table_at(name).await;
        };
        note_found(&self.inner, name, &found);
        Ok(Some(match pinned(&found).await {
            Ok(pinned) => pinned,
            Err(error) => Arc::new(Unreadable::new(found, error)),
        }))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        self.inner.table_type(name).await
    }

    fn register_table(&self, name: String, table: Arc<dyn TableProvider>) -> Result<Option<Arc<dyn TableProvider>>> {
        self.inner.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.inner.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}

/// A plan that was made some time ago, when something was `done`, over the newest states of its tables.
///
/// # Errors
/// The columns of a table are others than they were then, so that it is to be done again.
pub(crate) async fn pinned_anew(plan: LogicalPlan, done: &str) -> Result<LogicalPlan> {
    let mut prepared: Vec<Arc<dyn TableProvider>> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(table) = source_as_provider(&scan.source)
            && let Some(ours) = table.downcast_ref::<LakemarkTable>()
            && of_table(&prepared, ours.table()).is_none()
        {
            prepared.push(table);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut newest: Vec<Arc<dyn TableProvider>> = Vec::with_capacity(prepared.len());
    for table in prepared.iter().filter_map(|table| table.downcast_ref::<LakemarkTable>()) {
        newest.push(Arc::new(table.pin_anew(done).await.map_err(to_engine)?));
    }
    with_tables(plan, |table| of_table(&newest, table.downcast_ref::<LakemarkTable>()?.table()).cloned())
}
