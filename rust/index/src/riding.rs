//! Columns that ride along with keys: Arrow values to row form and back ([`lakemark_format::riding`]).
//!
//! What comes back is equal bit for bit: -0 and the payloads of NaN are kept. A row with a value longer than a key may be does not ride.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use arrow::error::ArrowError;
use lakemark_format::key::{Key, KeyType};
use lakemark_format::riding::{
    MAX_RIDING_ROWS, RidingRows, RidingValue, float_of_number, number_of_float, push_riding_bytes, push_riding_null,
    push_riding_number,
};

use crate::key::{CellVisitor, KeyCell, LiteralKey, key_type_of, visit};
use crate::values::decode_keys;

/// How values of `data_type` ride along; none for types of which a row has no single value.
#[must_use]
pub fn riding_type_of(data_type: &DataType) -> Option<KeyType> {
    key_type_of(data_type)
}

/// Whether the key of a value gives the value bit for bit, so that the column need not ride along.
#[must_use]
pub fn is_key_the_value(key_type: &KeyType) -> bool {
    !matches!(key_type, KeyType::Float16 | KeyType::Float32 | KeyType::Float64 | KeyType::List(_))
}

/// The rows of a row group in row form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowForms {
    bytes: Vec<u8>,
    /// Where each row ends; one that does not ride has no byte.
    ends: Vec<u64>,
}

impl RowForms {
    /// Adds the next rows of some columns, as many of each.
    ///
    /// # Errors
    /// A type that does not ride, or columns of different lengths.
    pub(crate) fn push(&mut self, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let rows = columns.first().map_or(0, |column| column.len());
        let cells = columns.iter().map(|column| Cells::of(column, rows)).collect::<Result<Vec<_>, _>>()?;
        for row in 0..rows {
            if cells.iter().all(|cells| !cells.too_long.contains(row)) {
                cells.iter().for_each(|cells| self.bytes.extend_from_slice(cells.of_row(row)));
            }
            self.ends.push(self.bytes.len() as u64);
        }
        Ok(())
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A row; none if it does not ride.
    fn row(&self, row: u32) -> Option<&[u8]> {
        let row = row as usize;
        let start = row.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        let range = usize::try_from(start).ok()?..usize::try_from(*self.ends.get(row)?).ok()?;
        self.bytes.get(range).filter(|form| !form.is_empty())
    }

    /// The rows of a key.
    pub(crate) fn of_rows(&self, rows: &[u32]) -> RidingRows {
        let mut held = RidingRows::default();
        if rows.len() > MAX_RIDING_ROWS {
            held.push(None);
            return held;
        }
        for row in rows {
            let form = self.row(*row);
            held.push(form);
            if form.is_none() {
                break;
            }
        }
        held
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u64>()
    }
}

/// What one column gives for each row.
struct Cells {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    too_long: TooLong,
}

/// Rows with a value that is too long, ascending.
#[derive(Default)]
struct TooLong(Vec<usize>);

impl TooLong {
    fn contains(&self, row: usize) -> bool {
        self.0.binary_search(&row).is_ok()
    }
}

impl Cells {
    fn of(column: &ArrayRef, rows: usize) -> Result<Self, ArrowError> {
        if column.len() != rows {
            let text = format!("{} rows ride along with {rows}", column.len());
            return Err(ArrowError::InvalidArgumentError(text));
        }
        let mut cells = Self { bytes: Vec::new(), ends: Vec::with_capacity(rows), too_long: TooLong::default() };
        cells.push(column)?;
        Ok(cells)
    }

    fn push(&mut self, column: &ArrayRef) -> Result<(), ArrowError> {
        match column.data_type() {
            DataType::Dictionary(_, value) => self.push(&cast(column, value)?),
            DataType::Float16 => {
                let values = column.as_primitive::<Float16Type>();
                self.push_floats(column, 16, |row| values.value(row).to_bits().into());
                Ok(())
            }
            DataType::Float32 => {
                let values = column.as_primitive::<Float32Type>();
                self.push_floats(column, 32, |row| values.value(row).to_bits().into());
                Ok(())
            }
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>();
                self.push_floats(column, 64, |row| values.value(row).to_bits());
                Ok(())
            }
            _ => visit(column.as_ref(), self),
        }
    }

    fn push_floats(&mut self, column: &ArrayRef, width: u32, bits: impl Fn(usize) -> u64) {
        for row in 0..column.len() {
            match column.is_valid(row) {
                true => push_riding_number(&mut self.bytes, number_of_float(bits(row), width)),
                false => push_riding_null(&mut self.bytes),
            }
            self.ends.push(self.bytes.len());
        }
    }

    fn of_row(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(row).and_then(|end| self.bytes.get(start..*end)).unwrap_or_default()
    }

    fn cell<K>(&mut self, row: usize, cell: KeyCell<K>, push: impl FnOnce(&mut Vec<u8>, K)) {
        match cell {
            KeyCell::Null => push_riding_null(&mut self.bytes),
            KeyCell::Opaque => self.too_long.0.push(row),
            KeyCell::Key(key) => push(&mut self.bytes, key),
        }
        self.ends.push(self.bytes.len());
    }
}

impl CellVisitor for Cells {
    fn fixed(&mut self, row: usize, cell: KeyCell<u64>) {
        self.cell(row, cell, push_riding_number);
    }
    fn bytes(&mut self, row: usize, cell: KeyCell<&[u8]>) {
        self.cell(row, cell, push_riding_bytes);
    }
}

