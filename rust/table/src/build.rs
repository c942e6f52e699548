//! Building what declared indexes do not cover yet: data files to segments, then one commit.
//!
//! Touched files whose hashes prove that nothing changed keep their marks. Of the others, every row group is a task: its columns are read and sorted by value on all cores. The sorted chunks of a group of files
//! are merged into one segment per index; chunks beyond the memory limit wait in a temporary file.

mod adopt;
pub(crate) mod group;
mod spill;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use lakemark_format::{Manifest, ManifestIndex, column};

use crate::error::{Error, Result};
use crate::fields::{Presence, has_other_calendar};
use crate::footer::{FileShape, fingerprint};
use crate::kind::files_per_segment;
use crate::options::{BuildOptions, CancelFlag, Progress};
use crate::report::{BuildReport, Finding};
use crate::schema;
use crate::snapshot::{Snapshot, read_shapes};
use crate::store::Store;
use crate::table::Table;
use crate::transaction::{Built, Edit, commit};

pub(crate) use adopt::Adoption;
use group::{Group, GroupResult};
use spill::Budget;

/// Bytes for unfinished parts where the machine does not tell its memory.
const FALLBACK_MEMORY: u64 = 1 << 30;

/// What all tasks of a build share.
pub(crate) struct Context {
    pub snapshot: Arc<Snapshot>,
    pub store: Arc<Store>,
    pub budget: Arc<Budget>,
    pub threads: usize,
    pub progress: Option<Arc<dyn Progress>>,
    cancel: Option<CancelFlag>,
}

impl Context {
    /// Fails if the caller asked to stop.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        match &self.cancel {
            Some(flag) if flag.is_cancelled() => Err(Error::cancelled()),
            _ => Ok(()),
        }
    }
}

/// Builds, and commits once at the end.
pub(crate) async fn build(table: &Table, options: BuildOptions) -> Result<BuildReport> {
    let started = Instant::now();
    let (context, indexes) = prepare(table, &options).await?;
    let (snapshot, store) = (&context.snapshot, &context.store);
    let adopted = adopt::adoptable(snapshot, store, context.threads).await;
    let Plan { groups, rows, declined } = plan(table, snapshot, &indexes, &adopted).await?;
    if let Some(progress) = &options.progress {
        progress.start(rows);
    }
    let mut results: Vec<GroupResult> = Vec::with_capacity(groups.len());
    let outcome = run(&context, groups, &mut results).await;
    let written: Vec<String> =
        results.iter().flat_map(|result| &result.segments).map(|segment| segment.path.clone()).collect();
    let touched = adopted.len() as u64;
    let committed = match outcome {
        Ok(()) => finish(store, &results, adopted).await,
        Err(error) => Err(error),
    };
    if let Err(error) = committed {
        for path in &written {
            store.discard(path).await;
        }
        return Err(error);
    }
    let report = report(&indexes, results, &context.budget, started);
    Ok(BuildReport { adopted: touched, declined, ..report })
}

/// Pins what a build or a compaction is about, and finds the indexes that are chosen.
pub(crate) async fn prepare(table: &Table, options: &BuildOptions) -> Result<(Context, Vec<ManifestIndex>)> {
    let store = Arc::clone(table.writable_store()?);
    // Reads go on without a damaged manifest, a build must not: it would silently begin a second history.
    let manifest = store.newest().await?.manifest?;
    let snapshot = table.snapshot().await?;
    let indexes = chosen(manifest.as_deref(), options.index.as_deref())?;
    let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, Into::into)).max(1);
    let context = Context {
        snapshot,
        store,
        budget: Arc::new(Budget::new(options.memory_bytes.unwrap_or_else(default_memory))),
        threads,
        progress: options.progress.clone(),
        cancel: options.cancel.clone(),
    };
    Ok((context, indexes))
}

async fn run(context: &Context, groups: Vec<Group>, results: &mut Vec<GroupResult>) -> Result<()> {
    for group in groups {
        context.check_cancel()?;
        let mut result = GroupResult::default();
        let outcome = group::build_group(context, &group, &mut result).await;
        // Also after a failure: what was written so far must be found and removed.
        results.push(result);
        outcome?;
    }
    context.check_cancel()
}

