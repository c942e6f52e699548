//! What the kernels cost, beside `roaring`: `cargo bench -p lakemark-index`.
//!
//! Columns have the shape of the Set Query Benchmark's: uniform values, given cardinality. The postings of a fifth of the values
//! are decoded into one set. Sets of two densities are combined. Nanoseconds are medians of the rounds.

#![allow(clippy::restriction, clippy::disallowed_methods, reason = "a program that is run by hand")]

use std::hint::black_box;
use std::time::Instant;

use lakemark_format::posting::{self, Decoder, RowSink};
use lakemark_index::{RowSet, RowSetBuilder};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roaring::RoaringBitmap;

const ROWS: u32 = 10_000_000;
const ROUNDS: usize = 7;

struct Sink(RowSetBuilder);

impl RowSink for Sink {
    fn rows(&mut self, rows: &[u32]) {
        self.0.extend_from_slice(rows);
    }
    fn word(&mut self, first: u32, bits: u64) {
        self.0.insert_word(first, bits);
    }
    fn run(&mut self, first: u32, length: u32) {
        self.0.insert_range(first..first + length);
    }
}

/// Median nanoseconds of a run.
fn time<T>(mut run: impl FnMut() -> T) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(run());
            start.elapsed().as_nanos() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// The rows of each value of a uniform column.
fn column(cardinality: u32, random: &mut StdRng) -> Vec<Vec<u32>> {
    let mut rows = vec![Vec::new(); cardinality as usize];
    for row in 0..ROWS {
        rows[random.random_range(0..cardinality) as usize].push(row);
    }
    rows
}

fn decoding(random: &mut StdRng) {
    println!(
        "{:>12}{:>12}{:>12}{:>12}{:>14}{:>14}",
        "values", "rows", "bits/row", "ns/row", "roaring bits", "roaring ns"
    );
    for cardinality in [2, 4, 10, 25, 100, 1_000, 10_000, 100_000, 500_000] {
        let chosen = (cardinality / 5).max(1) as usize;
        let values: Vec<Vec<u32>> = column(cardinality, random).into_iter().take(chosen).collect();
        let rows: u64 = values.iter().map(|rows| rows.len() as u64).sum();
        let encoded: Vec<(Vec<u8>, u32)> = values
            .iter()
            .map(|rows| {
                let mut bytes = Vec::new();
                posting::encode(rows, ROWS, &mut bytes);
                (bytes, rows.len() as u32)
            })
            .collect();
        let ours = time(|| {
            let mut sink = Sink(RowSetBuilder::with_capacity(ROWS, rows));
            let mut decoder = Decoder::default();
            for (bytes, count) in &encoded {
                decoder.decode(bytes, *count, ROWS, &mut sink).unwrap();
            }
            sink.0.finish()
        });
        let stored: Vec<Vec<u8>> = values
            .iter()
            .map(|rows| {
                let mut bytes = Vec::new();
                RoaringBitmap::from_sorted_iter(rows.iter().copied()).unwrap().serialize_into(&mut bytes).unwrap();
                bytes
            })
            .collect();
        let theirs = time(|| {
            let mut all = RoaringBitmap::new();
            for bytes in &stored {
                all |= RoaringBitmap::deserialize_from(bytes.as_slice()).unwrap();
            }
            all.len()
        });
        let bits = |bytes: usize| bytes as f64 * 8.0 / rows as f64;
        println!(
            "{cardinality:>12}{rows:>12}{:>12.2}{:>12.2}{:>14.2}{:>14.2}",
            bits(encoded.iter().map(|(bytes, _)| bytes.len()).sum()),
            ours / rows as f64,
            bits(stored.iter().map(Vec::len).sum()),
            theirs / rows as f64
        );
    }
}

fn combining(random: &mut StdRng) {
    println!("\n{:>12}{:>12}{:>14}{:>14}{:>14}", "share a", "share b", "and, us", "or, us", "roaring and");
    let mut set = |share: f64| -> Vec<u32> { (0..ROWS).filter(|_| random.random_bool(share)).collect() };
    for (first, second) in [(0.5, 0.5), (0.2, 0.01), (0.001, 0.2), (0.01, 0.01), (0.000_01, 0.01)] {
        let (a, b) = (set(first), set(second));
        let (x, y) = (RowSet::from_rows(a.clone(), ROWS), RowSet::from_rows(b.clone(), ROWS));
        let (p, q) = (RoaringBitmap::from_sorted_iter(a).unwrap(), RoaringBitmap::from_sorted_iter(b).unwrap());
        assert_eq!(u64::from(x.and(&y).len()), (&p & &q).len());
        println!(
            "{first:>12}{second:>12}{:>14.1}{:>14.1}{:>14.1}",
            time(|| x.and(&y)) / 1e3,
            time(|| x.or(&y)) / 1e3,
            time(|| &p & &q) / 1e3
        );
    }
}

fn main() {
    let mut random = StdRng::seed_from_u64(7);
    decoding(&mut random);
    combining(&mut random);
}
