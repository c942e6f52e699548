//! The prompt of the SQL shell: lines with colours, completion and history, statements that span lines, and a few commands.
//!
//! rustyline edits the lines. What it asks while somebody types is answered by `lines`, from the `names` that the session had before.

mod command;
mod complete;
mod lines;
mod names;
mod words;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use lakemark_datafusion::LakemarkSession;
use lakemark_table::index_rows;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Editor};

use self::command::Command;
use self::lines::Lines;
use self::names::{Names, settings};
use crate::execute::{Printing, run_one};
use crate::failure::Failure;
use crate::output;
use crate::pointed::SourceText;
use crate::statements::split;

/// Lines that are remembered from one start to the next.
const REMEMBERED: usize = 10_000;

/// Reads and runs statements until the end of the input.
pub(crate) async fn run(session: &LakemarkSession, printing: Printing) -> Result<(), Failure> {
    let mut editor = editor().map_err(|error| Failure::Error(format!("the terminal cannot be used: {error}")))?;
    let history = history_file();
    if let Some(path) = &history {
        // There is none at the first start.
        let _ = editor.load_history(path);
    }
    output::text(&format!("Lakemark {}; \\? for help, \\q to leave", env!("CARGO_PKG_VERSION")))?;
    let mut shell = Shell { session, printing, timing: false };
    let mut defined = false;
    loop {
        if let Some(lines) = editor.helper_mut() {
            shell.look(&mut lines.names, defined).await;
        }
        let line = match editor.readline("lakemark> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Failure::Error(format!("the terminal cannot be read: {error}"))),
        };
        if is_remembered(&line) {
            // A line that is not remembered is still run. At once, as a shell may be killed.
            let _ = editor.add_history_entry(line.trim_end());
            let _ = history.as_ref().map(|path| editor.append_history(path));
        }
        defined = defines(&line);
        let known = editor.helper().map(|lines| &lines.names);
        if shell.obey(Command::of(line.trim()), known).await? == Next::Leave {
            return Ok(());
        }
    }
}

fn editor() -> rustyline::Result<Editor<Lines, DefaultHistory>> {
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(REMEMBERED)?.build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Lines::new()));
    Ok(editor)
}

/// Whether the shell goes on.
#[derive(PartialEq)]
enum Next {
    Line,
    Leave,
}

/// A session as somebody uses it line by line.
struct Shell<'a> {
    session: &'a LakemarkSession,
    printing: Printing,
    timing: bool,
}

impl Shell<'_> {
    /// Learns the names of the session. A storage that does not answer must not hold the shell up for good.
    async fn look(&self, names: &mut Names, anew: bool) {
        tokio::select! {
            () = names.look(self.session, anew) => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }

    async fn obey(&mut self, command: Command, names: Option<&Names>) -> Result<Next, Failure> {
        let outcome = match command {
            Command::Leave => return Ok(Next::Leave),
            Command::Say(text) => output::text(&text),
            Command::Timing => {
                self.timing = !self.timing;
                output::text(if self.timing { "times are shown" } else { "times are not shown" })
            }
            Command::Format(format) => {
                self.printing.format = format;
                Ok(())
            }
            Command::Indexes => self.indexes(names).await,
            Command::Settings(text) => self.settings(&text),
            Command::Read(path) => match fs::read_to_string(&path) {
                Ok(text) => {
                    let name = path.display().to_string();
                    self.run(SourceText { name: Some(&name), text: &text }).await
                }
                Err(error) => Err(Failure::Error(format!("{} cannot be read: {error}", path.display()))),
            },
            Command::Run(text) => self.run(SourceText { name: None, text: &text }).await,
        };
        match outcome {
            // Nobody reads what the shell says any more.
            Err(Failure::PipeClosed) => Err(Failure::PipeClosed),
            Err(failure) => {
                writeln!(io::stderr(), "error: {failure}")?;
                Ok(Next::Line)
            }
            Ok(()) => Ok(Next::Line),
        }
    }

    /// Runs the statements of a text, up to the first that fails.
    async fn run(&self, source: SourceText<'_>) -> Result<(), Failure> {
        for statement in split(source.text).list {
            #[expect(clippy::disallowed_methods, reason = "how long a statement took, for the one who typed it")]
            let start = std::time::Instant::now();
            tokio::select! {
                outcome = run_one(self.session, statement, source, self.printing) => outcome?,
                _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted("stopped".to_owned())),
            }
            if self.timing {
                writeln!(io::stderr(), "{:.3} s", start.elapsed().as_secs_f64())?;
            }
        }
        Ok(())
    }

    /// Prints the indexes of all tables that may have some.
    async fn indexes(&self, names: Option<&Names>) -> Result<(), Failure> {
        let mut batches = Vec::new();
        for name in names.iter().flat_map(|names| names.tables.keys()) {
            // Other tables have none, and one that cannot be read says so when it is asked for.
            let Ok(table) = self.session.table(&name.as_str().into()).await else { continue };
            let indexes = table.snapshot().await?.checked_indexes().await?;
            batches.push(index_rows(&indexes).and_then(|rows| with_table(name, &rows)).map_err(unprintable)?);
        }
        match batches.first() {
            Some(first) => {
                let all = concat_batches(&first.schema(), &batches).map_err(unprintable)?;
                output::batch(all, self.printing.format)
            }
            None => output::text(
                "no table of Lakemark is known here: CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '…'",
            ),
        }
    }

    /// Prints the settings whose names hold a text.
    fn settings(&self, text: &str) -> Result<(), Failure> {
        let text = text.to_lowercase();
        let (names, values): (Vec<String>, Vec<Option<String>>) = settings(self.session)
            .into_iter()
            .filter(|setting| setting.name.contains(&text))
            .map(|setting| (setting.name, setting.value))
            .unzip();
        let columns: [(&str, ArrayRef); 2] =
            [("name", Arc::new(StringArray::from(names))), ("value", Arc::new(StringArray::from(values)))];
        output::batch(RecordBatch::try_from_iter(columns).map_err(unprintable)?, self.printing.format)
    }
}

