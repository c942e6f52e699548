//! Opens a checkpoint from arbitrary bytes of its root: as they are, with checksums and lengths put right, and as the body of a file.
#![no_main]

use libfuzzer_sys::fuzz_target;

use lakemark_format::{ContentKind, FormatError, Manifest};

#[path = "../repair.rs"]
mod repair;

fuzz_target!(|bytes: &[u8]| repair::each_form(bytes, ContentKind::Checkpoint, decode));

/// A root that can be read is written as the same bytes, and asks for those pieces alone that it names.
fn decode(bytes: &[u8]) {
    let Ok(manifest) = Manifest::from_root(bytes) else { return };
    let again = manifest.to_checkpoint().expect("a state that did not change");
    assert!(again.root == bytes && again.pieces.is_empty(), "a root has one encoding");
    assert_eq!(manifest.live_files().len(), manifest.file_count());
    let pieces = manifest.pieces();
    assert!(manifest.missing_of_all_files().iter().all(|piece| pieces.contains(&piece.id())));
    assert!(manifest.missing_of_checkpoint().is_empty());
    for entry in manifest.files().take(2) {
        assert!(matches!(entry, Err(FormatError::NotLoaded { .. })));
    }
}
