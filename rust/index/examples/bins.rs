//! Bytes of bins of a precision: of a key that counts the rows, and of random numbers.
//!
//! ```text
//! cargo run --release -p lakemark-index --example bins -- [ROWS, 1000000 if not given] …
//! ```

#![allow(clippy::restriction, reason = "a program that is run by hand")]

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array};
use bytes::Bytes;
use lakemark_format::segment::SegmentFile;
use lakemark_format::{Encoding, SegmentDirectory, open_tail, physical_range, read_logical};
use lakemark_index::bitmap::{ChunkBuilder, ChunkSource, CountSearch, Search, SegmentMeta, merge};
use lakemark_index::{KeyRanges, LiteralKey, Precision, Test, encode_literal, key_type_of};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const ROW_GROUP_ROWS: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let given: Result<Vec<usize>, _> = std::env::args().skip(1).map(|argument| argument.parse()).collect();
    let given = given?;
    println!("column rows precision bytes B/row bins postings orders; read for two ranges (bytes of rows, of a count)");
    for rows in if given.is_empty() { vec![1_000_000] } else { given } {
        let sequence = (0..rows).map(|row| row as i32 + 1).collect::<Int32Array>();
        let mut rng = StdRng::seed_from_u64(1);
        let prices = (0..rows).map(|_| rng.random_range(0.0..1000.0)).collect::<Float64Array>();
        let round: [ArrayRef; 4] =
            [400_000, 500_000, 401_234, 456_789].map(|value| Arc::new(Int32Array::from(vec![value])) as ArrayRef);
        let other: [ArrayRef; 4] =
            [400.0, 500.0, 401.234, 456.789].map(|value| Arc::new(Float64Array::from(vec![value])) as ArrayRef);
        report("KSEQ", &(Arc::new(sequence) as ArrayRef), "2", &round)?;
        let prices: ArrayRef = Arc::new(prices);
        for digits in ["1", "2", "3"] {
            report("random", &prices, digits, &other)?;
        }
    }
    Ok(())
}

fn report(name: &str, values: &ArrayRef, precision: &str, bounds: &[ArrayRef; 4]) -> Result<(), Box<dyn Error>> {
    let file = build(values, precision.parse()?)?;
    let opened = open_tail(&file, file.len() as u64)?;
    let directory = SegmentDirectory::decode(opened.directory.unwrap_or_default(), &opened.trailer)?;
    let postings: u64 = directory.blocks.iter().map(|block| block.postings_length).sum();
    let orders: u64 = directory.orders.iter().sum();
    let (rows, bytes) = (values.len() as f64, file.len() as f64);
    let share = |part: u64| part as f64 / bytes * 100.0;
    let mut line = format!("{name} {rows} {precision} {bytes} {:.3} {}", bytes / rows, directory.entry_count());
    line += &format!(" {:.1}% {:.1}%;", share(postings), share(orders));
    for ends in bounds.chunks(2) {
        line += &format!(" {:?}", bytes_read(&file, &directory, ends)?);
    }
    println!("{line}");
    Ok(())
}

fn build(values: &ArrayRef, precision: Precision) -> Result<Vec<u8>, Box<dyn Error>> {
    let key_type = key_type_of(values.data_type()).ok_or("no key type")?;
    let (mut chunks, mut row_groups) = (Vec::new(), Vec::new());
    for first in (0..values.len()).step_by(ROW_GROUP_ROWS) {
        let group = values.slice(first, ROW_GROUP_ROWS.min(values.len() - first));
        let mut builder = ChunkBuilder::new(&key_type);
        builder.push(group.as_ref())?;
        chunks.push(ChunkSource::memory(first as u32, builder.finish()));
        row_groups.push(group.len() as u32);
    }
    let file = SegmentFile { path: "bench.parquet".to_owned(), base: 0, row_groups, footer_hash: 0, column_hash: 0 };
    let meta = SegmentMeta {
        segment_id: [1; 16],
        index_id: [2; 16],
        column: "k".to_owned(),
        key_type,
        files: vec![file],
        encoding: Encoding::Binned,
        bins: None,
        precision: Some(precision),
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

/// Bytes of both rounds of a search, and of a count, for the values between two.
fn bytes_read(file: &[u8], directory: &SegmentDirectory, ends: &[ArrayRef]) -> Result<(u64, u64), Box<dyn Error>> {
    let keys = ends.iter().map(|end| match encode_literal(end.as_ref()) {
        Some(LiteralKey::Key(key)) => Ok(key),
        _ => Err("no key"),
    });
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let ranges = KeyRanges::greater_than(keys[0].clone(), true);
    let test = Test::Ranges(ranges.intersect(&KeyRanges::less_than(keys[1].clone(), true)));
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
    let mut search = Search::new(directory, &test);
    let first = search.first_ranges();
    let second = search.second_ranges(&read(&first)?)?;
    let found = u64::from(search.finish(&read(&second)?)?.t.len());
    let mut count = CountSearch::new(directory, &test).ok_or("no count")?;
    let blocks = count.first_ranges();
    let orders = count.second_ranges(&read(&blocks)?)?;
    assert_eq!(count.finish(&read(&orders)?)?, found);
    Ok((bytes(&first) + bytes(&second), bytes(&blocks) + bytes(&orders)))
}
