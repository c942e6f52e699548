//! What edits make of the part about updates.

use std::ops::Range;

use lakemark_format::{
    ManifestDelta, ManifestLog, ManifestMigration, ManifestPublication, ManifestRun, ManifestTransaction,
    ManifestUpdates, RunRange, WriteCounters,
};

use super::{CompactedRows, Edit};

/// Applications whose last call is known.
pub(super) const REMEMBERED_APPLICATIONS: usize = 1000;

/// Applies an edit of updates to those of the manifest `number`; says whether it changed them.
pub(super) fn change(updates: &mut ManifestUpdates, edit: &Edit, number: u64) -> bool {
    let is_current = |updates: &ManifestUpdates, number: u64| {
        updates.migration.as_ref().is_some_and(|migration| migration.number == number)
    };
    match edit {
        Edit::CreateIndex { .. }
        | Edit::DropIndex { .. }
        | Edit::AddSegments(_)
        | Edit::ReplaceSegments(_)
        | Edit::DeclareKey { .. } => return false,
        Edit::AddRun { of_log, run, log, written, transactions, compacted } => {
            // The lock of writers sees to it that the log is still the one that was flushed, and that no migration is abandoned meanwhile.
            if updates.log.id != *of_log || !is_known(updates, run, compacted.as_ref()) {
                return false;
            }
            updates.runs.push(run.as_ref().clone());
            updates.log = log.clone();
            add_transactions(&mut updates.transactions, transactions);
            add_counters(&mut updates.written, written);
        }
        // Only one migration is begun at a time, and its number is the next one.
        Edit::BeginMigration { migration } if updates.migrations + 1 != migration.number => return false,
        Edit::BeginMigration { migration } => begin_migration(updates, migration.clone()),
        Edit::MigrateFolder { number, .. } | Edit::EndMigration { number, .. } | Edit::AbandonMigration { number }
            if !is_current(updates, *number) =>
        {
            return false;
        }
        Edit::MigrateFolder { originals, own, data, .. } => {
            updates.replaced.extend(originals.iter().cloned());
            updates.data.retain(|file| !own.contains(&file.path));
            updates.data.extend(data.iter().cloned());
            end_migration(updates);
        }
        Edit::EndMigration { number, version } => {
            end_migration(updates);
            if let Some(delta) = &mut updates.delta {
                (delta.last_migration, delta.version) = (*number, *version);
            }
        }
        Edit::AbandonMigration { .. } => forget_migration(updates),
        Edit::TakeOver { migrations, log, delta } => take_over(updates, *migrations, log.as_ref(), delta.as_ref()),
        Edit::BeginPublication { publication } => return begin_publication(updates, publication),
        Edit::EndPublication => return end_publication(updates, number + 1),
        Edit::MergeRuns { parts, run, written } => return merge_runs(updates, parts, run, written),
    }
    true
}

/// Whether the migration during which a run was written is under way or has ended. Of an abandoned one that is forgotten the run would count
/// as if it had ended.
fn is_known(updates: &ManifestUpdates, run: &ManifestRun, compacted: Option<&CompactedRows>) -> bool {
    let is_under_way = updates.migration.as_ref().is_some_and(|migration| migration.number == run.during);
    let has_ended =
        |of: &CompactedRows| {
            // A run of which nothing is left is forgotten.
            updates.runs.iter().find(|have| have.id == of.run).is_none_or(|have| {
                have.migrated.iter().any(|rows| rows.start <= of.rows.start && of.rows.end <= rows.end)
            })
        };
    run.during == 0 || is_under_way || compacted.is_some_and(has_ended)
}

fn take_over(updates: &mut ManifestUpdates, migrations: u64, log: Option<&ManifestLog>, delta: Option<&ManifestDelta>) {
    updates.migrations = updates.migrations.max(migrations);
    forget_migration(updates);
    updates.delta = delta.cloned();
    if let Some(log) = log {
        updates.runs.clear();
        updates.log = log.clone();
    }
}

