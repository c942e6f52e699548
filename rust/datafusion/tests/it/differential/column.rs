//! Random columns: a type, a small set of values, and which row has which.
//!
//! The domain of a column holds three kinds of values, one after the other: those that rows draw from, their neighbours
//! (a little less, a little more, between two of them), and wild ones. Literals come from all three, mostly from the first.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int64Array, ListArray, MapArray, PrimitiveArray, StringArray,
    StructArray, UInt32Array, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, concat, filter, is_not_null, sort_to_indices, take};
use arrow::datatypes::{DataType, Decimal128Type, Field, Float64Type, Int64Type, TimeUnit};
use arrow::util::display::array_value_to_string;
use rand::Rng;
use rand::rngs::StdRng;

use super::delta::delta_type;

/// A column of a random table.
#[derive(Clone, Debug)]
pub struct Column {
    /// What it is called in SQL: `c0`, `c1`, … or, as a field of the struct `st` or a value of a map, `st['c0']` or `c0['k']`, …
    pub name: String,
    /// Its name in the files, or that of its map.
    stored: String,
    /// Where its values are.
    pub home: Home,
    /// Its type in the files.
    pub data_type: DataType,
    /// The values that rows draw from, their neighbours, wild values.
    domain: ArrayRef,
    /// How many values of the domain rows draw from.
    used: usize,
    /// Where the wild values begin.
    wild: usize,
    /// The place of each value of the domain among all of them, by size.
    ranks: Vec<u32>,
    /// Share of rows that are null.
    null_rate: f64,
    /// How values are spread over the rows.
    layout: Layout,
}

/// Where the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Home {
    /// In a column of their own.
    Flat,
    /// In a field of the struct.
    Struct,
    /// In a map, under the key [`KEY`].
    Map,
    /// Among the elements of a list: the values are not those of rows.
    List,
}

/// Which types a column may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Types {
    All,
    /// Those of Delta tables.
    Delta,
    /// Those that every engine has, and whose values all of them compare and write alike.
    Common,
}

/// How values are spread over the rows.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Each row on its own, all values alike.
    Uniform,
    /// Each row on its own, few values often and many seldom.
    Skewed,
    /// Ascending with the row.
    Sorted,
    /// Runs of one value.
    Runs,
}

/// The column that holds the fields.
pub const STRUCT: &str = "st";

/// The key under which maps have values.
const KEY: &str = "k";

const WILD_VALUES: usize = 3;
const NEIGHBOURS: usize = 12;

impl Column {
    /// A column of a random type.
    pub fn random(rng: &mut StdRng, ordinal: usize, home: Home, types: Types) -> Self {
        let data_type = random_type(rng, types);
        let used = *pick(rng, &[1, 2, 3, 5, 12, 40, 200]);
        let layout = *pick(rng, &[Layout::Uniform, Layout::Uniform, Layout::Skewed, Layout::Sorted, Layout::Runs]);
        let null_rate = *pick(rng, &[0.0, 0.0, 0.05, 0.3, 0.9, 1.0]);
        let drawn = random_values(rng, &data_type, used + WILD_VALUES);
        let (own, others) = (drawn.slice(0, used), drawn.slice(used, WILD_VALUES));
        let near = neighbours(rng, &own, NEIGHBOURS);
        let domain = concat(&[own.as_ref(), near.as_ref(), others.as_ref()]).unwrap();
        let ranks = ranks(&domain);
        let (stored, wild) = (format!("c{ordinal}"), used + near.len());
        let name = match home {
            Home::Flat | Home::List => stored.clone(),
            Home::Struct => format!("{STRUCT}['{stored}']"),
            Home::Map => format!("{stored}['{KEY}']"),
        };
        Self { name, stored, home, data_type, wild, domain, used, ranks, null_rate, layout }
    }

    /// The column or its map as a field of a schema, or the field of the struct, for an array of it.
    pub fn field(&self, values: &ArrayRef) -> Field {
        Field::new(&self.stored, values.data_type().clone(), true)
    }

