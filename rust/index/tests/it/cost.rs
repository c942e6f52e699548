//! Predicted bytes and reads against those of built segments.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date32Array, Float64Array, Int32Array, Int64Array, StringArray};
use lakemark_format::Encoding;
use lakemark_format::key::Key;
use lakemark_format::key::key_of_i64;
use lakemark_index::bitmap::ChunkBuilder;
use lakemark_index::bitmap::cost::{
    BinSample, ColumnSample, ColumnShape, QueryShape, choose, predicted_bytes, predicted_reads,
};
use lakemark_index::{KeyRanges, Precision, Test, key_type_of};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::bitmap::{Segment, build_as, build_with, ints};

const ROWS: usize = 200_000;

fn sample(arrays: &[ArrayRef]) -> ColumnSample {
    let key_type = key_type_of(arrays[0].data_type()).unwrap();
    let mut builder = ChunkBuilder::new(&key_type);
    arrays.iter().for_each(|array| builder.push(array.as_ref()).unwrap());
    let chunk = builder.finish();
    ColumnSample::new(&chunk, arrays.len()).with_leaves(&chunk, &key_type)
}

/// Value `v` of `values` is as frequent as `1 / (v + 1)`; `order` gives the value of each rank.
fn zipf(rng: &mut StdRng, rows: usize, values: usize, order: impl Fn(usize) -> i32) -> ArrayRef {
    let mut ends = Vec::with_capacity(values);
    let mut total = 0.0;
    for value in 0..values {
        total += 1.0 / (value + 1) as f64;
        ends.push(total);
    }
    let draw = |rng: &mut StdRng| {
        let at: f64 = rng.random_range(0.0..total);
        order(ends.partition_point(|end| *end <= at))
    };
    Arc::new((0..rows).map(|_| Some(draw(rng))).collect::<Int32Array>())
}

/// Columns of all kinds: the Set Query Benchmark's, skewed, sorted, clustered, unique, text.
fn columns(rng: &mut StdRng) -> Vec<(String, ArrayRef)> {
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    for values in [2, 4, 5, 10, 25, 100, 1000, 10_000, 40_000, 100_000, 250_000, 500_000] {
        columns.push((format!("K{values}"), ints(rng, ROWS, values, 0.0)));
    }
    columns.push(("K100, a third NULL".into(), ints(rng, ROWS, 100, 0.33)));
    columns.push(("Zipf, frequent first".into(), zipf(rng, ROWS, 5000, |rank| rank as i32)));
    columns.push(("Zipf, mixed".into(), zipf(rng, ROWS, 5000, |rank| (rank * 7919 % 5003) as i32)));
    columns.push(("Zipf of 20".into(), zipf(rng, ROWS, 20, |rank| rank as i32)));
    let sorted = |rows: usize| Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| (row / rows) as i32)));
    columns.push(("sorted, 50 rows a value".into(), sorted(50)));
    columns.push(("sorted, 2000 rows a value".into(), sorted(2000)));
    columns.push(("sorted, unique".into(), sorted(1)));
    let runs: Vec<i32> = (0..ROWS / 40).map(|_| rng.random_range(0..300)).collect();
    let runs = (0..ROWS).map(|row| runs[row / 40]);
    columns.push(("runs of 40".into(), Arc::new(Int32Array::from_iter_values(runs))));
    let late = (0..ROWS).map(|row| (row as i32 + rng.random_range(0..2000)) / 20);
    columns.push(("nearly sorted".into(), Arc::new(Int32Array::from_iter_values(late.collect::<Vec<_>>()))));
    let unique = (0..ROWS as i64).map(|row| row * 7_777_777_777 % 9_999_999_967);
    columns.push(("unique, random".into(), Arc::new(Int64Array::from_iter_values(unique))));
    let text = (0..ROWS).map(|_| format!("customer-{:05}", rng.random_range(0..8000)));
    columns.push(("text".into(), Arc::new(StringArray::from_iter_values(text.collect::<Vec<_>>()))));
    columns
}

