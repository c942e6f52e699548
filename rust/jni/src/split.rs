//! What a task gets: the scan, which all tasks share, and the inputs of its split.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lakemark_table::ColumnMapping;
use serde::{Deserialize, Serialize};

use crate::error::{NativeError, Result};
use crate::rows::RowsForm;
use crate::storage::TableStorage;

/// What all splits of one scan share.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ScanSpec {
    /// The table as the user named it, for the object store.
    pub(crate) location: String,
    /// Where its indexes are, and how its files are reached.
    pub(crate) storage: TableStorage,
    /// The columns to give, with Spark's types: an empty IPC stream, base64.
    schema: String,
    /// Those of which no value may be cut.
    pub(crate) exact: Vec<String>,
    /// The names that columns have in the files, where those are others.
    pub(crate) mapping: Option<ColumnMapping>,
}

impl ScanSpec {
    pub(crate) fn new(
        location: &str,
        storage: &TableStorage,
        mapping: Option<ColumnMapping>,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let (location, storage) = (location.to_owned(), storage.clone());
        Ok(Self { location, storage, schema: encode(schema, None)?, exact: Vec::new(), mapping })
    }

    /// The same, but no value of these columns may be cut.
    pub(crate) fn with_exact(self, exact: Vec<String>) -> Self {
        Self { exact, ..self }
    }

    pub(crate) fn schema(&self) -> Result<SchemaRef> {
        Ok(decode(&self.schema)?.schema)
    }
}

/// What a task reads at a time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SplitInput {
    /// Rows of a file.
    File(FileRange),
    /// Buffered rows that are in no file yet; they are attached.
    Memory,
}

/// Whose object store holds a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreHome {
    /// The table's: data files.
    Table,
    /// That of the indexes, which may be another one: runs of buffered rows.
    Store,
}

/// Rows of one file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FileRange {
    pub(crate) home: StoreHome,
    /// Place within the object store.
    pub(crate) location: String,
    /// Bytes of the file when it was planned.
    pub(crate) size: u64,
    /// The entity tag that its listing gave it, if it did.
    pub(crate) tag: Option<String>,
    pub(crate) part: SplitRange,
    /// The file's partition columns among the scan's columns: one row as an IPC stream, base64.
    pub(crate) constants: Option<String>,
}

/// Which rows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SplitRange {
    /// Selected rows of whole row groups, by the index.
    Known {
        /// Rows of the file when it was planned.
        file_rows: u64,
        /// First row of the part, the beginning of a row group.
        start: u64,
        /// Its length; it ends where a row group ends.
        length: u64,
        /// Selected rows, counted from `start`; attached.
        rows: RowsForm,
        /// How many they are.
        count: u64,
    },
    /// All rows of the row groups that begin in a range of bytes, without deleted ones.
    Unknown {
        from_byte: u64,
        to_byte: u64,
        /// Rows of the file to leave out, by position in the file; attached. Its universe is `deleted_of`.
        deleted: Option<RowsForm>,
        deleted_of: u64,
    },
}

/// A column that has one value in all rows of a file.
pub(crate) struct Constant {
    /// Of the column.
    pub(crate) name: String,
    /// An array of one row.
    pub(crate) value: ArrayRef,
}

impl FileRange {
    /// The constant columns.
    pub(crate) fn constants(&self) -> Result<Vec<Constant>> {
        let Some(text) = &self.constants else {
            return Ok(Vec::new());
        };
        let IpcRows { schema, batch } = decode(text)?;
        let batch = batch.ok_or_else(|| NativeError::internal("an input has no values for its partition columns"))?;
        Ok(schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, value)| Constant { name: field.name().clone(), value: value.clone() })
            .collect())
    }
}

/// Encodes the partition values of a file.
pub(crate) fn constants(of_file: &[Constant]) -> Result<Option<String>> {
    if of_file.is_empty() {
        return Ok(None);
    }
    let field = |Constant { name, value }: &Constant| Field::new(name, value.data_type().clone(), true);
    let schema = Arc::new(Schema::new(of_file.iter().map(field).collect::<Vec<_>>()));
    let columns = of_file.iter().map(|constant| Arc::clone(&constant.value)).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    encode(&schema, Some(&batch)).map(Some)
}

/// A schema, with rows of it or without, as base64 of an IPC stream.
fn encode(schema: &SchemaRef, batch: Option<&RecordBatch>) -> Result<String> {
    Ok(STANDARD.encode(to_ipc(schema, batch)?))
}

/// What an IPC stream has.
pub(crate) struct IpcRows {
    /// The columns of the rows.
    pub(crate) schema: SchemaRef,
    /// The rows, if there are any.
    pub(crate) batch: Option<RecordBatch>,
}

fn decode(text: &str) -> Result<IpcRows> {
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| NativeError::internal(format!("the batch of an input is not base64: {error}")))?;
    of_ipc(&bytes)
}

/// A schema, with rows of it or without, as an IPC stream.
pub(crate) fn to_ipc(schema: &SchemaRef, batch: Option<&RecordBatch>) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    if let Some(batch) = batch {
        writer.write(batch)?;
    }
    Ok(writer.into_inner()?)
}

/// The schema and the first rows of an IPC stream.
pub(crate) fn of_ipc(bytes: &[u8]) -> Result<IpcRows> {
    let mut reader = StreamReader::try_new(bytes, None)?;
    let batch = reader.next().transpose()?;
    Ok(IpcRows { schema: reader.schema(), batch })
}
