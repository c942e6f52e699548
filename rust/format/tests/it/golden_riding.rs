//! A packed tree with whose keys columns ride along, as plain values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lakemark_format::leaf::{KeyRows, LeafBuilder, LeafEntry, PackedLeaf};
use lakemark_format::riding::{number_of_float, push_riding_bytes, push_riding_null, push_riding_number};
use lakemark_format::*;

use crate::golden::golden;
use crate::model::{Segment, files};

/// The golden file.
pub const NAME: &str = "covering.lmx";

type RidingRow = Vec<RidingValue<'static>>;

/// A segment, and the values of the columns that ride along with its rows.
#[derive(Debug, PartialEq)]
pub struct Covering {
    pub segment: Segment,
    pub columns: Vec<RidingColumn>,
    /// The values of each row that rides.
    pub rows: BTreeMap<u32, RidingRow>,
}

impl Covering {
    /// What rides along with a key of these rows.
    fn riding(&self, rows: &[u32]) -> RidingRows {
        let mut riding = RidingRows::default();
        for row in rows {
            let mut form = Vec::new();
            for value in self.rows.get(row).into_iter().flatten() {
                match value {
                    RidingValue::Null => push_riding_null(&mut form),
                    RidingValue::Number(number) => push_riding_number(&mut form, *number),
                    RidingValue::Bytes(bytes) => push_riding_bytes(&mut form, bytes),
                }
            }
            riding.push(Some(&form).filter(|form| !form.is_empty()).map(Vec::as_slice));
        }
        riding
    }

    fn types(&self) -> Vec<KeyType> {
        self.columns.iter().map(|column| column.key_type.clone()).collect()
    }

    /// The file, and its directory. Each block is a leaf.
    pub fn write(&self) -> (Vec<u8>, SegmentDirectory) {
        let Segment { id, index_id, column, key_type, files, blocks, .. } = &self.segment;
        let mut writer = ContainerWriter::new(ContentKind::Segment, *id);
        let nulls = self.segment.push_posting(&mut writer, &self.segment.nulls);
        let opaque = self.segment.push_posting(&mut writer, &self.segment.opaque);
        let mut refs = Vec::new();
        for values in blocks {
            let mut builder = LeafBuilder::with_riding(key_type.clone(), self.segment.universe(), self.types());
            for (key, rows) in values {
                let rows_in = match rows[rows.len() - 1] - rows[0] + 1 == rows.len() as u32 {
                    true => KeyRows::Run(rows[0]),
                    false => {
                        let mut bytes = Vec::new();
                        posting::encode(rows, self.segment.universe(), &mut bytes);
                        KeyRows::Inline(Cow::Owned(bytes))
                    }
                };
                let entry = LeafEntry { key: key.clone(), rows: rows.len() as u32, rows_in };
                assert_eq!(builder.push_riding(entry, self.riding(rows), usize::MAX), Ok(vec![]));
            }
            let leaf = builder.finish(usize::MAX).unwrap().unwrap();
            let offset = writer.offset();
            writer.push(&leaf.bytes);
            refs.push(ValueBlockRef {
                first_key: leaf.first_key,
                offset,
                length: leaf.bytes.len() as u32,
                values: leaf.keys,
                rows: leaf.rows,
                postings_offset: offset,
                postings_length: 0,
                is_inner: false,
            });
        }
        let directory = SegmentDirectory {
            segment_id: *id,
            index_id: *index_id,
            column: column.clone(),
            key_type: key_type.clone(),
            files: files.clone().into(),
            universe: self.segment.universe(),
            nulls,
            opaque,
            value_count: blocks.iter().map(|block| block.len() as u64).sum(),
            max_key: blocks.last().and_then(|block| block.last()).map(|(key, _)| key.clone()),
            blocks: refs,
            encoding: Encoding::Packed,
            bins: vec![],
            bitmaps: vec![],
            orders: vec![],
            riding: self.columns.clone(),
            predicates: vec![],
            zones: None,
        };
        let bytes = directory.encode(writer.offset()).unwrap();
        (writer.finish(&bytes).unwrap(), directory)
    }

