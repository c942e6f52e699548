//! Other writers who change the data files while changes are made, migrated and published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arrow::array::RecordBatch;
use lakemark_table::{
    Change, ErrorKind, MigrateOptions, Operation, Progress, Snapshot, Table, VacuumOptions, WriteOptions,
};

use super::lake::{Lake, PLAIN};
use super::{batch, folder, keyed, keys, make, numbers, row, rows};
use crate::fixture::{open, write};

/// Calls something once, when a migration has begun to read rows.
struct Meanwhile<F>(F, AtomicBool, AtomicU64);

impl<F: Fn() + Send + Sync> Progress for Meanwhile<F> {
    fn start(&self, total_rows: u64) {
        self.2.fetch_add(total_rows, Ordering::SeqCst);
        if !self.1.swap(true, Ordering::SeqCst) {
            (self.0)();
        }
    }

    fn advance(&self, _: u64) {}

    fn finish(&self) {}
}

/// A migration during which somebody else does something.
async fn migrate_while(table: &Arc<Table>, fraction: f64, what: impl Fn() + Send + Sync + 'static) -> u64 {
    let progress = Arc::new(Meanwhile(what, AtomicBool::new(false), AtomicU64::new(0)));
    let observer = Arc::clone(&progress) as Arc<dyn Progress>;
    let options = MigrateOptions { fraction, progress: Some(observer), ..MigrateOptions::default() };
    table.migrate(options).await.unwrap();
    progress.2.load(Ordering::SeqCst)
}

fn one(key: i64, a: i32, s: &str) -> RecordBatch {
    batch(&[(key, Some(a), Some(s))])
}

#[tokio::test]
async fn a_file_that_others_add_while_a_folder_is_migrated_stays_hidden_where_keys_are_buffered() {
    for fraction in [1.0, 0.5] {
        let folder = folder();
        let table = keyed(folder.path()).await;
        make(&table, Operation::Upsert, one(5, 50, "up")).await.unwrap();
        make(&table, Operation::Delete, keys(&[6])).await.unwrap();
        make(&table, Operation::Upsert, batch(&[(596, Some(1), Some("up")), (598, Some(1), Some("up"))]))
            .await
            .unwrap();
        let added = folder.path().join("z.parquet");
        migrate_while(&table, fraction, move || {
            write(
                &added,
                &batch(&[(5, Some(-5), Some("late")), (6, Some(-6), Some("late")), (7, Some(-7), Some("late"))]),
            );
        })
        .await;
        let mut seen: Vec<BTreeMap<i64, super::Row>> = Vec::new();
        for table in [Arc::clone(&table), open(folder.path()).await] {
            seen.push(rows(&table).await);
        }
        std::fs::remove_dir_all(folder.path().join("_lakemark/indexes")).unwrap();
        seen.push(rows(&*open(folder.path()).await).await);
        for now in seen {
            assert_eq!((&now[&5], now.get(&6), &now[&7]), (&row(50, "up"), None, &row(-7, "late")));
            assert_eq!(now.len(), 301);
        }
    }
}

#[tokio::test]
async fn appends_of_other_keys_do_not_let_a_migration_begin_again() {
    let mut lake = Lake::new(&PLAIN, false);
    let base: Vec<_> = (0..50).map(|k| (k, Some(1), Some("base"))).collect();
    let adds = [lake.put("f.parquet", &batch(&base)), lake.put("g.parquet", &one(90, 1, "base"))];
    lake.commit(&adds);
    let table = keyed(lake.root()).await;
    make(&table, Operation::Upsert, one(3, 2, "up")).await.unwrap();
    make(&table, Operation::Delete, keys(&[4])).await.unwrap();
    // An append, and a file without a buffered key that is written anew.
    let actions = [
        lake.put("h.parquet", &one(70, 7, "late")),
        Lake::removes("g.parquet"),
        lake.put("i.parquet", &one(90, 9, "late")),
    ];
    let root = lake.root().to_owned();
    let read = migrate_while(&table, 1.0, move || crate::delta::commit(&root, 2, &actions)).await;
    assert_eq!(read, 50 + 1 + 51, "rows that were rewritten once, and those that were indexed");
    let now = rows(&*open(lake.root()).await).await;
    assert_eq!((now.len(), &now[&3], now.get(&4)), (51, &row(2, "up"), None));
    assert_eq!((&now[&70], &now[&90]), (&row(7, "late"), &row(9, "late")));
    assert_eq!(lake.files().len(), 3);
}

