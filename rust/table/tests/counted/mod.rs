//! The rows of a snapshot that count, read without any code of ours but what the snapshot says.

use std::fs::File;
use std::path::Path;

use arrow::array::RecordBatch;
use lakemark_table::Snapshot;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Calls `row` with each of them: the batch that it is in, and its number there.
pub fn for_each_row(snapshot: &Snapshot, mut row: impl FnMut(&RecordBatch, usize)) {
    let mut scan = |location: &str, counts: &dyn Fn(u32) -> bool| {
        let file = File::open(Path::new("/").join(location)).unwrap();
        let mut first = 0;
        for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
            let batch = batch.unwrap();
            (0..batch.num_rows()).filter(|at| counts(first + *at as u32)).for_each(|at| row(&batch, at));
            first += batch.num_rows() as u32;
        }
    };
    for file in snapshot.files() {
        scan(file.meta.location.as_ref(), &|at| !file.deleted.as_ref().is_some_and(|set| set.contains(at)));
    }
    for file in snapshot.buffered_rows().iter().flat_map(|buffered| &buffered.files) {
        scan(file.meta.location.as_ref(), &|at| file.rows.contains(at));
    }
    for batch in snapshot.buffered_rows().iter().flat_map(|buffered| &buffered.batches) {
        (0..batch.num_rows()).for_each(|at| row(batch, at));
    }
}
