//! A random table on disk, and its indexes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, StructArray, UInt32Array};
use arrow::compute::{not, nullif};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::record_batch::RecordBatch;
use lakemark_format::Encoding;
use lakemark_index::{Precision, key_type_of};
use lakemark_table::{BuildOptions, IndexKind, IndexSpec, Table, TableOptions, column_list};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::buffered::{self, Twin};
use super::column::{Column, Home, STRUCT, Types, pick};
use super::delta::{Log, LogFile, delta_type, stored};
use super::walks::LinkColumns;

/// A random table: its columns, and the folder that holds its files and its indexes.
pub struct RandomTable {
    /// The columns after `id`, which counts the rows.
    pub columns: Vec<Column>,
    /// A column of lists after them, in some tables. Conditions are on its elements, and never on whole lists.
    pub list: Option<Column>,
    /// The columns of its links, in some tables. That of the far ends comes after all others, and conditions are on none of its values.
    pub links: Option<LinkColumns>,
    /// Some of its rows, for predicates to aim at.
    pub samples: Vec<Sample>,
    /// How many rows it has.
    pub rows: u64,
    /// One line for the report of a difference.
    pub description: String,
    folder: TempDir,
    /// The rows as they should be, if some are buffered.
    twin: Option<Twin>,
}

/// A row of a random table.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its `id`.
    pub id: i64,
    /// For each column the place of its value in the column's domain; none where it is NULL.
    pub picks: Vec<Option<usize>>,
}

/// What is not left to the dice of a random table.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// Columns that it has, or the first of them; any without.
    pub like: &'a [Column],
    /// What the number of rows of each file is divided by.
    pub smaller: usize,
    /// Whether it has neither structs nor maps.
    pub is_flat: bool,
    /// Whether it has columns of types that every engine has, and nothing else.
    pub is_common: bool,
    /// Whether it may have links, and a column more for them.
    pub has_links: bool,
}

/// Rows of each file that predicates may aim at.
const SAMPLES_PER_FILE: usize = 24;

/// How much of the table its indexes know.
#[derive(Clone, Copy, Debug)]
enum Coverage {
    /// Every file.
    Whole,
    /// Some files were added after the build.
    Half,
    /// One file was replaced after the build.
    Stale,
}

/// Columns that a table may have beside those that conditions are on.
#[derive(Clone, Copy)]
struct More<'a> {
    list: Option<&'a Column>,
    far: Option<&'a Column>,
}

/// One data file to be written.
#[derive(Clone)]
struct Part {
    name: String,
    rows: usize,
    row_group_rows: usize,
    dictionary: bool,
    statistics: EnabledStatistics,
    lacks: Option<usize>,
    first_id: i64,
    /// Whether its columns have other names than those of the table.
    is_mapped: bool,
}

impl RandomTable {
    /// Writes and indexes the table of a seed.
    pub async fn create(seed: u64) -> Self {
        let manner = Manner { like: &[], smaller: 1, is_flat: false, is_common: false, has_links: true };
        Self::create_as(seed, &manner).await
    }