#[tokio::test]
async fn an_append_of_a_buffered_key_is_migrated_with_the_others() {
    let mut lake = Lake::new(&PLAIN, false);
    let base: Vec<_> = (0..50).map(|k| (k, Some(1), Some("base"))).collect();
    let add = lake.put("f.parquet", &batch(&base));
    lake.commit(&[add]);
    let table = keyed(lake.root()).await;
    make(&table, Operation::Upsert, one(60, 2, "up")).await.unwrap();
    let late = [lake.put("h.parquet", &batch(&[(60, Some(7), Some("late")), (61, Some(7), Some("late"))]))];
    let root = lake.root().to_owned();
    migrate_while(&table, 1.0, move || crate::delta::commit(&root, 2, &late)).await;
    let now = rows(&*open(lake.root()).await).await;
    assert_eq!((now.len(), &now[&60], &now[&61]), (52, &row(2, "up"), &row(7, "late")));
}

async fn changed(table: &Arc<Table>, read: &Arc<Snapshot>, key: i64) -> Result<(), ErrorKind> {
    let change = Change { operation: Operation::Update, rows: numbers(&[(key, Some(6))]) };
    let options = WriteOptions { read_at: read.sequence(), read: Some(Arc::clone(read)), ..WriteOptions::default() };
    table.write(vec![change], options).await.map(|_| ()).map_err(|error| error.kind())
}

#[tokio::test]
async fn a_row_that_others_changed_since_a_statement_read_it_is_a_conflict() {
    let mut lake = Lake::new(&PLAIN, false);
    let base = |a| (0..10).map(move |k| (k, Some(if k == 3 { a } else { 1 }), Some("base"))).collect::<Vec<_>>();
    let add = lake.put("f.parquet", &batch(&base(1)));
    lake.commit(&[add]);
    let table = keyed(lake.root()).await;
    make(&table, Operation::Upsert, one(8, 2, "up")).await.unwrap();
    let read = table.snapshot().await.unwrap();
    // The same rows in another file are no conflict, others are.
    let actions = [Lake::removes("f.parquet"), lake.put("g.parquet", &batch(&base(1)))];
    lake.commit(&actions);
    assert_eq!(changed(&table, &read, 4).await, Ok(()));
    assert_eq!(changed(&table, &read, 8).await, Ok(()));
    let read = table.snapshot().await.unwrap();
    let actions = [Lake::removes("g.parquet"), lake.put("h.parquet", &batch(&base(100)))];
    lake.commit(&actions);
    assert_eq!(changed(&table, &read, 5).await, Ok(()));
    assert_eq!(changed(&table, &read, 3).await, Err(ErrorKind::Conflict));
    let read = table.snapshot().await.unwrap();
    assert_eq!(changed(&table, &read, 3).await, Ok(()));
    // Deleted, and added for the first time.
    let actions =
        [Lake::removes("h.parquet"), lake.adds_without("h.parquet", &[6]), lake.put("i.parquet", &one(20, 1, "late"))];
    lake.commit(&actions);
    assert_eq!(changed(&table, &read, 6).await, Err(ErrorKind::Conflict));
    assert_eq!(changed(&table, &read, 20).await, Err(ErrorKind::Conflict));
    assert_eq!(changed(&table, &read, 7).await, Ok(()));
    let read = table.snapshot().await.unwrap();
    lake.alter(&[&PLAIN[..], &[("x", "x", "long")]].concat());
    assert_eq!(changed(&table, &read, 7).await, Err(ErrorKind::Conflict));
}

#[tokio::test]
async fn a_name_that_another_column_has_taken_since_a_statement_read_it_is_a_conflict() {
    let mut lake = Lake::new(&PLAIN, true);
    let base: Vec<_> = (0..10).map(|k| (k, Some(1), Some("base"))).collect();
    let add = lake.put("f.parquet", &batch(&base));
    lake.commit(&[add]);
    let table = keyed(lake.root()).await;
    let read = table.snapshot().await.unwrap();
    assert_eq!(changed(&table, &read, 7).await, Ok(()));
    // Dropped, and added again in its place.
    lake.alter(&[("k", "k", "long"), ("a", "c9", "integer"), ("s", "s", "string")]);
    assert_eq!(changed(&table, &read, 5).await, Err(ErrorKind::Conflict));
    let read = table.snapshot().await.unwrap();
    assert_eq!(changed(&table, &read, 5).await, Ok(()));
}

