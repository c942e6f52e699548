//! Snapshots that are made from the one before, compared with those of a table that is opened just then. Here those of Delta tables.

mod migrated;

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use deltalake_core::protocol::checkpoints::create_checkpoint;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roaring::RoaringTreemap;
use serde_json::{Value, json};

use super::Snapshot;
use crate::files::delta::DeltaState;
use crate::snapshot::newest_manifest;
use crate::{BuildOptions, ErrorKind, IndexSpec, Table, TableOptions};

const FILES: usize = 40;
const STEPS: usize = 40;

async fn open(root: &Path) -> Arc<Table> {
    Table::open_alone(root.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

fn column(name: &str, kind: &str, stored: Option<&str>) -> Value {
    let metadata = stored.map_or(
        json!({}),
        |stored| json!({"delta.columnMapping.id": stored[1..].parse::<u32>().unwrap(), "delta.columnMapping.physicalName": stored}),
    );
    json!({"name": name, "type": kind, "nullable": true, "metadata": metadata})
}

fn inline_vector(rows: &[u64]) -> Value {
    let mut bytes = 1_681_511_377u32.to_le_bytes().to_vec();
    RoaringTreemap::from_iter(rows.iter().copied()).serialize_into(&mut bytes).unwrap();
    let size = bytes.len();
    bytes.resize(size.next_multiple_of(4), 0);
    json!({"storageType": "i", "pathOrInlineDv": z85::encode(&bytes), "sizeInBytes": size, "cardinality": rows.len()})
}

/// A data file as the log has it.
#[derive(Clone)]
struct LiveFile {
    /// The text of its path.
    text: String,
    part: Option<u32>,
    rows: u32,
    size: u64,
    vector: Option<Value>,
}

impl LiveFile {
    fn add(&self, column: &str, tags: &Value) -> Value {
        let part = self.part.map(|part| part.to_string());
        let mut add = json!({"path": self.text, "partitionValues": {column: part}, "size": self.size,
            "modificationTime": 1_700_000_000_000u64, "dataChange": true, "tags": tags});
        if let Some(vector) = &self.vector {
            add["deletionVector"] = vector.clone();
        }
        json!({"add": add})
    }

    fn remove(&self) -> Value {
        let mut remove = json!({"path": self.text, "deletionTimestamp": 1, "dataChange": true});
        if let Some(vector) = &self.vector {
            remove["deletionVector"] = vector.clone();
        }
        json!({"remove": remove})
    }
}

/// The actions of a commit to a table.
type Commit<'a> = &'a dyn Fn(&Changing) -> Vec<Value>;

/// A Delta table that is changed at random.
struct Changing {
    root: PathBuf,
    random: StdRng,
    /// Columns have other names in the files.
    is_mapped: bool,
    version: u64,
    /// Files, columns and tables that were made so far.
    made: u32,
    more_columns: u32,
    live: Vec<LiveFile>,
}

impl Changing {
    fn new(root: &Path, is_mapped: bool, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let mut table =
            Self { root: root.to_owned(), random, is_mapped, version: 0, made: 0, more_columns: 0, live: Vec::new() };
        let files: Vec<Value> = (0..FILES).map(|_| table.append()).collect();
        table.begin(files);
        table
    }

    /// The name that a column has in the files.
    fn stored(&self, name: &'static str) -> &'static str {
        match (self.is_mapped, name) {
            (false, _) => name,
            (true, "k") => "c1",
            (true, "s") => "c2",
            (true, _) => "c3",
        }
    }

    fn metadata(&self) -> Value {
        let column = |name: &'static str, kind: &str| column(name, kind, self.is_mapped.then(|| self.stored(name)));
        let mut columns = vec![column("k", "integer"), column("s", "string"), column("p", "integer")];
        for number in 0..self.more_columns {
            let stored = self.is_mapped.then(|| format!("c{}", number + 4));
            columns.push(self::column(&format!("more{number}"), "string", stored.as_deref()));
        }
        let schema = json!({"type": "struct", "fields": columns}).to_string();
        let mut configuration = json!({"delta.enableDeletionVectors": "true"});
        if self.is_mapped {
            configuration["delta.columnMapping.mode"] = "name".into();
            configuration["delta.columnMapping.maxColumnId"] = "100".into();
        }
        json!({"metaData": {"id": format!("4f1c9e53-6ba7-4c1f-9a3e-{:012}", self.made), "format": {"provider": "parquet", "options": {}},
            "schemaString": schema, "partitionColumns": ["p"], "configuration": configuration, "createdTime": 0}})
    }

    /// Begins the log, as a table that is made anew does.
    fn begin(&mut self, files: Vec<Value>) {
        let features: &[&str] =
            if self.is_mapped { &["deletionVectors", "columnMapping"] } else { &["deletionVectors"] };
        let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
            "writerFeatures": features}});
        self.version = 0;
        self.commit(&[vec![protocol, self.metadata()], files].concat());
    }

    fn commit(&mut self, actions: &[Value]) {
        let log = self.root.join("_delta_log");
        fs::create_dir_all(&log).unwrap();
        let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
        fs::write(log.join(format!("{:020}.json", self.version)), lines.join("\n")).unwrap();
        self.version += 1;
    }

    /// Adds a file, anywhere among the others.
    fn append(&mut self) -> Value {
        self.made += 1;
        let (made, rows) = (self.made, self.random.random_range(20..40));
        // The log escapes the space.
        let space = if made % 8 == 0 { " " } else { "-" };
        let name = format!("f{:03}{space}{made}.parquet", self.random.random_range(0..1000));
        let k: ArrayRef =
            Arc::new((0..rows).map(|row| (row % 5 > 0).then_some((row + made) as i32)).collect::<Int32Array>());
        let s: ArrayRef = Arc::new((0..rows).map(|row| Some(format!("s{row}"))).collect::<StringArray>());
        let batch = RecordBatch::try_from_iter([(self.stored("k"), k), (self.stored("s"), s)]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(16)).build();
        let path = self.root.join(&name);
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let part = Some(made % 4).filter(|part| *part > 0);
        let size = fs::metadata(&path).unwrap().len();
        self.live.push(LiveFile { text: name.replace(' ', "%20"), part, rows, size, vector: None });
        self.add(self.live.len() - 1)
    }

    fn add(&self, place: usize) -> Value {
        self.live[place].add(self.stored("p"), &json!({}))
    }

    /// Gives a file another vector, or none.
    fn delete_rows(&mut self, place: usize, is_restore: bool) -> Vec<Value> {
        let rows = u64::from(self.live[place].rows);
        let positions: Vec<u64> = (0..rows).filter(|_| self.random.random_range(0..4) == 0).collect();
        let vector = (!is_restore).then(|| inline_vector(&positions));
        if self.live[place].vector == vector {
            return vec![self.live[place].remove(), self.append()];
        }
        let remove = self.live[place].remove();
        self.live[place].vector = vector;
        vec![remove, self.add(place)]
    }

    /// A commit of files.
    fn change_files(&mut self) -> Vec<Value> {
        let place = self.random.random_range(0..self.live.len());
        match self.random.random_range(0..14) {
            0..3 => (0..self.random.random_range(1..4)).map(|_| self.append()).collect(),
            3 => vec![self.live.remove(place).remove()],
            4..7 => self.delete_rows(place, false),
            7 => self.delete_rows(place, true),
            8 => {
                let gone = [self.live.remove(place), self.live.remove(place / 2)];
                [gone.map(|file| file.remove()).to_vec(), vec![self.append()]].concat()
            }
            // Statistics or tags were written anew.
            9 => vec![self.live[place].add(self.stored("p"), &json!({"tag": "new"}))],
            10 => {
                vec![json!({"txn": {"appId": "x", "version": self.version}}), json!({"commitInfo": {"operation": "x"}})]
            }
            // A removal of what is no file of the table: the path is written in another way, or the vector is another one.
            11 => {
                let mut other = self.live[place].clone();
                other.text = other.text.replace(['-', ' '], "%2D");
                vec![other.remove(), json!({"domainMetadata": {"domain": "d", "configuration": "", "removed": false}})]
            }
            12 => {
                let mut other = self.live[place].clone();
                other.vector = Some(inline_vector(&[0, 1, 2, 3, 4, 5, 6]));
                vec![other.remove()]
            }
            _ => {
                let gone: Vec<Value> = self.live.drain(..).map(|file| file.remove()).collect();
                [gone, (0..FILES / 2).map(|_| self.append()).collect()].concat()
            }
        }
    }

    async fn change(&mut self, table: &Table) {
        match self.random.random_range(0..24) {
            0 => {
                self.more_columns += 1;
                let metadata = self.metadata();
                self.commit(&[metadata]);
            }
            1 => {
                fs::remove_dir_all(self.root.join("_delta_log")).unwrap();
                self.live.iter_mut().for_each(|file| file.vector = None);
                let files = (0..self.live.len()).map(|place| self.add(place)).collect();
                self.begin(files);
            }
            // A checkpoint, and older commits are gone.
            2 if !self.is_mapped => {
                let url = url::Url::from_directory_path(&self.root).unwrap();
                create_checkpoint(&deltalake_core::open_table(url).await.unwrap(), None).await.unwrap();
                for version in 0..self.version - 1 {
                    let older = self.root.join(format!("_delta_log/{version:020}.json"));
                    if older.exists() {
                        fs::remove_file(older).unwrap();
                    }
                }
            }
            3 => {
                let column = if self.random.random_bool(0.5) { "k" } else { "s" };
                let spec = IndexSpec { columns: vec![column.into()], ..IndexSpec::default() };
                table.create_index(spec, true).await.unwrap();
            }
            4 => {
                for index in table.snapshot().await.unwrap().indexes().iter().take(1) {
                    table.drop_index(&index.name, false).await.unwrap();
                }
            }
            5..10 if table.snapshot().await.unwrap().has_indexes() => {
                table.build(BuildOptions::default()).await.unwrap();
            }
            _ => {
                for _ in 0..self.random.random_range(1..4) {
                    let actions = self.change_files();
                    self.commit(&actions);
                }
            }
        }
    }
}

