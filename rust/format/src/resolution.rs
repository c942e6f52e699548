//! What the keys of a run were resolved to: the rows of data files and of older runs that they replace.
//!
//! A resolution is a [container](crate::container) whose stream holds just the header and whose directory is the resolution.
//! It is a mark: derived from the run and the files, and derived again where it is lost. A file that it lists was asked for
//! every key of the run, so that a key without a row there is an answer; files that it does not list are open.

use crate::codec::{Reader, Writer};
use crate::container::{ContainerWriter, ContentKind, HEADER_BYTES, open_tail, physical_range};
use crate::error::{FormatError, Result};
use crate::manifest::{MAX_NAME_LENGTH, MAX_PATH_LENGTH};
use crate::path::check_path;
use crate::posting;

/// What the keys of a run were resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The id of this file.
    pub id: [u8; 16],
    /// The run.
    pub run: [u8; 16],
    /// Its rows.
    pub rows: u32,
    /// Data files that were asked.
    pub files: Vec<ResolvedFile>,
    /// Older runs that were asked.
    pub runs: Vec<ResolvedRun>,
}

/// What the keys of a run are in a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedFile {
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
    pub shadowed: Vec<u32>,
    /// Rows of the run, ascending, whose missing columns were taken from this file.
    pub completed: Vec<u32>,
}

/// What the keys of a run are in an older run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedRun {
    /// The older run.
    pub id: [u8; 16],
    /// Its rows.
    pub rows: u32,
    /// Rows whose key is in the newer run, ascending.
    pub replaced: Vec<u32>,
}

impl Resolution {
    /// The bytes of the file.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Writer::new();
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
        ContainerWriter::new(ContentKind::Resolution, self.id).finish(out.as_slice())
    }

    /// Reads the bytes of the file, all of them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let opened = open_tail(bytes, bytes.len() as u64)?;
        let trailer = opened.trailer;
        if trailer.kind != ContentKind::Resolution {
            return Err(FormatError::invalid("the content kind of a resolution", trailer.kind.code(), 3));
        }
        if trailer.stream_length != HEADER_BYTES {
            let got = trailer.stream_length;
            return Err(FormatError::invalid("the stream's length in a resolution", got, HEADER_BYTES));
        }
        let header = physical_range(0..HEADER_BYTES, &trailer);
        let header = Reader::new("the header page", bytes).bytes((header.end - header.start) as usize)?;
        trailer.check_header(header)?;
        let Some(body) = opened.directory else {
            return Err(FormatError::Truncated {
                what: "the resolution",
                got: bytes.len() as u64,
                expected: trailer.file_length,
            });
        };
        Self::decode_body(trailer.id, body)
    }

    fn decode_body(id: [u8; 16], body: &[u8]) -> Result<Self> {
        let mut input = Reader::new("the resolution", body);
        let run = input.array()?;
        let rows = input.varint_u32("the rows of a run")?;
        let count = input.count("the number of files", ResolvedFile::MIN_BYTES)?;
        let files = (0..count).map(|_| ResolvedFile::decode(rows, &mut input)).collect::<Result<_>>()?;
        let count = input.count("the number of runs", 18)?;
        let mut runs = Vec::with_capacity(count);
        for _ in 0..count {
            let (id, rows) = (input.array()?, input.varint_u32("the rows of a run")?);
            runs.push(ResolvedRun { id, rows, replaced: take_rows("the replaced rows of a run", rows, &mut input)? });
        }
        input.finish()?;
        Ok(Self { id, run, rows, files, runs })
    }
}

impl ResolvedFile {
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

    fn encode(&self, run_rows: u32, out: &mut Writer) -> Result<()> {
        check_path("the path of a data file", &self.path)?;
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
        put_rows("the shadowed rows of a data file", &self.shadowed, self.rows()?, out)?;
        put_rows("the completed rows of a run", &self.completed, run_rows, out)
    }

    fn decode(run_rows: u32, input: &mut Reader<'_>) -> Result<Self> {
        let path = input.string("the path of a data file", MAX_PATH_LENGTH)?;
        check_path("the path of a data file", &path)?;
        let (size, modified_ns) = (input.varint()?, input.i64()?);
        let etag = match input.flag("the presence of an entity tag")? {
            true => Some(input.string("an entity tag", MAX_NAME_LENGTH)?),
            false => None,
        };
        let count = input.count("the number of row groups", 1)?;
        let row_groups = (0..count).map(|_| input.varint_u32("the rows of a row group")).collect::<Result<_>>()?;
        let mut file = Self { path, size, modified_ns, etag, row_groups, shadowed: Vec::new(), completed: Vec::new() };
        file.shadowed = take_rows("the shadowed rows of a data file", file.rows()?, input)?;
        file.completed = take_rows("the completed rows of a run", run_rows, input)?;
        Ok(file)
    }
}

/// A count, and unless it is zero the bytes of a posting.
fn put_rows(what: &'static str, rows: &[u32], universe: u32, out: &mut Writer) -> Result<()> {
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

fn take_rows(what: &'static str, universe: u32, input: &mut Reader<'_>) -> Result<Vec<u32>> {
    let count = input.varint_u32(what)?;
    if count > universe {
        return Err(FormatError::TooLong { what, got: u64::from(count), limit: u64::from(universe) });
    }
    let mut rows = Vec::new();
    if count > 0 {
        let bytes = input.blob(what, u32::MAX as usize)?;
        posting::decode(bytes, count, universe, &mut rows)?;
    }
    Ok(rows)
}
