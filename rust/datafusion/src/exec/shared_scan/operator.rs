//! In place of a scan of Parquet files: the same rows, from pages that other scans take as well, or read alone.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::{fmt, mem};

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};

use super::reader::PieceReader;
use crate::share::passes::arrivals::{Arrival, Place};
use crate::share::passes::driven::DrivenRows;
use crate::share::passes::pass::OpensDecoder;
use crate::share::passes::pass_metrics::PassMetrics;
use crate::share::passes::scans::{Given, MakesDecoder, ScanPartition, ScanRequest, SharedScan, SharedScans};
use crate::share::passes::unit::{UnitKey, UnitReading};
use crate::share::prediction::{Piece, PieceGroup};
use crate::share::registry::PlanSharing;
use crate::share::stars::group::StarQuery;
use crate::share::stars::keys::StarKeys;

/// After so many pages that gave no batch others get their turn.
const PAGES_OF_A_TURN: usize = 16;

/// A scan whose pieces are shared.
struct SharedPieces {
    reader: Arc<PieceReader>,
    /// How all of its units are read; none if it reads nothing.
    reading: Option<Arc<UnitReading>>,
    row_groups: usize,
    scans: Arc<SharedScans<UnitKey>>,
    partitions: usize,
    metrics: PassMetrics,
    is_star: bool,
    /// What it begins with, until then.
    start: Mutex<ScanStart>,
    /// What the partitions take from, once one of them was polled: others would decode for a scan that nobody polls. Its rows come once: who
    /// executes a plan again resets it before, as DataFusion's own scans want it.
    begun: OnceLock<Arc<SharedScan<UnitKey>>>,
}

/// What a scan begins with.
#[derive(Default)]
struct ScanStart {
    pieces: Vec<(UnitKey, Piece)>,
    /// The keys of its joins.
    stars: Vec<StarKeys>,
    /// That it is on the way.
    arrival: Option<Arrival>,
}

impl SharedPieces {
    fn partition(&self, context: &Arc<TaskContext>) -> ScanPartition<UnitKey> {
        let begin = || {
            let start = mem::take(&mut *self.start.lock().unwrap_or_else(PoisonError::into_inner));
            let decoder = decoder(&self.reader, context);
            let (partitions, metrics) = (self.partitions, self.metrics.clone());
            let star = self.star(start.stars, &start.pieces, context);
            let place = self.reading.as_ref().map(|reading| Place::of(&reading.store, context));
            let (memory, arrival) = (context.memory_pool(), start.arrival);
            let request = ScanRequest { partitions, decoder, memory, metrics, star, place, arrival };
            self.scans.scan(start.pieces, request)
        };
        self.begun.get_or_init(begin).partition()
    }

    /// The scan as a star query, if it is one.
    fn star(&self, keys: Vec<StarKeys>, pieces: &[(UnitKey, Piece)], context: &TaskContext) -> Option<Arc<StarQuery>> {
        let reading = self.reading.as_ref().filter(|_| !keys.is_empty())?;
        let sharing = PlanSharing::of(context.session_config());
        let group = sharing.stars().of(reading, context.memory_pool());
        let rows = pieces.iter().map(|(_, piece)| u64::from(piece.most_rows())).sum();
        group.query(keys, rows, self.scans.terms())
    }

    /// What gathers rows of pages into batches that are worth their operators, if chains may leave few of each page.
    fn gathered(&self) -> Option<BatchCoalescer> {
        let reading = self.reading.as_ref().filter(|_| self.is_star)?;
        let rows = reading.batch_rows.max(1);
        let gathered = BatchCoalescer::new(Arc::clone(self.reader.schema()), rows);
        Some(gathered.with_biggest_coalesce_batch_size(Some(rows / 2)))
    }
}

/// How passes are decoded that a scan begins.
fn decoder(reader: &Arc<PieceReader>, context: &Arc<TaskContext>) -> MakesDecoder<UnitKey> {
    let (reader, context) = (Arc::clone(reader), Arc::clone(context));
    Arc::new(move |unit: &UnitKey, group: &PieceGroup| -> OpensDecoder {
        let (reader, context, unit) = (Arc::clone(&reader), Arc::clone(&context), unit.clone());
        let (rows, places) = (group.rows.clone(), group.columns.keys().copied().collect());
        Box::new(move || DrivenRows::open(&unit.file.reading.driver, || reader.decoded(&unit, &rows, places, &context)))
    })
}