fn assert_same(now: &Snapshot, afresh: &Snapshot, at: &str) {
    let paths = |snapshot: &Snapshot| snapshot.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(now), paths(afresh), "{at}");
    for (place, (now, afresh)) in now.files.iter().zip(&afresh.files).enumerate() {
        assert_eq!(format!("{now:?}"), format!("{afresh:?}"), "{at}, file {place}");
    }
    for (place, (now, afresh)) in now.index_states.iter().zip(&afresh.index_states).enumerate() {
        assert_eq!(
            (now.number, now.unverified, now.size_changed, &now.schema),
            (afresh.number, afresh.unverified, afresh.size_changed, &afresh.schema),
            "{at}, file {place}"
        );
    }
    let shape = |of: &Snapshot| (of.schema(), of.file_schema(), of.partition_columns().to_vec());
    assert_eq!(shape(now), shape(afresh), "{at}");
    let said = |of: &Snapshot| {
        let digest = &of.matched.digest;
        let numbers: Vec<u32> = digest.numbers().iter().collect();
        let of_log = (of.delta_version(), of.table_id().map(str::to_owned), of.lineage.clone());
        let deleted = (of.deleted_rows(), of.deleted_in.to_vec());
        (of_log, of.rows(), deleted, digest.unsettled().collect::<Vec<_>>(), numbers)
    };
    assert_eq!(said(now), said(afresh), "{at}");
}

