//! The session's time zone: UTC unless someone sets one.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{LakemarkSession, QueryOptions, count};

use crate::fixture::{both, create_indexes, open, rows, session, write};

const HOUR: i64 = 3_600_000_000;

#[tokio::test]
async fn a_cast_to_a_zoned_timestamp_keeps_the_offset_of_its_text() {
    let folder = tempfile::TempDir::new().unwrap();
    let hours = TimestampMicrosecondArray::from_iter_values((0..48).map(|hour| hour * HOUR));
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from_iter_values(0..48)) as ArrayRef),
        ("berlin", Arc::new(hours.clone().with_timezone("Europe/Berlin")) as ArrayRef),
        ("plain", Arc::new(hours) as ArrayRef),
    ])
    .unwrap();
    write(&folder.path().join("a.parquet"), &batch);
    create_indexes(folder.path(), &["berlin", "plain"]).await;
    let session = session(folder.path()).await;
    for (condition, expected) in [
        ("berlin = CAST('1970-01-01 05:00:00Z' AS TIMESTAMP WITH TIME ZONE)", "5"),
        ("berlin = CAST('1970-01-01 07:00:00+02:00' AS TIMESTAMP WITH TIME ZONE)", "5"),
        ("berlin = to_timestamp('1970-01-01T05:00:00Z')", "5"),
        ("plain = to_timestamp('1970-01-01T05:00:00Z')", "5"),
        ("plain = TIMESTAMP '1970-01-01 05:00:00'", "5"),
        ("plain = CAST('1970-01-01 05:00:00Z' AS TIMESTAMP WITH TIME ZONE)", "5"),
    ] {
        let (with, without) = both(&session, &format!("SELECT id FROM t WHERE {condition}")).await;
        assert_eq!((with, without), (vec![expected.to_owned()], vec![expected.to_owned()]), "{condition}");
        let counted = count(&open(folder.path()).await, Some(condition), &QueryOptions::default()).await.unwrap();
        assert_eq!(counted, 1, "{condition}");
    }
}

#[tokio::test]
async fn a_zone_that_someone_sets_stays() {
    const SHOWN: &str =
        "SELECT value FROM information_schema.df_settings WHERE name = 'datafusion.execution.time_zone'";
    let session = LakemarkSession::new();
    assert_eq!(rows(&session, SHOWN).await, ["+00:00"]);
    session.sql("SET datafusion.execution.time_zone = 'Europe/Berlin'").await.unwrap().collect().await.unwrap();
    assert_eq!(rows(&session, SHOWN).await, ["Europe/Berlin"]);
    let mut config = SessionConfig::new().with_information_schema(true);
    config.options_mut().execution.time_zone = Some("Asia/Tokyo".to_owned());
    assert_eq!(rows(&LakemarkSession::with_config(config), SHOWN).await, ["Asia/Tokyo"]);
}
