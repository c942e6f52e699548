//! The keys of a list in a leaf, where keys are bytes: as numbers where that takes the fewest bytes, else front coded.

use super::{columns, texts};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType};

/// How keys are written.
mod form {
    pub(super) const TEXTS: u8 = 0;
    pub(super) const COLUMNS: u8 = 1;
}

/// Appends all keys but the first, which ascend; nothing if there is no other.
pub(super) fn encode(keys: &[&Key], key_type: &KeyType, out: &mut ByteWriter) -> Result<()> {
    let mut held = Vec::with_capacity(keys.len());
    for key in keys {
        match key {
            Key::Bytes(bytes) => held.push(bytes.as_slice()),
            Key::Fixed(_) => return Err(FormatError::invalid("a key", "a number", "bytes")),
        }
    }
    if held.len() < 2 {
        return Ok(());
    }
    let mut plain = ByteWriter::new();
    texts::encode(&held, &mut plain)?;
    match columns::encode(&held, key_type).filter(|columns| columns.len() < plain.len()) {
        Some(columns) => {
            out.u8(form::COLUMNS);
            out.bytes(columns.as_slice());
        }
        None => {
            out.u8(form::TEXTS);
            out.bytes(plain.as_slice());
        }
    }
    Ok(())
}

/// So many keys, of which the first is known.
pub(super) fn decode(input: &mut ByteReader<'_>, first: &[u8], count: usize, key_type: &KeyType) -> Result<Vec<Key>> {
    let held = match count {
        0 | 1 => vec![first.to_vec()],
        _ => match input.u8()? {
            form::TEXTS => texts::decode(input, first, count)?,
            form::COLUMNS => columns::decode(input, first, count, key_type)?,
            other => return Err(FormatError::invalid("the form of keys", other, "0 or 1")),
        },
    };
    let checked = held.into_iter().map(|bytes| {
        let key = Key::Bytes(bytes);
        key_type.check(&key).map(|()| key)
    });
    checked.collect()
}
