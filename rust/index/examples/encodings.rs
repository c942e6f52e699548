//! Bytes of every encoding on columns of the Set Query Benchmark: of the segment, and read by the range conditions of its Q4.
//!
//! ```text
//! cargo run --release -p lakemark-index --example encodings -- [ROWS, 10000000 if not given] [COLUMN …] [ENCODING …] [bins=K …]
//! ```
//!
//! Column `K100` holds the numbers 1 to 100, `K10K` 1 to 10000, drawn with the benchmark's own generator. Bytes read are those of
//! both rounds of a search: NULL and opaque lists, value blocks, postings and bitmaps. The last number of a line is the mean over
//! random ranges, both ends drawn evenly.

#![allow(clippy::restriction, clippy::disallowed_methods, reason = "a program that is run by hand")]

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int32Array};
use bytes::Bytes;
use lakemark_format::segment::SegmentFile;
use lakemark_format::{Encoding, Key, KeyType, SegmentDirectory, key_of_i64, open_tail, physical_range, read_logical};
use lakemark_index::bitmap::{BuildError, ChunkBuilder, ChunkSource, Search, SegmentMeta, merge};
use lakemark_index::{KeyRanges, Precision, Test};

const ROW_GROUP_ROWS: usize = 1 << 20;
const MULTIPLIER: u64 = 16_807;
const MODULUS: u64 = (1 << 31) - 1;
const RANDOM_RANGES: u64 = 100;

/// The columns in the benchmark's order, with their numbers of values.
const COLUMNS: [(&str, u64); 12] = [
    ("K2", 2),
    ("K4", 4),
    ("K5", 5),
    ("K10", 10),
    ("K25", 25),
    ("K100", 100),
    ("K1K", 1_000),
    ("K10K", 10_000),
    ("K40K", 40_000),
    ("K100K", 100_000),
    ("K250K", 250_000),
    ("K500K", 500_000),
];

/// The conditions of figure 1 that select neighbouring values: column, first and last value.
const CONDITIONS: [(&str, u64, u64); 5] =
    [("K100", 81, 100), ("K10K", 2000, 3000), ("K100", 1, 40), ("K1K", 850, 950), ("K25", 3, 4)];

fn main() -> Result<(), Box<dyn Error>> {
    let (mut rows, mut places, mut encodings, mut bins) = (10_000_000, Vec::new(), Vec::new(), Vec::new());
    for argument in std::env::args().skip(1) {
        if let Some(place) = COLUMNS.iter().position(|(column, _)| *column == argument) {
            places.push(place);
        } else if let Some(encoding) = Encoding::from_name(&argument) {
            encodings.push(encoding);
        } else if let Some(count) = argument.strip_prefix("bins=") {
            bins.push(Some(count.parse()?));
        } else {
            rows = argument.parse()?;
        }
    }
    if places.is_empty() {
        places = (0..COLUMNS.len()).filter(|place| ["K100", "K1K", "K10K"].contains(&COLUMNS[*place].0)).collect();
    }
    if encodings.is_empty() {
        encodings = Encoding::EXACT.into();
    }
    for place in places {
        let groups = column(place, rows);
        for encoding in &encodings {
            let sized = encoding.has_bins() || *encoding == Encoding::Binned;
            let of_size = if sized && !bins.is_empty() { bins.as_slice() } else { &[None] };
            for bins in of_size {
                report(place, &groups, rows, *encoding, *bins)?;
            }
        }
    }
    Ok(())
}

/// The values of a column, a row group each.
fn column(place: usize, rows: usize) -> Vec<ArrayRef> {
    let cardinality = COLUMNS[place].1;
    let (mut seed, mut groups) = (1u64, Vec::new());
    let mut left = rows;
    while left > 0 {
        let count = left.min(ROW_GROUP_ROWS);
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            for column in 0..COLUMNS.len() {
                seed = seed * MULTIPLIER % MODULUS;
                if column == place {
                    values.push((seed % cardinality) as i32 + 1);
                }
            }
        }
        groups.push(Arc::new(Int32Array::from(values)) as ArrayRef);
        left -= count;
    }
    groups
}

