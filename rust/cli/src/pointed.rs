//! Errors that point at the place: line and column, the line itself, and carets below what is meant.

use lakemark_table::{Error, TextPlace};

use crate::failure::Failure;

/// So many characters of a line are shown, and so many of them before the place.
const SHOWN: usize = 100;
const BEFORE: usize = 50;

/// The text that statements come from.
#[derive(Clone, Copy)]
pub(crate) struct SourceText<'a> {
    /// The file, if it is from one.
    pub(crate) name: Option<&'a str>,
    pub(crate) text: &'a str,
}

/// The failure of a statement, which is a part of the text.
pub(crate) fn failure(error: Error, statement: &str, source: SourceText<'_>) -> Failure {
    let place = error.place().or_else(|| end_of(statement, error.message()));
    match (Failure::from(error), place) {
        (Failure::Error(message), Some(place)) => {
            // Said below, and as the lines of the whole text are numbered.
            let said = format!(" at Line: {}, Column: {}", place.line, place.column);
            let lines = pointing(place, statement, source).map(|lines| format!("\n{lines}")).unwrap_or_default();
            Failure::Error(format!("{}{lines}", message.replacen(&said, "", 1)))
        }
        (failure, _) => failure,
    }
}

/// Behind the last character, where the parser came to the end and looked for more.
fn end_of(statement: &str, message: &str) -> Option<TextPlace> {
    let last = statement.lines().last().filter(|_| message.contains("found: EOF"))?;
    Some(TextPlace { line: statement.lines().count() as u64, column: last.chars().count() as u64 + 1 })
}

fn pointing(place: TextPlace, statement: &str, source: SourceText<'_>) -> Option<String> {
    let start = (statement.as_ptr() as usize).checked_sub(source.text.as_ptr() as usize)?;
    let before = source.text.get(..start)?;
    let beside = before.rsplit('\n').next().map_or(0, |beside| beside.chars().count());
    let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(place.column).ok()?.checked_sub(1)? + if line == 0 { beside } else { 0 };
    let line = before.matches('\n').count() + line;
    let shown: Vec<char> = source.text.lines().nth(line)?.chars().collect();
    let from = column.saturating_sub(BEFORE);
    let visible = |count: usize| shown.iter().skip(from).take(count);
    let part: String = visible(SHOWN).collect();
    // Tabs are as wide below a line as in it.
    let blank: String = visible(column - from).map(|&character| if character == '\t' { '\t' } else { ' ' }).collect();
    let carets = "^".repeat(width(shown.get(column..).unwrap_or_default()).min(SHOWN - (column - from)));
    let file = source.name.map(|name| format!("{name}, ")).unwrap_or_default();
    let (line, column) = (line + 1, column + 1);
    Some(format!("{file}line {line}, column {column}:\n  {part}\n  {blank}{carets}"))
}

/// Characters of the token that is meant: a name, a number, what is in quotes, or a single character.
fn width(rest: &[char]) -> usize {
    match rest.first().copied() {
        Some(quote @ ('"' | '\'' | '`')) => {
            rest.iter().skip(1).position(|&character| character == quote).map_or(1, |end| end + 2)
        }
        _ => rest.iter().take_while(|&&character| character.is_alphanumeric() || character == '_').count().max(1),
    }
}

#[cfg(test)]
mod tests {
    use lakemark_table::ErrorKind;

    use super::*;

    fn said(text: &str, statement: &str, message: &str, place: Option<(u64, u64)>) -> String {
        let start = text.rfind(statement).unwrap();
        let statement = &text[start..start + statement.len()];
        let error = Error::new(ErrorKind::InvalidInput, message);
        let error = match place {
            Some((line, column)) => error.with_place(TextPlace { line, column }),
            None => error,
        };
        failure(error, statement, SourceText { name: Some("q.sql"), text }).to_string()
    }

    #[test]
    fn the_line_of_the_whole_text_is_shown_with_the_word_marked() {
        let text = "SELECT 1; SELECT a,\n\tnosuch FROM t";
        let statement = "SELECT a,\n\tnosuch FROM t";
        assert_eq!(
            said(text, statement, "no field named nosuch", Some((2, 2))),
            "no field named nosuch\nq.sql, line 2, column 2:\n  \tnosuch FROM t\n  \t^^^^^^"
        );
        assert_eq!(
            said(text, statement, "found: a at Line: 1, Column: 8", Some((1, 8))),
            "found: a\nq.sql, line 1, column 18:\n  SELECT 1; SELECT a,\n                   ^"
        );
    }

    #[test]
    fn the_end_is_pointed_at_where_more_was_looked_for() {
        assert_eq!(
            said("SELECT 1 +;", "SELECT 1 +", "Expected: an expression, found: EOF", None),
            "Expected: an expression, found: EOF\nq.sql, line 1, column 11:\n  SELECT 1 +;\n            ^"
        );
        assert_eq!(said("SELECT 1", "SELECT 1", "the disk is full", None), "the disk is full");
    }

    #[test]
    fn of_a_long_line_what_is_around_the_place_is_shown() {
        let text = format!("SELECT {}'it is' AS a", "1, ".repeat(100));
        let said = said(&text, &text, "x", Some((1, 308)));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[2].len(), 2 + 50 + "'it is' AS a".len());
        assert_eq!(lines[3], format!("{}^^^^^^^", " ".repeat(52)));
    }

    #[test]
    fn a_place_that_is_not_there_is_left_out() {
        assert_eq!(said("SELECT 1", "SELECT 1", "x", Some((7, 1))), "x");
        assert_eq!(said("SELECT 1", "SELECT 1", "x", Some((0, 0))), "x");
    }
}
