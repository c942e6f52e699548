//! Tables of Parquet files: new files lie in the store.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, Int64Array, LargeStringArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, ReaderProperties, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use uuid::Uuid;

use super::{
    RewriteFixture, expected, old_rows, open, pairs, pairs_of, positions, read, rows, with_column, write, write_with,
};
use crate::rewrite::folder::write as write_files;
use crate::rewrite::target::{FileTarget, WrittenFile};
use crate::rewrite::writer::new_properties;
use crate::rewrite::{RewriteOutput, RowBlock, rewrite_files};
use crate::{ErrorKind, Result, Table};

const MIGRATION: Uuid = Uuid::from_u128(7);

async fn migrate(table: &Table, buffered: &RewriteFixture) -> Result<RewriteOutput> {
    let snapshot = table.snapshot().await?;
    write_files(table.base().store.as_ref().unwrap(), &snapshot, &buffered.input(), MIGRATION).await
}

fn place(table: &Table, file: &WrittenFile) -> PathBuf {
    PathBuf::from(table.store_location().unwrap()).join(&file.path)
}

#[tokio::test]
async fn new_rows_take_the_places_of_those_that_they_replace() {
    let folder = tempfile::tempdir().unwrap();
    let snappy = WriterProperties::builder().set_compression(Compression::SNAPPY).set_max_row_group_row_count(Some(4));
    write_with(&folder.path().join("a.parquet"), &old_rows(0, 10), snappy.build());
    write(&folder.path().join("b.parquet"), &old_rows(10, 5));
    let table = open(folder.path()).await;
    let new = vec![rows(&[(20, "new"), (5, "new")]), rows(&[(13, "new"), (17, "new"), (2, "new")])];
    let buffered = RewriteFixture::new(vec![positions(&[2, 5, 7], 10), None], new);
    let rewritten = migrate(&table, &buffered).await.unwrap();

    assert_eq!(rewritten.replaced, [0]);
    let [again, added] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    assert_eq!((again.replaces, added.replaces), (Some(0), None));
    let want =
        [(0, "old"), (1, "old"), (2, "new"), (3, "old"), (4, "old"), (5, "new"), (6, "old"), (8, "old"), (9, "old")];
    assert_eq!(pairs(&place(&table, again)), expected(&want));
    assert_eq!(pairs(&place(&table, added)), expected(&[(13, "new"), (17, "new"), (20, "new")]));
    assert_eq!((again.row_groups.as_slice(), again.rows()), ([4, 3, 2].as_slice(), 9));
    assert_eq!(added.row_groups, [3]);
    for (number, file) in rewritten.files.iter().enumerate() {
        let start = if file.replaces.is_some() { "part" } else { "added" };
        assert!(file.path.starts_with(&format!("data/{MIGRATION}/{start}-{number:05}-")), "{}", file.path);
        assert!(file.path.ends_with(".parquet"), "{}", file.path);
        assert_eq!(file.size, std::fs::metadata(place(&table, file)).unwrap().len());
    }
    let compression = |file: &WrittenFile| {
        let reader = SerializedFileReader::new(std::fs::File::open(place(&table, file)).unwrap()).unwrap();
        let group = reader.metadata().row_group(0);
        let chunk = group.column(0);
        assert!(chunk.column_index_offset().is_some() && chunk.offset_index_offset().is_some());
        assert!(group.columns().iter().all(|column| column.statistics().is_some()));
        chunk.compression()
    };
    assert_eq!(compression(again), Compression::SNAPPY);
    assert!(matches!(compression(added), Compression::ZSTD(_)));
    // Originals stay, and nothing else is left in the store.
    assert_eq!(pairs(&folder.path().join("a.parquet")).len(), 10);
    let made = walk(&PathBuf::from(table.store_location().unwrap()));
    assert_eq!(made.len(), 2, "{made:?}");
}

#[tokio::test]
async fn a_dictionary_that_was_given_up_is_not_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    let properties = WriterProperties::builder().set_dictionary_page_size_limit(64).set_data_page_row_count_limit(50);
    let batch = old_rows(0, 1000);
    let properties = properties.set_write_batch_size(50).set_statistics_enabled(EnabledStatistics::Page).build();
    write_with(&folder.path().join("a.parquet"), &batch, properties);
    let dictionaries = |path: PathBuf| {
        let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
        let group = reader.metadata().row_group(0);
        [0, 1].map(|column| group.column(column).dictionary_page_offset().is_some())
    };
    assert_eq!(dictionaries(folder.path().join("a.parquet")), [true, true]);
    let table = open(folder.path()).await;
    let rewritten =
        migrate(&table, &RewriteFixture::new(vec![positions(&[7], 1000)], vec![rows(&[(7, "new")])])).await.unwrap();
    let [again] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    assert_eq!(dictionaries(place(&table, again)), [false, true]);
    assert_eq!(pairs(&place(&table, again)).len(), 1000);
}

