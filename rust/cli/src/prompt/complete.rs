//! What a word that is being typed may become, by what stands around it: verbs, tables, columns, functions, settings, or paths.

use super::command::COMMANDS;
use super::names::{Names, identifier};
use super::words::{KEYWORDS, VERBS, Word, WordKind, words};

/// What may stand in the place of the word before the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Completion {
    /// These, from this byte of the line on.
    Words(usize, Vec<String>),
    /// The path of a file.
    Path,
}

/// Behind these words stands a table.
const BEFORE_TABLES: [&str; 7] = ["FROM", "JOIN", "INTO", "UPDATE", "TABLE", "DESCRIBE", "COPY"];

/// What the word before the cursor may become.
pub(super) fn complete(names: &Names, line: &str, cursor: usize) -> Completion {
    let before = line.get(..cursor).unwrap_or(line);
    if before.starts_with('\\') {
        return command(names, before);
    }
    let all = words(before);
    let begin = all.iter().rposition(|word| word.is(";")).map_or(0, |end| end + 1);
    let typed: Vec<Word<'_>> = all.into_iter().skip(begin).collect();
    match typed.last() {
        Some(word) if word.kind == WordKind::Text && word.is_open() => return Completion::Path,
        Some(word) if matches!(word.kind, WordKind::Text | WordKind::Comment | WordKind::Number) => {
            return Completion::Words(cursor, Vec::new());
        }
        _ => {}
    }
    let name = DottedName::at_the_end_of(&typed, cursor);
    let said: Vec<Word<'_>> = typed.iter().copied().filter(|word| word.counts() && word.start < name.start).collect();
    Completion::Words(name.last_start(), name.offers(names, &said, &words(line)))
}

/// What is being typed: a name, perhaps with others and dots before it.
struct DottedName<'a> {
    /// Where the first of the names begins.
    start: usize,
    /// The names before the last dot.
    owners: Vec<Word<'a>>,
    /// The last name as far as it is typed, if it is.
    last: Option<Word<'a>>,
    cursor: usize,
}

