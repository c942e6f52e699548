//! The first rows of an operator, which are held in memory, and whatever comes after them.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::concat;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt, stream};

/// No more rows than these, or one batch more, are held.
pub(crate) const MOST_ROWS: usize = 1 << 16;
/// Nor more bytes.
const MOST_BYTES: usize = 16 << 20;

/// The first rows of an operator.
pub(super) struct Collected {
    properties: Arc<PlanProperties>,
    /// By partition.
    parts: Vec<Part>,
    /// Whether there are no other rows.
    pub(super) is_whole: bool,
    /// What the rows take of the session's memory.
    memory: MemoryReservation,
}

/// The rows of a partition.
#[derive(Default)]
struct Part {
    held: Vec<RecordBatch>,
    /// The rows that come after them.
    rest: Option<SendableRecordBatchStream>,
}

/// The rows of a partition among those of others.
struct OfPartition {
    partition: usize,
    rows: SendableRecordBatchStream,
}

impl Stream for OfPartition {
    type Item = (usize, Result<RecordBatch>);

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let partition = this.partition;
        this.rows.poll_next_unpin(context).map(|polled| polled.map(|batch| (partition, batch)))
    }
}

impl Collected {
    /// Takes rows of all partitions until there are no others, or too many to be held.
    pub(super) async fn of(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<Self> {
        let partitions = plan.output_partitioning().partition_count();
        let open = |partition| Ok(OfPartition { partition, rows: plan.execute(partition, Arc::clone(context))? });
        let mut rows = stream::select_all((0..partitions).map(open).collect::<Result<Vec<_>>>()?);
        let memory = MemoryConsumer::new("IndexJoinExec").register(context.memory_pool());
        let mut parts: Vec<Part> = (0..partitions).map(|_| Part::default()).collect();
        let (mut row_count, mut is_whole) = (0, true);
        while let Some((partition, batch)) = rows.next().await {
            let batch = batch?;
            row_count += batch.num_rows();
            let fits = row_count <= MOST_ROWS && memory.size() + batch.get_array_memory_size() <= MOST_BYTES;
            is_whole = fits && memory.try_grow(batch.get_array_memory_size()).is_ok();
            if let Some(part) = parts.get_mut(partition) {
                part.held.push(batch);
            }
            if !is_whole {
                break;
            }
        }
        for OfPartition { partition, rows } in rows {
            if let Some(part) = parts.get_mut(partition) {
                part.rest = Some(rows);
            }
        }
        Ok(Self { properties: Arc::clone(plan.properties()), parts, is_whole, memory })
    }

    /// The values of an expression over the rows that are held; none if they are too long for one array.
    pub(super) fn values(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<ArrayRef>> {
        let batches = self.parts.iter().flat_map(|part| &part.held);
        let values = batches.map(|batch| expr.evaluate(batch)?.into_array(batch.num_rows()));
        let values = values.collect::<Result<Vec<_>>>()?;
        let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        if values.is_empty() {
            return Ok(Some(new_empty_array(&expr.data_type(self.properties.equivalence_properties().schema())?)));
        }
        Ok(concat(&values).ok())
    }
}

/// Gives rows that were taken of an operator, in the partitions that they were in, and the rows that come after them. Each partition is
/// given once.
pub(super) struct CollectedExec {
    properties: Arc<PlanProperties>,
    parts: Mutex<Vec<Option<Part>>>,
    memory: Arc<MemoryReservation>,
}

impl From<Collected> for CollectedExec {
    fn from(collected: Collected) -> Self {
        let Collected { properties, parts, memory, .. } = collected;
        Self { properties, parts: Mutex::new(parts.into_iter().map(Some).collect()), memory: Arc::new(memory) }
    }
}

impl fmt::Debug for CollectedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectedExec").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl DisplayAs for CollectedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CollectedExec")
    }
}

impl ExecutionPlan for CollectedExec {
    fn name(&self) -> &'static str {
        "CollectedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("CollectedExec is a leaf") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Part { held, rest }) = parts.get_mut(partition).and_then(Option::take) else {
            return internal_err!("CollectedExec has no rows of partition {partition}, or gave them already");
        };
        let memory = Arc::clone(&self.memory);
        let rest = match rest {
            Some(rest) => rest.left_stream(),
            None => stream::empty().right_stream(),
        };
        let rows = stream::iter(held.into_iter().map(Ok)).chain(rest).inspect(move |_| {
            // The rows take it as long as somebody may ask for more.
            let _held = &memory;
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::DataType;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::collect_partitioned;

    use super::*;

    /// Partitions of batches of a column `n` with so many rows each.
    fn plan(partitions: &[Vec<usize>]) -> Arc<dyn ExecutionPlan> {
        let batch = |rows: &usize| {
            let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..*rows as i64));
            RecordBatch::try_from_iter([("n", n)]).unwrap()
        };
        let batches: Vec<Vec<RecordBatch>> = partitions.iter().map(|rows| rows.iter().map(batch).collect()).collect();
        MemorySourceConfig::try_new_exec(&batches, batch(&0).schema(), None).unwrap()
    }

    fn counted(partitions: &[Vec<RecordBatch>]) -> Vec<usize> {
        partitions.iter().map(|batches| batches.iter().map(RecordBatch::num_rows).sum()).collect()
    }

    #[tokio::test]
    async fn all_rows_are_given_once_however_many_are_held() {
        for (partitions, is_whole) in [
            (vec![vec![3, 4], vec![], vec![5]], true),
            (vec![vec![MOST_ROWS]], true),
            (vec![vec![MOST_ROWS, 1, 7, 9], vec![2, 2, 2]], false),
            (vec![vec![10, 10], vec![1, MOST_ROWS, 3]], false),
        ] {
            let (plan, context) = (plan(&partitions), Arc::new(TaskContext::default()));
            let collected = Collected::of(&plan, &context).await.unwrap();
            assert_eq!(collected.is_whole, is_whole, "{partitions:?}");
            let given: Arc<dyn ExecutionPlan> = Arc::new(CollectedExec::from(collected));
            let rows = collect_partitioned(Arc::clone(&given), Arc::clone(&context)).await.unwrap();
            let expected: Vec<usize> = partitions.iter().map(|rows| rows.iter().sum()).collect();
            assert_eq!(counted(&rows), expected);
            assert!(given.execute(0, context).is_err(), "rows are given once");
        }
    }

    #[tokio::test]
    async fn rows_that_the_session_has_no_memory_for_are_not_waited_for() {
        let pool = Arc::new(GreedyMemoryPool::new(1000));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
        let context = Arc::new(TaskContext::default().with_runtime(runtime));
        let collected = Collected::of(&plan(&[vec![500, 500, 500]]), &context).await.unwrap();
        assert!(!collected.is_whole);
        let given: Arc<dyn ExecutionPlan> = Arc::new(CollectedExec::from(collected));
        assert_eq!(counted(&collect_partitioned(given, context).await.unwrap()), [1500]);
    }

    #[tokio::test]
    async fn values_are_those_of_all_rows_that_are_held() {
        let context = Arc::new(TaskContext::default());
        for (partitions, expected) in [(vec![vec![2, 1], vec![3]], 6), (vec![vec![]], 0)] {
            let plan = plan(&partitions);
            let n: Arc<dyn PhysicalExpr> = col("n", &plan.schema()).unwrap();
            let values = Collected::of(&plan, &context).await.unwrap().values(&n).unwrap().unwrap();
            assert_eq!((values.len(), values.null_count()), (expected, 0));
            assert_eq!(*values.data_type(), DataType::Int64);
        }
    }
}
