//! Decodes a manifest from arbitrary bytes: as they are, with checksums and lengths put right, and as the body of a file.
#![no_main]

use libfuzzer_sys::fuzz_target;

use lakemark_format::{ContentKind, Manifest};

#[path = "../repair.rs"]
mod repair;

fuzz_target!(|bytes: &[u8]| repair::each_form(bytes, ContentKind::Manifest, decode));

/// A manifest that can be read is written as the same bytes.
fn decode(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::decode(bytes) {
        assert_eq!(manifest.encode().as_deref(), Ok(bytes), "a manifest has one encoding");
    }
}