    /// Writes and indexes the table of a seed, in a manner.
    #[expect(clippy::too_many_lines, reason = "one step after the other")]
    pub async fn create_as(seed: u64, manner: &Manner<'_>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        // Dice of their own: where values are changes nothing else about the table.
        let mut dice = StdRng::seed_from_u64(seed ^ 0x40e5);
        // Some tables have a struct with some of the columns in it, or maps.
        let shares =
            [[Home::Flat; 2], [Home::Flat; 2], [Home::Flat, Home::Struct], [Home::Struct; 2], [Home::Flat, Home::Map]];
        let homes = if manner.is_flat { &shares[0] } else { pick(&mut dice, &shares) };
        let mut of_log = StdRng::seed_from_u64(seed ^ 0xde17a);
        let is_delta = of_log.random_bool(0.35)
            && !manner.is_common
            && manner.like.iter().all(|column| delta_type(&column.data_type).is_some());
        let types = match (manner.is_common, is_delta) {
            (true, _) => Types::Common,
            (false, true) => Types::Delta,
            (false, false) => Types::All,
        };
        let count = rng.random_range(2..8);
        let columns = (0..count).map(|ordinal| Column::random(&mut rng, ordinal, *pick(&mut dice, homes), types));
        let mut columns: Vec<Column> = columns.collect();
        if !manner.like.is_empty() {
            columns = manner.like.iter().take(count).cloned().collect();
        }
        // Dice of their own again: what else a table has stays as it is without lists.
        let mut of_lists = StdRng::seed_from_u64(seed ^ 0x1157);
        let list = of_lists.random_bool(0.3) && !manner.is_common;
        let list = list.then(|| Column::random(&mut of_lists, columns.len(), Home::List, types));
        let mut of_links = StdRng::seed_from_u64(seed ^ 0x11b5);
        let has_links = manner.has_links && of_links.random_bool(0.7);
        let links = has_links.then(|| LinkColumns::random(&mut of_links, &columns)).flatten();
        let more = More { list: list.as_ref(), far: links.as_ref().map(|links| &links.far) };
        // Updates of tables that map columns are for flat ones.
        let is_flat = list.is_none() && columns.iter().all(|column| column.home == Home::Flat);
        let is_mapped = is_delta && is_flat && of_log.random_bool(0.5);
        let mut log = is_delta.then(|| Log::new(of_log, is_mapped));
        let folder = tempfile::tempdir().unwrap();
        let parts = random_parts(&mut rng, columns.len(), is_mapped, manner.smaller);
        let coverage = *pick(&mut rng, &[Coverage::Whole, Coverage::Whole, Coverage::Half, Coverage::Stale]);
        let late = match coverage {
            Coverage::Whole => 0,
            Coverage::Half => parts.len() / 2,
            Coverage::Stale => 1,
        };
        let (early_parts, late_parts) = parts.split_at(parts.len() - late.min(parts.len()));
        let mut samples = Vec::new();
        for part in early_parts {
            samples.extend(part.write(
                &columns,
                more,
                [&mut rng, &mut dice, &mut of_lists, &mut of_links],
                folder.path(),
            ));
        }
        if matches!(coverage, Coverage::Stale) {
            // Other rows under the same name: what the indexes are about to describe will be gone.
            for part in late_parts {
                part.write(&columns, more, [&mut rng, &mut dice, &mut of_lists, &mut of_links], folder.path());
            }
        }
        if let Some(log) = &mut log {
            let indexed = if matches!(coverage, Coverage::Stale) { &parts } else { early_parts };
            log.begin(folder.path(), &indexed.iter().map(Part::file).collect::<Vec<_>>());
        }
        let empty = parts.len() == late && !matches!(coverage, Coverage::Stale);
        let mut indexed = create_indexes(seed, &mut rng, &columns, folder.path(), empty).await;
        if !empty {
            indexed.extend(create_several_indexes(seed, &columns, folder.path()).await);
            indexed.extend(create_list_index(&mut of_lists, list.as_ref(), folder.path()).await);
            // Joins take rows from an index of links between columns that they have in any case.
            let between = !manner.has_links && of_links.random_bool(0.7);
            let between = between.then(|| LinkColumns::between(&mut of_links, &columns)).flatten();
            if let Some(links) = links.as_ref().or(between.as_ref()) {
                indexed.push(links.create_index(&mut of_links, folder.path()).await);
            }
        }
        let mut newer: Vec<Part> = late_parts.to_vec();
        if log.is_some() {
            // Files of Delta tables are never written again.
            newer.iter_mut().for_each(|part| part.name = format!("new-{}", part.name));
        }
        for part in &newer {
            samples.extend(part.write(
                &columns,
                more,
                [&mut rng, &mut dice, &mut of_lists, &mut of_links],
                folder.path(),
            ));
        }
        let mut description = describe(&columns, &parts, coverage, &indexed);
        let mut rows: u64 = parts.iter().map(|part| part.rows as u64).sum();
        if let Some(log) = &mut log {
            let gone = if matches!(coverage, Coverage::Stale) { late_parts } else { &[] };
            let gone: Vec<String> = gone.iter().map(|part| part.name.clone()).collect();
            log.change(folder.path(), &newer.iter().map(Part::file).collect::<Vec<_>>(), &gone);
            description.push_str(&log.describe());
            rows -= log.hidden_rows();
        }
        if let Some(list) = &list {
            description = format!("{description}; lists of {}", list.data_type);
        }
        // Dice of their own again.
        let mut dice = StdRng::seed_from_u64(seed ^ 0xc4a6);
        let mut twin = None;
        if dice.random_bool(0.4) {
            let changed = buffered::change(&mut dice, folder.path()).await;
            description = format!("{description}; changes: {}", changed.description);
            rows = changed.rows.num_rows() as u64;
            twin = Some(changed);
        }
        // Nothing can be indexed in an empty folder.
        let links = links.filter(|_| !empty);
        Self { columns, list, links, samples, rows, description, folder, twin }
    }

    /// Where rows are as they should be without any index and with nothing buffered.
    pub fn plain_location(&self) -> &Path {
        self.twin.as_ref().map_or(self.folder.path(), |twin| twin.folder.path())
    }

