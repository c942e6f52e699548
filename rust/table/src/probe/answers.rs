//! What is known of every leaf in every file.

use lakemark_format::ManifestIndex;
use lakemark_index::{Candidates, Reason, Truth};

use super::segment_search::{SegmentCandidates, SegmentRequest};
use crate::report::{AnsweredBy, LeafReport};
use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::store::segments::{Damage, FileOfSegment};

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
    /// By leaf: what answers.
    sources: Vec<Option<AnsweredBy>>,
}

impl LeafCandidates {
    /// By leaf what is known of each file without any index, and who says so.
    pub(super) fn new(leaves: Vec<Vec<FileCandidates>>, sources: Vec<Option<AnsweredBy>>) -> Self {
        Self { leaves, sources }
    }

    /// The number of files.
    pub(super) fn file_count(&self) -> usize {
        self.leaves.first().map_or(0, Vec::len)
    }

    /// Enters the index that is probed for a leaf, unless something else says what is known of it.
    pub(super) fn set_source(&mut self, leaf: usize, index: &ManifestIndex) {
        if let Some(slot) = self.sources.get_mut(leaf) {
            slot.get_or_insert_with(|| AnsweredBy::Index(index.name.clone()));
        }
    }

    /// Enters what a segment answered, file by file.
    pub(super) async fn take(
        &mut self,
        snapshot: &Snapshot,
        request: SegmentRequest,
        found: Result<SegmentCandidates, Damage>,
    ) {
        let SegmentCandidates { segment, found } = match found {
            Ok(found) => found,
            Err(damage) => {
                let (index, path, reason) = (&request.index.name, &request.segment.path, damage.reason.code());
                tracing::warn!(
                    index,
                    segment = path,
                    reason,
                    problem = damage.problem,
                    "an index file cannot be used; its files are scanned"
                );
                for file in &request.files {
                    self.set(request.leaf, *file, FileCandidates::Unknown(damage.reason));
                }
                return;
            }
        };
        for file in &request.files {
            let path = snapshot.files().get(*file).map_or("", |file| file.path.as_str());
            let answer = match segment.file(path) {
                Some(FileOfSegment { place, entry })
                    if is_same_data(snapshot, *file, entry, &request.segment, &segment.directory).await =>
                {
                    let candidates = found.candidates(place, entry);
                    FileCandidates::Rows { candidates, row_groups: entry.row_groups.clone() }
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
            self.set(request.leaf, *file, answer);
        }
    }

    /// What is known of a leaf in a file by now.
    pub(super) fn of_leaf(&self, leaf: usize, file: usize) -> Option<&FileCandidates> {
        self.leaves.get(leaf)?.get(file)
    }

    /// Enters what is known of a leaf in a file.
    pub(super) fn set(&mut self, leaf: usize, file: usize, answer: FileCandidates) {
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
