//! Laws of what updates write: decode undoes encode, two readers of logs agree, and no bytes make a reader panic.

use std::ops::Range;

use lakemark_format::*;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use crate::properties::{edit, edits};
use crate::samples_updates::{self as samples, FIRST};
use crate::{forge_manifests, forge_updates, model_log, samples_manifests};

fn commit() -> impl Strategy<Value = LogCommit> {
    let operation =
        prop::sample::select(vec![Operation::Insert, Operation::Upsert, Operation::Update, Operation::Delete]);
    let change = (operation, vec(any::<u8>(), 0..40)).prop_map(|(operation, rows)| LogChange { operation, rows });
    (".{0,5}", vec(change, 0..4)).prop_map(|(tag, changes)| LogCommit { tag, changes })
}

fn frames() -> impl Strategy<Value = Vec<Vec<LogCommit>>> {
    vec(vec(commit(), 1..4), 0..6)
}

/// Ranges of rows, ascending and apart.
fn ranges(rows: u32) -> impl Strategy<Value = Vec<Range<u32>>> {
    btree_set(0..=rows, 0..7).prop_map(|ends| {
        let ends: Vec<_> = ends.into_iter().collect();
        ends.chunks_exact(2).map(|range| range[0]..range[1]).collect()
    })
}

fn run() -> impl Strategy<Value = ManifestRun> {
    let rows = prop_oneof![0..50u32, any::<u32>()];
    let sequences = (0u64..9, 0u64..1 << 40);
    let position_map = prop::option::of((any::<[u8; 16]>(), any::<u64>()));
    (rows.prop_flat_map(|rows| (Just(rows), ranges(rows))), any::<u64>(), 1u8..=2, sequences, position_map).prop_map(
        |((rows, migrated), length, passes, (first_sequence, last_sequence), position_map)| ManifestRun {
            id: [0; 16],
            path: String::new(),
            length,
            passes,
            rows,
            // How far they are from the run before, and from each other.
            first_sequence,
            last_sequence,
            migrated,
            position_map: position_map.map(|(id, length)| ManifestPositionMap {
                id,
                path: "updates/r.lmx".into(),
                length,
            }),
            during: 0,
        },
    )
}

#[expect(clippy::too_many_lines, reason = "one field after the other")]
fn updates() -> impl Strategy<Value = ManifestUpdates> {
    let migration = prop::option::of(vec(any::<prop::sample::Index>(), 0..4));
    let files = (vec((any::<u64>(), any::<i64>()), 0..4), vec(any::<u64>(), 0..4));
    let log = (any::<[u8; 16]>(), 0u64..1000);
    (
        btree_set(".{0,6}", 1..5),
        vec((".{0,5}", ".{0,5}"), 0..3),
        log,
        vec(run(), 0..5),
        migration,
        files,
        any::<[u64; 6]>(),
    )
        .prop_map(|(key, options, (id, gap), mut runs, migration, (replaced, data), counts)| {
            let mut next = 0;
            for (number, run) in runs.iter_mut().enumerate() {
                (run.id, run.path) = ([number as u8; 16], format!("updates/{number}.lmr"));
                run.first_sequence += next;
                run.last_sequence += run.first_sequence;
                next = run.last_sequence + 1;
            }
            let number = counts[0] | 1;
            for (run, during) in runs.iter_mut().zip(counts) {
                run.during = during.min(number);
            }
            let migration = migration.map(|chosen| {
                let mut slices: Vec<_> = (0..)
                    .zip(&runs)
                    .filter(|_| !chosen.is_empty())
                    .flat_map(|(number, run)| {
                        run.migrated.iter().map(move |rows| RunRange { run: number, rows: rows.clone() })
                    })
                    .collect();
                for index in chosen.iter().filter(|_| slices.len() > 1).cloned().collect::<Vec<_>>() {
                    slices.remove(index.index(slices.len()));
                    if slices.len() < 2 {
                        break;
                    }
                }
                ManifestMigration { number, ranges: slices }
            });
            let replaced = (0..).zip(replaced).map(|(number, (size, modified_ns))| ReplacedFile {
                path: format!("part-{number}"),
                size,
                modified_ns,
            });
            let data = (0..).zip(data).map(|(number, size)| StoreFile { path: format!("data/{number}"), size });
            ManifestUpdates {
                key: key.into_iter().collect(),
                options,
                log: ManifestLog { id, path: "updates/l.lml".into(), first_sequence: next + gap },
                runs,
                migration,
                migrations: number,
                replaced: replaced.collect::<Vec<_>>(),
                data: data.collect(),
                written: WriteCounters {
                    rows: counts[1],
                    log_bytes: counts[2],
                    flushed_bytes: counts[3],
                    merged_bytes: counts[4],
                    merged_rows: counts[5],
                },
                ..ManifestUpdates::default()
            }
        })
        .prop_flat_map(|updates| (Just(updates), extras()))
        .prop_map(|(updates, (transactions, publications, delta))| {
            let sequence = updates.log.first_sequence.checked_sub(1);
            let transactions = (0..).zip(transactions).filter_map(|(number, version)| {
                Some(ManifestTransaction { application: format!("application {number}"), version, sequence: sequence? })
            });
            let transactions = transactions.collect();
            let delta = delta.map(|(id, migrated, version)| ManifestDelta {
                table_id: format!("{id:x}"),
                last_migration: migrated.min(updates.migrations),
                version,
            });
            ManifestUpdates { transactions, publications, delta, ..updates }
        })
}

