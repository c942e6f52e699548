//! From a predicate to the rows of each file that are selected, or may be.
//!
//! ```text
//! predicate ─ simplify ─▶ leaves ─▶ answers per leaf and file ─ algebra per file ─▶ rows that are exact, rows to be rechecked
//!                                   partition column: a constant
//!                                   column that the file lacks: NULLs
//!                                   index: segment, two rounds of reads
//!                                   else: unknown, with the reason
//! ```
//!
//! Uses `aggregate`, `snapshot` and the rooms below them. It is called as [`Snapshot::probe`]: by `updates`, which looks for keys, and by
//! engines.
//!
//! Invariant: whatever goes wrong with an index makes rows unknown and never lets the query fail (laws 1 and 5).

mod answers;
mod composite;
mod conjunct_order;
mod constants;
mod cost;
mod directory_count;
mod found_rows;
mod gather;
mod narrow;
mod reading;
mod recheck;
mod segment_search;
mod top_k;
mod zones_first;

use std::sync::Arc;

use futures::future::BoxFuture;
use lakemark_format::ManifestIndex;
use lakemark_index::{Candidates, Leaf, Predicate, Reason, RowSet};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::options::ProbeOptions;
use crate::report::{AnsweredBy, LeafReport, ProbeReport};
use crate::snapshot::{DataFile, FileProbe, FileProbes, Probe, ProbedFile, Snapshot};
use crate::storage::clock::Stopwatch;
use crate::store::parts::CORES;
use crate::store::recorded::Recorded;
use crate::store::segments::ReadCounter;

pub(crate) use answers::{FileCandidates, LeafCandidates};
use cost::SearchPlan;
pub use cost::SearchedColumn;
use gather::gather;
use narrow::CandidateFiles;
pub use reading::{RowsToRead, pages_alone};
use segment_search::ReadContext;
pub use top_k::TopKRequest;

/// Files of the algebra that one task takes.
const FILES_PER_TASK: usize = 64;
/// Rows from which the algebra is spread over the cores.
const PARALLEL_ROWS: u64 = 1 << 18;

impl Snapshot {
    /// Finds the rows for which `predicate` is or may be true. Index files that are missing, stale or damaged never fail it.
    pub fn probe<'a>(&'a self, predicate: &'a Predicate, options: &'a ProbeOptions) -> BoxFuture<'a, Result<Probe>> {
        Box::pin(probe(self, predicate, options))
    }
}

/// Probes a snapshot.
#[tracing::instrument(level = "debug", skip_all, fields(table = %snapshot.root_url(), files = snapshot.files().len()))]
pub(crate) async fn probe(snapshot: &Snapshot, predicate: &Predicate, options: &ProbeOptions) -> Result<Probe> {
    let stopwatch = Stopwatch::start();
    if !options.use_index {
        return Ok(disabled(snapshot, &snapshot.with_composites(predicate), stopwatch));
    }
    let buffered = snapshot.buffered_rows().map(|buffered| buffered.pruned(predicate));
    let predicate = snapshot.with_composites(predicate);
    let counter = Arc::new(ReadCounter::default());
    let choice = match &options.reading {
        Some(reading) if !options.count_only => cost::choose(snapshot, &predicate, reading, &counter).await,
        _ => SearchPlan::default(),
    };
    let reads = ReadContext::new(Arc::clone(&counter), options.selection_cache);
    let candidates = match narrow::candidate_files(snapshot, &predicate, options, &choice, &reads).await {
        None => narrow::uncounted_files(snapshot, &predicate, options, &reads).await,
        narrowed => narrowed,
    };
    let FoundInFiles { files, mut report } = match candidates {
        Some(candidates) => {
            let few = snapshot.of_files(&candidates.places);
            let found = probe_files(&few, &predicate, options, &choice, &reads).await?;
            candidates.widened(snapshot, &few, found)
        }
        None => probe_files(snapshot, &predicate, options, &choice, &reads).await?,
    };
    let totals = counter.totals();
    (report.index_reads, report.index_bytes_read) = (totals.reads, totals.bytes);
    report.seconds = stopwatch.seconds();
    let left_out = choice.skipped.contains(&true);
    Ok(Probe { files, buffered, searches_skipped: left_out, skipped_selectivity: choice.share_left, report })
}

/// What a probe found in files.
struct FoundInFiles {
    files: FileProbes,
    report: ProbeReport,
}

