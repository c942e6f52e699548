//! The shape of a query: its text without the values that are written in it.
//!
//! ```text
//! SELECT id FROM t WHERE name = 'Ann' AND k IN (1, 2, 3)     ─▶     SELECT id FROM t WHERE name = ? AND k IN (?, …)
//! ```
//!
//! Values may be secrets, and so may comments. What is left are words, names, signs and parameters. Queries that differ in values, spaces
//! and the case of letters have one hash.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// What stands for a value.
const VALUE: &str = "?";
/// What stands for all values of a list but the first.
const MORE: &str = "…";
/// Words that are no function, though a parenthesis may follow.
const NO_FUNCTIONS: [Keyword; 26] = [
    Keyword::ALL,
    Keyword::AND,
    Keyword::ANY,
    Keyword::AS,
    Keyword::BY,
    Keyword::DISTINCT,
    Keyword::ELSE,
    Keyword::EXCEPT,
    Keyword::EXISTS,
    Keyword::FILTER,
    Keyword::FROM,
    Keyword::HAVING,
    Keyword::IN,
    Keyword::INTERSECT,
    Keyword::JOIN,
    Keyword::NOT,
    Keyword::ON,
    Keyword::OR,
    Keyword::OVER,
    Keyword::SELECT,
    Keyword::THEN,
    Keyword::UNION,
    Keyword::USING,
    Keyword::VALUES,
    Keyword::WHEN,
    Keyword::WHERE,
];

/// The shape of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueryShape {
    /// Its text.
    pub(crate) text: String,
    /// A hash of the text in lower case, which is the same on all machines.
    pub(crate) hash: u64,
}

impl QueryShape {
    /// The shape of a text; that of a single value where it is no SQL.
    pub(crate) fn of(text: &str, dialect: &dyn Dialect) -> Self {
        let tokens = Tokenizer::new(dialect, text).tokenize();
        let text = tokens.map_or_else(|_| VALUE.to_owned(), |tokens| joined(&tokens));
        let hash = fnv_1a(text.to_lowercase().as_bytes());
        Self { text, hash }
    }

    /// The beginning of its text: so many letters at most.
    pub(crate) fn beginning(&self, letters: usize) -> Cow<'_, str> {
        match self.text.char_indices().nth(letters) {
            None => Cow::Borrowed(self.text.as_str()),
            Some(_) => Cow::Owned(self.text.chars().take(letters).chain(MORE.chars()).collect()),
        }
    }
}

fn joined(tokens: &[Token]) -> String {
    let mut text = String::new();
    let mut is_behind_name = false;
    for token in tokens {
        let Some(piece) = piece_of(token) else { continue };
        if piece == VALUE && continues_list(&mut text) {
            is_behind_name = false;
            continue;
        }
        let calls = piece == "(" && is_behind_name;
        if !text.is_empty() && !calls && is_apart(&text, &piece) {
            text.push(' ');
        }
        text.push_str(&piece);
        is_behind_name = matches!(token, Token::Word(word) if !NO_FUNCTIONS.contains(&word.keyword));
    }
    text
}

/// What a shape has of a token; none of spaces and comments.
fn piece_of(token: &Token) -> Option<Cow<'_, str>> {
    match token {
        Token::EOF | Token::Whitespace(_) => None,
        Token::Word(word) if word.quote_style.is_none() => Some(Cow::Borrowed(word.value.as_str())),
        Token::Word(word) => Some(Cow::Owned(word.to_string())),
        Token::Placeholder(name) => Some(Cow::Borrowed(name.as_str())),
        other => {
            let shown = other.to_string();
            // Whatever has letters, digits or quotes may hold a value.
            let is_sign = shown.chars().all(|letter| letter.is_ascii_punctuation() && !"'\"`$".contains(letter));
            Some(if is_sign { Cow::Owned(shown) } else { Cow::Borrowed(VALUE) })
        }
    }
}

/// Whether a value is one more of a list at the end of a text, which shows it as such then.
fn continues_list(text: &mut String) -> bool {
    let Some(before) = text.strip_suffix(',') else { return false };
    let (is_second, is_later) = (before.ends_with(VALUE), before.ends_with(MORE));
    if is_second {
        text.push(' ');
        text.push_str(MORE);
    } else if is_later {
        text.pop();
    }
    is_second || is_later
}

/// Whether a space stands between a text and what follows.
fn is_apart(text: &str, piece: &str) -> bool {
    let is_open = ["(", "[", ".", "::"].iter().any(|sign| text.ends_with(*sign));
    !is_open && ![",", ")", "[", "]", ".", ";", "::"].contains(&piece)
}

/// The hash FNV-1a of 64 bits (Fowler, Noll and Vo).
fn fnv_1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    use super::*;

    fn shape(text: &str) -> QueryShape {
        QueryShape::of(text, &GenericDialect {})
    }

    #[test]
    fn values_and_comments_are_left_out_and_names_stay() {
        for (text, expected) in [
            ("SELECT a FROM t WHERE b='x' AND c<>-1.5e3", "SELECT a FROM t WHERE b = ? AND c <> - ?"),
            ("SELECT t.a -- secret\nFROM \"My t\" t /* secret */", "SELECT t.a FROM \"My t\" t"),
            ("SELECT f(a, 'x') FROM t WHERE b IN (1,2, 3)", "SELECT f(a, ?) FROM t WHERE b IN (?, …)"),
            ("SELECT X'ff', N'n', $$ secret $$, $1, $name", "SELECT ?, …, $1, $name"),
            ("SELECT count ( * ), (a) FROM t WHERE(a>b)", "SELECT count(*), (a) FROM t WHERE (a > b)"),
            ("SELECT a::int[1] FROM t WHERE s LIKE '%x'", "SELECT a::int[?] FROM t WHERE s LIKE ?"),
        ] {
            let found = shape(text).text;
            assert_eq!(found, expected, "{text}");
            assert!(!found.contains("secret"));
        }
    }

    #[test]
    fn queries_of_one_shape_have_one_hash_and_others_have_another() {
        let one = shape("SELECT a FROM t WHERE b = 1");
        assert_eq!(one.hash, shape("select  a from T\nwhere b='other'").hash);
        let lists = ["1, 2", "1, 2, 3, 4"].map(|list| shape(&format!("SELECT a FROM t WHERE b IN ({list})")));
        assert_eq!(lists[0], lists[1]);
        assert_ne!(one.hash, shape("SELECT a FROM t WHERE c = 1").hash);
        // As its authors list them: of no byte, and of "a".
        assert_eq!((fnv_1a(b""), fnv_1a(b"a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
    }

    #[test]
    fn a_long_text_is_cut_between_letters_and_one_that_is_no_sql_shows_nothing() {
        let long = shape("SELECT \"äöü\" FROM t");
        assert_eq!(long.beginning(10), "SELECT \"äö…");
        assert_eq!(long.beginning(100), long.text);
        assert_eq!(shape("SELECT 'secret").text, "?");
    }
}
