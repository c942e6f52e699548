//! Where the files of a store are, and how their names say what they are.
//!
//! ```text
//! manifest/00000000000000000131.lmm     an edit: what a commit changed
//! manifest/00000000000000000128.lmk     the root of a checkpoint: the manifest after that edit
//! checkpoint/9d04….lmp                  a piece that roots share
//! indexes/….lmx                         segments, and position maps of runs
//! updates/….lml  ….lmr  ….arrows        logs, runs, staged rows
//! claims/….claim                        what is being built just now, and by whom
//! data/  originals/                     data files of migrations, and those that a publication took out of the table's folder
//! ```

use lakemark_format::PieceId;
use uuid::Uuid;

use crate::storage::temp_file::UNFINISHED_PREFIX;

pub(super) const MANIFESTS: &str = "manifest";
pub(super) const PIECES: &str = "checkpoint";
pub(super) const INDEXES: &str = "indexes";
pub(super) const UPDATES: &str = "updates";
pub(super) const CLAIMS: &str = "claims";
pub(super) const DATA: &str = "data";
/// The folder of data files that a publication took out of the table's folder.
pub(crate) const ORIGINALS: &str = "originals";
const EDIT_SUFFIX: &str = ".lmm";
const CHECKPOINT_SUFFIX: &str = ".lmk";
const PIECE_SUFFIX: &str = ".lmp";
const SEGMENT_SUFFIX: &str = ".lmx";
const LOG_SUFFIX: &str = ".lml";
const RUN_SUFFIX: &str = ".lmr";
const STAGED_SUFFIX: &str = ".arrows";
const CLAIM_SUFFIX: &str = ".claim";
/// Of files whose time of modification is the time at the storage.
const TIME_SUFFIX: &str = ".time";

/// What a file of the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFileKind {
    /// The edit of this number.
    Edit(u64),
    /// The root of the checkpoint of this number.
    Checkpoint(u64),
    /// A piece of checkpoints.
    Piece(PieceId),
    /// A segment of an index, or the position map of a run.
    Segment,
    /// A log or a run of updates.
    Update,
    /// A data file that a migration wrote.
    Data,
    /// A data file that was the user's, before a publication.
    Original,
    /// Who builds a group of files, and what the time is at the storage.
    Claim,
    /// A file that is, or was, being written, and rows that were staged for a call.
    Unfinished,
}

/// The file name of an edit.
pub(super) fn edit_name(number: u64) -> String {
    format!("{number:020}{EDIT_SUFFIX}")
}

/// The path of an edit in the store.
pub(super) fn edit_path(number: u64) -> String {
    format!("{MANIFESTS}/{}", edit_name(number))
}

/// The path of the root of a checkpoint in the store.
pub(super) fn checkpoint_path(number: u64) -> String {
    format!("{MANIFESTS}/{number:020}{CHECKPOINT_SUFFIX}")
}

/// The path of a piece in the store.
pub(crate) fn piece_path(piece: PieceId) -> String {
    format!("{PIECES}/{piece}{PIECE_SUFFIX}")
}

/// The path that the segment of this id has in the store.
pub(super) fn segment_path(id: [u8; 16]) -> String {
    format!("{INDEXES}/{}{SEGMENT_SUFFIX}", Uuid::from_bytes(id))
}

/// The path that the run of this id has in the store.
pub(super) fn run_path(id: [u8; 16]) -> String {
    format!("{UPDATES}/{}{RUN_SUFFIX}", Uuid::from_bytes(id))
}

/// The path in the store of the claim of what has this id.
pub(super) fn claim_path(id: [u8; 16]) -> String {
    format!("{CLAIMS}/{}{CLAIM_SUFFIX}", Uuid::from_bytes(id))
}

/// The path in the store of a file of this id that is written to learn the time at the storage.
pub(super) fn time_path(id: Uuid) -> String {
    format!("{CLAIMS}/{id}{TIME_SUFFIX}")
}

/// The path that staged rows of this id have in the store.
pub(super) fn staged_path(id: Uuid) -> String {
    format!("{UPDATES}/{id}{STAGED_SUFFIX}")
}

/// Whether a path is one that staged rows have.
pub(super) fn is_staged(path: &str) -> bool {
    let name = path.strip_prefix(UPDATES).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| name.ends_with(STAGED_SUFFIX) && kind_of(UPDATES, name) == Some(StoreFileKind::Unfinished))
}

/// What the file of a name in a folder of the store is; none if it is none of ours.
pub(super) fn kind_of(folder: &str, name: &str) -> Option<StoreFileKind> {
    let is_id = |id: &str| Uuid::try_parse(id).is_ok();
    if name.strip_prefix(UNFINISHED_PREFIX).is_some_and(is_id) {
        return Some(StoreFileKind::Unfinished);
    }
    match folder {
        MANIFESTS => {
            let edit = numbered(name, EDIT_SUFFIX).map(StoreFileKind::Edit);
            edit.or_else(|| numbered(name, CHECKPOINT_SUFFIX).map(StoreFileKind::Checkpoint))
        }
        PIECES => name.strip_suffix(PIECE_SUFFIX).and_then(|id| id.parse().ok()).map(StoreFileKind::Piece),
        INDEXES => name.strip_suffix(SEGMENT_SUFFIX).is_some_and(is_id).then_some(StoreFileKind::Segment),
        CLAIMS => {
            let id = name.strip_suffix(CLAIM_SUFFIX).or_else(|| name.strip_suffix(TIME_SUFFIX));
            id.is_some_and(is_id).then_some(StoreFileKind::Claim)
        }
        UPDATES if name.strip_suffix(STAGED_SUFFIX).is_some_and(is_id) => Some(StoreFileKind::Unfinished),
        UPDATES => {
            let id = name.strip_suffix(LOG_SUFFIX).or_else(|| name.strip_suffix(RUN_SUFFIX));
            id.is_some_and(is_id).then_some(StoreFileKind::Update)
        }
        _ => None,
    }
}

fn numbered(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}