async fn finish(store: &Store, results: &[GroupResult], adopted: Vec<(usize, Adoption)>) -> Result<()> {
    let adopted = adopted.into_iter().map(|(_, adoption)| adoption).collect();
    let built = Built { adopted, ..built_of(results)? };
    if built.segments.is_empty() && built.adopted.is_empty() {
        return Ok(());
    }
    commit(store, &Edit::AddSegments(built)).await.map(|_| ())
}

/// What groups gave, as one edit.
pub(crate) fn built_of(results: &[GroupResult]) -> Result<Built> {
    let mut built = Built::default();
    for result in results {
        let first = u32::try_from(built.files.len()).map_err(|_| Error::unsupported("too many data files"))?;
        for (file, schema) in &result.files {
            let bytes = schema::to_bytes(schema)?;
            let known =
                built.schemas.iter().position(|have| fingerprint(have) == fingerprint(&bytes) && *have == bytes);
            let place = known.unwrap_or_else(|| {
                built.schemas.push(bytes);
                built.schemas.len() - 1
            });
            let mut file = file.clone();
            file.schema = u32::try_from(place).map_err(|_| Error::unsupported("too many schemas"))?;
            built.files.push(file);
        }
        for segment in &result.segments {
            let mut segment = segment.clone();
            for file in &mut segment.files {
                *file += first;
            }
            built.segments.push(segment);
        }
    }
    Ok(built)
}

fn chosen(manifest: Option<&Manifest>, name: Option<&str>) -> Result<Vec<ManifestIndex>> {
    let all = manifest.map_or(&[][..], |manifest| &manifest.indexes);
    match name {
        Some(name) => match all.iter().find(|index| index.name == name) {
            Some(index) => Ok(vec![index.clone()]),
            None => Err(Error::not_found(format!("there is no index {name}; declare it with `lakemark index create`"))),
        },
        None if all.is_empty() => Err(Error::not_found(
            "no index is declared yet; declare one with `lakemark index create TABLE --on COLUMN`",
        )),
        None => Ok(all.to_vec()),
    }
}

/// What a build has to do.
struct Plan {
    groups: Vec<Group>,
    rows: u64,
    declined: Vec<Finding>,
}

/// The shapes of data files, by their number in the snapshot.
struct Shapes(Vec<(usize, FileShape)>);

impl Shapes {
    fn get(&self, file: usize) -> Option<&FileShape> {
        let place = self.0.binary_search_by_key(&file, |(file, _)| *file).ok()?;
        self.0.get(place).map(|(_, shape)| shape)
    }

    fn rows(&self, file: usize) -> u64 {
        self.get(file).map_or(0, |shape| shape.row_groups.iter().copied().map(u64::from).sum())
    }

    /// Why a file cannot be indexed.
    fn obstacle(&self, snapshot: &Snapshot, file: usize, index: &ManifestIndex) -> Option<String> {
        let shape = self.get(file)?;
        let name = snapshot.shown_name(&index.column)?;
        let shown = snapshot.shown_text(&name);
        if has_other_calendar(&shape.schema, &index.column) {
            return Some(format!(
                "its writer says that {shown} is of the hybrid Julian calendar, which readers convert differently; \
                 queries scan the file, write it again with a newer Spark to index it"
            ));
        }
        if snapshot.presence(&shape.schema, &name) == Presence::Unclear {
            return Some(format!(
                "it has another struct than the table around {shown}; queries scan the file, write it again to index it"
            ));
        }
        shape.hollow.contains(&index.column).then(|| {
            format!(
                "it says that {shown} is never NULL and its struct may be, so that readers see a value where the struct is NULL; \
                 queries scan the file, write it again with a field that may be NULL to index it"
            )
        })
    }
}

