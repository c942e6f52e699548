//! A build under way: what its tasks give is committed from time to time, and the rest at its end.
//!
//! ```text
//! part ─▶ checked ─▶ waits ──┬─ after so long, or so many bytes ─▶ one commit of all that wait
//!                            └─ at the end, or when something stops the build ─▶ the same
//! ```
//!
//! Each commit is a file that readers read until the next checkpoint, so that segments are not committed one by one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::take;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lakemark_format::{FileNumbers, ManifestFile, ManifestSegment};

use super::BuildContext;
use super::coverage::Coverage;
use super::group::{CHANGED, GroupFile, is_changed, listed};
use super::left_segments::{check_kept, leave_out_gone, vacuumed};
use super::part::{BuildPart, schema_in};
use super::plan::BuildPlan;
use super::task::BuildTask;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file_version::FileVersion;
use crate::files::trust::false_statistics;
use crate::options::BuildOptions;
use crate::report::{BuildReport, Finding};
use crate::snapshot::BaseTable;
use crate::storage::clock::Stopwatch;
use crate::storage::file_time::BuildStart;
use crate::store::Store;
use crate::store::pieces::ManifestNeeds;
use crate::store::transaction::{BuiltSegments, Edit, commit};
use crate::table_format::TableFormat;
use crate::values::schema;

/// Files that are checked at a time.
const CONCURRENT_LOOKS: usize = 32;
/// How long finished segments wait for a commit where the caller does not say.
pub(crate) const COMMIT_EVERY: Duration = Duration::from_secs(30);
/// So many bytes of finished segments wait for no time.
pub(crate) const COMMIT_BYTES: u64 = 4 << 30;

/// A build under way. It takes what the tasks of its plan give, in any order, and commits that from time to time.
#[derive(Debug)]
pub struct RunningBuild<'a> {
    table: &'a BaseTable,
    plan: BuildPlan,
    commit_every: Duration,
    max_failures: Option<u64>,
    /// Tasks that gave a part.
    answered: HashSet<usize>,
    /// Segments of these parts.
    segments: HashSet<[u8; 16]>,
    /// Parts that are not committed yet, by the numbers of their tasks.
    waiting: BTreeMap<usize, BuildPart>,
    /// Runs since the last commit.
    since: Stopwatch,
    committed: Committed,
    /// What the newest manifest covers that was looked at.
    coverage: Option<Coverage>,
}

/// What was committed, for the report.
#[derive(Debug, Default)]
struct Committed {
    /// Tasks, also those whose work others have committed.
    tasks: usize,
    indexes: HashSet<[u8; 16]>,
    files: HashSet<String>,
    rows: u64,
    segments: u64,
    taken_over: u64,
    bytes: u64,
    spilled: u64,
    adopted: u64,
    repaired: u64,
    failed: Vec<Finding>,
    false_statistics: Vec<Finding>,
}

impl<'a> RunningBuild<'a> {
    /// Begins what was planned.
    pub(crate) fn begin(table: &'a BaseTable, mut plan: BuildPlan, options: &BuildOptions) -> Result<Self> {
        let committed = Committed {
            adopted: plan.adopted.len() as u64,
            repaired: plan.lost.len() as u64,
            failed: take(&mut plan.failed),
            ..Committed::default()
        };
        let running = Self {
            table,
            plan,
            commit_every: options.commit_every.unwrap_or(COMMIT_EVERY),
            max_failures: options.max_failures,
            answered: HashSet::new(),
            segments: HashSet::new(),
            waiting: BTreeMap::new(),
            since: Stopwatch::start(),
            committed,
            coverage: None,
        };
        running.check_failures()?;
        Ok(running)
    }

    /// The tasks of the plan, in any order; none if the indexes cover every file.
    #[must_use]
    pub fn tasks(&self) -> &[BuildTask] {
        self.plan.tasks()
    }

