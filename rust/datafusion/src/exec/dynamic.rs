//! Filters whose values are known when a query runs, asked of the index: what other operators learn, and what subqueries give.
//!
//! A hash join knows its build side before it asks for the first row of the other side: the bounds of the keys, and the keys
//! themselves if they are few. When the first partition of a scan is asked for a row, the filters are read as they are then,
//! translated and probed, and what the scan planned to read is cut down to the rows that may pass.
//!
//! Three things keep that right. The operators above go on applying their filters, so that any superset of the rows will
//! do: what cannot be translated is left out of an AND. Filters only get narrower, so that an old one is a superset, too.
//! And nothing waits for a filter to be finished: a join whose other side is read ahead of time has not spoken yet, and the
//! scan then reads what was planned.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options, sort};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{FileGroup, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Cast, ColumnarValue, Expr, Operator, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self as physical, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use lakemark_format::column;
use lakemark_index::{KeyRanges, Leaf, Predicate, RowSet, Test, Truth, encode_literals};
use lakemark_table::{
    FileProbe, GroupCountRequest, GroupCounts, Probe, ProbeOptions, ProbeReport, ReadCost, Snapshot, TopKRequest,
    ValueCounts,
};
use object_store::path::Path;

use crate::error::to_engine;
use crate::exec::build_keys::{BuildKeys, different, without_nulls};
use crate::expr::fields::{access_of, expression, type_of};
use crate::expr::translate::translate;
use crate::read::access::{FileAccess, selection, share};
use crate::read::known::KnownFiles;
use crate::read::reader::Footers;

/// If keys have this share of the values of a column, they leave out too few rows to be worth their search.
const NEARLY_ALL: f64 = 0.85;
/// To encode and to sort so many keys takes longer than to estimate by their number alone what a search for them would save.
const MANY_KEYS: usize = 16_384;

/// To read a row group with this share of its rows left out, or less, takes longer than to read all of it.
const LEAST_DROPPED: f64 = 1.0 / 64.0;

/// Nanoseconds to read a row and to look up that it has no match, and to search for a scattered key: measured with 100,000,000 rows, of which a
/// packed tree has the keys.
const READ_ROW: f64 = 10.0;
const SEARCH_KEY: f64 = 10_000.0;

/// What it takes to probe once more.
#[derive(Debug, Clone)]
pub(crate) struct Prober {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The table's columns as the scan gives them.
    pub(crate) schema: SchemaRef,
    /// What reading a row of the scan costs.
    pub(crate) reading: ReadCost,
    /// What the scan probed already.
    pub(crate) predicate: Predicate,
    /// Whether answers may be taken from memory, and are kept there.
    pub(crate) use_cache: bool,
}

/// What the keys of a join ask of the index.
enum Asked {
    /// The rows that have one of them.
    Keys(Predicate),
    /// Nothing, as they are not all there, or leave nearly all rows, or no column has an index. What the filter says may be worth it.
    /// Also if so many joined rows are enough, and found by reading few.
    Filter { enough: Option<usize> },
}

/// What is left of a file.
#[derive(Clone)]
struct Kept {
    /// Its place in the snapshot.
    place: usize,
    /// Rows of each row group.
    row_groups: Arc<[u32]>,
    /// Rows that may pass.
    rows: Arc<RowSet>,
    /// The index gave the values of the other rows, so that none of these is read.
    is_told: bool,
}

/// Rows that may pass, by file.
pub(crate) struct Narrowing {
    files: HashMap<Path, Kept>,
    known: Arc<KnownFiles>,
    pub(crate) report: ProbeReport,
    /// Rows and row groups that were planned and are not read.
    pub(crate) rows: u64,
    pub(crate) row_groups: u64,
    /// Values of the only column, each with the number of its rows, in place of rows that are not read.
    pub(crate) told: Vec<ValueCounts>,
}

