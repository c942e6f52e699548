//! Filters that other operators learn while a query runs, asked of the index.
//!
//! A hash join knows its build side before it asks for the first row of the other side: the bounds of the keys, and the keys
//! themselves if they are few. When the first partition of a scan is asked for a row, the filters are read as they are then,
//! translated and probed, and what the scan planned to read is cut down to the rows that may pass.
//!
//! Three things keep that right. The operators above go on applying their filters, so that any superset of the rows will
//! do: what cannot be translated is left out of an AND. Filters only get narrower, so that an old one is a superset, too.
//! And nothing waits for a filter to be finished: a join whose other side is read ahead of time has not spoken yet, and the
//! scan then reads what was planned.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{FileGroup, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self as physical, DynamicFilterPhysicalExpr};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use lakemark_format::column;
use lakemark_index::{Predicate, RowSet, Truth};
use lakemark_table::{FileProbe, ProbeOptions, ProbeReport, Reading, Snapshot};
use object_store::path::Path;

use crate::access::selection;
use crate::error::to_engine;
use crate::fields::{access_of, expression, type_of};
use crate::translate::translate;

/// What it takes to probe once more.
#[derive(Debug, Clone)]
pub(crate) struct Prober {
    pub(crate) snapshot: Arc<Snapshot>,
    /// What reading a row of the scan costs.
    pub(crate) reading: Reading,
}

/// Rows that may pass, by file.
pub(crate) struct Narrowing {
    files: HashMap<Path, (Vec<u32>, RowSet)>,
    pub(crate) report: ProbeReport,
    /// Rows and row groups that were planned and are not read.
    pub(crate) rows: u64,
    pub(crate) row_groups: u64,
}

impl Prober {
    /// Probes with the filters as they are now; none if they say nothing that an index knows.
    pub(crate) async fn narrow(&self, filters: &[Arc<dyn PhysicalExpr>], output: &Schema) -> Result<Option<Narrowing>> {
        let schema = self.snapshot.schema();
        let known: Vec<Expr> = filters.iter().filter_map(|filter| superset(filter, output)).collect();
        let predicate = translate(&known, &schema);
        if matches!(predicate, Predicate::Const(Truth::True)) || predicate.leaves().is_empty() {
            return Ok(None);
        }
        let options = ProbeOptions { reading: Some(self.reading), ..ProbeOptions::default() };
        let probe = self.snapshot.probe(&predicate, &options).await.map_err(to_engine)?;
        let mut files = HashMap::new();
        for (file, found) in self.snapshot.files().iter().zip(probe.files) {
            if let FileProbe::Known { row_groups, certain, uncertain } = found {
                files.insert(file.meta.location.clone(), (row_groups, certain.or(&uncertain)));
            }
        }
        Ok((!files.is_empty()).then_some(Narrowing { files, report: probe.report, rows: 0, row_groups: 0 }))
    }
}

impl Narrowing {
    /// The same scan of fewer rows, in the same partitions.
    pub(crate) fn apply(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if let [child] = plan.children().as_slice() {
            let below = self.apply(child)?;
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            return Arc::clone(plan).replace_children(vec![below], options);
        }
        let (config, _) = plan
            .downcast_ref::<DataSourceExec>()
            .and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>)
            .ok_or_else(|| internal_datafusion_err!("{} is no scan of Parquet files", plan.name()))?;
        let mut narrowed = config.clone();
        for group in &mut narrowed.file_groups {
            let files = std::mem::take(group).into_inner();
            *group = FileGroup::new(files.into_iter().filter_map(|file| self.file(file)).collect());
        }
        Ok(DataSourceExec::from_data_source(narrowed))
    }

    /// The part of a file that is left; none if nothing is.
    fn file(&mut self, file: PartitionedFile) -> Option<PartitionedFile> {
        let Some((row_groups, kept)) = self.files.get(&file.object_meta.location) else { return Some(file) };
        if kept.is_empty() && row_groups.is_empty() {
            return None;
        }
        let planned = match file.extension::<ParquetAccessPlan>() {
            Some(plan) if plan.len() == row_groups.len() => plan.clone(),
            Some(_) => return Some(file),
            None => ParquetAccessPlan::new_all(row_groups.len()),
        };
        let mut narrowed = Vec::with_capacity(row_groups.len());
        let (mut rows, mut groups, mut start) = (0, 0, 0u32);
        for (access, length) in planned.into_inner().into_iter().zip(row_groups) {
            let end = start.saturating_add(*length);
            let (left, dropped) = intersect(access, &kept.slice(start, end));
            rows += dropped;
            groups += u64::from(left == RowGroupAccess::Skip && dropped > 0);
            narrowed.push(left);
            start = end;
        }
        // A file that is cut into byte ranges comes once for each of them, with the same rows.
        if file.range.as_ref().is_none_or(|range| range.start == 0) {
            self.rows += rows;
            self.row_groups += groups;
        }
        let any = narrowed.iter().any(RowGroupAccess::should_scan);
        any.then(|| file.with_extension(ParquetAccessPlan::new(narrowed)))
    }
}

