//! Files that one condition rules out are not probed for the others.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use lakemark_index::{KeyRanges, Predicate};
use lakemark_table::{BuildOptions, ColumnReadCost, FileProbe, IndexKind, IndexSpec, ProbeOptions, ReadCost};

use crate::fixture::{equals, exact_rows, int_key, k_values, leaf, open, probe, rows_of, spec_with, write};

const FILES: usize = 20;
const ROWS: usize = 250;

/// The values of `k` in a file.
fn k(file: usize) -> Vec<Option<i32>> {
    k_values(file * ROWS, ROWS)
}

#[tokio::test]
async fn files_that_one_condition_rules_out_are_not_probed_for_the_others() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..FILES {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| (file * ROWS + row) as i64)));
        let ks: ArrayRef = Arc::new(Int32Array::from(k(file)));
        let path = folder.path().join(format!("part={}/f.parquet", file + 10));
        write(&path, &RecordBatch::try_from_iter([("id", ids), ("k", ks)]).unwrap());
    }
    let table = open(folder.path()).await;
    for column in ["id", "k"] {
        let kind = if column == "id" { "key" } else { "bitmap" };
        let spec = IndexSpec { kind: IndexKind::from_name(kind), ..spec_with(column, "files_per_segment", "1") };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    let both = |one: &Predicate, other: &Predicate| Predicate::And(vec![one.clone(), other.clone()]);
    let (of_id, of_k, of_part) = (equals("id", 7 * 250 + 23), equals("k", 3), equals("part", 17));
    // Directories are remembered from here on.
    probe(&snapshot, &both(&of_id, &of_k)).await;
    probe(&snapshot, &of_k).await;
    let reads = async |predicate: &Predicate| {
        let found = probe(&snapshot, predicate).await;
        assert!((found.report.coverage - 1.0).abs() < f64::EPSILON, "{}", found.report);
        (found.report.index_reads, found.files)
    };
    let (id_reads, _) = reads(&of_id).await;
    let (k_reads, k_files) = reads(&of_k).await;
    for (file, found) in k_files.iter().enumerate() {
        assert_eq!(exact_rows(found), rows_of(&k(file), 3));
    }
    assert!(id_reads > 0 && k_reads >= FILES as u64 && k_reads.is_multiple_of(FILES as u64));
    let of_one_file = k_reads / FILES as u64;

    let (found, files) = reads(&both(&of_part, &of_k)).await;
    assert_eq!(found, of_one_file);
    assert_eq!(exact_rows(&files[7]), rows_of(&k(7), 3));
    assert!(files.iter().enumerate().all(|(file, found)| file == 7 || exact_rows(found).is_empty()));

    // The key is probed first, in whatever order the conditions stand.
    let row = u32::from(k(7)[23] == Some(3)) * 23;
    assert_eq!(row, 23, "the row has both values");
    for predicate in [both(&of_id, &of_k), both(&of_k, &of_id)] {
        let (found, files) = reads(&predicate).await;
        assert_eq!(found, id_reads + of_one_file);
        assert_eq!(exact_rows(&files[7]), [23]);
        assert!(files.iter().enumerate().all(|(file, found)| file == 7 || exact_rows(found).is_empty()));
    }

    // Where reading is weighed against searching, what was estimated says which is probed first: a range of two keys here, though a
    // test of one value looks narrower. Both directories say so, which are remembered.
    let range = KeyRanges::between(Bound::Included(int_key(7 * 250 + 23)), Bound::Included(int_key(7 * 250 + 24)));
    let of_range = leaf("id", range);
    let columns = ColumnReadCost { count: 1.0, decode: 4.0 };
    let reading = Some(ReadCost { output: columns, filter: columns, limit: None, index_only: None, parent_cost: 0.0 });
    for (reading, expected) in [(None, k_reads + id_reads), (reading, id_reads + of_one_file)] {
        for predicate in [both(&of_range, &of_k), both(&of_k, &of_range)] {
            let options = ProbeOptions { selection_cache: false, reading, ..ProbeOptions::default() };
            let found = snapshot.probe(&predicate, &options).await.unwrap();
            assert_eq!(found.report.index_reads, expected, "{reading:?}");
            assert_eq!(exact_rows(&found.files[7]), [23]);
            assert!(found.files.iter().enumerate().all(|(file, found)| file == 7 || exact_rows(found).is_empty()));
        }
    }

    // Any row may have one of them: all are probed.
    let (found, files) = reads(&Predicate::Or(vec![of_id.clone(), of_k.clone()])).await;
    assert_eq!(found, id_reads + k_reads);
    assert!(files.iter().all(|file| matches!(file, FileProbe::Known { .. })));

    // No row has both: nothing is probed.
    let (found, files) = reads(&Predicate::And(vec![of_part.clone(), equals("part", 18), of_k])).await;
    assert_eq!(found, 0);
    assert!(files.iter().all(|found| exact_rows(found).is_empty()));
}
