//! Columns of floats, whose bounds leave NaN out.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::datasource::MemTable;
use tempfile::TempDir;

use crate::fixture::{Opened, metric, ran, rows, session, write};

/// Four row groups of a column `x` that ascends, of which some have a NaN as well, and one that holds NaN alone.
async fn of_floats() -> Opened {
    let x = (0..1250).map(|row| match row {
        _ if row % 250 == 249 && row % 500 != 249 => Some(f64::NAN),
        100 => Some(-f64::NAN),
        101 => None,
        _ if row >= 1000 => Some(f64::NAN),
        _ => Some(f64::from(row) + 0.5),
    });
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(0..1250)) as ArrayRef, true),
        ("x", Arc::new(x.collect::<Float64Array>()) as ArrayRef, true),
    ])
    .unwrap();
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("part.parquet"), &batch);
    let session = session(folder.path()).await;
    let memory = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    session.context().register_table("m", Arc::new(memory)).unwrap();
    Opened { folder, session }
}

#[tokio::test]
async fn bounds_of_floats_leave_out_row_groups_where_no_nan_can_pass() {
    let Opened { folder: _folder, session } = of_floats().await;
    for (condition, is_pruned) in [
        ("x = 7.5", true),
        ("x IN (7.5, 300.5)", true),
        ("x BETWEEN 7.5 AND 20", true),
        ("x > 7 AND id >= 0 AND x < 20", true),
        ("20 > x AND 7 < x", true),
        ("x > 700", false),
        ("x < 3", false),
        ("x = 0.0", false),
        ("x BETWEEN -0.0 AND 3", true),
        ("x BETWEEN 0.0 AND 0.0", false),
        ("x NOT IN (7.5, 8.5)", false),
        ("x <> 7.5", false),
        ("x = CAST('NaN' AS DOUBLE)", false),
        ("x > 2 OR x < 1", false),
        ("x IS NULL", true),
    ] {
        let plan = ran(&session, &format!("SELECT id FROM t WHERE {condition}")).await.plan;
        let bytes = metric(&plan, "bytes_scanned");
        let all = ran(&session, "SELECT id FROM t WHERE x <> -5").await.plan;
        if condition != "x IS NULL" {
            assert_eq!(bytes < metric(&all, "bytes_scanned"), is_pruned, "{condition}: {bytes} bytes");
        }
        let ours = rows(&session, &format!("SELECT id FROM t WHERE {condition} ORDER BY id")).await;
        let expected = rows(&session, &format!("SELECT id FROM m WHERE {condition} ORDER BY id")).await;
        assert_eq!(ours, expected, "{condition}");
    }
}