/// Says how many snapshots were made from the one before.
async fn check(is_mapped: bool, seed: u64) -> usize {
    let root = tempfile::tempdir().unwrap();
    let mut changing = Changing::new(root.path(), is_mapped, seed);
    let table = open(root.path()).await;
    let base = table.base();
    let mut state = base.cache.log.read(&base.location).await.unwrap();
    let mut snapshot = Snapshot::pin_base(base).await.unwrap();
    let mut advances = 0;
    for step in 0..STEPS {
        let at = format!("seed {seed}, step {step}");
        changing.change(&table).await;
        let next = base.cache.log.read(&base.location).await.unwrap();
        let afresh = Snapshot::pin_base(open(root.path()).await.base()).await.unwrap();
        if next.continues(&state) {
            let manifest = newest_manifest(base).await.unwrap();
            let changes = next.changes_since(&state);
            if let Some(advanced) = snapshot.advanced_log(base, manifest.as_ref(), &next, changes).await.unwrap() {
                assert_same(&advanced, &afresh, &at);
                advances += usize::from(next.version > state.version);
            }
        }
        let pinned = Snapshot::pin_base(base).await.unwrap();
        assert_same(&pinned, &afresh, &at);
        (state, snapshot) = (next, pinned);
    }
    advances
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_after_commits_is_what_a_table_that_is_opened_anew_sees() {
    for seed in 0..4 {
        let advances = check(false, seed).await;
        assert!(advances >= STEPS / 5, "seed {seed}: {advances}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn so_it_is_where_columns_have_other_names_in_the_files() {
    for seed in 10..13 {
        let advances = check(true, seed).await;
        assert!(advances >= STEPS / 5, "seed {seed}: {advances}");
    }
}

/// A table with a log of so many files, none of which is there.
fn listed(root: &Path, files: u32) -> Changing {
    let mut table = Changing::new(root, false, 1);
    fs::remove_dir_all(root.join("_delta_log")).unwrap();
    let model = table.live[0].clone();
    let name = |number: u32| LiveFile { text: format!("g{number:05}.parquet"), ..model.clone() };
    table.live = (0..files).map(name).collect();
    let files = (0..table.live.len()).map(|place| table.add(place)).collect();
    table.begin(files);
    table
}

#[tokio::test]
async fn a_commit_leaves_the_files_alone_that_it_does_not_name() {
    let root = tempfile::tempdir().unwrap();
    let mut changing = listed(root.path(), 5000);
    let table = open(root.path()).await;
    let base = table.base();
    let (before, snapshot) =
        (base.cache.log.read(&base.location).await.unwrap(), Snapshot::pin_base(base).await.unwrap());
    let removed = changing.live[2500].remove();
    let added = changing.append();
    changing.commit(&[removed, added]);
    let (after, now) = (base.cache.log.read(&base.location).await.unwrap(), Snapshot::pin_base(base).await.unwrap());
    assert_eq!((after.version, after.files.len(), now.files.len()), (1, 5000, 5000));
    // Of the log each file is shared but one, and of the snapshot each part of 256 files but two.
    assert_eq!(after.changes_since(&before).len(), 2);
    let shared = |file: &super::DataFile| snapshot.files.iter().any(|had| std::ptr::eq(had, file));
    let of_parts = now.files.parts().filter(|part| part.iter().take(1).all(shared)).count();
    assert_eq!(of_parts, now.files.parts().len() - 2);
}

#[tokio::test]
async fn what_commits_do_not_tell_by_themselves_is_read_of_the_whole_log() {
    let mut other_columns = Changing::new(tempfile::tempdir().unwrap().path(), false, 2);
    other_columns.more_columns = 1;
    let vector = inline_vector(&[1, 2]);
    let commits: [Commit<'_>; 6] = [
        &|_| vec![other_columns.metadata()],
        &|_| {
            vec![json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "appendOnly"]}})]
        },
        // A second file in the place of one, by another vector or by another text of the path.
        &|table| vec![LiveFile { vector: Some(vector.clone()), ..table.live[3].clone() }.add("p", &json!({}))],
        &|table| {
            let text = table.live[3].text.replacen('f', "%66", 1);
            vec![LiveFile { text, ..table.live[3].clone() }.add("p", &json!({}))]
        },
        &|_| vec![json!({"unknown": {}})],
        // Nobody reads so much before knowing what it is good for.
        &|_| vec![json!({"commitInfo": {"operation": "x".repeat(16 << 20)}})],
    ];
    for (number, commit) in commits.iter().enumerate() {
        let root = tempfile::tempdir().unwrap();
        let mut changing = Changing::new(root.path(), false, 3);
        let table = open(root.path()).await;
        let base = table.base();
        let before = base.cache.log.read(&base.location).await.unwrap();
        Snapshot::pin_base(base).await.unwrap();
        let actions = commit(&changing);
        changing.commit(&actions);
        let after = base.cache.log.read(&base.location).await.unwrap();
        assert!(!after.continues(&before) && after.version == 1, "commit {number}");
        let afresh = Snapshot::pin_base(open(root.path()).await.base()).await.unwrap();
        assert_same(&Snapshot::pin_base(base).await.unwrap(), &afresh, &format!("commit {number}"));
    }
}