    /// The rows as they should be, if some are buffered.
    pub fn changed_rows(&self) -> Option<&RecordBatch> {
        self.twin.as_ref().map(|twin| &twin.rows)
    }

    /// Where it is.
    pub fn location(&self) -> &Path {
        self.folder.path()
    }
}

fn random_parts(rng: &mut StdRng, columns: usize, is_mapped: bool, smaller: usize) -> Vec<Part> {
    let mut first_id = 0;
    (0..rng.random_range(1..5))
        .map(|ordinal| {
            let rows = usize::div_ceil(*pick(rng, &[1, 7, 64, 150, 400, 700]), smaller);
            let part = Part {
                name: format!("part-{ordinal}.parquet"),
                rows,
                row_group_rows: *pick(rng, &[3, 16, 50, 128, 1_000]),
                dictionary: rng.random_bool(0.7),
                statistics: *pick(
                    rng,
                    &[
                        EnabledStatistics::Page,
                        EnabledStatistics::Page,
                        EnabledStatistics::Chunk,
                        EnabledStatistics::None,
                    ],
                ),
                // The first file keeps every column: the schema is read from there.
                lacks: (ordinal > 0 && rng.random_bool(0.2)).then(|| rng.random_range(0..columns)),
                first_id,
                is_mapped,
            };
            first_id += i64::try_from(rows).unwrap();
            part
        })
        .collect()
}

impl Part {
    /// The file as a log has it.
    fn file(&self) -> LogFile {
        LogFile { path: self.name.clone(), rows: self.rows }
    }

    /// Writes the file and gives some of its rows.
    fn write(
        &self,
        columns: &[Column],
        more: More<'_>,
        [rng, dice, of_lists, of_links]: [&mut StdRng; 4],
        folder: &Path,
    ) -> Vec<Sample> {
        let mut fields = vec![Field::new("id", DataType::Int64, false)];
        let last_id = self.first_id + i64::try_from(self.rows).unwrap();
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(self.first_id..last_id))];
        let mut picks: Vec<Option<UInt32Array>> = Vec::new();
        let valid = random_validity(dice, self.rows);
        // Files with the struct have all of its fields: other structs would be another type.
        let without_struct = self.lacks.is_some_and(|lacks| columns[lacks].home == Home::Struct);
        let mut inner: Vec<(FieldRef, ArrayRef)> = Vec::new();
        for (ordinal, column) in columns.iter().enumerate() {
            let lacking = self.lacks == Some(ordinal) || without_struct && column.home == Home::Struct;
            let mut here = (!lacking).then(|| column.picks(rng, self.rows));
            if let Some(here) = &mut here {
                if column.home == Home::Struct {
                    *here = nullif(here, &not(&valid).unwrap()).unwrap().as_primitive().clone();
                }
                let values = if column.home == Home::Map { column.maps(dice, here) } else { column.values(here) };
                if column.home == Home::Struct {
                    inner.push((Arc::new(column.field(&values)), values));
                } else {
                    fields.push(column.field(&values));
                    arrays.push(values);
                }
            }
            picks.push(here);
        }
        if let Some(list) = more.list {
            let lists = list.lists(of_lists, self.rows);
            fields.push(list.field(&lists));
            arrays.push(lists);
        }
        let lacks_ends = self.first_id > 0 && of_links.random_bool(0.15);
        if let Some(far) = more.far.filter(|_| !lacks_ends) {
            let ends = far.values(&far.picks(of_links, self.rows));
            fields.push(far.field(&ends));
            arrays.push(ends);
        }
        if !inner.is_empty() {
            let (names, values): (Vec<FieldRef>, Vec<ArrayRef>) = inner.into_iter().unzip();
            let outer = StructArray::new(names.into(), values, Some(valid.values().clone().into()));
            fields.push(Field::new(STRUCT, outer.data_type().clone(), true));
            arrays.push(Arc::new(outer));
        }
        let samples = (0..SAMPLES_PER_FILE.min(self.rows))
            .map(|_| {
                let row = rng.random_range(0..self.rows);
                let value = |picks: &Option<UInt32Array>| {
                    picks.as_ref().filter(|picks| picks.is_valid(row)).map(|picks| picks.value(row) as usize)
                };
                Sample { id: self.first_id + i64::try_from(row).unwrap(), picks: picks.iter().map(value).collect() }
            })
            .collect();
        if self.is_mapped {
            for field in &mut fields {
                field.set_name(stored(field.name()));
            }
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(self.row_group_rows))
            .set_data_page_row_count_limit(8)
            .set_write_batch_size(8)
            .set_dictionary_enabled(self.dictionary)
            .set_statistics_enabled(self.statistics)
            .set_compression(if self.dictionary { Compression::SNAPPY } else { Compression::UNCOMPRESSED })
            .build();
        let path: PathBuf = folder.join(&self.name);
        let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        samples
    }
}

