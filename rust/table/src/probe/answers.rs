//! What is known of every leaf in every file.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::Array;
use lakemark_format::{ManifestIndex, SegmentFile};
use lakemark_index::{Candidates, Leaf, LiteralKey, Predicate, Reason, Test, Truth, encode_literal};
use tokio::task::JoinSet;

use super::conjunct_order::first_probed;
use super::cost::SearchPlan;
use super::segment_search::{ReadContext, SegmentCandidates, SegmentRequest, probe_segment, remembered};
use crate::error::{Error, Result};
use crate::report::LeafReport;
use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::store::segments::Damage;
use crate::values::fields::{Presence, has_other_calendar, indexed_field, key_type_of_field};

/// What partition columns are called in reports.
const PARTITION: &str = "partition";

/// What is known of one leaf in one file.
#[derive(Clone, Debug)]
pub(crate) enum FileCandidates {
    /// Nothing, and why.
    Unknown(Reason),
    /// The same for every row.
    Constant(Truth),
    /// Not probed, as no row of the file can be selected.
    NotNeeded,
    /// Not probed for rows, as the directory gives their number; none where that is not the number of this leaf.
    Counted(Option<u64>),
    /// What a segment has of the file's rows.
    Rows { candidates: Candidates, row_groups: Vec<u32> },
}

impl FileCandidates {
    /// The candidates of a file with `rows` rows.
    pub(crate) fn candidates(&self, rows: u32) -> Candidates {
        match self {
            Self::Unknown(_) | Self::NotNeeded | Self::Counted(_) => Candidates::unknown(rows),
            Self::Constant(truth) => Candidates::constant(*truth, rows),
            Self::Rows { candidates, .. } if candidates.universe() == rows => candidates.clone(),
            Self::Rows { .. } => Candidates::unknown(rows),
        }
    }

    /// The candidates of the file as if it were one row.
    pub(crate) fn of_whole_file(&self) -> Candidates {
        match self {
            Self::Constant(truth) => Candidates::constant(*truth, 1),
            Self::Unknown(_) | Self::NotNeeded | Self::Counted(_) | Self::Rows { .. } => Candidates::unknown(1),
        }
    }
}

/// What is known of all leaves in all files.
#[derive(Debug)]
pub(crate) struct LeafCandidates {
    /// By leaf, then by file.
    leaves: Vec<Vec<FileCandidates>>,
    /// By leaf: the index that answers, or `partition`.
    sources: Vec<Option<String>>,
}

impl LeafCandidates {
    /// Probes every leaf for every file that was not counted already. Of leaves that the choice leaves out no segment is searched.
    pub(crate) async fn gather(
        snapshot: &Snapshot,
        predicate: &Predicate,
        counted: &[Option<u64>],
        choice: &SearchPlan,
        reads: &ReadContext,
    ) -> Result<Self> {
        let leaves = predicate.leaves();
        let mut answers = Self { leaves: Vec::with_capacity(leaves.len()), sources: vec![None; leaves.len()] };
        for (place, leaf) in leaves.iter().enumerate() {
            let LeafConstants { mut candidates, source } = constants(snapshot, leaf);
            for (answer, rows) in candidates.iter_mut().zip(counted) {
                if rows.is_some() {
                    *answer = FileCandidates::Counted(rows.filter(|_| matches!(predicate, Predicate::Leaf(_))));
                }
            }
            answers.leaves.push(candidates);
            if let Some(slot) = answers.sources.get_mut(place) {
                *slot = source;
            }
        }
        let mut questions = Vec::with_capacity(leaves.len());
        for (place, leaf) in leaves.iter().enumerate() {
            let mut of_leaf = answers.questions(snapshot, place, leaf);
            if choice.skipped.get(place).copied().unwrap_or(false) {
                for file in of_leaf.drain(..).flat_map(|question| question.files) {
                    answers.set(place, file, FileCandidates::Unknown(Reason::ScanIsCheaper));
                }
            }
            questions.push(of_leaf);
        }
        answers.leave_out_needless(predicate, &mut questions);
        if let Some(first) = first_probed(predicate, &leaves, &questions, &choice.shares) {
            let only = questions.iter_mut().enumerate();
            let only = only.map(|(place, of_leaf)| if place == first { std::mem::take(of_leaf) } else { Vec::new() });
            let only = only.collect();
            answers.ask_all(snapshot, &leaves, only, reads).await?;
            answers.leave_out_needless(predicate, &mut questions);
        }
        answers.ask_all(snapshot, &leaves, questions, reads).await?;
        Ok(answers)
    }

