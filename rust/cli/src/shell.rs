//! `lakemark sql`: runs statements from `-c`, files, a pipe or a prompt in one session.
//!
//! Every statement goes through [`LakemarkSession`], where Lakemark's own statements are taken before DataFusion's.
//! `COPY` and `CREATE EXTERNAL TABLE … STORED AS` another format go through datafusion-cli, which sets object stores up.

use std::fs;
use std::io::{self, IsTerminal, Read};

use datafusion::sql::parser::Statement as EngineStatement;
use datafusion_cli::exec::exec_from_commands;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};
use lakemark_datafusion::{LakemarkSession, Statement, may_read_version};

use crate::args::{Format, SqlArgs};
use crate::failure::Failure;
use crate::output;
use crate::prompt;
use crate::statements::split;

/// How the results of a session are printed.
#[derive(Clone, Copy)]
pub(crate) struct Printing {
    pub(crate) format: Format,
    pub(crate) max_rows: usize,
}

pub(crate) async fn sql(args: SqlArgs) -> Result<(), Failure> {
    let session = LakemarkSession::new();
    let printing = Printing { format: args.format, max_rows: args.max_rows };
    if !args.commands.is_empty() {
        for command in &args.commands {
            run_all(&session, command, printing).await?;
        }
        return Ok(());
    }
    if !args.files.is_empty() {
        for path in &args.files {
            let text = fs::read_to_string(path)
                .map_err(|error| Failure::Error(format!("{} cannot be read: {error}", path.display())))?;
            run_all(&session, &text, printing).await?;
        }
        return Ok(());
    }
    if io::stdin().is_terminal() {
        return prompt::run(&session, printing).await;
    }
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::Error(format!("SQL cannot be read from the pipe: {error}")))?;
    run_all(&session, &text, printing).await
}

/// Runs statements in order and stops at the first that fails.
async fn run_all(session: &LakemarkSession, text: &str, printing: Printing) -> Result<(), Failure> {
    for statement in split(text).list {
        let listening = tokio::signal::ctrl_c();
        tokio::select! {
            outcome = run_one(session, statement, printing) => outcome?,
            _ = listening => return Err(Failure::Interrupted("stopped by Ctrl-C".to_owned())),
        }
    }
    Ok(())
}

/// Runs one statement and prints its rows.
pub(crate) async fn run_one(session: &LakemarkSession, statement: &str, printing: Printing) -> Result<(), Failure> {
    for parsed in session.parse(statement)? {
        if needs_object_stores(&parsed) {
            run_by_engine(session, statement, printing.format).await?;
        } else {
            let rows = session.run(parsed).await?.execute_stream().await?;
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

async fn run_by_engine(session: &LakemarkSession, statement: &str, format: Format) -> Result<(), Failure> {
    let printing = PrintOptions {
        format: match format {
            Format::Table => PrintFormat::Table,
            Format::Json => PrintFormat::Json,
            Format::Csv => PrintFormat::Csv,
        },
        quiet: true,
        maxrows: MaxRows::Unlimited,
        color: false,
        instrumented_registry: std::sync::Arc::default(),
    };
    Ok(exec_from_commands(session.context(), vec![statement.to_owned()], &printing).await?)
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