/// In which rows a struct is no NULL.
fn random_validity(rng: &mut StdRng, rows: usize) -> BooleanArray {
    let share = *pick(rng, &[1.0, 0.9, 0.4]);
    (0..rows).map(|_| Some(rng.random_bool(share))).collect()
}

/// Declares indexes of any encoding on some columns and builds them; returns the columns. Nothing can be indexed in an empty folder.
async fn create_indexes(seed: u64, rng: &mut StdRng, columns: &[Column], folder: &Path, empty: bool) -> Vec<String> {
    // Dice of their own: all else is as it is without.
    let mut of_include = StdRng::seed_from_u64(seed ^ 0x1c10);
    let mut of_hashes = StdRng::seed_from_u64(seed ^ 0x4a54);
    let share = *pick(rng, &[1.0, 1.0, 0.6, 0.3]);
    let files_per_segment = *pick(rng, &["1", "2", "16"]);
    let chosen: Vec<&Column> = columns.iter().filter(|_| rng.random_bool(share)).collect();
    if empty || chosen.is_empty() {
        return Vec::new();
    }
    let table = open_to_index(seed, folder).await;
    let mut indexed = Vec::with_capacity(chosen.len());
    // Some columns have several indexes, of which the best that covers a file is probed.
    let twice: Vec<&Column> = chosen.iter().filter(|_| rng.random_bool(0.2)).copied().collect();
    for (number, column) in chosen.iter().chain(&twice).enumerate() {
        let encoding = *pick(rng, &Encoding::ALL);
        let precisions = precisions_of(&column.data_type);
        let (option, value) = match (encoding, precisions.as_slice()) {
            // Types without bins have any other encoding.
            (Encoding::Binned, []) => ("encoding", Encoding::Equality.name()),
            (Encoding::Binned, precisions) => ("precision", *pick(rng, precisions)),
            (Encoding::Filtered | Encoding::Sliced, _) if rng.random() => ("fpp", *pick(rng, &["0.5", "0.01", "1e-9"])),
            (Encoding::Filtered | Encoding::Sliced, _) => ("zone_rows", *pick(rng, &["1", "50", "3000"])),
            (encoding, _) => ("encoding", encoding.name()),
        };
        let options = [("files_per_segment", files_per_segment), (option, value)];
        // The encoding `packed` is the kind `key`, which has no option for it.
        let options = options.into_iter().take(if encoding == Encoding::Packed { 1 } else { 2 });
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut included =
            (encoding == Encoding::Packed).then(|| include(&mut of_include, columns, &[*column])).flatten();
        let hash_bits = (encoding == Encoding::Packed).then(|| hash_bits(&mut of_hashes, column)).flatten();
        if hash_bits.is_some() && column.home == Home::Flat && of_hashes.random_bool(0.5) {
            included = Some(with_own_values(included, column));
        }
        let spec = IndexSpec {
            columns: vec![column.path()],
            name: Some(format!("index_{number}")),
            kind: Some(IndexKind::of_encoding(encoding)),
            options: options.chain(included.clone()).chain(hash_bits.clone()).collect(),
        };
        table.create_index(spec, false).await.unwrap();
        let included = included.map_or(String::new(), |(_, names)| format!(" including {names}"));
        let hashed = hash_bits.map_or(String::new(), |(_, bits)| format!(" hashed to {bits} bits"));
        indexed.push(format!("{} by {} {option} {value}{hashed}{included}", column.name, encoding.name()));
    }
    table.build(BuildOptions { threads: Some(1), ..BuildOptions::default() }).await.unwrap();
    indexed
}

/// The table, to build indexes of: those of half of the seeds have inner pages as soon as a tree has two leaves.
async fn open_to_index(seed: u64, folder: &Path) -> Arc<Table> {
    let table = Table::open(folder.to_str().unwrap(), TableOptions::default()).await.unwrap();
    if StdRng::seed_from_u64(seed ^ 0x1ea5).random_bool(0.5) {
        table.limit_leaves(1);
    }
    table
}