    /// Leaves out files of which no row can be selected.
    fn leave_out_needless(&mut self, predicate: &Predicate, questions: &mut [Vec<SegmentRequest>]) {
        if questions.iter().all(Vec::is_empty) {
            return;
        }
        let files = self.leaves.first().map_or(0, Vec::len);
        let ruled_out = self.ruled_out(predicate, files);
        if !ruled_out.contains(&true) {
            return;
        }
        let is_needless = |file: usize| ruled_out.get(file).copied().unwrap_or(false);
        for (place, of_leaf) in questions.iter_mut().enumerate() {
            for question in of_leaf.iter_mut() {
                let (needless, needed): (Vec<usize>, _) =
                    std::mem::take(&mut question.files).into_iter().partition(|file| is_needless(*file));
                question.files = needed;
                for file in needless {
                    self.set(place, file, FileCandidates::NotNeeded);
                }
            }
            of_leaf.retain(|question| !question.files.is_empty());
        }
    }

    /// Probes all segments at once; the requests are by leaf.
    async fn ask_all(
        &mut self,
        snapshot: &Snapshot,
        leaves: &[&Leaf],
        questions: Vec<Vec<SegmentRequest>>,
        reads: &ReadContext,
    ) -> Result<()> {
        let mut tasks = JoinSet::new();
        for (leaf, questions) in leaves.iter().zip(questions) {
            let questions = self.probe_zones_first(snapshot, leaf, questions, reads).await;
            for question in questions {
                // What is remembered needs no task: to start one would take longer.
                let store = snapshot.store.as_ref().filter(|_| reads.selection_cache);
                if let Some(known) = store.and_then(|store| remembered(store, &question)) {
                    self.take(snapshot, question, Ok(known)).await;
                    continue;
                }
                let (store, reads) = (snapshot.store.clone(), reads.clone());
                tasks.spawn(async move {
                    let asked = match &store {
                        Some(store) => probe_segment(store, &question, &reads).await,
                        None => Err(Damage::corrupt("no store")),
                    };
                    (question, asked)
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            let (question, asked) = done.map_err(|error| Error::task(&error))?;
            self.take(snapshot, question, asked).await;
        }
        Ok(())
    }

    /// The segments to probe for a leaf: for every file that has no answer yet, the first one that covers it.
    fn questions(&mut self, snapshot: &Snapshot, place: usize, leaf: &Leaf) -> Vec<SegmentRequest> {
        let indexes = snapshot.indexes_for(leaf);
        let Some(answers) = self.leaves.get_mut(place) else { return Vec::new() };
        let is_open =
            |file: usize| !matches!(answers.get(file), Some(FileCandidates::Constant(_) | FileCandidates::Counted(_)));
        let questions = segment_requests(snapshot, place, leaf, &indexes, is_open);
        if let (Some(index), Some(slot)) = (indexes.first(), self.sources.get_mut(place)) {
            slot.get_or_insert_with(|| index.name.clone());
        }
        questions
    }

    /// Enters what a segment answered, file by file.
    pub(super) async fn take(
        &mut self,
        snapshot: &Snapshot,
        question: SegmentRequest,
        asked: Result<SegmentCandidates, Damage>,
    ) {
        let SegmentCandidates { segment, candidates } = match asked {
            Ok(asked) => asked,
            Err(damage) => {
                let (index, path, reason) = (&question.index.name, &question.segment.path, damage.reason.code());
                tracing::warn!(
                    index,
                    segment = path,
                    reason,
                    problem = damage.problem,
                    "an index file cannot be used; its files are scanned"
                );
                for file in &question.files {
                    self.set(question.leaf, *file, FileCandidates::Unknown(damage.reason));
                }
                return;
            }
        };
        let entries: HashMap<&str, (&SegmentFile, &Candidates)> = segment
            .directory
            .files
            .iter()
            .zip(candidates.iter())
            .map(|(entry, candidates)| (entry.path.as_str(), (entry, candidates)))
            .collect();
        for file in &question.files {
            let path = snapshot.files().get(*file).map_or("", |file| file.path.as_str());
            let answer = match entries.get(path) {
                Some((entry, candidates))
                    if is_same_data(snapshot, *file, entry, &question.segment, &segment.directory).await =>
                {
                    FileCandidates::Rows { candidates: (*candidates).clone(), row_groups: entry.row_groups.clone() }
                }
                _ => {
                    tracing::warn!(
                        file = path,
                        reason = Reason::FileChanged.code(),
                        "a data file changed since it was indexed and is scanned"
                    );
                    FileCandidates::Unknown(Reason::FileChanged)
                }
            };
            self.set(question.leaf, *file, answer);
        }
    }

    /// What is known of a leaf in a file by now.
    pub(super) fn of_leaf(&self, leaf: usize, file: usize) -> Option<&FileCandidates> {
        self.leaves.get(leaf)?.get(file)
    }

    fn set(&mut self, leaf: usize, file: usize, answer: FileCandidates) {
        if let Some(slot) = self.leaves.get_mut(leaf).and_then(|files| files.get_mut(file)) {
            *slot = answer;
        }
    }

    /// The answers of one file, by leaf.
    pub(crate) fn of_file(&self, file: usize) -> Vec<FileCandidates> {
        let of_leaf = |answers: &Vec<FileCandidates>| {
            answers.get(file).cloned().unwrap_or(FileCandidates::Unknown(Reason::FileNotCovered))
        };
        self.leaves.iter().map(of_leaf).collect()
    }

    /// Row groups of a file that a segment vouches for.
    pub(crate) fn row_groups(&self, file: usize) -> Option<&[u32]> {
        self.leaves.iter().find_map(|answers| match answers.get(file) {
            Some(FileCandidates::Rows { row_groups, .. }) => Some(row_groups.as_slice()),
            _ => None,
        })
    }

    /// Whether all answers of a file are about so many rows.
    pub(super) fn fit(&self, file: usize, rows: u32) -> bool {
        let fits = |answer: Option<&FileCandidates>| match answer {
            Some(FileCandidates::Rows { candidates, .. }) => candidates.universe() == rows,
            _ => true,
        };
        self.leaves.iter().all(|answers| fits(answers.get(file)))
    }

    /// Whether index files did for the file all that they can do: something was answered and nothing is missing or stale.
    pub(crate) fn is_covered(&self, file: usize, rows_known: bool) -> bool {
        if self.leaves.is_empty() {
            return rows_known;
        }
        let mut answered = false;
        for answers in &self.leaves {
            match answers.get(file) {
                Some(FileCandidates::Unknown(Reason::NoIndex | Reason::TypeNotIndexed | Reason::ScanIsCheaper)) => {}
                Some(FileCandidates::Unknown(_)) | None => return false,
                Some(_) => answered = true,
            }
        }
        answered
    }

    /// Enters what is known of a leaf into its report.
    pub(crate) fn fill(&self, leaf: usize, report: &mut LeafReport) {
        let Some(answers) = self.leaves.get(leaf) else { return };
        report.index = self.sources.get(leaf).cloned().flatten();
        report.reason = answers.iter().find_map(|answer| match answer {
            FileCandidates::Unknown(reason) => Some(*reason),
            _ => None,
        });
        let rows = answers.iter().filter_map(|answer| match answer {
            FileCandidates::Rows { candidates, .. } => Some(u64::from(candidates.exact_true().len())),
            FileCandidates::Counted(rows) => *rows,
            _ => None,
        });
        let rows: Vec<u64> = rows.collect();
        report.rows = (!rows.is_empty()).then(|| rows.iter().sum());
    }
}

/// The segments of these indexes to probe for the open files: for each file the first one that covers it.
pub(super) fn segment_requests(
    snapshot: &Snapshot,
    place: usize,
    leaf: &Leaf,
    indexes: &[&ManifestIndex],
    is_open: impl Fn(usize) -> bool,
) -> Vec<SegmentRequest> {
    let Some(manifest) = snapshot.manifest.as_ref().filter(|_| !indexes.is_empty()) else { return Vec::new() };
    // By ordinal in the manifest.
    let mut open: Vec<Option<usize>> = vec![None; manifest.files.len()];
    for (file, state) in snapshot.index_states.iter().enumerate() {
        let slot = state.ordinal.and_then(|ordinal| open.get_mut(ordinal as usize));
        if let Some(slot) = slot.filter(|_| is_open(file)) {
            *slot = Some(file);
        }
    }
    let mut questions = Vec::new();
    for index in indexes {
        for segment in manifest.segments.iter().filter(|segment| segment.index_id == index.id) {
            let files = segment.files.iter().filter_map(|ordinal| open.get_mut(*ordinal as usize)?.take());
            let files: Vec<usize> = files.collect();
            if !files.is_empty() {
                let (index, segment) = ((*index).clone(), segment.clone());
                questions.push(SegmentRequest { leaf: place, test: leaf.test.clone(), index, segment, files });
            }
        }
    }
    questions
}

/// What is known of a leaf without any index.
struct LeafConstants {
    /// By file; the reason where nothing is known.
    candidates: Vec<FileCandidates>,
    /// Who answers, for reports.
    source: Option<String>,
}

fn constants(snapshot: &Snapshot, leaf: &Leaf) -> LeafConstants {
    let files = snapshot.files();
    if let Some(place) = snapshot.partition_columns().iter().position(|field| *field.name() == leaf.column) {
        let of_file =
            |value: Option<&Arc<dyn Array>>| match value.and_then(|value| test_value(value.as_ref(), &leaf.test)) {
                Some(truth) => FileCandidates::Constant(truth),
                None => FileCandidates::Unknown(Reason::TypeNotIndexed),
            };
        let candidates = files.iter().map(|file| of_file(file.partition_values.get(place))).collect();
        return LeafConstants { candidates, source: Some(PARTITION.to_owned()) };
    }
    let has_index = !snapshot.indexes_for(leaf).is_empty();
    let (table, name) = (snapshot.file_schema(), leaf.column.as_str());
    let indexable = indexed_field(&table, name).is_some_and(|field| key_type_of_field(&field).is_some());
    let null = if leaf.test == Test::IsNull { Truth::True } else { Truth::Null };
    let answers = snapshot.index_states.iter().map(|state| match &state.schema {
        Some(schema) if Presence::of(schema, &table, name) == Presence::Lacking => FileCandidates::Constant(null),
        _ if !indexable => FileCandidates::Unknown(Reason::TypeNotIndexed),
        _ if !has_index => FileCandidates::Unknown(Reason::NoIndex),
        Some(schema) if has_other_calendar(schema, name) => FileCandidates::Unknown(Reason::CalendarRebased),
        _ if state.size_changed => FileCandidates::Unknown(Reason::FileChanged),
        _ => FileCandidates::Unknown(Reason::FileNotCovered),
    });
    LeafConstants { candidates: answers.collect(), source: None }
}

/// The truth of a test of a constant.
fn test_value(value: &dyn Array, test: &Test) -> Option<Truth> {
    let key = encode_literal(value)?;
    Some(match (key, test) {
        // No partition column is a list.
        (_, Test::Elements(_)) => return None,
        (LiteralKey::Null, Test::IsNull) => Truth::True,
        (LiteralKey::Null, Test::Ranges(_)) => Truth::Null,
        (LiteralKey::Key(_), Test::IsNull) => Truth::False,
        (LiteralKey::Key(key), Test::Ranges(ranges)) if ranges.contains(&key) => Truth::True,
        (LiteralKey::Key(_), Test::Ranges(_)) => Truth::False,
    })
}
