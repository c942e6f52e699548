//! The options of each kind of index, and its encodings.

use std::collections::BTreeMap;

use lakemark_format::{Encoding, ManifestIndex};
use lakemark_index::zones::ZoneOptions;
use lakemark_index::{Precision, PrecisionError};

use super::hashed::{HASH_BITS, HASHED, LEAST_HASH_BITS, MOST_HASH_BITS};
use super::included::{INCLUDE, names_of};
use crate::error::{Error, Result};
use crate::index_kind::IndexKind;

/// Rows of a page, as Parquet writers cut them by default. A zone is no page of the indexed column. The pages that it saves are those of
/// the columns that are read, and these are cut elsewhere.
const PAGE_ROWS: u32 = 20_000;
/// Rows of a zone of a summary: a row group of usual writers, or a part of a large one.
const SUMMARY_ROWS: u32 = 65_536;

/// An option of an index, which users give when they declare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexOption {
    /// The encoding.
    Encoding,
    /// Where the encoding `binned` cuts.
    Precision,
    /// How many data files share a segment.
    FilesPerSegment,
    /// How often a filter may have a key that is not there.
    Fpp,
    /// How many rows share a filter.
    ZoneRows,
    /// Columns that ride along with the keys.
    Include,
    /// Whether hashes of values are the keys.
    Hashed,
    /// How many bits these hashes have.
    HashBits,
}

impl IndexOption {
    /// All options.
    pub const ALL: [Self; 8] = [
        Self::Encoding,
        Self::Precision,
        Self::FilesPerSegment,
        Self::Fpp,
        Self::ZoneRows,
        Self::Include,
        Self::Hashed,
        Self::HashBits,
    ];

    /// The name in statements, options and manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Encoding => "encoding",
            Self::Precision => "precision",
            Self::FilesPerSegment => "files_per_segment",
            Self::Fpp => "fpp",
            Self::ZoneRows => "zone_rows",
            Self::Include => INCLUDE,
            Self::Hashed => HASHED,
            Self::HashBits => HASH_BITS,
        }
    }

    /// The option of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|option| option.name() == name)
    }

    /// Checks a value as far as it can be without the column.
    fn check(self, value: &str) -> Result<()> {
        let (fits, text) = match self {
            Self::Encoding | Self::Precision => return Ok(()),
            Self::Include => {
                (names_of(value).is_some(), "it must be names of columns with commas between, such as customer,amount")
            }
            Self::Hashed => (is_true(value).is_some(), "it must be true or false"),
            Self::HashBits => (
                value.parse::<u8>().is_ok_and(|bits| (LEAST_HASH_BITS..=MOST_HASH_BITS).contains(&bits)),
                "it must be a number of bits from 8 to 64, such as 40",
            ),
            Self::FilesPerSegment => (
                value.parse::<u32>().is_ok_and(|files| (1..=4096).contains(&files)),
                "it must be a number from 1 to 4096",
            ),
            Self::Fpp => (
                value.parse::<f64>().is_ok_and(|fpp| (1e-15..1.0).contains(&fpp)),
                "it must be a probability from 1e-15 to below 1, such as 0.01",
            ),
            Self::ZoneRows => {
                (value.parse::<u32>().is_ok_and(|rows| rows > 0), "it must be a number of rows, 1 or more")
            }
        };
        if fits { Ok(()) } else { Err(Error::invalid(format!("{} is {value}, {text}", self.name()))) }
    }
}

/// The truth that a user writes; none if it is none.
fn is_true(value: &str) -> Option<bool> {
    let is = |word: &str| value.eq_ignore_ascii_case(word);
    if is("true") { Some(true) } else { is("false").then_some(false) }
}

/// Options that an index can have.
#[derive(Debug)]
pub(crate) struct CheckedOptions {
    pub encoding: Encoding,
    /// What is stored beside the encoding: names and values.
    pub others: Vec<(String, String)>,
    /// Whether hashes of values are the keys.
    pub is_hashed: bool,
}

/// The encoding and the other options of an index of this kind, as a user gives them.
pub(crate) fn check_options(kind: IndexKind, options: &BTreeMap<String, String>) -> Result<CheckedOptions> {
    let known = options_of(kind);
    for (name, value) in options {
        let option = IndexOption::from_name(name).filter(|option| known.contains(option));
        let option = option.ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|option| option.name()).collect();
            Error::invalid(format!("there is no option {name}; a {kind} index has {}", names.join(", ")))
        })?;
        option.check(value)?;
    }
    let encoding = if kind == IndexKind::Bitmap { bitmap_encoding(options)? } else { kind.encoding() };
    let is_hashed = is_hashed(options)?;
    let is_stored = |name: &String| {
        let option = IndexOption::from_name(name);
        option != Some(IndexOption::Encoding) && (is_hashed || option != Some(IndexOption::Hashed))
    };
    let others = options.iter().filter(|(name, _)| is_stored(name));
    let others = others.map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(CheckedOptions { encoding, others, is_hashed })
}

