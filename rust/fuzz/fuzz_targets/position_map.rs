//! Decodes a position map from arbitrary bytes: as they are, with checksums and lengths put right, and as a file's body.
#![no_main]

use libfuzzer_sys::fuzz_target;

use lakemark_format::{ContentKind, PositionMap};

#[path = "../repair.rs"]
mod repair;

fuzz_target!(|bytes: &[u8]| repair::each_form(bytes, ContentKind::PositionMap, decode));

/// A position map that can be read has rows that are there, and is read again once it is written. Its bytes may be others,
/// as postings may have any form.
fn decode(bytes: &[u8]) {
    let Ok(position_map) = PositionMap::decode(bytes) else { return };
    for file in &position_map.files {
        check(&file.deleted, file.row_groups.iter().sum());
        check(&file.completed, position_map.rows);
    }
    for run in &position_map.runs {
        check(&run.replaced, run.rows);
    }
    let again = position_map.encode().expect("a position map that was read");
    assert_eq!(PositionMap::decode(&again), Ok(position_map));
}

fn check(rows: &[u32], universe: u32) {
    assert!(rows.is_sorted_by(|a, b| a < b) && rows.last().is_none_or(|last| *last < universe));
}
