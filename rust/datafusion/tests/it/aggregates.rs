//! Aggregates from the index alone: the answers are those of a scan, and no data is read for them.

use std::path::Path;

use lakemark_datafusion::LakemarkSession;
use tempfile::TempDir;

use crate::fixture::{
    FILE_ROWS, Ran, answering, answering_metric, batch, both, create_indexes, folder, metric, ran, rows, scans, write,
};

/// A session that does not look into footers, which have bounds and counts, too.
async fn session(folder: &Path) -> LakemarkSession {
    let session = crate::fixture::session(folder).await;
    session.sql("SET datafusion.execution.collect_statistics = false").await.unwrap().collect().await.unwrap();
    session
}

/// Runs a statement that the index has to answer on its own, and checks it against a scan.
async fn from_the_index_alone(session: &LakemarkSession, sql: &str) -> Vec<String> {
    let plan = ran(session, sql).await.plan;
    assert!(answering_metric(&plan, "files_index_only") > 0, "{sql}");
    assert_eq!(metric(&plan, "bytes_scanned"), 0, "{sql}");
    let (with, without) = both(session, sql).await;
    assert_eq!(with, without, "{sql}");
    rows(session, sql).await
}

/// Runs a statement that the index answers in part, and gives how many rows were read for the rest.
async fn in_part(session: &LakemarkSession, sql: &str) -> usize {
    let plan = ran(session, sql).await.plan;
    assert_eq!(answering(&plan).len(), 1, "{sql}");
    let (with, without) = both(session, sql).await;
    assert_eq!(with, without, "{sql}");
    scans(&plan)[0].metrics().unwrap().output_rows().unwrap()
}

#[tokio::test]
async fn extremes_and_counts_come_from_directories() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "s", "id", "b", "Mixed Case"]).await;
    let session = session(folder.path()).await;
    for (sql, expected) in [
        ("SELECT min(k), max(k), count(k) FROM t", "0|9|2571"),
        ("SELECT max(k), count(*), count(k), count(1), count(NULL) FROM t", "9|3000|2571|3000|0"),
        ("SELECT min(id), max(id), min(k), max(s), count(b) FROM t", "0|2999|0|größe 7|2000"),
        ("SELECT min(b), max(b), min(s) FROM t", "false|true|"),
        ("SELECT max(\"Mixed Case\") - min(\"Mixed Case\") AS span FROM t", "29"),
    ] {
        assert_eq!(from_the_index_alone(&session, sql).await, [expected], "{sql}");
    }
    let plan = ran(&session, "SELECT min(k), max(k) FROM t").await.plan;
    assert_eq!(answering_metric(&plan, "values"), 0, "directories alone");
    assert_eq!(answering_metric(&plan, "index_reads"), 0, "directories are remembered");
}

#[tokio::test]
async fn planning_probes_no_index() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let frame = session.sql("SELECT k, count(*) FROM t GROUP BY k").await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    assert_eq!(answering(&plan).len(), 1);
    assert_eq!((answering_metric(&plan, "index_reads"), metric(&plan, "index_reads")), (0, 0));
}

#[tokio::test]
async fn groups_are_counted_by_value() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "s", "b"]).await;
    let session = session(folder.path()).await;
    let counts =
        from_the_index_alone(&session, "SELECT k, count(*) FROM t GROUP BY k ORDER BY k NULLS FIRST LIMIT 3").await;
    assert_eq!(counts, ["NULL|429", "0|257", "1|257"]);
    for sql in [
        "SELECT k, count(*), count(k), count(1), min(k), max(k) FROM t GROUP BY k",
        "SELECT s, count(*) AS n FROM t GROUP BY s HAVING count(*) > 120 ORDER BY n DESC, s",
        "SELECT count(*), b FROM t GROUP BY b",
        "SELECT DISTINCT s FROM t",
        "SELECT count(DISTINCT k), count(DISTINCT k) + 1 FROM t",
        "SELECT count(DISTINCT k), count(*), min(k) FROM t",
        "SELECT k % 3 AS rest, count(*), max(k + 1) FROM t GROUP BY k % 3",
        "SELECT k IS NULL, count(*) FROM t GROUP BY 1",
        "SELECT k, k / 2, count(coalesce(k, 1)) FROM t GROUP BY k, k / 2",
        "SELECT upper(s), count(s), min(length(s)) FROM t GROUP BY upper(s)",
        "SELECT sum(n), count(*) FROM (SELECT k, count(*) AS n FROM t GROUP BY k)",
        "SELECT a.k, a.n, b.n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) a JOIN (SELECT k, count(*) AS n FROM t GROUP BY k) b ON a.k = b.k",
    ] {
        if sql.contains("JOIN") {
            let (with, without) = both(&session, sql).await;
            assert_eq!((with.len(), &with), (10, &without), "{sql}");
        } else {
            from_the_index_alone(&session, sql).await;
        }
    }
    let plan = ran(&session, "SELECT k, count(*) FROM t GROUP BY k").await.plan;
    assert_eq!(answering_metric(&plan, "values"), 11, "10 values and NULL");
    assert!(answering_metric(&plan, "index_bytes_read") > 0);
}

