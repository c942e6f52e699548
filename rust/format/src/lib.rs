#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bin_block;
pub mod codec;
pub mod column;
pub mod container;
pub mod error;
mod file_numbers;
pub mod filter;
pub mod index_kind;
pub mod inner_page;
pub mod key;
mod key_filter;
pub mod leaf;
pub mod limits;
pub mod links;
pub mod log;
pub mod manifest;
mod name_of;
pub mod order;
mod packed;
mod path;
pub mod position_map;
pub mod posting;
pub mod ramp;
pub mod riding;
pub mod segment;
pub mod value_block;
pub mod zones;

pub use bin_block::{Bin, BinEntry};
pub use container::{
    ContainerWriter, ContentKind, Header, Opened, Trailer, open_tail, physical_length, physical_range, read_logical,
};
pub use error::{FormatError, Result};
pub use file_numbers::FileNumbers;
pub use index_kind::IndexKind;
pub use key::{
    Key, KeyType, MAX_KEY_LENGTH, TimeUnit, i64_of_key, key_of_f16_bits, key_of_f32, key_of_f64, key_of_i64,
    key_of_i128, key_of_i256_be,
};
pub use key_filter::KeyFilter;
pub use links::{LinkEnd, LinkLeaf, LinkShape};
pub use log::{LogChange, LogCommit, LogRead, LoggedCommit, Operation};
pub use manifest::{
    AddedFiles, AddedSchemas, Checkpoint, Manifest, ManifestChanges, ManifestDelta, ManifestEdit, ManifestFile,
    ManifestIndex, ManifestLog, ManifestMigration, ManifestPositionMap, ManifestPublication, ManifestRun,
    ManifestSegment, ManifestTransaction, ManifestUpdates, MovedFile, Piece, PieceId, PublishedFile, ReplacedFile,
    RunRange, StoreFile, WriteCounters,
};
pub use name_of::{HasName, NameOf};
pub use position_map::{PositionMap, PositionsInFile, PositionsInRun};
pub use riding::{RidingColumn, RidingRows, RidingSegment, RidingValue};
pub use segment::encoding::{CoarseLevel, Encoding};
pub use segment::{PostingRef, SegmentDirectory, SegmentFile, ValueBlockRef};
