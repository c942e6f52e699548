//! Precision: where bins of neighbouring values are cut, so that predicates with round constants need no more than whole bins.
//!
//! ```text
//! 2 digits   …  (435, 440)  440  (440, 445)  [445, 450)  450 …      below, equal to and above each number of at most 2 digits
//! month      …  2024-03-01 00:00  (2024-03-01 00:00, 2024-04-01)  2024-04-01 00:00 …        the start of each month, and the rest
//! ```
//!
//! Numbers belong to the number of at most D significant digits that is nearest, and stand below, at or above it. So a constant
//! of D digits is a bin of its own and never inside of another. Both precisions are monotone in the key, so that a bin ends where
//! a bisection finds it: a bin is computed once, not each value.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use arrow::datatypes::{ArrowPrimitiveType, Float16Type};
use lakemark_format::key::{KeyType, TimeUnit, i64_of_key, key_of_f16_bits, key_of_f32, key_of_f64};

use crate::calendar::{CalendarUnit, start_of};

/// The most significant digits: as many as a 64-bit float keeps.
pub const MAX_DIGITS: u8 = 15;

/// How finely values are distinguished without looking inside bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Significant decimal digits, 1 to [`MAX_DIGITS`], of integers, floats and decimals.
    Digits(u8),
    /// Units of dates, timestamps (in UTC if they have a zone) and times of day.
    Calendar(CalendarUnit),
}

/// Why there is no such precision, or not of this column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrecisionError {
    /// Neither digits nor a unit.
    #[error(
        "precision is {0}; it must be 1 to {MAX_DIGITS} significant digits, or year, month, day, hour, minute or second"
    )]
    Unknown(String),
    /// A type whose values have neither digits nor a calendar, or too many bits.
    #[error(
        "there is no precision on {0}; integers, floats, decimals of up to 18 digits, dates and timestamps have one"
    )]
    Type(&'static str),
    /// The other way of the two.
    #[error("precision is {precision}, and {values} have one of {expected}")]
    Kind {
        /// What was given.
        precision: Precision,
        /// The values of the column.
        values: &'static str,
        /// What it may be.
        expected: &'static str,
    },
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digits(1) => f.write_str("1 digit"),
            Self::Digits(digits) => write!(f, "{digits} digits"),
            Self::Calendar(unit) => f.write_str(unit.name()),
        }
    }
}

impl FromStr for Precision {
    type Err = PrecisionError;

    fn from_str(text: &str) -> Result<Self, PrecisionError> {
        if let Some(unit) = CalendarUnit::ALL.into_iter().find(|unit| unit.name() == text) {
            return Ok(Self::Calendar(unit));
        }
        match text.parse::<u8>() {
            Ok(digits) if (1..=MAX_DIGITS).contains(&digits) => Ok(Self::Digits(digits)),
            _ => Err(PrecisionError::Unknown(text.to_owned())),
        }
    }
}

impl Precision {
    /// Checks that values of a column can have it.
    ///
    /// # Errors
    /// [`PrecisionError`].
    pub fn check(self, key_type: &KeyType) -> Result<(), PrecisionError> {
        const NUMBERS: &str = "1 to 15 digits";
        let kind = |values, expected| Err(PrecisionError::Kind { precision: self, values, expected });
        match (key_type, self) {
            (KeyType::Utf8, _) => Err(PrecisionError::Type("strings")),
            (KeyType::Binary | KeyType::FixedBinary(_), _) => Err(PrecisionError::Type("binaries")),
            (KeyType::Bool, _) => Err(PrecisionError::Type("booleans")),
            (KeyType::Composite(_), _) => Err(PrecisionError::Type("several columns")),
            (KeyType::List(_), _) => Err(PrecisionError::Type("lists")),
            (KeyType::Hashed { .. }, _) => Err(PrecisionError::Type("hashes")),
            (KeyType::Decimal { .. }, _) if !key_type.is_fixed() => {
                Err(PrecisionError::Type("decimals of more than 64 bits"))
            }
            (KeyType::Date32 | KeyType::Date64, Self::Calendar(unit)) if unit <= CalendarUnit::Day => Ok(()),
            (KeyType::Date32 | KeyType::Date64, _) => kind("dates", "year, month and day"),
            (KeyType::Time32 { .. } | KeyType::Time64 { .. }, Self::Calendar(unit)) if unit > CalendarUnit::Day => {
                Ok(())
            }
            (KeyType::Time32 { .. } | KeyType::Time64 { .. }, _) => kind("times of day", "hour, minute and second"),
            (KeyType::Timestamp { .. }, Self::Calendar(_)) => Ok(()),
            (KeyType::Timestamp { .. }, _) => kind("timestamps", "year, month, day, hour, minute and second"),
            (_, Self::Digits(_)) => Ok(()),
            (_, Self::Calendar(_)) => kind("numbers", NUMBERS),
        }
    }
}

