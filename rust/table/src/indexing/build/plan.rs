//! What a build has to do: which files each index lacks, and how they are cut into tasks.

use std::collections::HashSet;

use arrow::datatypes::SchemaRef;
use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{FileNumbers, ManifestIndex, column};

use super::adopt::adoptable;
use super::group::{Group, cut};
use super::lost::{LookedAt, look_at};
use super::task::BuildTask;
use super::threads;
use crate::error::{Error, Result};
use crate::files::footer::FileSummary;
use crate::index_kind::IndexKind;
use crate::options::BuildOptions;
use crate::report::Finding;
use crate::snapshot::{
    BaseTable, ReadableShapes, ReadableSnapshot, Snapshot, SummaryOfFile, UnreadableFile, readable_shapes,
};
use crate::storage::clock::Stopwatch;
use crate::storage::file_time::BuildStart;
use crate::storage::ids::new_id;
use crate::store::kind::files_per_segment;
use crate::store::link_pair::is_back_of;
use crate::store::locks::BuildLock;
use crate::store::pieces::ManifestNeeds;
use crate::store::recorded::Recorded;
use crate::store::transaction::Adoption;
use crate::values::fields::{Presence, has_other_calendar};

/// A segment is not made smaller than this, where its index allows for more, just to have work for everybody.
const LEAST_ROWS: u64 = 1 << 20;

/// To read a row takes as long as to sort and encode so many bytes of an index; measured on integers.
const DECODED_ROW_BYTES: u64 = 1;
/// As many bytes of a row take as long as to sort and encode a column of different values; measured on a permuted key.
const DIFFERENT_ROW_BYTES: u64 = 7;

/// What a build has to do: tasks that know nothing of each other.
#[derive(Debug)]
pub struct BuildPlan {
    pub(super) tasks: Vec<BuildTask>,
    pub(super) rows: u64,
    pub(super) adopted: Vec<Adoption>,
    pub(super) declined: Vec<Finding>,
    /// Files that cannot be read, and segments that cannot be compared with them.
    pub(super) failed: Vec<Finding>,
    /// Segments that were compared with the data.
    pub(super) verified: u64,
    /// Segments that are of no use any more.
    pub(super) lost: Vec<[u8; 16]>,
    /// The indexes of the request.
    pub(super) indexes: Vec<ManifestIndex>,
    pub(super) stopwatch: Stopwatch,
    pub(super) build_start: BuildStart,
    /// The lock keeps what the tasks write until it is committed; none if there are no tasks.
    pub(super) _lock: Option<BuildLock>,
}

impl BuildPlan {
    /// The tasks, in any order; none if the indexes cover every file.
    #[must_use]
    pub fn tasks(&self) -> &[BuildTask] {
        &self.tasks
    }

