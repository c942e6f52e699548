//! Cuts a text into SQL statements at its semicolons, so that each can be run, reported and stopped on its own.

/// The statements of `text` without their semicolons, and whether the last one ends with one.
#[derive(Debug, PartialEq, Eq)]
pub struct Statements<'a> {
    /// Statements that are more than white space and comments.
    pub list: Vec<&'a str>,
    /// Whether nothing is left open: no quote, no comment, no text after the last semicolon.
    pub complete: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Text,
    Quote(char),
    LineComment,
    BlockComment(u32),
}

/// Splits at semicolons outside of quotes and comments.
#[must_use]
pub fn split(text: &str) -> Statements<'_> {
    let mut list = Vec::new();
    let mut inside = Inside::Text;
    let mut start = 0;
    let mut says_something = false;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let next = characters.peek().map(|&(_, next)| next);
        inside = match (inside, c) {
            (Inside::Text, ';') => {
                push(&mut list, text.get(start..at), says_something);
                start = at + 1;
                says_something = false;
                Inside::Text
            }
            (Inside::Text, '-') if next == Some('-') => Inside::LineComment,
            (Inside::Text, '/') if next == Some('*') => {
                characters.next();
                Inside::BlockComment(1)
            }
            (Inside::Text, '\'' | '"' | '`') => {
                says_something = true;
                Inside::Quote(c)
            }
            (Inside::Text, _) => {
                says_something |= !c.is_whitespace();
                Inside::Text
            }
            // A doubled quote closes and opens again, which comes to the same.
            (Inside::Quote(quote), _) if c == quote => Inside::Text,
            (Inside::LineComment, '\n') => Inside::Text,
            (Inside::BlockComment(depth), '/') if next == Some('*') => {
                characters.next();
                Inside::BlockComment(depth + 1)
            }
            (Inside::BlockComment(depth), '*') if next == Some('/') => {
                characters.next();
                if depth == 1 { Inside::Text } else { Inside::BlockComment(depth - 1) }
            }
            (other, _) => other,
        };
    }
    push(&mut list, text.get(start..), says_something);
    let open = matches!(inside, Inside::Quote(_) | Inside::BlockComment(_));
    Statements { list, complete: !open && !says_something }
}

fn push<'a>(list: &mut Vec<&'a str>, statement: Option<&'a str>, says_something: bool) {
    if let Some(statement) = statement.filter(|_| says_something) {
        list.push(statement.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_do_not_cut() {
        let text = "SELECT 'a;b', \"c;d\"; -- x;y\nSELECT /* ; /* ; */ ; */ 2;";
        let found = split(text);
        assert_eq!(found.list.len(), 2);
        assert_eq!(found.list[0], "SELECT 'a;b', \"c;d\"");
        assert!(found.list[1].ends_with("*/ 2"));
        assert!(found.complete);
    }

    #[test]
    fn an_open_statement_is_incomplete() {
        for text in ["SELECT 1", "SELECT 'a;", "SELECT 1; SELECT", "/* ;"] {
            assert!(!split(text).complete, "{text}");
        }
        for text in ["", "  ", "-- only words", "SELECT 1;", ";;"] {
            assert!(split(text).complete, "{text}");
        }
    }

    #[test]
    fn nothing_is_no_statement() {
        assert_eq!(split(" ; -- a\n ;").list, Vec::<&str>::new());
        assert_eq!(split("SELECT 'it''s'").list, ["SELECT 'it''s'"]);
    }
}