    pub(super) fn table(&self) -> &'a BaseTable {
        self.table
    }

    /// Whether others have committed what a task would give, since it was planned.
    pub(super) async fn is_done_by_others(&mut self, task: usize) -> Result<bool> {
        let Some(task) = self.plan.tasks.get(task).map(BuildTask::manifest) else { return Ok(false) };
        let store = self.table.writable_store()?;
        let Some(newest) = store.newest().await?.manifest else { return Ok(false) };
        if newest.number() == task.number {
            return Ok(false);
        }
        let paths = task.files.iter().map(|file| file.path.as_str()).collect();
        let newest = match store.loaded(&newest, &ManifestNeeds::Paths(paths)).await {
            Ok(newest) => newest,
            // Whoever cannot tell builds: what others have committed by then is left out of the commit.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::debug!(store = store.text(), %error, "it cannot be told whether others did a task");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if !self.coverage.as_ref().is_some_and(|known| known.is_of(&newest)) {
            self.coverage = Some(Coverage::of(&newest, &self.plan.lost));
        }
        self.coverage.as_ref().map_or(Ok(false), |coverage| coverage.has(&newest, task))
    }

    /// Does without what a task would give.
    pub(super) fn leave_to_others(&mut self, task: usize) {
        self.answered.insert(task);
        self.committed.tasks += 1;
    }

    /// Takes what the task of this number gave, and commits what waits if it is time to.
    ///
    /// # Errors
    /// The part is no result of the task (`Corrupt`, `InvalidInput`), more files cannot be indexed than may be (`Io`), or the commit failed.
    /// Whatever it is, [`RunningBuild::stop`] ends the build in good order.
    pub fn add(&mut self, task: usize, part: BuildPart) -> BoxFuture<'_, Result<()>> {
        async move {
            self.check(task, &part)?;
            self.answered.insert(task);
            self.segments.extend(part.manifest.segments.iter().map(|segment| segment.id));
            self.committed.failed.extend(part.failed.iter().cloned());
            self.waiting.insert(task, part);
            if self.due_in() == Some(Duration::ZERO) {
                self.commit().await?;
            }
            self.check_failures()
        }
        .boxed()
    }

    fn check(&self, task: usize, part: &BuildPart) -> Result<()> {
        let Some(planned) = self.plan.tasks.get(task).filter(|_| !self.answered.contains(&task)) else {
            return Err(Error::invalid(format!(
                "a build takes one part of each of its {} tasks, and no other of the task {task}",
                self.plan.tasks.len()
            )));
        };
        part.check(planned)?;
        if part.manifest.segments.iter().any(|segment| self.segments.contains(&segment.id)) {
            return Err(Error::corrupt(
                "two tasks of the build gave the same segment; it is committed once at most, build again",
            ));
        }
        Ok(())
    }

    /// Fails if more files cannot be indexed than may be.
    fn check_failures(&self) -> Result<()> {
        let paths: BTreeSet<&str> = self.committed.failed.iter().map(|finding| finding.path.as_str()).collect();
        match (self.max_failures, self.committed.failed.last()) {
            (Some(most), Some(Finding { path, problem })) if paths.len() as u64 > most => Err(Error::io(format!(
                "{} files cannot be indexed, and no more than {most} may fail: mend or remove them, or allow for more, and build again; \
                 the last is {path}: {problem}",
                paths.len()
            ))),
            _ => Ok(()),
        }
    }

    /// How long until what waits has to be committed; none if nothing waits.
    #[must_use]
    pub fn due_in(&self) -> Option<Duration> {
        if self.waiting.is_empty() {
            return None;
        }
        let bytes: u64 = self.waiting.values().map(BuildPart::segment_bytes).sum();
        Some(if bytes >= COMMIT_BYTES { Duration::ZERO } else { self.since.left_of(self.commit_every) })
    }

    /// Commits what waits. What could not be looked at goes on waiting, so that [`RunningBuild::stop`] tries once more. After another failure
    /// its segments are left for the next build.
    ///
    /// # Errors
    /// Segments that are not there (`NotFound`), and those of every commit.
    pub fn commit(&mut self) -> BoxFuture<'_, Result<()>> {
        async move {
            let taken = take(&mut self.waiting);
            let parts: Vec<&BuildPart> = taken.values().collect();
            self.since = Stopwatch::start();
            let taken_over = parts.iter().flat_map(|part| part.taken_over.iter().copied()).collect();
            let Prepared { built, changed, gone } = match self.prepare(&parts, &taken_over).await {
                Ok(prepared) => prepared,
                Err(error) => {
                    self.waiting = taken;
                    return Err(error);
                }
            };
            let store = self.table.writable_store()?;
            if !built.segments.is_empty() || !built.adopted.is_empty() || !built.lost.is_empty() {
                commit(store, &Edit::AddSegments(built.clone())).await?;
            }
            check_kept(store, &built, &taken_over).await?;
            let is_whole = |part: &&BuildPart| !part.taken_over.iter().any(|id| gone.contains(id));
            let parts: Vec<&BuildPart> = parts.into_iter().filter(is_whole).collect();
            self.committed.add(&parts, &built, &taken_over);
            self.committed.failed.extend(changed);
            match gone.iter().next() {
                Some(id) => Err(vacuumed(store, gone.len(), &Store::segment_path(*id))),
                None => Ok(()),
            }
        }
        .boxed()
    }

    /// The end of the build: commits what waits, and says what was done.
    ///
    /// # Errors
    /// A task gave no part (`InvalidInput`), more files failed than may (`Io`), and those of [`RunningBuild::commit`].
    pub fn finish(mut self) -> BoxFuture<'a, Result<BuildReport>> {
        async move {
            let (parts, tasks) = (self.answered.len(), self.plan.tasks.len());
            if parts < tasks {
                let text = format!("a build is finished with one part for each of its {tasks} tasks, not with {parts}");
                return Err(self.stop(Error::invalid(text)).await);
            }
            // Files may have changed since they were read.
            let ended = self.commit().await.and_then(|()| self.check_failures());
            match ended {
                Ok(()) => Ok(self.report()),
                Err(error) => Err(self.noted(error)),
            }
        }
        .boxed()
    }

    /// Ends a build that cannot go on: commits what is finished, and gives the error with how far the build came.
    pub fn stop(mut self, error: Error) -> BoxFuture<'a, Error> {
        async move {
            match self.commit().await {
                Ok(()) => self.noted(error),
                // That somebody stopped it is the lesser news.
                Err(also) if error.kind() == ErrorKind::Cancelled => {
                    self.noted(also).with_note("the build was stopped, and what was finished could not be committed")
                }
                Err(also) => {
                    self.noted(error).with_note(&format!("what was finished could not be committed either ({also})"))
                }
            }
        }
        .boxed()
    }

    fn noted(&self, error: Error) -> Error {
        if self.committed.tasks == 0 && error.kind() != ErrorKind::Cancelled {
            return error;
        }
        let (done, tasks) = (self.committed.tasks, self.plan.tasks.len());
        error.with_note(&format!(
            "{done} of {tasks} tasks of the build are committed, and the next build goes on from there"
        ))
    }

    async fn prepare(&mut self, parts: &[&BuildPart], taken_over: &HashSet<[u8; 16]>) -> Result<Prepared> {
        let standing = standing(self.table, parts).await?;
        let mut built = joined(parts, &standing, &|file| tag_of(self.table, self.plan.build_start, file))?;
        let gone = leave_out_gone(self.table.writable_store()?, &mut built, taken_over).await?;
        let read = parts.iter().flat_map(|part| &part.manifest.files);
        let changed = read.filter(|file| !standing.contains(&file.path));
        let changed = changed.map(|file| Finding { path: file.path.clone(), problem: CHANGED.to_owned() }).collect();
        // What the plan found out goes with the first commit.
        let (adopted, lost) = (take(&mut self.plan.adopted), take(&mut self.plan.lost));
        Ok(Prepared { built: BuiltSegments { adopted, lost, ..built }, changed, gone })
    }

    fn report(self) -> BuildReport {
        let Committed { indexes, mut failed, mut false_statistics, .. } = self.committed;
        for findings in [&mut failed, &mut false_statistics] {
            findings.sort();
            findings.dedup();
        }
        let filled = self.plan.indexes.iter().filter(|index| indexes.contains(&index.id));
        BuildReport {
            indexes: filled.map(|index| index.name.clone()).collect(),
            files: self.committed.files.len() as u64,
            rows: self.committed.rows,
            segments: self.committed.segments,
            taken_over: self.committed.taken_over,
            bytes_written: self.committed.bytes,
            spilled: self.committed.spilled,
            failed,
            adopted: self.committed.adopted,
            verified: self.plan.verified,
            repaired: self.committed.repaired,
            declined: self.plan.declined,
            false_statistics,
            segments_merged: 0,
            merged_into: 0,
            bytes_merged: 0,
            seconds: self.plan.stopwatch.seconds(),
        }
    }
}