/// Numbers of calls, publications, and what makes a Delta table.
type Extras = (Vec<u64>, Vec<ManifestPublication>, Option<(u64, u64, u64)>);

/// Numbers of calls, publications of which the last may be under way, and a Delta table.
fn extras() -> impl Strategy<Value = Extras> {
    let publication = (vec(any::<u64>(), 0..3), vec((any::<u64>(), any::<i64>()), 0..3));
    let parts = (vec(any::<u64>(), 0..3), vec(publication, 0..3), any::<bool>(), any::<Option<(u64, u64, u64)>>());
    parts.prop_map(|(versions, publications, under_way, delta)| {
        let mut publications: Vec<ManifestPublication> = (1..)
            .zip(publications)
            .map(|(manifest, (files, originals))| ManifestPublication {
                manifest,
                files: (0..)
                    .zip(files)
                    .map(|(n, size)| PublishedFile { stored: format!("data/{n}"), path: format!("p{n}"), size })
                    .collect(),
                originals: (0..)
                    .zip(originals)
                    .map(|(n, (size, modified_ns))| MovedFile {
                        path: format!("o{n}"),
                        stored: format!("originals/{n}"),
                        size,
                        modified_ns,
                    })
                    .collect(),
            })
            .collect();
        if let Some(last) = publications.last_mut().filter(|_| under_way) {
            last.manifest = 0;
        }
        (versions, publications, delta)
    })
}

/// Some of `rows` rows.
fn some_rows(rows: u32) -> BoxedStrategy<Vec<u32>> {
    match rows {
        0 => Just(vec![]).boxed(),
        _ => btree_set(0..rows, 0..40).prop_map(|rows| rows.into_iter().collect()).boxed(),
    }
}

fn position_map() -> impl Strategy<Value = PositionMap> {
    let rows = prop_oneof![0..60u32, any::<u32>()];
    rows.prop_flat_map(|rows| {
        let groups = vec(prop_oneof![0..9u32, 0..1u32 << 28], 0..4);
        let deleted = groups.prop_flat_map(|groups| (some_rows(groups.iter().sum()), Just(groups)));
        let identity = (any::<u64>(), any::<i64>(), prop::option::of(".{0,6}"));
        let file = (identity, deleted, some_rows(rows));
        let run = prop_oneof![0..60u32, any::<u32>()].prop_flat_map(|rows| (Just(rows), some_rows(rows)));
        (any::<[u8; 15]>(), Just(rows), vec(file, 0..4), vec(run, 0..4))
    })
    .prop_map(|(id, rows, files, runs)| {
        let files = (0..).zip(files).map(|(number, ((size, modified_ns, etag), (deleted, row_groups), completed))| {
            PositionsInFile {
                path: format!("{}", number % 3),
                size: size / 4 * 4 + number / 3,
                modified_ns,
                etag,
                row_groups,
                deleted,
                completed,
            }
        });
        let runs =
            (1u8..).zip(runs).map(|(number, (rows, replaced))| PositionsInRun { id: [number; 16], rows, replaced });
        let mut own = [0; 16];
        own[..15].copy_from_slice(&id);
        let keys = (rows < 60 && rows % 2 == 1).then(|| {
            let hashes: Vec<u64> = (0..rows).map(|row| filter::hash(&Key::Fixed(row.into()))).collect();
            KeyFilter::of(vec![KeyType::Int64], filter::Density::of_fpp(0.01), &hashes)
        });
        PositionMap { id: own, run: [0; 16], rows, files: files.collect(), runs: runs.collect(), keys }
    })
}

/// Two readers find the same in these bytes.
fn agree(bytes: &[u8]) -> std::result::Result<(), TestCaseError> {
    let read = samples::read_log(bytes);
    if let Err(error) = &read {
        prop_assert!(matches!(error, FormatError::DamagedUpdates { .. }), "{}", error);
    }
    prop_assert_eq!(read.ok().map(|read| (read.commits, read.torn)), model_log::read(bytes));
    Ok(())
}

