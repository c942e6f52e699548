//! Row sets as they travel in splits: whole, runs or bits, whichever is smaller.

use arrow::buffer::{BooleanBuffer, Buffer};
use lakemark_table::RowSet;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use serde::{Deserialize, Serialize};

use crate::error::{NativeError, Result};

/// How a row set over a range of rows of one file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowsForm {
    /// All of them, in no byte.
    All,
    /// Alternating numbers of rows to skip and to take, as LEB128.
    Runs,
    /// One bit per row, low bits first.
    Bits,
}

/// A row set, written. The form stands in an input's JSON and the bytes beside it, as millions of bits are no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedRows {
    pub(crate) form: RowsForm,
    pub(crate) bytes: Vec<u8>,
}

impl EncodedRows {
    /// Writes a row set.
    pub(crate) fn encode(set: &RowSet) -> Self {
        if set.is_full() {
            return Self { form: RowsForm::All, bytes: Vec::new() };
        }
        let bits_length = set.universe().div_ceil(8) as usize;
        let mut runs = Vec::new();
        let mut end = 0;
        for range in set.iter_ranges() {
            leb128(&mut runs, range.start - end);
            leb128(&mut runs, range.end - range.start);
            end = range.end;
            if runs.len() > bits_length {
                return Self { form: RowsForm::Bits, bytes: bits(set, bits_length) };
            }
        }
        Self { form: RowsForm::Runs, bytes: runs }
    }
}

impl RowsForm {
    /// The set that the bytes say, as a selection over `universe` rows.
    pub(crate) fn selection(self, bytes: &[u8], universe: usize) -> Result<RowSelection> {
        let mut ranges = match self {
            Self::All => vec![RowSelector::select(universe)],
            Self::Runs => {
                let mut selectors = Vec::new();
                let mut rest = bytes;
                while !rest.is_empty() {
                    selectors.push(RowSelector::skip(read_leb128(&mut rest)?));
                    selectors.push(RowSelector::select(read_leb128(&mut rest)?));
                }
                selectors
            }
            Self::Bits => {
                if bytes.len() != universe.div_ceil(8) {
                    let bits = bytes.len() * 8;
                    return Err(NativeError::internal(format!("an input has {bits} bits for {universe} rows")));
                }
                let mask = BooleanBuffer::new(Buffer::from(bytes), 0, universe);
                return Ok(RowSelection::from_boolean_buffer(mask));
            }
        };
        let named: usize = ranges.iter().map(|selector| selector.row_count).sum();
        if named > universe {
            return Err(NativeError::internal(format!("an input names {named} rows of {universe}")));
        }
        ranges.push(RowSelector::skip(universe - named));
        Ok(RowSelection::from(ranges))
    }
}

fn bits(set: &RowSet, length: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; length];
    for row in set.iter() {
        if let Some(byte) = bytes.get_mut(row as usize / 8) {
            *byte |= 1 << (row % 8);
        }
    }
    bytes
}

fn leb128(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_leb128(input: &mut &[u8]) -> Result<usize> {
    let mut value = 0_u64;
    for shift in (0..35).step_by(7) {
        let Some((byte, rest)) = input.split_first() else {
            break;
        };
        *input = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return usize::try_from(value).map_err(|_| NativeError::internal("an input's rows are out of range"));
        }
    }
    Err(NativeError::internal("an input's rows are cut short"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(set: &RowSet) -> Vec<u32> {
        let universe = set.universe();
        let EncodedRows { form, bytes } = EncodedRows::encode(set);
        let selection = form.selection(&bytes, universe as usize).expect("own encoding");
        let mut rows = Vec::new();
        let mut at = 0_u32;
        for selector in selection.iter() {
            let count = u32::try_from(selector.row_count).expect("small");
            if !selector.skip {
                rows.extend(at..at + count);
            }
            at += count;
        }
        assert_eq!(at, universe);
        rows
    }

    #[test]
    fn every_shape_comes_back_as_it_was() {
        let odd: Vec<u32> = (0..1000).filter(|row| row % 2 == 1).collect();
        for (set, form) in [
            (RowSet::full(1000), RowsForm::All),
            (RowSet::empty(1000), RowsForm::Runs),
            (RowSet::from_range(300..700, 1000), RowsForm::Runs),
            (RowSet::from_rows(odd, 1000), RowsForm::Bits),
            (RowSet::from_rows(vec![0, 999], 1000), RowsForm::Runs),
        ] {
            assert_eq!(EncodedRows::encode(&set).form, form);
            assert_eq!(round_trip(&set), set.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn damaged_rows_are_errors() {
        assert!(RowsForm::Runs.selection(&[0x80], 10).is_err(), "cut short");
        assert!(RowsForm::Runs.selection(&[0, 0xff, 1], 10).is_err(), "too many rows");
        assert!(RowsForm::Bits.selection(&[1], 10).is_err(), "too few bits");
    }
}