impl Committed {
    fn add(&mut self, parts: &[&BuildPart], built: &BuiltSegments, taken_over: &HashSet<[u8; 16]>) {
        self.tasks += parts.len();
        self.spilled += parts.iter().map(|part| part.spilled).sum::<u64>();
        self.indexes.extend(built.segments.iter().map(|segment| segment.index_id));
        self.files.extend(built.files.iter().map(|file| file.path.clone()));
        self.rows += built.files.iter().map(ManifestFile::rows).sum::<u64>();
        for segment in &built.segments {
            if taken_over.contains(&segment.id) {
                self.taken_over += 1;
            } else {
                self.segments += 1;
                self.bytes += segment.length;
            }
        }
        let found = built.files.iter().filter_map(|file| {
            let bytes = built.schemas.get(file.schema as usize)?;
            let schema = schema::from_bytes(bytes).ok()?;
            false_statistics(&file.path, &schema, &file.false_statistics)
        });
        self.false_statistics.extend(found);
    }
}

/// What is committed.
struct Prepared {
    built: BuiltSegments,
    /// Files that changed since they were read.
    changed: Vec<Finding>,
    /// Segments that were taken over and are gone.
    gone: HashSet<[u8; 16]>,
}

/// The paths of data files that are still what the tasks read. The others were replaced since. Their indexes would be of no use, and would
/// take the place of those that somebody else may have made of the new ones.
async fn standing(table: &BaseTable, parts: &[&BuildPart]) -> Result<HashSet<String>> {
    let context = &BuildContext::new(table, &BuildOptions::default())?;
    let mut seen = HashSet::new();
    let files = parts.iter().flat_map(|part| &part.manifest.files);
    let files = files.filter(|file| seen.insert(FileVersion::of_manifest(file)));
    let files: Vec<GroupFile> = files.map(|file| listed(table, file)).collect();
    let looks = stream::iter(files).map(|file| async move {
        let stands = !is_changed(context, &file).await?;
        if !stands {
            tracing::warn!(file = file.path, "the data file changed after it was read and is left out");
        }
        Ok::<_, Error>(stands.then_some(file.path))
    });
    looks.buffer_unordered(CONCURRENT_LOOKS).try_filter_map(|path| async { Ok(path) }).try_collect().await
}