proptest! {
    #[test]
    fn updates_are_read_as_they_were_written(updates in updates()) {
        let edit = samples_manifests::of_updates(updates);
        let bytes = edit.encode().unwrap();
        prop_assert!(bytes == forge_manifests::edit(&edit));
        prop_assert_eq!(ManifestEdit::decode(&bytes), Ok(edit));
    }

    #[test]
    fn changed_updates_never_panic(updates in updates(), edits in edits()) {
        let mut part = forge_updates::part(&updates);
        edit(&mut part, &edits);
        let before = forge_manifests::edit_body(&samples_manifests::edit(1, ManifestChanges::default()));
        let body = [before.as_slice(), &[10], &part].concat();
        let file = forge_manifests::whole(ContentKind::Edit, samples_manifests::STORE, &body);
        match ManifestEdit::decode(&file) {
            Ok(read) => prop_assert!(read.encode().unwrap() == file, "what is read is written as the same bytes"),
            Err(error) => prop_assert!(matches!(error, FormatError::DamagedUpdates { .. }), "{}", error),
        }
    }

    #[test]
    fn a_position_map_is_read_as_it_was_written(value in position_map()) {
        let bytes = value.encode().unwrap();
        prop_assert!(bytes == forge_updates::position_map(value.id, &forge_updates::position_map_body(&value)));
        prop_assert_eq!(PositionMap::decode(&bytes), Ok(value));
    }

    #[test]
    fn a_changed_position_map_never_panics(value in position_map(), edits in edits()) {
        let mut body = forge_updates::position_map_body(&value);
        edit(&mut body, &edits);
        let file = forge_updates::position_map(value.id, &body);
        // Postings may have any form, so that the value comes back and not the bytes.
        if let Ok(read) = PositionMap::decode(&file) {
            let again = read.encode().unwrap();
            prop_assert_eq!(PositionMap::decode(&again), Ok(read));
        }
    }

    #[test]
    fn a_log_is_read_as_it_was_written(frames in frames()) {
        let (bytes, _) = samples::log(&frames);
        let read = samples::read_log(&bytes).unwrap();
        prop_assert_eq!((read.commits, read.end, read.torn), (samples::numbered(&frames), bytes.len() as u64, false));
        let mut sequence = FIRST;
        let forged: Vec<_> = frames
            .iter()
            .map(|commits| {
                let first = sequence;
                sequence += commits.len() as u64;
                (first, forge_updates::payload(commits))
            })
            .collect();
        prop_assert!(forge_updates::log(&forged) == bytes);
    }

    #[test]
    fn a_log_cut_anywhere_keeps_its_whole_frames(frames in frames(), cut in any::<prop::sample::Index>()) {
        let (bytes, ends) = samples::log(&frames);
        let length = 68 + cut.index(bytes.len() - 67);
        let whole = ends.iter().filter(|end| **end <= length).count();
        let read = samples::read_log(&bytes[..length]).unwrap();
        prop_assert_eq!(read.commits, samples::numbered(&frames[..whole]));
        prop_assert_eq!(read.torn, length as u64 > read.end);
        agree(&bytes[..length])?;
    }

    /// Damage never makes commits: what is read is a part of what was written, from its beginning.
    #[test]
    fn a_changed_log_holds_no_other_commits(frames in frames(), edits in edits()) {
        let (mut bytes, _) = samples::log(&frames);
        edit(&mut bytes, &edits);
        if let Ok(read) = samples::read_log(&bytes) {
            prop_assert!(samples::numbered(&frames).starts_with(&read.commits));
        }
        agree(&bytes)?;
    }

    #[test]
    fn a_changed_payload_never_panics(frames in frames(), place in any::<prop::sample::Index>(), edits in edits()) {
        let mut sequence = FIRST;
        let mut forged = Vec::new();
        for commits in &frames {
            forged.push((sequence, forge_updates::payload(commits)));
            sequence += commits.len() as u64;
        }
        if !forged.is_empty() {
            let changed = place.index(forged.len());
            edit(&mut forged[changed].1, &edits);
        }
        agree(&forge_updates::log(&forged))?;
    }

    #[test]
    fn random_bytes_of_updates_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        prop_assert!(PositionMap::decode(&bytes).is_err());
        prop_assert!(samples::read_log(&bytes).is_err());
        agree(&[log::log_header(samples::LOG), bytes.clone()].concat())?;
        drop(PositionMap::decode(&forge_updates::position_map([1; 16], &bytes)));
        agree(&forge_updates::log(&[(FIRST, bytes)]))?;
    }
}
