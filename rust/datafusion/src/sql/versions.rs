//! Older versions of tables in SQL, as Spark and Delta write them:
//!
//! ```text
//! FROM t [FOR] {VERSION | SYSTEM_VERSION} AS OF 12 [[AS] alias]
//! FROM t [FOR] {TIMESTAMP | SYSTEM_TIME} AS OF '2026-06-01 12:00:00' [[AS] alias]
//! ```
//!
//! Most of the parser's dialects do not know this, and the planner takes no notice of it where one does, which would answer from
//! the newest rows. So the words become part of the table's name before they are parsed; the schema that pins tables
//! ([`crate::sql::schema`]) finds the version by that name, and plans show it:
//!
//! ```text
//! tokens   FROM t VERSION AS OF 12 x      become    FROM "t VERSION AS OF 12" x
//! tree     FROM "t VERSION AS OF 12"      becomes   FROM "t VERSION AS OF 12" AS "t"
//! ```
//!
//! A name that was made and is not read as the table of a `FROM` (or of a `COPY`) is an error: it may have become an alias.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::string_to_datetime;
use chrono::{DateTime, SecondsFormat, Utc};
use datafusion::common::{DataFusionError, plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::planner::IdentNormalizer;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, TableAlias, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};
use lakemark_table::{Result as TableResult, Table};

const VERSION: &str = " VERSION AS OF ";
const TIMESTAMP: &str = " TIMESTAMP AS OF ";
/// Quoted names are taken as they are, in every dialect.
const QUOTE: char = '"';
/// Words that no table is called without quotes.
const RESERVED: [&str; 4] = ["FROM", "JOIN", "SELECT", "FOR"];

/// Tokens in which the names of tables have the versions that are read.
pub(crate) struct VersionedTokens {
    pub tokens: Vec<TokenWithSpan>,
    /// The names that were made.
    pub made: Vec<MadeName>,
}

/// Where a name stands that was made.
#[derive(Clone, Copy)]
pub(crate) struct MadeName {
    /// Among the tokens.
    pub place: usize,
    /// In the text.
    pub span: Span,
}

/// How names and timestamps are meant.
#[derive(Clone, Copy)]
pub(crate) struct NameRules<'a> {
    /// Whether names without quotes are folded to lower case.
    pub fold: bool,
    /// The zone of timestamps that name none.
    pub time_zone: &'a str,
}

