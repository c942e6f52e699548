//! The words of a line that is being typed: what highlighting and completion go by. A line that is not finished has words, too.

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordKind {
    Keyword,
    Name,
    Number,
    /// In single quotes.
    Text,
    /// A name in quotes.
    Quoted,
    Comment,
    Space,
    /// A single character of another kind.
    Sign,
}

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    /// The byte in the line that it begins at.
    pub(super) start: usize,
    pub(super) text: &'a str,
    pub(super) kind: WordKind,
}

impl Word<'_> {
    /// Whether it says something.
    pub(super) fn counts(&self) -> bool {
        !matches!(self.kind, WordKind::Space | WordKind::Comment)
    }

    /// Whether it is this word or sign, in any case.
    pub(super) fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    /// Whether a quote is open at its end.
    pub(super) fn is_open(&self) -> bool {
        let mut characters = self.text.chars();
        let quote = characters.next();
        matches!(self.kind, WordKind::Text | WordKind::Quoted) && characters.next_back() != quote
    }

    /// The name without its quotes; as the engine folds it, if it has none.
    pub(super) fn name(&self) -> String {
        match self.text.strip_prefix(['"', '`']) {
            Some(quoted) => quoted.trim_end_matches(['"', '`']).replace("\"\"", "\""),
            None => self.text.to_lowercase(),
        }
    }
}

/// What a statement begins with.
pub(super) const VERBS: [&str; 17] = [
    "SELECT", "WITH", "INSERT", "REPLACE", "UPDATE", "DELETE", "MERGE", "CREATE", "DROP", "SHOW", "DESCRIBE",
    "EXPLAIN", "SET", "RESET", "COPY", "PREPARE", "EXECUTE",
];

/// Words of SQL besides the verbs. Names that columns often have, such as `date` or `name`, are none.
pub(super) const KEYWORDS: [&str; 92] = [
    "ALL",
    "ANALYZE",
    "AND",
    "ANTI",
    "ANY",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COLUMNS",
    "CROSS",
    "CSV",
    "DESC",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXTERNAL",
    "FALSE",
    "FILTER",
    "FROM",
    "FULL",
    "FUNCTIONS",
    "GROUP",
    "HAVING",
    "IF",
    "ILIKE",
    "IN",
    "INDEX",
    "INDEXES",
    "INNER",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "JSON",
    "LAKEMARK",
    "LEFT",
    "LIKE",
    "LIMIT",
    "LOCATION",
    "MATCHED",
    "NOT",
    "NULL",
    "NULLS",
    "OF",
    "OFFSET",
    "ON",
    "OPTIONS",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARQUET",
    "PARTITION",
    "PARTITIONED",
    "QUALIFY",
    "RECURSIVE",
    "RIGHT",
    "ROWS",
    "SEMI",
    "STORED",
    "TABLE",
    "TABLES",
    "THEN",
    "TIMESTAMP",
    "TO",
    "TRUE",
    "TRY_CAST",
    "UNION",
    "UNNEST",
    "USING",
    "VALUES",
    "VERBOSE",
    "VERSION",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITHIN",
    "WINDOW",
    "ESCAPE",
    "SIMILAR",
    "UNKNOWN",
    "NATURAL",
    "LATERAL",
    "SOURCE",
    "TARGET",
    "DO",
];

/// The words of a line, which together are the line.
pub(super) fn words(line: &str) -> Vec<Word<'_>> {
    let (mut found, mut rest, mut start) = (Vec::new(), line, 0);
    while let Some(first) = rest.chars().next() {
        let (kind, length) = word(rest, first);
        let Some((text, after)) = rest.split_at_checked(length.max(first.len_utf8())) else { break };
        found.push(Word { start, text, kind });
        (start, rest) = (start + text.len(), after);
    }
    found
}

/// What the text begins with, and its bytes.
fn word(text: &str, first: char) -> (WordKind, usize) {
    let run = |is_in: fn(char) -> bool| text.find(|character: char| !is_in(character)).unwrap_or(text.len());
    match first {
        '\'' => (WordKind::Text, quoted(text, first)),
        '"' | '`' => (WordKind::Quoted, quoted(text, first)),
        _ if text.starts_with("--") => (WordKind::Comment, text.find('\n').unwrap_or(text.len())),
        _ if text.starts_with("/*") => (WordKind::Comment, block_comment(text)),
        _ if first.is_whitespace() => (WordKind::Space, run(char::is_whitespace)),
        _ if first.is_ascii_digit() => (WordKind::Number, run(|next| next.is_alphanumeric() || next == '.')),
        _ if is_of_name(first) => {
            let length = run(is_of_name);
            let is_keyword = text.get(..length).is_some_and(is_keyword);
            (if is_keyword { WordKind::Keyword } else { WordKind::Name }, length)
        }
        _ => (WordKind::Sign, first.len_utf8()),
    }
}

pub(super) fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn is_keyword(word: &str) -> bool {
    VERBS.iter().chain(&KEYWORDS).any(|keyword| keyword.eq_ignore_ascii_case(word))
}

/// Up to the quote that closes; a doubled one closes and opens again.
fn quoted(text: &str, quote: char) -> usize {
    text.char_indices().skip(1).find(|&(_, next)| next == quote).map_or(text.len(), |(end, _)| end + 1)
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut before) = (0_u32, ' ');
    for (at, character) in text.char_indices() {
        let pair = (before, character);
        before = character;
        match pair {
            ('/', '*') => depth += 1,
            ('*', '/') => depth = depth.saturating_sub(1),
            _ => continue,
        }
        // Neither sign begins another pair.
        before = ' ';
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(line: &str) -> Vec<(&str, WordKind)> {
        let found = words(line);
        assert_eq!(found.iter().map(|word| word.text).collect::<String>(), line);
        assert!(found.iter().all(|word| line[word.start..].starts_with(word.text)));
        found.into_iter().filter(|word| word.kind != WordKind::Space).map(|word| (word.text, word.kind)).collect()
    }

    #[test]
    fn a_line_is_cut_into_words() {
        use WordKind::{Comment, Keyword, Name, Number, Quoted, Sign, Text};
        assert_eq!(
            kinds("select \"Flug Nr\", 1.5e3 -- ;'\n FROM größe WHERE a='it''s'"),
            [
                ("select", Keyword),
                ("\"Flug Nr\"", Quoted),
                (",", Sign),
                ("1.5e3", Number),
                ("-- ;'", Comment),
                ("FROM", Keyword),
                ("größe", Name),
                ("WHERE", Keyword),
                ("a", Name),
                ("=", Sign),
                ("'it'", Text),
                ("'s'", Text),
            ]
        );
        assert_eq!(kinds("/* /* */ a */b"), [("/* /* */ a */", Comment), ("b", Name)]);
        assert_eq!(kinds("/* open"), [("/* open", Comment)]);
        assert!(kinds("").is_empty());
    }

    #[test]
    fn an_open_quote_is_known() {
        let is_open = |line: &str| words(line).last().is_some_and(Word::is_open);
        assert!(is_open("LOCATION 'fli") && is_open("\"Fli") && is_open("'"));
        assert!(!is_open("'a'") && !is_open("a") && !is_open("''"));
    }

    #[test]
    fn keywords_are_listed_once() {
        let mut all: Vec<&str> = VERBS.iter().chain(&KEYWORDS).copied().collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
