//! What is left to be read when the index has answered for some files: the same plan over a smaller scan.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use object_store::path::Path;

use crate::exec::LakemarkScanExec;

/// The plan without the certain rows of the files that were answered; none if nothing is left to be read.
///
/// Rows that were not certain stay in it, and so do its partitions, some of which may have nothing to do.
pub(super) fn rest_of(
    plan: &Arc<dyn ExecutionPlan>,
    answered: &HashSet<Path>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut left = true;
    let rest = Arc::clone(plan)
        .transform_down(|node| match node.downcast_ref::<LakemarkScanExec>() {
            None => Ok(Transformed::no(node)),
            Some(scan) => {
                let rest = without(scan, answered)?;
                left = rest.parts.certain.is_some() || rest.parts.checked.is_some() || !rest.parts.pending.is_empty();
                Ok(Transformed::new(Arc::new(rest), true, TreeNodeRecursion::Jump))
            }
        })
        .data()?;
    Ok(left.then_some(rest))
}

fn without(scan: &LakemarkScanExec, answered: &HashSet<Path>) -> Result<LakemarkScanExec> {
    let mut rest = scan.clone();
    if let Some(certain) = &scan.parts.certain {
        let source = certain.downcast_ref::<DataSourceExec>();
        let config = source.and_then(|source| source.data_source().downcast_ref::<FileScanConfig>());
        let config = config.ok_or_else(|| internal_datafusion_err!("certain rows are read by {}", certain.name()))?;
        let unanswered = |file: &&PartitionedFile| !answered.contains(&file.object_meta.location);
        let groups: Vec<FileGroup> = config
            .file_groups
            .iter()
            .map(|group| FileGroup::new(group.files().iter().filter(unanswered).cloned().collect()))
            .collect();
        let empty = groups.iter().all(|group| group.files().is_empty());
        let config = FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).build();
        let certain: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(config);
        rest.parts.certain = (!empty).then_some(certain);
    }
    Ok(rest)
}