/// The option of hashes in the place of long values, in some indexes on columns that may have these.
fn hash_bits(dice: &mut StdRng, column: &Column) -> Option<(String, String)> {
    let has_long = key_type_of(&column.data_type).is_some_and(|key_type| !key_type.is_fixed());
    (has_long && dice.random_bool(0.5)).then(|| ("hash_bits".to_owned(), pick(dice, &["8", "12", "40"]).to_string()))
}

/// The option of columns that ride along, with those of the key as well.
fn with_own_values(included: Option<(String, String)>, key: &Column) -> (String, String) {
    let own = key.path();
    let own = column_list(std::iter::once(own.as_str()));
    match included {
        Some((option, others)) => (option, format!("{others},{own}")),
        None => ("include".to_owned(), own),
    }
}

/// The option of columns that ride along with a key, in some indexes: `id` and some others.
fn include(dice: &mut StdRng, columns: &[Column], key: &[&Column]) -> Option<(String, String)> {
    if dice.random_bool(0.4) {
        return None;
    }
    let may_ride = |column: &&Column| {
        let is_key = key.iter().any(|own| own.name == column.name);
        column.home == Home::Flat && !is_key && key_type_of(&column.data_type).is_some()
    };
    let others = columns.iter().filter(may_ride).filter(|_| dice.random_bool(0.6)).map(Column::path);
    let names: Vec<String> = std::iter::once("id".to_owned()).chain(others).collect();
    Some(("include".to_owned(), column_list(names.iter().map(String::as_str))))
}

/// Declares and builds indexes over several columns, in any order of these.
async fn create_several_indexes(seed: u64, columns: &[Column], folder: &Path) -> Vec<String> {
    // Dice of their own: all else is as it is without.
    let mut dice = StdRng::seed_from_u64(seed ^ 0x5e7e);
    let mut of_include = StdRng::seed_from_u64(seed ^ 0x1c11);
    let mut indexed = Vec::new();
    let count = *pick(&mut dice, &[0, 1, 1, 2]);
    if count == 0 {
        return indexed;
    }
    let table = open_to_index(seed, folder).await;
    for number in 0..count {
        let width = dice.random_range(2..5).min(columns.len());
        let chosen: Vec<&Column> = columns.choose_multiple(&mut dice, width).collect();
        let spec = IndexSpec {
            columns: chosen.iter().map(|column| column.path()).collect(),
            name: Some(format!("several_{number}")),
            kind: *pick(&mut dice, &[Some(IndexKind::Key), None]),
            options: [("files_per_segment".to_owned(), pick(&mut dice, &["1", "2", "16"]).to_string())]
                .into_iter()
                .chain(include(&mut of_include, columns, &chosen))
                .collect(),
        };
        table.create_index(spec, false).await.unwrap();
        let names: Vec<&str> = chosen.iter().map(|column| column.name.as_str()).collect();
        indexed.push(format!("({}) by packed", names.join(", ")));
    }
    table.build(BuildOptions { threads: Some(1), ..BuildOptions::default() }).await.unwrap();
    indexed
}

/// Mostly declares and builds an index on the elements of lists.
async fn create_list_index(rng: &mut StdRng, list: Option<&Column>, folder: &Path) -> Option<String> {
    let list = list.filter(|_| rng.random_bool(0.8))?;
    let table = Table::open(folder.to_str().unwrap(), TableOptions::default()).await.unwrap();
    let files = pick(rng, &["1", "2", "16"]).to_string();
    let options = [("files_per_segment".to_owned(), files)].into();
    let spec = IndexSpec { columns: vec![list.path()], options, ..IndexSpec::default() };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions { threads: Some(1), ..BuildOptions::default() }).await.unwrap();
    Some(format!("elements of {}", list.name))
}

/// What a column of a type may be cut by.
pub fn precisions_of(data_type: &DataType) -> Vec<&'static str> {
    let Some(key_type) = key_type_of(data_type) else { return Vec::new() };
    let mut precisions = vec!["1", "2", "15", "year", "month", "day", "hour", "minute", "second"];
    precisions.retain(|precision| precision.parse::<Precision>().unwrap().check(&key_type).is_ok());
    precisions
}

fn describe(columns: &[Column], parts: &[Part], coverage: Coverage, indexed: &[String]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| format!("{} {}", column.name, column.data_type)).collect();
    let parts: Vec<String> = parts
        .iter()
        .map(|part| {
            format!(
                "{} rows by {}{}",
                part.rows,
                part.row_group_rows,
                part.lacks.map_or(String::new(), |c| format!(" without c{c}"))
            )
        })
        .collect();
    format!(
        "columns: {}; files: {}; indexes: {coverage:?} on [{}]",
        columns.join(", "),
        parts.join(", "),
        indexed.join(", ")
    )
}
