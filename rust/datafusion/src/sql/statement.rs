//! The one statement parser that stands in front of DataFusion's.
//!
//! DataFusion plans `CREATE INDEX` without its options, has no plan for `DROP INDEX` and does not
//! know `SHOW INDEXES`. These three are taken here, from the same token stream; every other
//! statement goes to DataFusion's own parser unchanged:
//!
//! ```text
//! CREATE INDEX [IF NOT EXISTS] [name] ON table [USING kind] (column [, …]) [INCLUDE (column [, …])] [WITH (key = value [, …])]
//! DROP INDEX [IF EXISTS] name ON table
//! SHOW INDEXES FROM table
//! ```
//!
//! So is the version that a table is read at (`crate::sql::versions`), and so are parameters without a number (`?`).
//!
//! A field of a struct is written as in a query: `place.city` or `place['city']`.
//!
//! Identifiers are folded and quoted as in the rest of DataFusion's SQL.

use std::collections::BTreeMap;

use datafusion::common::{TableReference, plan_datafusion_err};
use datafusion::config::{ConfigOptions, SqlParserOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement as EngineStatement};
use datafusion::sql::planner::{IdentNormalizer, object_name_to_table_reference};
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use datafusion::sql::sqlparser::dialect::{Dialect, dialect_from_str};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer, Word};
use lakemark_format::column;
use lakemark_table::{IndexOption, column_list};

use crate::sql::versions::{NameRules, VersionedTokens, misplaced, resolve_version_names, with_versioned_names};

/// What is said of statements that begin or end a transaction.
pub const NO_TRANSACTIONS: &str = "transactions of several statements are not supported: each statement is made as a whole or not at all, \
     and is durable when it ends; leave the connection in auto-commit";

/// A statement of ours, or one that DataFusion runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `CREATE INDEX`.
    CreateIndex(CreateIndex),
    /// `DROP INDEX`.
    DropIndex {
        /// The index's name.
        name: String,
        /// The table that it belongs to.
        table: TableReference,
        /// No error if it does not exist.
        if_exists: bool,
    },
    /// `SHOW INDEXES`.
    ShowIndexes {
        /// The table whose indexes are listed.
        table: TableReference,
    },
    /// Everything else.
    Engine(Box<EngineStatement>),
}

/// What `CREATE INDEX` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateIndex {
    /// The index's name; the table makes one up if it is left out.
    pub name: Option<String>,
    /// The table to index.
    pub table: TableReference,
    /// Columns, in order; fields of structs under their whole names, see [`lakemark_format::column`].
    pub columns: Vec<String>,
    /// Index kind, `auto` if it is left out.
    pub kind: String,
    /// Options of `WITH`, keys in lower case, and as `include` what `INCLUDE` says.
    pub options: BTreeMap<String, String>,
    /// No error if an index of that name exists.
    pub if_not_exists: bool,
}

/// Whether a statement begins or ends a transaction, or a part of one.
pub(crate) fn is_of_transaction(statement: &EngineStatement) -> bool {
    let EngineStatement::Statement(statement) = statement else { return false };
    matches!(
        **statement,
        SqlStatement::StartTransaction { .. }
            | SqlStatement::Commit { .. }
            | SqlStatement::Rollback { .. }
            | SqlStatement::Savepoint { .. }
            | SqlStatement::ReleaseSavepoint { .. }
    )
}

/// Parses any number of statements, separated by semicolons.
pub fn parse(text: &str, options: &ConfigOptions) -> Result<Vec<Statement>> {
    let time_zone = options.execution.time_zone.as_deref().unwrap_or("+00:00");
    let options = &options.sql_parser;
    let dialect = dialect(options)?;
    let fold = options.enable_ident_normalization;
    let mut tokens =
        Tokenizer::new(dialect.as_ref(), text).tokenize_with_location().map_err(|error| sql_error(error.into()))?;
    number_parameters(&mut tokens)?;
    let VersionedTokens { tokens, made } = with_versioned_names(tokens, NameRules { fold, time_zone })?;
    let inner = DFParserBuilder::new(tokens)
        .with_dialect(dialect.as_ref())
        .with_recursion_limit(options.recursion_limit.get())
        .build()?;
    let mut parser = StatementParser { inner, fold };
    let mut statements = Vec::new();
    loop {
        let mut separated = statements.is_empty();
        while parser.inner.parser.consume_token(&Token::SemiColon) {
            separated = true;
        }
        if parser.peek_is(0, &Token::EOF) {
            return Ok(statements);
        }
        if !separated {
            return parser.expected("end of statement");
        }
        let start = parser.inner.parser.index();
        let mut statement = parser.statement()?;
        let end = parser.inner.parser.index();
        let here = made.iter().filter(|name| (start..end).contains(&name.place));
        let versions: Vec<Span> = here.map(|name| name.span).collect();
        match &mut statement {
            Statement::Engine(statement) => resolve_version_names(statement, versions)?,
            _ if !versions.is_empty() => return Err(misplaced()),
            _ => {}
        }
        statements.push(statement);
    }
}

