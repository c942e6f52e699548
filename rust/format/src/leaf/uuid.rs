//! UUIDs in their canonical text (RFC 9562, section 4): 32 lower-case hexadecimal digits in five groups.
//!
//! The order of such texts is that of the numbers that they write.

/// Characters of the text.
const LENGTH: usize = 36;
/// The places of the dashes.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// The number of a canonical text; none of any other text.
pub(super) fn number_of(text: &[u8]) -> Option<u128> {
    if text.len() != LENGTH {
        return None;
    }
    text.iter().enumerate().try_fold(0u128, |number, (place, byte)| match byte {
        b'-' if DASHES.contains(&place) => Some(number),
        _ if DASHES.contains(&place) => None,
        b'0'..=b'9' => Some(number << 4 | u128::from(byte - b'0')),
        b'a'..=b'f' => Some(number << 4 | u128::from(byte - b'a' + 10)),
        _ => None,
    })
}

/// The canonical text of a number.
pub(super) fn text_of(number: u128) -> Vec<u8> {
    let mut text = Vec::with_capacity(LENGTH);
    for digit in format!("{number:032x}").bytes() {
        if DASHES.contains(&text.len()) {
            text.push(b'-');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_texts_are_numbers_and_no_others() {
        let text = "01234567-89ab-cdef-0011-223344556677";
        assert_eq!(number_of(text.as_bytes()), Some(0x0123_4567_89ab_cdef_0011_2233_4455_6677));
        for number in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0011_2233_4455_6677] {
            assert_eq!(number_of(&text_of(number)), Some(number));
        }
        let others = [
            "01234567-89AB-cdef-0011-223344556677",
            "0123456789ab-cdef-0011-2233445566770",
            "01234567-89ab-cdef-0011-22334455667",
            "01234567-89ab-cdef-0011-22334455667g",
            "01234567--9ab-cdef-0011-223344556677",
            "",
        ];
        assert!(others.iter().all(|text| number_of(text.as_bytes()).is_none()));
    }
}
