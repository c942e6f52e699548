//! What a statement has too much of to be parsed or planned: chains of operators, as `a = 1 OR a = 2 OR …`, `EXPLAIN` of `EXPLAIN`, and
//! relations.
//!
//! A chain becomes a tree that is as deep as the chain is long. Some of what the engine does with a tree goes down by one call a
//! level. A chain that fills a statement of a megabyte would end the process, and with it the statements of all other clients.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// The most operators of a chain.
const MOST_CHAINED: usize = 4000;

/// The most words `EXPLAIN` of a statement. The parser goes down by one call for each.
const MOST_EXPLAINED: usize = 16;

/// The most relations of a statement. The time to plan grows with their square, and faster.
const MOST_RELATIONS: usize = 300;

/// What is between two brackets, or around all of them.
#[derive(Clone, Copy, Default)]
struct Level {
    /// How deep each of its elements begins.
    base: usize,
    /// How deep it is at this place.
    here: usize,
}

/// Why a statement is refused before it is parsed. What cannot be read is not: the parser refuses it.
pub(crate) fn refusal(text: &str) -> Option<String> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().ok()?;
    if longest_chain(&tokens) > MOST_CHAINED {
        return Some(format!(
            "the statement has a chain of more than {MOST_CHAINED} operators; write long lists as IN (…), or join with a table of values"
        ));
    }
    if explained(&tokens) > MOST_EXPLAINED {
        return Some(format!("the statement has more than {MOST_EXPLAINED} words EXPLAIN; one explains a statement"));
    }
    if relations(&tokens) > MOST_RELATIONS {
        return Some(format!(
            "the statement has more than {MOST_RELATIONS} relations, as tables by comma, joins and queries in brackets; join fewer at a time"
        ));
    }
    None
}

/// Commas between relations, joins, and queries in brackets.
fn relations(tokens: &[Token]) -> usize {
    let (mut around, mut is_list, mut found) = (Vec::new(), false, 0);
    // Whether a bracket was opened just now, and the two words before; what is no word is `NoKeyword`.
    let (mut is_opened, mut last, mut before) = (false, Keyword::NoKeyword, Keyword::NoKeyword);
    for token in tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))) {
        let word = if let Token::Word(word) = token { word.keyword } else { Keyword::NoKeyword };
        found += match word {
            Keyword::JOIN | Keyword::APPLY => 1,
            Keyword::SELECT | Keyword::WITH => usize::from(is_opened),
            _ => usize::from(is_list && *token == Token::Comma),
        };
        match token {
            Token::LParen => around.push(std::mem::take(&mut is_list)),
            Token::RParen => is_list = around.pop().unwrap_or_default(),
            // The operators IS [NOT] DISTINCT FROM have no relations after them.
            _ if word == Keyword::FROM => {
                is_list = last != Keyword::DISTINCT || !matches!(before, Keyword::IS | Keyword::NOT);
            }
            _ if ends_list(word) => is_list = false,
            _ => {}
        }
        is_opened = *token == Token::LParen;
        (before, last) = (last, word);
    }
    found
}

/// Whether the relations after `FROM` are over with a word.
fn ends_list(word: Keyword) -> bool {
    matches!(
        word,
        Keyword::SELECT
            | Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::ORDER
            | Keyword::WINDOW
            | Keyword::QUALIFY
            | Keyword::LIMIT
            | Keyword::RETURNING
    )
}

/// Whether a text explains a statement.
pub(crate) fn is_explained(text: &str) -> bool {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap_or_default();
    let first = tokens.iter().find(|token| !matches!(token, Token::Whitespace(_) | Token::SemiColon));
    matches!(first, Some(Token::Word(word)) if matches!(word.keyword, Keyword::EXPLAIN | Keyword::DESCRIBE | Keyword::DESC))
}

fn explained(tokens: &[Token]) -> usize {
    let is_explain = |token: &&Token| matches!(token, Token::Word(word) if word.keyword == Keyword::EXPLAIN);
    tokens.iter().filter(is_explain).count()
}

/// The operators of the longest chain; those around a bracket count for what is in it.
fn longest_chain(tokens: &[Token]) -> usize {
    let (mut around, mut level, mut longest) = (Vec::new(), Level::default(), 0);
    for token in tokens {
        match token {
            Token::LParen | Token::LBrace => {
                around.push(level);
                level.base = level.here;
            }
            // An element of a list is an operator, too.
            Token::LBracket => {
                level.here += 1;
                around.push(level);
                level.base = level.here;
            }
            Token::RParen | Token::RBrace | Token::RBracket => level = around.pop().unwrap_or_default(),
            Token::Comma | Token::SemiColon => level.here = level.base,
            // The parser has no keyword for it, and some dialects an operator.
            Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("ISNULL") => {
                level.here += 1;
            }
            Token::Word(word) => link(word.keyword, &mut level),
            Token::Whitespace(_)
            | Token::Period
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Placeholder(_) => {}
            _ => level.here += 1,
        }
        longest = longest.max(level.here);
    }
    longest
}

