//! Laws of manifests: edits applied one after the other, checkpoints and plain maps are the same state, in the same bytes.

use std::collections::BTreeMap;

use lakemark_format::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::forge_manifests as forge;
use crate::model_manifest::State;
use crate::properties::{edit as change_bytes, edits};
use crate::samples_manifests::{self as samples, file};
use crate::{golden_manifests, samples_updates};

/// What an edit is to do. What does not fit the state is left out.
#[derive(Debug, Clone)]
struct Plan {
    added: u32,
    removed: Vec<(Index, usize)>,
    changed: Vec<Index>,
    adds_schema: bool,
    removes_schemas: bool,
    index: Option<u8>,
    removed_index: Option<Index>,
    segments: Vec<(Index, usize)>,
    removed_segments: Vec<Index>,
    updates: bool,
    is_checkpoint: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let added = prop_oneof![2 => 0u32..20, 1 => 0u32..1500];
    let removed = vec((any::<Index>(), prop_oneof![3 => 1usize..40, 1 => 1usize..1500]), 0..3);
    (
        (added, removed, vec(any::<Index>(), 0..3), any::<bool>(), any::<bool>()),
        (prop::option::of(0u8..5), prop::option::weighted(0.2, any::<Index>())),
        (vec((any::<Index>(), 1usize..50), 0..3), vec(any::<Index>(), 0..2), prop::bool::weighted(0.2)),
        any::<bool>(),
    )
        .prop_map(|(files, (index, removed_index), (segments, removed_segments, updates), is_checkpoint)| {
            let (added, removed, changed, adds_schema, removes_schemas) = files;
            Plan {
                added,
                removed,
                changed,
                adds_schema,
                removes_schemas,
                index,
                removed_index,
                segments,
                removed_segments,
                updates,
                is_checkpoint,
            }
        })
}

impl Plan {
    /// The edit after a state.
    fn edit(&self, state: &State) -> ManifestEdit {
        let mut changes = ManifestChanges::default();
        self.change_files(state, &mut changes);
        self.change_indexes(state, &mut changes);
        changes.updates = self.updates.then(samples_updates::key_only);
        samples::edit(state.number + 1, changes)
    }

    fn change_files(&self, state: &State, changes: &mut ManifestChanges) {
        let live: Vec<u32> = state.files.keys().copied().collect();
        if self.adds_schema || state.schemas.is_empty() {
            let schema = format!("schema {}", state.next_schema).into_bytes();
            changes.schemas_added = AddedSchemas { first: state.next_schema, schemas: vec![schema] };
        }
        let schema = state.next_schema - u32::from(changes.schemas_added.schemas.is_empty());
        if !live.is_empty() {
            let ranges =
                self.removed.iter().map(|(start, length)| live.iter().skip(start.index(live.len())).take(*length));
            changes.files_removed = ranges.flatten().copied().collect();
            let stays = |number: &u32| !changes.files_removed.contains(*number);
            let picked: FileNumbers =
                self.changed.iter().map(|place| live[place.index(live.len())]).filter(stays).collect();
            let touched = |number| ManifestFile {
                modified_ns: i64::from(number) - 5,
                etag: Some(format!("tag of {}", state.number)),
                schema,
                false_statistics: vec![1, number + 2],
                ..state.files[&number].clone()
            };
            changes.files_changed = picked.iter().map(|number| (number, touched(number))).collect();
        }
        // Files that left come again under their paths.
        let again = changes.files_removed.iter().take(2).map(|number| state.files[&number].path.clone());
        let fresh = (state.next_file..).map(|number| format!("day={}/größe-{number}.parquet", number % 7));
        let paths = again.chain(fresh).take(self.added as usize);
        let files: Vec<_> = paths.map(|path| ManifestFile { schema, ..file(path) }).collect();
        changes.files_added = AddedFiles { first: if files.is_empty() { 0 } else { state.next_file }, files };
        if self.removes_schemas {
            let stay = |(number, _): &(&u32, &ManifestFile)| !changes.files_removed.contains(**number);
            let used: Vec<u32> = state.files.iter().filter(stay).map(|(_, file)| file.schema).collect();
            changes.schemas_removed =
                state.schemas.keys().copied().filter(|number| *number != schema && !used.contains(number)).collect();
        }
    }

