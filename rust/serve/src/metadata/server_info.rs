//! What the server can do, by the numbers that Flight SQL gives to it.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetSqlInfo, SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel, SqlSupportedCaseSensitivity,
    SqlSupportedElementActions, SqlSupportedGroupBy, SqlSupportedResultSetConcurrency, SqlSupportedResultSetType,
    SqlSupportedSubqueries, SqlSupportedTransaction, SqlSupportedUnions, SqlTransactionIsolationLevel,
    SupportedSqlGrammar,
};
use tonic::Status;

use crate::error::flight_status;
use crate::options::Limits;

/// The least of the three levels of SQL-92, whose names the crate keeps to itself.
const ENTRY_SQL: i32 = 0;

/// The largest number that there is, and one that there is not.
const LAST: u32 = SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported as u32;
const NONE: u32 = u32::MAX;

/// What is the same for the life of a server.
pub(crate) fn server_info(read_only: bool, limits: &Limits) -> Result<SqlInfoData, Status> {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "Lakemark");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, read_only);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerSubstraitMinVersion, "");
    info.append(SqlInfo::FlightSqlServerSubstraitMaxVersion, "");
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, false);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0_i32);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0_i32);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, false);
    info.append(SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32,
    );
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i32);
    functions(&mut info);
    grammar(&mut info);
    words(&mut info);
    limited(&mut info, limits);
    transactions(&mut info);
    results(&mut info);
    info.build().map_err(flight_status)
}

/// Functions by what they are about.
fn functions(info: &mut SqlInfoDataBuilder) {
    let none: &[&str] = &[];
    info.append(SqlInfo::SqlKeywords, none);
    let numeric: &[&str] = &["abs", "ceil", "exp", "floor", "ln", "log", "power", "round", "sqrt", "trunc"];
    info.append(SqlInfo::SqlNumericFunctions, numeric);
    let text: &[&str] = &["concat", "length", "lower", "ltrim", "replace", "rtrim", "substr", "trim", "upper"];
    info.append(SqlInfo::SqlStringFunctions, text);
    info.append(SqlInfo::SqlSystemFunctions, none);
    let time: &[&str] = &["date_part", "date_trunc", "now", "to_date", "to_timestamp"];
    info.append(SqlInfo::SqlDatetimeFunctions, time);
}

/// Words of the server.
fn words(info: &mut SqlInfoDataBuilder) {
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    info.append(SqlInfo::SqlExtraNameCharacters, "");
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlProcedureTerm, "procedure");
    info.append(SqlInfo::SqlCatalogTerm, "catalog");
    info.append(SqlInfo::SqlCatalogAtStart, true);
}

/// Limits; 0 where there is none.
fn limited(info: &mut SqlInfoDataBuilder, limits: &Limits) {
    for none in [
        SqlInfo::SqlMaxBinaryLiteralLength,
        SqlInfo::SqlMaxCharLiteralLength,
        SqlInfo::SqlMaxColumnNameLength,
        SqlInfo::SqlMaxColumnsInGroupBy,
        SqlInfo::SqlMaxColumnsInIndex,
        SqlInfo::SqlMaxColumnsInOrderBy,
        SqlInfo::SqlMaxColumnsInSelect,
        SqlInfo::SqlMaxColumnsInTable,
        SqlInfo::SqlMaxCursorNameLength,
        SqlInfo::SqlMaxIndexLength,
        SqlInfo::SqlDbSchemaNameLength,
        SqlInfo::SqlMaxProcedureNameLength,
        SqlInfo::SqlMaxCatalogNameLength,
        SqlInfo::SqlMaxRowSize,
        SqlInfo::SqlMaxStatements,
        SqlInfo::SqlMaxTableNameLength,
        SqlInfo::SqlMaxTablesInSelect,
        SqlInfo::SqlMaxUsernameLength,
    ] {
        info.append(none, 0_i64);
    }
    info.append(SqlInfo::SqlMaxRowSizeIncludesBlobs, false);
    let count = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
    info.append(SqlInfo::SqlMaxConnections, count(limits.connections));
    info.append(SqlInfo::SqlMaxStatementLength, count(limits.statement_bytes));
}