#[tokio::test]
async fn groups_of_chosen_rows_are_counted_by_posting() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "s", "b", "Mixed Case"]).await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT k, count(*) FROM t WHERE \"Mixed Case\" BETWEEN 3 AND 21 GROUP BY k",
        "SELECT k, count(*) FROM t WHERE k IN (1, 2, 7) GROUP BY k",
        "SELECT k, count(*) FROM t WHERE k IN (1, 2, 7) AND b GROUP BY k",
        "SELECT k, count(*) FROM t WHERE k IS NOT NULL GROUP BY k",
        "SELECT k, count(*) FROM t WHERE k IS NULL GROUP BY k",
        "SELECT k, count(k), count(*) FROM t WHERE k IS NULL OR b GROUP BY k",
        "SELECT count(DISTINCT s) FROM t WHERE k = 5 AND \"Mixed Case\" < 15",
        "SELECT min(k), max(k), count(k), count(*) FROM t WHERE b AND k > 2",
        "SELECT count(k) FROM t WHERE b",
        "SELECT count(k), count(s) FROM t WHERE b",
        "SELECT length(s), count(*) FROM t WHERE k <> 4 GROUP BY length(s)",
    ] {
        from_the_index_alone(&session, sql).await;
    }
    assert_eq!(from_the_index_alone(&session, "SELECT k, count(*) FROM t WHERE k = 5 GROUP BY k").await, ["5|257"]);
    let none = both(&session, "SELECT k, count(*) FROM t WHERE k = 50 GROUP BY k").await;
    assert_eq!(none, (vec![], vec![]));
}

