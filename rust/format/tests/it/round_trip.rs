//! What is encoded decodes to the same value.

use lakemark_format::*;

use crate::samples;

#[test]
fn a_directory_survives_the_round_trip() {
    let directory = samples::directory();
    let trailer = samples::trailer(directory.segment_id, 133);
    let bytes = directory.encode(133).unwrap();
    assert_eq!(SegmentDirectory::decode(&bytes, &trailer), Ok(directory));
}

#[test]
fn a_directory_takes_few_bytes_for_a_block() {
    let mut directory = samples::directory();
    let mut offset = HEADER;
    directory.nulls = PostingRef::default();
    directory.opaque = PostingRef::default();
    directory.files = vec![samples::file("a.parquet", 0, vec![1_000_000])].into();
    directory.universe = 1_000_000;
    directory.value_count = 200_000;
    directory.blocks = (0..1000)
        .map(|block| {
            let postings_offset = offset;
            offset += 5000;
            ValueBlockRef {
                first_key: Key::Fixed(key_of_i64(block * 1000)),
                offset: offset - 700,
                length: 700,
                values: 200,
                rows: 1000,
                postings_offset,
                postings_length: 4300,
                is_inner: false,
            }
        })
        .collect();
    directory.max_key = Some(Key::Fixed(key_of_i64(1_000_000)));
    let bytes = directory.encode(offset).unwrap();
    assert!(bytes.len() < 13 * 1000, "{} bytes for 1000 blocks", bytes.len());
    let trailer = samples::trailer(directory.segment_id, offset);
    assert_eq!(SegmentDirectory::decode(&bytes, &trailer), Ok(directory));
}

const HEADER: u64 = container::HEADER_BYTES;

#[test]
fn a_stream_of_any_length_reads_back_in_any_range() {
    for length in [0u64, 1, 4027, 4028, 4029, 8119, 8120, 8121, 20_000] {
        let payload: Vec<u8> = (0..length).map(|i| (i * 7 % 251) as u8).collect();
        let mut writer = ContainerWriter::new(ContentKind::Segment, [9; 16]);
        let mut file = Vec::new();
        for part in payload.chunks(1000) {
            writer.push(part);
            file.extend(writer.take_output());
        }
        assert_eq!(writer.offset(), HEADER + length);
        file.extend(writer.finish(b"directory").unwrap());

        let opened = open_tail(&file, file.len() as u64).unwrap();
        assert_eq!(opened.directory, Some(b"directory".as_slice()));
        assert_eq!(opened.trailer.stream_length, HEADER + length);
        let points = [0, 1, 100, 4027, 4028, 4029, 8120, 8121, length];
        for start in points.iter().filter(|point| **point <= length) {
            for end in points.iter().filter(|point| *point >= start && **point <= length) {
                let logical = HEADER + start..HEADER + end;
                let pages = physical_range(logical.clone(), &opened.trailer);
                let pages = &file[pages.start as usize..pages.end as usize];
                let got = read_logical(pages, logical, &opened.trailer).unwrap();
                assert_eq!(*got, payload[*start as usize..*end as usize]);
            }
        }
    }
}

#[test]
fn a_tail_that_misses_the_directory_says_where_it_is() {
    let writer = ContainerWriter::new(ContentKind::Segment, [9; 16]);
    let file = writer.finish(&[5; 1000]).unwrap();
    let length = file.len() as u64;
    let short = open_tail(&file[file.len() - 100..], length).unwrap();
    assert_eq!(short.directory, None);
    let range = short.trailer.directory_range();
    let bytes = &file[range.start as usize..range.end as usize];
    assert_eq!(bytes, [5; 1000]);
    assert_eq!(short.trailer.check_directory(bytes), Ok(()));
    let exact = open_tail(&file[range.start as usize..], length).unwrap();
    assert_eq!(exact.directory, Some(bytes));
}

#[test]
fn keys_keep_the_order_of_values() {
    let numbers = [i64::MIN, -300, -1, 0, 1, 300, i64::MAX];
    assert!(numbers.is_sorted_by(|a, b| key_of_i64(*a) < key_of_i64(*b)));
    assert!(numbers.iter().all(|number| i64_of_key(key_of_i64(*number)) == *number));
    let floats = [f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, -0.0, 0.0, 1e-300, 2.5, f64::INFINITY];
    assert!(floats.is_sorted_by(|a, b| key_of_f64(*a) < key_of_f64(*b)));
    let floats = [f32::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-30, 2.5, f32::INFINITY];
    assert!(floats.is_sorted_by(|a, b| key_of_f32(*a) < key_of_f32(*b)));
    let halves = [0xfc00u16, 0xc000, 0x8000, 0x0000, 0x0001, 0x3c00, 0x7c00];
    assert!(halves.is_sorted_by(|a, b| key_of_f16_bits(*a) < key_of_f16_bits(*b)));
    assert_eq!((key_of_f64(f64::NAN), key_of_f32(f32::NAN), key_of_f16_bits(0x7e00)), (None, None, None));
    let wide = [i128::MIN, -1, 0, 1, i128::MAX];
    assert!(wide.is_sorted_by(|a, b| key_of_i128(*a) < key_of_i128(*b)));
    let (mut minus_one, mut one) = ([0xff; 32], [0; 32]);
    (minus_one[31], one[31]) = (0xff, 1);
    assert!(key_of_i256_be(minus_one) < key_of_i256_be([0; 32]));
    assert!(key_of_i256_be([0; 32]) < key_of_i256_be(one));
}