/// Gives the parameters that are written `?` their numbers within a statement. The planner knows `$1` and `$name` alone.
fn number_parameters(tokens: &mut [TokenWithSpan]) -> Result<()> {
    for statement in tokens.split_mut(|token| token.token == Token::SemiColon) {
        let mut met = 0;
        let mut others = false;
        for token in statement {
            let Token::Placeholder(name) = &mut token.token else { continue };
            if name == "?" {
                met += 1;
                *name = format!("${met}");
            } else {
                others = true;
            }
        }
        if met > 0 && others {
            return Err(plan_datafusion_err!(
                "write all parameters of a statement as ?, or all of them as $1 or $name"
            ));
        }
    }
    Ok(())
}

/// Parses exactly one statement.
pub fn parse_one(text: &str, options: &ConfigOptions) -> Result<Statement> {
    let mut statements = parse(text, options)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        (None, _) => Err(plan_datafusion_err!("the text holds no SQL statement")),
        (Some(_), false) => Err(plan_datafusion_err!("one statement at a time: the text holds several")),
    }
}

/// The dialect that the session's options name.
pub(crate) fn dialect(options: &SqlParserOptions) -> Result<Box<dyn Dialect>> {
    dialect_from_str(options.dialect).ok_or_else(|| plan_datafusion_err!("unknown SQL dialect {}", options.dialect))
}

struct StatementParser<'a> {
    inner: DFParser<'a>,
    fold: bool,
}

