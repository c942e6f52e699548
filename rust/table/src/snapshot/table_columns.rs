//! The columns of a folder: those of its files, and those that the names of folders have.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};

use super::DataFile;
use crate::error::Result;
use crate::files::parted_list::PartedList;
use crate::values::schema::{self, FileSchema};

/// The columns of a folder.
pub(super) struct TableColumns {
    /// Columns of files, then partition columns.
    pub schema: SchemaRef,
    /// Columns of files.
    pub file_schema: SchemaRef,
}

impl TableColumns {
    /// The columns of these files, of which `schemas` are the distinct ones, each with the place of the first file that has it.
    ///
    /// # Errors
    /// Two files have a column in types that do not go together.
    pub(super) fn of(
        files: &PartedList<DataFile>,
        schemas: &[(usize, &SchemaRef)],
        partition_columns: &[Field],
    ) -> Result<Self> {
        let of_files = schemas.iter().filter_map(|(place, schema)| {
            let file = &files.get(*place)?.path;
            Some(FileSchema { file, schema })
        });
        let merged = schema::merge(of_files)?;
        // Some writers store partition columns in the files too; the folder's name is what counts.
        let is_partition = |name: &str| partition_columns.iter().any(|field| field.name() == name);
        let stored: Vec<_> = merged.fields().iter().filter(|field| !is_partition(field.name())).cloned().collect();
        let all: Vec<_> = stored.iter().cloned().chain(partition_columns.iter().cloned().map(Arc::new)).collect();
        Ok(Self { schema: Arc::new(Schema::new(all)), file_schema: Arc::new(Schema::new(stored)) })
    }
}
