//! How many pages a scan reads of the files that it opens, and how many it leaves out.
//!
//! Only reports on slow queries ask for it, when the rows are read. Nothing is read for it: a file whose footer the session does not
//! remember, or that has no index of its pages, counts as no page at all.

use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;
use std::sync::Arc;

use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use lakemark_table::guarded;
use object_store::path::Path;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

use super::LakemarkScanExec;
use super::inside::nodes;

/// Pages of the columns that a scan reads, in the files that it opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageCounts {
    /// Pages that hold a selected row. Zone maps may leave out some of them while the scan runs.
    pub(crate) read: u64,
    /// The others.
    pub(crate) skipped: u64,
}

impl AddAssign for PageCounts {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.skipped += other.skipped;
    }
}

/// The pages of a row group: all of them, and how many of them partitions read.
#[derive(Default)]
struct RowGroupPages {
    total: u64,
    read: u64,
}

/// Row groups by their files and their places in these.
type RowGroups = HashMap<(Path, usize), RowGroupPages>;

impl LakemarkScanExec {
    /// The pages of a scan as its filters left it.
    pub(crate) fn page_counts(&self) -> PageCounts {
        // An index of pages is believed as little here as where it is read by.
        let row_groups = guarded(|| self.pages()).unwrap_or_default();
        let mut counts = PageCounts::default();
        for RowGroupPages { total, read } in row_groups.into_values() {
            // Parts of a row group may have a page in common.
            let read = read.min(total);
            counts += PageCounts { read, skipped: total - read };
        }
        counts
    }

    fn pages(&self) -> RowGroups {
        let planned = self.planned();
        let mut found = RowGroups::new();
        for plan in self.pruned.get().unwrap_or(&planned).plans() {
            self.add(plan, &mut found);
        }
        found
    }

    /// Adds the pages of a scan inside.
    fn add(&self, plan: &Arc<dyn ExecutionPlan>, found: &mut RowGroups) {
        let scan = nodes(plan).last().and_then(|leaf| leaf.downcast_ref::<DataSourceExec>());
        let Some((config, source)) = scan.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>) else {
            return;
        };
        let given = source.projection().into_iter().flat_map(|projection| projection.iter());
        let columns = given.flat_map(|given| collect_columns(&given.expr));
        let columns: HashSet<String> = columns.map(|column| column.name().to_owned()).collect();
        for file in config.file_groups.iter().flat_map(|group| group.files()) {
            let Some(footer) = self.parts.footers.remembered(&file.object_meta) else { continue };
            let access = file.extension::<ParquetAccessPlan>();
            for (place, pages) in footer.offset_index().into_iter().flatten().enumerate() {
                let chunks = chunks_of(&footer, pages, &columns);
                let own = found.entry((file.object_meta.location.clone(), place)).or_default();
                own.total = chunks.iter().map(|chunk| chunk.page_locations().len() as u64).sum();
                own.read += pages_read(&chunks, access.and_then(|access| access.inner().get(place)), own.total);
            }
        }
    }
}

/// The pages of those column chunks of a row group that are of these columns, or of fields inside of them.
fn chunks_of<'a>(
    footer: &ParquetMetaData,
    pages: &'a [OffsetIndexMetaData],
    columns: &HashSet<String>,
) -> Vec<&'a OffsetIndexMetaData> {
    let leaves = footer.file_metadata().schema_descr().columns();
    let is_wanted = |root: Option<&String>| root.is_some_and(|root| columns.contains(root));
    let chunks = leaves.iter().zip(pages).filter(|(leaf, _)| is_wanted(leaf.path().parts().first()));
    chunks.map(|(_, pages)| pages).collect()
}

/// How many pages of these chunks are read.
fn pages_read(chunks: &[&OffsetIndexMetaData], access: Option<&RowGroupAccess>, total: u64) -> u64 {
    match access {
        Some(RowGroupAccess::Skip) => 0,
        Some(RowGroupAccess::Selection(rows)) => {
            chunks.iter().map(|chunk| rows.scan_ranges(chunk.page_locations()).len() as u64).sum()
        }
        Some(RowGroupAccess::Scan) | None => total,
    }
}
