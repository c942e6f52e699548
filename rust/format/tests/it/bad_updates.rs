//! Bad edits and roots of tables that take updates, whose checksums are all good.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::forge_manifests::Root;
use crate::samples_manifests::{STORE, of_updates};
use crate::{forge_manifests, forge_updates, samples_updates as samples};

fn with(name: &str, wrong: &'static str, change: impl FnOnce(&mut ManifestUpdates)) -> Bad {
    let mut updates = samples::updates();
    change(&mut updates);
    bad(name, "DamagedUpdates", wrong, forge_manifests::edit(&of_updates(updates)))
}

/// An edit that has nothing buffered, with other bytes in its body, and where in it the updates begin.
fn raw(name: &str, wrong: &'static str, change: impl FnOnce(&mut Vec<u8>, usize)) -> Bad {
    let updates = samples::key_only();
    let part = forge_updates::part(&updates).len();
    let mut body = forge_manifests::edit_body(&of_updates(updates));
    let at = body.len() - part;
    change(&mut body, at);
    bad(name, "DamagedUpdates", wrong, forge_manifests::whole(ContentKind::Edit, STORE, &body))
}

/// The root of a checkpoint that has nothing buffered, with other bytes in its body.
fn in_root(name: &str, wrong: &'static str, change: impl FnOnce(&mut Vec<u8>)) -> Bad {
    let (pages, updates) = (vec![(0, None)], Some(samples::key_only()));
    let mut body = forge_manifests::root_body(&Root { pages, updates, ..Root::default() });
    change(&mut body);
    bad(name, "DamagedUpdates", wrong, forge_manifests::whole(ContentKind::Checkpoint, STORE, &body))
}

pub fn updates() -> Vec<Bad> {
    [bytes(), keys(), runs(), migrations(), files(), extras()].into_iter().flatten().collect()
}

const HUGE: [u8; 9] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
/// Bytes behind the number of runs, where nothing is buffered.
const BEHIND_RUNS: usize = 9;

fn bytes() -> Vec<Bad> {
    let runs = |body: &mut Vec<u8>, bytes: &[u8]| {
        let at = body.len() - BEHIND_RUNS - 1;
        drop(body.splice(at..at + 1, bytes.iter().copied()));
    };
    vec![
        raw("updates-cut.lmm", "the last counter is missing", |body, _| body.truncate(body.len() - 1)),
        raw("updates-empty.lmm", "the byte before the updates is the last", |body, at| body.truncate(at)),
        raw("updates-longer.lmm", "a byte follows the last counter", |body, _| body.push(0)),
        in_root("updates-of-root-longer.lmk", "a byte follows the last counter", |body| body.push(0)),
        in_root("updates-of-root-cut.lmk", "the last counter is missing", |body| body.truncate(body.len() - 1)),
        raw("key-columns-huge.lmm", "the key has 2^63 - 1 columns", |body, at| {
            drop(body.splice(at..at + 1, HUGE));
        }),
        raw("runs-huge.lmm", "there are 2^63 - 1 runs", |body, _| runs(body, &HUGE)),
        raw("migration-flag-2.lmm", "the flag of the migration is 2", |body, _| {
            let at = body.len() - BEHIND_RUNS;
            body[at] = 2;
        }),
        raw("migrated-range-of-33-bits.lmm", "a migrated range ends beyond 2^32 - 1", |body, _| {
            let run = [[7; 16].as_slice(), &[1, b'r', 0, 1, 5, 0, 0, 1]].concat();
            let range = [0xff, 0xff, 0xff, 0xff, 0x0f, 1];
            runs(body, &[&[1], run.as_slice(), &range, &[0, 0]].concat());
        }),
    ]
}

fn keys() -> Vec<Bad> {
    vec![
        with("no-key-column.lmm", "the key has no column", |updates| updates.key.clear()),
        with("key-of-65-columns.lmm", "the key has 65 columns", |updates| {
            updates.key = (0..65).map(|column| format!("c{column}")).collect();
        }),
        with("key-column-twice.lmm", "a column is twice in the key", |updates| {
            updates.key = vec!["a".into(), "b".into(), "a".into()];
        }),
        with("log-path-escapes.lmm", "the log's path leads out of the store", |updates| {
            updates.log.path = "updates/../../log".into();
        }),
        with("log-begins-in-run.lmm", "the log begins with a commit that is in a run", |updates| {
            updates.log.first_sequence = 33;
        }),
    ]
}

