//! What an aggregate requests from the index, if the index can answer it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::projection::ProjectionExec;
use lakemark_format::column;
use lakemark_table::{MinMaxRequest, field_of};

use super::sums::can_be_exact;
use crate::exec::scan::LakemarkScanExec;
use crate::exec::scan_probe::ScanProbe;
use crate::expr::fields::{FieldAccess, access_of, type_of};

/// An aggregate over a scan, in terms of the scan's columns.
#[derive(Clone, Debug)]
pub(crate) struct AggregateRequest {
    /// What the rows are grouped by; nothing for one group of all rows.
    pub(crate) groups: Vec<Arc<dyn PhysicalExpr>>,
    /// The aggregates, each with one partial state.
    pub(crate) measures: Vec<Measure>,
    /// The columns that groups and aggregates read.
    pub(crate) columns: Vec<String>,
    /// Whether the first groups that are found are enough.
    pub(crate) ends_early: bool,
}

/// An aggregate function that the index can answer.
#[derive(Clone, Debug)]
pub(crate) enum Measure {
    /// Rows in which none of the expressions is NULL.
    Count(Vec<Arc<dyn PhysicalExpr>>),
    /// Different values of the expression, NULL left out.
    Distinct(Arc<dyn PhysicalExpr>),
    /// The least value.
    Least(Arc<dyn PhysicalExpr>),
    /// The greatest value.
    Greatest(Arc<dyn PhysicalExpr>),
    /// The sum of the values.
    Sum(Arc<dyn PhysicalExpr>),
    /// Their mean, of which the states are rows and sum.
    Mean(Arc<dyn PhysicalExpr>),
}

impl Measure {
    fn of(function: &AggregateFunctionExpr, read: &mut ScanColumns<'_>) -> Option<Self> {
        if !function.order_bys().is_empty() {
            return None;
        }
        let arguments: Vec<Arc<dyn PhysicalExpr>> =
            function.expressions().into_iter().map(|argument| read.of(argument)).collect::<Option<_>>()?;
        let implementation = function.fun().inner();
        if implementation.is::<Count>() && !function.is_distinct() {
            return Some(Self::Count(arguments));
        }
        let [argument] = <[Arc<dyn PhysicalExpr>; 1]>::try_from(arguments).ok()?;
        if implementation.is::<Sum>() || implementation.is::<Avg>() {
            let exact = !function.is_distinct() && can_be_exact(&argument, &read.schema());
            let measure = if implementation.is::<Sum>() { Self::Sum } else { Self::Mean };
            return exact.then(|| measure(argument));
        }
        if implementation.is::<Count>() {
            Some(Self::Distinct(argument))
        } else if implementation.is::<Min>() {
            Some(Self::Least(argument))
        } else if implementation.is::<Max>() {
            Some(Self::Greatest(argument))
        } else {
            None
        }
    }

    pub(crate) fn arguments(&self) -> &[Arc<dyn PhysicalExpr>] {
        match self {
            Self::Count(arguments) => arguments,
            Self::Distinct(argument)
            | Self::Least(argument)
            | Self::Greatest(argument)
            | Self::Sum(argument)
            | Self::Mean(argument) => std::slice::from_ref(argument),
        }
    }

    /// How many columns its partial state has.
    pub(crate) fn states(&self) -> usize {
        if matches!(self, Self::Mean(_)) { 2 } else { 1 }
    }

    /// The columns that it reads.
    pub(crate) fn columns(&self) -> BTreeSet<String> {
        let read = self.arguments().iter().flat_map(collect_columns);
        read.map(|column| column.name().to_owned()).collect()
    }

    /// The column that is the whole argument.
    pub(crate) fn column(&self) -> Option<&str> {
        match self.arguments() {
            [argument] => argument.downcast_ref::<Column>().map(Column::name),
            _ => None,
        }
    }

    /// Whether it counts rows whatever they hold: its arguments are constants.
    pub(crate) fn counts_rows(&self) -> bool {
        matches!(self, Self::Count(_)) && self.columns().is_empty()
    }
}