/// Indexes that lack the same files share one pass over them; each pass is cut into groups.
async fn plan(
    table: &Table,
    snapshot: &Snapshot,
    indexes: &[ManifestIndex],
    adopted: &[(usize, Adoption)],
) -> Result<Plan> {
    let adopted: HashSet<usize> = adopted.iter().map(|(file, _)| *file).collect();
    let mut lacking: Vec<(&ManifestIndex, Vec<usize>)> = Vec::new();
    for index in indexes {
        if snapshot.is_usable(index) {
            lacking.push((index, uncovered(snapshot, index, &adopted)));
        } else {
            tracing::warn!(
                index = index.name,
                column = %column::shown(&index.column),
                "the column is gone or has another type; the index is left out"
            );
        }
    }
    let mut wanted: Vec<usize> = lacking.iter().flat_map(|(_, files)| files.iter().copied()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let shapes = Shapes(read_shapes(table, snapshot.files(), wanted).await?);
    let mut declined: Vec<Finding> = Vec::new();
    let mut passes: Vec<(Vec<usize>, usize, Vec<ManifestIndex>)> = Vec::new();
    for (index, files) in lacking {
        let mut fit = Vec::with_capacity(files.len());
        for file in files {
            match shapes.obstacle(snapshot, file, index) {
                None => fit.push(file),
                Some(problem) => {
                    let path = snapshot.files().get(file).map(|file| file.path.clone());
                    declined.extend(path.map(|path| Finding { path, problem }));
                }
            }
        }
        let files = fit;
        let per_segment = files_per_segment(index);
        match passes.iter_mut().find(|(have, group, _)| *have == files && *group == per_segment) {
            Some((_, _, sharing)) => sharing.push(index.clone()),
            None => passes.push((files, per_segment, vec![index.clone()])),
        }
    }
    let (mut groups, mut rows) = (Vec::new(), 0);
    for (files, per_segment, indexes) in passes {
        rows += files.iter().map(|file| shapes.rows(*file)).sum::<u64>();
        for files in group::cut(snapshot, &files, per_segment, &|file| shapes.rows(file))? {
            groups.push(Group { files, indexes: indexes.clone() });
        }
    }
    declined.sort();
    declined.dedup();
    Ok(Plan { groups, rows, declined })
}

/// Files of the snapshot that no segment of the index covers. Doubtful ones are indexed again unless they are adopted.
fn uncovered(snapshot: &Snapshot, index: &ManifestIndex, adopted: &HashSet<usize>) -> Vec<usize> {
    let segments = snapshot.manifest.iter().flat_map(|manifest| &manifest.segments);
    let of_index = segments.filter(|segment| segment.index_id == index.id);
    let covered: HashSet<u32> = of_index.flat_map(|segment| segment.files.iter().copied()).collect();
    let marks = snapshot.marks.iter().enumerate();
    let missing = marks.filter(|(file, mark)| {
        let in_doubt = mark.doubtful && !adopted.contains(file);
        in_doubt || mark.ordinal.is_none_or(|ordinal| !covered.contains(&ordinal))
    });
    missing.map(|(file, _)| file).collect()
}

/// A quarter of the physical memory.
fn default_memory() -> u64 {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    total.map_or(FALLBACK_MEMORY, |kibibytes| kibibytes * 1024 / 4)
}

fn report(indexes: &[ManifestIndex], results: Vec<GroupResult>, budget: &Budget, started: Instant) -> BuildReport {
    let mut report = BuildReport { spilled: budget.spilled(), ..BuildReport::default() };
    let (mut read, mut filled) = (HashSet::new(), HashSet::new());
    for result in results {
        report.rows += result.files.iter().map(|(file, _)| file.rows()).sum::<u64>();
        read.extend(result.files.into_iter().map(|(file, _)| file.path));
        filled.extend(result.segments.iter().map(|segment| segment.index_id));
        report.segments += result.segments.len() as u64;
        report.bytes_written += result.segments.iter().map(|segment| segment.length).sum::<u64>();
        report.skipped.extend(result.skipped);
    }
    report.files = read.len() as u64;
    report.indexes =
        indexes.iter().filter(|index| filled.contains(&index.id)).map(|index| index.name.clone()).collect();
    report.skipped.sort();
    report.skipped.dedup();
    report.seconds = started.elapsed().as_secs_f64();
    report
}
