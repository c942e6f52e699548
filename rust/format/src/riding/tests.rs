use proptest::prelude::*;

use super::*;
use crate::key::TimeUnit;

/// A value of each column for each row, or none if the key's rows do not ride.
type KeyRowsOfTest = Option<Vec<Vec<RidingValue<'static>>>>;

fn row_form(values: &[RidingValue<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        match value {
            RidingValue::Null => push_riding_null(&mut out),
            RidingValue::Number(number) => push_riding_number(&mut out, *number),
            RidingValue::Bytes(bytes) => push_riding_bytes(&mut out, bytes),
        }
    }
    out
}

fn gathered(keys: &[KeyRowsOfTest]) -> Vec<RidingRows> {
    let of_key = |key: &KeyRowsOfTest| {
        let mut rows = RidingRows::default();
        match key {
            None => rows.push(None),
            Some(of_rows) => of_rows.iter().for_each(|row| rows.push(Some(&row_form(row)))),
        }
        rows
    };
    keys.iter().map(of_key).collect()
}

fn encoded(types: &[KeyType], keys: &[KeyRowsOfTest]) -> Vec<u8> {
    let rows = gathered(keys);
    let mut out = ByteWriter::new();
    encode(types, &rows.iter().collect::<Vec<_>>(), &mut out).unwrap();
    out.into_vec()
}

fn round_trip(types: &[KeyType], keys: &[KeyRowsOfTest]) -> usize {
    let bytes = encoded(types, keys);
    let counts: Vec<u32> = keys.iter().map(|key| key.as_ref().map_or(3, |rows| rows.len() as u32)).collect();
    let read = RidingSegment::decode(ByteReader::new("riding", &bytes), types, &counts, |_| true).unwrap();
    for (place, (key, rows)) in keys.iter().zip(gathered(keys)).enumerate() {
        assert_eq!(read.rides(place), key.is_some());
        for (row, values) in key.iter().flatten().enumerate() {
            for (column, value) in values.iter().enumerate() {
                assert_eq!(read.value(column, place, row), Some(value), "key {place}, row {row}, column {column}");
            }
        }
        assert_eq!(read.rows_of_key(place, counts[place] as usize), rows);
    }
    // A single column is read past the others.
    for wanted in 0..types.len() {
        let one = RidingSegment::decode(ByteReader::new("riding", &bytes), types, &counts, |column| column == wanted);
        let one = one.unwrap();
        for (place, key) in keys.iter().enumerate() {
            for (row, values) in key.iter().flatten().enumerate() {
                assert_eq!(one.value(wanted, place, row), Some(&values[wanted]));
            }
        }
    }
    bytes.len()
}

fn number(number: u64) -> RidingValue<'static> {
    RidingValue::Number(number)
}

fn text(text: &str) -> RidingValue<'static> {
    RidingValue::Bytes(Cow::Owned(text.as_bytes().to_vec()))
}

#[test]
fn floats_keep_every_bit() {
    for bits in [0.0f64, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::MIN, 1.5].map(f64::to_bits) {
        assert_eq!(float_of_number(number_of_float(bits, 64), 64), bits);
    }
    for bits in [0u64, 0x8000_0000, 0x7fc0_0001, 0xffc0_1234, 0x3f80_0000] {
        assert_eq!(float_of_number(number_of_float(bits, 32), 32), bits);
        assert!(number_of_float(bits, 32) <= u64::from(u32::MAX));
    }
    for bits in 0..=u64::from(u16::MAX) {
        assert_eq!(float_of_number(number_of_float(bits, 16), 16), bits);
    }
    let negative_zero = number_of_float((-0.0f64).to_bits(), 64);
    assert!(negative_zero < number_of_float(0.0f64.to_bits(), 64));
}