/// Whether hashes of values are to be the keys. A number of bits says so as well.
fn is_hashed(options: &BTreeMap<String, String>) -> Result<bool> {
    let bits = options.contains_key(IndexOption::HashBits.name());
    match (options.get(IndexOption::Hashed.name()).and_then(|value| is_true(value)), bits) {
        (Some(false), true) => {
            Err(Error::invalid("hash_bits is of hashed keys, and hashed is false; leave one of the two out"))
        }
        (hashed, bits) => Ok(hashed.unwrap_or(bits)),
    }
}

fn options_of(kind: IndexKind) -> &'static [IndexOption] {
    match kind {
        IndexKind::Bitmap => &[IndexOption::Encoding, IndexOption::Precision, IndexOption::FilesPerSegment],
        IndexKind::Key => {
            &[IndexOption::Include, IndexOption::Hashed, IndexOption::HashBits, IndexOption::FilesPerSegment]
        }
        IndexKind::BloomTree | IndexKind::Summary => {
            &[IndexOption::Fpp, IndexOption::ZoneRows, IndexOption::FilesPerSegment]
        }
        IndexKind::Links => &[IndexOption::FilesPerSegment],
    }
}

/// The encoding that the options name or belong to.
fn bitmap_encoding(options: &BTreeMap<String, String>) -> Result<Encoding> {
    let named = options.get(IndexOption::Encoding.name()).map(|value| {
        Encoding::BITMAP.into_iter().find(|encoding| encoding.name() == value).ok_or_else(|| {
            let names = Encoding::BITMAP.map(Encoding::name).join(", ");
            Error::invalid(format!("there is no encoding {value}; a bitmap index has one of {names}"))
        })
    });
    match (named.transpose()?, options.contains_key(IndexOption::Precision.name())) {
        // The option stands for an encoding; its value is checked with the type of the column.
        (None | Some(Encoding::Binned), true) => Ok(Encoding::Binned),
        (Some(other), true) => Err(Error::invalid(format!(
            "precision is for the encoding binned, and the encoding given is {}; leave one of the two out",
            other.name()
        ))),
        (Some(Encoding::Binned), false) => Err(Error::invalid(
            "the encoding binned needs a precision, such as precision=2 for two significant digits or precision=month",
        )),
        (named, false) => Ok(named.unwrap_or_default()),
    }
}

/// Whether the choice is for `auto`: no kind is named, nor an option that belongs to one.
pub(crate) fn is_open(kind: Option<IndexKind>, options: &BTreeMap<String, String>) -> bool {
    kind.is_none() && options.keys().all(|option| option == IndexOption::FilesPerSegment.name())
}

/// What an index has for an option.
fn value_of(options: &[(String, String)], option: IndexOption) -> Option<&String> {
    options.iter().find(|(name, _)| name == option.name()).map(|(_, value)| value)
}

/// The precision among the options of an index.
pub(crate) fn precision_of(options: &[(String, String)]) -> Result<Option<Precision>> {
    let given = value_of(options, IndexOption::Precision);
    given.map(|value| value.parse().map_err(|error: PrecisionError| Error::invalid(error.to_string()))).transpose()
}

/// Data files that share a segment of the index.
pub(crate) fn files_per_segment(index: &ManifestIndex) -> usize {
    files_per_segment_of(index.kind.known().unwrap_or(IndexKind::Bitmap), &index.options)
}

/// Data files that share a segment unless an option says so. A search for single keys reads every segment, so that few are better.
pub(crate) fn files_per_segment_by_default(kind: IndexKind) -> usize {
    if kind == IndexKind::Bitmap { 16 } else { 1024 }
}

/// Data files that share a segment of an index of a kind with these options.
pub(crate) fn files_per_segment_of(kind: IndexKind, options: &[(String, String)]) -> usize {
    let given = value_of(options, IndexOption::FilesPerSegment).and_then(|value| value.parse().ok());
    given.unwrap_or_else(|| files_per_segment_by_default(kind))
}

/// The zones of an index, in a build that may take so much memory.
pub(crate) fn zones_of(index: &ManifestIndex, memory_bytes: u64) -> ZoneOptions {
    zones_with(index.kind.known(), &index.options, memory_bytes)
}

/// The zones of an index of a kind with these options.
pub(crate) fn zones_with(kind: Option<IndexKind>, options: &[(String, String)], memory_bytes: u64) -> ZoneOptions {
    let default = if kind == Some(IndexKind::Summary) { SUMMARY_ROWS } else { PAGE_ROWS };
    let rows = value_of(options, IndexOption::ZoneRows).and_then(|value| value.parse().ok());
    ZoneOptions {
        zone_rows: Some(rows.unwrap_or(default)),
        fpp: value_of(options, IndexOption::Fpp).and_then(|value| value.parse().ok()),
        memory_bytes: Some(memory_bytes),
    }
}
