//! What it costs this engine to read rows, for the choice between marks and a plain scan.

use std::collections::BTreeSet;

use arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::Expr;
use lakemark_table::Reading;

/// The cost of reading the projected columns (all of them if none are named), and those that only the filters need.
pub(crate) fn reading(
    schema: &Schema,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
    limit: Option<usize>,
) -> Reading {
    let wanted: BTreeSet<usize> = match projection {
        Some(columns) => columns.iter().copied().collect(),
        None => (0..schema.fields().len()).collect(),
    };
    let tested: BTreeSet<usize> =
        filters.iter().flat_map(Expr::column_refs).filter_map(|column| schema.index_of(&column.name).ok()).collect();
    let cost = |columns: &mut dyn Iterator<Item = usize>| -> f64 {
        columns.filter_map(|column| schema.fields().get(column)).map(|field| value_cost(field.data_type())).sum()
    };
    Reading {
        output: cost(&mut wanted.iter().copied()),
        filter: cost(&mut tested.difference(&wanted).copied()),
        limit: limit.map(|limit| limit as f64),
    }
}

/// Nanoseconds to decode a value, rounded from what sums over such columns of Parquet files take.
fn value_cost(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Dictionary(_, value) => value_cost(value),
        DataType::Null | DataType::Boolean => 2.0,
        fixed if fixed.is_primitive() => 4.0,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 12.0,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => 12.0,
        // Lists, structs and maps: each level of nesting is decoded by itself.
        _ => 40.0,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::prelude::{col, lit};

    use super::*;

    #[test]
    fn columns_of_the_filter_that_are_read_anyway_cost_nothing_more() {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, true),
            Field::new("on", DataType::Boolean, true),
        ]);
        let filters = [col("name").eq(lit("x")), col("on").eq(col("id").gt(lit(3)))];
        let both = reading(&schema, Some(&vec![0]), &filters, Some(7));
        assert_eq!(both, Reading { output: 4.0, filter: 14.0, limit: Some(7.0) });
        let all = reading(&schema, None, &filters, None);
        assert_eq!(all, Reading { output: 18.0, filter: 0.0, limit: None });
    }
}
