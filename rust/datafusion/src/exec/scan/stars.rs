//! Which joins above a scan are those of a star query, whose keys the chain of other queries takes as well.
//!
//! ```text
//! HashJoinExec: on=[(d_datekey, lo_orderdate)]        keys of lo_orderdate
//!   BuildKeysExec
//!   HashJoinExec: on=[(s_suppkey, lo_suppkey)]        keys of lo_suppkey
//!     BuildKeysExec
//!     LakemarkScanExec: filters of both joins
//! ```
//!
//! A join hands its filter down to where the column of its key is read. So a scan knows the joins above it, in whatever order they are and
//! whatever is in between. Any other plan has no such filters.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};

use super::LakemarkScanExec;
use crate::config::{LakemarkOptions, Share};
use crate::exec::shared_scan::star_keys::{JoinedColumn, may_be_joined};
use crate::share::stars::keys::JoinKeys;

impl LakemarkScanExec {
    /// The columns that joins above are on, with their keys as far as these are complete and the session has memory for them; none if the
    /// scan shares no star joins.
    pub(super) fn joined_columns(&self, context: &TaskContext) -> Result<Option<Vec<JoinedColumn>>> {
        if LakemarkOptions::of(context.session_config().options()).share != Share::Stars || !self.shares_pages(context)
        {
            return Ok(None);
        }
        let mut joins = Vec::new();
        for filter in &self.filters {
            let keys = filter.expression_id().and_then(|filter| self.keys.get(&filter));
            let (Some(name), Some(keys)) = (self.joined_column(filter), keys) else { continue };
            if let Some([only]) = keys.whole()?.as_deref() {
                let keys = JoinKeys::of(only, context.memory_pool());
                joins.extend(keys.map(|keys| JoinedColumn { name: name.to_owned(), keys }));
            }
        }
        if self.parts.prober.is_none() {
            // Nobody else takes them.
            self.keys.values().for_each(|keys| keys.remove_reader());
        }
        Ok(Some(joins))
    }

    /// The column of the table that the filter of a join is about, if that joins on one key and the key is the column, or the column as an
    /// integer of a wider type.
    pub(super) fn joined_column(&self, filter: &Arc<dyn PhysicalExpr>) -> Option<&str> {
        let children = filter.children();
        let [key] = children.as_slice() else { return None };
        let cast = key.downcast_ref::<CastExpr>();
        let column = cast.map_or(*key, CastExpr::expr).downcast_ref::<Column>()?;
        let schema = &self.parts.table_schema;
        let field = schema.fields().get(column.index())?;
        let is_same = cast.is_none_or(|cast| has_all_of(cast.cast_type(), field.data_type()));
        (is_same && may_be_joined(schema, field.name())).then_some(field.name().as_str())
    }
}

/// Whether an integer type has all values of another one, so that no cast fails.
fn has_all_of(wide: &DataType, narrow: &DataType) -> bool {
    let (Some(room), Some(needed)) = (wide.primitive_width(), narrow.primitive_width()) else { return false };
    let has_signs = wide.is_signed_integer() && (narrow.is_signed_integer() || room > needed);
    let has_none = wide.is_unsigned_integer() && narrow.is_unsigned_integer();
    wide.is_integer() && narrow.is_integer() && room >= needed && (has_signs || has_none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_all_of_another_one_if_no_cast_fails() {
        let (long, int, unsigned) = (DataType::Int64, DataType::Int32, DataType::UInt32);
        assert!(has_all_of(&long, &int) && has_all_of(&long, &unsigned) && has_all_of(&int, &int));
        assert!(!has_all_of(&int, &long) && !has_all_of(&int, &unsigned) && !has_all_of(&unsigned, &int));
        assert!(!has_all_of(&long, &DataType::Date32) && !has_all_of(&DataType::Date64, &int));
    }
}
