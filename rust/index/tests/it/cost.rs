//! Predicted bytes against those of built segments.

use arrow::array::ArrayRef;
use lakemark_format::Encoding;
use lakemark_index::bitmap::cost::{ColumnShape, predicted_bytes};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::bitmap::{build_as, ints};

#[test]
fn predictions_are_within_15_per_cent_of_what_is_built() {
    let mut rng = StdRng::seed_from_u64(21);
    let mut compared = 0;
    for (rows, values, null_rate) in [
        (200_000, 2, 0.0),
        (200_000, 10, 0.0),
        (200_000, 25, 0.3),
        (200_000, 100, 0.0),
        (200_000, 1000, 0.0),
        (200_000, 10_000, 0.1),
        (50_000, 300, 0.0),
        (500_000, 20_000, 0.0),
    ] {
        let files: Vec<Vec<ArrayRef>> = vec![vec![ints(&mut rng, rows, values, null_rate)]];
        for encoding in Encoding::ALL {
            let shape = ColumnShape {
                rows: rows as u64,
                nulls: (rows as f64 * null_rate) as u64,
                values: values as u64,
                key_bits: 0.0,
            };
            let predicted = predicted_bytes(encoding, &shape);
            if values > 1000 && matches!(encoding, Encoding::Range | Encoding::Interval) {
                assert_eq!(predicted, None, "{encoding:?} of {values}");
                continue;
            }
            if values > 300 && matches!(encoding, Encoding::Range | Encoding::Interval) {
                // Thousands of bitmaps of so many rows only cost time.
                continue;
            }
            let actual = build_as(&files, false, encoding, None).unwrap().summary.length as f64;
            let ratio = predicted.unwrap() as f64 / actual;
            assert!((0.85..=1.15).contains(&ratio), "{encoding:?} of {values} in {rows}: {ratio}");
            compared += 1;
        }
    }
    assert!(compared > 35, "{compared}");
}

#[test]
fn an_empty_column_takes_the_fixed_bytes_alone() {
    let shape = ColumnShape { rows: 0, nulls: 0, values: 0, key_bits: 0.0 };
    for encoding in Encoding::ALL {
        let bytes = predicted_bytes(encoding, &shape).unwrap();
        assert!((200..300).contains(&bytes), "{encoding:?}: {bytes}");
    }
}