fn has_too_many_bitmaps(encoding: Encoding, values: f64) -> bool {
    // Thousands of bitmaps of so many rows only cost time.
    matches!(encoding, Encoding::Range | Encoding::Interval) && values > 300.0
}

/// `cargo test -p lakemark-index predictions -- --nocapture` prints the table of docs/encodings.md.
/// What bins of a precision take depends on the values themselves.
fn predictable() -> impl Iterator<Item = Encoding> {
    Encoding::BITMAP.into_iter().filter(|encoding| *encoding != Encoding::Binned)
}

#[test]
fn predictions_are_within_15_per_cent_of_what_is_built() {
    let mut rng = StdRng::seed_from_u64(21);
    let (mut compared, mut wrong) = (0, Vec::new());
    for (name, array) in columns(&mut rng) {
        let files = vec![vec![Arc::clone(&array)]];
        let shape = sample(&[array]).shape(ROWS as u64);
        let mut line = format!("| {name} | {} |", shape.values());
        for encoding in predictable() {
            if has_too_many_bitmaps(encoding, shape.values()) {
                line += " – |";
                continue;
            }
            let predicted = predicted_bytes(encoding, &shape).unwrap() as f64;
            let actual = build_as(&files, false, encoding, None).unwrap().summary.length as f64;
            line += &format!(" {actual} ({:+.1}%) |", (predicted / actual - 1.0) * 100.0);
            if !(0.85..=1.15).contains(&(predicted / actual)) {
                wrong.push(format!("{encoding:?} of {name}: {predicted} for {actual}"));
            }
            compared += 1;
        }
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared > 95, "{compared}");
}

/// Texts by how leaves pack them, each in a row anywhere. Of all rows, and of a quarter of them in two places.
#[test]
fn trees_of_texts_take_what_is_predicted() {
    const ROWS: usize = 100_000;
    let spread = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let digits = |row: u64| format!("{:016x}{:016x}", spread(row), spread(row + 1_000_000));
    let uuid = |row: u64| {
        let digits = digits(row);
        [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]).join("-")
    };
    let order = |row: u64| format!("order {} of 2026", spread(row) % 100_000_000);
    let texts: [(&str, &dyn Fn(u64) -> String); 3] = [("digits", &digits), ("UUIDs", &uuid), ("orders", &order)];
    for (name, text) in texts {
        let array: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS as u64).map(text)));
        let built = build_as(&[vec![Arc::clone(&array)]], false, Encoding::Packed, None).unwrap().summary.length as f64;
        let part = ROWS / 8;
        for sample in [sample(&[Arc::clone(&array)]), sample(&[array.slice(part, part), array.slice(5 * part, part)])] {
            let predicted = predicted_bytes(Encoding::Packed, &sample.shape(ROWS as u64)).unwrap() as f64;
            assert!((0.93..=1.07).contains(&(predicted / built)), "{name}: {predicted} for {built}");
        }
    }
}