    /// Rows that the tasks read.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

/// Plans a build for so many workers.
#[tracing::instrument(level = "debug", skip_all, fields(table = table.location(), files = readable.snapshot.files().len()))]
pub(crate) async fn plan(
    table: &BaseTable,
    readable: &ReadableSnapshot,
    options: &BuildOptions,
    workers: usize,
) -> Result<BuildPlan> {
    let stopwatch = Stopwatch::start();
    let ReadableSnapshot { snapshot, unreadable } = readable;
    let store = table.writable_store()?;
    let indexes = selected_indexes(snapshot, options)?;
    let Some(manifest) = &snapshot.manifest else { return Err(none_declared()) };
    let LookedAt { lost, verified, held, mut failed } = look_at(store, snapshot, &indexes, options.verify).await?;
    failed.extend(unreadable.iter().cloned().map(finding));
    let begun = BuildStart::after(snapshot.files().iter().map(|file| &file.meta)).await;
    let adopted = adoptable(snapshot, store, &lost, begun, threads(options)).await;
    let known = KnownCoverage { adopted: adopted.iter().map(|adopted| adopted.file).collect(), lost: &lost };
    let Lacking { passes, shapes, declined, unreadable } =
        lacking(table, snapshot, &indexes, &known, workers > 1).await?;
    failed.extend(unreadable.into_iter().map(finding));
    let work: Vec<f64> = passes.iter().map(|pass| pass.work(&shapes)).collect();
    let (mut tasks, mut rows, build) = (Vec::new(), 0, new_id().into_bytes());
    for ((Pass { files, per_segment, indexes }, workers), work) in
        passes.into_iter().zip(workers_of(&work, workers)).zip(work)
    {
        let rows_of = |files: &[usize]| files.iter().map(|file| shapes.rows(*file)).sum::<u64>();
        let all = rows_of(&files);
        rows += all;
        for share in shares(&files, per_segment, workers, &|file| shapes.rows(file)) {
            for places in cut(snapshot, share.iter().copied(), per_segment, &|file| shapes.rows(file))? {
                let files = share.get(places).unwrap_or_default();
                let work = work * rows_of(files) as f64 / all.max(1) as f64;
                let files = files.iter().filter_map(|file| snapshot.files().get(*file));
                let mut group = Group::of(snapshot, files, indexes.clone())?;
                group.has_random_ids = group.files.iter().any(|file| held.contains(&file.path));
                tasks.push((work, BuildTask::new(table, build, manifest, &group)?));
            }
        }
    }
    // The long tasks come first: the short ones fill what is left at the end.
    tasks.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let tasks: Vec<BuildTask> = tasks.into_iter().map(|(_, task)| task).collect();
    let adopted = adopted.into_iter().map(|adopted| adopted.adoption).filter(Adoption::is_news).collect();
    let lock = if tasks.is_empty() { None } else { Some(BuildLock::share(store).await?) };
    let build_start = begun;
    Ok(BuildPlan {
        tasks,
        rows,
        adopted,
        declined,
        failed,
        verified,
        lost,
        indexes,
        stopwatch,
        build_start,
        _lock: lock,
    })
}

fn finding(UnreadableFile { path, problem, .. }: UnreadableFile) -> Finding {
    Finding { path, problem }
}

/// Fails if the newest manifest cannot be read. Readers go on without a damaged manifest. A build must not: it would silently begin a
/// second history.
pub(crate) async fn check_manifest(table: &BaseTable) -> Result<()> {
    table.writable_store()?.newest_with(&ManifestNeeds::Files(Vec::new())).await.map(drop)
}

/// The indexes that a build or a compaction is about.
pub(crate) fn selected_indexes(snapshot: &Snapshot, options: &BuildOptions) -> Result<Vec<ManifestIndex>> {
    let all: Vec<ManifestIndex> = snapshot.manifest.iter().flat_map(|manifest| manifest.indexes().cloned()).collect();
    match &options.index {
        Some(name) => match all.iter().find(|index| index.name == *name) {
            // Links are walked both ways.
            Some(index) => {
                let back = all.iter().find(|other| is_back_of(other, index));
                Ok([Some(index), back].into_iter().flatten().cloned().collect())
            }
            None => Err(Error::not_found(format!("there is no index {name}; declare it with `lakemark index create`"))),
        },
        None if all.is_empty() => Err(none_declared()),
        None => Ok(all),
    }
}

fn none_declared() -> Error {
    Error::not_found("no index is declared yet; declare one with `lakemark index create TABLE --on COLUMN`")
}

/// Files that are read once for some indexes.
struct Pass {
    files: Vec<usize>,
    per_segment: usize,
    indexes: Vec<ManifestIndex>,
}

impl Pass {
    /// The work of the pass, in bytes that are decoded or written. Values are sorted and encoded, the more different the longer.
    fn work(&self, shapes: &Shapes) -> f64 {
        let rows: u64 = self.files.iter().map(|file| shapes.rows(*file)).sum();
        let of = |index: &ManifestIndex| {
            let predicted = Recorded::of(index).bytes_of(rows);
            // However few bytes the other kinds take: they are for columns of different values, or keep hashes in the place of values.
            let different = rows * DIFFERENT_ROW_BYTES;
            match index.kind.known() {
                Some(IndexKind::Bitmap) => predicted.unwrap_or(different),
                _ => predicted.map_or(different, |bytes| bytes.max(different)),
            }
        };
        self.indexes.iter().map(|index| (rows * DECODED_ROW_BYTES + of(index)) as f64).sum()
    }
}

struct Lacking {
    passes: Vec<Pass>,
    shapes: Shapes,
    declined: Vec<Finding>,
    unreadable: Vec<UnreadableFile>,
}

/// Indexes that lack the same files share one pass over them, unless others could read them at the same time.
async fn lacking(
    table: &BaseTable,
    snapshot: &Snapshot,
    indexes: &[ManifestIndex],
    known: &KnownCoverage<'_>,
    is_shared_out: bool,
) -> Result<Lacking> {
    let mut lacking: Vec<(&ManifestIndex, Vec<usize>)> = Vec::new();
    for index in indexes {
        if snapshot.is_usable(index) {
            lacking.push((index, uncovered(snapshot, index, known)));
        } else {
            tracing::warn!(
                index = index.name,
                column = %column::display(&index.column),
                "the column is gone or has another type; the index is left out"
            );
        }
    }
    let mut wanted: Vec<usize> = lacking.iter().flat_map(|(_, files)| files.iter().copied()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let ReadableShapes { shapes, failed: unreadable } = readable_shapes(table, snapshot.files(), wanted).await?;
    let shapes = Shapes(shapes);
    let mut declined: Vec<Finding> = Vec::new();
    let mut passes: Vec<Pass> = Vec::new();
    for (index, files) in lacking {
        let mut fit = Vec::with_capacity(files.len());
        for file in files.into_iter().filter(|file| shapes.get(*file).is_some()) {
            match shapes.obstacle(snapshot, file, index) {
                None => fit.push(file),
                Some(problem) => {
                    let path = snapshot.files().get(file).map(|file| file.path.clone());
                    declined.extend(path.map(|path| Finding { path, problem }));
                }
            }
        }
        let (files, per_segment) = (fit, files_per_segment(index));
        if files.is_empty() {
            continue;
        }
        match passes.iter_mut().find(|pass| pass.files == files && pass.per_segment == per_segment) {
            Some(pass) if !is_shared_out => pass.indexes.push(index.clone()),
            _ => passes.push(Pass { files, per_segment, indexes: vec![index.clone()] }),
        }
    }
    declined.sort();
    declined.dedup();
    Ok(Lacking { passes, shapes, declined, unreadable })
}

/// What is known of the files and segments that there are.
struct KnownCoverage<'a> {
    /// Files that were touched and not changed.
    adopted: HashSet<usize>,
    /// Segments that are of no use.
    lost: &'a [[u8; 16]],
}

/// Files of the snapshot that no segment of the index covers. Files in doubt are indexed again unless they are adopted.
fn uncovered(snapshot: &Snapshot, index: &ManifestIndex, known: &KnownCoverage<'_>) -> Vec<usize> {
    let segments = snapshot.manifest.iter().flat_map(|manifest| manifest.segments());
    let of_index = segments.filter(|segment| segment.index_id == index.id && !known.lost.contains(&segment.id));
    let covered: FileNumbers = of_index.flat_map(|segment| segment.files.iter()).collect();
    let states = snapshot.index_states.iter().enumerate();
    let missing = states.filter(|(file, state)| {
        let in_doubt = state.unverified && !known.adopted.contains(file);
        in_doubt || state.number.is_none_or(|number| !covered.contains(number))
    });
    missing.map(|(file, _)| file).collect()
}

/// How many workers each pass is shared out to, so that no task is longer than what all of them take on average.
fn workers_of(work: &[f64], workers: usize) -> Vec<usize> {
    let even = (work.iter().sum::<f64>() / workers.max(1) as f64).max(1.0);
    // A little more than the average is no reason for another segment.
    work.iter().map(|work| (work / even - 0.05).ceil().max(1.0) as usize).collect()
}

/// Neighbouring files in shares of about the same number of rows. There are as many shares as give every worker the same number of
/// segments, but none is smaller than is worth a segment.
///
/// One worker has them all in one share, from which groups are cut one after the other. So what a stopped build has committed changes
/// no group behind it, and its segments have the names that the next build looks for.
fn shares<'a>(
    files: &'a [usize],
    per_segment: usize,
    workers: usize,
    rows_of: &impl Fn(usize) -> u64,
) -> impl Iterator<Item = &'a [usize]> {
    let rows: u64 = files.iter().map(|file| rows_of(*file)).sum();
    let needed = files.len().div_ceil(per_segment.max(1)).max(1);
    let worth = usize::try_from(rows / LEAST_ROWS).unwrap_or(usize::MAX);
    let count = if workers <= 1 { 1 } else { needed.next_multiple_of(workers).min(worth.max(needed)) };
    let mut before = 0;
    let mut share_of = move |rows_of_file: u64| {
        // A file belongs to the share that its middle is in, so that no share is much larger than the others.
        let middle = before * 2 + rows_of_file;
        before += rows_of_file;
        // Files without rows at the end have no share of their own.
        (u128::from(middle) * count as u128 / u128::from(rows.max(1) * 2)).min(count as u128 - 1)
    };
    let numbers: Vec<u128> = files.iter().map(|file| share_of(rows_of(*file))).collect();
    let mut start = 0;
    std::iter::from_fn(move || {
        let number = numbers.get(start)?;
        let length = numbers.iter().skip(start).take_while(|other| *other == number).count();
        let share = files.get(start..start + length)?;
        start += length;
        Some(share)
    })
}

