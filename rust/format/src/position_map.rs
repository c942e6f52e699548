//! The position map of a run: the rows of data files and of older runs that the run's keys replace.
//!
//! A position map is a [container](crate::container) whose stream holds just the header and whose directory is the position map.
//! It is an index: derived from the run and the files, and derived again where it is lost. A file that the map lists was probed
//! for every key of the run. So a key without a row in this file has none there. Files that the map does not list are open. A
//! filter of the run's keys says which other keys the run cannot have. The run need not be read for these.

use std::collections::HashSet;

use crate::codec::{ByteReader, ByteWriter};
use crate::container::{ContainerWriter, ContentKind, WholeFile, open_whole};
use crate::error::{FormatError, Result};
use crate::key_filter::KeyFilter;
use crate::limits::{MAX_NAME_LENGTH, MAX_PATH_LENGTH};
use crate::manifest::unique;
use crate::path::check_path;
use crate::posting;

/// The most rows that a position map lists altogether, 2^28: a few bytes can stand for thousands of rows. Files are left
/// out, and so stay open, where there would be more.
pub const MAX_RESOLVED_ROWS: u32 = 1 << 28;

/// The positions that the keys of a run were resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionMap {
    /// The id of this file.
    pub id: [u8; 16],
    /// The run.
    pub run: [u8; 16],
    /// Its rows.
    pub rows: u32,
    /// Data files that were probed for its keys.
    pub files: Vec<PositionsInFile>,
    /// Older runs that were probed for its keys.
    pub runs: Vec<PositionsInRun>,
    /// A filter of the run's keys, if there is one.
    pub keys: Option<KeyFilter>,
}

/// What the keys of a run are in a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionsInFile {
    /// Path relative to the table's root.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970-01-01 UTC.
    pub modified_ns: i64,
    /// The object store's entity tag, where there is one.
    pub etag: Option<String>,
    /// Rows of each row group.
    pub row_groups: Vec<u32>,
    /// Rows whose key is in the run, ascending.
    pub deleted: Vec<u32>,
    /// Rows of the run, ascending, whose missing columns were taken from this file.
    pub completed: Vec<u32>,
}

/// What the keys of a run are in an older run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionsInRun {
    /// The older run.
    pub id: [u8; 16],
    /// Its rows.
    pub rows: u32,
    /// Rows whose key is in the newer run, ascending.
    pub replaced: Vec<u32>,
}

impl PositionMap {
    /// The bytes of the file.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.validate()?;
        let mut out = ByteWriter::new();
        out.bytes(&self.run);
        out.varint(u64::from(self.rows));
        out.length(self.files.len());
        for file in &self.files {
            file.encode(self.rows, &mut out)?;
        }
        out.length(self.runs.len());
        for run in &self.runs {
            out.bytes(&run.id);
            out.varint(u64::from(run.rows));
            put_rows("the replaced rows of a run", &run.replaced, run.rows, &mut out)?;
        }
        if let Some(keys) = &self.keys {
            keys.encode(self.rows, &mut out)?;
        }
        ContainerWriter::new(ContentKind::PositionMap, self.id).finish(out.as_slice())
    }

    /// Reads the bytes of the file, all of them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let WholeFile { id, directory } = open_whole(bytes, ContentKind::PositionMap)?;
        let position_map = Self::decode_body(id, directory)?;
        position_map.validate()?;
        Ok(position_map)
    }

    fn decode_body(id: [u8; 16], body: &[u8]) -> Result<Self> {
        let mut input = ByteReader::new("the position map", body);
        let mut lists = PositionLists { room: MAX_RESOLVED_ROWS };
        let run = input.array()?;
        let rows = input.varint_u32("the rows of a run")?;
        let count = input.count("the number of files", PositionsInFile::MIN_BYTES)?;
        let files = (0..count).map(|_| PositionsInFile::decode(rows, &mut lists, &mut input)).collect::<Result<_>>()?;
        let count = input.count("the number of runs", PositionsInRun::MIN_BYTES)?;
        let mut runs = Vec::with_capacity(count);
        for _ in 0..count {
            let (id, rows) = (input.array()?, input.varint_u32("the rows of a run")?);
            let replaced = lists.take("the replaced rows of a run", rows, &mut input)?;
            runs.push(PositionsInRun { id, rows, replaced });
        }
        let keys = match input.remaining() {
            0 => None,
            _ => Some(KeyFilter::decode(rows, &mut input)?),
        };
        input.finish()?;
        Ok(Self { id, run, rows, files, runs, keys })
    }

    fn validate(&self) -> Result<()> {
        let mut files = HashSet::with_capacity(self.files.len());
        for file in &self.files {
            check_path("the path of a data file", &file.path)?;
            let identity = (file.path.as_str(), file.size, file.modified_ns, file.etag.as_deref());
            if !files.insert(identity) {
                let got = format_args!("{:?} for the second time", file.path).to_string();
                return Err(FormatError::invalid("a data file of the same size, time and tag", got, "unique"));
            }
        }
        let mut runs = HashSet::with_capacity(self.runs.len() + 1);
        runs.insert(&self.run);
        for run in &self.runs {
            unique(&mut runs, "the id of a run", &run.id)?;
        }
        let of_files = self.files.iter().map(|file| file.deleted.len() as u64 + file.completed.len() as u64);
        let of_runs = self.runs.iter().map(|run| run.replaced.len() as u64);
        check_total(of_files.chain(of_runs).sum(), MAX_RESOLVED_ROWS)
    }
}