/// Puts the versions at which tables are read into the tables' names.
pub(crate) fn with_versioned_names(tokens: Vec<TokenWithSpan>, rules: NameRules<'_>) -> Result<VersionedTokens> {
    let mut named = VersionedTokens { tokens: Vec::with_capacity(tokens.len()), made: Vec::new() };
    let mut rest = tokens.as_slice();
    while let Some((token, after)) = rest.split_first() {
        let Some(Clause { text, length }) = clause(rest, rules.time_zone)? else {
            named.tokens.push(token.clone());
            rest = after;
            continue;
        };
        let Some(LastName { place, name }) = last_name(&named.tokens, rules.fold) else { return Err(misplaced()) };
        if let Some(table) = named.tokens.get_mut(place) {
            table.token = Token::make_word(&format!("{name}{text}"), Some(QUOTE));
            named.made.push(MadeName { place, span: table.span });
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(named)
}

/// The error of a version that belongs to no table that is read.
pub(crate) fn misplaced() -> DataFusionError {
    plan_datafusion_err!(
        "VERSION AS OF and TIMESTAMP AS OF stand right behind the name of a table that is read, before its alias: FROM t VERSION AS OF 12 AS x"
    )
}

/// The last name among some tokens.
struct LastName {
    /// Where it stands.
    place: usize,
    /// As the session folds it.
    name: String,
}

/// The name right before, if there is nothing but space in between.
fn last_name(tokens: &[TokenWithSpan], fold: bool) -> Option<LastName> {
    let (place, last) = tokens.iter().enumerate().rev().find(|(_, token)| !is_space(token))?;
    let name = match &last.token {
        Token::Word(word) if word.quote_style.is_none() && is_any(&word.value, &RESERVED) => return None,
        Token::Word(word) => IdentNormalizer::new(fold).normalize(word.clone().into_ident(last.span)),
        // In some dialects these are names where a name is expected.
        Token::DoubleQuotedString(text) => text.clone(),
        _ => return None,
    };
    Some(LastName { place, name })
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

fn is_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// What tokens say of a version.
struct Clause {
    /// As part of a name.
    text: String,
    /// How many tokens say it.
    length: usize,
}

/// What the first of these tokens say of a version, if they do.
fn clause(tokens: &[TokenWithSpan], time_zone: &str) -> Result<Option<Clause>> {
    let mut solid = tokens.iter().enumerate().filter(|(_, token)| !is_space(token)).peekable();
    let is = |token: Option<&(usize, &TokenWithSpan)>, words: &[&str]| match token.map(|(_, token)| &token.token) {
        Some(Token::Word(Word { value, quote_style: None, .. })) => is_any(value, words),
        _ => false,
    };
    if tokens.first().is_none_or(is_space) {
        return Ok(None);
    }
    if is(solid.peek(), &["FOR"]) {
        solid.next();
    }
    let first = solid.next();
    let is_version = is(first.as_ref(), &["VERSION", "SYSTEM_VERSION"]);
    if !is_version && !is(first.as_ref(), &["TIMESTAMP", "SYSTEM_TIME"]) {
        return Ok(None);
    }
    if !is(solid.next().as_ref(), &["AS"]) || !is(solid.next().as_ref(), &["OF"]) {
        return Ok(None);
    }
    if !is_version && is(solid.peek(), &["TIMESTAMP"]) {
        solid.next();
    }
    let (place, text) = match solid.next() {
        Some((place, TokenWithSpan { token: Token::SingleQuotedString(text), .. })) => (place, text),
        Some((place, TokenWithSpan { token: Token::Number(text, _), .. })) if is_version => (place, text),
        // Anything else is no literal: the parser says what is wrong with it, or `resolve_version_names` does.
        _ => return Ok(None),
    };
    let text = match is_version {
        true => format!("{VERSION}{}", number(text)?),
        // Some dialects split quoted names at dots.
        false => {
            let timestamp = timestamp(text, time_zone)?.to_rfc3339_opts(SecondsFormat::AutoSi, true);
            format!("{TIMESTAMP}{}", timestamp.replace('.', ","))
        }
    };
    Ok(Some(Clause { text, length: place + 1 }))
}

fn number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        plan_datafusion_err!(
            "VERSION AS OF {text:?}: give the number of a version, as in VERSION AS OF 12; `history` lists them"
        )
    })
}

fn timestamp(text: &str, time_zone: &str) -> Result<DateTime<Utc>> {
    let found = time_zone.parse::<Tz>().and_then(|zone| string_to_datetime(&zone, text));
    match found {
        Ok(timestamp) => Ok(timestamp.to_utc()),
        Err(error) => plan_err!("TIMESTAMP AS OF {text:?} is no timestamp such as '2026-06-01 12:00:00': {error}"),
    }
}

/// Gives tables at a version the names that they have without one. Sees to it that all of the names that were `made` are tables that are
/// read.
pub(crate) fn resolve_version_names(statement: &mut Statement, made: Vec<Span>) -> Result<()> {
    let mut aliases = VersionAliases { made };
    if let Some(copied) = copied(statement) {
        aliases.meet(copied);
    }
    match visit(statement, &mut aliases) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) if aliases.made.is_empty() => Ok(()),
        ControlFlow::Continue(()) => Err(misplaced()),
    }
}

/// The table that a statement copies as a whole.
fn copied(statement: &Statement) -> Option<&ObjectName> {
    match statement {
        Statement::Explain(explain) => copied(&explain.statement),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Relation(name) => Some(name),
            CopyToSource::Query(_) => None,
        },
        _ => None,
    }
}

/// Visits all that the parser's own statements have in common with the engine's.
pub(crate) fn visit<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(statement) => statement.visit(visitor),
        Statement::Explain(explain) => visit(&mut explain.statement, visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
            CopyToSource::Query(query) => query.visit(visitor),
        },
        _ => ControlFlow::Continue(()),
    }
}

struct VersionAliases {
    /// Where names stand that were made and have not been met as tables yet.
    made: Vec<Span>,
}

impl VersionAliases {
    /// The name that a table has without its version.
    fn meet<'a>(&mut self, name: &'a ObjectName) -> Option<&'a str> {
        let Some(ObjectNamePart::Identifier(name)) = name.0.last() else { return None };
        let place = self.made.iter().position(|span| *span == name.span)?;
        self.made.swap_remove(place);
        Some(VersionedName::of(&name.value)?.table)
    }
}

