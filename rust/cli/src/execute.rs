//! One statement: it is run, and its rows are printed.
//!
//! Every statement goes through [`LakemarkSession`], where Lakemark's own statements are taken before DataFusion's.
//! `COPY` and `CREATE EXTERNAL TABLE … STORED AS` another format go through datafusion-cli, which sets object stores up.

use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion_cli::exec::exec_from_commands;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};
use lakemark_catalog::Names;
use lakemark_datafusion::{LakemarkSession, Statement, from_engine, may_read_version, rows_of};
use lakemark_table::Error;

use crate::args::Format;
use crate::failure::Failure;
use crate::output;
use crate::pointed::{SourceText, failure};

/// How the results of a session are printed.
#[derive(Clone, Copy)]
pub(crate) struct Printing {
    pub(crate) format: Format,
    pub(crate) max_rows: usize,
}

/// A session that knows the names and has the settings of the configuration.
pub(crate) async fn configured_session() -> Result<LakemarkSession, Failure> {
    let (session, names) = (session(), Names::load()?);
    for setting in names.config().settings() {
        let set = session.set(&setting.name, &setting.value).await;
        set.map_err(|error| setting.place.wrong(error.message()))?;
    }
    session.know(Arc::new(names))?;
    Ok(session)
}

/// A session for statements that somebody wrote: its errors know the place that they are about.
pub(crate) fn session() -> LakemarkSession {
    let mut config = SessionConfig::new().with_information_schema(true);
    config.options_mut().sql_parser.collect_spans = true;
    LakemarkSession::with_config(config)
}

/// Runs one statement, a part of the text, and prints its rows.
pub(crate) async fn run_one(
    session: &LakemarkSession,
    statement: &str,
    source: SourceText<'_>,
    printing: Printing,
) -> Result<(), Failure> {
    let pointed = |error: Error| failure(error, statement, source);
    for parsed in session.parse(statement).map_err(pointed)? {
        if needs_object_stores(&parsed) {
            let ran = run_by_engine(session, statement, printing.format).await;
            ran.map_err(|error| pointed(from_engine(error)))?;
        } else {
            let query = session.run(parsed).await.map_err(pointed)?;
            let rows = rows_of(&query).await.map_err(from_engine).map_err(pointed)?;
            // It may keep tables that the next statement drops.
            drop(query);
            output::rows(rows, printing.format, printing.max_rows).await?;
        }
    }
    Ok(())
}

/// Whether a statement names a place that no Lakemark table stands for.
fn needs_object_stores(statement: &Statement) -> bool {
    match statement {
        Statement::Engine(engine) => match engine.as_ref() {
            // The engine's shell parses the text again, and knows no versions.
            EngineStatement::CopyTo(_) => !may_read_version(engine),
            EngineStatement::CreateExternalTable(create) => !create.file_type.eq_ignore_ascii_case("LAKEMARK"),
            _ => false,
        },
        _ => false,
    }
}

async fn run_by_engine(session: &LakemarkSession, statement: &str, format: Format) -> Result<(), DataFusionError> {
    let printing = PrintOptions {
        format: match format {
            Format::Table => PrintFormat::Table,
            Format::Json => PrintFormat::Json,
            Format::Csv => PrintFormat::Csv,
        },
        quiet: true,
        maxrows: MaxRows::Unlimited,
        color: false,
        instrumented_registry: Arc::default(),
    };
    exec_from_commands(session.context(), vec![statement.to_owned()], &printing).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_foreign_places_go_to_the_engine_alone() {
        let session = LakemarkSession::new();
        let foreign = |text: &str| needs_object_stores(&session.parse(text).unwrap()[0]);
        assert!(foreign("COPY t TO 's3://b/x.parquet'"));
        assert!(foreign("create external table t stored as parquet location 's3://b/t/'"));
        assert!(!foreign("CREATE EXTERNAL TABLE t STORED AS lakemark LOCATION 'x'"));
        assert!(!foreign("SELECT 'COPY t'"));
        assert!(
            !foreign("COPY (SELECT * FROM t VERSION AS OF 3) TO 'x.csv'")
                && !foreign("COPY t VERSION AS OF 3 TO 'x.csv'")
        );
        assert!(!foreign("SHOW INDEXES FROM t"));
    }
}
