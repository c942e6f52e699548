//! Sums by the bits of slices against sums of the values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, UInt64Array};
use lakemark_format::key::Key;
use lakemark_format::segment::encoding::Encoding;
use lakemark_index::bitmap::{DenseSlices, Mask, ValueCount};
use lakemark_index::{LiteralKey, RowSet, encode_literal};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::bitmap::{Segment, build_as};

const ROWS: u32 = 3_000;

/// A file of two row groups.
fn segment(values: &ArrayRef, encoding: Encoding) -> Segment {
    let split = values.len() / 3;
    build_as(&[vec![values.slice(0, split), values.slice(split, values.len() - split)]], false, encoding, None).unwrap()
}

fn number(key: &Key) -> u128 {
    match key {
        Key::Fixed(key) => u128::from(*key),
        Key::Bytes(bytes) => u128::from_be_bytes(bytes.as_slice().try_into().unwrap()),
    }
}

fn key(values: &ArrayRef, row: u32) -> Option<u128> {
    match encode_literal(values.slice(row as usize, 1).as_ref()) {
        Some(LiteralKey::Key(key)) => Some(number(&key)),
        Some(LiteralKey::Null) => None,
        other => panic!("{other:?}"),
    }
}

/// The keys of the rows that have some.
fn keys_of(values: &ArrayRef, rows: impl Iterator<Item = u32>) -> Vec<u128> {
    rows.filter_map(|row| key(values, row)).collect()
}

/// Rows and sum of values with rows.
fn total(parts: &[ValueCount]) -> (u64, u128) {
    let sum = |part: &ValueCount| number(&part.key).wrapping_mul(u128::from(part.rows));
    (parts.iter().map(|part| part.rows).sum(), parts.iter().map(sum).fold(0, u128::wrapping_add))
}

fn check(values: &ArrayRef, rng: &mut StdRng) {
    let segment = segment(values, Encoding::Binary);
    let dense = DenseSlices::of(&segment.directory).unwrap();
    let all = keys_of(values, 0..ROWS);
    let (least, greatest) = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
    let valued = all.len() as u64;
    let parts = dense.spread(valued, dense.sum_of_all()).unwrap();
    assert_eq!(total(&parts), (valued, all.iter().copied().fold(0, u128::wrapping_add)));
    let slices = segment.read(dense.slice_ranges());
    for share in [0.0, 0.003, 0.5, 1.0] {
        let chosen: Vec<u32> = (0..ROWS).filter(|row| key(values, *row).is_some() && rng.random_bool(share)).collect();
        let expected = keys_of(values, chosen.iter().copied());
        let mut mask = Mask::new(segment.directory.universe);
        mask.insert(segment.directory.files[0].base, &RowSet::from_rows(chosen, ROWS));
        let parts = dense.spread(mask.rows(), dense.sum(&mask, &slices).unwrap()).unwrap();
        assert_eq!(total(&parts), (expected.len() as u64, expected.iter().copied().fold(0, u128::wrapping_add)));
        let within = |part: &ValueCount| (least..=greatest).contains(&number(&part.key)) && part.rows > 0;
        assert!(parts.len() <= 3 && parts.iter().all(within), "{parts:?}");
    }
}

#[test]
fn sums_of_slices_are_sums_of_values() {
    let mut rng = StdRng::seed_from_u64(11);
    for values in [1i64, 2, 3, 7, 8, 100] {
        for least in [0, -50, i64::MIN, i64::MAX - values + 1] {
            let drawn: Int64Array = (0..i64::from(ROWS))
                .map(|row| match row {
                    row if row < values => Some(least + row),
                    _ => rng.random_bool(0.9).then(|| least + rng.random_range(0..values)),
                })
                .collect();
            check(&(Arc::new(drawn) as ArrayRef), &mut rng);
        }
        let drawn = UInt64Array::from_iter_values((0..u64::from(ROWS)).map(|row| u64::MAX - row % values as u64));
        check(&(Arc::new(drawn) as ArrayRef), &mut rng);
        let drawn = Decimal128Array::from_iter_values((0..i128::from(ROWS)).map(|row| row % i128::from(values) - 40));
        check(&(Arc::new(drawn.with_precision_and_scale(12, 2).unwrap()) as ArrayRef), &mut rng);
    }
}

/// Of all rows with the same sum the spread ones lie furthest apart: no others have larger values without their signs.
#[test]
fn spread_values_bound_those_of_the_rows() {
    let mut rng = StdRng::seed_from_u64(12);
    for _ in 0..50 {
        let (low, high) = (rng.random_range(-300..1), rng.random_range(1..300));
        let values: Int32Array = (low..=high)
            .chain((0..).map(|_| rng.random_range(low..=high)))
            .take(ROWS as usize)
            .collect::<Vec<i32>>()
            .into();
        let segment = segment(&(Arc::new(values.clone()) as ArrayRef), Encoding::Binary);
        let dense = DenseSlices::of(&segment.directory).unwrap();
        let first = key(&(Arc::new(values.clone()) as ArrayRef), 0).unwrap();
        let size = |part: &ValueCount| {
            (number(&part.key) as i128 - first as i128 + i128::from(low)).unsigned_abs() * u128::from(part.rows)
        };
        let bound: u128 = dense.spread(ROWS.into(), dense.sum_of_all()).unwrap().iter().map(size).sum();
        let real: u128 = values.values().iter().map(|value| u128::from(value.unsigned_abs())).sum();
        assert!(bound >= real, "{bound} {real}");
    }
}

#[test]
fn values_with_gaps_and_other_encodings_are_not_summed() {
    let of = |values: ArrayRef, encoding| DenseSlices::of(&segment(&values, encoding).directory).is_some();
    let numbers =
        |step: i32| -> ArrayRef { Arc::new(Int32Array::from_iter_values((0..3_000).map(|row| row % 9 * step))) };
    assert!(of(numbers(1), Encoding::Binary));
    assert!(!of(numbers(2), Encoding::Binary));
    for encoding in [Encoding::Equality, Encoding::Range, Encoding::Interval, Encoding::RangeEquality] {
        assert!(!of(numbers(1), encoding), "{}", encoding.name());
    }
    assert!(!of(Arc::new(Date32Array::from_iter_values((0..3_000).map(|row| row % 9))), Encoding::Binary));
    assert!(!of(Arc::new(Float64Array::from_iter_values((0..3_000).map(|row| f64::from(row % 2)))), Encoding::Binary));
    let nulls: ArrayRef = Arc::new(Int32Array::from(vec![None; 10]));
    assert!(!of(nulls, Encoding::Binary));
}

#[test]
fn slices_of_another_question_and_sums_that_cannot_be_are_errors() {
    let values: ArrayRef = Arc::new(Int32Array::from_iter_values((0..3_000).map(|row| row % 9)));
    let segment = segment(&values, Encoding::Binary);
    let dense = DenseSlices::of(&segment.directory).unwrap();
    let mask = Mask::new(segment.directory.universe);
    let mut slices = segment.read(dense.slice_ranges());
    assert_eq!((slices.len(), dense.sum(&mask, &slices)), (4, Ok(0)));
    assert!(dense.sum(&mask, &slices[..3]).is_err());
    slices[1].truncate(2);
    assert!(dense.sum(&mask, &slices).is_err());
    assert_eq!(dense.spread(3, 24), Ok(vec![ValueCount { key: Key::Fixed((1 << 63) + 8), rows: 3 }]));
    assert!(dense.spread(3, 25).is_err());
    assert!(dense.spread(0, 1).is_err());
    assert_eq!(dense.spread(0, 0), Ok(vec![]));
}
