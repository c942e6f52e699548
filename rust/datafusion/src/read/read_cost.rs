//! What it costs this engine to read rows, for the choice between indexes and a plain scan.

use std::collections::BTreeSet;

use arrow::datatypes::Schema;
use datafusion::logical_expr::Expr;
use lakemark_table::{ColumnReadCost, ReadCost};

/// The cost of reading the projected columns (all of them if none are named), and those that only the filters need.
pub(crate) fn reading(
    schema: &Schema,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
    limit: Option<usize>,
) -> ReadCost {
    let wanted: BTreeSet<usize> = match projection {
        Some(columns) => columns.iter().copied().collect(),
        None => (0..schema.fields().len()).collect(),
    };
    let tested: BTreeSet<usize> =
        filters.iter().flat_map(Expr::column_refs).filter_map(|column| schema.index_of(&column.name).ok()).collect();
    let cost = |columns: &mut dyn Iterator<Item = usize>| -> ColumnReadCost {
        let types = columns.filter_map(|column| schema.fields().get(column)).map(|field| field.data_type());
        types.map(ColumnReadCost::of).fold(ColumnReadCost::default(), ColumnReadCost::plus)
    };
    ReadCost {
        output: cost(&mut wanted.iter().copied()),
        filter: cost(&mut tested.difference(&wanted).copied()),
        limit: limit.map(|limit| limit as f64),
        index_only: None,
        parent_cost: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
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
        let columns = |count: f64, decode: f64| ColumnReadCost { count, decode };
        assert_eq!(
            both,
            ReadCost {
                output: columns(1.0, 4.0),
                filter: columns(2.0, 14.0),
                limit: Some(7.0),
                index_only: None,
                parent_cost: 0.0
            }
        );
        let all = reading(&schema, None, &filters, None);
        assert_eq!(
            all,
            ReadCost {
                output: columns(3.0, 18.0),
                filter: columns(0.0, 0.0),
                limit: None,
                index_only: None,
                parent_cost: 0.0
            }
        );
    }

    #[test]
    fn a_struct_is_as_many_columns_as_it_has_fields() {
        let numbers = DataType::List(Field::new("item", DataType::Int64, true).into());
        let place = DataType::Struct(
            vec![Field::new("city", DataType::Utf8, true), Field::new("numbers", numbers, true)].into(),
        );
        let schema = Schema::new(vec![Field::new("place", place, true), Field::new("id", DataType::Int64, false)]);
        assert_eq!(reading(&schema, None, &[], None).output, ColumnReadCost { count: 3.0, decode: 44.0 });
    }
}