impl Prober {
    /// Probes with the filters as they are now, and with the keys of joins in the place of theirs; none if they say nothing that an index knows.
    /// Values in place of rows may take so many bytes of memory.
    pub(crate) async fn narrow(
        &self,
        filters: &[Arc<dyn PhysicalExpr>],
        keys: &HashMap<u64, Arc<BuildKeys>>,
        output: &Schema,
        most_bytes: u64,
    ) -> Result<Option<Narrowing>> {
        let (mut keyed, mut known, mut enough) = (Vec::new(), Vec::new(), None);
        for filter in filters {
            let keys = filter.expression_id().and_then(|filter| keys.get(&filter));
            let asked = match keys {
                Some(keys) => self.keyed(filter, keys, output, filters.len() == 1).await?,
                None => Asked::Filter { enough: None },
            };
            keys.iter().for_each(|keys| keys.told_one());
            match asked {
                Asked::Keys(asked) => keyed.push(asked),
                Asked::Filter { enough: rows } => {
                    enough = enough.into_iter().chain(rows).min();
                    // Bounds are not searched for where reading finds the rows soon: the reader itself goes by them.
                    if rows.is_none() || lists_keys(filter) {
                        known.extend(superset(filter, output));
                    }
                }
            }
        }
        let are_few = keyed.is_empty();
        keyed.push(translate(&known, &self.schema));
        let predicate = Predicate::And(keyed).simplify();
        if matches!(predicate, Predicate::Const(Truth::True)) || predicate.leaves().is_empty() {
            return Ok(None);
        }
        if let Some(narrowing) = self.told_alone(&predicate, output, most_bytes).await? {
            return Ok(Some(narrowing));
        }
        // Nobody asks for the same thousands of keys once more.
        let use_cache = self.use_cache && are_few;
        let reading = ReadCost { limit: enough.map(|rows| rows as f64), ..self.reading };
        let options = ProbeOptions { reading: Some(reading), use_cache, ..ProbeOptions::default() };
        let probe = self.snapshot.probe(&predicate, &options).await.map_err(to_engine)?;
        let told = self.told(&predicate, &probe, output).await?;
        Ok(Narrowing::to(&self.snapshot, probe, told))
    }

    /// Whether a scan gives one column alone of all rows, so that the index may tell its values.
    fn may_be_told(&self, output: &Schema) -> bool {
        output.fields().len() == 1 && matches!(self.predicate, Predicate::Const(Truth::True))
    }

