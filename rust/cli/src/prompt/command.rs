//! The commands of the shell, which begin with a backslash, and what a line asks for.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::args::Format;

/// A command as `\?` lists it.
pub(super) struct KnownCommand {
    pub(super) name: &'static str,
    argument: &'static str,
    says: &'static str,
}

const fn known(name: &'static str, argument: &'static str, says: &'static str) -> KnownCommand {
    KnownCommand { name, argument, says }
}

/// All commands.
pub(super) static COMMANDS: [KnownCommand; 9] = [
    known("\\d", "[TABLE]", "tables, or the columns of a table"),
    known("\\di", "[TABLE]", "indexes of all tables, or of one"),
    known("\\df", "[TEXT]", "functions, or those whose names hold a text"),
    known("\\set", "[TEXT]", "settings whose names hold a text; Lakemark's own without one"),
    known("\\i", "FILE", "run the statements of a file"),
    known("\\format", "table|json|csv", "how results are printed"),
    known("\\timing", "", "switch times on or off"),
    known("\\?", "", "this help"),
    known("\\q", "", "leave"),
];

/// What a line asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    Leave,
    Say(String),
    Timing,
    Format(Format),
    /// The indexes of all tables.
    Indexes,
    /// Settings whose names hold this.
    Settings(String),
    /// The statements of a file.
    Read(PathBuf),
    Run(String),
}

impl Command {
    /// What a line, or statements over several lines, ask for.
    pub(super) fn of(line: &str) -> Self {
        if !line.starts_with('\\') {
            return match line.trim_end_matches(';').trim_end().to_ascii_lowercase().as_str() {
                "quit" | "exit" => Self::Leave,
                _ => Self::Run(line.to_owned()),
            };
        }
        let line = line.trim_end_matches(';').trim_end();
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (name, argument.trim()) {
            ("\\q", "") => Self::Leave,
            ("\\?" | "\\h" | "\\help", "") => Self::Say(help()),
            ("\\timing", "") => Self::Timing,
            ("\\format", name) => match Format::from_str(name, true) {
                Ok(format) => Self::Format(format),
                Err(_) => Self::Say("give table, json or csv after \\format".to_owned()),
            },
            ("\\d", "") => Self::Run("SHOW TABLES".to_owned()),
            ("\\d", table) => Self::Run(format!("SHOW COLUMNS FROM {table}")),
            ("\\di", "") => Self::Indexes,
            ("\\di", table) => Self::Run(format!("SHOW INDEXES FROM {table}")),
            ("\\df", text) => Self::Run(functions(text)),
            ("\\set", "") => Self::Settings("lakemark.".to_owned()),
            ("\\set", text) => Self::Settings(text.to_owned()),
            ("\\i", "") => Self::Say("give a file after \\i; \\di shows indexes".to_owned()),
            ("\\i", path) => Self::Read(PathBuf::from(path.trim_matches('\''))),
            _ => Self::Say(format!("{line} is no command; \\? lists them")),
        }
    }
}

fn functions(text: &str) -> String {
    let text = text.to_lowercase().replace('\'', "''");
    format!(
        "SELECT DISTINCT routine_name AS name, function_type AS kind, syntax_example AS syntax FROM information_schema.routines \
         WHERE strpos(routine_name, '{text}') > 0 ORDER BY name, kind"
    )
}

fn help() -> String {
    let lines = COMMANDS.iter().map(|known| {
        let command = format!("{} {}", known.name, known.argument);
        format!("\n  {command:<24}{}", known.says)
    });
    format!(
        "End a statement with a semicolon; it may be over several lines. Tab completes, arrows go through the history,\n\
         Ctrl-R searches it, Ctrl-C stops a query, Ctrl-D leaves the shell.{}",
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_distinguished_from_statements() {
        assert_eq!(Command::of("\\q"), Command::Leave);
        assert_eq!(Command::of("exit;"), Command::Leave);
        assert_eq!(Command::of("\\d"), Command::Run("SHOW TABLES".to_owned()));
        assert_eq!(Command::of("\\d  flights ;"), Command::Run("SHOW COLUMNS FROM flights".to_owned()));
        assert_eq!(Command::of("\\di"), Command::Indexes);
        assert_eq!(Command::of("\\di flights"), Command::Run("SHOW INDEXES FROM flights".to_owned()));
        assert_eq!(Command::of("\\i 'my q.sql'"), Command::Read(PathBuf::from("my q.sql")));
        assert_eq!(Command::of("\\format JSON"), Command::Format(Format::Json));
        assert_eq!(Command::of("\\set share"), Command::Settings("share".to_owned()));
        assert_eq!(Command::of("SELECT 1;"), Command::Run("SELECT 1;".to_owned()));
        assert_eq!(Command::of("\\nope"), Command::Say("\\nope is no command; \\? lists them".to_owned()));
    }

    #[test]
    fn every_command_is_known_and_in_the_help() {
        let help = help();
        for command in &COMMANDS {
            assert!(help.contains(&format!("\n  {}", command.name)), "{}", command.name);
            let argument =
                command.argument.trim_start_matches('[').trim_end_matches(']').split('|').next().unwrap_or_default();
            let asked = Command::of(&format!("{} {argument}", command.name));
            assert!(!matches!(&asked, Command::Say(said) if said.contains("no command")), "{asked:?}");
        }
    }
}
