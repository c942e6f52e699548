//! The keys of joins above a scan, for the chain of star joins.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::Schema;

use crate::share::prediction::ColumnCosts;
use crate::share::stars::keys::{JoinKeys, KeyKind, StarKeys};

/// The keys of a join above a scan.
#[derive(Clone, Debug)]
pub(crate) struct JoinedColumn {
    /// The column of the table that the join is on.
    pub(crate) name: String,
    /// The keys of the rows that the column is joined with.
    pub(crate) keys: JoinKeys,
}

/// The keys of joins on columns that a scan of files reads. Of several joins on a column the one with the fewest keys is enough: what it
/// leaves out is needed by none of them.
pub(super) fn star_keys(joins: &[JoinedColumn], in_files: &Schema, read: &ColumnCosts) -> Vec<StarKeys> {
    let mut by_column: BTreeMap<usize, &JoinKeys> = BTreeMap::new();
    for JoinedColumn { name, keys } in joins {
        let Some(column) = in_files.index_of(name).ok().filter(|place| read.contains_key(place)) else { continue };
        let kind = in_files.fields().get(column).and_then(|field| KeyKind::of(field.data_type()));
        if kind != Some(keys.kind()) {
            continue;
        }
        let fewest = by_column.entry(column).or_insert(keys);
        if keys.values().len() < fewest.values().len() {
            *fewest = keys;
        }
    }
    by_column.into_iter().map(|(column, keys)| StarKeys { column, keys: keys.clone() }).collect()
}

/// Whether a chain may look up a column of this type.
pub(crate) fn may_be_joined(schema: &Arc<Schema>, name: &str) -> bool {
    schema.field_with_name(name).is_ok_and(|field| KeyKind::of(field.data_type()).is_some())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Date32Array, Int8Array, Int64Array};
    use arrow::datatypes::{DataType, Field};
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
    use lakemark_table::ColumnReadCost;

    use super::*;

    #[test]
    fn joins_on_columns_of_their_kind_that_are_read_have_keys() {
        let fields = [("a", DataType::Int32), ("b", DataType::Date32), ("s", DataType::Utf8), ("u", DataType::UInt64)];
        let fields = fields.into_iter().chain([("c", DataType::Int64)]);
        let schema = Arc::new(Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).collect::<Vec<_>>()));
        let read: ColumnCosts = (0..4).map(|place| (place, ColumnReadCost::default())).collect();
        let memory: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let join = |name: &str, keys: ArrayRef| {
            let keys = JoinKeys::of(&keys, &memory).unwrap();
            JoinedColumn { name: name.to_owned(), keys }
        };
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7, 9]));
        let joins = [
            join("b", Arc::new(Date32Array::from(vec![3]))),
            join("a", Arc::new(Int8Array::from(vec![1]))),
            join("a", Arc::clone(&numbers)),
            join("b", Arc::clone(&numbers)),
            join("c", Arc::clone(&numbers)),
            join("u", Arc::clone(&numbers)),
            join("s", Arc::clone(&numbers)),
            join("x", numbers),
        ];
        let found = star_keys(&joins, &schema, &read);
        let found: Vec<(usize, Vec<i64>)> =
            found.into_iter().map(|found| (found.column, found.keys.values().to_vec())).collect();
        assert_eq!(found, [(0, vec![1]), (1, vec![3])]);
        let may: Vec<bool> = ["a", "b", "s", "u", "x"].map(|name| may_be_joined(&schema, name)).to_vec();
        assert_eq!(may, [true, true, false, false, false]);
    }
}
