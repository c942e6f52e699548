//! Different statements at the same time whose scans share pages: each gives the rows that it gives alone, and nobody's version, deleted rows,
//! pending changes, damage or pace are another one's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Int64Type;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{collect, execute_stream};
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use futures::future::join_all;
use lakemark_datafusion::{LakemarkSession, PlanSharing, Principal};
use lakemark_table::{MigrateOptions, Table};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::delta;
use crate::differential::{commit, vector};
use crate::fixture::{FILE_ROWS, batch, create_indexes, folder, metric, open, ran, rows, text, write};
use crate::sharing::{clients_get_what_is_expected, keyed, sorted, taken, upsert};
use crate::together::{Running, Together, interleave};

/// Statements that differ, and read much of the same.
const STATEMENTS: [&str; 8] = [
    "SELECT id, k, s FROM t WHERE abs(id) % 7 = 1",
    "SELECT id, s, f FROM t WHERE abs(id) % 11 = 2",
    "SELECT s, k, id FROM t WHERE abs(id) % 5 = 4 AND k > 2",
    "SELECT id, k FROM t WHERE id > 700 AND abs(id) % 3 = 0",
    "SELECT * FROM t WHERE id < 1500 AND abs(k) % 4 = 0",
    "SELECT k, count(*), sum(id), min(s) FROM t WHERE abs(id) % 2 = 0 GROUP BY k",
    "SELECT a.id, b.s FROM t a JOIN t b ON a.id = b.id + 1 WHERE abs(a.k) = 3",
    "SELECT id, b FROM t WHERE k IN (3, 4)",
];

/// A session that shares pages whatever they cost, and knows a table as `t`.
async fn paged(table: &Arc<Table>) -> Together {
    paged_by(table, PlanSharing::sharing_always(), 50).await
}

async fn paged_by(table: &Arc<Table>, sharing: PlanSharing, batch_rows: usize) -> Together {
    let paged = Together::at("pages", sharing, batch_rows).await;
    paged.session.register("t", Arc::clone(table)).await.unwrap();
    paged
}

#[tokio::test]
async fn law_pages_are_as_off_for_every_pair_of_statements() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let paged = paged(&open(folder.path()).await).await;
    for (number, one) in STATEMENTS.into_iter().enumerate() {
        for other in STATEMENTS.into_iter().skip(number + 1) {
            let running = vec![Running::of(&paged, one).await, Running::of(&paged, other).await];
            interleave(running, 200, number as u64).await;
        }
    }
    assert!(paged.sharing.pages_shared() > 100, "{}", paged.sharing.pages_shared());
    assert_eq!(paged.sharing.counts().guests, 0);
}

#[tokio::test]
async fn statements_one_after_the_other_share_no_page() {
    let folder = folder(1);
    let paged = paged(&open(folder.path()).await).await;
    for sql in STATEMENTS.into_iter().filter(|sql| !sql.contains("JOIN")) {
        assert_eq!(sorted(rows(&paged.session, sql).await), paged.alone(sql).await, "{sql}");
    }
    assert_eq!(paged.sharing.pages_shared(), 0);
}

#[tokio::test]
async fn a_plan_that_is_reset_gives_its_rows_again() {
    let folder = folder(2);
    let paged = paged(&open(folder.path()).await).await;
    let expected = paged.alone(STATEMENTS[0]).await;
    let frame = paged.session.sql(STATEMENTS[0]).await.unwrap();
    let (context, mut plan) = (Arc::new(frame.task_ctx()), frame.create_physical_plan().await.unwrap());
    for run in 0..3 {
        let batches = collect(Arc::clone(&plan), Arc::clone(&context)).await.unwrap();
        assert_eq!(sorted(batches.iter().flat_map(text).collect()), expected, "run {run}");
        plan = reset_plan_states(plan).unwrap();
    }
}