    fn change_indexes(&self, state: &State, changes: &mut ManifestChanges) {
        let there: Vec<&ManifestSegment> = state.segments.values().collect();
        let mut removed: Vec<[u8; 16]> = Vec::new();
        if !there.is_empty() {
            removed.extend(self.removed_segments.iter().map(|place| there[place.index(there.len())].id));
        }
        let mut indexes: Vec<[u8; 16]> = state.indexes.values().map(|index| index.id).collect();
        if let Some(place) = self.removed_index.filter(|_| !indexes.is_empty()) {
            let id = indexes.swap_remove(place.index(indexes.len()));
            removed.extend(there.iter().filter(|segment| segment.index_id == id).map(|segment| segment.id));
            changes.indexes_removed = vec![id];
        }
        removed.sort();
        removed.dedup();
        changes.segments_removed = removed;
        let name = |number: u8| format!("index {number}");
        if let Some(number) = self.index.filter(|number| !state.indexes.contains_key(&name(*number))) {
            let mut id = [number; 16];
            id[..8].copy_from_slice(&state.number.to_le_bytes());
            changes.indexes_added = vec![ManifestIndex { id, name: name(number), ..samples::indexes().remove(0) }];
            indexes.push(id);
        }
        let end = state.next_file + changes.files_added.files.len() as u32;
        if end > 0 && !indexes.is_empty() {
            for (place, (start, length)) in self.segments.iter().enumerate() {
                let first = start.index(end as usize) as u32;
                let mut id = [place as u8; 16];
                id[..8].copy_from_slice(&state.number.to_be_bytes());
                changes.segments_added.push(ManifestSegment {
                    id,
                    index_id: indexes[start.index(indexes.len())],
                    ..samples::segment(0, FileNumbers::of_range(first..end.min(first + *length as u32)))
                });
            }
        }
        changes.sort();
    }
}

/// Reads all pieces that are named, until there is none.
fn read(pieces: &BTreeMap<PieceId, Vec<u8>>, missing: impl Fn() -> Vec<Piece>) {
    loop {
        let missing = missing();
        if missing.is_empty() {
            return;
        }
        missing.iter().for_each(|piece| piece.supply(&pieces[&piece.id()]).unwrap());
    }
}

/// A store that goes through a history: its pieces, and its state in three ways.
struct History {
    model: State,
    pieces: BTreeMap<PieceId, Vec<u8>>,
    /// Applied from nothing on.
    replayed: Manifest,
    /// The same, on from each checkpoint that was written.
    kept: Manifest,
    /// Opened from each checkpoint by its root, with only those pieces that were needed.
    opened: Manifest,
}

impl History {
    fn new() -> Self {
        let manifest = Manifest::new(samples::STORE);
        let model = State { store_id: samples::STORE, ..State::default() };
        Self { model, pieces: BTreeMap::new(), replayed: manifest.clone(), kept: manifest.clone(), opened: manifest }
    }

    fn step(&mut self, plan: &Plan) {
        let edit = plan.edit(&self.model);
        let bytes = edit.encode().unwrap();
        assert!(bytes == forge::edit(&edit));
        let edit = ManifestEdit::decode(&bytes).unwrap();
        self.model.apply(&edit);
        for manifest in [&mut self.replayed, &mut self.kept, &mut self.opened] {
            *manifest = manifest.apply(&edit).unwrap();
        }
        if plan.is_checkpoint {
            self.checkpoint();
        }
    }