    /// Reads everything in the bytes of such a segment.
    fn read(bytes: &[u8]) -> Result<Self> {
        let segment = Segment::read(bytes)?;
        let opened = open_tail(bytes, bytes.len() as u64)?;
        let directory = SegmentDirectory::decode(opened.directory.unwrap(), &opened.trailer)?;
        let columns = directory.riding.clone();
        let types: Vec<KeyType> = columns.iter().map(|column| column.key_type.clone()).collect();
        let mut rows = BTreeMap::new();
        for (block, values) in directory.blocks.iter().zip(&segment.blocks) {
            let range = block.offset..block.offset + u64::from(block.length);
            let pages = physical_range(range.clone(), &opened.trailer);
            let leaf = read_logical(&bytes[pages.start as usize..pages.end as usize], range, &opened.trailer)?;
            let leaf =
                PackedLeaf::decode(&leaf, &block.first_key, block.values, &directory.key_type, directory.universe)?;
            let leaf = leaf.with_riding(true);
            let mut of_keys = values.iter();
            for number in 0..leaf.heads().len() {
                let held = leaf.riding_segment(number, &types, |_| true)?;
                for key in 0..held.entries.len() {
                    let (_, of_key) = of_keys.next().unwrap();
                    for (place, row) in of_key.iter().enumerate().filter(|_| held.riding.rides(key)) {
                        let value = |column| owned(held.riding.value(column, key, place).unwrap());
                        rows.insert(*row, (0..types.len()).map(value).collect());
                    }
                }
            }
        }
        Ok(Self { segment, columns, rows })
    }
}

fn owned(value: &RidingValue<'_>) -> RidingValue<'static> {
    match value {
        RidingValue::Null => RidingValue::Null,
        RidingValue::Number(number) => RidingValue::Number(*number),
        RidingValue::Bytes(bytes) => RidingValue::Bytes(Cow::Owned(bytes.to_vec())),
    }
}

/// Two leaves of orders: their customers, amounts, prices, whether they are paid, and when.
pub fn covering() -> Covering {
    let column = |column: &str, key_type| RidingColumn { column: column.into(), key_type };
    let columns = vec![
        column("customer", KeyType::Utf8),
        column("amount", KeyType::Decimal { width_bits: 128, precision: 10, scale: 2 }),
        column("price", KeyType::Float64),
        column("paid", KeyType::Bool),
        column("at", KeyType::Timestamp { unit: TimeUnit::Microsecond, zoned: true }),
    ];
    let text = |text: &str| RidingValue::Bytes(Cow::Owned(text.as_bytes().to_vec()));
    let prices = [1.5, -0.0, 0.0, f64::NEG_INFINITY].map(f64::to_bits);
    let prices = prices.into_iter().chain([0xfff8_0000_0000_0123]).collect::<Vec<_>>();
    let value_of = |row: u32| {
        let customer = [Some("Müller"), Some("Meier"), None, Some("")][row as usize % 4];
        vec![
            customer.map_or(RidingValue::Null, text),
            RidingValue::Bytes(Cow::Owned(key_of_i128(i128::from(row) * 100 - 1000).to_vec())),
            RidingValue::Number(number_of_float(prices[row as usize % prices.len()], 64)),
            RidingValue::Number(u64::from(row.is_multiple_of(3))),
            if row < 64 {
                RidingValue::Null
            } else {
                RidingValue::Number(key_of_i64(1_700_000_000_000_000 + i64::from(row)))
            },
        ]
    };
    let key = |value: i64| Key::Fixed(key_of_i64(value));
    let single = (0..20).map(|row| (key(10 * i64::from(row)), vec![19 - row])).collect();
    let several = vec![(key(1000), vec![20, 22, 64]), (key(2000), vec![21, 23]), (key(3000), vec![65, 66])];
    // The key 2,000 does not ride.
    let riding = (0..67).filter(|row| ![21, 23].contains(row) && (*row < 23 || *row > 63));
    Covering {
        rows: riding.map(|row| (row, value_of(row))).collect(),
        segment: Segment {
            id: *b"segment-covering",
            index_id: *b"index-of-orders!",
            column: "order".into(),
            key_type: KeyType::Int64,
            files: files(&[&[16, 8], &[4]]),
            nulls: vec![67],
            opaque: vec![],
            blocks: vec![single, several],
            encoding: Encoding::Packed,
            bins: vec![],
        },
        columns,
    }
}

#[test]
fn the_golden_covering_segment_is_read_and_written() {
    let covering = covering();
    let (encoded, _) = covering.write();
    let golden = golden(NAME, &encoded);
    assert_eq!(Covering::read(&golden).as_ref(), Ok(&covering), "{NAME} is read as another value");
    assert!(golden == encoded, "{NAME} is written with other bytes");
}

#[test]
fn whoever_looks_for_keys_alone_steps_over_what_rides() {
    let covering = covering();
    let (bytes, _) = covering.write();
    assert_eq!(Segment::read(&bytes).unwrap(), covering.segment);
}
