//! The types that columns may have, as JDBC and ODBC describe them.

use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode};
use tonic::Status;

use crate::error::flight_status;

/// How a type is written, and how large its values are.
struct TypeLine {
    name: &'static str,
    code: XdbcDataType,
    /// Digits or letters.
    size: i32,
    sort: Sort,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Whole { unsigned: bool },
    Fraction,
    Decimal,
    Text,
    Bytes,
    Flag,
    Date,
    Time,
    Timestamp,
}

const SIGNED: Sort = Sort::Whole { unsigned: false };
const UNSIGNED: Sort = Sort::Whole { unsigned: true };

/// The types that columns of tables may have, without lists, structs and maps.
const TYPES: [TypeLine; 17] = [
    TypeLine { name: "BOOLEAN", code: XdbcDataType::XdbcBit, size: 1, sort: Sort::Flag },
    TypeLine { name: "TINYINT", code: XdbcDataType::XdbcTinyint, size: 3, sort: SIGNED },
    TypeLine { name: "TINYINT UNSIGNED", code: XdbcDataType::XdbcTinyint, size: 3, sort: UNSIGNED },
    TypeLine { name: "BIGINT", code: XdbcDataType::XdbcBigint, size: 19, sort: SIGNED },
    TypeLine { name: "BIGINT UNSIGNED", code: XdbcDataType::XdbcBigint, size: 20, sort: UNSIGNED },
    TypeLine { name: "BYTEA", code: XdbcDataType::XdbcVarbinary, size: i32::MAX, sort: Sort::Bytes },
    TypeLine { name: "DECIMAL", code: XdbcDataType::XdbcDecimal, size: 76, sort: Sort::Decimal },
    TypeLine { name: "INTEGER", code: XdbcDataType::XdbcInteger, size: 10, sort: SIGNED },
    TypeLine { name: "INTEGER UNSIGNED", code: XdbcDataType::XdbcInteger, size: 10, sort: UNSIGNED },
    TypeLine { name: "SMALLINT", code: XdbcDataType::XdbcSmallint, size: 5, sort: SIGNED },
    TypeLine { name: "SMALLINT UNSIGNED", code: XdbcDataType::XdbcSmallint, size: 5, sort: UNSIGNED },
    TypeLine { name: "REAL", code: XdbcDataType::XdbcReal, size: 7, sort: Sort::Fraction },
    TypeLine { name: "DOUBLE", code: XdbcDataType::XdbcDouble, size: 15, sort: Sort::Fraction },
    TypeLine { name: "VARCHAR", code: XdbcDataType::XdbcVarchar, size: i32::MAX, sort: Sort::Text },
    TypeLine { name: "DATE", code: XdbcDataType::XdbcDate, size: 10, sort: Sort::Date },
    TypeLine { name: "TIME", code: XdbcDataType::XdbcTime, size: 18, sort: Sort::Time },
    TypeLine { name: "TIMESTAMP", code: XdbcDataType::XdbcTimestamp, size: 29, sort: Sort::Timestamp },
];

/// The types of the server.
pub(crate) fn type_info() -> Result<XdbcTypeInfoData, Status> {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for line in TYPES {
        types.append(described(&line));
    }
    types.build().map_err(flight_status)
}

fn described(line: &TypeLine) -> XdbcTypeInfo {
    let (prefix, subcode) = match line.sort {
        Sort::Date => (Some("DATE '"), Some(XdbcDatetimeSubcode::XdbcSubcodeYear)),
        Sort::Time => (Some("TIME '"), Some(XdbcDatetimeSubcode::XdbcSubcodeTime)),
        Sort::Timestamp => (Some("TIMESTAMP '"), Some(XdbcDatetimeSubcode::XdbcSubcodeTimestamp)),
        Sort::Text => (Some("'"), None),
        Sort::Bytes => (Some("X'"), None),
        _ => (None, None),
    };
    let is_number = matches!(line.sort, Sort::Whole { .. } | Sort::Fraction | Sort::Decimal);
    let scale = match line.sort {
        Sort::Decimal => Some(76),
        Sort::Whole { .. } => Some(0),
        _ => None,
    };
    XdbcTypeInfo {
        type_name: line.name.to_owned(),
        data_type: line.code,
        column_size: Some(line.size),
        literal_prefix: prefix.map(str::to_owned),
        literal_suffix: prefix.map(|_| "'".to_owned()),
        create_params: (line.sort == Sort::Decimal).then(|| vec!["precision".to_owned(), "scale".to_owned()]),
        nullable: Nullable::NullabilityNullable,
        case_sensitive: line.sort == Sort::Text,
        searchable: if line.sort == Sort::Text { Searchable::Full } else { Searchable::Basic },
        unsigned_attribute: is_number.then_some(line.sort == UNSIGNED),
        fixed_prec_scale: false,
        auto_increment: is_number.then_some(false),
        local_type_name: Some(line.name.to_owned()),
        minimum_scale: scale.map(|_| 0),
        maximum_scale: scale,
        // All that a subcode tells apart is one type of SQL.
        sql_data_type: if subcode.is_some() { XdbcDataType::XdbcDatetime } else { line.code },
        datetime_subcode: subcode,
        num_prec_radix: is_number.then_some(10),
        interval_precision: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_are_one_type_of_sql_and_their_subcodes_tell_them_apart() {
        let described: Vec<XdbcTypeInfo> = TYPES.iter().map(described).collect();
        let is_datetime = |info: &&XdbcTypeInfo| info.sql_data_type == XdbcDataType::XdbcDatetime;
        let names: Vec<&str> = described.iter().filter(is_datetime).map(|info| info.type_name.as_str()).collect();
        assert_eq!(names, ["DATE", "TIME", "TIMESTAMP"]);
        assert!(described.iter().all(|info| info.datetime_subcode.is_some() == is_datetime(&info)));
    }
}
