//! Fields of structs as DataFusion writes them: calls of `get_field` with names, under the whole names of
//! [`lakemark_format::column`].
//!
//! A field that Parquet's readers give where its struct is NULL is NULL, too: files in which it might not be have no indexes for it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Fields, Schema};
use datafusion::common::{Column, ScalarValue};
use datafusion::functions::core::get_field;
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::logical_expr::{Expr, lit};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, expressions as physical};
use lakemark_format::column;

/// The whole name of a column, or of the field that a call takes out of a column.
pub(crate) fn name_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Alias(alias) => name_of(&alias.expr),
        Expr::Column(column) => is_plain(&column.name).then(|| column.name.clone()),
        Expr::ScalarFunction(call) if call.func.inner().is::<GetFieldFunc>() => {
            let (outer, names) = call.args.split_first()?;
            let literal = |expr: &Expr| match expr {
                Expr::Literal(value, _) => field_name(value),
                _ => None,
            };
            let names = names.iter().map(literal).collect::<Option<Vec<_>>>()?;
            let outer = name_of(outer)?;
            Some(column::join([outer.as_str()].into_iter().chain(names.iter().map(String::as_str))))
        }
        _ => None,
    }
}

/// A field that is taken out of a column.
pub(crate) struct FieldAccess<'e> {
    /// The outermost column.
    pub(crate) column: &'e physical::Column,
    /// The names on the way to the field.
    pub(crate) names: Vec<String>,
}

/// The field that a call takes out of a column.
pub(crate) fn access_of(expr: &Arc<dyn PhysicalExpr>) -> Option<FieldAccess<'_>> {
    let call = ScalarFunctionExpr::try_downcast_func::<GetFieldFunc>(expr.as_ref())?;
    let (outer, names) = call.args().split_first()?;
    let mut access = match outer.downcast_ref::<physical::Column>() {
        Some(column) => FieldAccess { column, names: Vec::new() },
        None => access_of(outer)?,
    };
    for name in names {
        access.names.push(field_name(name.downcast_ref::<physical::Literal>()?.value())?);
    }
    Some(access)
}

/// The column, or the field as a call.
pub(crate) fn expression(name: &str) -> Expr {
    let mut names = column::names(name);
    let root = Expr::Column(Column::new_unqualified(names.next().unwrap_or_default()));
    names.fold(root, |outer, name| get_field().call(vec![outer, lit(name)]))
}

/// The type of a column or field, or of the values of a map whose keys are strings; none if the schema has neither, or if a list is
/// on the way.
pub(crate) fn type_of<'a>(schema: &'a Schema, name: &str) -> Option<&'a DataType> {
    let named = |fields: &'a Fields, name: &str| fields.iter().find(|field| field.name() == name);
    let mut names = column::names(name);
    let mut found = named(schema.fields(), names.next()?)?.data_type();
    for name in names {
        found = match found {
            DataType::Struct(fields) => named(fields, name)?.data_type(),
            DataType::Map(entries, _) => values_of(entries.data_type())?,
            _ => return None,
        };
    }
    Some(found)
}

fn values_of(entries: &DataType) -> Option<&DataType> {
    let DataType::Struct(fields) = entries else { return None };
    match fields.iter().collect::<Vec<_>>().as_slice() {
        [key, value] if *key.data_type() == DataType::Utf8 && !value.data_type().is_nested() => Some(value.data_type()),
        _ => None,
    }
}

/// Whether it is a name like any other: one with a separator would be the field of another column, or several columns.
fn is_plain(name: &str) -> bool {
    !column::is_field(name) && !column::is_composite(name)
}

/// The name of a field or the key of a map; keys of other types of strings the engine compares otherwise or not at all.
fn field_name(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::Utf8(Some(name)) if is_plain(name) => Some(name.clone()),
        _ => None,
    }
}
