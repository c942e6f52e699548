use arrow::array::{BooleanArray, StringArray, StructArray};
use arrow::datatypes::DataType;

use super::*;
use crate::storage::TableStorage;

fn selected(selection: &RowSelection) -> Vec<usize> {
    let mut rows = Vec::new();
    let mut at = 0;
    for selector in selection.iter() {
        if !selector.skip {
            rows.extend(at..at + selector.row_count);
        }
        at += selector.row_count;
    }
    rows
}

#[test]
fn deleted_rows_leave_holes_also_across_row_groups() {
    // Rows 3, 4, 5 and 9 are deleted; the split has rows 0..5 and 8..12.
    let deleted = RowSelection::from_consecutive_ranges([3..6, 9..10].into_iter(), 12);
    let live = live_rows(&deleted, &[0..5, 8..12]).expect("small");
    assert_eq!(selected(&live), [0, 1, 2, 5, 7, 8]);
    assert_eq!(live.iter().map(|selector| selector.row_count).sum::<usize>(), 9);
}

#[test]
fn every_slice_of_booleans_loses_its_offset_and_keeps_its_values() {
    let all: BooleanArray = (0..70).map(|at| (at % 5 != 0).then_some(at % 3 == 0)).collect();
    for start in 0..40 {
        let slice = all.slice(start, 30);
        let compact = without_offset(Arc::new(slice.clone())).expect("small");
        assert_eq!(compact.to_data().offset(), 0, "slice from {start}");
        assert_eq!(compact.as_ref(), &slice as &dyn Array, "slice from {start}");
    }
}

#[test]
fn booleans_inside_structs_lose_their_offset_too() {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true, true, false]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d", "e"]));
    let both = StructArray::from(vec![
        (Arc::new(Field::new("flag", DataType::Boolean, true)), flags),
        (Arc::new(Field::new("name", DataType::Utf8, true)), names),
    ]);
    let slice: ArrayRef = Arc::new(both.slice(2, 3));
    let compact = without_offset(Arc::clone(&slice)).expect("small");
    assert!(compact.to_data().child_data().iter().all(|child| child.offset() == 0));
    assert_eq!(&compact, &slice);
}

/// Reads all of a file as a task does.
fn read_all(folder: &std::path::Path, schema: &SchemaRef, size: u64) -> Result<usize> {
    let location = folder.to_str().expect("UTF-8");
    let input = SplitInput::File(FileRange {
        home: crate::split::StoreHome::Table,
        location: Path::from_absolute_path(folder.join("part.parquet")).expect("absolute").to_string(),
        size,
        tag: None,
        part: SplitRange::Unknown { from_byte: 0, to_byte: size, deleted: None, deleted_of: 0 },
        constants: None,
    });
    let scan = ScanSpec::new(location, &TableStorage::default(), None, schema)?;
    crate::runtime::block_on(async {
        let mut reader = InputReader::open(&scan, &input, &[]).await?;
        let mut rows = 0;
        while let Some(batch) = reader.next().await? {
            rows += batch.num_rows();
        }
        Ok(rows)
    })?
}

/// Pages that Parquet's reader refuses, and pages on which it panics.
#[test]
fn damaged_pages_are_errors_that_name_the_file() {
    use parquet::basic::Encoding;
    use parquet::file::properties::WriterProperties;
    let numbers: ArrayRef = Arc::new((0..200).map(|row| f64::from(row) / 7.0).collect::<arrow::array::Float64Array>());
    let texts: ArrayRef = Arc::new((0..200).map(|row| Some(format!("text {}", row / 3))).collect::<StringArray>());
    let batch = RecordBatch::try_from_iter([("d", numbers), ("s", texts)]).expect("columns");
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_column_encoding("d".into(), Encoding::BYTE_STREAM_SPLIT)
        .set_column_encoding("s".into(), Encoding::DELTA_BYTE_ARRAY)
        .build();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("in memory");
    let good = writer.into_inner().expect("in memory");
    let folder = tempfile::tempdir().expect("a folder");
    let (mut errors, mut panics) = (0, 0);
    // The header of a page is where it hurts.
    for at in (4..60).chain((1600..good.len() - 1200).step_by(3)) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x15;
        std::fs::write(folder.path().join("part.parquet"), &bytes).expect("a file");
        if let Err(error) = read_all(folder.path(), &batch.schema(), good.len() as u64) {
            assert_eq!(error.kind, ErrorKind::Corrupt, "{at}: {}", error.message);
            assert!(error.message.contains("part.parquet is damaged"), "{at}: {}", error.message);
            errors += 1;
            panics += usize::from(error.message.contains("the Parquet reader gave up"));
        }
    }
    assert!(errors > 10, "{errors}");
    assert!(panics > 0, "none of {errors} errors is a panic");
}
