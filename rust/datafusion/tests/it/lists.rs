//! Conditions on the elements of lists, with indexes and without, also where changes are buffered.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, Int32Builder, Int64Array, ListBuilder, RecordBatch, StringBuilder};
use lakemark_datafusion::{LakemarkSession, QueryOptions, count};
use lakemark_table::{BuildOptions, Change, MigrateOptions, Operation, WriteOptions};
use tempfile::TempDir;

use crate::fixture::{FILE_ROWS, Ran, both, create_indexes, metric, open, ran, rows, session, write};

const FILES: usize = 3;

/// Up to four tags of 23; none in every sixth row, NULL in every eleventh.
fn tags_of(row: usize) -> Option<Vec<String>> {
    let tags = (0..row % 6).take(4).map(|tag| format!("tag {}", (row * (tag % 3 + 2)) % 23));
    (!row.is_multiple_of(11)).then(|| tags.collect())
}

/// Up to three numbers; one of them is NULL in every fortieth row, and the list in every seventh.
fn numbers_of(row: usize) -> Option<Vec<Option<i32>>> {
    let numbers = (0..row % 4).map(|place| (row % 40 != 9).then_some(((row + place * 7) % 30) as i32));
    (row % 7 != 2).then(|| numbers.collect())
}

/// Floats with NaN and both zeros among them.
fn floats_of(row: usize) -> Vec<f64> {
    let special = [f64::NAN, -0.0, 0.0, 1.5, f64::INFINITY];
    (0..row % 3).map(|place| special[(row + place) % special.len()] + (row % 2) as f64).collect()
}

