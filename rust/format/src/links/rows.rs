//! The rows of the links of a leaf, which lie apart from it.

use std::borrow::Cow;

use super::MAX_LEAF_LINKS;
use crate::codec::ByteReader;
use crate::error::{FormatError, Result};
use crate::leaf::{CountedRows, KeyRows, form};
use crate::packed::decode_column;

/// The rows of so many links, in their order, in a row space of `universe` rows. Long postings are in other places.
///
/// # Errors
/// Bytes that are none of so many links.
pub fn decode_link_rows(bytes: &[u8], links: u32, universe: u32) -> Result<Vec<CountedRows<'_>>> {
    if links as usize > MAX_LEAF_LINKS {
        let (got, limit) = (u64::from(links), MAX_LEAF_LINKS as u64);
        return Err(FormatError::TooLong { what: "the links of a leaf", got, limit });
    }
    let count = links as usize;
    let mut input = ByteReader::new("the rows of links", bytes);
    let mut rows = Vec::with_capacity(count);
    for beyond_one in decode_column(&mut input, count, "the rows of a link beyond one")? {
        let of_link = beyond_one.checked_add(1);
        rows.push(
            of_link.ok_or_else(|| FormatError::invalid("the rows of a link", "beyond 32 bits", "a 32-bit number"))?,
        );
    }
    let found = match input.u8()? {
        form::FOLLOWING => {
            let mut next = input.varint_u32("the first row of a link")?;
            let starts = rows.iter().map(|rows| {
                let start = next;
                next = next.saturating_add(*rows);
                start
            });
            let starts: Vec<u32> = starts.collect();
            runs(&starts, &rows, universe)?
        }
        form::STARTS => runs(&decode_column(&mut input, count, "the first row of a link")?, &rows, universe)?,
        form::POSTINGS => postings(&mut input, &rows)?,
        other => return Err(FormatError::invalid("the form of the rows of links", other, "0 to 2")),
    };
    input.finish()?;
    Ok(found)
}

fn runs(starts: &[u32], rows: &[u32], universe: u32) -> Result<Vec<CountedRows<'static>>> {
    let run = |(start, rows): (&u32, &u32)| match start.checked_add(*rows) {
        Some(end) if end <= universe => Ok(CountedRows { rows: *rows, rows_in: KeyRows::Run(*start) }),
        _ => Err(FormatError::invalid("the rows of a link", start, format_args!("{rows} rows below {universe}"))),
    };
    starts.iter().zip(rows).map(run).collect()
}

fn postings<'a>(input: &mut ByteReader<'a>, rows: &[u32]) -> Result<Vec<CountedRows<'a>>> {
    let places = decode_column(input, rows.len(), "the place of a posting")?;
    let is_long = |place: u32| place & 1 == 1;
    let long = places.iter().filter(|place| is_long(**place));
    let offsets = long.map(|_| input.varint()).collect::<Result<Vec<u64>>>()?;
    let mut offsets = offsets.into_iter();
    let mut found = Vec::with_capacity(rows.len());
    for (place, rows) in places.iter().zip(rows) {
        let rows_in = match is_long(*place) {
            false => KeyRows::Inline(Cow::Borrowed(input.bytes(*place as usize >> 1)?)),
            true => KeyRows::Long { offset: offsets.next().unwrap_or_default(), length: place >> 1 },
        };
        found.push(CountedRows { rows: *rows, rows_in });
    }
    Ok(found)
}
