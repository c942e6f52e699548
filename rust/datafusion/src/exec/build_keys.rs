//! The keys of a join's build side, kept as they pass on their way into its hash table.
//!
//! ```text
//! HashJoinExec: on=[(d.key, f.key)]             HashJoinExec: on=[(d.key, f.key)]
//!   d                                  ─▶         BuildKeysExec: keys=[key]
//!   LakemarkScanExec: f, filter 7                   d
//!                                                 LakemarkScanExec: f, filter 7 ─ probes these keys
//! ```
//!
//! Of more than some keys the engine's own filter names the least and the greatest alone. The scan on the other side probes the index for
//! all of them (see [`crate::exec::dynamic_filters`]). It takes them as arrays, since literals of an expression would take longer than the
//! search. A scan that begins before the last batch has passed gets no keys, and goes by the filter.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::{and, concat, filter, is_not_null, take};
use arrow::datatypes::DataType;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_datafusion_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions, apply_expression_roots,
};
use futures::StreamExt;

/// More rows than this are not kept.
pub(crate) const MOST_ROWS: usize = 1 << 20;
/// Nor more bytes, or more than a share of the session's memory: the join needs it, too.
const MOST_BYTES: usize = 64 << 20;
const LEAST_SHARE: usize = 16;
/// Nor any once more than this share of the memory is taken: the join needs as much again for its table.
const MOST_TAKEN: usize = 3;
/// Keys of the sample that estimates how many are different.
const SAMPLED_KEYS: usize = 4096;
/// Of so few rows the engine's filter names the keys itself.
const FEW_ROWS: usize = 150;

/// The keys of a build side that passed.
#[derive(Debug)]
pub(crate) struct BuildKeys {
    /// The expressions of the keys, over the build side's columns.
    on: Vec<Arc<dyn PhysicalExpr>>,
    passed: Mutex<BuildSide>,
    /// How many scans have still to take the keys.
    scans: AtomicUsize,
    /// Rows of the join that are enough, if not all are needed.
    pub(crate) enough: Option<usize>,
}

#[derive(Debug)]
enum BuildSide {
    /// `to_come` partitions were not executed yet, and `open` ones have not ended.
    Some {
        to_come: usize,
        open: usize,
        kept: KeptKeys,
    },
    All(KeptKeys),
    /// The keys are too many, of an execution that is not the first, or no longer needed.
    Nothing,
}

#[derive(Debug, Default)]
struct KeptKeys {
    /// For each batch an array for each key.
    batches: Vec<Vec<ArrayRef>>,
    rows: usize,
    /// What they take of the memory of a session.
    memory: Option<KeptMemory>,
}

/// Memory of a session that is taken.
#[derive(Debug)]
struct KeptMemory {
    /// The pool that it is from.
    pool: Arc<dyn MemoryPool>,
    /// How much it is.
    taken: MemoryReservation,
}

/// Some of the values of a key.
pub(crate) struct KeySample {
    /// The sampled values.
    pub(crate) values: ArrayRef,
    /// Of how many rows.
    pub(crate) rows: usize,
}

/// The build side of a join, and what will have its keys.
pub(crate) struct BuildSideKeys {
    /// Hands the rows on.
    pub(crate) build_side: BuildKeysExec,
    /// Has the keys once all rows have passed.
    pub(crate) keys: Arc<BuildKeys>,
}

impl BuildKeys {
    fn new(on: Vec<Arc<dyn PhysicalExpr>>, partitions: usize) -> Self {
        let none = BuildSide::Some { to_come: partitions, open: 0, kept: KeptKeys::default() };
        Self { on, passed: Mutex::new(none), scans: AtomicUsize::new(0), enough: None }
    }

    /// An array for each key with a value for each row that has all of them; none before all have passed, and none of so few rows that the
    /// engine's own filter names the keys.
    pub(crate) fn all(&self) -> Result<Option<Vec<ArrayRef>>> {
        let are_few = self.on.len() == 1 && self.rows().is_some_and(|rows| rows <= FEW_ROWS);
        if are_few { Ok(None) } else { self.whole() }
    }

    /// An array for each key with a value for each row that has all of them; none before all have passed, and none of no rows.
    pub(crate) fn whole(&self) -> Result<Option<Vec<ArrayRef>>> {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let BuildSide::All(kept) = &*passed else { return Ok(None) };
        if kept.rows == 0 {
            return Ok(None);
        }
        let one = |key: usize| {
            let parts: Vec<&dyn Array> =
                kept.batches.iter().filter_map(|batch| Some(batch.get(key)?.as_ref())).collect();
            concat(&parts)
        };
        // What is too long for one array is left to the join.
        let Ok(keys) = (0..self.on.len()).map(one).collect::<Result<Vec<_>, _>>() else { return Ok(None) };
        without_nulls(keys).map(Some)
    }

    /// How many rows have passed; none before that are all.
    pub(crate) fn rows(&self) -> Option<usize> {
        match &*self.passed.lock().unwrap_or_else(PoisonError::into_inner) {
            BuildSide::All(kept) => Some(kept.rows),
            BuildSide::Some { .. } | BuildSide::Nothing => None,
        }
    }

