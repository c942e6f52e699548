//! The predicates of links, which the directory holds.

use std::collections::HashSet;

use super::LinkShape;
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType};

/// The most predicates of a segment. Part of the format.
pub const MAX_PREDICATES: usize = 65_535;

/// A predicate is NULL or a key.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const KEY: u8 = 1;
}

pub(crate) fn encode_predicates(predicates: &[Option<Key>], out: &mut ByteWriter) -> Result<()> {
    out.length(predicates.len());
    predicates.iter().try_for_each(|predicate| match predicate {
        None => {
            out.u8(tag::NULL);
            Ok(())
        }
        Some(key) => {
            out.u8(tag::KEY);
            key.encode(out)
        }
    })
}

/// The predicates of links whose keys are of a type.
pub(crate) fn decode_predicates(input: &mut ByteReader<'_>, key_type: &KeyType) -> Result<Vec<Option<Key>>> {
    let count = input.count("the number of predicates", 1)?;
    if count > MAX_PREDICATES {
        return Err(too_many(count));
    }
    let shape = LinkShape::of(key_type)?;
    let mut predicates = Vec::with_capacity(count);
    for _ in 0..count {
        predicates.push(match (input.u8()?, &shape.predicate) {
            (tag::NULL, _) => None,
            (tag::KEY, Some(of)) => Some(Key::decode(input, of)?),
            (other, _) => return Err(FormatError::invalid("the first byte of a predicate", other, "0 or 1")),
        });
    }
    Ok(predicates)
}

/// Checks the predicates of a segment that has links or none.
pub(crate) fn validate_predicates(predicates: &[Option<Key>], key_type: &KeyType, has_links: bool) -> Result<()> {
    let shape = LinkShape::of(key_type)?;
    if predicates.len() > MAX_PREDICATES {
        return Err(too_many(predicates.len()));
    }
    if predicates.is_empty() == (has_links && shape.predicate.is_some()) {
        let expected = "one or more where links have a predicate, none elsewhere";
        return Err(FormatError::invalid("the predicates of links", predicates.len(), expected));
    }
    if let Some(of) = &shape.predicate {
        predicates.iter().flatten().try_for_each(|key| check(key, of))?;
    }
    let mut seen = HashSet::with_capacity(predicates.len());
    match predicates.iter().all(|predicate| seen.insert(predicate)) {
        true => Ok(()),
        false => Err(FormatError::invalid("a predicate of links", "there twice", "once")),
    }
}

fn check(predicate: &Key, of: &KeyType) -> Result<()> {
    of.check(predicate)?;
    let Key::Bytes(text) = predicate else { return Ok(()) };
    let problem = if *of == KeyType::Utf8 { std::str::from_utf8(text).err() } else { None };
    problem.map_or(Ok(()), |error| Err(FormatError::invalid("a predicate of links", error, "UTF-8")))
}

/// The error of more predicates than a segment can have.
pub(super) fn too_many(predicates: usize) -> FormatError {
    FormatError::TooLong { what: "the predicates of links", got: predicates as u64, limit: MAX_PREDICATES as u64 }
}