/// What a scan of files reads, and with whom.
pub(super) struct SharedScanParts {
    pub(super) reader: PieceReader,
    pub(super) pieces: Vec<(UnitKey, Piece)>,
    /// The keys of the joins above.
    pub(super) stars: Vec<StarKeys>,
    pub(super) metrics: PassMetrics,
    /// That it is on the way.
    pub(super) arrival: Option<Arrival>,
}

/// The rows of a scan of files. Its partitions take pieces as they come to them.
pub(super) struct SharedPagesExec {
    /// The scan in whose place it is.
    own: Arc<dyn ExecutionPlan>,
    shared: Arc<SharedPieces>,
    properties: Arc<PlanProperties>,
}

impl SharedPagesExec {
    pub(super) fn new(own: Arc<dyn ExecutionPlan>, parts: SharedScanParts, context: &TaskContext) -> Self {
        let SharedScanParts { reader, pieces, stars, metrics, arrival } = parts;
        let partitions = own.output_partitioning().partition_count();
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(own.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let scans = Arc::clone(PlanSharing::of(context.session_config()).scans());
        let shared = SharedPieces {
            reader: Arc::new(reader),
            reading: pieces.first().map(|(unit, _)| Arc::clone(&unit.file.reading)),
            row_groups: pieces.len(),
            scans,
            partitions,
            metrics,
            is_star: !stars.is_empty(),
            start: Mutex::new(ScanStart { pieces, stars, arrival }),
            begun: OnceLock::new(),
        };
        Self { own, shared: Arc::new(shared), properties }
    }
}

impl fmt::Debug for SharedPagesExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPagesExec").field("own", &self.own).finish_non_exhaustive()
    }
}

impl DisplayAs for SharedPagesExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedPagesExec: row_groups={}", self.shared.row_groups)
    }
}

impl ExecutionPlan for SharedPagesExec {
    fn name(&self) -> &'static str {
        "SharedPagesExec"
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
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("SharedPagesExec is a leaf") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.own.apply_expressions(visit)
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        self.own.statistics_from_inputs(inputs, args)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition >= self.shared.partitions {
            return internal_err!("SharedPagesExec has {} partitions, not {partition}", self.shared.partitions);
        }
        let (shared, gathered) = (Arc::clone(&self.shared), self.shared.gathered());
        Ok(Box::pin(SharedRows { shared, context, partition: None, alone: None, gathered }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut all = self.own.metrics().unwrap_or_default();
        all.extend(self.shared.reader.pass_metrics());
        Some(all)
    }
}

/// The rows of a partition.
struct SharedRows {
    shared: Arc<SharedPieces>,
    context: Arc<TaskContext>,
    /// None before the first poll.
    partition: Option<ScanPartition<UnitKey>>,
    /// What it reads alone just now.
    alone: Option<SendableRecordBatchStream>,
    /// Rows of pages that wait for more; none if pages are given as they come.
    gathered: Option<BatchCoalescer>,
}

impl SharedRows {
    /// The next rows that waited, if they are enough, or if no others come.
    fn waited(&mut self, is_last: bool) -> Result<Option<RecordBatch>> {
        let Some(gathered) = &mut self.gathered else { return Ok(None) };
        if is_last {
            gathered.finish_buffered_batch()?;
        }
        Ok(gathered.next_completed_batch())
    }

    /// Rows of a page that the scan gives at once; none if they wait for more.
    fn gather(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let Some(gathered) = &mut self.gathered else { return Ok(Some(batch)) };
        gathered.push_batch(batch)?;
        Ok(gathered.next_completed_batch())
    }
}

impl Stream for SharedRows {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let mut pages = 0;
        loop {
            if let Some(batch) = this.waited(false).transpose() {
                return Poll::Ready(Some(batch));
            }
            if let Some(rows) = &mut this.alone {
                match ready!(rows.poll_next_unpin(cx)) {
                    None => this.alone = None,
                    some => return Poll::Ready(some),
                }
            }
            if pages == PAGES_OF_A_TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let partition = this.partition.get_or_insert_with(|| this.shared.partition(&this.context));
            match ready!(partition.poll_next(cx)) {
                None => return Poll::Ready(this.waited(true).transpose()),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(Given::Rows { unit, batch })) => {
                    pages += 1;
                    let given = this.shared.reader.output(&unit, &batch).and_then(|batch| this.gather(batch));
                    if let Some(batch) = given.transpose() {
                        return Poll::Ready(Some(batch));
                    }
                }
                Some(Ok(Given::Alone(pieces))) => match this.shared.reader.alone(&pieces, &this.context) {
                    Ok(rows) => this.alone = Some(rows),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
            }
        }
    }
}

impl RecordBatchStream for SharedRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.shared.reader.schema())
    }
}