    /// Some of the values of a key, one from anywhere in each stretch of so many rows; none before all have passed.
    pub(crate) fn sample(&self, key: usize) -> Result<Option<KeySample>> {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let BuildSide::All(kept) = &*passed else { return Ok(None) };
        let stretch = kept.rows.div_ceil(SAMPLED_KEYS).max(1) as u64;
        // Keys that count up in some way would be different in any regular steps.
        let anywhere = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % stretch;
        let mut places = (0..).map(|number| number * stretch + anywhere(number)).peekable();
        let (mut parts, mut first) = (Vec::new(), 0);
        for values in kept.batches.iter().filter_map(|batch| batch.get(key)) {
            let end = first + values.len() as u64;
            let within = std::iter::from_fn(|| places.next_if(|place| *place < end)).map(|place| place - first);
            parts.push(take(values, &within.collect::<UInt64Array>(), None)?);
            first = end;
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(if parts.is_empty() { None } else { Some(KeySample { values: concat(&parts)?, rows: kept.rows }) })
    }

    /// Drops the keys once the last scan has taken them.
    pub(crate) fn remove_reader(&self) {
        if self.scans.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.change(|_| BuildSide::Nothing);
        }
    }

    /// One more scan is to take the keys.
    pub(crate) fn add_reader(&self) {
        self.scans.fetch_add(1, Ordering::AcqRel);
    }

    fn change(&self, change: impl FnOnce(BuildSide) -> BuildSide) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        *passed = change(std::mem::replace(&mut *passed, BuildSide::Nothing));
    }

    fn begin(&self, context: &TaskContext) {
        self.change(|passed| match passed {
            BuildSide::Some { to_come, open, mut kept } if to_come > 0 => {
                kept.within(context);
                BuildSide::Some { to_come: to_come - 1, open: open + 1, kept }
            }
            // Other rows may pass the second time.
            _ => BuildSide::Nothing,
        });
    }

    fn pass(&self, batch: &RecordBatch) -> Result<()> {
        if matches!(*self.passed.lock().unwrap_or_else(PoisonError::into_inner), BuildSide::Nothing) {
            return Ok(());
        }
        let keys = self.on.iter().map(|key| Ok(compact(key.evaluate(batch)?.into_array(batch.num_rows())?)));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        self.change(|passed| match passed {
            BuildSide::Some { to_come, open, mut kept } => match kept.add(keys, batch.num_rows()) {
                true => BuildSide::Some { to_come, open, kept },
                false => BuildSide::Nothing,
            },
            _ => BuildSide::Nothing,
        });
        Ok(())
    }

    fn end(&self) {
        self.change(|passed| match passed {
            BuildSide::Some { to_come: 0, open: 1, kept } => BuildSide::All(kept),
            BuildSide::Some { to_come, open, kept } => BuildSide::Some { to_come, open: open.saturating_sub(1), kept },
            other => other,
        });
    }
}

impl KeptKeys {
    /// Reserves from the memory of a session.
    fn within(&mut self, context: &TaskContext) {
        let pool = context.memory_pool();
        let reservation = || MemoryConsumer::new("BuildKeysExec").register(pool);
        self.memory.get_or_insert_with(|| KeptMemory { pool: Arc::clone(pool), taken: reservation() });
    }

    /// Adds the keys of a batch; false if all are too many, or the session has no memory for them.
    fn add(&mut self, keys: Vec<ArrayRef>, rows: usize) -> bool {
        let bytes: usize = keys.iter().map(|key| key.get_array_memory_size()).sum();
        self.rows += rows;
        self.batches.push(keys);
        let Some(KeptMemory { pool, taken }) = &self.memory else { return false };
        let (most_bytes, is_short) = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => (MOST_BYTES.min(limit / LEAST_SHARE), pool.reserved() > limit / MOST_TAKEN),
            MemoryLimit::Infinite | MemoryLimit::Unknown => (MOST_BYTES, false),
        };
        let fits = self.rows <= MOST_ROWS && taken.size() + bytes <= most_bytes;
        !is_short && fits && taken.try_grow(bytes).is_ok()
    }
}

/// Keys with bytes of their own: a view may keep those of whole batches in memory.
fn compact(keys: ArrayRef) -> ArrayRef {
    match keys.data_type() {
        DataType::Utf8View => Arc::new(keys.as_string_view().gc()),
        DataType::BinaryView => Arc::new(keys.as_binary_view().gc()),
        _ => keys,
    }
}

/// An estimate of how many different keys there are among so many rows, rather too low than too high. It goes by how many keys of the
/// sample come once and twice (Chao 1984, "Nonparametric estimation of the number of classes in a population", in the form that corrects
/// the bias).
pub(crate) fn different(sample: &ArrayRef, rows: usize) -> Result<f64> {
    let mut hashes = vec![0; sample.len()];
    create_hashes([sample], &RandomState::default(), &mut hashes)?;
    let mut times: HashMap<u64, u32> = HashMap::new();
    for hash in hashes {
        *times.entry(hash).or_default() += 1;
    }
    let come = |often: u32| times.values().filter(|times| **times == often).count() as f64;
    let (once, twice) = (come(1), come(2));
    let unseen = once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0));
    Ok((times.len() as f64 + unseen).min(rows as f64))
}