fn walk(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn only_the_first_deleted_row_of_a_key_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &rows(&[(1, "a"), (2, "b"), (1, "c")]));
    write(&folder.path().join("b.parquet"), &rows(&[(1, "d"), (3, "e")]));
    let table = open(folder.path()).await;
    let deleted = vec![positions(&[0, 2], 3), positions(&[0], 2)];
    let rewritten = migrate(&table, &RewriteFixture::new(deleted, vec![rows(&[(1, "new")])])).await.unwrap();
    assert_eq!(rewritten.replaced, [0, 1]);
    assert_eq!(pairs(&place(&table, &rewritten.files[0])), expected(&[(1, "new"), (2, "b")]));
    assert_eq!(pairs(&place(&table, &rewritten.files[1])), expected(&[(3, "e")]));
    assert_eq!(rewritten.files.len(), 2);
}

#[tokio::test]
async fn a_file_of_which_nothing_is_left_has_no_successor() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &old_rows(0, 3));
    write(&folder.path().join("b.parquet"), &old_rows(3, 3));
    let table = open(folder.path()).await;
    let deleted = vec![positions(&[0, 1, 2], 3), positions(&[], 3)];
    let rewritten = migrate(&table, &RewriteFixture::new(deleted, vec![])).await.unwrap();
    assert_eq!((rewritten.replaced.as_slice(), rewritten.files.len()), ([0].as_slice(), 0));
}

#[tokio::test]
async fn long_files_are_read_and_written_in_batches_that_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let count = 30_000;
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(7_000)).build();
    write_with(&folder.path().join("a.parquet"), &old_rows(0, count), properties);
    let table = open(folder.path()).await;
    // Every seventh row is replaced, every eleventh is deleted if it is not replaced.
    let gone: Vec<u32> = (0..count as u32).filter(|row| row % 7 == 0 || row % 11 == 0).collect();
    let mut new: Vec<(i32, &str)> = (0..count).filter(|k| k % 7 == 0).map(|k| (k, "new")).collect();
    new.reverse();
    let batches = new.chunks(100).map(rows).collect();
    let rewritten = migrate(&table, &RewriteFixture::new(vec![positions(&gone, count as u32)], batches)).await.unwrap();
    let want = (0..count).filter(|k| k % 7 == 0 || k % 11 != 0);
    let want: Vec<_> = want.map(|k| (k, if k % 7 == 0 { "new" } else { "old" })).collect();
    assert_eq!(rewritten.files.len(), 1);
    assert_eq!(pairs(&place(&table, &rewritten.files[0])), expected(&want));
    assert_eq!(rewritten.files[0].row_groups, [6454, 6455, 6454, 6455, 1844]);
}

#[tokio::test]
async fn rows_go_to_the_files_of_their_partition() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("p=a%20b%2Fc/n=7/x.parquet"), &old_rows(0, 4));
    write(&root.join("p=__HIVE_DEFAULT_PARTITION__/n=8/x.parquet"), &old_rows(4, 4));
    let table = open(root).await;
    let snapshot = table.snapshot().await.unwrap();
    // Files are listed by path: the one with NULL comes first.
    assert!(snapshot.files().get(0).unwrap().path.starts_with("p=__HIVE"));
    let new = rows(&[(1, "new"), (2, "moved"), (5, "new"), (9, "new"), (6, "moved too")]);
    let new = with_column(&new, "p", &[Some("a b/c"), None, None, Some("é=%"), Some("")]);
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 8, 7, 8]));
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    for (field, column) in new.schema().fields().iter().zip(new.columns()) {
        columns.push((field.name().clone(), Arc::clone(column)));
    }
    columns.push(("n".to_owned(), numbers));
    let new = RecordBatch::try_from_iter(columns).unwrap();
    let buffered = RewriteFixture::new(vec![positions(&[1, 2], 4), positions(&[1, 2], 4)], vec![new]);
    let rewritten = migrate(&table, &buffered).await.unwrap();

    let made: Vec<_> = rewritten
        .files
        .iter()
        .map(|file| {
            let folders = file.path.split('/').skip(2).take(2).collect::<Vec<_>>().join("/");
            (folders, pairs(&place(&table, file)))
        })
        .collect();
    let null = "p=__HIVE_DEFAULT_PARTITION__/n=8".to_owned();
    assert_eq!(made[0], (null.clone(), expected(&[(4, "old"), (5, "new"), (7, "old")])));
    assert_eq!(made[1], ("p=a%20b%2Fc/n=7".to_owned(), expected(&[(0, "old"), (1, "new"), (3, "old")])));
    assert_eq!(made[2], (null, expected(&[(2, "moved")])));
    assert_eq!(made[3], ("p=é%3D%25/n=7".to_owned(), expected(&[(9, "new")])));
    assert_eq!(made[4], ("p=/n=8".to_owned(), expected(&[(6, "moved too")])));
    assert_eq!(made.len(), 5);

    // The folders decide what the values are.
    let data = PathBuf::from(table.store_location().unwrap()).join("data").join(MIGRATION.to_string());
    let again = open(&data).await.snapshot().await.unwrap();
    let values = |column: usize| again.files().iter().map(move |file| file.partition_values[column].clone());
    let texts: Vec<_> =
        values(0).map(|value| value.as_string::<i32>().iter().next().unwrap().map(str::to_owned)).collect();
    let is = |text: &str| Some(text.to_owned());
    assert_eq!(texts, [is(""), None, None, is("a b/c"), is("é=%")]);
    for (file, new) in rewritten.files.iter().map(|file| (file, file.partition_values.len())) {
        assert_eq!(new, 2);
        let same = again.files().iter().find(|have| file.path.ends_with(&have.path)).unwrap();
        assert_eq!(same.partition_values, file.partition_values, "{}", file.path);
        assert_eq!(same.meta.size, file.size);
    }
}