/// Statements that come, take, stall and go in any order, with changes of the table between them, each give the rows of their snapshot.
#[tokio::test]
async fn law_pages_are_as_off_under_any_interleaving() {
    let mut pages_shared = 0;
    for seed in 0..6 {
        let mut rng = StdRng::seed_from_u64(seed);
        let folder = folder(2);
        create_indexes(folder.path(), &["k", "s"]).await;
        let table = keyed(folder.path()).await;
        let paged = paged(&table).await;
        let mut running: Vec<Running> = Vec::new();
        for step in 0..200 {
            let place = rng.random_range(0..8);
            match rng.random_range(0..12) {
                0..3 => running.push(Running::of(&paged, STATEMENTS[rng.random_range(0..STATEMENTS.len())]).await),
                3 if place < running.len() => drop(running.remove(place)),
                4 if step % 3 == 0 => upsert(&table, rng.random_range(0..3000), rng.random_range(0..12)).await,
                5 if step % 4 == 1 => table.flush().await.map(drop).unwrap(),
                5 if step % 4 == 3 => table.migrate(MigrateOptions::default()).await.map(drop).unwrap(),
                _ => {
                    if let Some(own) = running.get_mut(place) {
                        own.step().await;
                    }
                }
            }
        }
        for own in running {
            own.finish(seed).await;
        }
        pages_shared += paged.sharing.pages_shared();
    }
    assert!(pages_shared > 100, "{pages_shared}");
}

/// The same on several threads, with several partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn law_pages_are_as_off_on_several_threads() {
    let folder = folder(3);
    create_indexes(folder.path(), &["k"]).await;
    let paged = Arc::new(paged(&open(folder.path()).await).await);
    let mut expected = BTreeMap::new();
    for sql in STATEMENTS {
        expected.insert(sql, paged.alone(sql).await);
    }
    paged.set("datafusion.execution.target_partitions", "3").await;
    clients_get_what_is_expected(&paged, |paged| &paged.session, expected, 25).await;
    assert!(paged.sharing.pages_shared() > 0);
}

#[tokio::test]
async fn law_pending_changes_of_one_statement_are_not_those_of_another() {
    let folder = folder(2);
    let table = keyed(folder.path()).await;
    let paged = paged(&table).await;
    let mut running = Vec::new();
    for changes in 0..4 {
        for sql in [STATEMENTS[0], STATEMENTS[2], "SELECT id, k FROM t WHERE abs(k) = 77 OR abs(id) < 40"] {
            let mut own = Running::of(&paged, sql).await;
            own.step().await;
            running.push(own);
        }
        match changes {
            0 => upsert(&table, 1, 77).await,
            1 => drop(rows(&paged.session, "DELETE FROM t WHERE id < 30 AND id > 1").await),
            2 => {
                upsert(&table, 5000, 77).await;
                table.flush().await.unwrap();
            }
            _ => table.migrate(MigrateOptions::default()).await.map(drop).unwrap(),
        }
    }
    let answers: Vec<usize> = running.iter().skip(2).step_by(3).map(|own| own.expected.len()).collect();
    assert!(answers[0] != answers[2] && answers[2] != answers[3], "{answers:?}");
    interleave(running, 200, 1).await;
    assert!(paged.sharing.pages_shared() > 0);
}

#[tokio::test]
async fn law_deletion_vectors_of_one_version_are_not_those_of_another() {
    let folder = delta::table(false);
    let table = open(folder.path()).await;
    let paged = paged(&table).await;
    let sql = "SELECT day, id, s FROM t WHERE abs(id) < 1200";
    let before = Running::of(&paged, sql).await;
    let size = fs::metadata(folder.path().join("a.parquet")).unwrap().len();
    let remove = r#"{"remove":{"path":"a.parquet","deletionTimestamp":1700000000001,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{"day":"2024-01-01"},"size":1}}"#;
    let deleted = vector(&(0..900).step_by(2).collect::<Vec<u16>>()).to_string();
    commit(folder.path(), 1, &[remove.to_owned(), delta::add("a.parquet", "2024-01-01", size, Some(&deleted))]);
    let after = Running::of(&paged, sql).await;
    assert_eq!((before.expected.len(), after.expected.len()), (1200, 750));
    interleave(vec![before, after], 200, 1).await;
    assert!(paged.sharing.pages_shared() > 0);
}

/// A statement that stalls holds nobody up, and has its rows when it goes on.
#[tokio::test]
async fn law_nobody_waits_for_a_statement_that_stalls() {
    let folder = folder(2);
    let paged = paged(&open(folder.path()).await).await;
    let mut stalled = Running::of(&paged, STATEMENTS[0]).await;
    stalled.step().await;
    // The same statement again would share its plan, and take its rows to their end.
    for sql in STATEMENTS.into_iter().skip(1) {
        Running::of(&paged, sql).await.finish(0).await;
    }
    stalled.finish(0).await;
    assert!(paged.sharing.pages_shared() > 0);
}

