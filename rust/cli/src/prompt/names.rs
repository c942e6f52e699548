//! What a session knows by name: tables with their columns, functions and settings. Completion goes by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::catalog::SchemaProvider;
use lakemark_datafusion::{LakemarkSession, is_unopened};

use super::words::is_of_name;

/// The names of a session, as they were when somebody looked.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Columns of tables. Tables are called as a statement calls them.
    pub(super) tables: BTreeMap<String, Vec<String>>,
    pub(super) functions: Vec<String>,
    pub(super) settings: Vec<String>,
    /// Tables that are known by name alone.
    pub(super) unopened: BTreeSet<String>,
}

impl Names {
    /// Looks again. The columns of tables that are known are taken for what they were, unless all is looked at `anew`.
    pub(super) async fn look(&mut self, session: &LakemarkSession, anew: bool) {
        if anew || self.functions.is_empty() {
            self.functions = functions(session);
            self.settings = settings(session).into_iter().map(|setting| setting.name).collect();
        }
        let mut known = if anew { BTreeMap::new() } else { std::mem::take(&mut self.tables) };
        let mut tables = BTreeMap::new();
        for KnownTable { written, schema, name } in tables_of(session) {
            let was_unopened = self.unopened.remove(&written);
            let columns = match known.remove(&written) {
                Some(columns) if !was_unopened => columns,
                // Its columns are known once a statement needed it: a storage may be far away.
                _ if is_unopened(&schema, &name) => {
                    self.unopened.insert(written.clone());
                    Vec::new()
                }
                _ => match schema.table(&name).await {
                    Ok(Some(table)) => table.schema().fields().iter().map(|field| field.name().clone()).collect(),
                    // It is said when somebody asks for its rows.
                    _ => Vec::new(),
                },
            };
            tables.insert(written, columns);
        }
        self.tables = tables;
    }
}

/// A table of a session.
struct KnownTable {
    /// As a statement calls it.
    written: String,
    schema: Arc<dyn SchemaProvider>,
    /// Its name in the schema.
    name: String,
}

fn tables_of(session: &LakemarkSession) -> Vec<KnownTable> {
    let context = session.context();
    let (own_catalog, own_schema) = {
        let state = context.state_ref();
        let state = state.read();
        let names = &state.config_options().catalog;
        (names.default_catalog.clone(), names.default_schema.clone())
    };
    let mut found = Vec::new();
    for catalog_name in context.catalog_names() {
        let Some(catalog) = context.catalog(&catalog_name) else { continue };
        for schema_name in catalog.schema_names() {
            let Some(schema) = catalog.schema(&schema_name) else { continue };
            for name in schema.table_names() {
                let path = match (catalog_name == own_catalog, schema_name == own_schema) {
                    (true, true) => vec![&name],
                    (true, false) => vec![&schema_name, &name],
                    (false, _) => vec![&catalog_name, &schema_name, &name],
                };
                let written = path.into_iter().map(|part| identifier(part)).collect::<Vec<_>>().join(".");
                found.push(KnownTable { written, schema: Arc::clone(&schema), name });
            }
        }
    }
    found
}

/// A name as a statement has it: in quotes if it would be folded or cut without.
pub(super) fn identifier(name: &str) -> String {
    let is_plain = |character: char| is_of_name(character) && !character.is_uppercase();
    let starts = name.chars().next().is_some_and(|first| !first.is_numeric());
    if starts && name.chars().all(is_plain) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn functions(session: &LakemarkSession) -> Vec<String> {
    let state = session.context().state_ref();
    let state = state.read();
    let mut names: Vec<String> = state.scalar_functions().keys().cloned().collect();
    names.extend(state.aggregate_functions().keys().cloned());
    names.extend(state.window_functions().keys().cloned());
    names.extend(state.table_functions().keys().cloned());
    names.sort_unstable();
    names.dedup();
    names
}

/// A setting with its value.
pub(super) struct Setting {
    /// As `SET` takes it.
    pub(super) name: String,
    pub(super) value: Option<String>,
}

/// All settings by name.
pub(super) fn settings(session: &LakemarkSession) -> Vec<Setting> {
    let context = session.context();
    let mut entries = context.state_ref().read().config_options().entries();
    entries.extend(context.runtime_env().config_entries());
    let mut settings: Vec<Setting> =
        entries.into_iter().map(|entry| Setting { name: entry.key, value: entry.value }).collect();
    settings.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_is_known_by_its_tables_functions_and_settings() {
        let session = LakemarkSession::new();
        let mut names = Names::default();
        names.look(&session, false).await;
        assert!(names.tables.is_empty());
        assert!(names.functions.iter().any(|name| name == "array_has") && names.functions.is_sorted());
        assert!(names.settings.iter().any(|name| name == "lakemark.use_index"));
        assert!(names.settings.iter().any(|name| name == "datafusion.execution.batch_size"));
        for sql in [
            "CREATE TABLE t AS SELECT 1 AS a, 2 AS \"B c\"",
            "CREATE SCHEMA s",
            "CREATE TABLE s.\"T\" AS SELECT 1 AS x",
        ] {
            session.sql(sql).await.unwrap().collect().await.unwrap();
        }
        names.look(&session, false).await;
        let tables: Vec<(&str, Vec<&str>)> = names
            .tables
            .iter()
            .map(|(name, columns)| (name.as_str(), columns.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(tables, [("s.\"T\"", vec!["x"]), ("t", vec!["a", "B c"])]);
        session.sql("DROP TABLE t").await.unwrap().collect().await.unwrap();
        names.look(&session, false).await;
        assert_eq!(names.tables.len(), 1);
    }

    #[test]
    fn names_are_quoted_where_they_would_become_others() {
        assert_eq!(identifier("flight_1"), "flight_1");
        assert_eq!(identifier("FlightNum"), "\"FlightNum\"");
        assert_eq!(identifier("1st \"one\""), "\"1st \"\"one\"\"\"");
        assert_eq!(identifier(""), "\"\"");
    }
}