/// What was buffered when it was read may be in a data file since, and others may have changed it there.
#[tokio::test]
async fn a_row_that_was_buffered_and_that_others_changed_since_is_a_conflict() {
    for flushed in [false, true] {
        let mut lake = Lake::new(&PLAIN, false);
        let base: Vec<_> = (0..10).map(|k| (k, Some(1), Some("base"))).collect();
        let add = lake.put("f.parquet", &batch(&base));
        lake.commit(&[add]);
        let table = keyed(lake.root()).await;
        for key in [3, 4, 20, 21] {
            make(&table, Operation::Upsert, one(key, 2, "up")).await.unwrap();
        }
        if flushed {
            table.flush().await.unwrap();
        }
        let read = table.snapshot().await.unwrap();
        table.migrate(MigrateOptions::default()).await.unwrap();
        // Nobody else changed anything.
        assert_eq!(changed(&table, &read, 21).await, Ok(()), "{flushed}");
        let rest: Vec<_> = base.iter().map(|row| if row.0 == 3 { (3, Some(2), Some("up")) } else { *row }).collect();
        let removes = lake.files().into_iter().map(|name| Lake::removes(&name));
        let actions: Vec<_> = removes.chain([lake.put("g.parquet", &batch(&rest))]).collect();
        lake.commit(&actions);
        assert_eq!(changed(&table, &read, 3).await, Ok(()), "the same row, {flushed}");
        assert_eq!(changed(&table, &read, 4).await, Err(ErrorKind::Conflict), "set back, {flushed}");
        assert_eq!(changed(&table, &read, 20).await, Err(ErrorKind::Conflict), "deleted, {flushed}");
        assert_eq!(changed(&table, &read, 5).await, Ok(()), "never buffered, {flushed}");
    }
}

#[tokio::test]
async fn a_row_of_a_folder_that_others_changed_since_a_statement_read_it_is_a_conflict() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let read = table.snapshot().await.unwrap();
    let rest: Vec<_> =
        (0..150).map(|row| (row * 2, Some(if row == 3 { 77 } else { row as i32 }), Some("base"))).collect();
    std::fs::remove_file(folder.path().join("f0.parquet")).unwrap();
    write(&folder.path().join("n.parquet"), &batch(&rest));
    assert_eq!(changed(&table, &read, 304).await, Ok(()));
    assert_eq!(changed(&table, &read, 6).await, Err(ErrorKind::Conflict));
    // Its old row is gone with the file, so that nobody can tell whether it was the same.
    assert_eq!(changed(&table, &read, 4).await, Err(ErrorKind::Conflict));
    let read = table.snapshot().await.unwrap();
    assert_eq!(changed(&table, &read, 4).await, Ok(()));
    // Our own migrations are no changes of others.
    make(&table, Operation::Upsert, one(302, 5, "up")).await.unwrap();
    let read = table.snapshot().await.unwrap();
    table.migrate(MigrateOptions::default()).await.unwrap();
    assert_eq!(changed(&table, &read, 306).await, Ok(()));
}

/// A migration or a build that is stopped for hours, here: whose lock is held while its files grow old.
#[tokio::test]
async fn a_vacuum_leaves_what_a_migration_or_a_build_under_way_has_written() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    make(&table, Operation::Upsert, one(5, 50, "up")).await.unwrap();
    table.flush().await.unwrap();
    let store = folder.path().join("_lakemark");
    let unnamed =
        store.join("data/4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11/part-00000-4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11.parquet");
    let run = store.join("updates/4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11.lmr");
    // Of an index or of a run's position map: whoever holds either lock may be about to name it.
    let segment = store.join("indexes/4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11.lmx");
    for path in [&unnamed, &run, &segment] {
        write(path, &one(5, 50, "up"));
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(2 * 60 * 60)).unwrap();
    }
    let old = VacuumOptions { older_than: Duration::from_secs(60 * 60), ..VacuumOptions::default() };
    let lock = |name: &str| {
        let file = std::fs::File::options().write(true).open(store.join(name)).unwrap();
        // Builds share theirs.
        if name == "build.lock" { file.lock_shared() } else { file.lock() }.unwrap();
        file
    };
    {
        let _migrates = (table.migrate(MigrateOptions::default()).await.unwrap(), lock("updates/migration.lock"));
        table.vacuum(old).await.unwrap();
        assert!(unnamed.exists() && !run.exists() && segment.exists());
        write(&run, &one(5, 50, "up"));
        let file = std::fs::File::options().write(true).open(&run).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(2 * 60 * 60)).unwrap();
    }
    {
        let _writes = lock("updates/lock");
        table.vacuum(old).await.unwrap();
        assert!(!unnamed.exists() && run.exists() && segment.exists());
    }
    {
        let _builds = lock("build.lock");
        table.vacuum(old).await.unwrap();
        assert!(!run.exists() && segment.exists());
    }
    table.vacuum(old).await.unwrap();
    assert!(!run.exists() && !segment.exists());
}