    /// A flat column with the same values, in other rows.
    pub fn like(&self, rng: &mut StdRng, name: &str) -> Self {
        let layout = *pick(rng, &[Layout::Uniform, Layout::Uniform, Layout::Skewed, Layout::Runs]);
        let null_rate = *pick(rng, &[0.0, 0.0, 0.05, 0.3]);
        Self { name: name.to_owned(), stored: name.to_owned(), home: Home::Flat, null_rate, layout, ..self.clone() }
    }

    /// What an index on it is declared with.
    pub fn path(&self) -> String {
        match self.home {
            Home::Flat | Home::List => self.stored.clone(),
            Home::Struct => format!("{STRUCT}.{}", self.stored),
            Home::Map => format!("{}.{KEY}", self.stored),
        }
    }

    /// For each of `rows` rows the place of its value in the domain.
    pub fn picks(&self, rng: &mut StdRng, rows: usize) -> UInt32Array {
        let mut run = 0;
        (0..rows)
            .map(|row| {
                let value = self.value_of(rng, row, rows, &mut run);
                (!rng.random_bool(self.null_rate)).then_some(value)
            })
            .collect()
    }

    /// Maps that have the values at places of the domain under the key, and other entries around them. Where there is no value
    /// the map is NULL, or has none, or an entry of NULL.
    pub fn maps(&self, rng: &mut StdRng, picks: &UInt32Array) -> ArrayRef {
        let (mut keys, mut values, mut lengths, mut valid) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for pick in picks {
            let before = keys.len();
            let is_map = pick.is_some() || rng.random_bool(0.6);
            let mut add = |key: &'static str, value: Option<u32>| {
                keys.push(key);
                values.push(value);
            };
            if is_map && rng.random_bool(0.4) {
                add("other", Some(0));
            }
            if pick.is_some() || is_map && rng.random_bool(0.5) {
                add(KEY, pick);
            }
            if is_map && rng.random_bool(0.2) {
                add(if pick.is_some() { KEY } else { "last" }, Some(0));
            }
            lengths.push(keys.len() - before);
            valid.push(is_map);
        }
        let (keys, values): (ArrayRef, ArrayRef) = (Arc::new(StringArray::from(keys)), self.values(&values.into()));
        let fields =
            vec![Field::new("key", DataType::Utf8, false), Field::new("value", values.data_type().clone(), true)];
        let entries = StructArray::new(fields.into(), vec![keys, values], None);
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        Arc::new(MapArray::new(field, OffsetBuffer::from_lengths(lengths), entries, Some(valid.into()), false))
    }

    /// Lists of values of the domain, of `rows` rows: NULL where a value would be, some of them empty, some with a NULL in them.
    pub fn lists(&self, rng: &mut StdRng, rows: usize) -> ArrayRef {
        let longest = *pick(rng, &[1, 3, 3, 8]);
        let lacks_some = *pick(rng, &[0.0, 0.0, 0.02]);
        let (mut picks, mut lengths, mut valid, mut run) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for row in 0..rows {
            let length = rng.random_range(0..=longest);
            for _ in 0..length {
                let value = self.value_of(rng, row, rows, &mut run);
                picks.push((!rng.random_bool(lacks_some)).then_some(value));
            }
            lengths.push(length);
            // What lies behind a list that is NULL is nobody's.
            valid.push(!rng.random_bool(self.null_rate));
        }
        let values = self.values(&picks.into());
        let element = Arc::new(Field::new("item", values.data_type().clone(), true));
        Arc::new(ListArray::new(element, OffsetBuffer::from_lengths(lengths), values, Some(valid.into())))
    }

    /// A condition on elements.
    pub fn element_leaf(&self, rng: &mut StdRng) -> String {
        let name = &self.name;
        let literals = |rng: &mut StdRng| {
            let mut listed: Vec<String> = (0..rng.random_range(1..4)).map(|_| self.literal(rng)).collect();
            if rng.random_bool(0.05) {
                listed.push("NULL".into());
            }
            listed.join(", ")
        };
        let negated = *pick(rng, &["", "", "", "NOT "]);
        match rng.random_range(0..12) {
            0..=3 => format!("{negated}array_has({name}, {})", self.literal(rng)),
            4..=5 => format!("{} = ANY({name})", self.literal(rng)),
            6..=7 => format!("{negated}array_has_any({name}, [{}])", literals(rng)),
            8..=9 => format!("{negated}array_has_all({name}, [{}])", literals(rng)),
            10 => format!("{name} IS {negated}NULL"),
            _ => format!("array_length({name}) > {}", rng.random_range(0..3)),
        }
    }

    /// The values at places of the domain.
    pub fn values(&self, picks: &UInt32Array) -> ArrayRef {
        take(&self.domain, picks, None).unwrap()
    }

    fn value_of(&self, rng: &mut StdRng, row: usize, rows: usize, run: &mut u32) -> u32 {
        let used = u32::try_from(self.used).unwrap();
        match self.layout {
            Layout::Uniform => rng.random_range(0..used),
            Layout::Skewed => {
                let share: f64 = rng.random();
                ((share * share * share * f64::from(used)) as u32).min(used - 1)
            }
            Layout::Sorted => u32::try_from(row * self.used / rows).unwrap(),
            Layout::Runs => {
                if rng.random_bool(0.08) {
                    *run = rng.random_range(0..used);
                }
                *run % used
            }
        }
    }

    /// How many values rows draw from.
    pub fn used(&self) -> usize {
        self.used
    }

    /// A value as an SQL literal.
    pub fn literal(&self, rng: &mut StdRng) -> String {
        let at = self.place(rng);
        self.literal_at(at)
    }

    /// A place of the domain: mostly that of a value that rows have, now and then of a neighbour or a wild one.
    pub fn place(&self, rng: &mut StdRng) -> usize {
        let near = self.used..self.wild.max(self.used + 1);
        match rng.random_range(0..20) {
            0..=12 => rng.random_range(0..self.used),
            13..=16 => rng.random_range(near),
            _ => rng.random_range(self.wild..self.domain.len()),
        }
    }

    /// The value at a place of the domain as an SQL literal.
    pub fn literal_at(&self, at: usize) -> String {
        literal(&self.domain, at)
    }

    /// A value that is not less than the one at a place, or (`below`) not greater, as an SQL literal.
    pub fn bound(&self, rng: &mut StdRng, at: usize, below: bool) -> String {
        let rank = self.ranks[at];
        let fitting: Vec<usize> = (0..self.domain.len())
            .filter(|&other| if below { self.ranks[other] <= rank } else { self.ranks[other] >= rank })
            .collect();
        self.literal_at(*pick(rng, &fitting))
    }

    /// The text at a place of the domain.
    pub fn text_at(&self, at: usize) -> String {
        array_value_to_string(&self.domain, at).unwrap()
    }

    /// Whether `LIKE` is defined on it.
    pub fn is_text(&self) -> bool {
        matches!(self.data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..))
    }
}