impl StatementParser<'_> {
    fn statement(&mut self) -> Result<Statement> {
        if self.word_at(0, "CREATE") && self.word_at(1, "UNIQUE") && self.word_at(2, "INDEX") {
            return Err(plan_datafusion_err!("UNIQUE indexes are not supported; use CREATE INDEX"));
        }
        if self.word_at(0, "CREATE") && self.word_at(1, "INDEX") {
            self.skip(2);
            return self.create_index();
        }
        if self.word_at(0, "DROP") && self.word_at(1, "INDEX") {
            self.skip(2);
            return self.drop_index();
        }
        if self.word_at(0, "SHOW") && (self.word_at(1, "INDEXES") || self.word_at(1, "INDEX")) {
            self.skip(2);
            if !self.take("FROM") && !self.take("IN") {
                return self.expected("FROM and a table's name after SHOW INDEXES");
            }
            let table = self.table()?;
            self.end()?;
            return Ok(Statement::ShowIndexes { table });
        }
        Ok(Statement::Engine(Box::new(self.inner.parse_statement()?)))
    }

    fn create_index(&mut self) -> Result<Statement> {
        let if_not_exists = self.inner.parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = if self.word_at(0, "ON") { None } else { Some(self.identifier()?) };
        if name.is_none() && if_not_exists {
            return self.expected("a name after IF NOT EXISTS");
        }
        self.require("ON")?;
        let table = self.table()?;
        let kind = if self.take("USING") { self.identifier()?.to_ascii_lowercase() } else { "auto".to_owned() };
        let columns = self.columns()?;
        let included = if self.take("INCLUDE") { Some(self.columns()?) } else { None };
        let mut options = if self.take("WITH") { self.options()? } else { BTreeMap::new() };
        if let Some(included) = included {
            let text = column_list(included.iter().map(String::as_str));
            if options.insert(IndexOption::Include.name().to_owned(), text).is_some() {
                return Err(plan_datafusion_err!("columns to include are given twice: in INCLUDE and in WITH"));
            }
        }
        self.end()?;
        Ok(Statement::CreateIndex(CreateIndex { name, table, columns, kind, options, if_not_exists }))
    }

    fn drop_index(&mut self) -> Result<Statement> {
        let if_exists = self.inner.parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = self.identifier()?;
        if !self.word_at(0, "ON") {
            return self.expected("ON and the table's name (DROP INDEX name ON table)");
        }
        self.skip(1);
        let table = self.table()?;
        self.end()?;
        Ok(Statement::DropIndex { name, table, if_exists })
    }

    fn columns(&mut self) -> Result<Vec<String>> {
        if !self.inner.parser.consume_token(&Token::LParen) {
            return self.expected("a list of columns in parentheses");
        }
        let mut columns = vec![self.column()?];
        while self.inner.parser.consume_token(&Token::Comma) {
            columns.push(self.column()?);
        }
        if !self.inner.parser.consume_token(&Token::RParen) {
            return self.expected("',' or ')' in the list of columns");
        }
        Ok(columns)
    }

    /// A column, or the way to a field: `a.b` or `a['b']`.
    fn column(&mut self) -> Result<String> {
        let mut names = vec![self.identifier()?];
        loop {
            if self.inner.parser.consume_token(&Token::Period) {
                names.push(self.identifier()?);
            } else if self.inner.parser.consume_token(&Token::LBracket) {
                let Token::SingleQuotedString(name) = self.inner.parser.peek_token().token else {
                    return self.expected("the name of a field in single quotes");
                };
                self.skip(1);
                names.push(name);
                if !self.inner.parser.consume_token(&Token::RBracket) {
                    return self.expected("']' after the name of a field");
                }
            } else {
                return Ok(column::join(names.iter().map(String::as_str)));
            }
        }
    }

    fn options(&mut self) -> Result<BTreeMap<String, String>> {
        if !self.inner.parser.consume_token(&Token::LParen) {
            return self.expected("options in parentheses after WITH");
        }
        let mut options = BTreeMap::new();
        loop {
            let key = self.identifier()?.to_ascii_lowercase();
            if !self.inner.parser.consume_token(&Token::Eq) {
                return self.expected("'=' after the option's name");
            }
            let value = self.option_value()?;
            if options.insert(key.clone(), value).is_some() {
                return Err(plan_datafusion_err!("option {key:?} is given twice"));
            }
            if self.inner.parser.consume_token(&Token::RParen) {
                return Ok(options);
            }
            if !self.inner.parser.consume_token(&Token::Comma) {
                return self.expected("',' or ')' after an option");
            }
        }
    }

    fn option_value(&mut self) -> Result<String> {
        let value = match self.inner.parser.peek_token().token {
            Token::SingleQuotedString(text) | Token::Number(text, _) => text,
            Token::Word(Word { value, quote_style: None, .. }) => value,
            _ => return self.expected("an option's value (a word, a number or a 'string')"),
        };
        self.skip(1);
        Ok(value)
    }

    fn table(&mut self) -> Result<TableReference> {
        let name = self.inner.parser.parse_object_name(false).map_err(sql_error)?;
        object_name_to_table_reference(name, self.fold)
    }

    fn identifier(&mut self) -> Result<String> {
        let identifier = self.inner.parser.parse_identifier().map_err(sql_error)?;
        Ok(IdentNormalizer::new(self.fold).normalize(identifier))
    }

    /// A statement ends at a semicolon or with the text.
    fn end(&mut self) -> Result<()> {
        if self.peek_is(0, &Token::SemiColon) || self.peek_is(0, &Token::EOF) {
            return Ok(());
        }
        self.expected("end of statement")
    }

    fn require(&mut self, word: &str) -> Result<()> {
        if self.take(word) { Ok(()) } else { self.expected(word) }
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.word_at(0, word);
        if found {
            self.skip(1);
        }
        found
    }

    fn skip(&mut self, tokens: usize) {
        for _ in 0..tokens {
            self.inner.parser.next_token();
        }
    }

    fn peek_is(&self, ahead: usize, token: &Token) -> bool {
        self.inner.parser.peek_nth_token_ref(ahead).token == *token
    }

    /// Whether an unquoted word stands `ahead` tokens from here.
    fn word_at(&self, ahead: usize, word: &str) -> bool {
        match &self.inner.parser.peek_nth_token_ref(ahead).token {
            Token::Word(Word { value, quote_style: None, .. }) => value.eq_ignore_ascii_case(word),
            _ => false,
        }
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        self.inner.parser.expected_ref(what, self.inner.parser.peek_token_ref()).map_err(sql_error)
    }
}

fn sql_error(error: ParserError) -> DataFusionError {
    DataFusionError::SQL(Box::new(error), None)
}

#[cfg(test)]
#[path = "statement_tests.rs"]
mod tests;
