//! Leaves of columns: what Parquet stores of them, one after the other, structs, lists and maps taken apart.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};

/// How many leaves a column of this type has.
pub(super) fn leaf_count(of: &DataType) -> usize {
    match of {
        DataType::Struct(fields) => fields.iter().map(|field| leaf_count(field.data_type())).sum(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            leaf_count(item.data_type())
        }
        DataType::Map(entries, _) => leaf_count(entries.data_type()),
        _ => 1,
    }
}

/// The leaves of floats that have NaN, by their numbers among all leaves. Leaves of lists and maps are none of them.
pub(super) fn leaves_with_nan(columns: &[ArrayRef]) -> Vec<usize> {
    let (mut leaf, mut found) = (0, Vec::new());
    columns.iter().for_each(|column| add_leaves(column, &mut leaf, &mut found));
    found
}

fn add_leaves(column: &ArrayRef, leaf: &mut usize, found: &mut Vec<usize>) {
    if let Some(within) = column.as_struct_opt() {
        within.columns().iter().for_each(|column| add_leaves(column, leaf, found));
        return;
    }
    if has_nan(column) {
        found.push(*leaf);
    }
    *leaf += leaf_count(column.data_type());
}

fn has_nan(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Float32 => column.as_primitive::<Float32Type>().iter().flatten().any(f32::is_nan),
        DataType::Float64 => column.as_primitive::<Float64Type>().iter().flatten().any(f64::is_nan),
        _ => false,
    }
}

/// Whether a column has floats outside of lists and maps.
pub(super) fn has_floats(of: &DataType) -> bool {
    match of {
        DataType::Float32 | DataType::Float64 => true,
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        _ => false,
    }
}
