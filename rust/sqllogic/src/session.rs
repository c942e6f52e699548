//! A session of ours that has what the suite registers for a file in one of its own.

use std::sync::Arc;

use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::SessionContext;
use lakemark_datafusion::{LakemarkOptions, LakemarkSession, session_context};

use crate::Result;

/// Scans have one partition until a file sets another number. Rows that nobody orders come in the order of the files then, which the suite
/// goes by: its tables in memory have one partition each.
const PARTITIONS: usize = 1;

/// The file whose tables are named by paths.
const OF_PATHS: &str = "dynamic_file.slt";

/// A session of ours with the settings, functions and tables of one of the suite's.
pub async fn ours(theirs: &SessionContext, file: &str, use_index: bool) -> Result<LakemarkSession> {
    let theirs = theirs.state();
    let options = LakemarkOptions { use_index, ..LakemarkOptions::default() };
    let config = theirs.config().clone().with_target_partitions(PARTITIONS).with_option_extension(options);
    let mut state = state(&theirs, session_context(config).state());
    // Ours is UTC where nothing is set, which the suite would show in every timestamp.
    state.config_mut().options_mut().execution.time_zone.clone_from(&theirs.config_options().execution.time_zone);
    let mut context = SessionContext::new_with_state(state);
    if file == OF_PATHS {
        context = context.enable_url_table();
    }
    take_functions(&theirs, &context);
    take_tables(&theirs, &context).await?;
    Ok(LakemarkSession::from_context(context))
}

/// Our state with planners and table functions of the suite's.
fn state(theirs: &SessionState, ours: SessionState) -> SessionState {
    let planner = SessionStateBuilder::new_from_existing(theirs.clone()).type_planner().take();
    let builder = SessionStateBuilder::new_from_existing(ours)
        .with_expr_planners(theirs.expr_planners().to_vec())
        .with_table_functions(theirs.table_functions().clone());
    match planner {
        Some(planner) => builder.with_type_planner(planner).build(),
        None => builder.build(),
    }
}

/// Registers the functions that are others than those of the engine, which both have.
fn take_functions(theirs: &SessionState, ours: &SessionContext) {
    let state = ours.state();
    for (name, function) in theirs.scalar_functions() {
        if !state.scalar_functions().get(name).is_some_and(|known| Arc::ptr_eq(known, function)) {
            ours.register_udf((**function).clone());
        }
    }
    for (name, function) in theirs.aggregate_functions() {
        if !state.aggregate_functions().get(name).is_some_and(|known| Arc::ptr_eq(known, function)) {
            ours.register_udaf((**function).clone());
        }
    }
    for (name, function) in theirs.window_functions() {
        if !state.window_functions().get(name).is_some_and(|known| Arc::ptr_eq(known, function)) {
            ours.register_udwf((**function).clone());
        }
    }
}

/// Registers catalogs, schemas and tables.
async fn take_tables(theirs: &SessionState, ours: &SessionContext) -> Result<()> {
    let catalogs = theirs.catalog_list();
    for catalog_name in catalogs.catalog_names() {
        let Some(catalog) = catalogs.catalog(&catalog_name) else { continue };
        let Some(own_catalog) = ours.catalog(&catalog_name) else {
            ours.register_catalog(catalog_name, catalog);
            continue;
        };
        for schema_name in catalog.schema_names() {
            let Some(schema) = catalog.schema(&schema_name) else { continue };
            let Some(own_schema) = own_catalog.schema(&schema_name) else {
                own_catalog.register_schema(&schema_name, schema)?;
                continue;
            };
            for name in schema.table_names() {
                if let Some(table) = schema.table(&name).await? {
                    own_schema.register_table(name, table)?;
                }
            }
        }
    }
    Ok(())
}