impl AggregateRequest {
    /// The request of a partial aggregate whose input is our scan; none if the index cannot answer it.
    pub(crate) fn of(aggregate: &AggregateExec) -> Option<Self> {
        let below = aggregate.input().downcast_ref::<ProjectionExec>();
        let scan = below.map_or(aggregate.input(), ProjectionExec::input).downcast_ref::<LakemarkScanExec>()?;
        let plain = *aggregate.mode() == AggregateMode::Partial
            && aggregate.group_expr().is_single()
            && aggregate.filter_expr().iter().all(Option::is_none);
        if !plain {
            return None;
        }
        let scan_probe = scan.scan_probe().filter(|_| scan.gives_columns())?;
        let mut columns = ScanColumns { below, fields: scan.schema().fields().to_vec() };
        let groups = aggregate.group_expr().input_exprs().into_iter().map(|group| columns.of(group));
        let groups: Vec<Arc<dyn PhysicalExpr>> = groups.collect::<Option<_>>()?;
        let measures = aggregate.aggr_expr().iter().map(|function| Measure::of(function, &mut columns));
        let measures: Vec<Measure> = measures.collect::<Option<_>>()?;
        let read = || groups.iter().chain(measures.iter().flat_map(Measure::arguments));
        let columns: Vec<String> = read()
            .flat_map(collect_columns)
            .map(|column| (column.name().to_owned(), ()))
            .collect::<BTreeMap<_, _>>()
            .into_keys()
            .collect();
        if read().any(is_volatile) || !columns.iter().all(|column| scan_probe.snapshot.supports_index_only(column)) {
            return None;
        }
        let ends_early = aggregate.limit_options().is_some();
        let request = Self { groups, measures, columns, ends_early };
        let answerable =
            (1..=2).contains(&request.columns.len()) || request.is_separable() || request.bounds().is_some();
        // Of several columns nothing says whether their groups are few.
        let answerable = answerable && (!ends_early || request.columns.len() == 1 && request.measures.is_empty());
        (answerable && scan_probe.may_have_exact_rows()).then_some(request)
    }

    /// Whether the values of one column at a time answer everything: one group, and no measure reads two columns.
    pub(crate) fn is_separable(&self) -> bool {
        self.groups.is_empty()
            && !self.columns.is_empty()
            && self.measures.iter().all(|measure| measure.columns().len() <= 1)
    }

    /// The one of `columns` of which only sums and the number of rows with a value are requested, if there is one.
    pub(crate) fn summed<'a>(&self, columns: &'a [String], schema: &Schema) -> Option<&'a str> {
        let grouped: BTreeSet<String> =
            self.groups.iter().flat_map(collect_columns).map(|column| column.name().to_owned()).collect();
        let is_summed = |column: &&String| {
            let mut reading = self.measures.iter().filter(|measure| measure.columns().contains(*column)).peekable();
            !grouped.contains(*column)
                && reading.peek().is_some()
                && reading.all(|measure| match measure {
                    Measure::Count(_) => measure.column() == Some(column),
                    Measure::Sum(argument) | Measure::Mean(argument) => is_column(argument, column, schema),
                    Measure::Distinct(_) | Measure::Least(_) | Measure::Greatest(_) => false,
                })
        };
        columns.iter().find(is_summed).map(String::as_str)
    }

    /// The only column, if nothing but its least or greatest value is requested.
    pub(crate) fn extremes_of(&self) -> Option<&str> {
        let [column] = self.columns.as_slice() else { return None };
        let is_extreme = |measure: &Measure| {
            matches!(measure, Measure::Least(_) | Measure::Greatest(_)) && measure.column() == Some(column.as_str())
        };
        (self.groups.is_empty() && self.measures.iter().all(is_extreme)).then_some(column.as_str())
    }

    /// The columns whose bounds are all that is requested; none if there are groups or expressions.
    pub(crate) fn bounds(&self) -> Option<Vec<MinMaxRequest>> {
        if !self.groups.is_empty() || self.columns.is_empty() {
            return None;
        }
        let mut extremes: BTreeMap<&str, bool> = BTreeMap::new();
        for measure in self.measures.iter().filter(|measure| !measure.counts_rows()) {
            let is_extreme = matches!(measure, Measure::Least(_) | Measure::Greatest(_));
            if !is_extreme && !matches!(measure, Measure::Count(_)) {
                return None;
            }
            *extremes.entry(measure.column()?).or_default() |= is_extreme;
        }
        let request = |(column, extremes): (&str, bool)| MinMaxRequest { column: column.to_owned(), extremes };
        Some(extremes.into_iter().map(request).collect())
    }
}