#[test]
fn law_a_runtime_that_ends_takes_nobody_elses_rows_with_it() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let folder = folder(2);
    let paged = second.block_on(async { paged(&open(folder.path()).await).await });
    let mut gone = first.block_on(paged.begin(STATEMENTS[0]));
    first.block_on(gone.next()).unwrap().unwrap();
    let own = second.block_on(async {
        let mut own = Running::of(&paged, STATEMENTS[2]).await;
        own.step().await;
        own
    });
    first.shutdown_background();
    second.block_on(own.finish(0));
    drop(gone);
    second.block_on(async { Running::of(&paged, STATEMENTS[1]).await.finish(0).await });
}

/// What a statement gives to its end: its rows, or its error.
pub async fn outcome(mut stream: SendableRecordBatchStream, mut given: Vec<String>) -> Result<Vec<String>, String> {
    while let Some(batch) = stream.next().await {
        match batch {
            Ok(batch) => given.extend(text(&batch)),
            Err(error) => return Err(lakemark_datafusion::from_engine(error).to_string()),
        }
        // Others begin before this one has ended, however soon its files are read.
        tokio::task::yield_now().await;
    }
    Ok(sorted(given))
}

#[tokio::test]
async fn law_a_file_that_is_replaced_gives_each_statement_its_rows_or_an_error_that_names_it() {
    for steps in 0..12 {
        let folder = folder(2);
        let paged = paged(&open(folder.path()).await).await;
        let mut running = Vec::new();
        for sql in [STATEMENTS[0], STATEMENTS[2], STATEMENTS[4]] {
            running.push(Running::of(&paged, sql).await);
        }
        for step in 0..steps {
            running[step % 3].step().await;
        }
        let path = folder.path().join("part-1.parquet");
        fs::remove_file(&path).unwrap();
        write(&path, &batch(9 * FILE_ROWS));
        let (mut late, mut ended) = (Running::of(&paged, STATEMENTS[0]).await, Vec::new());
        late.step().await;
        running.push(late);
        for Running { sql, stream, given, expected } in running {
            ended.push((sql, expected, outcome(stream, given).await));
        }
        for (place, (sql, expected, outcome)) in ended.into_iter().enumerate() {
            match outcome {
                Ok(given) => assert_eq!(given, expected, "after {steps}: {sql}"),
                Err(error) => assert!(place < 3 && error.contains("part-1.parquet"), "after {steps}: {sql}: {error}"),
            }
        }
    }
}

/// Writes nonsense over the page headers of a column in a row group.
pub fn damage(path: &Path, row_group: usize, column: usize) {
    let mut bytes = fs::read(path).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&fs::File::open(path).unwrap()).unwrap();
    let at = metadata.row_group(row_group).column(column).data_page_offset() as usize;
    bytes[at..at + 12].fill(0xff);
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn law_a_damaged_page_is_the_error_of_those_who_have_it_alone() {
    let folder = folder(2);
    damage(&folder.path().join("part-0.parquet"), 2, 3);
    let paged = paged(&open(folder.path()).await).await;
    let asked = [
        "SELECT id, k, s FROM t WHERE abs(id) % 7 = 1",
        "SELECT id, k, f FROM t WHERE abs(id) % 7 = 1",
        "SELECT id, s FROM t WHERE id < 250 AND abs(id) % 2 = 0",
        "SELECT id, s, k FROM t WHERE id >= 1000 AND abs(id) % 5 = 0",
        "SELECT s, f FROM t WHERE abs(id) % 3 = 0",
    ];
    let mut alone = Vec::new();
    paged.set("lakemark.share", "off").await;
    for sql in asked {
        alone.push(outcome(paged.begin(sql).await, Vec::new()).await);
    }
    assert_eq!(alone.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, true, true, false]);
    paged.set("lakemark.share", "pages").await;
    for first in 0..asked.len() {
        let mut order: Vec<usize> = (0..asked.len()).collect();
        order.rotate_left(first);
        let mut running = Vec::new();
        for place in order {
            let stream = paged.begin(asked[place]).await;
            running.push(async move { (place, outcome(stream, Vec::new()).await) });
        }
        for (place, found) in join_all(running).await {
            match (found, &alone[place]) {
                (Err(error), Err(_)) => assert!(error.contains("part-0.parquet"), "first {first}: {error}"),
                (found, alone) => assert_eq!(&found, alone, "first {first}: {}", asked[place]),
            }
        }
    }
    assert!(paged.sharing.pages_shared() > 0);
}