#[tokio::test]
async fn keys_may_have_several_columns_and_one_of_the_partition() {
    let folder = tempfile::tempdir().unwrap();
    for part in ["a", "b"] {
        write(&folder.path().join(format!("p={part}/x.parquet")), &rows(&[(1, "x"), (1, "y"), (2, "x")]));
    }
    let table = open(folder.path()).await;
    let new = with_column(&rows(&[(1, "y"), (1, "x")]), "p", &[Some("b"), Some("c")]);
    let mut buffered = RewriteFixture::new(vec![positions(&[1], 3), positions(&[0, 1], 3)], vec![new]);
    buffered.key = vec!["p".to_owned(), "s".to_owned(), "k".to_owned()];
    let rewritten = migrate(&table, &buffered).await.unwrap();
    let made: Vec<_> = rewritten.files.iter().map(|file| pairs(&place(&table, file))).collect();
    assert_eq!(made[0], expected(&[(1, "x"), (2, "x")]));
    assert_eq!(made[1], expected(&[(1, "y"), (2, "x")]));
    assert_eq!(made[2], expected(&[(1, "x")]));
}

#[tokio::test]
async fn columns_that_a_file_lacks_are_null_and_types_are_the_table_s() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &rows(&[(1, "a"), (2, "b")]));
    let large: ArrayRef = Arc::new(LargeStringArray::from(vec!["c", "d"]));
    let other = RecordBatch::try_from_iter([
        ("t", large.clone()),
        ("s", large),
        ("k", rows(&[(3, ""), (4, "")]).column(0).clone()),
    ])
    .unwrap();
    write(&folder.path().join("b.parquet"), &other);
    let table = open(folder.path()).await;
    let schema = table.snapshot().await.unwrap().file_schema();
    assert_eq!(schema.field_with_name("s").unwrap().data_type(), &DataType::LargeUtf8);
    let new = with_column(&rows(&[(1, "new")]), "t", &[Some("t")]);
    let buffered = RewriteFixture::new(vec![positions(&[0], 2), positions(&[1], 2)], vec![new]);
    let rewritten = migrate(&table, &buffered).await.unwrap();
    let first = place(&table, &rewritten.files[0]);
    assert_eq!(pairs(&first), expected(&[(1, "new"), (2, "b")]));
    assert_eq!(pairs_of(&first, ["k", "t"]), [(1, Some("t".to_owned())), (2, None)]);
    assert_eq!(pairs_of(&place(&table, &rewritten.files[1]), ["k", "t"]), [(3, Some("c".to_owned()))]);
    for file in &rewritten.files {
        let written = read(&place(&table, file)).schema();
        let types = |schema: &Schema| -> Vec<_> {
            schema.fields().iter().map(|field: &Arc<Field>| (field.name().clone(), field.data_type().clone())).collect()
        };
        assert_eq!(types(&written), types(&schema));
    }
}