/// Counts a word that chains what is before it and what comes then.
fn link(word: Keyword, level: &mut Level) {
    match word {
        // What comes then has elements of its own.
        Keyword::UNION
        | Keyword::INTERSECT
        | Keyword::EXCEPT
        | Keyword::MINUS
        | Keyword::JOIN
        | Keyword::PIVOT
        | Keyword::UNPIVOT => {
            level.base += 1;
            level.here = level.base;
        }
        Keyword::AND
        | Keyword::OR
        | Keyword::XOR
        | Keyword::NOT
        | Keyword::IS
        | Keyword::IN
        | Keyword::LIKE
        | Keyword::ILIKE
        | Keyword::BETWEEN
        | Keyword::OVERLAPS
        | Keyword::SIMILAR
        | Keyword::REGEXP
        | Keyword::RLIKE
        | Keyword::MATCH
        | Keyword::MEMBER
        | Keyword::NOTNULL
        | Keyword::DIV
        | Keyword::COLLATE
        | Keyword::AT => level.here += 1,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain_of(text: &str) -> usize {
        longest_chain(&Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap())
    }

    fn says(text: &str) -> String {
        refusal(text).unwrap_or_default()
    }

    #[test]
    fn chains_are_counted_by_their_operators() {
        for (text, expected) in [
            ("SELECT 1", 0),
            ("SELECT 1 + 1 + 1, 1 + 1", 2),
            ("SELECT a AND b OR c AND NOT d", 4),
            ("VALUES (1, -2), (-3, 4), (5, -6)", 1),
            ("SELECT (1 + 1) || (1 + 1 + 1) || 1", 3),
            ("SELECT x[1][2][3]", 3),
            ("SELECT 1, 2 UNION ALL SELECT 1, 2 UNION ALL SELECT 1, 2", 2),
            ("SELECT 1, 2 MINUS SELECT 1, 2 MINUS SELECT 1, 2", 2),
            ("SELECT a OVERLAPS b SIMILAR TO c REGEXP d RLIKE e, a MATCH b", 4),
            ("SELECT a MEMBER OF (b) NOTNULL ISNULL isnull DIV 2", 5),
            ("SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2)) UNPIVOT (a FOR b IN (c, d))", 3),
            ("SELECT 'a + b + c', \"a + b\", \"isnull\"", 0),
        ] {
            assert_eq!(chain_of(text), expected, "{text}");
        }
    }

    #[test]
    fn lists_may_be_as_long_as_they_are_and_chains_may_not() {
        let list = format!("SELECT * FROM t WHERE a IN ({})", vec!["-1"; 100_000].join(", "));
        assert_eq!(refusal(&list), None);
        assert_eq!(refusal("SELECT 'no end"), None);
        for link in ["+1", " OR a", "[1]", " UNION SELECT 1", " MINUS SELECT 1", "||'x'", "::int", " DIV 2"] {
            let of = |count: usize| says(&format!("SELECT a{}", link.repeat(count)));
            assert!(of(MOST_CHAINED + 1).contains("a chain of more than 4000 operators"), "{link}");
            assert_eq!(of(MOST_CHAINED), "", "{link}");
        }
    }

    #[test]
    fn statements_are_explained_so_many_times() {
        for word in ["EXPLAIN ", "explain verbose "] {
            let of = |count: usize| says(&format!("{}SELECT \"explain\"", word.repeat(count)));
            assert_eq!(of(MOST_EXPLAINED), "");
            for count in [MOST_EXPLAINED + 1, 100_000] {
                assert!(of(count).contains("more than 16 words EXPLAIN"), "{count}");
            }
        }
    }

    #[test]
    fn a_text_is_explained_by_its_first_word() {
        for text in ["EXPLAIN ANALYZE DELETE FROM t", " -- a\n explain SELECT 1", ";/* a */ DESC ANALYZE SELECT 1"] {
            assert!(is_explained(text), "{text}");
        }
        for text in ["DELETE FROM explain", "\"explain\"", "", "'"] {
            assert!(!is_explained(text), "{text}");
        }
    }

    #[test]
    fn relations_are_commas_joins_and_queries_in_brackets() {
        for (text, expected) in [
            ("SELECT a, b, c FROM t WHERE a IN (1, 2, 3) ORDER BY a, b", 0),
            ("SELECT a FROM t, u, v GROUP BY a, b", 2),
            ("SELECT a FROM t JOIN u USING (a, b) CROSS JOIN v, w", 3),
            ("SELECT a FROM f(1, 2, 3) AS x (a, b), g(4)", 1),
            ("WITH c AS (SELECT 1), d AS (SELECT 2) SELECT (SELECT max(a) FROM c), 1 FROM d", 3),
            ("SELECT a IS DISTINCT FROM b, c, d IS NOT DISTINCT FROM e, f, extract(year FROM g), h FROM t, u", 1),
            ("SELECT DISTINCT FROM t, u", 1),
            ("SELECT 1 FROM t UNION ALL SELECT 1, 2 FROM t", 0),
            ("INSERT INTO t VALUES (1, 2), (3, 4)", 0),
        ] {
            let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap();
            assert_eq!(relations(&tokens), expected, "{text}");
        }
        for (start, link) in [("t", ", t"), ("t", " JOIN t USING (a)"), ("(SELECT 1)", " UNION ALL (SELECT 1)")] {
            let of = |count: usize| says(&format!("SELECT a FROM {start}{}", link.repeat(count)));
            assert!(of(MOST_RELATIONS + 1).contains("more than 300 relations"), "{link}");
            assert_eq!(of(MOST_RELATIONS - 1), "", "{link}");
        }
    }
}
