//! A data file as the log names it: in an action of a commit, or in a batch of the files that the whole log leads to.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, MapArray, RecordBatch, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use deltalake_core::kernel::{DeletionVectorDescriptor, Remove};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::row_tracking::RowOrigin;
use crate::error::{Error, Result};

/// A data file of the log.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct LoggedFile {
    /// The text of the path, by which the log knows the file. Writers escape paths in different ways.
    pub path: String,
    #[serde(default)]
    pub partition_values: HashMap<String, Option<String>>,
    pub size: i64,
    /// Milliseconds since 1970-01-01 UTC.
    pub modification_time: i64,
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    /// The id of its first row, where the table tracks rows.
    pub base_row_id: Option<i64>,
    /// The version that added the file first, where the table tracks rows.
    pub default_row_commit_version: Option<i64>,
}

impl LoggedFile {
    /// The action that removes the file.
    pub(super) fn removal(self, time: i64) -> Remove {
        Remove {
            path: percent_decode_str(&self.path).decode_utf8_lossy().into_owned(),
            data_change: true,
            deletion_timestamp: Some(time),
            extended_file_metadata: Some(true),
            partition_values: Some(self.partition_values),
            size: Some(self.size),
            tags: None,
            deletion_vector: self.deletion_vector,
            base_row_id: self.base_row_id,
            default_row_commit_version: self.default_row_commit_version,
        }
    }

    /// What its rows are called; none in a table that does not track them.
    pub(super) fn origin(&self) -> Option<RowOrigin> {
        let (base_row_id, commit_version) = (self.base_row_id?, self.default_row_commit_version?);
        Some(RowOrigin { base_row_id, commit_version })
    }
}

/// The files of a batch that the Delta library makes of a log.
///
/// # Errors
/// The batch has other columns than this release knows.
pub(super) fn files_of(batch: &RecordBatch) -> Result<Vec<LoggedFile>> {
    let columns = LogColumns::of(batch)
        .ok_or_else(|| Error::internal("the files of a Delta log have other columns than this release knows"))?;
    (0..batch.num_rows()).map(|row| columns.file(row)).collect()
}

/// The columns of such a batch that matter here.
struct LogColumns {
    paths: StringArray,
    sizes: Int64Array,
    modification_times: Int64Array,
    /// What is the same for all rows of a file.
    constants: StructArray,
    partition_values: MapArray,
    partition_names: StringArray,
    partition_texts: StringArray,
    base_row_ids: Int64Array,
    commit_versions: Int64Array,
    vectors: VectorColumns,
}

/// The columns of deletion vectors.
struct VectorColumns {
    vectors: StructArray,
    storage_types: StringArray,
    paths: StringArray,
    offsets: Int32Array,
    sizes: Int32Array,
    cardinalities: Int64Array,
}

fn texts(column: &ArrayRef) -> Option<StringArray> {
    cast(column, &DataType::Utf8).ok()?.as_string_opt::<i32>().cloned()
}

impl LogColumns {
    fn of(batch: &RecordBatch) -> Option<Self> {
        let constants = batch.column_by_name("fileConstantValues")?.as_struct_opt()?.clone();
        let partition_values = constants.column_by_name("partitionValues")?.as_map_opt()?.clone();
        let numbers = |name: &str| Some(constants.column_by_name(name)?.as_primitive_opt::<Int64Type>()?.clone());
        Some(Self {
            base_row_ids: numbers("baseRowId")?,
            commit_versions: numbers("defaultRowCommitVersion")?,
            paths: texts(batch.column_by_name("path")?)?,
            sizes: batch.column_by_name("size")?.as_primitive_opt::<Int64Type>()?.clone(),
            modification_times: batch.column_by_name("modificationTime")?.as_primitive_opt::<Int64Type>()?.clone(),
            partition_names: texts(partition_values.keys())?,
            partition_texts: texts(partition_values.values())?,
            constants,
            partition_values,
            vectors: VectorColumns::of(batch.column_by_name("deletionVector")?.as_struct_opt()?)?,
        })
    }

    fn file(&self, row: usize) -> Result<LoggedFile> {
        let path = self.paths.value(row).to_owned();
        let number = |of: &Int64Array| (self.constants.is_valid(row) && of.is_valid(row)).then(|| of.value(row));
        Ok(LoggedFile {
            base_row_id: number(&self.base_row_ids),
            default_row_commit_version: number(&self.commit_versions),
            partition_values: self.partition_values(row),
            size: self.sizes.value(row),
            modification_time: self.modification_times.value(row),
            deletion_vector: self.vectors.vector(row, &path)?,
            path,
        })
    }

    fn partition_values(&self, row: usize) -> HashMap<String, Option<String>> {
        if self.constants.is_null(row) || self.partition_values.is_null(row) {
            return HashMap::new();
        }
        let Some(&[from, to]) = self.partition_values.value_offsets().get(row..row + 2) else { return HashMap::new() };
        let places = usize::try_from(from).unwrap_or_default()..usize::try_from(to).unwrap_or_default();
        let text =
            |place: usize| self.partition_texts.is_valid(place).then(|| self.partition_texts.value(place).to_owned());
        places.map(|place| (self.partition_names.value(place).to_owned(), text(place))).collect()
    }
}

impl VectorColumns {
    fn of(vectors: &StructArray) -> Option<Self> {
        Some(Self {
            vectors: vectors.clone(),
            storage_types: texts(vectors.column_by_name("storageType")?)?,
            paths: texts(vectors.column_by_name("pathOrInlineDv")?)?,
            offsets: vectors.column_by_name("offset")?.as_primitive_opt::<Int32Type>()?.clone(),
            sizes: vectors.column_by_name("sizeInBytes")?.as_primitive_opt::<Int32Type>()?.clone(),
            cardinalities: vectors.column_by_name("cardinality")?.as_primitive_opt::<Int64Type>()?.clone(),
        })
    }

    fn vector(&self, row: usize, path: &str) -> Result<Option<DeletionVectorDescriptor>> {
        if self.vectors.is_null(row) || self.storage_types.is_null(row) {
            return Ok(None);
        }
        let storage_type = self.storage_types.value(row).parse();
        Ok(Some(DeletionVectorDescriptor {
            storage_type: storage_type.map_err(|error| malformed_vector(path).with_source(error))?,
            path_or_inline_dv: self.paths.value(row).to_owned(),
            offset: self.offsets.is_valid(row).then(|| self.offsets.value(row)),
            size_in_bytes: self.sizes.value(row),
            cardinality: self.cardinalities.value(row),
        }))
    }
}

/// The error for a deletion vector that the log describes wrongly.
pub(super) fn malformed_vector(path: &str) -> Error {
    Error::corrupt(format!("the deletion vector of {path} is malformed"))
}
