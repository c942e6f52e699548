//! Aggregates from marks alone: an optimizer rule that puts [`IndexAggregateExec`] over partial aggregates of our scan.
//!
//! ```text
//! AggregateExec: mode=Final                     AggregateExec: mode=Final
//!   AggregateExec: mode=Partial         ─▶        IndexAggregateExec: column=k, gby=[k], aggr=[count(*)]
//!     LakemarkScanExec                              AggregateExec: mode=Partial
//!                                                     LakemarkScanExec
//! ```
//!
//! Planning reads nothing for it. When the operator runs it asks the index for the values of the column and how many rows
//! hold each, makes *partial states* of them, and runs the partial aggregate below over whatever the index could not tell:
//! uncovered files, uncertain rows, NaN, damage. Where the scan left searches out, as reading its rows is cheaper, they are weighed once more
//! against telling the values. DataFusion's final aggregate adds the parts, so that types, names, order
//! and everything above are what they were.

mod exec;
mod question;
mod rest;
mod states;
mod sums;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use lakemark_index::Predicate;
use lakemark_table::{FileProbe, Probe, ProbeOptions, ProbeReport, Reading, Snapshot, Telling};

pub use exec::IndexAggregateExec;
use question::Question;

/// What the probe of a scan found out, for operators that answer from marks alone.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The table's columns as the scan gives them.
    pub(crate) schema: SchemaRef,
    pub(crate) predicate: Predicate,
    /// One entry per file of the snapshot.
    pub(crate) files: Vec<FileProbe>,
    /// How the scan probed, if it left conditions out as reading is cheaper.
    left_out: Option<ProbeOptions>,
}

impl Facts {
    /// The facts of a scan; none if it reads no column that an index could tell more of.
    pub(crate) fn of_scan(
        snapshot: &Arc<Snapshot>,
        schema: &SchemaRef,
        predicate: Predicate,
        probe: &Probe,
        projection: Option<&Vec<usize>>,
        options: &ProbeOptions,
    ) -> Option<Arc<Self>> {
        let known =
            |column: usize| schema.fields().get(column).is_some_and(|field| snapshot.can_tell_part(field.name()));
        if !projection?.iter().any(|column| known(*column)) {
            return None;
        }
        // Rows that marks cannot decide have to be read in any case.
        let is_decided =
            predicate.unknowns().is_empty() && predicate.leaves().iter().all(|leaf| snapshot.can_tell(&leaf.column));
        let left_out = (probe.left_out && is_decided).then_some(*options);
        let (snapshot, schema) = (Arc::clone(snapshot), Arc::clone(schema));
        Some(Arc::new(Self { snapshot, schema, predicate, files: probe.files.clone(), left_out }))
    }

    /// Whether the index may know rows of these files at all.
    fn knows_rows(&self) -> bool {
        self.files.iter().any(has_rows)
    }

    /// Whether it may if more conditions are searched for.
    fn may_know_rows(&self) -> bool {
        self.left_out.is_some() || self.knows_rows()
    }

    /// The facts where values would be told and not read, so that more conditions may be worth a search, and what these searches read. Files of
    /// which rows remain uncertain are unknown then. None if the scan is still cheaper.
    async fn for_telling(
        &self,
        options: ProbeOptions,
        told: Telling,
    ) -> lakemark_table::Result<(Option<Self>, ProbeReport)> {
        let reading = options.reading.map(|reading| Reading { told: Some(told), ..reading });
        let probe = self.snapshot.probe(&self.predicate, &ProbeOptions { reading, ..options }).await?;
        let files: Vec<FileProbe> = probe.files.into_iter().map(certain_or_unknown).collect();
        let (snapshot, schema) = (Arc::clone(&self.snapshot), Arc::clone(&self.schema));
        let predicate = self.predicate.clone();
        let is_known = files.iter().any(has_rows) || files.iter().all(|file| matches!(file, FileProbe::Known { .. }));
        Ok((is_known.then_some(Self { snapshot, schema, predicate, files, left_out: None }), probe.report))
    }
}

fn certain_or_unknown(file: FileProbe) -> FileProbe {
    match file {
        FileProbe::Known { uncertain, .. } if !uncertain.is_empty() => FileProbe::Unknown,
        other => other,
    }
}

/// Whether some rows of a file are certain.
fn has_rows(file: &FileProbe) -> bool {
    matches!(file, FileProbe::Known { certain, .. } if !certain.is_empty())
}

/// The optimizer rule. [`session_context`](crate::session_context) has it; other sessions add it behind DataFusion's own
/// rule `aggregate_statistics`, or at the end.
#[derive(Debug, Default)]
pub struct IndexAggregates;

impl PhysicalOptimizerRule for IndexAggregates {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| {
            if node.is::<IndexAggregateExec>() {
                return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
            }
            match node.downcast_ref::<AggregateExec>().and_then(Question::of) {
                Some(question) => {
                    let answering: Arc<dyn ExecutionPlan> = Arc::new(IndexAggregateExec::new(node, question));
                    Ok(Transformed::new(answering, true, TreeNodeRecursion::Jump))
                }
                None => Ok(Transformed::no(node)),
            }
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "lakemark_index_aggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