    /// The test of the only column that a scan gives, so that the index may tell its values in place of rows that have the keys of a join.
    fn told_test<'a>(&self, asked: &'a Predicate, output: &Schema) -> Option<&'a Leaf> {
        let (Predicate::Leaf(leaf), [field]) = (asked, output.fields().as_ref()) else { return None };
        (leaf.column == *field.name() && self.may_be_told(output)).then_some(leaf)
    }

    /// Nothing is left to read where the index tells all values alone.
    async fn told_alone(&self, asked: &Predicate, output: &Schema, most_bytes: u64) -> Result<Option<Narrowing>> {
        let Some(leaf) = self.told_test(asked, output) else { return Ok(None) };
        let Some(nothing) = Narrowing::to_nothing(&self.snapshot) else { return Ok(None) };
        let tally = self.snapshot.tally_alone(leaf, most_bytes).await.map_err(to_engine)?;
        Ok(tally.map(|GroupCounts { parts, index_reads, index_bytes, .. }| {
            let report = ProbeReport { index_reads, index_bytes, ..ProbeReport::default() };
            Narrowing { report, told: parts, ..nothing }
        }))
    }

    /// What the index tells of rows that have the keys of a join, if a scan gives nothing but these keys: no data is read for them.
    async fn told(&self, asked: &Predicate, probe: &Probe, output: &Schema) -> Result<Option<GroupCounts>> {
        let Some(leaf) = self.told_test(asked, output) else { return Ok(None) };
        let columns = std::slice::from_ref(&leaf.column);
        let request = GroupCountRequest {
            columns,
            predicate: asked,
            files: &probe.files,
            sum_column: None,
            only_few_values: false,
        };
        self.snapshot.group_counts(&request).await.map(Some).map_err(to_engine)
    }

    /// What is left to read where only the first rows in some order are wanted; none if the index does not tell.
    pub(crate) async fn first_rows(&self, request: &TopKRequest) -> Result<Option<Narrowing>> {
        let options =
            ProbeOptions { reading: Some(self.reading), use_cache: self.use_cache, ..ProbeOptions::default() };
        let planned = self.snapshot.probe(&self.predicate, &options).await.map_err(to_engine)?;
        let cut = self.snapshot.top_k(&planned, request, &options).await.map_err(to_engine)?;
        Ok(cut.and_then(|cut| Narrowing::to(&self.snapshot, cut, None)))
    }

    /// That the columns of a join's filter have one of the keys. Beside other filters also keys that save nothing alone are asked for.
    async fn keyed(
        &self,
        filter: &Arc<dyn PhysicalExpr>,
        keys: &BuildKeys,
        output: &Schema,
        is_alone: bool,
    ) -> Result<Asked> {
        let enough = self.reads_little(filter, keys, output).await?;
        if enough.is_some() {
            return Ok(Asked::Filter { enough });
        }
        let Some(all) = keys.all()? else { return Ok(Asked::Filter { enough }) };
        let columns = filter.children().into_iter().map(|child| self.column(child, output));
        let known = columns.zip(&all).enumerate();
        let known = known.filter_map(|(place, (column, keys))| Some((place, column?, keys)));
        let (mut names, mut values, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (name, data_type), keys) in known {
            if let Some(held) = held(keys, data_type)? {
                names.push(name);
                values.push(held);
                places.push(place);
            }
        }
        let values = without_nulls(values)?;
        if let Some(together) = self.snapshot.composite_lookup(&names, &values) {
            return Ok(Asked::Keys(together));
        }
        let mut each = Vec::new();
        for ((name, held), place) in names.iter().zip(&values).zip(places) {
            // What the index tells in place of rows is worth it with any keys.
            if !self.may_be_told(output) && self.leave_too_much(name, keys, place, is_alone).await? {
                continue;
            }
            let Some(points) = encode_literals(&sorted(held)?) else { continue };
            let text = format!("{} is one of {} keys", column::display(name), held.len());
            let test = Test::Ranges(KeyRanges::points(points));
            each.push(Predicate::Leaf(Leaf { column: name.clone(), test, text }));
        }
        Ok(if each.is_empty() { Asked::Filter { enough } } else { Asked::Keys(Predicate::And(each)) })
    }

    /// How many joined rows are enough, if these are found sooner by reading than by a search for all keys.
    async fn reads_little(
        &self,
        filter: &Arc<dyn PhysicalExpr>,
        keys: &BuildKeys,
        output: &Schema,
    ) -> Result<Option<usize>> {
        let (Some(enough), Some(rows)) = (keys.enough, self.snapshot.rows()) else { return Ok(None) };
        for (place, child) in filter.children().into_iter().enumerate() {
            let Some((column, _)) = self.column(child, output) else { continue };
            let Some((sample, of)) = keys.sample(place)? else { return Ok(None) };
            let Ok(Some(values)) = self.snapshot.distinct_values(&column).await else { continue };
            let share = (different(&sample, of)? / (values as f64).max(1.0)).min(1.0);
            let read = enough as f64 / share.max(f64::MIN_POSITIVE);
            if read < rows as f64 && read * READ_ROW < of as f64 * SEARCH_KEY {
                return Ok(Some(enough));
            }
        }
        Ok(None)
    }

    /// Whether the keys leave so many rows, by their number alone, that to sort and to find them would save nothing.
    async fn leave_too_much(&self, column: &str, keys: &BuildKeys, place: usize, is_alone: bool) -> Result<bool> {
        let Ok(Some(values)) = self.snapshot.distinct_values(column).await else { return Ok(false) };
        let nearly_all = values as f64 * NEARLY_ALL;
        let Some((sample, rows)) = keys.sample(place)? else { return Ok(false) };
        let are_many = is_alone && rows >= MANY_KEYS;
        if !are_many && (rows as f64) < nearly_all {
            return Ok(false);
        }
        let different = different(&sample, rows)?;
        if different >= nearly_all {
            return Ok(true);
        }
        Ok(are_many && matches!(self.snapshot.may_be_worth(column, different, &self.reading).await, Ok(false)))
    }

    /// Whether an index may know a column of a filter.
    pub(crate) fn knows_any(&self, filter: &Arc<dyn PhysicalExpr>, output: &Schema) -> bool {
        filter.children().into_iter().any(|child| self.column(child, output).is_some())
    }

    /// The column of the table that an expression over the scan's columns has the values of, and its type.
    fn column<'a>(&'a self, expr: &Arc<dyn PhysicalExpr>, output: &Schema) -> Option<(String, &'a DataType)> {
        let plain = match expr.downcast_ref::<physical::CastExpr>() {
            Some(cast) if cast.cast_type().is_integer() => cast.expr(),
            _ => expr,
        };
        let column = plain.downcast_ref::<physical::Column>()?;
        let name = output.fields().get(column.index()).filter(|field| self.snapshot.is_indexed(field.name()))?.name();
        let data_type = type_of(&self.schema, name)?;
        let is_whole = Arc::ptr_eq(plain, expr) || data_type.is_integer();
        (is_whole && !data_type.is_floating()).then(|| (name.clone(), data_type))
    }
}