/// Probes each file of a snapshot.
async fn probe_files(
    snapshot: &Snapshot,
    predicate: &Predicate,
    options: &ProbeOptions,
    choice: &SearchPlan,
    reads: &ReadContext,
) -> Result<FoundInFiles> {
    let mut counted = vec![None; snapshot.files().len()];
    if options.count_only {
        directory_count::from_directories(snapshot, predicate, &reads.counter, &mut counted).await;
    }
    let answers = gather(snapshot, predicate, &counted, choice, reads).await?;
    let row_groups = row_groups(snapshot, &answers);
    let files = combine(snapshot, predicate, &answers, &row_groups, &counted, options).await?;
    let report = summarize(snapshot, predicate, &answers, &files, &row_groups, &counted);
    Ok(FoundInFiles { files: files.into(), report })
}

impl CandidateFiles {
    /// What a probe of the candidates found, as what it says of all files of the snapshot.
    fn widened(self, snapshot: &Snapshot, few: &Snapshot, found: FoundInFiles) -> FoundInFiles {
        let FoundInFiles { files, mut report } = found;
        let (all, probed) = (snapshot.files().len(), few.files().len());
        let ruled_out = (all - probed) as f64;
        report.coverage = (report.coverage * probed as f64 + ruled_out) / all.max(1) as f64;
        report.files_total = all as u64;
        add_ruled_out(&mut report, snapshot, self.places.iter().copied());
        report.rows_exact += self.counted.iter().map(|(_, rows)| rows).sum::<u64>();
        // Of files that are ruled out it is known that no row passes.
        let mut leaves = report.leaves.iter_mut().filter(|leaf| leaf.column.is_some());
        if let (Some(leaf), Some(rows)) = (leaves.nth(self.leaf), self.leaf_rows) {
            *leaf.rows.get_or_insert(0) += rows;
        }
        let listed = self.places.into_iter().zip(files.into_listed());
        let listed = listed.map(|(file, (_, probe))| ProbedFile { file, probe });
        let counted = self.counted.into_iter();
        let counted = counted.map(|(file, rows)| ProbedFile { file, probe: FileProbe::Counted { rows } });
        let mut listed: Vec<ProbedFile> = listed.chain(counted).collect();
        listed.sort_unstable_by_key(|listed| listed.file);
        FoundInFiles { files: FileProbes::of(all, listed), report }
    }
}

fn disabled(snapshot: &Snapshot, predicate: &Predicate, stopwatch: Stopwatch) -> Probe {
    let mut leaves: Vec<LeafReport> = Vec::new();
    for_each_condition(predicate, &mut |condition| {
        leaves.push(LeafReport {
            reason: Some(condition.reason().unwrap_or(Reason::IndexDisabled)),
            ..condition.report(snapshot)
        });
    });
    let files = vec![FileProbe::Unknown; snapshot.files().len()];
    let total = files.len() as u64;
    let seconds = stopwatch.seconds();
    Probe {
        files: files.into(),
        buffered: snapshot.buffered_rows().cloned(),
        searches_skipped: false,
        skipped_selectivity: None,
        report: ProbeReport { leaves, files_total: total, files_scanned: total, seconds, ..ProbeReport::default() },
    }
}

/// A condition of a predicate: a leaf, or what could not be translated.
enum ProbeCondition<'a> {
    Leaf(&'a Leaf),
    Unknown(Reason, &'a str),
}

impl ProbeCondition<'_> {
    fn reason(&self) -> Option<Reason> {
        match self {
            Self::Leaf(_) => None,
            Self::Unknown(reason, _) => Some(*reason),
        }
    }

    fn report(&self, snapshot: &Snapshot) -> LeafReport {
        let (text, column) = match self {
            Self::Leaf(leaf) => (leaf.text.clone(), Some(snapshot.display_name(&leaf.column))),
            Self::Unknown(_, text) => ((*text).to_owned(), None),
        };
        LeafReport { text, column, index: None, encoding: None, choice: None, reason: self.reason(), rows: None }
    }
}

/// Visits leaves and untranslated conditions in the order of the text, which is that of [`Predicate::leaves`].
fn for_each_condition<'a>(predicate: &'a Predicate, visit: &mut impl FnMut(ProbeCondition<'a>)) {
    match predicate {
        Predicate::Const(_) => {}
        Predicate::Leaf(leaf) => visit(ProbeCondition::Leaf(leaf)),
        Predicate::Unknown { reason, text } => visit(ProbeCondition::Unknown(*reason, text)),
        Predicate::Not(inner) => for_each_condition(inner, visit),
        Predicate::And(parts) | Predicate::Or(parts) => parts.iter().for_each(|part| for_each_condition(part, visit)),
    }
}

/// The index of a name.
fn index_of<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a ManifestIndex> {
    snapshot.manifest.iter().flat_map(|manifest| manifest.indexes()).find(|index| index.name == name)
}

