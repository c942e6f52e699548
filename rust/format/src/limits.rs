//! Limits that several kinds of files share. Those of one kind stand beside it.

/// The longest path of a file, in bytes.
pub const MAX_PATH_LENGTH: usize = 16 * 1024;
/// The longest name: of an index, a kind, an encoding, a column, an option, an entity tag.
pub const MAX_NAME_LENGTH: usize = 16 * 1024;
/// The most rows of one data file, as row positions have 32 bits.
pub const MAX_FILE_ROWS: u64 = u32::MAX as u64;