fn batch(ids: impl Iterator<Item = usize> + Clone) -> RecordBatch {
    let mut tags = ListBuilder::new(StringBuilder::new());
    let mut numbers = ListBuilder::new(Int32Builder::new());
    let mut floats = ListBuilder::new(Float64Builder::new());
    for row in ids.clone() {
        tags_of(row).iter().flatten().for_each(|tag| tags.values().append_value(tag));
        tags.append(tags_of(row).is_some());
        numbers_of(row).iter().flatten().for_each(|number| numbers.values().append_option(*number));
        numbers.append(numbers_of(row).is_some());
        floats_of(row).iter().for_each(|float| floats.values().append_value(*float));
        floats.append(true);
    }
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.map(|row| row as i64)));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", id),
        ("tags", Arc::new(tags.finish())),
        ("numbers", Arc::new(numbers.finish())),
        ("floats", Arc::new(floats.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap()
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in 0..FILES {
        let rows = batch(file * FILE_ROWS..(file + 1) * FILE_ROWS);
        write(&folder.path().join(format!("part-{file}.parquet")), &rows);
    }
    folder
}

const CONDITIONS: [&str; 22] = [
    "array_has(tags, 'tag 4')",
    "'tag 4' = ANY(tags)",
    "NOT array_has(tags, 'tag 4')",
    "array_has(tags, 'tag 4') AND array_has(tags, 'tag 6')",
    "array_has(tags, 'tag 4') OR array_has(tags, 'tag 6')",
    "array_has(tags, 'tag 4') AND NOT array_has(tags, 'tag 6') AND id % 2 = 0",
    "array_has(tags, 'tag 4') IS NOT TRUE",
    "array_has(tags, 'tag 4') IS NULL",
    "array_has_any(tags, ['tag 1', 'tag 5', 'nothing'])",
    "array_has_all(tags, ['tag 4', 'tag 6'])",
    "NOT array_has_all(tags, ['tag 4', 'tag 6'])",
    "tags @> ['tag 8']",
    "tags IS NULL",
    "tags IS NOT NULL",
    "array_has(tags, '') OR tags = []",
    "array_has(numbers, 7)",
    "NOT array_has(numbers, 7)",
    "array_has_any(numbers, [7, 5000000000])",
    "array_has(numbers, NULL)",
    "array_has_any(numbers, [1, NULL])",
    "array_has(floats, 1.5)",
    "array_has(floats, 0.0) OR array_has(floats, 'NaN'::double)",
];

async fn agree(session: &LakemarkSession) {
    for condition in CONDITIONS {
        for sql in ["SELECT * FROM t", "SELECT count(*), count(tags), min(id) FROM t"] {
            let sql = format!("{sql} WHERE {condition}");
            let (with, without) = both(session, &sql).await;
            assert_eq!(with, without, "{condition}");
        }
    }
    for sql in [
        "SELECT count(tags), count(*), count(DISTINCT tags) FROM t",
        "SELECT tags, count(*) FROM t GROUP BY tags",
        "SELECT tags, count(*) FROM t WHERE array_has(tags, 'tag 4') GROUP BY tags",
        "SELECT max(numbers), min(tags) FROM t",
        "SELECT unnest(tags) AS tag, count(*) FROM t GROUP BY tag",
        "SELECT id FROM t ORDER BY tags DESC, id LIMIT 5",
        "SELECT count(*) FROM t WHERE tags = ['tag 1']",
    ] {
        let (with, without) = both(session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
}

/// How many rows a condition is true of.
fn expected(is_true: impl Fn(&[String]) -> bool) -> usize {
    (0..FILES * FILE_ROWS).filter(|row| tags_of(*row).is_some_and(|tags| is_true(&tags))).count()
}

#[tokio::test]
async fn conditions_on_elements_are_answered_by_indexes() {
    let folder = folder();
    create_indexes(folder.path(), &["tags", "numbers", "floats"]).await;
    let session = session(folder.path()).await;
    agree(&session).await;
    let has = |tag: &'static str| move |tags: &[String]| tags.iter().any(|have| have == tag);
    for (condition, rows) in [
        ("array_has(tags, 'tag 4')", expected(has("tag 4"))),
        ("NOT array_has(tags, 'tag 4')", expected(|tags| !has("tag 4")(tags))),
        ("array_has_all(tags, ['tag 4', 'tag 6'])", expected(|tags| has("tag 4")(tags) && has("tag 6")(tags))),
        ("array_has_any(tags, ['tag 4', 'tag 6'])", expected(|tags| has("tag 4")(tags) || has("tag 6")(tags))),
    ] {
        let Ran { plan, rows: found } = ran(&session, &format!("SELECT id FROM t WHERE {condition}")).await;
        assert_eq!(found, rows, "{condition}");
        assert!(rows > 20, "{condition}");
        assert_eq!((metric(&plan, "rows_exact"), metric(&plan, "rows_rechecked")), (rows, 0), "{condition}");
        // From the index alone.
        let table = open(folder.path()).await;
        let counted = count(&table, Some(condition), &QueryOptions::default()).await.unwrap();
        assert_eq!(counted as usize, rows, "{condition}");
    }
    // A row with a NULL among its numbers is looked at.
    let plan = ran(&session, "SELECT id FROM t WHERE array_has(numbers, 7)").await.plan;
    let open = (0..FILES * FILE_ROWS).filter(|row| numbers_of(*row).is_some_and(|numbers| numbers.contains(&None)));
    assert_eq!(metric(&plan, "rows_rechecked"), open.count());
}

#[tokio::test]
async fn elements_of_buffered_rows_are_found_too() {
    let folder = folder();
    create_indexes(folder.path(), &["tags", "numbers"]).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    // Every third row of the first file has the lists of another, and some rows are new.
    let moved = batch((0..FILE_ROWS / 3).map(|row| row * 3 + 5));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..FILE_ROWS / 3).map(|row| row as i64 * 3)));
    let columns = std::iter::once(ids).chain(moved.columns()[1..].iter().cloned());
    let upserted = RecordBatch::try_new(moved.schema(), columns.collect()).unwrap();
    let added = batch(FILES * FILE_ROWS..FILES * FILE_ROWS + 500);
    let removed = batch((0..300).map(|row| row * 7 + 1)).project(&[0]).unwrap();
    let changes = [(Operation::Upsert, upserted), (Operation::Insert, added), (Operation::Delete, removed)];
    for (operation, rows) in changes {
        table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap();
    }
    let session = session(folder.path()).await;
    agree(&session).await;
    let sql = "SELECT count(*) FROM t WHERE array_has(tags, 'tag 4')";
    let before = rows(&session, sql).await;
    table.flush().await.unwrap();
    agree(&session).await;
    table.migrate(MigrateOptions::default()).await.unwrap();
    agree(&session).await;
    assert_eq!(rows(&session, sql).await, before);
    assert_eq!(
        metric(&ran(&session, "SELECT id FROM t WHERE array_has(tags, 'tag 4')").await.plan, "files_scanned"),
        0
    );
}

#[tokio::test]
async fn an_index_on_lists_is_created_by_a_statement() {
    let folder = folder();
    let session = session(folder.path()).await;
    session.sql("CREATE INDEX ON t (tags)").await.unwrap();
    let plan = ran(&session, "SELECT id FROM t WHERE array_has(tags, 'tag 4')").await.plan;
    assert_eq!(metric(&plan, "files_scanned"), 0);
    agree(&session).await;
}