/// Row groups of every file that are known, from the listing's match or from segments whose fingerprints proved the file.
fn row_groups<'a>(snapshot: &'a Snapshot, answers: &'a LeafCandidates) -> Vec<Option<&'a [u32]>> {
    let known =
        |(file, data_file): (usize, &'a DataFile)| data_file.row_groups.as_deref().or_else(|| answers.row_groups(file));
    snapshot.files().iter().enumerate().map(known).collect()
}

async fn combine(
    snapshot: &Snapshot,
    predicate: &Predicate,
    answers: &LeafCandidates,
    row_groups: &[Option<&[u32]>],
    counted: &[Option<u64>],
    options: &ProbeOptions,
) -> Result<Vec<FileProbe>> {
    let work = |file: usize| FileAlgebra {
        row_groups: row_groups.get(file).copied().flatten().map(<[u32]>::to_vec),
        deleted: snapshot.files().get(file).filter(|_| !options.physical_rows).and_then(|file| file.deleted.clone()),
        answers: answers.of_file(file),
        counted: counted.get(file).copied().flatten(),
    };
    let count_only = options.count_only;
    let RuledOut { mut done, open } = ruled_out(predicate, answers, row_groups, counted, count_only);
    let of_file = |file: &usize| row_groups.get(*file).copied().flatten();
    let rows: u64 = open.iter().filter_map(of_file).flatten().copied().map(u64::from).sum();
    // A constant predicate tests nothing, so that no row is looked at.
    let is_constant = matches!(predicate, Predicate::Const(_));
    if rows < PARALLEL_ROWS || open.len() == 1 || is_constant {
        let run = |file| ProbedFile { file, probe: work(file).run(predicate, count_only) };
        done.extend(open.into_iter().map(run));
    } else {
        let mut tasks = JoinSet::new();
        let predicate = Arc::new(predicate.clone());
        let per_task = FILES_PER_TASK.min(open.len().div_ceil(*CORES)).max(1);
        for files in open.chunks(per_task) {
            let batch: Vec<(usize, FileAlgebra)> = files.iter().map(|file| (*file, work(*file))).collect();
            let predicate = Arc::clone(&predicate);
            tasks.spawn_blocking(move || -> Vec<ProbedFile> {
                let run =
                    |(file, work): (usize, FileAlgebra)| ProbedFile { file, probe: work.run(&predicate, count_only) };
                batch.into_iter().map(run).collect()
            });
        }
        while let Some(part) = tasks.join_next().await {
            done.extend(part.map_err(|error| Error::task(&error))?);
        }
    }
    done.sort_unstable_by_key(|done| done.file);
    Ok(done.into_iter().map(|done| done.probe).collect())
}

/// The files of a probe, by whether anything is left to find out.
struct RuledOut {
    /// Files of which no row is selected, as what is known of each file as a whole shows.
    done: Vec<ProbedFile>,
    /// Files whose rows the algebra is about.
    open: Vec<usize>,
}

fn ruled_out(
    predicate: &Predicate,
    answers: &LeafCandidates,
    row_groups: &[Option<&[u32]>],
    counted: &[Option<u64>],
    count_only: bool,
) -> RuledOut {
    let lacks_all = conjunct_order::ruled_out(answers, predicate, row_groups.len());
    let (mut done, mut open) = (Vec::with_capacity(row_groups.len()), Vec::new());
    for (file, known) in row_groups.iter().enumerate() {
        let is_counted = counted.get(file).is_some_and(Option::is_some);
        let rows = known.map(rows_of).filter(|rows| !is_counted && answers.fit(file, *rows));
        match (known, rows, lacks_all.get(file)) {
            (Some(_), Some(_), Some(true)) if count_only => {
                done.push(ProbedFile { file, probe: FileProbe::Counted { rows: 0 } });
            }
            (Some(known), Some(rows), Some(true)) => {
                let none = RowSet::empty(rows);
                let probe = FileProbe::Known { row_groups: known.to_vec(), exact: none.clone(), recheck: none };
                done.push(ProbedFile { file, probe });
            }
            _ => open.push(file),
        }
    }
    RuledOut { done, open }
}

fn rows_of(row_groups: &[u32]) -> u32 {
    row_groups.iter().copied().fold(0, u32::saturating_add)
}

/// The algebra of one file.
struct FileAlgebra {
    row_groups: Option<Vec<u32>>,
    deleted: Option<Arc<RowSet>>,
    answers: Vec<FileCandidates>,
    counted: Option<u64>,
}

impl FileAlgebra {
    fn run(self, predicate: &Predicate, count_only: bool) -> FileProbe {
        if let Some(rows) = self.counted {
            return FileProbe::Counted { rows };
        }
        // Without row positions the answers that hold for whole files still may rule the file out.
        let rows = self.row_groups.as_deref().map_or(1, rows_of);
        let mut answers = self.answers.iter();
        let mut leaf = |_: &Leaf| match answers.next() {
            Some(answer) if self.row_groups.is_some() => answer.candidates(rows),
            Some(answer) => answer.of_whole_file(),
            None => Candidates::unknown(rows),
        };
        let candidates = if count_only && self.row_groups.is_some() && self.deleted.is_none() {
            match Candidates::count(predicate, rows, &mut leaf) {
                Ok(rows) => return FileProbe::Counted { rows: u64::from(rows) },
                Err(candidates) => candidates,
            }
        } else {
            Candidates::of(predicate, rows, &mut leaf)
        };
        let (mut exact, mut recheck) = (candidates.exact_true(), candidates.recheck_true());
        let Some(row_groups) = self.row_groups else {
            if exact.is_empty() && recheck.is_empty() {
                let none = RowSet::empty(0);
                return FileProbe::Known { row_groups: Vec::new(), exact: none.clone(), recheck: none };
            }
            return FileProbe::Unknown;
        };
        if recheck.is_full() && rows > 0 {
            return FileProbe::Unknown;
        }
        if let Some(deleted) = &self.deleted {
            recheck = recheck.minus(deleted);
            if count_only && recheck.is_empty() && deleted.universe() == rows {
                let lost = RowSet::count_common(&[&exact, deleted], rows);
                return FileProbe::Counted { rows: u64::from(exact.len() - lost) };
            }
            exact = exact.minus(deleted);
        }
        if count_only && recheck.is_empty() {
            return FileProbe::Counted { rows: u64::from(exact.len()) };
        }
        FileProbe::Known { row_groups, exact, recheck }
    }
}

fn summarize(
    snapshot: &Snapshot,
    predicate: &Predicate,
    answers: &LeafCandidates,
    files: &[FileProbe],
    row_groups: &[Option<&[u32]>],
    counted: &[Option<u64>],
) -> ProbeReport {
    let mut leaves = Vec::new();
    let mut place = 0;
    for_each_condition(predicate, &mut |condition| {
        let mut report = condition.report(snapshot);
        if let ProbeCondition::Leaf(_) = condition {
            answers.fill(place, &mut report);
            let index = match &report.index {
                Some(AnsweredBy::Index(name)) => index_of(snapshot, name),
                Some(AnsweredBy::Partition) | None => None,
            };
            if let Some(index) = index {
                report.encoding = Some(index.encoding.clone());
                report.choice = Recorded::of(index).reason;
            }
            place += 1;
        }
        leaves.push(report);
    });
    let mut report = ProbeReport { leaves, files_total: files.len() as u64, ..ProbeReport::default() };
    for (file, known) in files.iter().zip(row_groups) {
        add_file(&mut report, file, *known);
    }
    let covered = (0..snapshot.files().len()).filter(|file| {
        counted.get(*file).is_some_and(Option::is_some)
            || answers.is_covered(*file, row_groups.get(*file).is_some_and(Option::is_some))
    });
    let covered = covered.count();
    report.coverage = if files.is_empty() { 1.0 } else { covered as f64 / files.len() as f64 };
    report
}

/// Enters the files that are ruled out as a whole: all but these.
fn add_ruled_out(report: &mut ProbeReport, snapshot: &Snapshot, listed: impl ExactSizeIterator<Item = usize>) {
    let ruled_out = snapshot.files().len().saturating_sub(listed.len());
    if ruled_out == 0 {
        return;
    }
    let rest = snapshot.settled_without(listed);
    report.files_pruned += ruled_out as u64;
    report.row_groups_total += rest.row_groups;
    report.row_groups_pruned += rest.row_groups;
    report.rows_total += rest.rows;
}

fn add_file(report: &mut ProbeReport, file: &FileProbe, known: Option<&[u32]>) {
    let rows: u64 = known.iter().flat_map(|groups| groups.iter()).copied().map(u64::from).sum();
    match file {
        FileProbe::Unknown => report.files_scanned += 1,
        FileProbe::Counted { rows: counted } => {
            report.files_pruned += 1;
            let groups = known.map_or(0, |groups| groups.len() as u64);
            report.row_groups_total += groups;
            report.row_groups_pruned += groups;
            report.rows_total += rows;
            report.rows_exact += counted;
        }
        FileProbe::Known { row_groups, exact, recheck } => {
            report.row_groups_total += row_groups.len() as u64;
            if exact.is_empty() && recheck.is_empty() {
                report.files_pruned += 1;
                report.row_groups_pruned += row_groups.len() as u64;
            } else {
                let mut start = 0;
                for length in row_groups {
                    let end = start + length;
                    if exact.count_in(start, end) == 0 && recheck.count_in(start, end) == 0 {
                        report.row_groups_pruned += 1;
                    }
                    start = end;
                }
            }
            report.rows_total += rows;
            report.rows_exact += u64::from(exact.len());
            report.rows_rechecked += u64::from(recheck.len());
        }
    }
}