/// One of the choices.
pub fn pick<'a, T>(rng: &mut StdRng, choices: &'a [T]) -> &'a T {
    &choices[rng.random_range(0..choices.len())]
}

fn random_type(rng: &mut StdRng, wanted: Types) -> DataType {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let types = [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(9, 2),
        DataType::Decimal128(30, 5),
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Utf8,
        DataType::Utf8,
        DataType::LargeUtf8,
        dictionary,
        DataType::Binary,
    ];
    let is_common = |of: &DataType| {
        of.is_integer() && *of != DataType::UInt64
            || of.is_decimal()
            || matches!(of, DataType::Boolean | DataType::Date32 | DataType::Utf8)
    };
    let allowed = types.iter().filter(|of| match wanted {
        Types::All => true,
        Types::Delta => delta_type(of).is_some(),
        Types::Common => is_common(of),
    });
    (*pick(rng, &allowed.collect::<Vec<_>>())).clone()
}

/// Random values of a type, extremes among them.
fn random_values(rng: &mut StdRng, data_type: &DataType, count: usize) -> ArrayRef {
    let whole = |rng: &mut StdRng, low: i64, high: i64| -> ArrayRef {
        let values = (0..count).map(|_| match rng.random_range(0..10) {
            0 => low,
            1 => high,
            _ => rng.random_range(low.max(-30)..=high.min(250)),
        });
        Arc::new(Int64Array::from_iter_values(values))
    };
    let made: ArrayRef = match data_type {
        DataType::Boolean => {
            let bits = (0..count).map(|_| Some(rng.random_bool(0.5)));
            return Arc::new(bits.collect::<arrow::array::BooleanArray>());
        }
        DataType::Int8 => whole(rng, i64::from(i8::MIN), i64::from(i8::MAX)),
        DataType::Int16 => whole(rng, i64::from(i16::MIN), i64::from(i16::MAX)),
        DataType::Int32 | DataType::Date32 => whole(rng, -20_000, 40_000),
        DataType::UInt8 => whole(rng, 0, 255),
        DataType::UInt16 => whole(rng, 0, 65_535),
        DataType::UInt32 => whole(rng, 0, i64::from(u32::MAX)),
        DataType::UInt64 => {
            let values = (0..count).map(|_| {
                if rng.random_bool(0.2) { u64::MAX - rng.random_range(0..3) } else { rng.random_range(0..40) }
            });
            Arc::new(UInt64Array::from_iter_values(values))
        }
        DataType::Float32 | DataType::Float64 => random_floats(rng, count),
        DataType::Decimal128(..) => whole(rng, -9_999, 9_999),
        DataType::Timestamp(unit, _) => return random_times(rng, unit, data_type, count),
        DataType::Binary => {
            let values = (0..count)
                .map(|_| (0..rng.random_range(0..3)).map(|_| rng.random_range(0..4_u8) * 85).collect::<Vec<u8>>());
            Arc::new(BinaryArray::from_iter_values(values))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..) => {
            let letters = ['a', 'b', 'é', '日', '%', ' '];
            let values =
                (0..count).map(|_| (0..rng.random_range(0..5)).map(|_| *pick(rng, &letters)).collect::<String>());
            Arc::new(values.map(Some).collect::<StringArray>())
        }
        _ => whole(rng, i64::MIN, i64::MAX),
    };
    if matches!(data_type, DataType::Date32) {
        let days = cast(&made, &DataType::Int32).unwrap();
        return cast(&days, data_type).unwrap();
    }
    cast(&made, data_type).unwrap()
}

