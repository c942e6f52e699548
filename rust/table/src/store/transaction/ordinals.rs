//! Files and schemas of a manifest, which others name by their places: adding them, and forgetting those that nobody names.

use std::collections::{HashMap, HashSet};

use lakemark_format::{Manifest, ManifestFile};

use super::BuiltSegments;

/// Adds the files. A file that changed replaces its older self, and leaves the segments that covered that.
pub(super) fn merge_files(next: &mut Manifest, built: &BuiltSegments) -> Vec<u32> {
    let mut schemas: HashMap<Vec<u8>, u32> = HashMap::new();
    for (ordinal, schema) in next.schemas.iter().enumerate() {
        schemas.insert(schema.clone(), ordinal_of(ordinal));
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    for (ordinal, file) in next.files.iter().enumerate() {
        places.insert(file.path.clone(), ordinal);
    }
    let mut replaced: HashSet<u32> = HashSet::new();
    let mut ordinals = Vec::with_capacity(built.files.len());
    for file in &built.files {
        let bytes = built.schemas.get(file.schema as usize).cloned().unwrap_or_default();
        let schema = *schemas.entry(bytes.clone()).or_insert_with(|| {
            next.schemas.push(bytes);
            ordinal_of(next.schemas.len() - 1)
        });
        let file = ManifestFile { schema, ..file.clone() };
        let place = *places.entry(file.path.clone()).or_insert_with(|| {
            next.files.push(file.clone());
            next.files.len() - 1
        });
        ordinals.push(ordinal_of(place));
        let Some(have) = next.files.get_mut(place) else { continue };
        if have.is_same_version(&file) && have.schema == file.schema {
            // Builds of other columns have found other false statistics.
            have.false_statistics.extend(&file.false_statistics);
            have.false_statistics.sort_unstable();
            have.false_statistics.dedup();
        } else {
            *have = file;
            replaced.insert(ordinal_of(place));
        }
    }
    for segment in &mut next.segments {
        segment.files.retain(|file| !replaced.contains(file));
    }
    ordinals
}

fn ordinal_of(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// Forgets segments without files, files without segments, schemas without files.
pub(super) fn collect_garbage(manifest: &mut Manifest) {
    manifest.segments.retain(|segment| !segment.files.is_empty());
    let covered = manifest.segments.iter().flat_map(|segment| segment.files.iter().copied());
    // What is known of a footer is of use without an index, too.
    let known = (0_u32..).zip(&manifest.files).filter(|(_, file)| !file.false_statistics.is_empty());
    let used: HashSet<u32> = covered.chain(known.map(|(ordinal, _)| ordinal)).collect();
    let files = compact(&mut manifest.files, &used);
    for segment in &mut manifest.segments {
        for file in &mut segment.files {
            *file = files.get(file).copied().unwrap_or(*file);
        }
    }
    let used: HashSet<u32> = manifest.files.iter().map(|file| file.schema).collect();
    let schemas = compact(&mut manifest.schemas, &used);
    for file in &mut manifest.files {
        file.schema = schemas.get(&file.schema).copied().unwrap_or(file.schema);
    }
}

/// Keeps the used entries in their order; gives old to new ordinals.
fn compact<T>(entries: &mut Vec<T>, used: &HashSet<u32>) -> HashMap<u32, u32> {
    let mut moved = HashMap::new();
    let mut old = 0;
    entries.retain(|_| {
        let keep = used.contains(&old);
        if keep {
            moved.insert(old, ordinal_of(moved.len()));
        }
        old += 1;
        keep
    });
    moved
}
