//! How fences are stored: numbers as steps and spans, bytes without what they share with the fence before.

use super::{ByteFence, FencePair, MAX_FENCE_BYTES, decode_numbers, encode_numbers};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::MAX_KEY_LENGTH;

/// The step from the upper fence before to the lower fence, up or down; then what lies between the two fences.
pub(super) fn encode_fixed(fences: &[FencePair<u64>], start: usize, zones: usize, out: &mut ByteWriter) {
    let mut upper = start.checked_sub(1).and_then(|last| fences.get(last)).map_or(0, |fence| fence.high);
    let fences = fences.get(start..start + zones).unwrap_or_default();
    let step = |fence: &FencePair<u64>| zigzag(fence.low.wrapping_sub(std::mem::replace(&mut upper, fence.high)));
    let steps: Vec<u64> = fences.iter().map(step).collect();
    encode_numbers(&steps, out);
    let spans: Vec<u64> = fences.iter().map(|fence| fence.high.wrapping_sub(fence.low)).collect();
    encode_numbers(&spans, out);
}

pub(super) fn decode_fixed(input: &mut ByteReader<'_>, zones: usize, fences: &mut Vec<FencePair<u64>>) -> Result<()> {
    let steps = decode_numbers(input, zones)?;
    let spans = decode_numbers(input, zones)?;
    let mut upper = fences.last().map_or(0, |fence| fence.high);
    for (step, span) in steps.into_iter().zip(spans) {
        let low = upper.wrapping_add(unzigzag(step));
        upper = low
            .checked_add(span)
            .ok_or_else(|| FormatError::invalid("an upper fence", "beyond 64 bits", "a 64-bit number"))?;
        fences.push(FencePair { low, high: upper });
    }
    Ok(())
}

/// Steps count in 64 bits around the circle: a small one down is as short as one up.
fn zigzag(step: u64) -> u64 {
    (step << 1) ^ ((step.cast_signed() >> 63).cast_unsigned())
}

fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

/// Each fence without the bytes that it shares with the one before: lower, upper, lower, …
pub(super) fn encode_bytes(fences: &[ByteFence], start: usize, zones: usize, out: &mut ByteWriter) -> Result<()> {
    let mut before = start.checked_sub(1).and_then(|last| fences.get(last)).map_or(&[][..], |fence| &fence.high);
    let fences = fences.get(start..start + zones).unwrap_or_default();
    for fence in fences.iter().flat_map(|fence| [&fence.low, &fence.high]) {
        let shared = before.iter().zip(fence).take_while(|(a, b)| a == b).count();
        out.length(shared);
        out.blob("a fence", fence.get(shared..).unwrap_or_default(), MAX_KEY_LENGTH)?;
        before = fence;
    }
    Ok(())
}

/// `left` is how many bytes further fences may have.
pub(super) fn decode_bytes(
    input: &mut ByteReader<'_>,
    zones: usize,
    left: &mut usize,
    fences: &mut Vec<ByteFence>,
) -> Result<()> {
    for _ in 0..zones {
        let low = decode_byte_fence(input, fences.last().map_or(&[], |fence| &fence.high), left)?;
        let high = decode_byte_fence(input, &low, left)?;
        fences.push(ByteFence { low, high });
    }
    Ok(())
}

fn decode_byte_fence(input: &mut ByteReader<'_>, before: &[u8], left: &mut usize) -> Result<Box<[u8]>> {
    let shared = input.varint_u32("the shared bytes of a fence")? as usize;
    let rest = input.blob("a fence", MAX_KEY_LENGTH)?;
    let Some((kept, other)) = before.split_at_checked(shared) else {
        let expected = format!("at most {}", before.len());
        return Err(FormatError::invalid("the shared bytes of a fence", shared, expected));
    };
    if other.first().zip(rest.first()).is_some_and(|(before, now)| before == now) {
        return Err(FormatError::invalid("the shared bytes of a fence", shared, "all that are equal"));
    }
    let length = shared + rest.len();
    let limit = MAX_KEY_LENGTH.min(*left);
    if length > limit {
        return Err(FormatError::TooLong { what: "the bytes of a fence", got: length as u64, limit: limit as u64 });
    }
    *left -= length;
    Ok([kept, rest].concat().into())
}

pub(super) fn bytes_fit(fences: &[ByteFence]) -> bool {
    let mut held = 0usize;
    let in_order = fences.iter().all(|ByteFence { low, high }| {
        held = held.saturating_add(low.len() + high.len());
        low.len() <= MAX_KEY_LENGTH && high.len() <= MAX_KEY_LENGTH && low <= high
    });
    in_order && held <= MAX_FENCE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_up_and_down() {
        for step in [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1] {
            assert_eq!(unzigzag(zigzag(step)), step);
        }
        assert_eq!((zigzag(1), zigzag(u64::MAX)), (2, 1));
    }

    /// Three bytes for a fence of 4096: without a limit, a directory of 6 MB would take 8 GB of memory.
    #[test]
    fn front_coded_fences_do_not_make_memory_of_nothing() {
        let most = MAX_FENCE_BYTES / MAX_KEY_LENGTH / 2;
        let again = [0x80, 0x20, 0];
        for (zones, fits) in [(most, true), (most + 1, false)] {
            let mut out = ByteWriter::new();
            out.length(0);
            out.blob("a fence", &[b'x'; MAX_KEY_LENGTH], MAX_KEY_LENGTH).unwrap();
            (1..2 * zones).for_each(|_| out.bytes(&again));
            let (mut left, mut fences) = (MAX_FENCE_BYTES, Vec::new());
            let decoded = decode_bytes(&mut ByteReader::new("zones", out.as_slice()), zones, &mut left, &mut fences);
            assert_eq!((decoded.is_ok(), left), (fits, 0));
            assert_eq!(fences.len(), most);
        }
        let fence = ByteFence { low: vec![1; MAX_KEY_LENGTH].into(), high: vec![2; MAX_KEY_LENGTH].into() };
        assert!(bytes_fit(&vec![fence.clone(); most]) && !bytes_fit(&vec![fence; most + 1]));
    }
}