fn runs() -> Vec<Bad> {
    vec![
        with("run-twice.lmm", "two runs have one id", |updates| updates.runs[1].id = updates.runs[0].id),
        with("run-path-absolute.lmm", "a run's path starts with a slash", |updates| {
            updates.runs[1].path = "/run".into();
        }),
        with("run-of-no-pass.lmm", "a run was written 0 times", |updates| updates.runs[0].passes = 0),
        with("run-of-3-passes.lmm", "a run was written 3 times", |updates| updates.runs[0].passes = 3),
        with("runs-out-of-order.lmm", "the newer run is listed first", |updates| {
            updates.migration = None;
            updates.runs.reverse();
        }),
        with("runs-overlap.lmm", "a run begins with the last commit of the one before", |updates| {
            updates.runs[1].first_sequence = 30;
        }),
        with("run-ends-before-it-begins.lmm", "a run's last commit is before its first", |updates| {
            updates.runs[1].last_sequence = 32;
        }),
        with("run-of-the-last-sequence.lmm", "a run's last commit has the number 2^64 - 1", |updates| {
            updates.runs[1].last_sequence = u64::MAX;
            updates.log.first_sequence = u64::MAX;
        }),
        with("migrated-range-empty.lmm", "a migrated range has no row", |updates| {
            updates.runs[1].migrated = std::iter::once(3..3).collect();
        }),
        with("migrated-range-beyond-run.lmm", "a migrated range ends behind the run's last row", |updates| {
            updates.runs[1].migrated = std::iter::once(3..11).collect();
        }),
        with("migrated-ranges-overlap.lmm", "two migrated ranges have a row in common", |updates| {
            updates.runs[1].migrated = vec![0..4, 3..6];
        }),
        with("migrated-ranges-touch.lmm", "a migrated range begins where the one before ends", |updates| {
            updates.runs[1].migrated = vec![0..4, 4..6];
        }),
        with("migrated-ranges-descend.lmm", "the later migrated range is listed first", |updates| {
            updates.runs[1].migrated = vec![5..6, 0..4];
        }),
        with(
            "run-during-a-later-migration.lmm",
            "a run was written during a migration that was never begun",
            |updates| {
                updates.runs[1].during = 4;
            },
        ),
        with("position-map-path-escapes.lmm", "a position map's path leads out of the store", |updates| {
            updates.runs[0].position_map.as_mut().unwrap().path = "..".into();
        }),
    ]
}

fn migrations() -> Vec<Bad> {
    let slices = |name: &str, wrong: &'static str, slices: &[(u32, u32, u32)]| {
        let ranges = slices.iter().map(|&(run, start, end)| RunRange { run, rows: start..end }).collect();
        let migration = ManifestMigration { number: 3, ranges };
        with(name, wrong, |updates| updates.migration = Some(migration))
    };
    vec![
        with("migration-of-another-number.lmm", "the migration is not the last that was begun", |updates| {
            updates.migrations = 4;
        }),
        with("migration-0.lmm", "the migration has the number 0", |updates| {
            updates.migrations = 0;
            updates.migration.as_mut().unwrap().number = 0;
        }),
        slices("slice-of-no-run.lmm", "a slice is of a run that is not listed", &[(2, 0, 1)]),
        slices("slice-beyond-run.lmm", "a slice ends behind the run's last row", &[(1, 9, 11)]),
        slices("slice-empty.lmm", "a slice has no row", &[(1, 2, 2)]),
        slices("slices-overlap.lmm", "two slices have a row in common", &[(1, 0, 4), (1, 3, 6)]),
        slices("slices-touch.lmm", "a slice begins where the one before ends", &[(1, 0, 4), (1, 4, 6)]),
        slices("slices-descend.lmm", "a slice is of an older run than the one before", &[(1, 0, 4), (0, 0, 1)]),
    ]
}

fn files() -> Vec<Bad> {
    vec![
        with("replaced-file-twice.lmm", "a replaced file is listed twice", |updates| {
            updates.replaced.push(updates.replaced[0].clone());
        }),
        with("replaced-path-escapes.lmm", "a replaced file's path leads out of the table", |updates| {
            updates.replaced[0].path = "a/../../b".into();
        }),
        with("store-file-twice.lmm", "a file of the store is listed twice", |updates| {
            updates.data[1].path = updates.data[0].path.clone();
        }),
        with("store-path-absolute.lmm", "a path of a file of the store starts with a slash", |updates| {
            updates.data[0].path = "/data".into();
        }),
    ]
}

/// Of the part behind the updates.
fn extras() -> Vec<Bad> {
    let with = |name: &str, wrong: &'static str, change: &dyn Fn(&mut ManifestUpdates)| {
        let mut updates = samples::extras();
        change(&mut updates);
        bad(name, "DamagedUpdates", wrong, forge_manifests::edit(&of_updates(updates)))
    };
    vec![
        raw("extras-tag-3.lmm", "the byte behind the updates is 3", |body, _| body.extend([3, 0, 0, 0])),
        raw("extras-empty.lmm", "the part behind the updates has nothing", |body, _| body.extend([2, 0, 0, 0])),
        raw("extras-cut.lmm", "the part behind the updates ends early", |body, _| body.extend([2, 0, 0])),
        with("delta-ahead.lmm", "a migration is in the log that was never begun", &|updates| {
            updates.delta.as_mut().unwrap().last_migration = 4;
        }),
        with("application-twice.lmm", "an application is listed twice", &|updates| {
            updates.transactions[1].application = updates.transactions[0].application.clone();
        }),
        with("application-without-name.lmm", "an application has no name", &|updates| {
            updates.transactions[1].application.clear();
        }),
        with("application-of-log.lmm", "the call of an application is in the log", &|updates| {
            updates.transactions[0].sequence = updates.log.first_sequence;
        }),
        with("publication-0-first.lmm", "a publication under way is not the last", &|updates| {
            updates.publications.reverse();
        }),
        with("publications-descend.lmm", "a publication is older than the one before", &|updates| {
            updates.publications[1].manifest = 8;
        }),
        with("published-path-escapes.lmm", "the path of a published file leads out of the table", &|updates| {
            updates.publications[0].files[0].path = "a/../../b".into();
        }),
        with("published-twice.lmm", "two files are published under one path", &|updates| {
            let mut again = updates.publications[0].files[0].clone();
            again.stored = "data/9".into();
            updates.publications[0].files.push(again);
        }),
        with("original-stored-path-absolute.lmm", "an original is stored outside of the store", &|updates| {
            updates.publications[0].originals[0].stored = "/etc/a".into();
        }),
    ]
}
