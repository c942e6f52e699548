//! The manifests of a store, told by the format alone: edits from the beginning or from a checkpoint on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lakemark_format::{Manifest, ManifestEdit};

/// The files of the folder of edits with an ending, by their numbers.
pub fn numbered(store: &Path, ending: &str) -> BTreeMap<u64, PathBuf> {
    let entries = fs::read_dir(store.join("manifest")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let named = paths.filter(|path| path.extension().is_some_and(|end| end == ending));
    let of = |path: PathBuf| {
        let stem = path.file_stem()?.to_str().filter(|stem| stem.len() == 20)?;
        Some((stem.parse().ok()?, path))
    };
    named.filter_map(of).collect()
}

/// All manifests that can be told, by their numbers. No piece is read: they tell edits and what the roots say.
pub fn manifests(store: &Path) -> Result<BTreeMap<u64, Manifest>, String> {
    let (edits, roots) = (numbered(store, "lmm"), numbered(store, "lmk"));
    let mut told: BTreeMap<u64, Manifest> = BTreeMap::new();
    for (number, path) in &roots {
        let root = Manifest::from_root(&fs::read(path).unwrap());
        told.insert(*number, root.map_err(|error| format!("{}: {error}", path.display()))?);
    }
    for (number, path) in &edits {
        let edit = ManifestEdit::decode(&fs::read(path).unwrap());
        let edit = edit.map_err(|error| format!("{}: {error}", path.display()))?;
        let base = match number - 1 {
            0 => Some(Manifest::new(edit.store_id)),
            before => told.get(&before).cloned(),
        };
        let Some(base) = base else { continue };
        let next = base.apply(&edit).map_err(|error| format!("{}: {error}", path.display()))?;
        told.entry(*number).or_insert(next);
    }
    Ok(told)
}

/// Compares each checkpoint with one that is made of all edits up to it, as far as these are there from the first on; says how many were
/// compared.
pub fn compare_checkpoints(store: &Path) -> Result<usize, String> {
    let (edits, roots) = (numbered(store, "lmm"), numbered(store, "lmk"));
    let (mut compared, mut told) = (0, None::<Manifest>);
    // Nobody needs what a checkpoint has: a vacuum may have taken it.
    let from_first = (1..).zip(&edits).take_while(|(expected, (number, _))| expected == *number);
    for (number, (_, path)) in from_first.take_while(|_| !roots.is_empty()) {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let edit = ManifestEdit::decode(&fs::read(path).unwrap()).map_err(|error| failed(&error))?;
        let base = told.take().unwrap_or_else(|| Manifest::new(edit.store_id));
        let next = base.apply(&edit).map_err(|error| failed(&error))?;
        if let Some(root) = roots.get(&number) {
            let made = next.to_checkpoint().map_err(|error| failed(&error))?;
            let pieces = made.pieces.iter().map(|(id, bytes)| (store.join(format!("checkpoint/{id}.lmp")), bytes));
            for (path, bytes) in pieces.chain([(root.clone(), &made.root)]) {
                if fs::read(&path).ok().as_ref() != Some(bytes) {
                    return Err(format!("{} is not what the edits up to {number} come to", path.display()));
                }
            }
            compared += 1;
        }
        told = Some(next);
    }
    Ok(compared)
}
