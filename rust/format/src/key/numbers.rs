//! How a value becomes a number, or bytes of one length, whose order is the order of the values.

/// The key of a signed number, a date, a time, a timestamp or a decimal of at most 64 bits (its unscaled value).
pub fn key_of_i64(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

/// The signed number of a key made by [`key_of_i64`].
pub fn i64_of_key(key: u64) -> i64 {
    (key ^ (1 << 63)).cast_signed()
}

/// The key of a half float from its bits: total order, -0 just below +0. `None` for NaN, which has no place in an order.
pub fn key_of_f16_bits(bits: u16) -> Option<u64> {
    let is_nan = bits & 0x7fff > 0x7c00;
    let ordered = if bits >> 15 == 1 { !bits } else { bits | 0x8000 };
    (!is_nan).then_some(u64::from(ordered))
}

/// The key of a float: total order, -0 just below +0. `None` for NaN, which has no place in an order.
pub fn key_of_f32(value: f32) -> Option<u64> {
    let bits = value.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | (1 << 31) };
    (!value.is_nan()).then_some(u64::from(ordered))
}

/// The key of a double: total order, -0 just below +0. `None` for NaN, which has no place in an order.
pub fn key_of_f64(value: f64) -> Option<u64> {
    let bits = value.to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | (1 << 63) };
    (!value.is_nan()).then_some(ordered)
}

/// The key of a 128-bit decimal: its unscaled value with the sign bit flipped, big endian.
pub fn key_of_i128(value: i128) -> [u8; 16] {
    (value.cast_unsigned() ^ (1 << 127)).to_be_bytes()
}

/// The key of a 256-bit decimal from its big-endian two's complement bytes.
pub fn key_of_i256_be(mut value: [u8; 32]) -> [u8; 32] {
    if let Some(first) = value.first_mut() {
        *first ^= 0x80;
    }
    value
}
