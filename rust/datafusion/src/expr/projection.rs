//! Of structs only the fields that are needed are read.
//!
//! ```text
//! SELECT s['a'], k … WHERE s['b'] > 3
//!
//! filter: s['b'] > 3, gives (s['a'], k)          what the filter looks at and what is needed, each once
//!   └ scan of files: s['a'], k, s['b']           the reader takes single fields out of structs
//! ```
//!
//! A struct that is needed whole somewhere is read whole. What is read is called by its whole name ([`lakemark_format::column`]), so that
//! no two things that are read share one.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::physical_plan::{FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, LambdaExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use lakemark_format::column;

use crate::expr::fields::{FieldAccess, access_of};

/// Columns of a schema, and fields of its structs, each once.
pub(crate) struct FieldProjection {
    /// Each under its whole name.
    each: Vec<ProjectionExpr>,
    has_fields: bool,
}

impl FieldProjection {
    /// What these expressions over a schema look at.
    pub(crate) fn by<'e>(exprs: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>, schema: &Schema) -> Result<Self> {
        let (mut columns, mut fields) = (BTreeSet::new(), Vec::new());
        for expr in exprs {
            expr.apply(|part| {
                if let Some(column) = part.downcast_ref::<Column>() {
                    columns.insert(column.index());
                } else if let Some(field) = field_of(part, schema) {
                    fields.push((field, moved(part, Some, schema)?));
                    return Ok(TreeNodeRecursion::Jump);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        fields.retain(|(field, _)| !columns.contains(&field.root));
        let has_fields = !fields.is_empty();
        let whole = columns.into_iter().filter_map(|place| {
            let name = schema.fields().get(place)?.name();
            Some(ProjectionExpr::new(Arc::new(Column::new(name, place)), name))
        });
        let mut each: Vec<ProjectionExpr> = whole.collect();
        for (StructField { name, .. }, expr) in fields {
            if !each.iter().any(|have| have.alias == name) {
                each.push(ProjectionExpr::new(expr, name));
            }
        }
        Ok(Self { each, has_fields })
    }

    /// Whether fields are needed of a struct that is not needed whole.
    pub(crate) fn has_fields(&self) -> bool {
        self.has_fields
    }

    pub(crate) fn each(&self) -> &[ProjectionExpr] {
        &self.each
    }

    /// Where the column or field stands that an expression is; none if it computes something.
    pub(crate) fn index_of(&self, expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<usize> {
        let column = |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().map(Column::index);
        match (column(expr), field_of(expr, schema)) {
            (Some(place), _) => self.each.iter().position(|have| column(&have.expr) == Some(place)),
            (None, Some(field)) => self.each.iter().position(|have| have.alias == field.name),
            (None, None) => None,
        }
    }

    /// The same expression over what a plan gives of these, in place of the schema's columns.
    pub(crate) fn over(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
        given: &Schema,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let replaced = Arc::clone(expr).transform_down(|part| {
            let place = self.index_of(&part, schema);
            let Some((place, field)) = place.and_then(|place| Some((place, given.fields().get(place)?))) else {
                return Ok(Transformed::no(part));
            };
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), place));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        });
        replaced.data()
    }
}

/// A field of a struct.
struct StructField {
    /// The place of the column that it lies in.
    root: usize,
    /// Its whole name.
    name: String,
}

/// The field of a struct that an expression is. None of the values of a map, of which the reader reads all.
fn field_of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<StructField> {
    let FieldAccess { column: root, names: way } = access_of(expr)?;
    let field = schema.fields().get(root.index())?;
    let mut struct_type = field.data_type();
    for name in &way {
        let DataType::Struct(fields) = struct_type else { return None };
        struct_type = fields.iter().find(|field| field.name() == name)?.data_type();
    }
    let name = column::join([field.name().as_str()].into_iter().chain(way.iter().map(String::as_str)));
    Some(StructField { root: root.index(), name })
}

/// A scan that gives these columns and fields of what a plan gives, which is a scan of files or of rows in memory, maybe below a filter.
pub(crate) fn giving(plan: &Arc<dyn ExecutionPlan>, wanted: &[ProjectionExpr]) -> Result<Arc<dyn ExecutionPlan>> {
    let narrower = match plan.downcast_ref::<FilterExec>() {
        Some(filter) => filtered(filter, wanted)?,
        None => read(plan, wanted)?,
    };
    match narrower {
        Some(narrower) => Ok(narrower),
        None => Ok(Arc::new(ProjectionExec::try_new(wanted.iter().cloned(), Arc::clone(plan))?)),
    }
}

/// Whether an expression has a lambda, which goes by how many columns stood around it when it was planned: over more columns DataFusion 55
/// takes one of these for its variable.
pub(crate) fn has_lambda(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expr.exists(|part| Ok(part.is::<LambdaExpr>()))
}

/// Whether one of these expressions has a lambda.
pub(crate) fn have_lambdas<'e>(mut exprs: impl Iterator<Item = &'e Arc<dyn PhysicalExpr>>) -> Result<bool> {
    exprs.try_fold(false, |found, expr| Ok(found || has_lambda(expr)?))
}