/// Finds where the bins of a column end.
#[derive(Clone, Debug)]
pub struct Cutter {
    precision: Precision,
    key_type: KeyType,
    /// The largest key of a value.
    most: u64,
}

/// Where a key is among the bins: all keys of a bin have one position, and positions ascend with the keys.
#[derive(PartialEq, PartialOrd)]
struct CutPosition {
    /// The number, or the start of the unit, that the key belongs to.
    near: i128,
    /// How the key stands to it.
    side: Ordering,
}

impl Cutter {
    /// Cuts the values of a column.
    ///
    /// # Errors
    /// A type that has no such precision.
    pub fn new(precision: Precision, key_type: KeyType) -> Result<Self, PrecisionError> {
        precision.check(&key_type)?;
        let infinity = match key_type {
            KeyType::Float16 => key_of_f16_bits(Half::INFINITY.to_bits()),
            KeyType::Float32 => key_of_f32(f32::INFINITY),
            KeyType::Float64 => key_of_f64(f64::INFINITY),
            _ => None,
        };
        let most = key_type.fixed_bounds().map_or(u64::MAX, |bounds| *bounds.end());
        Ok(Self { precision, key_type, most: infinity.unwrap_or(most) })
    }

    /// The largest key that shares a bin with `key`.
    #[must_use]
    pub fn last_of_bin(&self, key: u64) -> u64 {
        let place = self.place(key);
        // In between lies the last one of the bin.
        let (mut inside, mut step) = (key, 1u64);
        let mut outside = loop {
            let next = inside.saturating_add(step).min(self.most.max(key));
            if next == inside {
                return inside;
            }
            if self.place(next) != place {
                break next;
            }
            inside = next;
            step = step.saturating_mul(2);
        };
        while outside - inside > 1 {
            let middle = inside + (outside - inside) / 2;
            if self.place(middle) == place {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        inside
    }

    fn place(&self, key: u64) -> CutPosition {
        match (self.precision, &self.key_type) {
            (Precision::Digits(digits), KeyType::Float16) => {
                let bits = u16::try_from(key).unwrap_or(u16::MAX);
                let value = Half::from_bits(if bits >> 15 == 1 { bits & 0x7fff } else { !bits });
                float_place(value.to_f64(), digits, |text| text.parse().ok().map(|near| Half::from_f64(near).to_f64()))
            }
            (Precision::Digits(digits), KeyType::Float32) => {
                let bits = u32::try_from(key).unwrap_or(u32::MAX);
                let value = f32::from_bits(if bits >> 31 == 1 { bits & (u32::MAX >> 1) } else { !bits });
                float_place(value.into(), digits, |text| text.parse::<f32>().ok().map(f64::from))
            }
            (Precision::Digits(digits), KeyType::Float64) => {
                let value = f64::from_bits(if key >> 63 == 1 { key & (u64::MAX >> 1) } else { !key });
                float_place(value, digits, |text| text.parse().ok())
            }
            (Precision::Digits(digits), KeyType::UInt8 | KeyType::UInt16 | KeyType::UInt32 | KeyType::UInt64) => {
                integer_place(key.into(), digits)
            }
            (Precision::Digits(digits), _) => integer_place(i64_of_key(key).into(), digits),
            (Precision::Calendar(unit), _) => {
                let value = i128::from(i64_of_key(key));
                let start = start_of(unit, value, units_in_day(&self.key_type));
                CutPosition { near: start, side: value.cmp(&start) }
            }
        }
    }
}

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// How many of the values' units a day has.
fn units_in_day(key_type: &KeyType) -> i128 {
    let per_second = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    match key_type {
        KeyType::Date32 => 1,
        KeyType::Date64 => 86_400_000,
        KeyType::Time32 { unit } | KeyType::Time64 { unit } | KeyType::Timestamp { unit, .. } => {
            86_400 * per_second(unit)
        }
        _ => 1,
    }
}

/// The number of at most `digits` significant digits that is nearest, the farther from zero of two.
fn integer_place(value: i128, digits: u8) -> CutPosition {
    let size = value.abs();
    let mut unit = 1i128;
    while size / unit >= 10i128.pow(digits.into()) {
        unit *= 10;
    }
    let near = (size + unit / 2) / unit * unit * value.signum();
    CutPosition { near, side: value.cmp(&near) }
}

/// `parse` gives the value of the column's type that a constant of these digits becomes.
fn float_place(value: f64, digits: u8, parse: impl Fn(&str) -> Option<f64>) -> CutPosition {
    // Formatting rounds the exact value.
    let text = format!("{value:.*e}", usize::from(digits.max(1) - 1));
    let near = parse(&text).unwrap_or(value);
    let key = key_of_f64(near + 0.0).unwrap_or(u64::MAX);
    CutPosition { near: key.into(), side: value.partial_cmp(&near).unwrap_or(Ordering::Greater) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lakemark_format::key::key_of_i64;
    use proptest::prelude::*;

    const INTEGERS: [KeyType; 3] =
        [KeyType::Int64, KeyType::Int32, KeyType::Decimal { width_bits: 64, precision: 18, scale: 3 }];

    fn cutter(precision: &str, key_type: KeyType) -> Cutter {
        Cutter::new(precision.parse().unwrap(), key_type).unwrap()
    }

    /// The bins of integers, as the last value of each.
    fn ends(precision: &str, key_type: KeyType, from: i64, bins: usize) -> Vec<i64> {
        let cutter = cutter(precision, key_type);
        let ends = std::iter::successors(Some(cutter.last_of_bin(key_of_i64(from))), |key| {
            Some(cutter.last_of_bin(key.checked_add(1)?))
        });
        ends.take(bins).map(i64_of_key).collect()
    }

    #[test]
    fn bins_are_below_at_and_above_a_number() {
        assert_eq!(ends("2", KeyType::Int64, 97, 9), [97, 98, 99, 100, 104, 109, 110, 114, 119]);
        assert_eq!(ends("1", KeyType::Int64, -12, 6), [-11, -10, -9, -8, -7, -6]);
        assert_eq!(ends("1", KeyType::Int64, -25, 6), [-25, -21, -20, -15, -11, -10]);
        assert_eq!(ends("2", KeyType::Int64, 994, 5), [994, 999, 1000, 1049, 1099]);
        assert_eq!(ends("1", KeyType::Int64, i64::MAX - 1, 1), [i64::MAX]);
        assert_eq!(ends("1", KeyType::Int64, i64::MIN, 2), [-9_000_000_000_000_000_001, -9_000_000_000_000_000_000]);
        assert_eq!(cutter("2", KeyType::UInt64).last_of_bin(18_000_000_000_000_000_001), u64::MAX);
        assert_eq!(cutter("1", KeyType::UInt8).last_of_bin(201), 249);
        assert_eq!(cutter("1", KeyType::UInt8).last_of_bin(250), 255);
    }

    #[test]
    fn bins_of_a_calendar_are_the_start_of_a_unit_and_the_rest() {
        let day = |text: &str| {
            let parts: Vec<i64> = text.split('-').map(|part| part.parse().unwrap()).collect();
            crate::calendar::days_of(parts[0].into(), parts[1] as u8, 1) as i64 + parts[2] - 1
        };
        assert_eq!((day("1970-01-01"), day("2024-02-29"), day("1969-12-31")), (0, 19_782, -1));
        let months = ends("month", KeyType::Date32, day("2024-02-05"), 3);
        assert_eq!(months, [day("2024-02-29"), day("2024-03-01"), day("2024-03-31")]);
        assert_eq!(ends("year", KeyType::Date32, day("1969-12-31"), 3), [-1, 0, day("1970-12-31")]);
        let micros = KeyType::Timestamp { unit: TimeUnit::Microsecond, zoned: true };
        assert_eq!(ends("hour", micros, -1, 4), [-1, 0, 3_600_000_000 - 1, 3_600_000_000]);
        let seconds = KeyType::Timestamp { unit: TimeUnit::Second, zoned: false };
        assert_eq!(ends("second", seconds.clone(), 5, 2), [5, 6]);
        assert_eq!(ends("year", seconds, i64::MAX - 1, 1), [i64::MAX]);
        assert_eq!(ends("minute", KeyType::Time32 { unit: TimeUnit::Second }, 61, 3), [119, 120, 179]);
    }

    #[test]
    fn floats_are_cut_at_the_values_of_their_constants() {
        let key = |value: f64| key_of_f64(value).unwrap();
        let cutter = cutter("2", KeyType::Float64);
        for value in [0.35, 4.1e-310, 0.1, 1.8e300, -7.3, 0.0, 5e-324, f64::INFINITY, f64::NEG_INFINITY, 4.9e-324] {
            assert_eq!(cutter.last_of_bin(key(value)), key(value), "{value} is a bin");
            if value.is_finite() {
                // The bin below ends where it begins.
                assert!(cutter.last_of_bin(key(value) - 2) < key(value), "{value}");
            }
        }
        assert_eq!(cutter.last_of_bin(key(1.05)), key(1.1) - 1);
        assert!((key(1.04)..key(1.06)).contains(&cutter.last_of_bin(key(1.01))));
        assert!(cutter.last_of_bin(key(f64::MAX)) < key(f64::INFINITY));
        let single = Cutter::new(Precision::Digits(2), KeyType::Float32).unwrap();
        let key = |value: f32| key_of_f32(value).unwrap();
        assert_eq!(single.last_of_bin(key(0.35)), key(0.35));
        assert_eq!(single.last_of_bin(key(0.3501)), single.last_of_bin(key(0.353)));
    }

    #[test]
    fn other_precisions_are_errors_that_say_what_there_is() {
        for text in ["0", "16", "20", "-1", "week", "", "2.5", "Month"] {
            let error = text.parse::<Precision>().unwrap_err();
            assert!(error.to_string().contains("1 to 15") && error.to_string().contains("year, month"), "{error}");
        }
        let check = |text: &str, key_type: KeyType| {
            text.parse::<Precision>().unwrap().check(&key_type).err().map(|e| e.to_string())
        };
        assert!(check("2", KeyType::Utf8).unwrap().contains("no precision on strings"));
        assert!(check("2", KeyType::Bool).unwrap().contains("booleans"));
        let wide = KeyType::Decimal { width_bits: 128, precision: 38, scale: 0 };
        assert!(check("2", wide).unwrap().contains("more than 64 bits"));
        assert!(check("2", KeyType::Date32).unwrap().contains("2 digits, and dates have one of year, month and day"));
        assert!(check("hour", KeyType::Date64).unwrap().contains("dates"));
        assert!(check("month", KeyType::Int32).unwrap().contains("numbers"));
        assert!(check("day", KeyType::Time64 { unit: TimeUnit::Nanosecond }).unwrap().contains("times of day"));
        assert_eq!(check("day", KeyType::Timestamp { unit: TimeUnit::Second, zoned: true }), None);
    }

    /// Bins ascend, and the last key of a bin has itself for the last one.
    fn check_bins(cutter: &Cutter, mut keys: Vec<u64>) -> Result<(), TestCaseError> {
        keys.sort_unstable();
        for pair in keys.windows(2) {
            let (a, b) = (cutter.last_of_bin(pair[0]), cutter.last_of_bin(pair[1]));
            prop_assert!(a >= pair[0] && (a == b || a < pair[1]), "{:?}: {} {}", pair, a, b);
            prop_assert!(cutter.place(pair[0]) <= cutter.place(pair[1]));
            prop_assert_eq!(cutter.last_of_bin(a), a);
            prop_assert_eq!(a == b, cutter.place(pair[0]) == cutter.place(pair[1]));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn bins_of_integers_ascend(values in prop::collection::vec(prop_oneof![any::<i64>(), -3000i64..3000], 2..20), digits in 1u8..=15) {
            for key_type in INTEGERS {
                let cutter = Cutter::new(Precision::Digits(digits), key_type.clone()).unwrap();
                let fits = |value: &&i64| key_type != KeyType::Int32 || i32::try_from(**value).is_ok();
                check_bins(&cutter, values.iter().filter(fits).map(|value| key_of_i64(*value)).collect())?;
            }
            check_bins(&Cutter::new(Precision::Digits(digits), KeyType::UInt64).unwrap(), values.iter().map(|v| *v as u64).collect())?;
        }

        #[test]
        fn a_constant_of_few_digits_is_a_bin(mantissa in 1i64..1000, zeros in 0u32..15, negative in any::<bool>()) {
            let value = mantissa * 10i64.pow(zeros) * if negative { -1 } else { 1 };
            let cutter = Cutter::new(Precision::Digits(3), KeyType::Int64).unwrap();
            prop_assert_eq!(cutter.last_of_bin(key_of_i64(value)), key_of_i64(value));
            prop_assert_eq!(cutter.last_of_bin(key_of_i64(value - 1)), key_of_i64(value - 1));
        }

        #[test]
        fn a_float_constant_of_few_digits_is_a_bin(mantissa in 1u64..10_000_000, digits in 7u8..=15, exponent in -330i32..305, negative in any::<bool>()) {
            let text = format!("{}{mantissa}e{exponent}", if negative { "-" } else { "" });
            let value: f64 = text.parse().unwrap();
            prop_assume!(value != 0.0);
            let (key, cutter) = (key_of_f64(value + 0.0).unwrap(), Cutter::new(Precision::Digits(digits), KeyType::Float64).unwrap());
            prop_assert_eq!(cutter.last_of_bin(key), key, "{}", value);
            prop_assert!(cutter.last_of_bin(key - 1) < key, "{}", value);
            let value: f32 = text.parse().unwrap();
            let (key, cutter) = (key_of_f32(value + 0.0).unwrap(), Cutter::new(Precision::Digits(digits), KeyType::Float32).unwrap());
            prop_assert_eq!(cutter.last_of_bin(key), key, "{}", value);
        }

        #[test]
        fn bins_of_floats_ascend(
            bits in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..100, (0u64..100).prop_map(|low| (1 << 63) | low)], 2..12),
            digits in 1u8..=15,
        ) {
            let keys = bits.iter().filter_map(|bits| key_of_f64(f64::from_bits(*bits) + 0.0)).collect();
            check_bins(&Cutter::new(Precision::Digits(digits), KeyType::Float64).unwrap(), keys)?;
            let keys = bits.iter().filter_map(|bits| key_of_f32(f32::from_bits((*bits >> 7) as u32) + 0.0)).collect();
            check_bins(&Cutter::new(Precision::Digits(digits), KeyType::Float32).unwrap(), keys)?;
            let keys = bits.iter().filter_map(|bits| key_of_f16_bits((*bits >> 7) as u16)).collect();
            check_bins(&Cutter::new(Precision::Digits(digits), KeyType::Float16).unwrap(), keys)?;
        }

        #[test]
        fn bins_of_moments_ascend(values in prop::collection::vec(prop_oneof![any::<i64>(), -100_000_000i64..100_000_000], 2..20), unit in 0usize..6) {
            let precision = Precision::Calendar(CalendarUnit::ALL[unit]);
            for time in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
                let cutter = Cutter::new(precision, KeyType::Timestamp { unit: time, zoned: false }).unwrap();
                check_bins(&cutter, values.iter().map(|value| key_of_i64(*value)).collect())?;
            }
        }
    }
}
