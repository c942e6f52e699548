//! The values of rows that ride along, in row form: one value after the other, each with a tag.

use std::borrow::Cow;

use super::{MAX_RIDING_ROWS, RidingValue};
use crate::key::MAX_KEY_LENGTH;

/// The most bytes in row form of the rows of a key that rides; a writer reads the rest in the data.
pub const MAX_RIDING_KEY_BYTES: usize = 1 << 16;

const NULL: u8 = 0;
const NUMBER: u8 = 1;
const BYTES: u8 = 2;

/// Appends NULL.
pub fn push_riding_null(out: &mut Vec<u8>) {
    out.push(NULL);
}

/// Appends a number.
pub fn push_riding_number(out: &mut Vec<u8>, number: u64) {
    out.push(NUMBER);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends bytes, which are those of a key at most as long as a key may be.
pub fn push_riding_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = bytes.get(..MAX_KEY_LENGTH).unwrap_or(bytes);
    out.push(BYTES);
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The values of a row, column after column. Row form is never read from a file that others could have written: what is no value ends it.
#[derive(Clone, Debug)]
pub struct RowValues<'a> {
    rest: &'a [u8],
}

impl<'a> RowValues<'a> {
    /// The values of a row in row form.
    #[must_use]
    pub fn of(row: &'a [u8]) -> Self {
        Self { rest: row }
    }
}

impl<'a> Iterator for RowValues<'a> {
    type Item = RidingValue<'a>;

    fn next(&mut self) -> Option<RidingValue<'a>> {
        let (tag, rest) = self.rest.split_first()?;
        let (value, rest) = match *tag {
            NULL => (RidingValue::Null, rest),
            NUMBER => {
                let (number, rest) = rest.split_first_chunk()?;
                (RidingValue::Number(u64::from_le_bytes(*number)), rest)
            }
            BYTES => {
                let (length, rest) = rest.split_first_chunk()?;
                let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                (RidingValue::Bytes(Cow::Borrowed(bytes)), rest)
            }
            _ => return None,
        };
        self.rest = rest;
        Some(value)
    }
}

/// What rides along with the rows of a key, row after row in row form; nothing if the rows do not ride.
#[derive(Clone, Debug, Default)]
pub struct RidingRows {
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<u32>,
    /// Whether a row could not ride, so that none of the key does.
    is_barred: bool,
}

/// Rows that do not ride are equal, whatever the reason.
impl PartialEq for RidingRows {
    fn eq(&self, other: &Self) -> bool {
        (&self.bytes, &self.ends) == (&other.bytes, &other.ends)
    }
}

impl Eq for RidingRows {}

impl RidingRows {
    /// Whether the rows ride.
    #[must_use]
    pub fn rides(&self) -> bool {
        !self.ends.is_empty()
    }

    /// The bytes of all rows.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the next row, in row form; none if it cannot ride. Once one cannot, or there are more rows or bytes than may ride, no row of the
    /// key does.
    pub fn push(&mut self, row: Option<&[u8]>) {
        let fits = |row: &&[u8]| {
            !row.is_empty() && self.ends.len() < MAX_RIDING_ROWS && self.bytes.len() + row.len() <= MAX_RIDING_KEY_BYTES
        };
        match row.filter(fits) {
            Some(row) if !self.is_barred => {
                self.bytes.extend_from_slice(row);
                self.ends.push(self.bytes.len() as u32);
            }
            _ => {
                self.bytes.clear();
                self.ends.clear();
                self.is_barred = true;
            }
        }
    }

    /// The same rows with some of their columns alone, by their places. A row that lacks one of these bars the key.
    #[must_use]
    pub fn with_columns(&self, columns: &[usize]) -> Self {
        let mut narrower = Self { is_barred: self.is_barred, ..Self::default() };
        let mut form = Vec::new();
        for row in self.rows() {
            form.clear();
            let values: Vec<RidingValue<'_>> = RowValues::of(row).collect();
            let mut is_whole = true;
            for column in columns {
                match values.get(*column) {
                    Some(RidingValue::Null) => push_riding_null(&mut form),
                    Some(RidingValue::Number(number)) => push_riding_number(&mut form, *number),
                    Some(RidingValue::Bytes(bytes)) => push_riding_bytes(&mut form, bytes),
                    None => is_whole = false,
                }
            }
            narrower.push(Some(form.as_slice()).filter(|_| is_whole));
        }
        narrower
    }

    /// Takes what was gathered, and begins anew.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(*start as usize..*end as usize).unwrap_or_default())
    }
}