impl VisitorMut for VersionAliases {
    type Break = DataFusionError;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<DataFusionError> {
        let TableFactor::Table { name, alias, version, args, .. } = factor else { return ControlFlow::Continue(()) };
        if let Some(version) = version {
            return ControlFlow::Break(plan_datafusion_err!(
                "{name} {version}: give a number, as in VERSION AS OF 12, or a timestamp as text, as in TIMESTAMP AS OF '2026-06-01 12:00:00'"
            ));
        }
        if args.is_none()
            && let Some(table) = self.meet(name)
        {
            let name = Ident::with_quote(QUOTE, table);
            alias.get_or_insert_with(|| TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
        ControlFlow::Continue(())
    }
}

/// Which version of a table is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VersionSpec {
    Version(u64),
    /// The newest that was made until then.
    Timestamp(DateTime<Utc>),
}

/// What the name of a table at a version says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VersionedName<'n> {
    /// The table's own name.
    pub table: &'n str,
    /// The version.
    pub at: VersionSpec,
}

impl<'n> VersionedName<'n> {
    /// What a name says; none if it names no version.
    pub(crate) fn of(name: &'n str) -> Option<Self> {
        if let Some((table, text)) = name.rsplit_once(VERSION) {
            return Some(Self { table, at: VersionSpec::Version(text.parse().ok()?) });
        }
        let (table, text) = name.rsplit_once(TIMESTAMP)?;
        let timestamp = DateTime::parse_from_rfc3339(&text.replace(',', ".")).ok()?;
        Some(Self { table, at: VersionSpec::Timestamp(timestamp.to_utc()) })
    }
}

