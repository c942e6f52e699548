//! The catalogue of bad files: each is made from a golden file in one way and must give one error.
//!
//! `tests/bad/README.md` lists them; `LAKEMARK_BAD=write cargo test -p lakemark-format bad` writes files and list anew.

use std::path::PathBuf;

use lakemark_format::*;

use crate::bad_bins::bins;
use crate::bad_checkpoints::checkpoints;
use crate::bad_containers::containers;
use crate::bad_edits::edits;
use crate::bad_inner::pages;
use crate::bad_leaves::leaves;
use crate::bad_levels::levels;
use crate::bad_links::links;
use crate::bad_logs::logs;
use crate::bad_position_maps::position_maps;
use crate::bad_riding::riders;
use crate::bad_segments::segments;
use crate::bad_updates::updates;
use crate::model::Segment;
use crate::{bad_zones, golden, golden_links, golden_manifests, golden_riding, golden_zones, samples_updates};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bad");

const INTRODUCTION: &str = "\
# Bad files

Every file here is a good one of `tests/golden` with one thing wrong. A reader must give the error named, whatever it is
asked for first; it must never panic, hang or answer. The files are made by `rust/format/tests/it/bad*.rs`, which also
writes this list (`LAKEMARK_BAD=write cargo test -p lakemark-format bad`) and checks it. Two further families are tested
without being kept: small files cut at every length, and with every single bit flipped. (Logs may end in a torn tail, so that
a part of these are no errors: `logs.rs` says which.) Logs are those of the id `log-of-updates-1`, from the commit 41 on;
files named `position-map-*.lmx` are position maps.

Where the checksums had to be right for the mistake to be seen, they are.

| file | error | what is wrong |
|---|---|---|
";

/// A bad file.
pub struct Bad {
    pub name: String,
    pub bytes: Vec<u8>,
    /// The variant of [`FormatError`].
    pub error: &'static str,
    pub wrong: &'static str,
}

pub fn bad(name: &str, error: &'static str, wrong: &'static str, bytes: Vec<u8>) -> Bad {
    Bad { name: name.into(), bytes, error, wrong }
}

pub fn catalogue() -> Vec<Bad> {
    let indexes =
        [containers(), segments(), levels(), bins(), leaves(), riders(), bad_zones::all(), edits(), checkpoints()];
    indexes.into_iter().chain([pages(), links(), updates(), logs(), position_maps()]).flatten().collect()
}

/// The variant's name.
fn variant(error: &FormatError) -> &'static str {
    match error {
        FormatError::BadMagic { .. } => "BadMagic",
        FormatError::UnsupportedVersion { .. } => "UnsupportedVersion",
        FormatError::TooLong { .. } => "TooLong",
        FormatError::ChecksumMismatch { .. } => "ChecksumMismatch",
        FormatError::Truncated { .. } => "Truncated",
        FormatError::Invalid { .. } => "Invalid",
        FormatError::DamagedUpdates { .. } => "DamagedUpdates",
        other => panic!("no name for {other:?}"),
    }
}

fn read(name: &str, bytes: &[u8]) -> Result<()> {
    match name.rsplit_once('.') {
        Some((_, "lmm")) => ManifestEdit::decode(bytes).map(drop),
        Some((_, "lmk")) => Manifest::from_root(bytes).map(drop),
        Some((_, "lmp")) => Piece::read(bytes).map(drop),
        Some((_, "lml")) => samples_updates::read_log(bytes).map(drop),
        _ if name.starts_with("position-map") => PositionMap::decode(bytes).map(drop),
        _ => Segment::read(bytes).map(drop),
    }
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(FOLDER).join(name)
}

#[test]
fn every_bad_file_gives_its_error() {
    let catalogue = catalogue();
    assert!(catalogue.len() > 60, "{} bad files", catalogue.len());
    for bad in &catalogue {
        let Err(error) = read(&bad.name, &bad.bytes) else { panic!("{} is read", bad.name) };
        assert_eq!(variant(&error), bad.error, "{}: {error}", bad.name);
    }
}

#[test]
fn the_bad_files_and_their_list_are_those_of_the_catalogue() {
    let catalogue = catalogue();
    let lines = catalogue.iter().map(|bad| format!("| `{}` | {} | {} |\n", bad.name, bad.error, bad.wrong));
    let list = INTRODUCTION.to_owned() + &lines.collect::<String>();
    if std::env::var_os("LAKEMARK_BAD").is_some_and(|mode| mode == "write") {
        std::fs::create_dir_all(FOLDER).unwrap();
        std::fs::write(file("README.md"), &list).unwrap();
        catalogue.iter().for_each(|bad| std::fs::write(file(&bad.name), &bad.bytes).unwrap());
    }
    assert_eq!(std::fs::read_to_string(file("README.md")).unwrap(), list);
    for bad in &catalogue {
        assert!(std::fs::read(file(&bad.name)).unwrap() == bad.bytes, "{}", bad.name);
    }
    let mut expected: Vec<_> = catalogue.iter().map(|bad| bad.name.clone()).chain(["README.md".into()]).collect();
    let mut found: Vec<_> =
        std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

fn small_files() -> Vec<(&'static str, Vec<u8>)> {
    let segments =
        [("empty.lmx", golden::empty()), ("numbers.lmx", golden::numbers()), ("strings.lmx", golden::strings())];
    let segments = segments.into_iter().map(|(name, segment)| (name, segment.write().0));
    let zoned = [("filtered-strings.lmx", golden_zones::filtered_strings()), ("sliced.lmx", golden_zones::sliced())];
    let zoned = zoned.into_iter().map(|(name, segment)| (name, segment.write().0));
    let position_map = samples_updates::position_map().encode().unwrap();
    segments
        .chain(zoned)
        .chain([(golden_riding::NAME, golden_riding::covering().write().0)])
        .chain(golden_links::all().map(|(name, links)| (name, links.write().0)))
        .chain([("position-map.lmx", position_map)])
        .chain(golden_manifests::edits().into_iter().map(|(name, value)| (name, value.encode().unwrap())))
        .chain(golden_manifests::checkpoints())
        .collect()
}

#[test]
fn a_file_cut_at_either_end_is_an_error() {
    for (name, bytes) in small_files() {
        assert_eq!(read(name, &bytes), Ok(()));
        for length in 0..bytes.len() {
            assert!(read(name, &bytes[..length]).is_err(), "{name} cut to {length} bytes");
            assert!(read(name, &bytes[bytes.len() - length..]).is_err(), "the last {length} bytes of {name}");
        }
    }
}

#[test]
fn a_flipped_bit_is_an_error_wherever_it_is() {
    for (name, bytes) in small_files() {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(name, &flipped).is_err(), "{name} with bit {bit} flipped");
        }
    }
}

#[test]
fn every_error_says_what_to_do() {
    for bad in catalogue() {
        let text = read(&bad.name, &bad.bytes).unwrap_err().to_string();
        let data = bad.error == "DamagedUpdates";
        let remedy = ["lakemark index build", "upgrade lakemark"].iter().any(|remedy| text.contains(remedy));
        assert!(remedy, "{}: {text}", bad.name);
        assert_eq!((data, data), (text.contains("keep the file"), !text.contains("delete the file")), "{}", bad.name);
    }
}
