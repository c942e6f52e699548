//! Decodes an edit of a manifest from arbitrary bytes: as they are, with checksums and lengths put right, and as the body of a file.
#![no_main]

use libfuzzer_sys::fuzz_target;

use lakemark_format::{ContentKind, FormatError, Manifest, ManifestEdit};

#[path = "../repair.rs"]
mod repair;

fuzz_target!(|bytes: &[u8]| repair::each_form(bytes, ContentKind::Edit, decode));

/// An edit that can be read is written as the same bytes. It is applied to a new store, or says why it does not fit.
fn decode(bytes: &[u8]) {
    let Ok(edit) = ManifestEdit::decode(bytes) else { return };
    assert_eq!(edit.encode().as_deref(), Ok(bytes), "an edit has one encoding");
    let new = Manifest::new(edit.store_id);
    let (first, second) = (ManifestEdit { number: 1, ..edit.clone() }, ManifestEdit { number: 2, ..edit });
    match new.apply(&first) {
        Ok(manifest) => after(&manifest, &second),
        Err(error) => assert!(matches!(error, FormatError::DoesNotFit { .. }), "{error}"),
    }
}

/// A state is that of its checkpoint, and the same edit again does not make it another one unseen.
fn after(manifest: &Manifest, again: &ManifestEdit) {
    if let Ok(checkpoint) = manifest.to_checkpoint() {
        let opened = Manifest::from_root(&checkpoint.root).expect("a root that was just written");
        assert_eq!(opened.live_files(), manifest.live_files());
        assert!(opened.missing_of_all_files().len() <= checkpoint.pieces.len());
    }
    drop(manifest.apply(again));
}