/// Keys that are sorted far sooner as values of their type than once they are encoded, which keeps their order.
fn sorted(keys: &ArrayRef) -> Result<ArrayRef> {
    Ok(if keys.data_type().is_primitive() { sort(keys, None)? } else { Arc::clone(keys) })
}

/// The keys as values of a column; those that its type does not have are in no row. None of keys of another kind.
fn held(keys: &ArrayRef, data_type: &DataType) -> Result<Option<ArrayRef>> {
    if keys.data_type() == data_type {
        return Ok(Some(Arc::clone(keys)));
    }
    let are_integers = keys.data_type().is_integer() && data_type.is_integer();
    let options = CastOptions { safe: true, ..CastOptions::default() };
    Ok(if are_integers { Some(cast_with_options(keys, data_type, &options)?) } else { None })
}

impl Narrowing {
    /// To no row of any file; none if there is a file whose row groups are not known.
    fn to_nothing(snapshot: &Snapshot) -> Option<Self> {
        let left = snapshot.files().iter().enumerate().map(|(place, file)| {
            let row_groups: Arc<[u32]> = file.row_groups.as_deref()?.into();
            let rows = Arc::new(RowSet::empty(row_groups.iter().sum()));
            Some((file.meta.location.clone(), Kept { place, row_groups, rows, is_told: true }))
        });
        let (files, known) = (left.collect::<Option<_>>()?, KnownFiles::of(snapshot));
        Some(Self { files, known, report: ProbeReport::default(), rows: 0, row_groups: 0, told: Vec::new() })
    }

    /// To the rows that a probe leaves; none if it knows no file. Of certain rows that the index tells none is read; a tally says nothing of
    /// uncertain ones.
    fn to(snapshot: &Snapshot, probe: Probe, told: Option<GroupCounts>) -> Option<Self> {
        let GroupCounts { answered, parts, index_reads, index_bytes } = told.unwrap_or_default();
        let mut files = HashMap::new();
        for (place, (file, found)) in snapshot.files().iter().zip(probe.files).enumerate() {
            if let FileProbe::Known { row_groups, certain, uncertain } = found {
                let is_told = answered.get(place) == Some(&true);
                let read = if is_told { uncertain } else { certain.or(&uncertain) };
                let kept = Kept { place, row_groups: row_groups.into(), rows: Arc::new(read), is_told };
                files.insert(file.meta.location.clone(), kept);
            }
        }
        let mut report = probe.report;
        report.index_reads += index_reads;
        report.index_bytes += index_bytes;
        let known = KnownFiles::of(snapshot);
        (!files.is_empty()).then_some(Self { files, known, report, rows: 0, row_groups: 0, told: parts })
    }