impl VersionSpec {
    /// The table as it was.
    pub(crate) async fn of_table(&self, table: &Table) -> TableResult<Arc<Table>> {
        let version = match self {
            Self::Version(version) => *version,
            Self::Timestamp(timestamp) => table.version_at(timestamp.timestamp_micros()).await?,
        };
        Ok(table.at_version(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParserBuilder;
    use datafusion::sql::sqlparser::dialect::dialect_from_str;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    /// The statement as it is planned.
    fn planned(sql: &str, dialect: &str, time_zone: &str) -> Result<String> {
        let dialect = dialect_from_str(dialect).unwrap();
        let tokens = Tokenizer::new(dialect.as_ref(), sql).tokenize_with_location().unwrap();
        let named = with_versioned_names(tokens, NameRules { fold: true, time_zone })?;
        let mut parser = DFParserBuilder::new(named.tokens).with_dialect(dialect.as_ref()).build()?;
        let mut statement = parser.parse_statement()?;
        resolve_version_names(&mut statement, named.made.iter().map(|made| made.span).collect())?;
        Ok(statement.to_string())
    }

    #[test]
    fn versions_become_part_of_names_and_names_stay_what_they_are_called() {
        for dialect in ["generic", "databricks", "postgresql", "mysql", "snowflake"] {
            for (sql, expected) in [
                ("SELECT t.a FROM T VERSION AS OF 12", r#"SELECT t.a FROM "t VERSION AS OF 12" AS "t""#),
                ("SELECT 1 FROM s.t\n version  as /* so */ of 3 x", r#"SELECT 1 FROM s."t VERSION AS OF 3" x"#),
                (
                    "SELECT 1 FROM t FOR SYSTEM_VERSION AS OF '7' JOIN t ON true",
                    r#"SELECT 1 FROM "t VERSION AS OF 7" AS "t" JOIN t ON true"#,
                ),
                (
                    "SELECT 1 FROM t TIMESTAMP AS OF TIMESTAMP '2026-06-01' AS x, (SELECT 1 FROM u VERSION AS OF 0)",
                    r#"SELECT 1 FROM "t TIMESTAMP AS OF 2026-05-31T22:00:00Z" AS x, (SELECT 1 FROM "u VERSION AS OF 0" AS "u")"#,
                ),
                (
                    "SELECT 1 WHERE EXISTS (SELECT 1 FROM t FOR SYSTEM_TIME AS OF '2026-06-01T12:00:00.5-01:00')",
                    r#"SELECT 1 WHERE EXISTS (SELECT 1 FROM "t TIMESTAMP AS OF 2026-06-01T13:00:00,500Z" AS "t")"#,
                ),
            ] {
                // Dialects print some words in their own way.
                let said = planned(sql, dialect, "+02:00").unwrap().replace(" AS x", " x");
                assert_eq!(said, expected.replace(" AS x", " x"), "{dialect}: {sql}");
            }
        }
        for dialect in ["databricks", "bigquery", "mysql"] {
            let quoted = planned(r#"SELECT 1 FROM "T" FOR VERSION AS OF 1"#, dialect, "+00:00").unwrap();
            assert_eq!(quoted, r#"SELECT 1 FROM "T VERSION AS OF 1" AS "T""#, "{dialect}");
        }
        let quoted = planned(r#"SELECT 1 FROM "T" VERSION AS OF 1"#, "generic", "+00:00").unwrap();
        assert_eq!(quoted, r#"SELECT 1 FROM "T VERSION AS OF 1" AS "T""#);
    }

    #[test]
    fn everything_but_a_version_stays_as_it_was() {
        for sql in [
            "SELECT timestamp AS of FROM t",
            "SELECT version AS v, 'VERSION AS OF 3' FROM version",
            "SELECT 1 FROM t AS \"version as of 3\"",
            "SELECT a::TIMESTAMP AS of FROM t",
            "SELECT CAST(a AS TIMESTAMP) AS of FROM t",
            "SELECT 1 FROM t AS version",
        ] {
            assert_eq!(planned(sql, "generic", "+00:00").unwrap(), sql);
        }
    }

    #[test]
    fn wrong_versions_say_what_to_do() {
        let error = |sql: &str, dialect: &str| planned(sql, dialect, "+00:00").unwrap_err().to_string();
        assert!(error("SELECT 1 FROM t VERSION AS OF 'newest'", "generic").contains("give the number of a version"));
        assert!(error("SELECT 1 FROM t VERSION AS OF 1.5", "generic").contains("give the number of a version"));
        assert!(error("SELECT 1 FROM t TIMESTAMP AS OF 'noon'", "generic").contains("no timestamp such as"));
        // Nothing else is taken for the name of a table: an alias would be one of the newest rows.
        for sql in [
            "SELECT 1 FROM t x VERSION AS OF 3",
            "SELECT 1 FROM t AS x FOR SYSTEM_TIME AS OF '2026-06-01'",
            "SELECT 1 FROM (SELECT 1 FROM t) FOR VERSION AS OF 3",
            "SELECT 1 FROM (SELECT 1 FROM t) x VERSION AS OF 3",
            "SELECT 1 FROM f(1) VERSION AS OF 3",
            "DELETE FROM t x VERSION AS OF 3 WHERE id = 1",
            "UPDATE t x VERSION AS OF 3 SET a = 1",
            "MERGE INTO t x VERSION AS OF 3 USING u ON true WHEN MATCHED THEN DELETE",
            "INSERT INTO t VERSION AS OF 3 VALUES (1)",
            "CREATE TABLE t VERSION AS OF 3 AS SELECT 1",
            "CREATE VIEW t VERSION AS OF 3 AS SELECT 1",
            "DROP TABLE t VERSION AS OF 3",
            "SHOW COLUMNS FROM t VERSION AS OF 3",
            "WITH w VERSION AS OF 3 AS (SELECT 1) SELECT 1",
            "SELECT a VERSION AS OF 3 FROM t",
            "SELECT 1 FROM \"t VERSION AS OF 1\" a, t x VERSION AS OF 2",
            "SELECT 1 FROM f VERSION AS OF 3 (1)",
        ] {
            for dialect in ["generic", "databricks", "bigquery", "mysql", "postgresql"] {
                assert!(planned(sql, dialect, "+00:00").is_err(), "{dialect}: {sql}");
            }
        }
        assert!(error("SELECT 1 FROM t x VERSION AS OF 3", "generic").contains("before its alias"));
        // A dialect that takes any expression would be answered from the newest rows.
        for sql in ["SELECT 1 FROM t TIMESTAMP AS OF now()", "SELECT 1 FROM t FOR SYSTEM_TIME AS OF now()"] {
            assert!(error(sql, "databricks").contains("or a timestamp as text"), "{sql}");
        }
    }

    #[test]
    fn names_tell_the_version() {
        let named = |table, at| Some(VersionedName { table, at });
        assert_eq!(VersionedName::of("t VERSION AS OF 12"), named("t", VersionSpec::Version(12)));
        let timestamp = VersionSpec::Timestamp(DateTime::from_timestamp_millis(1500).unwrap());
        assert_eq!(VersionedName::of("a b TIMESTAMP AS OF 1970-01-01T00:00:01,5Z"), named("a b", timestamp));
        assert_eq!((VersionedName::of("t"), VersionedName::of("t VERSION AS OF x")), (None, None));
    }
}