/// Each statement is a transaction, and there are no others.
fn transactions(info: &mut SqlInfoDataBuilder) {
    info.append(
        SqlInfo::SqlDefaultTransactionIsolation,
        i64::from(SqlTransactionIsolationLevel::SqlTransactionNone as i32),
    );
    info.append(SqlInfo::SqlTransactionsSupported, false);
    info.append(
        SqlInfo::SqlSupportedTransactionsIsolationLevels,
        bits([SqlTransactionIsolationLevel::SqlTransactionNone as i32]),
    );
    info.append(SqlInfo::SqlDataDefinitionCausesTransactionCommit, false);
    info.append(SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false);
    info.append(SqlInfo::SqlSavepointsSupported, false);
}

/// Results are read once, from the first row to the last.
fn results(info: &mut SqlInfoDataBuilder) {
    let read_only = bits([SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly as i32]);
    info.append(
        SqlInfo::SqlSupportedResultSetTypes,
        bits([SqlSupportedResultSetType::SqlResultSetTypeForwardOnly as i32]),
    );
    info.append(SqlInfo::SqlSupportedConcurrenciesForResultSetUnspecified, read_only);
    info.append(SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly, read_only);
    info.append(SqlInfo::SqlSupportedConcurrenciesForResultSetScrollSensitive, 0_i32);
    info.append(SqlInfo::SqlSupportedConcurrenciesForResultSetScrollInsensitive, 0_i32);
    info.append(SqlInfo::SqlBatchUpdatesSupported, true);
    info.append(SqlInfo::SqlNamedParametersSupported, true);
    info.append(SqlInfo::SqlStoredProceduresSupported, false);
    info.append(SqlInfo::SqlSelectForUpdateSupported, false);
    info.append(SqlInfo::SqlLocatorsUpdateCopy, false);
    info.append(SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported, false);
    info.append(
        SqlInfo::SqlSchemasSupportedActions,
        bits([SqlSupportedElementActions::SqlElementInIndexDefinitions as i32]),
    );
    info.append(
        SqlInfo::SqlCatalogsSupportedActions,
        bits([SqlSupportedElementActions::SqlElementInIndexDefinitions as i32]),
    );
    info.append(SqlInfo::SqlSupportedPositionedCommands, 0_i32);
}

/// A set of numbers as the bits of one.
fn bits<const N: usize>(of: [i32; N]) -> i32 {
    of.into_iter().fold(0, |bits, each| bits | 1 << each)
}

/// What of SQL is understood. Sets are bits.
fn grammar(info: &mut SqlInfoDataBuilder) {
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    info.append(SqlInfo::SqlSupportsConvert, HashMap::<i32, Vec<i32>>::new());
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsDifferentTableCorrelationNames, false);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    let groups = [SqlSupportedGroupBy::SqlGroupByUnrelated, SqlSupportedGroupBy::SqlGroupByBeyondSelect];
    info.append(SqlInfo::SqlSupportedGroupBy, bits(groups.map(|each| each as i32)));
    info.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    info.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    let grammars = [SupportedSqlGrammar::SqlMinimumGrammar, SupportedSqlGrammar::SqlCoreGrammar];
    info.append(SqlInfo::SqlSupportedGrammar, bits(grammars.map(|each| each as i32)));
    info.append(SqlInfo::SqlAnsi92SupportedLevel, bits([ENTRY_SQL]));
    info.append(SqlInfo::SqlSupportsIntegrityEnhancementFacility, false);
    let joins = [SqlOuterJoinsSupportLevel::SqlLimitedOuterJoins, SqlOuterJoinsSupportLevel::SqlFullOuterJoins];
    info.append(SqlInfo::SqlOuterJoinsSupportLevel, bits(joins.map(|each| each as i32)));
    let subqueries = [
        SqlSupportedSubqueries::SqlSubqueriesInComparisons,
        SqlSupportedSubqueries::SqlSubqueriesInExists,
        SqlSupportedSubqueries::SqlSubqueriesInIns,
    ];
    info.append(SqlInfo::SqlSupportedSubqueries, bits(subqueries.map(|each| each as i32)));
    info.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
    let unions = [SqlSupportedUnions::SqlUnion, SqlSupportedUnions::SqlUnionAll];
    info.append(SqlInfo::SqlSupportedUnions, bits(unions.map(|each| each as i32)));
}

/// The numbers that a client asks for; all of them if it names none. However often it names one, that is looked for once.
pub(crate) fn chosen(mut query: CommandGetSqlInfo, info: &SqlInfoData) -> Result<RecordBatch, Status> {
    let is_all = query.info.is_empty();
    query.info.retain(|number| *number <= LAST);
    query.info.sort_unstable();
    query.info.dedup();
    if !is_all && query.info.is_empty() {
        query.info.push(NONE);
    }
    query.into_builder(info).build().map_err(flight_status)
}