/// Values that rode along, as an array of `data_type`.
///
/// # Errors
/// A type that does not ride, or a value that is none of it.
pub fn decode_riding(values: Vec<RidingValue<'_>>, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    match data_type {
        DataType::Dictionary(_, value) => cast(&decode_riding(values, value)?, data_type),
        DataType::Float16 => floats::<Float16Type>(&values, 16, |bits| {
            <Float16Type as ArrowPrimitiveType>::Native::from_bits(bits as u16)
        }),
        DataType::Float32 => floats::<Float32Type>(&values, 32, |bits| f32::from_bits(bits as u32)),
        DataType::Float64 => floats::<Float64Type>(&values, 64, f64::from_bits),
        _ => {
            let literal = |value| match value {
                RidingValue::Null => LiteralKey::Null,
                RidingValue::Number(number) => LiteralKey::Key(Key::Fixed(number)),
                RidingValue::Bytes(bytes) => LiteralKey::Key(Key::Bytes(bytes.into_owned())),
            };
            decode_keys(&values.into_iter().map(literal).collect::<Vec<_>>(), data_type)
        }
    }
}

fn floats<T: ArrowPrimitiveType>(
    values: &[RidingValue<'_>],
    width: u32,
    value: impl Fn(u64) -> T::Native,
) -> Result<ArrayRef, ArrowError> {
    let number = |riding: &RidingValue<'_>| match riding {
        RidingValue::Null => Ok(None),
        RidingValue::Number(number) => Ok(Some(value(float_of_number(*number, width)))),
        RidingValue::Bytes(_) => Err(ArrowError::InvalidArgumentError("bytes are no float".to_owned())),
    };
    let values = values.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(values.into_iter().collect::<PrimitiveArray<T>>()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, DictionaryArray,
        FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, LargeStringArray, StringArray,
        TimestampNanosecondArray, UInt64Array,
    };
    use arrow::datatypes::{Int32Type, i256};
    use lakemark_format::MAX_KEY_LENGTH;
    use lakemark_format::riding::RowValues;

    use super::*;

    fn columns() -> Vec<ArrayRef> {
        let nan = f64::from_bits;
        let bytes: Vec<Option<&[u8]>> = vec![Some(&[0xff, 0]), None, Some(b""), Some(b"x")];
        let instants = TimestampNanosecondArray::from(vec![Some(i64::MIN), None, Some(7), Some(i64::MAX)]);
        let dictionary: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("b"), Some("a")].into_iter().collect();
        vec![
            Arc::new(Int8Array::from(vec![Some(-128), None, Some(0), Some(127)])),
            Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(0), Some(1)])),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)])),
            Arc::new(Float32Array::from(vec![Some(-0.0), None, Some(f32::from_bits(0x7fc0_0001)), Some(1.5)])),
            Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(nan(0xfff8_0000_0000_0123)), Some(nan(1))])),
            Arc::new(Date32Array::from(vec![Some(i32::MIN), None, Some(0), Some(20_000)])),
            Arc::new(instants.with_timezone("Europe/Berlin")),
            Arc::new(
                Decimal128Array::from(vec![Some(-5), None, Some(0), Some(10i128.pow(37))])
                    .with_precision_and_scale(38, 3)
                    .unwrap(),
            ),
            Arc::new(
                Decimal256Array::from(vec![Some(i256::MINUS_ONE), None, Some(i256::ZERO), Some(i256::from_i128(9))])
                    .with_precision_and_scale(76, -2)
                    .unwrap(),
            ),
            Arc::new(StringArray::from(vec![Some("Zürich"), None, Some(""), Some("a\0b")])),
            Arc::new(LargeStringArray::from(vec![Some("Zürich"), None, Some(""), Some("a")])),
            Arc::new(BinaryViewArray::from(bytes)),
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                    [Some([1u8, 2]), None, Some([0, 0]), Some([255, 0])].into_iter(),
                    2,
                )
                .unwrap(),
            ),
            Arc::new(dictionary),
        ]
    }

    #[test]
    fn values_come_back_bit_for_bit() {
        let columns = columns();
        let mut forms = RowForms::default();
        forms.push(&columns).unwrap();
        let held = forms.of_rows(&[0, 1, 2, 3]);
        assert!(held.rides());
        let rows: Vec<Vec<RidingValue<'_>>> = held.rows().map(|row| RowValues::of(row).collect()).collect();
        for (place, column) in columns.iter().enumerate() {
            assert!(riding_type_of(column.data_type()).is_some());
            let values = rows.iter().map(|row| row[place].clone()).collect();
            let back = decode_riding(values, column.data_type()).unwrap();
            assert_eq!(back.data_type(), column.data_type());
            if column.data_type().is_floating() {
                // NaN equals nothing, and the zeros are equal.
                let bits = |array: &ArrayRef| array.to_data().buffers()[0].as_slice().to_vec();
                let (have, want) = (bits(&back), bits(column));
                let width = want.len() / 4;
                for row in [0, 2, 3] {
                    assert_eq!(have[row * width..][..width], want[row * width..][..width], "row {row} of {place}");
                }
                assert!(back.is_null(1));
            } else {
                assert_eq!(&back, column);
            }
        }
    }

    #[test]
    fn a_row_with_a_long_value_does_not_ride_and_its_key_neither() {
        let long = "x".repeat(MAX_KEY_LENGTH + 1);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", long.as_str(), "c"]));
        let mut forms = RowForms::default();
        forms.push(&[texts]).unwrap();
        assert_eq!(forms.len(), 3);
        assert!(forms.of_rows(&[0, 2]).rides());
        assert!(!forms.of_rows(&[0, 1]).rides());
        assert!(!forms.of_rows(&[7]).rides(), "a row that is not there does not ride");
        let uneven: [ArrayRef; 2] = [Arc::new(Int8Array::from(vec![1])), Arc::new(Int8Array::from(vec![1, 2]))];
        assert!(forms.push(&uneven).is_err());
    }
}