/// What the scan of a statement tells of itself.
async fn scan_metrics(session: &LakemarkSession, sql: &str) -> String {
    let shown = rows(session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    shown.lines().find(|line| line.contains("LakemarkScanExec")).unwrap_or_else(|| panic!("{shown}")).to_owned()
}

#[tokio::test]
async fn explain_analyze_tells_what_was_shared() {
    let folder = folder(2);
    let paged = paged(&open(folder.path()).await).await;
    let alone = scan_metrics(&paged.session, STATEMENTS[2]).await;
    for part in ["shared_role=alone", "pages_shared=0", "rows_decoded_for_others=0", "rows_missed=0", "detached=0"] {
        assert!(alone.contains(part), "{part}: {alone}");
    }
    let mut other = Running::of(&paged, STATEMENTS[0]).await;
    other.step().await;
    let shown = scan_metrics(&paged.session, STATEMENTS[2]).await;
    assert!(shown.contains("shared_role=host") && shown.contains("detached=0"), "{shown}");
    assert!(shown.contains("pages_shared=") && !shown.contains("pages_shared=0"), "{shown}");
    other.finish(0).await;
    paged.set("lakemark.share", "plans").await;
    assert!(!scan_metrics(&paged.session, STATEMENTS[2]).await.contains("pages_shared"));
}

#[tokio::test]
async fn what_ends_early_or_reads_in_an_order_shares_no_page() {
    let folder = folder(2);
    let paged = paged(&open(folder.path()).await).await;
    for sql in [
        "SELECT id, k, s FROM t LIMIT 700",
        "SELECT id, k, s FROM t ORDER BY id DESC LIMIT 5",
        "SELECT count(*) FROM t",
    ] {
        let mut other = Running::of(&paged, STATEMENTS[0]).await;
        other.step().await;
        let before = paged.sharing.pages_shared();
        taken(paged.begin(sql).await).await;
        assert_eq!(paged.sharing.pages_shared(), before, "{sql}");
        other.finish(0).await;
    }
}

#[tokio::test]
async fn partitions_that_may_take_no_rows_of_others_share_no_page() {
    let folder = folder(2);
    let paged = paged(&open(folder.path()).await).await;
    for (hands_on, is_shared) in [("false", false), ("true", true)] {
        paged.set("datafusion.execution.enable_file_stream_work_stealing", hands_on).await;
        let mut other = Running::of(&paged, STATEMENTS[0]).await;
        other.step().await;
        taken(paged.begin(STATEMENTS[2]).await).await;
        assert_eq!(paged.sharing.pages_shared() > 0, is_shared, "{hands_on}");
        other.finish(0).await;
    }
}

#[tokio::test]
async fn principals_share_no_page_with_each_other() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    let sharing = Arc::new(PlanSharing::sharing_always());
    let plain = LakemarkSession::new();
    let mut sessions = Vec::new();
    for name in ["ann", "bob", "ann"] {
        let config = SessionConfig::new()
            .with_batch_size(50)
            .with_target_partitions(1)
            .with_extension(Arc::clone(&sharing))
            .with_extension(Arc::new(Principal(name.into())));
        let state = lakemark_datafusion::session_context(config).state();
        let state = datafusion::execution::SessionStateBuilder::new_from_existing(state);
        let state = state.with_runtime_env(plain.context().runtime_env()).build();
        let session = LakemarkSession::from_context(datafusion::prelude::SessionContext::new_with_state(state));
        session.register("t", Arc::clone(&table)).await.unwrap();
        rows(&session, "SET lakemark.share = pages").await;
        sessions.push(session);
    }
    let begin = async |session: usize, sql: &str| {
        let mut stream = sessions[session].sql(sql).await.unwrap().execute_stream().await.unwrap();
        stream.next().await.unwrap().unwrap();
        stream
    };
    let ann = begin(0, STATEMENTS[0]).await;
    taken(begin(1, STATEMENTS[2]).await).await;
    assert_eq!(sharing.pages_shared(), 0);
    taken(begin(2, STATEMENTS[2]).await).await;
    assert!(sharing.pages_shared() > 0);
    taken(ann).await;
}

