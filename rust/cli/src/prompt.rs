//! The prompt of the SQL shell: lines with history, statements that span lines, and a few commands.

use std::io::{self, Write};
use std::path::PathBuf;

use lakemark_datafusion::LakemarkSession;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};

use crate::execute::{Printing, run_one};
use crate::failure::Failure;
use crate::output;
use crate::pointed::SourceText;
use crate::statements::split;

const HELP: &str = "\
End a statement with a semicolon. Ctrl-C stops a query, Ctrl-D leaves the shell.
  \\d          tables              \\d NAME     columns of a table
  \\i NAME     indexes of a table  \\q          leave
  \\timing     switch times on or off";

/// Reads and runs statements until the end of the input.
pub(crate) async fn run(session: &LakemarkSession, printing: Printing) -> Result<(), Failure> {
    let mut editor: Editor<Lines, DefaultHistory> =
        Editor::new().map_err(|error| Failure::Error(format!("the terminal cannot be used: {error}")))?;
    editor.set_helper(Some(Lines { files: FilenameCompleter::new() }));
    let history = history_file();
    if let Some(path) = &history {
        // There is none at the first start.
        let _ = editor.load_history(path);
    }
    output::text(&format!("Lakemark {}; \\? for help, \\q to leave", env!("CARGO_PKG_VERSION")))?;
    let mut timing = false;
    loop {
        let line = match editor.readline("lakemark> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Failure::Error(format!("the terminal cannot be read: {error}"))),
        };
        // A line that is not remembered is still run.
        let _ = editor.add_history_entry(line.trim_end());
        match command(line.trim()) {
            Command::Leave => break,
            Command::Say(text) => output::text(&text)?,
            Command::Timing => {
                timing = !timing;
                output::text(if timing { "times are shown" } else { "times are not shown" })?;
            }
            Command::Run(text) => run_line(session, &text, printing, timing).await?,
        }
    }
    if let Some(path) = &history {
        let _ = editor.save_history(path);
    }
    Ok(())
}

/// Runs the statements of a line. A failure is shown and the shell goes on, unless the reader of our output is gone.
async fn run_line(session: &LakemarkSession, text: &str, printing: Printing, timing: bool) -> Result<(), Failure> {
    for statement in split(text).list {
        #[expect(clippy::disallowed_methods, reason = "how long a statement took, for the one who typed it")]
        let start = std::time::Instant::now();
        let outcome = tokio::select! {
            outcome = run_one(session, statement, SourceText { name: None, text }, printing) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted("stopped".to_owned())),
        };
        match outcome {
            Ok(()) if timing => writeln!(io::stderr(), "{:.3} s", start.elapsed().as_secs_f64())?,
            Ok(()) => {}
            Err(Failure::PipeClosed) => return Err(Failure::PipeClosed),
            Err(failure) => {
                writeln!(io::stderr(), "error: {failure}")?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// What a line asks for.
#[derive(Debug, PartialEq)]
enum Command {
    Leave,
    Say(String),
    Timing,
    Run(String),
}

fn command(line: &str) -> Command {
    let Some(rest) = line.strip_prefix('\\') else {
        return match line.trim_end_matches(';').to_ascii_lowercase().as_str() {
            "quit" | "exit" => Command::Leave,
            _ => Command::Run(line.to_owned()),
        };
    };
    let mut words = rest.trim_end_matches(';').split_whitespace();
    match (words.next(), words.next()) {
        (Some("q"), None) => Command::Leave,
        (Some("?" | "h" | "help"), None) => Command::Say(HELP.to_owned()),
        (Some("timing"), None) => Command::Timing,
        (Some("d"), None) => Command::Run("SHOW TABLES".to_owned()),
        (Some("d"), Some(table)) => Command::Run(format!("SHOW COLUMNS FROM {table}")),
        (Some("i"), Some(table)) => Command::Run(format!("SHOW INDEXES FROM {table}")),
        _ => Command::Say(format!("{line} is no command; \\? lists them")),
    }
}

/// Beside other state of the user, never in the folder that happens to be current.
fn history_file() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".lakemark_history"))
}

/// Completes paths, and knows that a line is finished when its last statement is.
struct Lines {
    files: FilenameCompleter,
}

impl Helper for Lines {}
impl Highlighter for Lines {}

impl Hinter for Lines {
    type Hint = String;
}

impl Completer for Lines {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        self.files.complete(line, pos, context)
    }
}

impl Validator for Lines {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let input = context.input().trim();
        let leaves = matches!(command(input), Command::Leave);
        if input.starts_with('\\') || leaves || split(input).complete {
            Ok(ValidationResult::Valid(None))
        } else {
            Ok(ValidationResult::Incomplete)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_distinguished_from_statements() {
        assert_eq!(command("\\q"), Command::Leave);
        assert_eq!(command("exit;"), Command::Leave);
        assert_eq!(command("\\d"), Command::Run("SHOW TABLES".to_owned()));
        assert_eq!(command("\\i flights"), Command::Run("SHOW INDEXES FROM flights".to_owned()));
        assert_eq!(command("SELECT 1;"), Command::Run("SELECT 1;".to_owned()));
        assert_eq!(command("\\nope"), Command::Say("\\nope is no command; \\? lists them".to_owned()));
    }
}