/// The shapes of data files, by their number in the snapshot.
struct Shapes(Vec<SummaryOfFile>);

impl Shapes {
    fn get(&self, file: usize) -> Option<&FileSummary> {
        let place = self.0.binary_search_by_key(&file, |of_file| of_file.file).ok()?;
        self.0.get(place).map(|of_file| &of_file.summary)
    }

    fn rows(&self, file: usize) -> u64 {
        self.get(file).map_or(0, |shape| shape.row_groups.iter().copied().map(u64::from).sum())
    }

    /// Why a file cannot be indexed.
    fn obstacle(&self, snapshot: &Snapshot, file: usize, index: &ManifestIndex) -> Option<String> {
        let shape = self.get(file)?;
        if self.rows(file).next_multiple_of(u64::from(BASE_ALIGNMENT)) > u64::from(u32::MAX) {
            return Some(
                "it has more than 2^32 rows, and no segment does; queries scan the file, write smaller files to index them"
                    .to_owned(),
            );
        }
        let name = snapshot.logical_name(&index.column)?;
        let shown = snapshot.display_name(&name);
        if has_other_calendar(&shape.schema, &index.column) {
            return Some(format!(
                "its writer says that {shown} is of the hybrid Julian calendar, which readers convert differently; \
                 queries scan the file, write it again with a newer Spark to index it"
            ));
        }
        if snapshot.presence(&shape.schema, &name) == Presence::Unclear {
            if index.key_type.is_list() {
                return Some(format!(
                    "{shown} has other values there than the lists of the table, or lists that are never NULL in a struct that may be; \
                     queries scan the file, write it again with the type of the table to index it"
                ));
            }
            return Some(format!(
                "it has another struct than the table around {shown}; queries scan the file, write it again to index it"
            ));
        }
        let riding = snapshot.riding_fields(index);
        if let Some(problem) = riding.iter().find_map(|field| riding_obstacle(snapshot, &shape.schema, field.name())) {
            return Some(problem);
        }
        let is_hollow = |column: &&str| shape.hollow.iter().any(|hollow| hollow == column);
        column::columns(&index.column).find(is_hollow).map(|hollow| {
            let shown = snapshot.logical_name(hollow).map_or_else(|| hollow.to_owned(), |name| snapshot.display_name(&name));
            format!(
                "it says that {shown} is never NULL and its struct may be, so that readers see a value where the struct is NULL; \
                 queries scan the file, write it again with a field that may be NULL to index it"
            )
        })
    }
}

