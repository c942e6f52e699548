//! Aggregates that the index answers, in equal statements and in different ones at the same time: they are shared as others are.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_datafusion::SharingCounts;
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

use crate::fixture::{answering, answering_metric, create_indexes, folder, open, ran, rows};
use crate::sharing::{Shared, sorted, taken};

#[tokio::test]
async fn equal_statements_share_what_the_index_answers() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "s"]).await;
    let shared = Shared::of(&open(folder.path()).await).await;
    for sql in [
        "SELECT k, count(*) FROM t GROUP BY k",
        "SELECT s, count(*), min(s) FROM t GROUP BY s",
        "SELECT count(DISTINCT k), count(*), min(k) FROM t",
        "SELECT k, count(*) FROM t WHERE k > 3 GROUP BY k ORDER BY k",
    ] {
        let alone = ran(&shared.session, sql).await.plan;
        assert!(answering_metric(&alone, "files_index_only") > 0, "{sql}");
        let expected = sorted(rows(&shared.session, sql).await);
        let before = shared.counts();
        let [host, guest] = [shared.begin(sql).await, shared.begin(sql).await];
        // Whoever came last takes first.
        let (guest, host) = (taken(guest).await, taken(host).await);
        assert_eq!((sorted(host), sorted(guest)), (expected.clone(), expected), "{sql}");
        let after = shared.counts();
        assert_eq!((after.hosts - before.hosts, after.guests - before.guests), (1, 1), "{sql}");
        assert_eq!(after.detached, before.detached, "{sql}");
    }
}

/// Different statements with groups in common that the index answers.
const WITH_GROUPS: [&str; 3] = [
    "SELECT k, n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) WHERE n > 20",
    "SELECT max(n), min(k) FROM (SELECT k, count(*) AS n FROM t GROUP BY k)",
    "SELECT n, k FROM (SELECT k, count(*) AS n FROM t GROUP BY k) ORDER BY n, k",
];

#[tokio::test]
async fn different_statements_share_the_groups_that_the_index_answers() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let shared = Shared::of(&open(folder.path()).await).await;
    shared.set("lakemark.share", "off").await;
    let mut alone = Vec::new();
    for sql in WITH_GROUPS {
        assert_eq!(answering(&ran(&shared.session, sql).await.plan).len(), 1, "{sql}");
        alone.push(sorted(rows(&shared.session, sql).await));
    }
    shared.set("lakemark.share", "plans").await;
    let [one, two, three] = WITH_GROUPS;
    let [one, two, three] = [shared.begin(one).await, shared.begin(two).await, shared.begin(three).await];
    let (one, two, three) = tokio::join!(taken(one), taken(two), taken(three));
    assert_eq!([one, two, three].map(sorted).as_slice(), alone);
    // The first one was planned before the others came, which have the groups of one execution.
    assert_eq!(shared.counts(), SharingCounts { hosts: 4, guests: 1, detached: 0 });
}

#[tokio::test]
async fn guests_take_large_outputs_of_groups_that_the_index_answers() {
    // Groups give their rows in the end: they are more than is kept whole, and a guest has them all the same.
    const ROWS: i64 = 150_000;
    let folder = TempDir::new().unwrap();
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let batch = RecordBatch::try_from_iter([("id", id)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(folder.path().join("part.parquet")).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    create_indexes(folder.path(), &["id"]).await;
    let shared = Shared::of(&open(folder.path()).await).await;
    let sql = "SELECT id, count(*) FROM t GROUP BY id";
    assert_eq!(answering(&ran(&shared.session, sql).await.plan).len(), 1);
    let before = shared.counts();
    let [host, guest] = [shared.begin(sql).await, shared.begin(sql).await];
    for found in [taken(host).await, taken(guest).await] {
        assert_eq!(found.len() as i64, ROWS);
        assert!(found.iter().all(|row| row.ends_with("|1")));
    }
    let after = shared.counts();
    assert_eq!((after.hosts - before.hosts, after.guests - before.guests), (1, 1));
    assert_eq!(after.detached, 0);
}