/// Rows with the name of their table before them.
fn with_table(name: &str, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let tables: ArrayRef = Arc::new(StringArray::from(vec![name; rows.num_rows()]));
    let schema = rows.schema();
    let others =
        schema.fields().iter().zip(rows.columns()).map(|(field, column)| (field.name().as_str(), column.clone()));
    let columns = std::iter::once(("table", tables)).chain(others);
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
}

fn unprintable(error: ArrowError) -> Failure {
    Failure::Error(format!("the list cannot be made: {error}"))
}

/// Whether statements may change what names stand for.
fn defines(text: &str) -> bool {
    let defines = |statement: &str| {
        let verb = statement.split_whitespace().next().unwrap_or_default();
        ["CREATE", "DROP", "ALTER", "\\i"].iter().any(|known| verb.eq_ignore_ascii_case(known))
    };
    split(text).list.into_iter().any(defines)
}

/// Whether a line is kept in the history: not if it has credentials, which would lie in a file from then on.
fn is_remembered(line: &str) -> bool {
    let line = line.to_lowercase();
    !["secret", "password", "access_key", "session_token", "credential"].iter().any(|word| line.contains(word))
}

/// Beside other state of the user, never in the folder that happens to be current.
fn history_file() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".lakemark_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_learnt_anew_after_definitions() {
        for line in ["CREATE TABLE t AS SELECT 1;", "SELECT 1; drop table t;", "\\i setup.sql"] {
            assert!(defines(line), "{line}");
        }
        assert!(!defines("SELECT 'CREATE';") && !defines("\\d"));
    }

    #[test]
    fn credentials_stay_out_of_the_history() {
        assert!(is_remembered("SELECT * FROM keys;"));
        assert!(!is_remembered("CREATE EXTERNAL TABLE t … OPTIONS ('lakemark.storage.AWS_SECRET_ACCESS_KEY' 'x');"));
    }

    #[tokio::test]
    async fn commands_change_the_shell_and_it_goes_on_after_failures() {
        let session = crate::execute::session();
        let printing = Printing { format: crate::args::Format::Csv, max_rows: 0 };
        let mut shell = Shell { session: &session, printing, timing: false };
        for line in [
            "\\timing",
            "\\format json",
            "SELECT nosuch;",
            "CREATE TABLE t AS SELECT 1 AS a;",
            "\\d t",
            "\\df array_has",
        ] {
            assert!(shell.obey(Command::of(line), None).await.unwrap() == Next::Line, "{line}");
        }
        assert!(shell.timing && shell.printing.format == crate::args::Format::Json);
        let mut names = Names::default();
        shell.look(&mut names, true).await;
        assert_eq!(names.tables["t"], ["a"]);
        for line in ["\\di", "\\set", "\\i /nowhere/q.sql", "\\?"] {
            assert!(shell.obey(Command::of(line), Some(&names)).await.unwrap() == Next::Line, "{line}");
        }
        assert!(shell.obey(Command::of("exit"), None).await.unwrap() == Next::Leave);
    }
}
