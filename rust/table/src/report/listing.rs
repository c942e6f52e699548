//! Lists of reports as rows: the columns that shell and SQL show, in their order. Spark shows the same.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMillisecondArray, UInt64Array};
use arrow::error::Result;

use crate::report::table::{IndexInfo, VersionInfo};

/// Indexes, each in a row.
///
/// # Errors
/// None, as the columns have as many rows each.
pub fn index_rows(indexes: &[IndexInfo]) -> Result<RecordBatch> {
    let text =
        |of: fn(&IndexInfo) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(indexes.iter().map(of))) };
    let number =
        |of: fn(&IndexInfo) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(indexes.iter().map(of))) };
    let coverage = Float64Array::from_iter_values(indexes.iter().map(|index| index.coverage));
    let predicted: UInt64Array = indexes.iter().map(|index| index.predicted_bytes).collect();
    RecordBatch::try_from_iter([
        ("name", text(|index| index.name.as_str())),
        ("kind", text(|index| index.kind.as_str())),
        ("encoding", text(|index| index.encoding.as_str())),
        ("chosen_by", text(|index| index.chosen_by.name())),
        ("column", text(|index| index.column.as_str())),
        ("data_type", text(|index| index.data_type.as_str())),
        ("files_covered", number(|index| index.files_covered)),
        ("files_total", number(|index| index.files_total)),
        ("coverage", Arc::new(coverage)),
        ("rows", number(|index| index.rows)),
        ("bytes", number(|index| index.bytes)),
        ("predicted_bytes", Arc::new(predicted)),
    ])
}

/// Versions, each in a row.
///
/// # Errors
/// As [`index_rows`].
pub fn version_rows(versions: &[VersionInfo]) -> Result<RecordBatch> {
    let number = |of: fn(&VersionInfo) -> Option<u64>| -> ArrayRef {
        Arc::new(versions.iter().map(of).collect::<UInt64Array>())
    };
    let times: TimestampMillisecondArray = versions.iter().map(|version| version.time_ms).collect();
    let operations = StringArray::from_iter_values(versions.iter().map(|version| version.operation.to_string()));
    let columns: [(&str, ArrayRef); 6] = [
        ("version", number(|version| Some(version.version))),
        ("time", Arc::new(times.with_timezone_utc())),
        ("operation", Arc::new(operations)),
        ("files_added", number(|version| Some(version.files_added))),
        ("files_removed", number(|version| Some(version.files_removed))),
        ("rows", number(|version| version.rows)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
}