/// Counts while a folder of many parts is migrated and published again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_stay_right_while_others_publish() {
    let folder = tempfile::tempdir().unwrap();
    for part in 0..40 {
        let rows: Vec<_> = (0..5).map(|row| (part * 5 + row, Some(1), Some("base"))).collect();
        write(&folder.path().join(format!("p={part}/f.parquet")), &batch(&rows));
    }
    let table = keyed(folder.path()).await;
    let done = Arc::new(AtomicBool::new(false));
    let (path, until) = (folder.path().to_owned(), Arc::clone(&done));
    let reader = tokio::spawn(async move {
        let (mut counted, other) = (0, open(&path).await);
        while !until.load(Ordering::SeqCst) || counted == 0 {
            let snapshot = other.snapshot().await.unwrap();
            let in_files: u64 = snapshot
                .files()
                .iter()
                .map(|file| {
                    let rows: u32 = file.row_groups.as_ref().unwrap().iter().sum();
                    u64::from(rows - file.deleted.as_ref().map_or(0, |deleted| deleted.len()))
                })
                .sum();
            let buffered = snapshot.buffered_rows().map_or(0, |buffered| buffered.row_count());
            assert_eq!(in_files + buffered, 200, "after {counted} counts");
            counted += 1;
        }
        counted
    });
    for round in 0..6i64 {
        let rows: Vec<_> = (0..40).map(|part| (part * 5 + round % 5, Some(round as i32), Some("up"))).collect();
        let p: arrow::array::ArrayRef = Arc::new((0..40).map(Some).collect::<arrow::array::Int64Array>());
        let rows = batch(&rows);
        let own = rows
            .schema_ref()
            .fields()
            .iter()
            .zip(rows.columns())
            .map(|(field, values)| (field.name().clone(), Arc::clone(values)));
        make(&table, Operation::Upsert, RecordBatch::try_from_iter(own.chain([("p".to_owned(), p)])).unwrap())
            .await
            .unwrap();
        table.migrate(MigrateOptions::default()).await.unwrap();
        table.publish().await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    assert!(reader.await.unwrap() > 0);
}

/// The type of the key that is migrated is not that of the folders.
#[tokio::test]
async fn files_that_others_add_to_a_folder_whose_partitions_are_held_as_text_are_looked_at() {
    for (late, is_added_twice) in [(vec![9], false), (vec![2], true)] {
        let folder = tempfile::tempdir().unwrap();
        let put = |root: &std::path::Path, part: &str, k: &[i64]| {
            write(&root.join(format!("part={part}/f{}.parquet", k[0])), &keys(k));
        };
        put(folder.path(), "x", &[1]);
        let table = open(folder.path()).await;
        let key = ["part".to_owned(), "k".to_owned()];
        table.declare_key(&key, &BTreeMap::new(), lakemark_table::BuildOptions::default()).await.unwrap();
        let part: arrow::array::ArrayRef = Arc::new(arrow::array::StringArray::from(vec!["7", "007"]));
        let rows = keys(&[2, 2]);
        let rows = RecordBatch::try_from_iter([("k", Arc::clone(rows.column(0))), ("part", part)]).unwrap();
        make(&table, Operation::Upsert, rows).await.unwrap();
        std::fs::remove_dir_all(folder.path().join("part=x")).unwrap();
        put(folder.path(), "7", &[1]);
        let (root, added) = (folder.path().to_owned(), late.clone());
        migrate_while(&table, 1.0, move || put(&root, "7", &added)).await;
        let snapshot = table.snapshot().await.unwrap();
        assert!(snapshot.buffered_rows().is_none());
        let rows = super::overtaken::counted(&snapshot).await;
        // What is buffered hides what others added of its key.
        assert_eq!(rows, if is_added_twice { 3 } else { 4 });
    }
}