impl<'a> DottedName<'a> {
    fn at_the_end_of(typed: &[Word<'a>], cursor: usize) -> Self {
        let is_name = |word: &Word<'_>| matches!(word.kind, WordKind::Name | WordKind::Keyword | WordKind::Quoted);
        let mut rest = typed.iter().rev().copied().peekable();
        let last = rest.next_if(|word| is_name(word));
        let (mut owners, mut start) = (Vec::new(), last.map_or(cursor, |word| word.start));
        while rest.next_if(|word| word.is(".")).is_some() {
            let Some(owner) = rest.next_if(|word| is_name(word)) else { break };
            start = owner.start;
            owners.insert(0, owner);
        }
        Self { start, owners, last, cursor }
    }

    /// Where the last name begins, in whose place stands what is offered.
    fn last_start(&self) -> usize {
        self.last.map_or(self.cursor, |word| word.start)
    }

    fn is_quoted(&self) -> bool {
        self.last.is_some_and(|word| word.kind == WordKind::Quoted)
    }

    /// What is offered, after `said`, in a line of all these words.
    fn offers(&self, names: &Names, said: &[Word<'_>], line: &[Word<'_>]) -> Vec<String> {
        let is_verb = |verbs: &[&str]| said.first().is_some_and(|word| verbs.iter().any(|verb| word.is(verb)));
        if said.len() == 1 && is_verb(&["SET", "RESET", "SHOW"]) {
            let mut offered = self.within(names.settings.iter().cloned());
            if is_verb(&["SHOW"]) && self.owners.is_empty() {
                offered.extend(self.keywords(&["TABLES", "COLUMNS", "INDEXES", "FUNCTIONS", "ALL"]));
            }
            return offered;
        }
        let table_of_index = is_verb(&["CREATE", "DROP"])
            && said.get(1).is_some_and(|word| word.is("INDEX"))
            && said.last().is_some_and(|word| word.is("ON"));
        if table_of_index || said.last().is_some_and(|word| BEFORE_TABLES.iter().any(|before| word.is(before))) {
            return self.within(names.tables.keys().cloned());
        }
        if !self.owners.is_empty() {
            let mut offered = self.within(names.tables.keys().cloned());
            offered.extend(self.columns(self.columns_of_owner(names, line)));
            return offered;
        }
        if said.is_empty() {
            return self.keywords(&VERBS);
        }
        let mut offered = self.columns(columns_of_mentioned(names, line));
        if self.last.is_some() {
            let functions = names.functions.iter().filter(|name| !self.is_quoted() && self.begins(name));
            offered.extend(functions.map(|name| format!("{name}(")));
            offered.extend(self.within(names.tables.keys().cloned()));
            offered.extend(self.keywords(&KEYWORDS));
            offered.extend(self.keywords(&VERBS));
        }
        offered
    }

    /// Whether a name begins with what is typed of the last one.
    fn begins(&self, name: &str) -> bool {
        let typed = self.last.map(|word| word.name()).unwrap_or_default();
        name.to_lowercase().starts_with(&typed.to_lowercase())
    }

    /// The ends of dotted names that begin with all that is typed.
    fn within(&self, dotted: impl Iterator<Item = String>) -> Vec<String> {
        let owners: String = self.owners.iter().map(|owner| format!("{}.", owner.text.to_lowercase())).collect();
        let typed = self.last.map(|word| word.text.to_lowercase()).unwrap_or_default();
        let matching = |name: String| {
            let end = name.get(owners.len()..).filter(|_| name.to_lowercase().starts_with(&owners))?.to_owned();
            let unquoted = end.trim_start_matches('"').to_lowercase();
            (end.to_lowercase().starts_with(&typed) || unquoted.starts_with(&typed)).then_some(end)
        };
        dotted.filter_map(matching).collect()
    }

    fn columns(&self, mut columns: Vec<String>) -> Vec<String> {
        columns.sort_unstable();
        columns.dedup();
        let written = |name: &String| match identifier(name) {
            plain if self.is_quoted() && plain == *name => format!("\"{name}\""),
            other => other,
        };
        columns.iter().filter(|name| self.begins(name)).map(written).collect()
    }

    /// In the case that is typed.
    fn keywords(&self, keywords: &[&str]) -> Vec<String> {
        let is_lower = self.last.is_some_and(|word| !word.text.contains(char::is_uppercase));
        let written = |word: &&str| if is_lower { word.to_lowercase() } else { (*word).to_owned() };
        keywords.iter().filter(|word| !self.is_quoted() && self.begins(word)).map(written).collect()
    }

    /// The columns of the table, or of the table with the alias, that stands before the dot.
    fn columns_of_owner(&self, names: &Names, line: &[Word<'_>]) -> Vec<String> {
        let owner = self.owners.last().map(Word::name).unwrap_or_default();
        let said: Vec<&Word<'_>> = line.iter().filter(|word| word.counts()).collect();
        let is_alias = |table: &str| {
            said.iter().enumerate().any(|(place, word)| {
                let next = said.get(place + 1).filter(|next| !next.is("AS")).or_else(|| said.get(place + 2));
                word.name() == last_name(table) && next.is_some_and(|next| next.name() == owner)
            })
        };
        let is_meant = |table: &str| last_name(table) == owner || is_alias(table);
        let meant = names.tables.iter().filter(|(table, _)| is_meant(table));
        meant.flat_map(|(_, columns)| columns.iter().cloned()).collect()
    }
}

/// The columns of the tables that a line names; of all tables where it names none.
fn columns_of_mentioned(names: &Names, line: &[Word<'_>]) -> Vec<String> {
    let is_mentioned = |table: &str| line.iter().any(|word| word.counts() && word.name() == last_name(table));
    let any = names.tables.keys().any(|table| is_mentioned(table));
    let meant = names.tables.iter().filter(|(table, _)| !any || is_mentioned(table));
    meant.flat_map(|(_, columns)| columns.iter().cloned()).collect()
}

/// The name of a table without its schema and without quotes.
fn last_name(table: &str) -> String {
    words(table).last().map(Word::name).unwrap_or_default()
}

/// What a command of the shell may become, or what stands behind it.
fn command(names: &Names, before: &str) -> Completion {
    let Some((name, argument)) = before.split_once(char::is_whitespace) else {
        let offered = COMMANDS.iter().map(|known| known.name).filter(|known| known.starts_with(before));
        return Completion::Words(0, offered.map(str::to_owned).collect());
    };
    let argument = argument.trim_start();
    let all: Vec<String> = match name {
        "\\i" => return Completion::Path,
        "\\d" | "\\di" => names.tables.keys().cloned().collect(),
        "\\df" => names.functions.clone(),
        "\\set" => names.settings.clone(),
        "\\format" => ["table", "json", "csv"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    };
    let offered = all.into_iter().filter(|word| word.to_lowercase().starts_with(&argument.to_lowercase()));
    Completion::Words(before.len() - argument.len(), offered.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Names {
            tables: [
                ("flights".to_owned(), columns(&["carrier", "dest", "FlightNum", "day"])),
                ("planes".to_owned(), columns(&["tailnum", "carrier_code", "built"])),
                ("lake.\"Big\"".to_owned(), columns(&["x"])),
            ]
            .into(),
            functions: columns(&["array_has", "count", "date_trunc"]),
            settings: columns(&["datafusion.execution.batch_size", "lakemark.share", "lakemark.use_index"]),
            ..Names::default()
        }
    }

    /// What is offered where the bar stands, and what of the line it replaces.
    fn offered(line: &str) -> (String, Vec<String>) {
        let cursor = line.find('|').unwrap();
        let line = line.replacen('|', "", 1);
        match complete(&names(), &line, cursor) {
            Completion::Words(start, words) => (line[start..cursor].to_owned(), words),
            Completion::Path => ("path".to_owned(), Vec::new()),
        }
    }

    fn is_offered(line: &str, replaced: &str, words: &[&str]) {
        assert_eq!(
            offered(line),
            (replaced.to_owned(), words.iter().map(|word| (*word).to_owned()).collect()),
            "{line}"
        );
    }

    #[test]
    fn a_statement_begins_with_a_verb() {
        is_offered("sel|", "sel", &["select"]);
        is_offered("SELECT 1; D|", "D", &["DELETE", "DROP", "DESCRIBE"]);
        is_offered("-- sel|", "", &[]);
    }

    #[test]
    fn tables_stand_behind_from_and_columns_are_those_of_the_tables_that_are_named() {
        is_offered("SELECT * FROM f|", "f", &["flights"]);
        is_offered("SELECT * FROM |", "", &["flights", "lake.\"Big\"", "planes"]);
        is_offered("SELECT * FROM lake.b|", "b", &["\"Big\""]);
        is_offered("CREATE INDEX i ON p|", "p", &["planes"]);
        is_offered("SELECT ca| FROM planes", "ca", &["carrier_code", "case", "cast"]);
        is_offered("SELECT car|", "car", &["carrier", "carrier_code"]);
        is_offered("SELECT | FROM planes", "", &["built", "carrier_code", "tailnum"]);
        is_offered(
            "CREATE INDEX i ON flights (d|",
            "d",
            &["day", "dest", "date_trunc(", "desc", "distinct", "do", "delete", "drop", "describe"],
        );
    }

    #[test]
    fn names_that_would_be_folded_are_quoted() {
        is_offered("SELECT fl| FROM flights", "fl", &["\"FlightNum\"", "flights"]);
        is_offered("SELECT \"Fl| FROM flights", "\"Fl", &["\"FlightNum\""]);
    }

    #[test]
    fn behind_a_dot_stand_the_columns_of_the_table_or_alias() {
        is_offered("SELECT flights.de| FROM flights, planes", "de", &["dest"]);
        is_offered("SELECT * FROM flights AS f JOIN planes p ON p.t|", "t", &["tailnum"]);
        is_offered("SELECT f.| FROM flights f", "", &["\"FlightNum\"", "carrier", "day", "dest"]);
        is_offered("SELECT x.| FROM flights f", "", &[]);
    }

    #[test]
    fn functions_settings_commands_and_paths_are_known() {
        is_offered("SELECT cou|", "cou", &["count("]);
        is_offered("SET lakemark.u|", "u", &["use_index"]);
        is_offered("SET la|", "la", &["lakemark.share", "lakemark.use_index"]);
        is_offered("show i|", "i", &["indexes"]);
        is_offered("SHOW INDEXES FROM pl|", "pl", &["planes"]);
        is_offered("\\di pl|", "pl", &["planes"]);
        is_offered("\\format j|", "j", &["json"]);
        is_offered("\\set lake|", "lake", &["lakemark.share", "lakemark.use_index"]);
        is_offered("\\ti|", "\\ti", &["\\timing"]);
        is_offered("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION 'fli|", "path", &[]);
        is_offered("\\i que|", "path", &[]);
        is_offered(
            "SELECT 'a' |",
            "",
            &["\"FlightNum\"", "built", "carrier", "carrier_code", "day", "dest", "tailnum", "x"],
        );
    }
}