fn begin_publication(updates: &mut ManifestUpdates, publication: &ManifestPublication) -> bool {
    let is_all = updates.data.iter().map(|file| &file.path).eq(publication.files.iter().map(|file| &file.stored));
    let is_next = is_all && updates.publications.last().is_none_or(|last| last.manifest != 0);
    if is_next {
        updates.publications.push(publication.clone());
    }
    is_next
}

/// Ends the publication that was begun, by the manifest `manifest`.
fn end_publication(updates: &mut ManifestUpdates, manifest: u64) -> bool {
    let Some(begun) = updates.publications.last_mut().filter(|last| last.manifest == 0) else { return false };
    begun.manifest = manifest;
    updates.data.clear();
    updates.replaced.clear();
    true
}

fn merge_runs(
    updates: &mut ManifestUpdates,
    parts: &[ManifestRun],
    run: &ManifestRun,
    written: &WriteCounters,
) -> bool {
    // The merged run lacks what was migrated when it was written, and has all else. Equal runs have the same rows migrated.
    let place = updates.runs.windows(parts.len().max(1)).position(|runs| runs == parts);
    let place = place.filter(|place| *place >= bound_by_migration(updates));
    if let Some(place) = place {
        updates.runs.splice(place..place + parts.len(), [run.clone()]);
        add_counters(&mut updates.written, written);
    }
    place.is_some()
}

/// How many runs stay as they are until the migration that is under way is done. The migration names the runs that it compacts by their
/// places. Other runs come to something else once it is done.
pub(crate) fn bound_by_migration(updates: &ManifestUpdates) -> usize {
    let Some(migration) = &updates.migration else { return 0 };
    let named = migration.ranges.iter().map(|range| range.run as usize + 1);
    let written_meanwhile = updates.runs.iter().zip(1..).filter(|(run, _)| run.during == migration.number);
    named.chain(written_meanwhile.map(|(_, place)| place)).max().unwrap_or(0)
}

/// From now on the migration is under way. One before it that did not come to its end never will.
pub(crate) fn begin_migration(updates: &mut ManifestUpdates, migration: ManifestMigration) {
    forget_migration(updates);
    updates.migrations = migration.number;
    updates.migration = Some(migration);
}

/// What the migration would have compacted stays buffered, and runs that were written meanwhile are what they were then.
fn forget_migration(updates: &mut ManifestUpdates) {
    let Some(migration) = updates.migration.take() else { return };
    for run in updates.runs.iter_mut().filter(|run| run.during == migration.number) {
        run.during = 0;
    }
}

/// The slices of the migration are in the data files; runs of which nothing is left are forgotten.
fn end_migration(updates: &mut ManifestUpdates) {
    let Some(migration) = updates.migration.take() else { return };
    for RunRange { run, rows } in migration.ranges {
        if let Some(run) = updates.runs.get_mut(run as usize) {
            run.migrated.push(rows);
            run.migrated.sort_unstable_by_key(|rows| (rows.start, rows.end));
            let mut joined: Vec<Range<u32>> = Vec::with_capacity(run.migrated.len());
            for rows in std::mem::take(&mut run.migrated) {
                match joined.last_mut() {
                    Some(last) if last.end >= rows.start => last.end = last.end.max(rows.end),
                    _ => joined.push(rows),
                }
            }
            run.migrated = joined;
        }
    }
    updates.runs.retain(|run| !matches!(run.migrated.as_slice(), [all] if *all == (0..run.rows)));
}

/// Adds the last call of each application, with those that called last at the end. Jobs that give themselves a new name each time would
/// fill manifests, so that those that called longest ago are forgotten.
pub(super) fn add_transactions(have: &mut Vec<ManifestTransaction>, newer: &[ManifestTransaction]) {
    have.retain(|have| !newer.iter().any(|newer| newer.application == have.application));
    have.extend(newer.iter().cloned());
    have.drain(..have.len().saturating_sub(REMEMBERED_APPLICATIONS));
}