    fn checkpoint(&mut self) {
        let (root, pieces) = self.model.checkpoint();
        let whole = self.replayed.to_checkpoint().unwrap();
        assert!(whole.root == root);
        assert!(whole.pieces.into_iter().eq(pieces.clone()));
        let kept = self.kept.to_checkpoint().unwrap();
        assert!(kept.root == root);
        read(&self.pieces, || self.opened.missing_of_checkpoint());
        let opened = self.opened.to_checkpoint().unwrap();
        assert!(opened.root == root);
        assert!(opened.pieces == kept.pieces, "others are to be written");
        assert!(kept.pieces.iter().all(|(id, bytes)| pieces[id] == *bytes));
        self.pieces.extend(kept.pieces);
        // Those that are not written again are there.
        assert!(pieces.iter().all(|(id, bytes)| self.pieces[id] == *bytes));
        self.kept = kept.manifest;
        self.opened = Manifest::from_root(&root).unwrap();
        for manifest in [&self.kept, &self.opened] {
            assert_eq!(manifest.checkpoint(), self.model.number);
            assert_eq!(manifest.pieces(), pieces.keys().copied().collect());
        }
    }

    /// What is asked for is what the model has, whatever was read before.
    fn check_answers(&self, place: Index) {
        for manifest in [&self.replayed, &self.kept, &self.opened] {
            let live = manifest.live_files();
            assert!(live.iter().eq(self.model.files.keys().copied()));
            assert_eq!((live.len(), manifest.file_count()), (self.model.files.len() as u64, live.len()));
            assert_eq!((manifest.next_file(), manifest.next_schema()), (self.model.next_file, self.model.next_schema));
            assert!(manifest.indexes().eq(self.model.indexes.values()));
            assert!(manifest.segments().map(|segment| &**segment).eq(self.model.segments.values()));
            let schemas = self.model.schemas.iter().map(|(number, schema)| (*number, schema.as_slice()));
            assert!(manifest.schemas().map(|(number, schema)| (number, &**schema)).eq(schemas));
            assert_eq!(manifest.updates().map(|updates| &**updates), self.model.updates.as_ref());
            let number = place.index(self.model.next_file as usize + 1) as u32;
            read(&self.pieces, || manifest.missing_of_files(&FileNumbers::of_range(number..number + 1)));
            assert_eq!(manifest.file(number).unwrap().map(|file| &**file), self.model.files.get(&number));
            let there = self.model.files.values().nth(place.index(self.model.files.len().max(1)));
            for path in there.map(|file| file.path.as_str()).into_iter().chain(["no such path"]) {
                let expected = self.model.files.iter().find(|(_, file)| file.path == path).map(|(number, _)| *number);
                read(&self.pieces, || manifest.missing_of_paths([path]));
                assert_eq!(manifest.number_of(path), Ok(expected));
            }
            read(&self.pieces, || manifest.missing_of_all_files());
            let files: Vec<_> = manifest.files().map(Result::unwrap).map(|(number, file)| (number, &**file)).collect();
            assert!(files.into_iter().eq(self.model.files.iter().map(|(number, file)| (*number, file))));
        }
    }
}

