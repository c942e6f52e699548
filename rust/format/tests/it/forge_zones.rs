//! The second writer of zones and filters: hashes to blocks to bits, made from `docs/format.md`, section 10.

use lakemark_format::codec::ByteWriter;
use lakemark_format::zones::{ByteFence, FencePair, Fences, Filters, Zones};
use lakemark_format::*;
use twox_hash::XxHash64;

/// The shape of a filter, in the numbers of the specification.
#[derive(Clone, Copy)]
pub struct Filter {
    pub blocks: u64,
    pub block_bits: u64,
    pub hashes: u64,
}

impl Filter {
    /// That of a zone: by its keys, or the same for all.
    pub fn of(filters: Filters, keys: u32) -> Self {
        match filters {
            Filters::Each(density) => {
                let bytes = (u64::from(keys) * u64::from(density.bits)).div_ceil(8 * 1024);
                let blocks = bytes.div_ceil(4096);
                let block_bits = if blocks == 0 { 0 } else { 8 * bytes.div_ceil(blocks) };
                Self { blocks, block_bits, hashes: density.hashes.into() }
            }
            Filters::Sliced(shape) => {
                Self { blocks: shape.blocks.into(), block_bits: shape.block_bits.into(), hashes: shape.hashes.into() }
            }
        }
    }

    pub fn bytes(self) -> usize {
        (self.blocks * self.block_bits / 8) as usize
    }

    /// The bits of a key.
    pub fn bits(self, key: &Key) -> Vec<u64> {
        let hash = match key {
            Key::Fixed(number) => XxHash64::oneshot(0, &number.to_le_bytes()),
            Key::Bytes(bytes) => XxHash64::oneshot(0, bytes),
        };
        let block = (u128::from(hash) * u128::from(self.blocks) / (1 << 64)) as u64;
        let mut state = hash;
        let mut halves = Vec::new();
        while (halves.len() as u64) < self.hashes {
            let number = split_mix(&mut state);
            halves.extend([number / (1 << 32), number % (1 << 32)]);
        }
        halves.truncate(self.hashes as usize);
        halves.into_iter().map(|half| block * self.block_bits + half * self.block_bits / (1 << 32)).collect()
    }
}

/// The next number of the generator SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = *state;
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// All filters, of zones with these keys.
pub fn filters(zones: &Zones, keys: &[Vec<Key>]) -> Vec<u8> {
    match zones.filters {
        Filters::Each(_) => keys.iter().flat_map(|keys| filter(zones.filters, keys)).collect(),
        Filters::Sliced(_) => slices(Filter::of(zones.filters, 0), keys),
    }
}

fn filter(filters: Filters, keys: &[Key]) -> Vec<u8> {
    let filter = Filter::of(filters, keys.len() as u32);
    let mut bytes = vec![0; filter.bytes()];
    for bit in keys.iter().flat_map(|key| filter.bits(key)) {
        bytes[bit as usize / 8] |= 1 << (bit % 8);
    }
    bytes
}

fn slices(filter: Filter, keys: &[Vec<Key>]) -> Vec<u8> {
    let slice = keys.len().div_ceil(8);
    let mut bytes = vec![0; (filter.blocks * filter.block_bits) as usize * slice];
    for (zone, keys) in keys.iter().enumerate() {
        for bit in keys.iter().flat_map(|key| filter.bits(key)) {
            bytes[bit as usize * slice + zone / 8] |= 1 << (zone % 8);
        }
    }
    bytes
}

/// The zones of a directory.
pub fn zones(zones: &Zones) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.varint(zones.rows.len() as u64);
    let mut fences = Fencing::default();
    for start in (0..zones.rows.len()).step_by(1024) {
        let leaf = start..zones.rows.len().min(start + 1024);
        out.bytes(&column(zones.rows[leaf.clone()].iter().map(|rows| u64::from(*rows))));
        out.bytes(&column(zones.keys[leaf.clone()].iter().map(|keys| u64::from(*keys))));
        match &zones.fences {
            None => {}
            Some(Fences::Fixed(all)) => fences.numbers(&all[leaf], &mut out),
            Some(Fences::Bytes(all)) => fences.bytes(&all[leaf], &mut out),
        }
    }
    match zones.filters {
        Filters::Each(density) => {
            out.varint(density.bits.into());
            out.u8(density.hashes);
        }
        Filters::Sliced(shape) => {
            out.varint(shape.blocks.into());
            out.varint(shape.block_bits.into());
            out.u8(shape.hashes);
        }
    }
    out.varint(zones.offset);
    out.into_vec()
}

/// Least number, width, differences.
pub fn column(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let numbers: Vec<u64> = numbers.into_iter().collect();
    let least = *numbers.iter().min().unwrap();
    let width = 64 - (numbers.iter().max().unwrap() - least).leading_zeros();
    let mut out = ByteWriter::new();
    out.varint(least);
    out.u8(width as u8);
    let bits: Vec<u8> =
        numbers.iter().flat_map(|number| (0..width).map(move |bit| ((number - least) >> bit & 1) as u8)).collect();
    for byte in bits.chunks(8) {
        out.u8(byte.iter().rev().fold(0, |byte, bit| byte << 1 | bit));
    }
    out.into_vec()
}

/// The fence before, of either kind.
#[derive(Default)]
struct Fencing {
    number: u64,
    bytes: Vec<u8>,
}

impl Fencing {
    fn numbers(&mut self, fences: &[FencePair<u64>], out: &mut ByteWriter) {
        let mut steps = Vec::new();
        for fence in fences {
            let step = fence.low.wrapping_sub(self.number) as i64;
            steps.push((step << 1 ^ step >> 63) as u64);
            self.number = fence.high;
        }
        out.bytes(&column(steps));
        out.bytes(&column(fences.iter().map(|fence| fence.high.wrapping_sub(fence.low))));
    }

    fn bytes(&mut self, fences: &[ByteFence], out: &mut ByteWriter) {
        for fence in fences.iter().flat_map(|fence| [&fence.low, &fence.high]) {
            let equal = (0..).take_while(|at| fence.get(*at).is_some_and(|byte| self.bytes.get(*at) == Some(byte)));
            let shared = equal.count();
            out.varint(shared as u64);
            out.varint((fence.len() - shared) as u64);
            out.bytes(&fence[shared..]);
            self.bytes = fence.to_vec();
        }
    }
}