/// A filter over a scan that reads of structs only the fields that the filter looks at. None if the filter looks at no fields, or if the
/// scan reads no files.
pub(crate) fn of_fields(filter: &FilterExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = filter.schema();
    let columns = schema.fields().iter().enumerate();
    let columns =
        columns.map(|(place, field)| ProjectionExpr::new(Arc::new(Column::new(field.name(), place)), field.name()));
    filtered(filter, &columns.collect::<Vec<_>>())
}

/// The same below a filter. None if the filter or what is above it needs whole structs, or if the scan reads no files.
fn filtered(filter: &FilterExec, wanted: &[ProjectionExpr]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = filter.input().schema();
    let given = filter.projection().as_deref();
    let place_of = |place: usize| given.map_or(Some(place), |given| given.get(place).copied());
    let below = wanted.iter().map(|wanted| moved(&wanted.expr, place_of, &schema)).collect::<Result<Vec<_>>>()?;
    let both = FieldProjection::by(below.iter().chain([filter.predicate()]), &schema)?;
    if !both.has_fields() || have_lambdas(below.iter().chain([filter.predicate()]))? {
        return Ok(None);
    }
    let places: Option<Vec<usize>> = below.iter().map(|wanted| both.index_of(wanted, &schema)).collect();
    let Some(places) = places else { return Ok(None) };
    let Some(scan) = read(filter.input(), both.each())? else { return Ok(None) };
    let narrower = FilterExecBuilder::new(both.over(filter.predicate(), &schema, &scan.schema())?, scan)
        .with_default_selectivity(filter.default_selectivity())
        .with_batch_size(filter.batch_size())
        .with_fetch(filter.fetch())
        .apply_projection(Some(places))?;
    Ok(Some(Arc::new(narrower.build()?)))
}

/// The expression whose columns stand at other places of a schema, under the names that they have there.
pub(crate) fn moved(
    expr: &Arc<dyn PhysicalExpr>,
    place_of: impl Fn(usize) -> Option<usize>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    let moved = Arc::clone(expr).transform_down(|part| {
        let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        let field = place_of(column.index()).and_then(|place| Some((place, schema.fields().get(place)?)));
        let (place, field) = field.ok_or_else(|| internal_datafusion_err!("there is no column {column}"))?;
        Ok(Transformed::yes(Arc::new(Column::new(field.name(), place)) as Arc<dyn PhysicalExpr>))
    });
    moved.data()
}

/// A scan of files that gives these; none if the plan is no scan of files.
fn read(scan: &Arc<dyn ExecutionPlan>, wanted: &[ProjectionExpr]) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if !reads_files(scan) {
        return Ok(None);
    }
    let projection = ProjectionExec::try_new(wanted.iter().cloned(), Arc::clone(scan))?;
    scan.try_swapping_with_projection(&projection)
}

/// Whether a plan is a scan of Parquet files.
pub(crate) fn reads_files(plan: &Arc<dyn ExecutionPlan>) -> bool {
    source_of(plan).is_some()
}

/// Whether a scan of Parquet files gives whole columns and nothing else.
pub(crate) fn reads_columns(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let given = source_of(plan).and_then(FileSource::projection);
    given.is_none_or(|given| given.iter().all(|given| given.expr.is::<Column>()))
}

fn source_of(plan: &Arc<dyn ExecutionPlan>) -> Option<&ParquetSource> {
    let scan = plan.downcast_ref::<DataSourceExec>();
    scan.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>).map(|(_, source)| source)
}