/// Edits of which each changes something else, so that they may come in any order: a state to begin with, and the changes.
fn independent() -> (Manifest, Vec<ManifestChanges>) {
    let none = ManifestChanges::default;
    let named = |number: u32| file(format!("f{number}"));
    let base = ManifestChanges {
        schemas_added: AddedSchemas { first: 0, schemas: vec![b"a".to_vec(), b"b".to_vec()] },
        files_added: AddedFiles { first: 0, files: (0..1100).map(named).collect() },
        indexes_added: samples::indexes(),
        segments_added: (1..5).map(|id| samples::segment(id, FileNumbers::of_range(0..9))).collect(),
        ..none()
    };
    let base = Manifest::new(samples::STORE).apply(&samples::edit(1, base)).unwrap();
    let index = ManifestIndex { id: [9; 16], name: "a".into(), ..samples::indexes().remove(0) };
    let changes = vec![
        ManifestChanges { files_removed: FileNumbers::of_range(3..4), ..none() },
        ManifestChanges { files_removed: FileNumbers::of_range(500..1090), ..none() },
        ManifestChanges { files_changed: vec![(7, ManifestFile { modified_ns: 1, ..named(7) })], ..none() },
        ManifestChanges { files_changed: vec![(8, ManifestFile { size: 1, ..named(8) })], ..none() },
        ManifestChanges { schemas_removed: vec![1], ..none() },
        ManifestChanges { segments_removed: vec![[2; 16]], ..none() },
        ManifestChanges { segments_added: vec![samples::segment(7, FileNumbers::of_range(3..5))], ..none() },
        ManifestChanges { segments_added: vec![samples::segment(6, FileNumbers::of_range(3..5))], ..none() },
        ManifestChanges { indexes_added: vec![index], ..none() },
        ManifestChanges { indexes_removed: vec![[0x2d; 16]], ..none() },
        ManifestChanges { updates: Some(samples_updates::updates()), ..none() },
    ];
    (base, changes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn replay_checkpoints_and_plain_maps_are_the_same_state(plans in vec(plan(), 1..9), place in any::<Index>()) {
        let mut history = History::new();
        plans.iter().for_each(|plan| history.step(plan));
        history.checkpoint();
        history.check_answers(place);
    }

    #[test]
    fn a_state_answers_the_same_whatever_it_has_read(plans in vec(plan(), 1..9), place in any::<Index>()) {
        let mut history = History::new();
        for plan in &plans {
            history.step(plan);
            history.check_answers(place);
        }
    }

    #[test]
    fn the_same_state_has_the_same_bytes_in_whatever_order_edits_led_to_it(
        order in Just((0..11).collect::<Vec<usize>>()).prop_shuffle(),
        checkpoints in vec(any::<bool>(), 11),
    ) {
        let (base, changes) = independent();
        let last = |changes| ManifestEdit { created_ms: 5, ..samples::edit(base.number() + 1, changes) };
        let whole = |order: &[usize]| {
            let mut manifest = base.clone();
            for (change, is_checkpoint) in order.iter().zip(&checkpoints) {
                let edit = ManifestEdit { number: manifest.number() + 1, ..last(changes[*change].clone()) };
                manifest = manifest.apply(&edit).unwrap();
                if *is_checkpoint {
                    manifest = manifest.to_checkpoint().unwrap().manifest;
                }
            }
            let root = manifest.to_checkpoint().unwrap().root;
            (root, manifest.to_checkpoint().unwrap().manifest.pieces())
        };
        prop_assert!(whole(&order) == whole(&(0..11).collect::<Vec<_>>()));
    }
}

proptest! {
    #[test]
    fn random_bytes_are_no_edit_root_or_piece(bytes in vec(any::<u8>(), 0..400)) {
        prop_assert!(ManifestEdit::decode(&bytes).is_err());
        prop_assert!(Manifest::from_root(&bytes).is_err());
        prop_assert!(Piece::read(&bytes).is_err());
    }

    /// Behind good checksums anything may stand: an error or another value with one encoding, never a panic.
    #[test]
    fn a_changed_edit_never_panics(number in 0usize..4, edits in edits()) {
        let (_, value) = golden_manifests::edits().swap_remove(number);
        let mut body = forge::edit_body(&value);
        change_bytes(&mut body, &edits);
        let file = forge::whole(ContentKind::Edit, value.store_id, &body);
        if let Ok(read) = ManifestEdit::decode(&file) {
            prop_assert!(read.encode().unwrap() == file, "an edit has one encoding");
            let empty = Manifest::new(value.store_id);
            drop(empty.apply(&ManifestEdit { number: 1, ..read.clone() }));
            drop(samples::manifest().apply(&ManifestEdit { number: 3, ..read }));
        }
    }

    #[test]
    fn a_changed_root_or_piece_never_panics(number in 0usize..5, edits in edits()) {
        let (name, good) = golden_manifests::checkpoints().swap_remove(number);
        let opened = open_tail(&good, good.len() as u64).unwrap();
        let mut body = opened.directory.unwrap().to_vec();
        change_bytes(&mut body, &edits);
        if name.ends_with(".lmk") {
            let file = forge::whole(ContentKind::Checkpoint, opened.trailer.id, &body);
            if let Ok(read) = Manifest::from_root(&file) {
                prop_assert!(read.to_checkpoint().unwrap().root == file, "a root has one encoding");
            }
        } else {
            let file = forge::piece(opened.trailer.kind, &body);
            if let Ok(read) = Piece::read(&file) {
                prop_assert!(read.encode().unwrap() == file, "a piece has one encoding");
                read.supply(&file).unwrap();
            }
        }
    }
}
