//! Bounds-checked reading and plain writing of little-endian numbers, varints and strings.
//!
//! [`ByteReader`] never trusts a length: a count or a length is compared with the bytes that are left *before* anything is
//! allocated. Varints are LEB128 in their shortest form, so that every value has exactly one encoding.

use crate::error::{FormatError, Result};

/// A cursor over bytes that belong to one structure, named in the errors.
#[derive(Debug, Clone)]
pub struct ByteReader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    /// A reader at the first byte of the structure `what`.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    /// The next byte, which stays where it is; none at the end.
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The bytes that are left, which stay where they are.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(length) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => {
                Err(FormatError::Truncated { what: self.what, got: self.rest.len() as u64, expected: length as u64 })
            }
        }
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(FormatError::Truncated { what: self.what, got: self.rest.len() as u64, expected: N as u64 }),
        }
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes, little endian.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes, little endian.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little endian.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Eight bytes, little endian, two's complement.
    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self, what: &'static str) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(FormatError::invalid(what, other, "0 or 1")),
        }
    }

    /// A LEB128 number of at most 64 bits in its shortest form.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(FormatError::invalid("a varint", "more than 64 bits", "at most 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(FormatError::invalid("a varint", "padded with zeros", "its shortest form"));
                }
                return Ok(value);
            }
        }
        Err(FormatError::invalid("a varint", "more than 10 bytes", "at most 10 bytes"))
    }

    /// A LEB128 number of at most 128 bits in its shortest form.
    pub fn varint_wide(&mut self) -> Result<u128> {
        let mut value = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.u8()?;
            let bits = u128::from(byte & 0x7f);
            if shift == 126 && bits > 3 {
                return Err(FormatError::invalid("a wide varint", "more than 128 bits", "at most 128 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(FormatError::invalid("a wide varint", "padded with zeros", "its shortest form"));
                }
                return Ok(value);
            }
        }
        Err(FormatError::invalid("a wide varint", "more than 19 bytes", "at most 19 bytes"))
    }

    /// A varint that must fit 32 bits.
    pub fn varint_u32(&mut self, what: &'static str) -> Result<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| FormatError::TooLong { what, got: value, limit: u64::from(u32::MAX) })
    }

    /// A signed varint (zigzag).
    pub fn varint_signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// The number of items that follow, each at least `min_bytes` long, so that the count is bounded by the bytes left.
    pub fn count(&mut self, what: &'static str, min_bytes: usize) -> Result<usize> {
        let count = self.varint()?;
        let limit = (self.rest.len() / min_bytes.max(1)) as u64;
        match usize::try_from(count) {
            Ok(fits) if count <= limit => Ok(fits),
            _ => Err(FormatError::TooLong { what, got: count, limit }),
        }
    }

    /// Length-prefixed bytes of at most `limit` bytes.
    pub fn blob(&mut self, what: &'static str, limit: usize) -> Result<&'a [u8]> {
        let length = self.varint()?;
        match usize::try_from(length) {
            Ok(fits) if fits <= limit => self.bytes(fits),
            _ => Err(FormatError::TooLong { what, got: length, limit: limit as u64 }),
        }
    }

    /// A length-prefixed UTF-8 string of at most `limit` bytes.
    pub fn string(&mut self, what: &'static str, limit: usize) -> Result<String> {
        let bytes = self.blob(what, limit)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(FormatError::invalid(what, error, "UTF-8")),
        }
    }

    /// Ends the structure: bytes left over are an error.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(FormatError::invalid(
            self.what,
            format!("followed by {} more bytes", self.rest.len()),
            "no bytes after its last field",
        ))
    }
}

/// Appends what [`ByteReader`] reads.
#[derive(Debug, Clone, Default)]
pub struct ByteWriter {
    bytes: Vec<u8>,
}

impl ByteWriter {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes written.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// How many bytes were written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Two bytes, little endian.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Four bytes, little endian.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Eight bytes, little endian.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Eight bytes, little endian, two's complement.
    pub fn i64(&mut self, value: i64) {
        self.bytes(&value.to_le_bytes());
    }

    /// A byte 0 or 1.
    pub fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// A LEB128 number in its shortest form.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    /// A LEB128 number of up to 128 bits in its shortest form.
    pub fn varint_wide(&mut self, mut value: u128) {
        while value >= 0x80 {
            self.u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    /// A signed varint (zigzag).
    pub fn varint_signed(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    /// A length.
    pub fn length(&mut self, value: usize) {
        self.varint(value as u64);
    }

    /// Length-prefixed bytes, at most `limit` long.
    pub fn blob(&mut self, what: &'static str, bytes: &[u8], limit: usize) -> Result<()> {
        if bytes.len() > limit {
            return Err(FormatError::TooLong { what, got: bytes.len() as u64, limit: limit as u64 });
        }
        self.length(bytes.len());
        self.bytes(bytes);
        Ok(())
    }

    /// A length-prefixed UTF-8 string, at most `limit` bytes long.
    pub fn string(&mut self, what: &'static str, text: &str, limit: usize) -> Result<()> {
        self.blob(what, text.as_bytes(), limit)
    }
}
