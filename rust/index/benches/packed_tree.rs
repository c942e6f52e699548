//! What a search for scattered keys of a packed tree costs, step by step: `cargo bench -p lakemark-index --bench packed_tree`.
//!
//! A join asks for the keys of its build side, which lie anywhere among the keys of the other side. Columns are like those of a fact table:
//! 28 rows a key, anywhere, or in runs of 12; one row a key, anywhere; four rows a key, in the order of the rows. Times are medians of the
//! rounds, of one core.

#![allow(clippy::restriction, clippy::disallowed_methods, reason = "a program that is run by hand")]

use std::borrow::Cow;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int32Array};
use bytes::Bytes;
use lakemark_format::segment::SegmentFile;
use lakemark_format::{Encoding, Key, KeyType, SegmentDirectory, Trailer, key_of_i64, open_tail};
use lakemark_format::{physical_range, read_logical};
use lakemark_index::bitmap::{ChunkBuilder, ChunkSource, Search, SegmentMeta, merge};
use lakemark_index::{KeyRanges, Test};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

const ROWS: u32 = 2_880_000;
const KEYS: u32 = 100_000;
const ROUNDS: usize = 9;

/// A segment as it lies in its file.
struct Segment {
    file: Bytes,
    directory: SegmentDirectory,
    trailer: Trailer,
}

impl Segment {
    fn build(values: Vec<i32>) -> Self {
        let rows = values.len() as u32;
        let mut builder = ChunkBuilder::new(&KeyType::Int32);
        let group: ArrayRef = Arc::new(Int32Array::from(values));
        builder.push(group.as_ref()).unwrap();
        let covered = SegmentFile {
            path: "bench.parquet".to_owned(),
            base: 0,
            row_groups: vec![rows],
            footer_hash: 0,
            column_hash: 0,
        };
        let meta = SegmentMeta {
            segment_id: [1; 16],
            index_id: [2; 16],
            column: "k".to_owned(),
            key_type: KeyType::Int32,
            files: vec![covered],
            encoding: Encoding::Packed,
            bins: None,
            precision: None,
            zones: lakemark_index::zones::ZoneOptions::default(),
            riding: Vec::new(),
        };
        let mut file = Vec::new();
        let chunks = vec![ChunkSource::memory(0, builder.finish())];
        merge(meta, chunks, &mut |part| {
            file.extend_from_slice(part);
            Ok(())
        })
        .unwrap();
        let opened = open_tail(&file, file.len() as u64).unwrap();
        let directory = SegmentDirectory::decode(opened.directory.unwrap_or_default(), &opened.trailer).unwrap();
        Self { directory, trailer: opened.trailer, file: file.into() }
    }

    fn read(&self, ranges: &[Range<u64>]) -> Vec<Bytes> {
        let one = |range: &Range<u64>| {
            let pages = physical_range(range.clone(), &self.trailer);
            let pages = self.file.slice(pages.start as usize..pages.end as usize);
            match read_logical(&pages, range.clone(), &self.trailer).unwrap() {
                Cow::Borrowed(part) => pages.slice_ref(part),
                Cow::Owned(parts) => parts.into(),
            }
        };
        ranges.iter().map(one).collect()
    }
}

/// Nanoseconds of the steps of a search, and what it found.
#[derive(Clone, Copy, Default)]
struct Steps {
    plan: f64,
    read: f64,
    find: f64,
    gather: f64,
    bytes: u64,
    rows: u32,
}

fn search(segment: &Segment, test: &Test) -> Steps {
    let mut times = Vec::with_capacity(4);
    let mut started = Instant::now();
    let mut lap = || {
        times.push(started.elapsed().as_nanos() as f64);
        started = Instant::now();
    };
    let mut search = Search::new(&segment.directory, test);
    let ranges = search.first_ranges();
    lap();
    let first = segment.read(&ranges);
    lap();
    let second = segment.read(&search.second_ranges(&first).unwrap());
    lap();
    let found = black_box(search.finish(&second).unwrap());
    lap();
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    Steps { plan: times[0], read: times[1], find: times[2], gather: times[3], bytes, rows: found.t.len() }
}

fn median(rounds: &[Steps], of: impl Fn(&Steps) -> f64) -> f64 {
    let mut times: Vec<f64> = rounds.iter().map(of).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let mut random = StdRng::seed_from_u64(7);
    let anywhere: Vec<i32> = (0..ROWS).map(|_| random.random_range(0..KEYS) as i32).collect();
    let runs: Vec<i32> = (0..ROWS / 12).flat_map(|_| [random.random_range(0..KEYS) as i32; 12]).collect();
    let mut unique: Vec<i32> = (0..ROWS as i32).collect();
    unique.shuffle(&mut random);
    let in_order: Vec<i32> = (0..ROWS as i32).map(|row| row / 4).collect();
    println!(
        "{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "column", "keys", "rows", "KiB", "plan, us", "read, us", "find, us", "set, us", "find/B"
    );
    for (name, values) in [("anywhere", anywhere), ("in runs", runs), ("unique", unique), ("in order", in_order)] {
        let keys = values.iter().max().unwrap() + 1;
        let segment = Segment::build(values);
        for share in [0.001, 0.01, 0.1, 0.5] {
            let wanted: Vec<Key> = (0..keys)
                .filter(|_| random.random_bool(share))
                .map(|key| Key::Fixed(key_of_i64(i64::from(key))))
                .collect();
            let (count, test) = (wanted.len(), Test::Ranges(KeyRanges::points(wanted)));
            let rounds: Vec<Steps> = (0..ROUNDS).map(|_| search(&segment, &test)).collect();
            let [plan, read, find, gather] = [
                median(&rounds, |steps| steps.plan),
                median(&rounds, |steps| steps.read),
                median(&rounds, |steps| steps.find),
                median(&rounds, |steps| steps.gather),
            ];
            let Steps { bytes, rows, .. } = rounds[0];
            println!(
                "{name:>10}{count:>10}{rows:>10}{:>10}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.2}",
                bytes / 1024,
                plan / 1e3,
                read / 1e3,
                find / 1e3,
                gather / 1e3,
                find / bytes as f64
            );
        }
    }
}
