//! What deletion vectors delete. The positions in a vector mean nothing without the number of rows that the file has.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use buoyant_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use futures::{StreamExt, TryFutureExt, TryStreamExt, stream};
use lakemark_index::RowSet;

use super::column_names::shown_schema;
use super::shapes::{SummaryOfFile, read_shapes};
use super::{BaseTable, DataFile, FileIndexState};
use crate::error::Result;
use crate::files::delta::DeltaState;
use crate::files::parted_list::PartedList;

/// Vectors that are read at a time.
const CONCURRENT_READS: usize = 32;

/// Data files that were matched, with what is known of each.
pub(super) struct MatchedLists {
    pub files: PartedList<DataFile>,
    /// One entry per file.
    pub states: PartedList<FileIndexState>,
}

impl MatchedLists {
    /// Takes out of files what their vectors delete, each with the place of its file. Footers are read where the rows of a file are unknown.
    ///
    /// # Errors
    /// A footer or a vector cannot be read.
    pub(super) async fn read_vectors(
        &mut self,
        table: &BaseTable,
        state: &DeltaState,
        vectors: &[(usize, &DeletionVectorDescriptor)],
    ) -> Result<()> {
        let is_unknown = |place: &usize| self.files.get(*place).is_some_and(|file| file.row_groups.is_none());
        let unknown = vectors.iter().map(|(place, _)| *place).filter(is_unknown).collect();
        let shown = |stored: SchemaRef| shown_schema(state.names.as_deref(), &stored);
        for SummaryOfFile { file, summary } in read_shapes(table, &self.files, unknown).await? {
            if let (Some(index_state), Some(data_file)) = (self.states.get_mut(file), self.files.get_mut(file)) {
                index_state.schema = Some(shown(summary.schema));
                data_file.row_groups = Some(summary.row_groups);
            }
        }
        let mut reads = Vec::with_capacity(vectors.len());
        for &(place, vector) in vectors {
            let Some(file) = self.files.get(place) else { continue };
            let rows = file.row_groups.iter().flatten().sum();
            reads.push(state.deleted(vector, rows, &file.path, &table.cache.vectors).map_ok(move |rows| (place, rows)));
        }
        let deleted: Vec<(usize, Arc<RowSet>)> =
            stream::iter(reads).buffer_unordered(CONCURRENT_READS).try_collect().await?;
        for (place, rows) in deleted {
            if let Some(file) = self.files.get_mut(place) {
                file.deleted = Some(rows);
            }
        }
        Ok(())
    }
}
