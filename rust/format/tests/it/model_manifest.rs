//! The state of a store as plain maps: what edits and checkpoints must agree with. It writes checkpoints by the second writer.

use std::collections::BTreeMap;

use lakemark_format::*;

use crate::forge_manifests::{self as forge, Root};

/// A state.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub store_id: [u8; 16],
    pub number: u64,
    pub created_ms: i64,
    pub next_schema: u32,
    pub schemas: BTreeMap<u32, Vec<u8>>,
    pub next_file: u32,
    pub files: BTreeMap<u32, ManifestFile>,
    pub indexes: BTreeMap<String, ManifestIndex>,
    pub segments: BTreeMap<[u8; 16], ManifestSegment>,
    pub updates: Option<ManifestUpdates>,
}

impl State {
    /// Applies an edit that fits.
    pub fn apply(&mut self, edit: &ManifestEdit) {
        (self.number, self.created_ms) = (edit.number, edit.created_ms);
        let changes = &edit.changes;
        self.files.retain(|number, _| !changes.files_removed.contains(*number));
        self.schemas.retain(|number, _| !changes.schemas_removed.contains(number));
        for schema in &changes.schemas_added.schemas {
            self.schemas.insert(self.next_schema, schema.clone());
            self.next_schema += 1;
        }
        self.files.extend(changes.files_changed.iter().cloned());
        for file in &changes.files_added.files {
            self.files.insert(self.next_file, file.clone());
            self.next_file += 1;
        }
        self.segments.retain(|id, _| !changes.segments_removed.contains(id));
        self.indexes.retain(|_, index| !changes.indexes_removed.contains(&index.id));
        self.indexes.extend(changes.indexes_added.iter().map(|index| (index.name.clone(), index.clone())));
        self.segments.extend(changes.segments_added.iter().map(|segment| (segment.id, segment.clone())));
        if changes.updates.is_some() {
            self.updates.clone_from(&changes.updates);
        }
    }

    /// The root of the checkpoint, and its pieces by their names.
    pub fn checkpoint(&self) -> (Vec<u8>, BTreeMap<PieceId, Vec<u8>>) {
        let mut pieces = BTreeMap::new();
        let mut keep = |kind, body: &[u8]| {
            let id = forge::piece_id(kind, body);
            pieces.insert(PieceId(id), forge::piece(kind, body));
            Some(id)
        };
        let mut parts = Vec::new();
        for first in (0..self.next_file).step_by(1024) {
            let slots = (self.next_file - first).min(1024);
            let files: Vec<(u32, ManifestFile)> =
                self.files.range(first..first + slots).map(|(number, file)| (number - first, file.clone())).collect();
            let places: Vec<u32> = files.iter().map(|(slot, _)| *slot).collect();
            let id = if files.is_empty() {
                None
            } else {
                keep(ContentKind::FilePart, &forge::part_body(first / 1024, &files))
            };
            parts.push((forge::live(slots, &places), id));
        }
        let bits = (0..).find(|bits| self.files.len() <= 1024 << bits).unwrap();
        let mut entries = vec![Vec::new(); 1 << bits];
        for (number, file) in &self.files {
            let hash = forge::path_hash(&file.path);
            entries[((u128::from(hash) << bits) >> 64) as usize].push((hash, *number));
        }
        let mut pages = Vec::new();
        for (page, mut entries) in (0..).zip(entries) {
            entries.sort();
            let body = forge::page_body(bits, page, &entries);
            let id = if entries.is_empty() { None } else { keep(ContentKind::PathPage, &body) };
            pages.push((entries.len() as u64, id));
        }
        let root = Root {
            store_id: self.store_id,
            number: self.number,
            created_ms: self.created_ms,
            next_schema: self.next_schema,
            schemas: self.schemas.clone().into_iter().collect(),
            next_file: self.next_file,
            parts,
            pages,
            indexes: self.indexes.values().cloned().collect(),
            segments: self.segments.values().cloned().collect(),
            updates: self.updates.clone(),
        };
        (forge::root(&root), pieces)
    }
}