#[tokio::test]
async fn many_new_rows_are_cut_into_files() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &old_rows(0, 3));
    let table = open(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    let new = (0..40_000).rev().map(|k| (k, "some text")).collect::<Vec<_>>();
    let buffered = RewriteFixture::new(vec![None], vec![rows(&new)]);
    let place = table.base().store.as_ref().unwrap().place();
    let path = |number: usize, _: Option<&crate::DataFile>, _: &[ArrayRef]| Ok(format!("{number}.parquet"));
    let target = FileTarget {
        object_store: Arc::clone(&place.object_store),
        prefix: place.prefix.clone(),
        local: place.local.clone(),
        schema: snapshot.file_schema(),
        file_bytes: 20_000,
        columns_are_in_files: true,
        tracks_nan: false,
        row_ids: None,
        changes: None,
        spark_schema: None,
        path: &path,
    };
    let rewritten = rewrite_files(&snapshot, &buffered.input(), &target).await.unwrap();
    assert!(rewritten.files.len() > 1, "{}", rewritten.files.len());
    let root = place.local.clone().unwrap();
    let ks: Vec<i32> = rewritten.files.iter().flat_map(|file| pairs(&root.join(&file.path))).map(|(k, _)| k).collect();
    assert_eq!(ks, (0..40_000).collect::<Vec<_>>());
    assert_eq!(new_properties().max_row_group_row_count(), Some(1024 * 1024));
    assert_eq!(new_properties().data_page_row_count_limit(), 20_000);
}

#[tokio::test]
async fn what_cannot_be_written_is_refused_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &old_rows(0, 3));
    let entry = KeyValue::new("org.apache.spark.version".to_owned(), "2.4.8".to_owned());
    let days: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![1]));
    let old = RecordBatch::try_from_iter([("k", old_rows(3, 1).column(0).clone()), ("d", days)]).unwrap();
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![entry])).build();
    write_with(&folder.path().join("b.parquet"), &old, properties);
    let table = open(folder.path()).await;
    let new = || {
        let new = rows(&[(1, "new"), (9, "new")]);
        let days: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![1, 2]));
        let columns = [("k", new.column(0).clone()), ("s", new.column(1).clone()), ("d", days)];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let error = async |deleted, rows| migrate(&table, &RewriteFixture::new(deleted, rows)).await.unwrap_err();
    let rebased = error(vec![positions(&[1], 3), positions(&[0], 1)], vec![new()]).await;
    assert_eq!(rebased.kind(), ErrorKind::Unsupported, "{rebased}");
    assert!(rebased.message().contains("the column d of b.parquet"), "{rebased}");
    let twice = error(vec![None, None], vec![new(), new()]).await;
    assert_eq!(twice.kind(), ErrorKind::Internal, "{twice}");
    let other = error(vec![positions(&[1], 4), None], vec![new()]).await;
    assert_eq!(other.kind(), ErrorKind::Internal, "{other}");
    let missing = error(vec![None, None], vec![rows(&[(1, "new")])]).await;
    assert_eq!(missing.kind(), ErrorKind::Internal, "{missing}");
    assert_eq!(walk(&PathBuf::from(table.store_location().unwrap()).join("data")), [] as [PathBuf; 0]);
}

