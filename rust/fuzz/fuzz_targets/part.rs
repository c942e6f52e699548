//! Decodes pieces of checkpoints from arbitrary bytes: as they are, with checksums, lengths and names put right, and as bodies of files.
#![no_main]

use libfuzzer_sys::fuzz_target;

use lakemark_format::{ContentKind, Piece};

#[path = "../repair.rs"]
mod repair;

fuzz_target!(|bytes: &[u8]| {
    for kind in [ContentKind::FilePart, ContentKind::PathPage] {
        repair::each_form(bytes, kind, decode);
        decode(&repair::piece(bytes, kind));
        if let Some(directory) = repair::directory(bytes) {
            decode(&repair::piece(directory, kind));
        }
    }
});

/// A piece that can be read is written as the same bytes.
fn decode(bytes: &[u8]) {
    let Ok(piece) = Piece::read(bytes) else { return };
    assert_eq!(piece.encode().as_deref(), Ok(bytes), "a piece has one encoding");
    assert!(piece.is_loaded() && piece.supply(bytes).is_ok());
}
