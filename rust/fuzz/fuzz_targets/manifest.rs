//! Decodes a manifest from arbitrary bytes: as they are, with checksums and lengths put right, and as the body of a file.
#![no_main]

use libfuzzer_sys::fuzz_target;

use lakemark_format::{ContainerWriter, ContentKind, Manifest};

#[path = "../repair.rs"]
mod repair;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    if let Some(bytes) = repair::repair(bytes) {
        decode(&bytes);
    }
    if let Ok(bytes) = ContainerWriter::new(ContentKind::Manifest, [7; 16]).finish(bytes) {
        decode(&bytes);
    }
});

/// A manifest that can be read is written as the same bytes.
fn decode(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::decode(bytes) {
        assert_eq!(manifest.encode().as_deref(), Ok(bytes), "a manifest has one encoding");
    }
}
