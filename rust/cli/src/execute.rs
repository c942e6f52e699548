//! One statement: it is run, and its rows are printed.
//!
//! Every statement goes through [`LakemarkSession`], where Lakemark's own statements are taken before DataFusion's.

use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{LakemarkSession, from_engine, rows_of};
use lakemark_table::Error;

use crate::args::Format;
use crate::failure::Failure;
use crate::output;
use crate::pointed::{SourceText, failure};
use crate::stores;

/// How the results of a session are printed.
#[derive(Clone, Copy)]
pub(crate) struct Printing {
    pub(crate) format: Format,
    pub(crate) max_rows: usize,
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
    for mut parsed in session.parse(statement).map_err(pointed)? {
        stores::open(session, &mut parsed).map_err(pointed)?;
        let query = session.run(parsed).await.map_err(pointed)?;
        let rows = rows_of(&query).await.map_err(from_engine).map_err(pointed)?;
        // It may keep tables that the next statement drops.
        drop(query);
        output::rows(rows, printing.format, printing.max_rows).await?;
    }
    Ok(())
}