impl PositionsInRun {
    /// An id, the rows and no replaced rows.
    const MIN_BYTES: usize = 16 + 1 + 1;
}

impl PositionsInFile {
    /// An empty path's length, size, time, no tag, no row groups and no rows twice.
    const MIN_BYTES: usize = 1 + 1 + 8 + 1 + 1 + 1 + 1;

    fn rows(&self) -> Result<u32> {
        let rows: u64 = self.row_groups.iter().copied().map(u64::from).sum();
        u32::try_from(rows).map_err(|_| FormatError::TooLong {
            what: "the rows of a data file",
            got: rows,
            limit: u64::from(u32::MAX),
        })
    }

    fn encode(&self, run_rows: u32, out: &mut ByteWriter) -> Result<()> {
        out.string("the path of a data file", &self.path, MAX_PATH_LENGTH)?;
        out.varint(self.size);
        out.i64(self.modified_ns);
        out.flag(self.etag.is_some());
        if let Some(etag) = &self.etag {
            out.string("an entity tag", etag, MAX_NAME_LENGTH)?;
        }
        out.length(self.row_groups.len());
        for rows in &self.row_groups {
            out.varint(u64::from(*rows));
        }
        put_rows("the deleted rows of a data file", &self.deleted, self.rows()?, out)?;
        put_rows("the completed rows of a run", &self.completed, run_rows, out)
    }

    fn decode(run_rows: u32, lists: &mut PositionLists, input: &mut ByteReader<'_>) -> Result<Self> {
        let path = input.string("the path of a data file", MAX_PATH_LENGTH)?;
        let (size, modified_ns) = (input.varint()?, input.i64()?);
        let etag = match input.flag("the presence of an entity tag")? {
            true => Some(input.string("an entity tag", MAX_NAME_LENGTH)?),
            false => None,
        };
        let count = input.count("the number of row groups", 1)?;
        let row_groups = (0..count).map(|_| input.varint_u32("the rows of a row group")).collect::<Result<_>>()?;
        let mut file = Self { path, size, modified_ns, etag, row_groups, deleted: Vec::new(), completed: Vec::new() };
        file.deleted = lists.take("the deleted rows of a data file", file.rows()?, input)?;
        file.completed = lists.take("the completed rows of a run", run_rows, input)?;
        Ok(file)
    }
}

/// A count, and unless it is zero the bytes of a posting.
fn put_rows(what: &'static str, rows: &[u32], universe: u32, out: &mut ByteWriter) -> Result<()> {
    let fits = rows.last().is_none_or(|last| *last < universe) && rows.is_sorted_by(|a, b| a < b);
    if !fits {
        return Err(FormatError::invalid(what, "out of order or range", format_args!("ascending, below {universe}")));
    }
    out.length(rows.len());
    if !rows.is_empty() {
        let mut bytes = Vec::new();
        posting::encode(rows, universe, &mut bytes);
        out.blob(what, &bytes, u32::MAX as usize)?;
    }
    Ok(())
}

/// The lists of rows of a position map that is read.
struct PositionLists {
    /// How many rows there may be in those that are still to come.
    room: u32,
}

impl PositionLists {
    fn take(&mut self, what: &'static str, universe: u32, input: &mut ByteReader<'_>) -> Result<Vec<u32>> {
        let count = input.varint_u32(what)?;
        if count > universe {
            return Err(FormatError::TooLong { what, got: u64::from(count), limit: u64::from(universe) });
        }
        check_total(u64::from(count), self.room)?;
        self.room -= count;
        let mut rows = Vec::new();
        if count > 0 {
            let bytes = input.blob(what, u32::MAX as usize)?;
            posting::decode(bytes, count, universe, &mut rows)?;
        }
        Ok(rows)
    }
}

fn check_total(rows: u64, limit: u32) -> Result<()> {
    if rows <= u64::from(limit) {
        return Ok(());
    }
    Err(FormatError::TooLong { what: "the rows of all lists of a position map", got: rows, limit: u64::from(limit) })
}