fn report(
    place: usize,
    groups: &[ArrayRef],
    rows: usize,
    encoding: Encoding,
    bins: Option<u32>,
) -> Result<(), Box<dyn Error>> {
    let (name, values) = COLUMNS[place];
    let started = Instant::now();
    let file = match build(groups, encoding, bins) {
        Ok(file) => file,
        Err(error @ BuildError::TooManyValues { .. }) => {
            println!("{name:6} {:18} {error}", encoding.name());
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let nanoseconds = started.elapsed().as_secs_f64() * 1e9 / rows as f64;
    let opened = open_tail(&file, file.len() as u64)?;
    let directory = SegmentDirectory::decode(opened.directory.unwrap_or_default(), &opened.trailer)?;
    let (bins, bitmaps) = (directory.bins.len(), directory.bitmaps.len());
    let size = file.len() as f64 / rows as f64;
    let mut line = format!("{name:6} {:18} {size:8.4} B/row {bins:4} bins {bitmaps:4} bitmaps", encoding.name());
    line += &format!(" {nanoseconds:6.1} ns/row to build; bytes read:");
    for (_, low, high) in CONDITIONS.into_iter().filter(|(column, ..)| *column == name) {
        line += &format!(" {low}..={high} {},", bytes_read(&file, &directory, low, high)?);
    }
    let (mut seed, mut total) = (1u64, 0);
    for _ in 0..RANDOM_RANGES {
        let mut end = || {
            seed = seed * MULTIPLIER % MODULUS;
            seed % values + 1
        };
        let (a, b) = (end(), end());
        total += bytes_read(&file, &directory, a.min(b), a.max(b))?;
    }
    println!("{line} random {}", total / RANDOM_RANGES);
    Ok(())
}

/// Chunks and one segment.
fn build(groups: &[ArrayRef], encoding: Encoding, bins: Option<u32>) -> Result<Vec<u8>, BuildError> {
    let key_type = KeyType::Int32;
    let (mut chunks, mut row) = (Vec::new(), 0u32);
    for group in groups {
        let mut builder = ChunkBuilder::new(&key_type);
        builder.push(group.as_ref()).map_err(std::io::Error::other)?;
        chunks.push(ChunkSource::memory(row, builder.finish()));
        row += group.len() as u32;
    }
    let row_groups = groups.iter().map(|group| group.len() as u32).collect();
    let file = SegmentFile { path: "bench.parquet".to_owned(), base: 0, row_groups, footer_hash: 0, column_hash: 0 };
    let meta = SegmentMeta {
        segment_id: [1; 16],
        index_id: [2; 16],
        column: "k".to_owned(),
        key_type,
        files: vec![file],
        encoding,
        bins,
        // Of `binned` this is the number of digits.
        precision: (encoding == Encoding::Binned).then(|| Precision::Digits(bins.unwrap_or(2).min(15) as u8)),
        zones: lakemark_index::zones::ZoneOptions::default(),
        riding: Vec::new(),
    };
    let mut bytes = Vec::new();
    merge(meta, chunks, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    Ok(bytes)
}

/// Bytes of both rounds of a search; its rows are checked against the value blocks as always.
fn bytes_read(file: &[u8], directory: &SegmentDirectory, low: u64, high: u64) -> Result<u64, Box<dyn Error>> {
    let key = |value: u64| Key::Fixed(key_of_i64(value.cast_signed()));
    let ranges = KeyRanges::greater_than(key(low), true).intersect(&KeyRanges::less_than(key(high), true));
    let trailer = open_tail(file, file.len() as u64)?.trailer;
    let read = |ranges: &[Range<u64>]| -> Result<Vec<Bytes>, Box<dyn Error>> {
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let pages = physical_range(range.clone(), &trailer);
            parts.push(
                read_logical(&file[pages.start as usize..pages.end as usize], range.clone(), &trailer)?
                    .into_owned()
                    .into(),
            );
        }
        Ok(parts)
    };
    let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    let mut search = Search::new(directory, &Test::Ranges(ranges));
    let first = search.first_ranges();
    let second = search.second_ranges(&read(&first)?)?;
    search.finish(&read(&second)?)?;
    Ok(bytes(&first) + bytes(&second))
}
