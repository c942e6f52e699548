//! Links of rows as they are now: of data files that no index covers, and of buffered rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use futures::TryStreamExt;
use lakemark_format::Key;
use lakemark_index::RowSet;
use lakemark_index::links::keys_of_column;

use super::columns::LinkColumns;
use crate::error::{Error, Result};
use crate::files::trust::FalseStatistics;
use crate::snapshot::{BufferedRun, DataFile, Snapshot};
use crate::updates::RowFile;

/// A link of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowLink {
    pub near: Key,
    pub predicate: Option<Key>,
    pub far: Key,
}

impl RowLink {
    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let of = |key: &Key| match key {
            Key::Fixed(_) => 0,
            Key::Bytes(bytes) => bytes.len() + size_of::<usize>(),
        };
        let predicate = self.predicate.as_ref().map_or(0, of);
        (size_of::<Self>() + of(&self.near) + predicate + of(&self.far)) as u64
    }

    /// The same link from its other end.
    pub(super) fn turned(self) -> Self {
        Self { near: self.far, predicate: self.predicate, far: self.near }
    }
}

/// Reads the columns of links.
pub(super) struct RowReader<'a> {
    snapshot: &'a Snapshot,
    columns: &'a LinkColumns,
    schema: SchemaRef,
}

impl<'a> RowReader<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, columns: &'a LinkColumns) -> Self {
        let fields = [Some(&columns.subject), columns.predicate.as_ref(), Some(&columns.object)];
        // Files that lack a column have NULL in all of their rows.
        let fields = fields.into_iter().flatten().map(|field| field.as_ref().clone().with_nullable(true));
        Self { snapshot, columns, schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())) }
    }

    /// Hands on the links of the rows of a data file that are not deleted.
    pub(super) async fn file(
        &self,
        file: &DataFile,
        take: &mut (dyn FnMut(RowLink) -> Result<()> + Send),
    ) -> Result<()> {
        let deleted = file.deleted.as_ref().filter(|deleted| !deleted.is_empty());
        let rows = deleted.map(|deleted| RowSet::full(deleted.universe()).minus(deleted));
        self.read(&RowFile::of(self.snapshot, file), rows.as_ref(), take).await
    }

    /// The same of the rows of a run that count.
    pub(super) async fn run(
        &self,
        run: &BufferedRun,
        take: &mut (dyn FnMut(RowLink) -> Result<()> + Send),
    ) -> Result<()> {
        let store = self.snapshot.run_store().ok_or_else(|| Error::internal("buffered rows without a store"))?;
        let file = RowFile {
            store,
            name: run.meta.location.to_string(),
            meta: run.meta.clone(),
            constants: Vec::new(),
            names: self.snapshot.column_names().cloned(),
            caught: FalseStatistics::default(),
        };
        self.read(&file, Some(&run.rows), take).await
    }

    async fn read(
        &self,
        file: &RowFile,
        rows: Option<&RowSet>,
        take: &mut (dyn FnMut(RowLink) -> Result<()> + Send),
    ) -> Result<()> {
        if rows.is_some_and(RowSet::is_empty) {
            return Ok(());
        }
        let mut batches = file.open().await?.read(&self.schema, rows)?;
        while let Some(batch) = batches.try_next().await? {
            self.batch(&batch, take)?;
        }
        Ok(())
    }

    /// The same of rows in memory. Links without an end are none.
    pub(super) fn batch(
        &self,
        batch: &RecordBatch,
        take: &mut (dyn FnMut(RowLink) -> Result<()> + Send),
    ) -> Result<()> {
        let keys = |name: &str| {
            let column = batch.column_by_name(name);
            let column = column.ok_or_else(|| Error::internal(format!("rows without the column {name}")))?;
            keys_of_column(column.as_ref()).map_err(|error| {
                Error::unsupported(format!("{name} has a value of more than 4096 bytes, which is no node of links"))
                    .with_source(error)
            })
        };
        let near = keys(self.columns.subject.name())?;
        let far = keys(self.columns.object.name())?;
        let mut predicates = match &self.columns.predicate {
            Some(predicate) => keys(predicate.name())?.into_iter(),
            None => Vec::new().into_iter(),
        };
        for (near, far) in near.into_iter().zip(far) {
            let predicate = predicates.next().flatten();
            if let (Some(near), Some(far)) = (near, far) {
                take(RowLink { near, predicate, far })?;
            }
        }
        Ok(())
    }
}