#[tokio::test]
async fn groups_of_two_columns_are_counted_by_posting() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k", "s", "b", "Mixed Case"]).await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT k, b, count(*), count(b) FROM t GROUP BY k, b",
        "SELECT b, k, count(*), min(k) FROM t WHERE \"Mixed Case\" < 12 GROUP BY b, k",
        "SELECT k, s, count(*) FROM t WHERE b AND k IN (1, 2, 8) GROUP BY k, s HAVING count(*) > 2",
        "SELECT s, min(k), max(k), count(k) FROM t GROUP BY s",
        "SELECT k, count(DISTINCT s), count(*) FROM t GROUP BY k",
        "SELECT count(DISTINCT s) FROM t WHERE k > 3",
        "SELECT k IS NULL AND b, count(*) FROM t GROUP BY 1",
        "SELECT DISTINCT b, s FROM t",
    ] {
        from_the_index_alone(&session, sql).await;
    }
    let sql = "SELECT k, b, count(*) FROM t WHERE k < 2 GROUP BY k, b ORDER BY k, b";
    // Even rows with k = 0 are true or NULL in b, odd ones with k = 1 false or NULL.
    let expected = ["0|true|171", "0|NULL|86", "1|false|171", "1|NULL|86"];
    assert_eq!(from_the_index_alone(&session, sql).await, expected);
    // Three columns, or more pairs than rows are worth, are read.
    let plan = ran(&session, "SELECT k, b, s, count(*) FROM t GROUP BY k, b, s").await.plan;
    assert_eq!(answering(&plan).len(), 0);
    create_indexes(folder.path(), &["id"]).await;
    for sql in ["SELECT id, \"Mixed Case\", count(*) FROM t GROUP BY 1, 2", "SELECT id + k, count(*) FROM t GROUP BY 1"]
    {
        let plan = ran(&session, sql).await.plan;
        assert_eq!(answering_metric(&plan, "files_index_only"), 0, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
}

#[tokio::test]
async fn what_the_index_does_not_know_is_read_and_added() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "f", "b"]).await;
    write(&folder.path().join("part-9.parquet"), &batch(9 * FILE_ROWS));
    let session = session(folder.path()).await;
    for sql in [
        "SELECT k, count(*), count(k) FROM t GROUP BY k",
        "SELECT min(k), max(k), count(k), count(*) FROM t",
        "SELECT count(DISTINCT k) FROM t",
        "SELECT k % 2, count(*) FROM t WHERE b GROUP BY k % 2",
    ] {
        let plan = ran(&session, sql).await.plan;
        assert_eq!(answering_metric(&plan, "files_index_only"), 2, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    assert_eq!(in_part(&session, "SELECT k, count(*) FROM t GROUP BY k").await, FILE_ROWS);
    // Rows with `abs(id) > 10` are to be rechecked: they are read, and none is counted twice.
    for sql in [
        "SELECT k, count(*) FROM t WHERE k = 5 OR (b AND abs(id) > 10) GROUP BY k",
        "SELECT min(k), max(k), count(k) FROM t WHERE k = 5 OR (b AND abs(id) > 10)",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
}

#[tokio::test]
async fn nan_and_the_zeros_of_floats_are_read() {
    let folder = folder(2);
    create_indexes(folder.path(), &["f", "k"]).await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT min(f), max(f) FROM t",
        "SELECT f, count(*) FROM t GROUP BY f",
        "SELECT count(DISTINCT f) FROM t",
        "SELECT f, count(*) FROM t WHERE f > 5 GROUP BY f",
        "SELECT f, count(*) FROM t WHERE f <= 0 GROUP BY f",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    assert_eq!(rows(&session, "SELECT max(f) FROM t").await, ["NaN"]);
    // Rows that are neither NaN nor zero need no reading, and NULLs are known of all.
    assert_eq!(from_the_index_alone(&session, "SELECT count(f) FROM t").await, ["1667"]);
    from_the_index_alone(&session, "SELECT f, count(*) FROM t WHERE f IS NULL AND k IS NOT NULL GROUP BY f").await;
}

#[tokio::test]
async fn law_1_damaged_segments_cost_a_scan() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k"]).await;
    let index_files = folder.path().join("_lakemark/indexes");
    let segment = std::fs::read_dir(&index_files).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    for damage in [Damage::Payload, Damage::Directory, Damage::Gone] {
        let whole = std::fs::read(&segment).unwrap();
        // A segment of another id and length is not remembered: the damage is on a copy that no one opened before.
        let copy = TempDir::new().unwrap();
        copy_table(folder.path(), copy.path());
        damage.apply(&copy.path().join("_lakemark/indexes").join(segment.file_name().unwrap()), whole);
        let session = session(copy.path()).await;
        for sql in [
            "SELECT k, count(*) FROM t GROUP BY k",
            "SELECT min(k), max(k), count(k) FROM t",
            "SELECT k, count(*) FROM t WHERE k IN (3, 4) GROUP BY k",
        ] {
            let (with, without) = both(&session, sql).await;
            assert_eq!(with, without, "{damage:?}: {sql}");
            assert!(!with.is_empty());
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Payload,
    Directory,
    Gone,
}

impl Damage {
    fn apply(self, path: &Path, mut bytes: Vec<u8>) {
        let length = bytes.len();
        match self {
            Self::Payload => bytes[70] ^= 1,
            Self::Directory => bytes[length - 60] ^= 1,
            Self::Gone => return std::fs::remove_file(path).unwrap(),
        }
        std::fs::write(path, bytes).unwrap();
    }
}

fn copy_table(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_table(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
            let times = std::fs::FileTimes::new().set_modified(path.metadata().unwrap().modified().unwrap());
            std::fs::File::options().write(true).open(&target).unwrap().set_times(times).unwrap();
        }
    }
}

#[tokio::test]
async fn partition_columns_need_no_index() {
    let folder = TempDir::new().unwrap();
    for (number, day) in ["2024-01-01", "2024-01-02", "__HIVE_DEFAULT_PARTITION__"].iter().enumerate() {
        write(&folder.path().join(format!("day={day}/part-{number}.parquet")), &batch(number * FILE_ROWS));
    }
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    assert_eq!(
        from_the_index_alone(&session, "SELECT day, count(*) FROM t GROUP BY day ORDER BY day NULLS FIRST").await,
        ["NULL|1000", "2024-01-01|1000", "2024-01-02|1000"]
    );
    let bounds = "SELECT min(day), max(day), count(day), min(k), count(*) FROM t";
    assert_eq!(from_the_index_alone(&session, bounds).await, ["2024-01-01|2024-01-02|2000|0|3000"]);
    from_the_index_alone(&session, "SELECT day, count(*) FROM t WHERE k = 5 GROUP BY day").await;
    from_the_index_alone(&session, "SELECT count(DISTINCT day) FROM t WHERE k > 5 OR k < 2").await;
    from_the_index_alone(&session, "SELECT day, k, count(*) FROM t GROUP BY day, k").await;
    from_the_index_alone(&session, "SELECT k, count(DISTINCT day) FROM t WHERE k <> 4 GROUP BY k").await;
}

#[tokio::test]
async fn a_file_without_the_column_holds_nulls() {
    let folder = folder(2);
    let narrow = batch(5 * FILE_ROWS).project(&[0, 4]).unwrap();
    write(&folder.path().join("part-5.parquet"), &narrow);
    create_indexes(folder.path(), &["k", "b"]).await;
    let session = session(folder.path()).await;
    assert_eq!(from_the_index_alone(&session, "SELECT count(k), count(*), min(k) FROM t").await, ["1714|3000|0"]);
    let nulls = "SELECT k, count(*) FROM t WHERE k IS NULL GROUP BY k";
    assert_eq!(from_the_index_alone(&session, nulls).await, ["NULL|1286"]);
    from_the_index_alone(&session, "SELECT k, count(*) FROM t WHERE b GROUP BY k").await;
    from_the_index_alone(&session, "SELECT b, k, count(*) FROM t GROUP BY b, k").await;
}

#[tokio::test]
async fn other_aggregates_stay_as_they_were() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k", "b"]).await;
    let session = session(folder.path()).await;
    for sql in [
        "SELECT stddev(k) FROM t",
        "SELECT k, count(*) FILTER (WHERE k > 3) FROM t GROUP BY k",
        "SELECT k, b, count(*) FROM t GROUP BY ROLLUP (k, b)",
        "SELECT id % 5, count(*) FROM t GROUP BY id % 5",
        "SELECT k, count(*), random() > 2 FROM t GROUP BY k, random() > 2",
        "SELECT min(k) FROM (SELECT k FROM t LIMIT 10)",
        "SELECT array_agg(k ORDER BY k) FROM t",
    ] {
        let plan = ran(&session, sql).await.plan;
        assert_eq!(answering(&plan).len(), 0, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    session.sql("SET lakemark.use_index = false").await.unwrap().collect().await.unwrap();
    let plan = ran(&session, "SELECT k, count(*) FROM t GROUP BY k").await.plan;
    assert_eq!(answering(&plan).len(), 0);
}

#[tokio::test]
async fn explain_analyze_shows_that_the_index_answered() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let shown = rows(&session, "EXPLAIN ANALYZE SELECT k, count(*) FROM t GROUP BY k").await.join("\n");
    let line = shown.lines().find(|line| line.contains("IndexAggregateExec")).unwrap();
    for part in [
        "columns=[k]",
        "gby=[k]",
        "aggr=[count(Int64(1))]",
        "files_index_only=2",
        "values=11",
        "index_reads=",
        "index_bytes_read=",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[tokio::test]
async fn groups_by_a_cast_are_index_only_whatever_the_session_remembers() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = crate::fixture::session(folder.path()).await;
    let sql = "SELECT s, count(*) FROM (SELECT CAST(k AS VARCHAR) AS s FROM t) AS u GROUP BY s";
    for _ in 0..2 {
        let Ran { plan, rows: count } = ran(&session, sql).await;
        assert_eq!((answering_metric(&plan, "files_index_only"), count), (2, 11));
        // From now on the session knows the bounds of every column.
        rows(&session, "SELECT sum(id) FROM t WHERE id > 5").await;
        rows(&session, "SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.k > 3 AND b.s <> 'x'").await;
    }
}