fn add_counters(sum: &mut WriteCounters, more: &WriteCounters) {
    sum.rows += more.rows;
    sum.log_bytes += more.log_bytes;
    sum.flushed_bytes += more.flushed_bytes;
    sum.merged_bytes += more.merged_bytes;
    sum.merged_rows += more.merged_rows;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(id: u8) -> ManifestLog {
        ManifestLog { id: [id; 16], path: format!("updates/{id}"), first_sequence: id.into() }
    }

    fn run(id: u8, during: u64) -> ManifestRun {
        ManifestRun {
            id: [id; 16],
            path: format!("updates/run-{id}"),
            length: 1,
            passes: 1,
            rows: 2,
            first_sequence: id.into(),
            last_sequence: id.into(),
            migrated: Vec::new(),
            position_map: None,
            during,
        }
    }

    /// A migration of the first run's first row is under way.
    fn under_way(runs: &[ManifestRun]) -> ManifestUpdates {
        let mut updates = ManifestUpdates { log: log(1), runs: runs.to_vec(), ..ManifestUpdates::default() };
        let ranges = vec![RunRange { run: 0, rows: 0..1 }];
        assert!(change(&mut updates, &Edit::BeginMigration { migration: ManifestMigration { number: 1, ranges } }, 1));
        updates
    }

    #[test]
    fn a_run_of_an_abandoned_migration_is_not_added() {
        let compacted = Some(CompactedRows { run: [11; 16], rows: 0..1 });
        let (written, transactions) = (WriteCounters::default(), Vec::new());
        let run_of = Box::new(run(13, 1));
        let add = Edit::AddRun { of_log: [1; 16], run: run_of, log: log(2), written, transactions, compacted };
        let first = [run(11, 0), run(12, 0)];
        let of = |edits: &[Edit]| {
            let mut updates = under_way(&first);
            for edit in edits {
                assert!(change(&mut updates, edit, 1), "{edit:?}");
            }
            change(&mut updates, &add, 1)
        };
        assert!(of(&[]));
        assert!(of(&[Edit::EndMigration { number: 1, version: 1 }]));
        assert!(!of(&[Edit::AbandonMigration { number: 1 }]));
        let ranges = vec![RunRange { run: 1, rows: 0..2 }];
        let next = Edit::BeginMigration { migration: ManifestMigration { number: 2, ranges } };
        assert!(!of(std::slice::from_ref(&next)));
        assert!(!of(&[next, Edit::EndMigration { number: 2, version: 1 }]));
        // Nothing is left of a run that was compacted as a whole.
        let whole = vec![RunRange { run: 0, rows: 1..2 }];
        let whole = Edit::BeginMigration { migration: ManifestMigration { number: 2, ranges: whole } };
        let ends = [1, 2].map(|number| Edit::EndMigration { number, version: 1 });
        assert!(of(&[ends[0].clone(), whole, ends[1].clone()]));
    }

    #[test]
    fn runs_are_merged_as_long_as_they_are_what_they_were_and_no_migration_names_them() {
        let parts = vec![run(12, 0), run(13, 0)];
        let written = WriteCounters { merged_rows: 4, ..WriteCounters::default() };
        let merge = Edit::MergeRuns { parts: parts.clone(), run: Box::new(run(14, 0)), written };
        let ids = |updates: &ManifestUpdates| updates.runs.iter().map(|run| run.id[0]).collect::<Vec<_>>();
        let of = |mut updates: ManifestUpdates| {
            let is_merged = change(&mut updates, &merge, 1);
            (is_merged, updates.written.merged_rows, ids(&updates))
        };
        let beside = under_way(&[run(11, 0), parts[0].clone(), parts[1].clone(), run(15, 0)]);
        assert_eq!(of(beside.clone()), (true, 4, vec![11, 14, 15]));
        // Some of their rows were migrated meanwhile, or others are between them, or a migration names one of them.
        let mut migrated = beside.clone();
        migrated.runs[2].migrated.push(0..1);
        assert_eq!(of(migrated), (false, 0, vec![11, 12, 13, 15]));
        let mut parted = beside;
        parted.runs.swap(2, 3);
        assert_eq!(of(parted), (false, 0, vec![11, 12, 15, 13]));
        assert_eq!(of(under_way(&parts)), (false, 0, vec![12, 13]));
    }
}