/// Row groups without a change are copied with their statistics and indexes; others become one where few rows are left.
#[tokio::test]
async fn row_groups_keep_their_bytes_or_become_one() {
    let folder = tempfile::tempdir().unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(100))
        .set_data_page_row_count_limit(30)
        .set_write_batch_size(10)
        .set_bloom_filter_enabled(true)
        .set_compression(Compression::SNAPPY);
    // Columns that may be NULL, as those of new files.
    let old = old_rows(0, 650);
    let columns = old.columns().iter().zip(["k", "s"]).map(|(column, name)| (name, Arc::clone(column), true));
    let old = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    write_with(&folder.path().join("a.parquet"), &old, properties.build());
    let table = open(folder.path()).await;
    // The first and the third row group stay, the second has a new row, of the fourth, fifth and last little is left, of the
    // sixth nothing.
    let gone: Vec<u32> = [150].into_iter().chain(310..390).chain(410..490).chain(500..600).collect();
    let buffered =
        RewriteFixture::new(vec![positions(&gone, 650)], vec![rows(&[(150, "new"), (370, "new"), (1000, "new")])]);
    let rewritten = migrate(&table, &buffered).await.unwrap();
    let [again, added] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    assert_eq!(
        (again.row_groups.as_slice(), added.row_groups.as_slice()),
        ([100, 100, 100, 91].as_slice(), [1].as_slice())
    );
    let want = (0..650).filter(|k| !gone.contains(k) || [150, 370].contains(k));
    let want: Vec<_> = want.map(|k| (k as i32, if gone.contains(&k) { "new" } else { "old" })).collect();
    assert_eq!(pairs(&place(&table, again)), expected(&want));
    let opened = |path: &std::path::Path| {
        let options = ReadOptionsBuilder::new()
            .with_page_index()
            .with_reader_properties(ReaderProperties::builder().set_read_bloom_filter(true).build())
            .build();
        SerializedFileReader::new_with_options(std::fs::File::open(path).unwrap(), options).unwrap()
    };
    let (old, new) = (opened(&folder.path().join("a.parquet")), opened(&place(&table, again)));
    let bytes = |reader: &SerializedFileReader<std::fs::File>, path: &std::path::Path, group: usize, column: usize| {
        let (start, length) = reader.metadata().row_group(group).column(column).byte_range();
        std::fs::read(path).unwrap()[start as usize..(start + length) as usize].to_vec()
    };
    for (was, is) in [(0, 0), (2, 2)] {
        for column in 0..2 {
            let had = bytes(&old, &folder.path().join("a.parquet"), was, column);
            assert_eq!(bytes(&new, &place(&table, again), is, column), had);
            let (before, after) =
                (old.metadata().row_group(was).column(column), new.metadata().row_group(is).column(column));
            assert_eq!(after.statistics(), before.statistics());
            assert!(after.statistics().is_some());
            assert_eq!(after.encodings_mask(), before.encodings_mask());
            let indexes = |reader: &SerializedFileReader<std::fs::File>, group: usize| {
                reader.metadata().column_index().unwrap()[group][column].clone()
            };
            assert_eq!(indexes(&new, is), indexes(&old, was));
            let pages = |reader: &SerializedFileReader<std::fs::File>, group: usize| {
                let start = reader.metadata().row_group(group).column(column).byte_range().0 as i64;
                let pages = reader.metadata().offset_index().unwrap()[group][column].page_locations().clone();
                pages.into_iter().map(|page| (page.offset - start, page.first_row_index)).collect::<Vec<_>>()
            };
            assert_eq!(pages(&new, is), pages(&old, was));
            assert_eq!(pages(&new, is).len(), 4);
        }
        let filter = new.get_row_group(is).unwrap().get_column_bloom_filter(0).cloned();
        let filter = filter.unwrap_or_else(|| panic!("row group {is} has no filter"));
        let key = (was * 100) as i32;
        assert!(filter.check(&key) && (2_000..2_050).any(|other| !filter.check(&other)));
    }
}

/// Rows that wait in a part of their own are read as they are needed, and never all at once.
#[tokio::test]
async fn new_rows_are_read_as_files_need_them() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..3 {
        write(&folder.path().join(format!("{file}.parquet")), &old_rows(file * 10, 10));
    }
    let table = open(folder.path()).await;
    let seen = Seen::default();
    let new: Vec<(i32, &str)> = [3, 7, 14, 25, 28, 40, 41].into_iter().map(|k| (k, "new")).collect();
    let deleted = vec![positions(&[3, 7], 10), positions(&[4], 10), positions(&[5, 8], 10)];
    let mut buffered = RewriteFixture::new(deleted, vec![]);
    buffered.rows = vec![Arc::new(Watched { rows: rows(&new), seen: Arc::clone(&seen) })];
    let rewritten = migrate(&table, &buffered).await.unwrap();
    let made: Vec<_> = rewritten.files.iter().map(|file| pairs(&place(&table, file)).len()).collect();
    assert_eq!(made, [10, 10, 10, 2]);
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    // First the keys of all rows are read, then whole rows: a sample shows how large they are.
    assert_eq!(seen.remove(0), (1, None));
    seen.sort();
    let requested: Vec<_> = seen.iter().map(|(columns, rows)| (*columns, rows.clone().unwrap())).collect();
    let expected: [&[u32]; 7] = [&[0], &[1], &[2], &[3], &[4], &[5, 6], &[5, 6]];
    assert_eq!(requested, expected.map(|rows| (2, rows.to_vec())));
}

/// How many columns of which rows were read.
type Seen = Arc<Mutex<Vec<(usize, Option<Vec<u32>>)>>>;

struct Watched {
    rows: RecordBatch,
    seen: Seen,
}

impl RowBlock for Watched {
    fn row_count(&self) -> usize {
        self.rows.num_rows()
    }

    fn read<'a>(
        &'a self,
        columns: &'a SchemaRef,
        rows: Option<&'a [u32]>,
    ) -> futures::future::BoxFuture<'a, Result<RecordBatch>> {
        self.seen.lock().unwrap().push((columns.fields().len(), rows.map(<[u32]>::to_vec)));
        self.rows.read(columns, rows)
    }
}