/// Rows of which no key is NULL: others are equal to none.
pub(crate) fn without_nulls(keys: Vec<ArrayRef>) -> Result<Vec<ArrayRef>> {
    let mut whole: Option<BooleanArray> = None;
    for key in keys.iter().filter(|key| key.logical_null_count() > 0) {
        let held = is_not_null(key)?;
        whole = Some(whole.map_or(Ok(held.clone()), |others| and(&others, &held))?);
    }
    match whole {
        None => Ok(keys),
        Some(whole) => Ok(keys.iter().map(|key| filter(key, &whole)).collect::<Result<_, _>>()?),
    }
}

/// Hands on the build side of a join, and keeps its keys.
#[derive(Debug)]
pub(crate) struct BuildKeysExec {
    input: Arc<dyn ExecutionPlan>,
    on: Vec<Arc<dyn PhysicalExpr>>,
    /// None in an execution whose keys no scan takes.
    keys: Option<Arc<BuildKeys>>,
}

impl BuildKeysExec {
    /// Over the build side of a join on these expressions. `enough` is the number of rows of the join that are enough, if not all are
    /// needed.
    pub(crate) fn over(
        input: Arc<dyn ExecutionPlan>,
        on: Vec<Arc<dyn PhysicalExpr>>,
        enough: Option<usize>,
    ) -> BuildSideKeys {
        let partitions = input.output_partitioning().partition_count();
        let keys = Arc::new(BuildKeys { enough, ..BuildKeys::new(on.clone(), partitions) });
        BuildSideKeys { build_side: Self { input, on, keys: Some(Arc::clone(&keys)) }, keys }
    }

    fn with_input(&self, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<Self> {
        let input = inputs.into_iter().next().ok_or_else(|| internal_datafusion_err!("BuildKeysExec has an input"))?;
        Ok(Self { input, on: self.on.clone(), keys: self.keys.clone() })
    }
}

impl DisplayAs for BuildKeysExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.on.iter().map(ToString::to_string).collect();
        write!(f, "BuildKeysExec: keys=[{}]", keys.join(", "))
    }
}

impl ExecutionPlan for BuildKeysExec {
    fn name(&self) -> &'static str {
        "BuildKeysExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_input(inputs)?))
    }

    fn with_new_children(self: Arc<Self>, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(&self.on, visit)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        // The scan on the other side forgets its filters, too.
        Ok(Arc::new(Self { input: Arc::clone(&self.input), on: self.on.clone(), keys: None }))
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(keys) = self.keys.clone() else { return self.input.execute(partition, context) };
        keys.begin(&context);
        let rows = self.input.execute(partition, context)?;
        let kept = Arc::clone(&keys);
        let passing = rows.map(move |batch| {
            let batch = batch?;
            kept.pass(&batch)?;
            Ok(batch)
        });
        let ended = futures::stream::poll_fn(move |_| {
            keys.end();
            std::task::Poll::Ready(None)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.input.schema(), passing.chain(ended))))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        inputs.first().cloned().ok_or_else(|| internal_datafusion_err!("BuildKeysExec has an input"))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn sampled(batches: Vec<ArrayRef>) -> f64 {
        let mut kept = KeptKeys { rows: batches.iter().map(|batch| batch.len()).sum(), ..KeptKeys::default() };
        kept.batches = batches.into_iter().map(|batch| vec![batch]).collect();
        let keys = BuildKeys { passed: Mutex::new(BuildSide::All(kept)), ..BuildKeys::new(Vec::new(), 1) };
        let KeySample { values, rows } = keys.sample(0).unwrap().unwrap();
        assert!(
            values.len() <= SAMPLED_KEYS && values.len() >= rows.min(SAMPLED_KEYS / 2),
            "{} of {rows}",
            values.len()
        );
        different(&values, rows).unwrap()
    }

    #[test]
    fn a_sample_estimates_how_many_keys_are_different() {
        let keys = |rows: std::ops::Range<i64>, of: fn(i64) -> i64| {
            Arc::new(Int64Array::from_iter_values(rows.map(of))) as ArrayRef
        };
        assert_eq!(sampled(vec![keys(0..0, |key| key)]), 0.0);
        assert_eq!(sampled(vec![keys(0..100, |key| key)]), 100.0);
        assert_eq!(sampled(vec![keys(0..60_000, |key| key * 7), keys(60_000..100_000, |key| key * 7)]), 100_000.0);
        assert_eq!(sampled(vec![keys(0..100_000, |_| 5)]), 1.0);
        let batches = (0..128).map(|batch| keys(batch * 8_192..(batch + 1) * 8_192, |key| key * 7_919 % 10_007));
        let about = sampled(batches.collect());
        assert!((5_000.0..20_000.0).contains(&about), "{about}");
        let texts = StringArray::from_iter_values((0..8_192).map(|key| format!("key {}", key / 8_192)));
        assert_eq!(sampled(vec![Arc::new(texts)]), 1.0);
    }
}