/// What an aggregate reads: the columns of the scan, then the fields that it takes out of them, under their whole names.
struct ScanColumns<'a> {
    below: Option<&'a ProjectionExec>,
    fields: Vec<FieldRef>,
}

impl ScanColumns<'_> {
    fn schema(&self) -> Schema {
        Schema::new(self.fields.clone())
    }

    /// An expression over what is read, where a projection below the aggregate computes parts of it.
    fn of(&mut self, expr: Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
        let replaced = in_columns(expr, self.below)?.transform_down(|part| match self.field(&part) {
            Some(field) => {
                Ok(Transformed::new(Arc::new(field) as Arc<dyn PhysicalExpr>, true, TreeNodeRecursion::Jump))
            }
            None => Ok(Transformed::no(part)),
        });
        replaced.data().ok()
    }

    /// The field that an expression takes out of a column.
    fn field(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<Column> {
        let FieldAccess { column: root, names } = access_of(expr)?;
        let name = column::join([root.name()].into_iter().chain(names.iter().map(String::as_str)));
        let data_type = type_of(&self.schema(), &name)?.clone();
        let place = self.fields.iter().position(|field| *field.name() == name).unwrap_or_else(|| {
            self.fields.push(Arc::new(Field::new(&name, data_type, true)));
            self.fields.len() - 1
        });
        Some(Column::new(&name, place))
    }
}

/// An expression over the columns of the scan, where a projection below the aggregate computes parts of it.
fn in_columns(expr: Arc<dyn PhysicalExpr>, below: Option<&ProjectionExec>) -> Option<Arc<dyn PhysicalExpr>> {
    let Some(projection) = below else { return Some(expr) };
    let replaced = expr.transform_up(|part| {
        let column = part.downcast_ref::<Column>().map(Column::index);
        match column.map(|column| projection.expr().get(column)) {
            None => Ok(Transformed::no(part)),
            Some(Some(computed)) => Ok(Transformed::yes(Arc::clone(&computed.expr))),
            Some(None) => internal_err!("{part} is not projected"),
        }
    });
    replaced.data().ok()
}

impl ScanProbe {
    /// The probe of the scan below a partial aggregate, however many operators were put between them.
    pub(crate) fn below(plan: &Arc<dyn datafusion::physical_plan::ExecutionPlan>) -> Option<Arc<Self>> {
        match plan.downcast_ref::<LakemarkScanExec>() {
            Some(scan) => scan.scan_probe().cloned(),
            None => plan.children().into_iter().find_map(Self::below),
        }
    }
}

/// Whether an expression has the column's values, as they are or as the wider numbers that sums of integers are made of.
fn is_column(expr: &Arc<dyn PhysicalExpr>, name: &str, schema: &Schema) -> bool {
    let is_named =
        |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().is_some_and(|column| column.name() == name);
    let Some(cast) = expr.downcast_ref::<CastExpr>() else { return is_named(expr) };
    let widens = match (field_of(schema, name).map(|field| field.data_type().clone()), cast.cast_type()) {
        (Some(from), DataType::Int64) => from.is_signed_integer(),
        (Some(from), DataType::UInt64) => from.is_unsigned_integer(),
        (Some(from), DataType::Float64) => from.is_integer(),
        _ => false,
    };
    widens && is_named(cast.expr())
}