/// Why a file cannot be indexed with a column that rides along, by the name that it has in files.
fn riding_obstacle(snapshot: &Snapshot, file: &SchemaRef, stored: &str) -> Option<String> {
    let name = snapshot.logical_name(stored)?;
    let shown = snapshot.display_name(&name);
    let problem = if has_other_calendar(file, stored) {
        "is of the hybrid Julian calendar"
    } else if snapshot.presence(file, &name) == Presence::Unclear {
        "has other values there than in the table"
    } else {
        return None;
    };
    Some(format!("{shown}, which rides along, {problem}; queries scan the file, write it again to index it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(files: usize, rows: u64, per_segment: usize, workers: usize) -> Vec<usize> {
        let files: Vec<usize> = (0..files).collect();
        shares(&files, per_segment, workers, &|_| rows).map(<[usize]>::len).collect()
    }

    #[test]
    fn one_worker_gets_all_files_at_once() {
        assert_eq!(lengths(8, 1_000_000, 16, 1), [8]);
        assert_eq!(lengths(100, 1_000_000, 16, 1), [100]);
        assert_eq!(lengths(3, 0, 16, 1), [3]);
        assert_eq!(lengths(0, 1_000_000, 16, 1), [0; 0]);
    }

    #[test]
    fn workers_get_the_same_number_of_segments() {
        assert_eq!(lengths(8, 2_000_000, 16, 2), [4, 4]);
        // Seven full segments would leave one of two workers without work for the last.
        assert_eq!(lengths(100, 2_000_000, 16, 2), [12, 13, 12, 13, 12, 13, 12, 13]);
        assert_eq!(lengths(9, 2_000_000, 16, 2), [4, 5]);
    }

    #[test]
    fn segments_are_not_cut_smaller_than_is_worth_it() {
        assert_eq!(lengths(8, 1000, 16, 64), [8]);
        assert_eq!(lengths(8, LEAST_ROWS / 2, 16, 64), [2, 2, 2, 2]);
        assert_eq!(lengths(2, 10 * LEAST_ROWS, 16, 64), [1, 1]);
    }

    #[test]
    fn what_takes_long_is_shared_out() {
        assert_eq!(workers_of(&[10.0], 1), [1]);
        assert_eq!([2, 3, 7, 100].map(|workers| workers_of(&[1e7], workers)), [[2], [3], [7], [100]]);
        // An index on a column of different values beside three of few.
        assert_eq!(workers_of(&[1.0, 1.7, 2.7, 8.0].map(|work| work * 1e7), 2), [1, 1, 1, 2]);
        assert_eq!(workers_of(&[1e7; 4], 2), [1; 4]);
        assert_eq!(workers_of(&[1e7; 4], 4), [1; 4]);
        assert_eq!(workers_of(&[1e7; 4], 6), [2; 4]);
        assert_eq!(workers_of(&[1.02e7, 1e7], 2), [1; 2]);
        assert_eq!(workers_of(&[0.0], 4), [1]);
    }

    #[test]
    fn shares_are_even_by_rows_and_not_by_files() {
        let rows = |file: usize| if file == 0 { 8 * LEAST_ROWS } else { LEAST_ROWS };
        let files: Vec<usize> = (0..9).collect();
        assert_eq!(shares(&files, 16, 2, &rows).map(<[usize]>::len).collect::<Vec<_>>(), [1, 8]);
    }
}
