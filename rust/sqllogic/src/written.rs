//! A table of ours with the rows of another one: Parquet files, indexes, and what scans them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableProvider;
use lakemark_datafusion::LakemarkTable;
use lakemark_table::{BuildOptions, Error, IndexKind, IndexSpec, Table, TableOptions};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

/// Data files of a table, unless it has fewer rows.
const FILES: usize = 3;

/// Row groups of a data file, and pages of a row group.
const PARTS: usize = 3;

/// Why a table stays what it was.
type Kept = String;

/// A table of ours.
pub struct Written {
    folder: PathBuf,
    generation: usize,
    table: Arc<Table>,
    /// What scans it.
    pub provider: Arc<dyn TableProvider>,
    /// How many columns have an index.
    pub indexes: usize,
}

impl Written {
    /// Writes the rows into a folder, and indexes every column that takes an index.
    pub async fn create(folder: PathBuf, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<Self, Kept> {
        write(&folder, 0, schema, rows)?;
        let location = folder.to_str().ok_or("a folder whose name is no text")?;
        let no_table = |error: Error| format!("no table of ours: {}", error.message().replace(location, "the folder"));
        let table = Table::open_alone(location, TableOptions::default()).await.map_err(no_table)?;
        let provider = LakemarkTable::new(Arc::clone(&table)).await.map_err(no_table)?;
        is_kept(schema, &provider.schema())?;
        let indexes = index(&table, schema).await?;
        Ok(Self { folder, generation: 0, table, provider: Arc::new(provider), indexes })
    }

    /// Puts other rows in the place of those that it has. Views over it see them, as they do in the engine.
    pub async fn replace(&mut self, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<(), Kept> {
        self.generation += 1;
        write(&self.folder, self.generation, schema, rows)?;
        if self.indexes == 0 { Ok(()) } else { build(&self.table).await }
    }

    /// Whether something that is registered scans this table.
    pub fn is(&self, provider: &Arc<dyn TableProvider>) -> bool {
        provider.downcast_ref::<LakemarkTable>().is_some_and(|ours| Arc::ptr_eq(ours.table(), &self.table))
    }
}

/// Whether columns come back as they were. Whether they may be NULL is no part of that: in a table of ours every column may.
fn is_kept(before: &SchemaRef, after: &SchemaRef) -> Result<(), Kept> {
    if before.fields().len() != after.fields().len() {
        return Err("columns get lost".to_owned());
    }
    for (before, after) in before.fields().iter().zip(after.fields()) {
        if before.name() != after.name() {
            return Err("names of columns change".to_owned());
        }
        if !is_alike(before.data_type(), after.data_type()) {
            return Err(format!("{} comes back as {}", before.data_type(), after.data_type()));
        }
        if before.metadata() != after.metadata() {
            return Err("metadata of columns get lost".to_owned());
        }
    }
    Ok(())
}

/// Whether a type comes back as it was. For a table of ours a dictionary is a way to write values down.
fn is_alike(before: &DataType, after: &DataType) -> bool {
    match before {
        DataType::Dictionary(_, values) => values.as_ref() == after,
        other => other == after,
    }
}

/// Kinds take turns, so that each meets every type sooner or later.
async fn index(table: &Table, schema: &SchemaRef) -> Result<usize, Kept> {
    let mut indexes = 0;
    for (place, field) in schema.fields().iter().enumerate() {
        let kinds = [IndexKind::Bitmap, IndexKind::Key];
        for kind in kinds.into_iter().cycle().skip(place % kinds.len()).take(kinds.len()) {
            let spec = IndexSpec { columns: vec![field.name().clone()], kind: Some(kind), ..IndexSpec::default() };
            if table.create_index(spec, false).await.is_ok() {
                indexes += 1;
                break;
            }
        }
    }
    if indexes > 0 {
        build(table).await?;
    }
    Ok(indexes)
}

async fn build(table: &Table) -> Result<(), Kept> {
    let options = BuildOptions { threads: Some(1), ..BuildOptions::default() };
    let report = table.build(options).await.map_err(|error| format!("no indexes: {}", error.message()))?;
    match report.failed.len() {
        0 => Ok(()),
        files => Err(format!("{files} files could not be indexed")),
    }
}

/// Writes the rows in their order, and removes the files of earlier rows.
fn write(folder: &Path, generation: usize, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<(), Kept> {
    let unwritten = |error: &dyn std::fmt::Display| format!("no Parquet: {error}");
    let mut alike = Vec::with_capacity(rows.len());
    for batch in rows {
        let columns = batch.columns().to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
        alike.push(batch.map_err(|error| unwritten(&error))?);
    }
    let all = concat_batches(schema, &alike).map_err(|error| unwritten(&error))?;
    fs::create_dir_all(folder).map_err(|error| unwritten(&error))?;
    let earlier = data_files(folder).map_err(|error| unwritten(&error))?;
    let file_rows = all.num_rows().div_ceil(FILES).max(1);
    let files = all.num_rows().div_ceil(file_rows).max(1);
    for file in 0..files {
        let first = file * file_rows;
        let part = all.slice(first, file_rows.min(all.num_rows() - first));
        let path = folder.join(format!("part-{generation:06}-{file}.parquet"));
        write_file(&path, &part, file_rows).map_err(|error| unwritten(&error))?;
    }
    for path in earlier {
        fs::remove_file(path).map_err(|error| unwritten(&error))?;
    }
    Ok(())
}

fn write_file(path: &Path, rows: &RecordBatch, file_rows: usize) -> crate::Result<()> {
    let group_rows = file_rows.div_ceil(PARTS).max(1);
    let page_rows = group_rows.div_ceil(PARTS).max(1);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_data_page_row_count_limit(page_rows)
        .set_write_batch_size(page_rows)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, rows.schema(), Some(properties))?;
    writer.write(rows)?;
    writer.close()?;
    Ok(())
}

fn data_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "parquet") {
            files.push(path);
        }
    }
    Ok(files)
}