#[test]
fn columns_of_every_form_come_back() {
    let types =
        [KeyType::Int32, KeyType::Utf8, KeyType::Bool, KeyType::Timestamp { unit: TimeUnit::Second, zoned: true }];
    let low = 1u64 << 63;
    let keys: Vec<KeyRowsOfTest> = (0..40u64)
        .map(|key| {
            let rows = (0..=key % 3).map(|row| {
                let city = ["Berlin", "Bern", ""][(key % 3) as usize];
                vec![
                    if row == 2 { RidingValue::Null } else { number(low + key) },
                    text(city),
                    number(key & 1),
                    RidingValue::Null,
                ]
            });
            (key % 7 != 5).then(|| rows.collect())
        })
        .collect();
    round_trip(&types, &keys);
    round_trip(&types, &[None, None]);
    round_trip(&[], &[None]);
}

#[test]
fn equal_texts_and_common_beginnings_are_there_once() {
    let of = |texts: Vec<String>| {
        let keys: Vec<KeyRowsOfTest> = texts.into_iter().map(|one| Some(vec![vec![text(&one)]])).collect();
        round_trip(&[KeyType::Utf8], &keys)
    };
    // The form, no NULL, a dictionary of two texts of which nothing is shared, and a bit for each key.
    assert!(of((0..64).map(|key| ["Amsterdam", "Zürich"][key % 2].to_owned()).collect()) < 40);
    assert!(of((0..64).map(|key| format!("https://example.org/{key:02}")).collect()) < 64 * 2 + 40);
    // Decimals of 128 bits differ in few of their bytes.
    let decimal = KeyType::Decimal { width_bits: 128, precision: 38, scale: 2 };
    let bytes = |value: i128| RidingValue::Bytes(Cow::Owned(crate::key::key_of_i128(value).to_vec()));
    let keys: Vec<KeyRowsOfTest> = (0..60).map(|key| Some(vec![vec![bytes(key * 100)]])).collect();
    assert!(round_trip(&[decimal], &keys) < 60 * 2 + 40);
}

#[test]
fn some_columns_of_rows_are_those_of_the_rows() {
    let row = |n: u64| vec![number(n), text("a"), RidingValue::Null];
    let rows = &gathered(&[Some(vec![row(1), row(2)])])[0];
    let expected = |n: u64| vec![RidingValue::Null, number(n)];
    assert_eq!(rows.with_columns(&[2, 0]), gathered(&[Some(vec![expected(1), expected(2)])])[0]);
    assert_eq!(rows.with_columns(&[0, 1, 2]), *rows);
    assert!(!rows.with_columns(&[3]).rides() && !rows.with_columns(&[]).rides());
}

#[test]
fn a_key_of_many_rows_or_bytes_does_not_ride() {
    let mut rows = RidingRows::default();
    (0..MAX_RIDING_ROWS).for_each(|row| rows.push(Some(&row_form(&[number(row as u64)]))));
    assert!(rows.rides() && rows.rows().count() == MAX_RIDING_ROWS);
    rows.push(Some(&row_form(&[number(1)])));
    assert!(!rows.rides());
    rows.push(Some(&row_form(&[number(1)])));
    assert!(!rows.rides(), "a row of a key that does not ride rides no more than the others");
    assert_eq!(rows.take(), RidingRows::default());
    rows.push(Some(&row_form(&[number(1)])));
    assert!(rows.rides(), "the next key may ride");
    let long = row_form(&[RidingValue::Bytes(Cow::Owned(vec![7; MAX_KEY_LENGTH]))]);
    let fit = MAX_RIDING_KEY_BYTES / long.len();
    let mut rows = RidingRows::default();
    (0..fit).for_each(|_| rows.push(Some(&long)));
    assert!(rows.rides() && rows.byte_count() == fit * long.len());
    rows.push(Some(&long));
    assert!(!rows.rides());
}

#[test]
fn few_bytes_never_become_many() {
    // One text of 4,096 bytes, of which each of 64 keys with 1,024 rows is said to have one.
    let types = [KeyType::Binary];
    let long = RidingValue::Bytes(Cow::Owned(vec![7; MAX_KEY_LENGTH]));
    let mut out = ByteWriter::new();
    out.u8(form::ALL);
    out.u8(nulls::NONE);
    out.u8(texts::DICTIONARY);
    out.length(1);
    encode_texts(&[[7; MAX_KEY_LENGTH].as_slice()], &mut out).unwrap();
    let bytes = out.into_vec();
    let read = |rows: u32, keys: usize| {
        RidingSegment::decode(ByteReader::new("riding", &bytes), &types, &vec![rows; keys], |_| true)
    };
    assert_eq!(read(16, 64).unwrap().value(0, 63, 15), Some(&long));
    assert!(matches!(read(1024, 64), Err(FormatError::TooLong { .. })));
    assert!(matches!(read(1025, 1), Err(FormatError::TooLong { .. })));
}

