//! What the chain of a page costs, in nanoseconds of one core: `make bench NAME=star-costs`. `prediction.rs` has estimates of the same.
//!
//! A key that is looked up is one of a page of 8,192 rows, random among those of the dimension. A row that is routed goes to its query's
//! list, and out of a page of four columns. Medians of the rounds.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use arrow::compute::take_record_batch;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation, UnboundedMemoryPool};
use lakemark_table::Stopwatch;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::chain::{LiveRows, RoutedRows, Start};
use super::dimension::{Dimension, QueryBit};
use super::keys::numbers;

const ROWS: u32 = 8_192;
const PAGES: usize = 64;
const ROUNDS: usize = 7;

/// Keys of dimensions: their name, how many there are, and how far they are apart.
const SHAPES: [(&str, i32, i32); 4] = [
    ("2,556 days", 2_556, 1),
    ("30,000 keys", 30_000, 1),
    ("1,000,000 keys", 1_000_000, 1),
    ("30,000 keys far apart", 30_000, 50_000),
];

/// Median nanoseconds of a run.
fn time<T>(mut run: impl FnMut() -> T) -> f64 {
    let round = |_| {
        let watch = Stopwatch::start();
        black_box(run());
        watch.seconds() * 1e9
    };
    let mut rounds: Vec<f64> = (0..ROUNDS).map(round).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// A dimension, the keys that each query accepts in it, and pages of the fact.
struct Shape {
    name: &'static str,
    accepted: Vec<(QueryBit, Vec<i64>)>,
    pages: Vec<ArrayRef>,
}

impl Shape {
    /// Each of so many queries accepts this share of the keys.
    fn of((name, count, step): (&'static str, i32, i32), queries: usize, share: f64, random: &mut StdRng) -> Self {
        let mut own = |_: QueryBit| -> Vec<i64> {
            (0..count).filter(|_| random.random_bool(share)).map(|key| i64::from(key * step)).collect()
        };
        let accepted = QueryBit::all_of(u64::MAX).take(queries).map(|bit| (bit, own(bit))).collect();
        let mut page = || {
            let keys = (0..ROWS).map(|_| random.random_range(0..count) * step);
            Arc::new(Int32Array::from_iter_values(keys)) as ArrayRef
        };
        let pages = (0..PAGES).map(|_| page()).collect();
        Self { name, accepted, pages }
    }

    fn table(&self) -> Dimension {
        let mut table = Dimension::default();
        self.accepted.iter().for_each(|(bit, keys)| table.add(keys, *bit));
        table
    }

    fn starts(&self) -> Vec<Start<'static>> {
        let start = |(bit, _): &(QueryBit, Vec<i64>)| Start { taker: bit.place() as u64, bit: *bit, rows: None };
        self.accepted.iter().map(start).collect()
    }

    fn numbers(&self) -> Vec<Int64Array> {
        self.pages.iter().filter_map(numbers).collect()
    }
}

fn unlimited() -> MemoryReservation {
    let memory: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    MemoryConsumer::new("measured").register(&memory)
}

fn looking_up(shape: &Shape) {
    let (table, starts, pages) = (shape.table(), shape.starts(), shape.numbers());
    let rows = f64::from(ROWS) * PAGES as f64;
    let begun = time(|| pages.iter().map(|_| LiveRows::starting(ROWS, &starts).routed_bytes()).sum::<usize>());
    let passed = time(|| {
        let left = |page: &Int64Array| {
            let mut live = LiveRows::starting(ROWS, &starts);
            live.pass(page, &table);
            live.routed_bytes()
        };
        pages.iter().map(left).sum::<usize>()
    });
    let cast = time(|| shape.numbers());
    let name = shape.name;
    println!("LOOKUP {name:>24}: {:6.2} a row, and {:.2} for its number", (passed - begun) / rows, cast / rows);
    println!("START  {name:>24}: {:6.2} a row", begun / rows);
}

fn routing(shape: &Shape, share: f64) {
    let (table, starts, memory) = (shape.table(), shape.starts(), unlimited());
    let left = |page: &Int64Array| {
        let mut live = LiveRows::starting(ROWS, &starts);
        live.pass(page, &table);
        live
    };
    let pages: Vec<LiveRows> = shape.numbers().iter().map(left).collect();
    let routed = || pages.iter().map(|live| live.routed(&starts, memory.new_empty())).collect::<Vec<RoutedRows>>();
    let of = |routed: &RoutedRows, start: &Start<'_>| routed.of(start.taker).cloned().unwrap();
    let rows: usize = routed().iter().flat_map(|page| starts.iter().map(move |start| of(page, start).len())).sum();
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..i64::from(ROWS)));
    let page = RecordBatch::try_from_iter(["a", "b", "c", "d"].map(|name| (name, Arc::clone(&column)))).unwrap();
    let routing = time(routed);
    let taken = routed();
    let taking = time(|| {
        let takes =
            |routed: &RoutedRows, start: &Start<'_>| take_record_batch(&page, &of(routed, start)).unwrap().num_rows();
        taken.iter().flat_map(|routed| starts.iter().map(move |start| takes(routed, start))).sum::<usize>()
    });
    let (each, queries) = (rows.max(1) as f64, starts.len());
    println!(
        "ROUTE  {queries:>2} queries, {share:>5} left: {:6.2} a row to its query, and {:.2} out of the page",
        routing / each,
        taking / each
    );
}

fn inserting(shape: &Shape) {
    let keys: usize = shape.accepted.iter().map(|(_, keys)| keys.len()).sum();
    let inserted = time(|| shape.table());
    println!("INSERT {:>24}: {:6.2} a key", shape.name, inserted / keys as f64);
}

#[test]
#[ignore = "measures; in a release build"]
fn costs_of_a_chain() {
    let mut random = StdRng::seed_from_u64(7);
    for shape in SHAPES {
        let of_eight = Shape::of(shape, 8, 0.05, &mut random);
        looking_up(&of_eight);
        inserting(&of_eight);
    }
    for (queries, share) in [(2, 0.001), (8, 0.001), (8, 0.05), (8, 0.3), (64, 0.05)] {
        routing(&Shape::of(SHAPES[1], queries, share, &mut random), share);
    }
}