    /// The same scan of fewer rows, which as many partitions share evenly.
    pub(crate) fn apply(&mut self, plan: &Arc<dyn ExecutionPlan>, footers: &Footers) -> Result<Arc<dyn ExecutionPlan>> {
        if let [child] = plan.children().as_slice() {
            let below = self.apply(child, footers)?;
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            return Arc::clone(plan).replace_children(vec![below], options);
        }
        let (config, _) = plan
            .downcast_ref::<DataSourceExec>()
            .and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>)
            .ok_or_else(|| internal_datafusion_err!("{} is no scan of Parquet files", plan.name()))?;
        let mut narrowed = config.clone();
        narrowed.file_groups = self.groups(std::mem::take(&mut narrowed.file_groups), footers);
        Ok(DataSourceExec::from_data_source(narrowed))
    }

    /// What is left of files, in as many groups. Files of which nothing is known stay in theirs.
    fn groups(&mut self, groups: Vec<FileGroup>, footers: &Footers) -> Vec<FileGroup> {
        let partitions = groups.len().max(1);
        let (mut others, mut left, mut ranged) = (Vec::with_capacity(partitions), Vec::new(), HashSet::new());
        for group in groups {
            let mut own = Vec::new();
            for mut file in group.into_inner() {
                let Some((planned, kept)) = self.planned(&file) else {
                    own.push(file);
                    continue;
                };
                // A file that is cut into byte ranges comes once for each of them, with the same rows.
                if file.range.take().is_none() || ranged.insert(file.object_meta.location.clone()) {
                    let (plan, dropped) = narrowed(planned, &kept);
                    self.rows += dropped.0;
                    self.row_groups += dropped.1;
                    let pages = self.known.pages_of(kept.place, &file.object_meta, &kept.row_groups, footers);
                    left.push((file, FileAccess { plan, row_groups: kept.row_groups, pages }));
                }
            }
            others.push(own);
        }
        let mut shared = share(left, partitions).into_iter();
        let with_share = |own: Vec<PartitionedFile>| {
            let share = shared.next().map(FileGroup::into_inner).unwrap_or_default();
            FileGroup::new(own.into_iter().chain(share).collect())
        };
        others.into_iter().map(with_share).collect()
    }

    /// What was planned to be read of a file, and what is left of it; none if nothing is known of it.
    fn planned(&self, file: &PartitionedFile) -> Option<(ParquetAccessPlan, Kept)> {
        let kept = self.files.get(&file.object_meta.location)?;
        let planned = match file.extension::<ParquetAccessPlan>() {
            Some(plan) => (plan.len() == kept.row_groups.len()).then(|| plan.clone())?,
            None => ParquetAccessPlan::new_all(kept.row_groups.len()),
        };
        Some((planned, kept.clone()))
    }
}

/// What is left of a plan by these rows, and how many rows and row groups are not.
fn narrowed(planned: ParquetAccessPlan, kept: &Kept) -> (ParquetAccessPlan, (u64, u64)) {
    let mut left = Vec::with_capacity(kept.row_groups.len());
    let (mut rows, mut groups, mut start) = (0, 0, 0u32);
    for (access, length) in planned.into_inner().into_iter().zip(kept.row_groups.iter()) {
        let end = start.saturating_add(*length);
        let of_group = kept.rows.slice(start, end);
        // Nobody has to leave these rows out: whoever has the filter does.
        let is_worth = kept.is_told || (*length - of_group.len()) as f64 >= f64::from(*length) * LEAST_DROPPED;
        let (access, dropped) = if is_worth { intersect(access, &of_group) } else { (access, 0) };
        rows += dropped;
        groups += u64::from(access == RowGroupAccess::Skip && dropped > 0);
        left.push(access);
        start = end;
    }
    (ParquetAccessPlan::new(left), (rows, groups))
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

/// Whether a filter says something when the query runs that it did not say when it was planned.
pub(crate) fn is_known_late(filter: &Arc<dyn PhysicalExpr>) -> bool {
    let is_late = |part: &Arc<dyn PhysicalExpr>| Ok(part.is::<ScalarSubqueryExpr>());
    filter.is::<DynamicFilterPhysicalExpr>() || filter.exists(is_late).unwrap_or(false)
}

/// Whether the filter of a join lists its keys, and not their bounds alone.
fn lists_keys(filter: &Arc<dyn PhysicalExpr>) -> bool {
    let is_list = |part: &Arc<dyn PhysicalExpr>| Ok(part.is::<physical::InListExpr>());
    let dynamic = filter.downcast_ref::<DynamicFilterPhysicalExpr>();
    dynamic.is_some_and(|dynamic| dynamic.current().is_ok_and(|now| now.exists(is_list).unwrap_or(false)))
}

/// The value of an expression without columns, such as one over what a subquery gave; none if it has none yet.
fn value(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    if !collect_columns(expr).is_empty() || is_volatile(expr) {
        return None;
    }
    let one_row = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &one_row).ok()?;
    match expr.evaluate(&row).ok()? {
        ColumnarValue::Scalar(value) => Some(value),
        ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0).ok(),
    }
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
        return Some(expression(field.name()));
    }
    if let Some((column, names)) = access_of(expr) {
        let root = output.fields().get(column.index())?.name().as_str();
        let name = column::join([root].into_iter().chain(names.iter().map(String::as_str)));
        return type_of(output, &name).filter(|data_type| !data_type.is_floating()).map(|_| expression(&name));
    }
    if let Some(value) = value(expr) {
        return Some(lit(value));
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