#[test]
fn values_beyond_their_type_are_refused() {
    let read = |types: &[KeyType], bytes: &[u8]| {
        RidingSegment::decode(ByteReader::new("riding", bytes), types, &[1, 1], |_| true).map(drop)
    };
    let of = |key_type: KeyType, value: RidingValue<'static>| {
        encoded(&[key_type], &[Some(vec![vec![value.clone()]]), Some(vec![vec![value]])])
    };
    assert!(read(&[KeyType::UInt8], &of(KeyType::UInt16, number(255))).is_ok());
    assert!(read(&[KeyType::UInt8], &of(KeyType::UInt16, number(256))).is_err());
    assert!(read(&[KeyType::FixedBinary(2)], &of(KeyType::Binary, text("ab"))).is_ok());
    assert!(read(&[KeyType::FixedBinary(3)], &of(KeyType::Binary, text("ab"))).is_err());
    let latin = || RidingValue::Bytes(Cow::Owned(vec![0xfc]));
    assert!(read(&[KeyType::Binary], &of(KeyType::Binary, latin())).is_ok());
    assert!(read(&[KeyType::Utf8], &of(KeyType::Binary, latin())).is_err());
    let other = encode(&[KeyType::Utf8], &[&gathered(&[Some(vec![vec![number(1)]])])[0]], &mut ByteWriter::new());
    assert!(other.is_err());
    let more = encode(&[], &[&gathered(&[Some(vec![vec![number(1)]])])[0]], &mut ByteWriter::new());
    assert!(more.is_err());
}

fn values(key_type: KeyType) -> BoxedStrategy<RidingValue<'static>> {
    let value = match key_type {
        KeyType::UInt64 => prop_oneof![any::<u64>(), 0u64..9].prop_map(RidingValue::Number).boxed(),
        _ => "[a-cü]{0,9}".prop_map(|text| RidingValue::Bytes(Cow::Owned(text.into_bytes()))).boxed(),
    };
    prop_oneof![1 => Just(RidingValue::Null), 4 => value].boxed()
}

proptest! {
    #[test]
    fn what_rides_comes_back(
        keys in prop::collection::vec(
            prop::option::weighted(0.9, prop::collection::vec((values(KeyType::UInt64), values(KeyType::Utf8)), 1..5)),
            1..65,
        ),
    ) {
        let pair = |(first, second)| vec![first, second];
        let keys: Vec<KeyRowsOfTest> =
            keys.into_iter().map(|key| key.map(|rows| rows.into_iter().map(pair).collect())).collect();
        round_trip(&[KeyType::UInt64, KeyType::Utf8], &keys);
    }

    #[test]
    fn arbitrary_bytes_give_values_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        rows in prop::collection::vec(1u32..5, 1..65),
    ) {
        let types = [KeyType::UInt8, KeyType::Utf8, KeyType::FixedBinary(3)];
        let all = RidingSegment::decode(ByteReader::new("riding", &bytes), &types, &rows, |_| true);
        if let Ok(read) = all {
            // Who steps over a column comes to the same end.
            prop_assert!(RidingSegment::decode(ByteReader::new("riding", &bytes), &types, &rows, |_| false).is_ok());
            for (key, rows) in rows.iter().enumerate() {
                for row in 0..*rows as usize {
                    prop_assert_eq!(read.value(0, key, row).is_some(), read.rides(key));
                    if let Some(RidingValue::Bytes(text)) = read.value(1, key, row) {
                        prop_assert!(std::str::from_utf8(text).is_ok());
                    }
                }
            }
        }
    }
}