/// A folder of one file with four row groups of so many rows, whose pages have an index or have none.
fn wide(group_rows: usize, has_page_index: bool) -> TempDir {
    let folder = TempDir::new().unwrap();
    let parts: Vec<RecordBatch> =
        (0..(4 * group_rows).div_ceil(FILE_ROWS)).map(|part| batch(part * FILE_ROWS)).collect();
    let rows = concat_batches(&parts[0].schema(), &parts).unwrap();
    let mut properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows));
    if !has_page_index {
        properties = properties.set_statistics_enabled(EnabledStatistics::Chunk).set_offset_index_disabled(true);
    }
    let properties = properties.build();
    let file = fs::File::create(folder.path().join("part.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    folder
}

#[tokio::test]
async fn scans_share_where_it_is_predicted_to_pay_and_nowhere_else() {
    for (group_rows, share) in [(250, false), (32_000, true)] {
        let folder = wide(group_rows, true);
        let paged = paged_by(&open(folder.path()).await, PlanSharing::new(), 200).await;
        let [mut one, mut other] = [
            Running::of(&paged, "SELECT id, k, s FROM t WHERE abs(id) % 97 = 1").await,
            Running::of(&paged, "SELECT id, s, f FROM t WHERE abs(id) % 89 = 2").await,
        ];
        // Of many rows its first batch leaves some for others.
        one.step().await;
        other.step().await;
        one.finish(0).await;
        other.finish(0).await;
        assert_eq!(paged.sharing.pages_shared() > 0, share, "{group_rows}");
    }
}

/// How many rows a batch has, and the sum of their first column.
fn summed((rows, sum): (usize, i64), batch: &RecordBatch) -> (usize, i64) {
    let ids = batch.column(0).as_primitive::<Int64Type>();
    (rows + ids.len(), sum + ids.values().iter().sum::<i64>())
}

/// Statements with a bound of their own each, over row groups that a reader cannot cut, with batches as they are by default.
#[tokio::test]
async fn statements_that_begin_together_decode_row_groups_without_a_page_index_once() {
    const GROUP_ROWS: usize = 50_000;
    const BATCH_ROWS: usize = 8_192;
    let folder = wide(GROUP_ROWS, false);
    let paged = paged_by(&open(folder.path()).await, PlanSharing::new(), BATCH_ROWS).await;
    let sql = |bound: i64| format!("SELECT id, k, s, f FROM t WHERE id >= {bound}");
    paged.set("lakemark.share", "off").await;
    let bytes_alone = metric(&ran(&paged.session, &sql(0)).await.plan, "bytes_scanned");
    paged.set("lakemark.share", "pages").await;
    let (mut plans, mut running) = (Vec::new(), Vec::new());
    for bound in (1..=8).map(|number| number * 100) {
        let frame = paged.session.sql(&sql(bound)).await.unwrap();
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await.unwrap();
        let mut stream = execute_stream(Arc::clone(&plan), context).unwrap();
        plans.push(plan);
        // Each of them finds one that reads by itself, or is the first.
        let first = stream.next().await.unwrap().unwrap();
        running.push((bound, stream, summed((0, 0), &first)));
    }
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for (_, stream, given) in &mut running {
            let Some(batch) = stream.next().await else { continue };
            *given = summed(*given, &batch.unwrap());
            goes_on = true;
        }
    }
    for (bound, _, given) in running {
        let ids = bound..(4 * GROUP_ROWS) as i64;
        assert_eq!(given, (ids.clone().count(), ids.sum::<i64>()));
    }
    let pages = 8 * 4 * GROUP_ROWS.div_ceil(BATCH_ROWS) as u64;
    assert!(paged.sharing.pages_shared() > pages / 2, "{} of {pages}", paged.sharing.pages_shared());
    let bytes: usize = plans.iter().map(|plan| metric(plan, "bytes_scanned")).sum();
    assert!(bytes_alone > 0 && bytes <= 4 * bytes_alone, "{bytes} for eight, {bytes_alone} for one");
    assert_eq!(paged.sharing.counts().guests, 0);
}

/// One statement after the other finds nobody, however much it reads.
#[tokio::test]
async fn much_that_is_read_alone_is_as_off_and_shares_nothing() {
    for has_page_index in [false, true] {
        let folder = wide(60_000, has_page_index);
        let paged = paged_by(&open(folder.path()).await, PlanSharing::new(), 8_192).await;
        paged.set("datafusion.execution.target_partitions", "3").await;
        for sql in [
            "SELECT count(s), sum(id), count(f), min(k) FROM t WHERE abs(id) % 97 = 1",
            "SELECT id, k, s, f FROM t WHERE id > 100000 AND abs(id) % 500 = 2",
        ] {
            assert_eq!(sorted(rows(&paged.session, sql).await), paged.alone(sql).await, "{sql}");
            let shown = scan_metrics(&paged.session, sql).await;
            assert!(shown.contains("shared_role=alone") && shown.contains("pages_shared=0"), "{shown}");
        }
        assert_eq!(paged.sharing.pages_shared(), 0);
    }
}