/// From a quarter of the rows, in two places.
#[test]
fn a_sample_estimates_what_all_rows_will_take() {
    let mut rng = StdRng::seed_from_u64(5);
    let mut wrong = Vec::new();
    for (name, array) in columns(&mut rng) {
        let part = ROWS / 8;
        let sample = sample(&[array.slice(part, part), array.slice(5 * part, part)]);
        let shape = sample.shape(ROWS as u64);
        let files = vec![vec![array]];
        for encoding in [Encoding::Equality, Encoding::Binary, Encoding::RangeEquality] {
            let predicted = predicted_bytes(encoding, &shape).unwrap() as f64;
            let actual = build_as(&files, false, encoding, None).unwrap().summary.length as f64;
            println!("{name} {encoding:?} {predicted} for {actual} ({:+.1}%)", (predicted / actual - 1.0) * 100.0);
            // Of a segment of a thousand bytes the value that the sample cuts in two is a part.
            if (predicted - actual).abs() > 0.15 * actual + 256.0 {
                wrong.push(format!("{encoding:?} of {name}: {predicted} for {actual}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Bins of integers, floats, decimals' digits, days and months, of all rows and of a quarter of them.
#[test]
fn bins_of_a_precision_are_predicted() {
    let mut rng = StdRng::seed_from_u64(8);
    let wide = (0..ROWS).map(|_| rng.random_range(0..1_000_000_000i64)).collect::<Vec<_>>();
    let log = (0..ROWS).map(|_| rng.random_range(0.0..12.0f64).exp()).collect::<Vec<_>>();
    let prices = (0..ROWS).map(|_| rng.random_range(0..20_000)).collect::<Vec<_>>();
    let days = (0..ROWS).map(|row| 18_000 + (row / 300) as i32).collect::<Vec<_>>();
    let late = (0..ROWS).map(|row| 18_000 + (row as i32 + rng.random_range(0..5000)) / 300).collect::<Vec<_>>();
    let months: Precision = "month".parse().unwrap();
    let sequence = Int64Array::from_iter_values(0..ROWS as i64);
    let columns: [(&str, ArrayRef, Precision); 8] = [
        ("wide, 2 digits", Arc::new(Int64Array::from(wide.clone())), Precision::Digits(2)),
        ("wide, 4 digits", Arc::new(Int64Array::from(wide)), Precision::Digits(4)),
        ("logarithmic, 1 digit", Arc::new(Float64Array::from(log.clone())), Precision::Digits(1)),
        ("logarithmic, 3 digits", Arc::new(Float64Array::from(log)), Precision::Digits(3)),
        ("ten rows a value, 2 digits", Arc::new(Int32Array::from(prices)), Precision::Digits(2)),
        ("a key, 2 digits", Arc::new(sequence), Precision::Digits(2)),
        ("sorted days, month", Arc::new(Date32Array::from(days)), months),
        ("nearly sorted days, month", Arc::new(Date32Array::from(late)), months),
    ];
    let mut wrong = Vec::new();
    for (name, array, precision) in columns {
        let part = ROWS / 8;
        let pieces = [vec![Arc::clone(&array)], vec![array.slice(part, part), array.slice(5 * part, part)]];
        let actual = build_with(&[vec![Arc::clone(&array)]], false, Encoding::Binned, None, Some(precision)).unwrap();
        let actual = actual.summary.length as f64;
        // A part of a key that counts rows has other bins than all of it; they take next to nothing.
        for (arrays, (share, bytes)) in pieces.iter().zip([(0.03, 256.0), (0.15, 4096.0)]) {
            let mut builder = ChunkBuilder::new(&key_type_of(array.data_type()).unwrap());
            arrays.iter().for_each(|array| builder.push(array.as_ref()).unwrap());
            let bins = BinSample::new(&builder.finish(), precision, key_type_of(array.data_type()).unwrap()).unwrap();
            let predicted = bins.bytes(ROWS as u64) as f64;
            println!("{name}: {predicted} for {actual} ({:+.1}%)", (predicted / actual - 1.0) * 100.0);
            if (predicted - actual).abs() > share * actual + bytes {
                wrong.push(format!("{name}: {predicted} for {actual}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_empty_column_takes_the_fixed_bytes_alone() {
    let empty = ColumnShape::spread(0, 0, 0, 0.0);
    let none: ArrayRef = Arc::new(Int32Array::from(Vec::<i32>::new()));
    for shape in [empty, sample(&[none]).shape(0)] {
        for encoding in predictable() {
            let bytes = predicted_bytes(encoding, &shape).unwrap();
            assert!((200..300).contains(&bytes), "{encoding:?}: {bytes}");
        }
    }
}

/// What a search reads of the segment, the NULL list and value blocks included.
fn read_bytes(segment: &Segment, ranges: KeyRanges) -> f64 {
    let test = Test::Ranges(ranges);
    let mut search = lakemark_index::bitmap::Search::new(&segment.directory, &test);
    let first = search.first_ranges();
    let second = search.second_ranges(&segment.read(&first)).unwrap();
    first.iter().chain(&second).map(|range| range.end - range.start).sum::<u64>() as f64
}

#[test]
fn predicted_reads_are_near_those_of_searches() {
    let mut rng = StdRng::seed_from_u64(9);
    let key = |value: i64| Key::Fixed(key_of_i64(value));
    let values = 1000i64;
    let array = ints(&mut rng, ROWS, values as i32, 0.0);
    let shape = sample(&[Arc::clone(&array)]).shape(ROWS as u64);
    let files = vec![vec![array]];
    for encoding in [Encoding::Equality, Encoding::Binary, Encoding::IntervalEquality, Encoding::RangeEquality] {
        let segment = build_as(&files, false, encoding, None).unwrap();
        let mean = |ranges: &dyn Fn(i64) -> KeyRanges| {
            (0..40).map(|step| read_bytes(&segment, ranges(step))).sum::<f64>() / 40.0
        };
        let between = |low: i64, high: i64| {
            KeyRanges::greater_than(key(low), true).intersect(&KeyRanges::less_than(key(high), false))
        };
        let range = |share: f64, one_sided: bool| QueryShape::Range { share, one_sided };
        let checks: [(QueryShape, f64); 5] = [
            (QueryShape::Value, mean(&|step| KeyRanges::point(key(step * 23)))),
            (QueryShape::In(10), mean(&|step| KeyRanges::points((0..10).map(|i| key(step + 97 * i)).collect()))),
            (range(0.1, false), mean(&|step| between(step * 22, step * 22 + 100))),
            (range(0.5, false), mean(&|step| between(step * 12, step * 12 + 500))),
            (range(0.5, true), mean(&|step| KeyRanges::less_than(key(480 + step), false))),
        ];
        for (query, actual) in checks {
            let predicted = predicted_reads(encoding, &shape, query).unwrap().bytes;
            println!("{encoding:?} {query:?}: {predicted} for {actual}");
            assert!((0.6..=1.5).contains(&(predicted / actual)), "{encoding:?} {query:?}: {predicted} for {actual}");
        }
    }
}

#[test]
fn auto_takes_a_second_level_only_where_it_pays() {
    let spread = |values: u64| choose(&[ColumnShape::spread(10_000_000, 0, values, 0.0)]);
    for values in [2, 10, 100, 1000, 10_000, 500_000, 10_000_000] {
        let choice = spread(values);
        assert_eq!(choice.encoding, Encoding::Equality, "{values}: {}", choice.reason);
        assert_eq!(choice.prediction(Encoding::Range).is_some(), values <= 4097, "{values}");
    }
    let hours: ArrayRef = Arc::new(Int32Array::from_iter_values((0..500_000).map(|row| row / 5)));
    let choice = choose(&[sample(&[hours]).shape(10_000_000)]);
    assert_eq!(choice.encoding, Encoding::RangeEquality, "{}", choice.reason);
    let [equality, range] = [Encoding::Equality, Encoding::RangeEquality].map(|e| *choice.prediction(e).unwrap());
    assert!(range.search < 0.7 * equality.search, "{equality:?} {range:?}");
    assert!(range.bytes as f64 <= 1.5 * equality.bytes as f64, "{equality:?} {range:?}");
    // A small index is read in a few reads whatever it is.
    let small: ArrayRef = Arc::new(Int32Array::from_iter_values(0..2000));
    assert_eq!(choose(&[sample(&[small]).shape(2000)]).encoding, Encoding::Equality);
    assert_eq!(choose(&[]).encoding, Encoding::Equality);
}