#[tokio::test]
async fn transactions_are_known_of_the_commits_that_have_them() {
    let root = tempfile::tempdir().unwrap();
    let mut changing = Changing::new(root.path(), false, 4);
    let table = open(root.path()).await;
    let base = table.base();
    let versions = async |state: &DeltaState| {
        [state.application_version("x").await.unwrap(), state.application_version("y").await.unwrap()]
    };
    // Of a state that nobody asked the versions are not known, and its log is searched.
    let unasked = open(root.path()).await;
    let first = unasked.base().cache.log.read(&base.location).await.unwrap();
    let mut state = base.cache.log.read(&base.location).await.unwrap();
    assert_eq!(versions(&state).await, [None, None]);
    let x = |version: u64| json!({"txn": {"appId": "x", "version": version}});
    for (actions, expected) in [
        (vec![x(3)], [Some(3), None]),
        (vec![json!({"commitInfo": {}})], [Some(3), None]),
        (vec![x(5), json!({"txn": {"appId": "y", "version": 1}})], [Some(5), Some(1)]),
        (vec![json!({"commitInfo": {}})], [Some(5), Some(1)]),
    ] {
        changing.commit(&actions);
        let next = base.cache.log.read(&base.location).await.unwrap();
        assert!(next.continues(&state));
        assert_eq!(versions(&next).await, expected);
        state = next;
    }
    let last = unasked.base().cache.log.read(&base.location).await.unwrap();
    assert!(last.continues(&first) && last.version == 4);
    assert_eq!(versions(&last).await, [Some(5), Some(1)]);
}

#[tokio::test]
async fn a_state_does_not_read_the_log_of_the_table_that_took_the_place_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let mut changing = Changing::new(root.path(), false, 5);
    let table = open(root.path()).await;
    let base = table.base();
    let first = base.cache.log.read(&base.location).await.unwrap();
    changing.commit(&[json!({"commitInfo": {}})]);
    let state = base.cache.log.read(&base.location).await.unwrap();
    assert!(state.continues(&first) && state.version == 1);
    // The other table has the same files and as many versions.
    fs::remove_dir_all(root.path().join("_delta_log")).unwrap();
    changing.made += 1;
    let files = (0..changing.live.len()).map(|place| changing.add(place)).collect();
    changing.begin(files);
    changing.commit(&[json!({"txn": {"appId": "x", "version": 7}})]);
    let path = state.files.get(0).unwrap().path.clone();
    for error in [state.application_version("x").await.unwrap_err(), state.removals(&[&path], 1).await.err().unwrap()] {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("was replaced while it was read"), "{error}");
    }
}