fn random_floats(rng: &mut StdRng, count: usize) -> ArrayRef {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e30];
    let values = (0..count)
        .map(|_| if rng.random_bool(0.3) { *pick(rng, &special) } else { f64::from(rng.random_range(-20..20)) / 4.0 });
    Arc::new(Float64Array::from_iter_values(values))
}

/// Hours around the epoch and in 2024, a few with a fraction.
fn random_times(rng: &mut StdRng, unit: &TimeUnit, data_type: &DataType, count: usize) -> ArrayRef {
    let per_second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let values = (0..count).map(|_| {
        let hours = if rng.random_bool(0.3) { rng.random_range(-50..50) } else { 473_352 + rng.random_range(0..500) };
        hours * 3_600 * per_second + i64::from(rng.random_bool(0.2))
    });
    cast(&Int64Array::from_iter_values(values), data_type).unwrap()
}

/// Values a little below and above those of a column, and between two of them.
fn neighbours(rng: &mut StdRng, own: &ArrayRef, count: usize) -> ArrayRef {
    let pairs: Vec<(usize, usize, i64)> = (0..count)
        .map(|_| (rng.random_range(0..own.len()), rng.random_range(0..own.len()), rng.random_range(-1..=1)))
        .collect();
    // A step of 0 stands for the middle of two values.
    let whole = |value: i64, other: i64, step: i64| if step == 0 { value / 2 + other / 2 } else { value + step };
    let data_type = own.data_type();
    let near: ArrayRef = match data_type {
        DataType::Boolean => return own.slice(0, own.len().min(count)),
        DataType::Float32 | DataType::Float64 => {
            let wide = cast(own, &DataType::Float64).unwrap();
            let wide = wide.as_primitive::<Float64Type>();
            Arc::new(Float64Array::from_iter_values(pairs.iter().map(|&(one, other, step)| match step {
                0 => (wide.value(one) + wide.value(other)) / 2.0,
                step => wide.value(one) + step as f64 / 8.0,
            })))
        }
        DataType::Decimal128(precision, scale) => {
            let wide = own.as_primitive::<Decimal128Type>();
            let values = pairs.iter().map(|&(one, other, step)| match step {
                0 => (wide.value(one) + wide.value(other)) / 2,
                step => wide.value(one) + i128::from(step),
            });
            let values = PrimitiveArray::<Decimal128Type>::from_iter_values(values);
            Arc::new(values.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Binary => {
            let wide = own.as_binary::<i32>();
            Arc::new(BinaryArray::from_iter_values(pairs.iter().map(|&(one, _, step)| {
                let value = wide.value(one);
                if step == 1 { [value, &[85]].concat() } else { value[..value.len() / 2].to_vec() }
            })))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..) => {
            let wide = cast(own, &DataType::Utf8).unwrap();
            let wide = wide.as_string::<i32>();
            Arc::new(StringArray::from_iter_values(pairs.iter().map(|&(one, _, step)| {
                let value = wide.value(one);
                if step == 1 { format!("{value}a") } else { value.chars().take(value.chars().count() / 2).collect() }
            })))
        }
        _ => {
            // Days become whole numbers by way of 32 bits only.
            let days = matches!(data_type, DataType::Date32);
            let narrow = if days { cast(own, &DataType::Int32).unwrap() } else { Arc::clone(own) };
            let wide = cast(&narrow, &DataType::Int64).unwrap();
            let wide = wide.as_primitive::<Int64Type>();
            let near: Int64Array = pairs
                .iter()
                .filter(|(one, other, _)| wide.is_valid(*one) && wide.is_valid(*other))
                .map(|&(one, other, step)| {
                    Some(whole(wide.value(one).clamp(-(1 << 62), 1 << 62), wide.value(other), step))
                })
                .collect();
            if days { cast(&near, &DataType::Int32).unwrap() } else { Arc::new(near) }
        }
    };
    let near = cast(&near, data_type).unwrap();
    // What left the range of the type became NULL.
    filter(&near, &is_not_null(&near).unwrap()).unwrap()
}

/// The place of each value among all of them, by size; equal values have different places.
fn ranks(values: &ArrayRef) -> Vec<u32> {
    let order = sort_to_indices(values, None, None).unwrap();
    let mut ranks = vec![0; values.len()];
    for (rank, at) in (0..).zip(order.values()) {
        ranks[*at as usize] = rank;
    }
    ranks
}

/// A value as an SQL literal of the column's own type.
fn literal(values: &ArrayRef, at: usize) -> String {
    let text = |values: &dyn Array| array_value_to_string(values, at).unwrap();
    match values.data_type() {
        DataType::Float32 => format!("CAST('{}' AS REAL)", text(values)),
        DataType::Float64 => format!("CAST('{}' AS DOUBLE)", text(values)),
        DataType::Decimal128(precision, scale) => format!("CAST('{}' AS DECIMAL({precision}, {scale}))", text(values)),
        DataType::Date32 => format!("DATE '{}'", text(values)),
        DataType::Timestamp(_, None) => format!("TIMESTAMP '{}'", text(values)),
        DataType::Timestamp(_, Some(_)) => format!("CAST('{}' AS TIMESTAMP WITH TIME ZONE)", text(values)),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..) => {
            format!("'{}'", text(values).replace('\'', "''"))
        }
        DataType::Binary => {
            let hex: String = values.as_binary::<i32>().value(at).iter().map(|byte| format!("{byte:02X}")).collect();
            format!("X'{hex}'")
        }
        _ => text(values),
    }
}
