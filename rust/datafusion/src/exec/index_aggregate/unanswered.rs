//! What is left to be read when the index has answered for some files: the same plan over a smaller scan.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use lakemark_table::AnsweredFiles;

use crate::exec::scan::LakemarkScanExec;
use crate::read::planning_cache::FilePlace;

/// Which rows of the answered files the index gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AnsweredRows {
    /// The rows that are exact for the scan; the others are left to be read.
    ExactRows,
    /// All rows.
    Files,
}

/// Whether a plan reads rows of data files. Those that an index gave are in memory.
pub(super) fn reads_files(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<LakemarkScanExec>() {
        Some(scan) => scan.parts.exact.is_some() || scan.parts.recheck.is_some(),
        None => plan.children().into_iter().any(reads_files),
    }
}

/// The plan without the rows that the index gave of the answered files; none if nothing is left to be read.
///
/// The partitions stay, and some may have nothing to do.
pub(super) fn rest_of(
    plan: &Arc<dyn ExecutionPlan>,
    answered: &AnsweredFiles,
    rows: AnsweredRows,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut left = true;
    let rest = Arc::clone(plan)
        .transform_down(|node| match node.downcast_ref::<LakemarkScanExec>() {
            None => Ok(Transformed::no(node)),
            Some(scan) => {
                let mut rest = scan.clone();
                rest.parts.statistics = rest.parts.statistics.to_inexact();
                rest.parts.exact = left_of(rest.parts.exact.take(), answered)?;
                if rows == AnsweredRows::Files {
                    rest.parts.recheck = left_of(rest.parts.recheck.take(), answered)?;
                }
                // Those that are exact are in the answer of an answered file. What was tested by its values is, if the file is as a whole.
                let is_given = |place: usize, is_exact: bool| {
                    answered.contains(place) && (is_exact || rows == AnsweredRows::Files)
                };
                let covered = rest.parts.covered.take();
                let covered = covered.map(|covered| covered.without(is_given));
                rest.parts.covered = covered.transpose()?.flatten();
                // An index that gives rows while the query runs would give those of answered files, too.
                rest.parts.filter = None;
                left = rest.parts.exact.is_some()
                    || rest.parts.recheck.is_some()
                    || rest.parts.covered.is_some()
                    || !rest.parts.buffered.is_empty();
                Ok(Transformed::new(Arc::new(rest), true, TreeNodeRecursion::Jump))
            }
        })
        .data()?;
    Ok(left.then_some(rest))
}

/// A part of a scan without the answered files; none if it has no others.
fn left_of(part: Option<Arc<dyn ExecutionPlan>>, answered: &AnsweredFiles) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(part) = part else { return Ok(None) };
    let name = part.name().to_owned();
    let (mut left, mut is_known) = (false, false);
    let rest = part.transform_down(|node| {
        let source = node.downcast_ref::<DataSourceExec>();
        let Some(config) = source.and_then(|source| source.data_source().downcast_ref::<FileScanConfig>()) else {
            return Ok(Transformed::no(node));
        };
        let groups: Vec<FileGroup> =
            config.file_groups.iter().map(|group| unanswered(group, answered)).collect::<Result<_>>()?;
        is_known = true;
        left |= groups.iter().any(|group| !group.files().is_empty());
        let config = FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).build();
        let source: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(config);
        Ok(Transformed::new(source, true, TreeNodeRecursion::Jump))
    });
    let rest = rest.data()?;
    if !is_known {
        return internal_err!("rows are read by {name}");
    }
    Ok(left.then_some(rest))
}

/// The files of a group that are left to be read.
fn unanswered(group: &FileGroup, answered: &AnsweredFiles) -> Result<FileGroup> {
    let mut left = Vec::new();
    for file in group.files() {
        match file.extension::<FilePlace>() {
            Some(FilePlace(place)) if answered.contains(*place) => {}
            Some(_) => left.push(file.clone()),
            // Whether its rows were given already nobody could tell.
            None => return internal_err!("{} has no place in the snapshot", file.object_meta.location),
        }
    }
    Ok(FileGroup::new(left))
}