/// What the manifest remembers as a file's tag. A log names its files by size and time alone, as they are never written again.
fn tag_of(table: &BaseTable, begun: BuildStart, file: &ManifestFile) -> Option<String> {
    match table.format {
        TableFormat::Delta => file.etag.clone(),
        TableFormat::Parquet => begun.tag(file.modified_ns, file.etag.as_deref()),
    }
}

/// One edit for all parts. A segment of which no file counts any more is left out.
fn joined(
    parts: &[&BuildPart],
    standing: &HashSet<String>,
    tag_of: &impl Fn(&ManifestFile) -> Option<String>,
) -> Result<BuiltSegments> {
    let mut built = BuiltSegments::default();
    for part in parts {
        let mut places = Vec::new();
        for file in part.manifest.files.iter().filter(|file| standing.contains(&file.path)) {
            let bytes = part.manifest.schemas.get(file.schema as usize).cloned().unwrap_or_default();
            let schema = schema_in(&mut built, bytes)?;
            places.push(u32::try_from(built.files.len()).map_err(|_| Error::unsupported("too many data files"))?);
            built.files.push(ManifestFile { schema, etag: tag_of(file), ..file.clone() });
        }
        for segment in part.manifest.segments.iter().filter(|_| !places.is_empty()) {
            let files = FileNumbers::from_sorted(places.iter().copied());
            built.segments.push(ManifestSegment { files, ..segment.clone() });
        }
    }
    Ok(built)
}
