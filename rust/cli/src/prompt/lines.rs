//! What rustyline asks while a line is typed: its colours, its completions, a hint from the history, and whether it is finished.

use std::borrow::Cow;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hinter, HistoryHinter};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};

use super::command::Command;
use super::complete::{Completion, complete};
use super::names::Names;
use super::words::{Word, WordKind, words};
use crate::statements::split;

const END: &str = "\x1b[0m";

/// The helper of the editor.
pub(super) struct Lines {
    pub(super) names: Names,
    files: FilenameCompleter,
    history: HistoryHinter,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { names: Names::default(), files: FilenameCompleter::new(), history: HistoryHinter::new() }
    }
}

impl Helper for Lines {}

impl Completer for Lines {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        match complete(&self.names, line, pos) {
            Completion::Path => self.files.complete(line, pos, context),
            Completion::Words(start, words) => {
                let pairs = words.into_iter().map(|word| Pair { display: word.clone(), replacement: word });
                Ok((start, pairs.collect()))
            }
        }
    }
}

impl Hinter for Lines {
    type Hint = String;

    fn hint(&self, line: &str, pos: usize, context: &Context<'_>) -> Option<String> {
        // A hint over several lines would hide what is typed.
        self.history.hint(line, pos, context).filter(|hint| !hint.contains('\n'))
    }
}

impl Highlighter for Lines {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        if line.starts_with('\\') {
            return Cow::Borrowed(line);
        }
        Cow::Owned(words(line).iter().map(coloured).collect())
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[90m{hint}{END}"))
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        // Colours do not go by where the cursor is.
        kind != CmdKind::MoveCursor
    }
}

/// A word in its colour. Those of 16 colours are readable on light and dark terminals.
fn coloured(word: &Word<'_>) -> String {
    let colour = match word.kind {
        WordKind::Keyword => "\x1b[34m",
        WordKind::Text => "\x1b[32m",
        WordKind::Number => "\x1b[36m",
        WordKind::Comment => "\x1b[90m",
        WordKind::Name | WordKind::Quoted | WordKind::Space | WordKind::Sign => return word.text.to_owned(),
    };
    format!("{colour}{}{END}", word.text)
}

impl Validator for Lines {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_finished(context.input()) { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

/// Whether Enter runs the line. A statement that has no semicolon yet goes on in the next one.
fn is_finished(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('\\') || Command::of(line) == Command::Leave || split(line).complete
}

#[cfg(test)]
mod tests {
    use rustyline::history::{DefaultHistory, History};

    use super::*;

    #[test]
    fn a_statement_goes_on_until_its_semicolon() {
        for line in ["SELECT 1;", "\\d t", "exit", "", "SELECT 'a\n;b';  ", "-- only words"] {
            assert!(is_finished(line), "{line}");
        }
        for line in ["SELECT 1", "SELECT 1; SELECT", "SELECT ';", "/* ;"] {
            assert!(!is_finished(line), "{line}");
        }
    }

    #[test]
    fn keywords_texts_numbers_and_comments_have_colours() {
        let lines = Lines::new();
        let shown = lines.highlight("select a, 'x' from t -- all\n where b > 1.5", 0);
        assert_eq!(
            shown,
            "\x1b[34mselect\x1b[0m a, \x1b[32m'x'\x1b[0m \x1b[34mfrom\x1b[0m t \x1b[90m-- all\x1b[0m\n \
             \x1b[34mwhere\x1b[0m b > \x1b[36m1.5\x1b[0m"
        );
        assert_eq!(lines.highlight("\\d select", 0), "\\d select");
    }

    #[test]
    fn completions_and_hints_come_from_names_files_and_history() {
        let mut lines = Lines::new();
        lines.names.tables.insert("flights".to_owned(), vec!["carrier".to_owned()]);
        let mut history = DefaultHistory::new();
        history.add("SELECT 42;").unwrap();
        let context = Context::new(&history);
        let (start, pairs) = lines.complete("SELECT ca FROM flights", 9, &context).unwrap();
        assert_eq!((start, pairs[0].replacement.as_str()), (7, "carrier"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("query_one.sql"), "").unwrap();
        let line = format!("\\i {}/quer", folder.path().display());
        let (start, pairs) = lines.complete(&line, line.len(), &context).unwrap();
        assert!(line[..start].starts_with("\\i ") && pairs[0].replacement.ends_with("query_one.sql"));
        assert_eq!(lines.hint("SELECT 4", 8, &context).as_deref(), Some("2;"));
        assert_eq!(lines.hint("SELECT 5", 8, &context), None);
    }
}
