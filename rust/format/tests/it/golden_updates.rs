//! Golden files of updates: a log and a position map. Edits with updates stand among the other edits.

use lakemark_format::PositionMap;

use crate::golden::golden;
use crate::samples_updates as samples;

/// Their names.
pub const NAMES: [&str; 3] = ["frames.lml", "position-map.lmx", "position-map-keys.lmx"];

#[test]
fn the_golden_log_is_read_and_written() {
    let frames = samples::frames();
    let (written, _) = samples::log(&frames);
    let golden = golden("frames.lml", &written);
    let read = samples::read_log(&golden).unwrap();
    assert_eq!((read.commits, read.end, read.torn), (samples::numbered(&frames), golden.len() as u64, false));
    assert!(golden == written);
}

#[test]
fn the_golden_position_maps_are_read_and_written() {
    for (name, position_map) in
        [("position-map.lmx", samples::position_map()), ("position-map-keys.lmx", samples::position_map_with_keys())]
    {
        let written = position_map.encode().unwrap();
        let golden = golden(name, &written);
        assert_eq!(PositionMap::decode(&golden), Ok(position_map));
        assert!(golden == written);
    }
}
