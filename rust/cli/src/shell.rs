//! `lakemark sql`: runs statements from `-c`, files, a pipe or a prompt in one session.

use std::fs;
use std::io::{self, IsTerminal, Read};

use lakemark_datafusion::LakemarkSession;

use crate::args::SqlArgs;
use crate::execute::{self, Printing, run_one};
use crate::failure::Failure;
use crate::pointed::SourceText;
use crate::prompt;
use crate::statements::split;

pub(crate) async fn sql(args: SqlArgs) -> Result<(), Failure> {
    let session = execute::configured_session().await?;
    let printing = Printing { format: args.format, max_rows: args.max_rows };
    if !args.commands.is_empty() {
        for command in &args.commands {
            run_all(&session, SourceText { name: None, text: command }, printing).await?;
        }
        return Ok(());
    }
    if !args.files.is_empty() {
        for path in &args.files {
            let text = fs::read_to_string(path)
                .map_err(|error| Failure::Error(format!("{} cannot be read: {error}", path.display())))?;
            let name = path.display().to_string();
            run_all(&session, SourceText { name: Some(&name), text: &text }, printing).await?;
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
    run_all(&session, SourceText { name: None, text: &text }, printing).await
}

/// Runs statements in order and stops at the first that fails.
async fn run_all(session: &LakemarkSession, source: SourceText<'_>, printing: Printing) -> Result<(), Failure> {
    for statement in split(source.text).list {
        let listening = tokio::signal::ctrl_c();
        tokio::select! {
            outcome = run_one(session, statement, source, printing) => outcome?,
            _ = listening => return Err(Failure::Interrupted("stopped by Ctrl-C".to_owned())),
        }
    }
    Ok(())
}