/// What is left of a row group, and how many planned rows are not.
fn intersect(access: RowGroupAccess, kept: &RowSet) -> (RowGroupAccess, u64) {
    let (planned, left) = match access {
        RowGroupAccess::Skip => return (RowGroupAccess::Skip, 0),
        RowGroupAccess::Scan if kept.is_full() => return (RowGroupAccess::Scan, 0),
        RowGroupAccess::Scan => (kept.universe() as usize, selection(kept)),
        RowGroupAccess::Selection(rows) => (rows.row_count(), rows.intersection(&selection(kept))),
    };
    let dropped = (planned - left.row_count()) as u64;
    if left.selects_any() { (RowGroupAccess::Selection(left), dropped) } else { (RowGroupAccess::Skip, dropped) }
}

/// A condition that is true wherever the filter is, in the terms of [`translate`]; none if nothing is known of it.
fn superset(filter: &Arc<dyn PhysicalExpr>, output: &Schema) -> Option<Expr> {
    if let Some(dynamic) = filter.downcast_ref::<DynamicFilterPhysicalExpr>() {
        return superset(&dynamic.current().ok()?, output);
    }
    if let Some(binary) = filter.downcast_ref::<physical::BinaryExpr>() {
        let (left, right) = (superset(binary.left(), output), superset(binary.right(), output));
        match binary.op() {
            Operator::And => {
                return match (left, right) {
                    (Some(left), Some(right)) => Some(left.and(right)),
                    (one, other) => one.or(other),
                };
            }
            Operator::Or => return Some(either(left?, right?)),
            _ => {}
        }
    }
    // A partitioned join chooses the filter of a row by its hash: one of them holds.
    if let Some(case) = filter.downcast_ref::<physical::CaseExpr>() {
        let branches = case.when_then_expr().iter().map(|(_, then)| then).chain(case.else_expr());
        let mut any = lit(false);
        for branch in branches {
            any = either(any, superset(branch, output)?);
        }
        return Some(any);
    }
    exact(filter, output)
}

/// One or the other, without what a constant decides.
fn either(one: Expr, other: Expr) -> Expr {
    if one == lit(true) || other == lit(false) {
        one
    } else if one == lit(false) || other == lit(true) {
        other
    } else {
        one.or(other)
    }
}

/// The same condition as a logical expression, as far as [`translate`] would understand it.
fn exact(expr: &Arc<dyn PhysicalExpr>, output: &Schema) -> Option<Expr> {
    if let Some(column) = expr.downcast_ref::<physical::Column>() {
        let field = output.fields().get(column.index()).filter(|field| !field.data_type().is_floating())?;
        return Some(Expr::Column(datafusion::common::Column::new_unqualified(field.name())));
    }
    if let Some((column, names)) = access_of(expr) {
        let root = output.fields().get(column.index())?.name().as_str();
        let name = column::join([root].into_iter().chain(names.iter().map(String::as_str)));
        return type_of(output, &name).filter(|data_type| !data_type.is_floating()).map(|_| expression(&name));
    }
    if let Some(literal) = expr.downcast_ref::<physical::Literal>() {
        return Some(lit(literal.value().clone()));
    }
    if let Some(cast) = expr.downcast_ref::<physical::CastExpr>() {
        let inner = Box::new(exact(cast.expr(), output)?);
        return Some(Expr::Cast(Cast::new(inner, cast.cast_type().clone())));
    }
    if let Some(binary) = expr.downcast_ref::<physical::BinaryExpr>() {
        let (left, right) = (exact(binary.left(), output)?, exact(binary.right(), output)?);
        return Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), *binary.op(), Box::new(right))));
    }
    if let Some(list) = expr.downcast_ref::<physical::InListExpr>() {
        let items: Option<Vec<Expr>> = list.list().iter().map(|item| exact(item, output)).collect();
        return Some(Expr::InList(InList::new(Box::new(exact(list.expr(), output)?), items?, list.negated())));
    }
    if let Some(test) = expr.downcast_ref::<physical::IsNullExpr>() {
        return Some(Expr::IsNull(Box::new(exact(test.arg(), output)?)));
    }
    if let Some(test) = expr.downcast_ref::<physical::IsNotNullExpr>() {
        return Some(Expr::IsNotNull(Box::new(exact(test.arg(), output)?)));
    }
    None
}

#[cfg(test)]
#[path = "dynamic_tests.rs"]
mod tests;
