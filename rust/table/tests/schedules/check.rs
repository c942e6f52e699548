//! What must hold however actors took turns and whatever failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use lakemark_format::Manifest;
use lakemark_table::{ErrorKind, MigrateOptions};

use super::told::{compare_checkpoints, manifests};
use super::world::{Call, Outcome, Record, Rows, Template, apply, look, open, text};

/// What a scenario allows beyond what always is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// Calls that may lose a race for good.
    pub conflicts: bool,
    /// Calls may find no room.
    pub is_full: bool,
    /// Hours pass while calls are under way: what they had in hand may be gone.
    pub hours_pass: bool,
    /// Files that nothing names may be left.
    pub waste: bool,
}

/// Looks for what must not be; says what was found.
pub async fn check(
    template: &Template,
    folder: &Path,
    records: &[Record],
    allowed: Allowed,
    is_thorough: bool,
) -> Result<(), String> {
    for record in records {
        check_error(record, allowed).map_err(|problem| format!("{record:?}: {problem}"))?;
    }
    if !allowed.waste && records.iter().all(|record| !record.met_fault && !record.is_killed) {
        check_waste(folder)?;
    }
    check_named(folder)?;
    compare_checkpoints(&folder.join("_lakemark"))?;
    let found = look(folder).await.map_err(|error| format!("at the end: {error}"))?;
    let again = look(folder).await.map_err(|error| format!("at the end: {error}"))?;
    if found != again {
        return Err(format!("two readers at the end disagree: {}", difference(&found, &again)));
    }
    explain(template, records, &found)?;
    if is_thorough {
        let index_files = folder.join("_lakemark/indexes");
        let aside = folder.join("_lakemark/indexes-aside");
        if index_files.exists() {
            fs::rename(&index_files, &aside).unwrap();
            let without = look(folder).await.map_err(|error| format!("without index files: {error}"))?;
            if without != found {
                return Err(format!("without index files: {}", difference(&found, &without)));
            }
            fs::rename(&aside, &index_files).unwrap();
        }
        settle(folder, &found).await?;
    }
    Ok(())
}

/// The table goes on: what is buffered gets to the data files and into the folder, and the rows stay.
async fn settle(folder: &Path, expected: &Rows) -> Result<(), String> {
    let table = open(folder).await;
    let failed = |what: &str, error: lakemark_table::Error| format!("{what} afterwards: {:?}: {error}", error.kind());
    match table.flush().await {
        Err(error) if error.kind() == ErrorKind::CacheFull => {}
        flushed => flushed.map_err(|error| failed("a flush", error))?,
    }
    table.migrate(MigrateOptions::default()).await.map_err(|error| failed("a migration", error))?;
    table.publish().await.map_err(|error| failed("a publication", error))?;
    let found = look(folder).await.map_err(|error| format!("after all: {error}"))?;
    if found != *expected {
        return Err(format!("after a flush, a migration and a publication: {}", difference(expected, &found)));
    }
    Ok(())
}

fn check_error(record: &Record, allowed: Allowed) -> Result<(), String> {
    let (kind, text) = match &record.outcome {
        Outcome::Failed(kind, text) => (*kind, text),
        Outcome::Panicked(text) => return Err(format!("a panic: {text}")),
        _ => return Ok(()),
    };
    let is_allowed = record.is_killed
        || match kind {
            ErrorKind::Conflict => {
                allowed.conflicts
                    || matches!(record.call, Call::Migrate(_) | Call::Publish | Call::Vacuum(true))
                        && text.contains("another migration of the table is running")
            }
            ErrorKind::CacheFull => allowed.is_full,
            ErrorKind::AlreadyExists => matches!(record.call, Call::Write(lakemark_table::Operation::Insert, ..)),
            ErrorKind::Io => record.met_fault || allowed.hours_pass,
            ErrorKind::SnapshotExpired => allowed.hours_pass,
            _ => false,
        };
    if is_allowed { Ok(()) } else { Err("the error is not the truth".to_owned()) }
}

fn difference(expected: &Rows, found: &Rows) -> String {
    let keys: BTreeSet<&i64> = expected.keys().chain(found.keys()).collect();
    let keys = keys.into_iter().filter(|key| expected.get(key) != found.get(key));
    keys.map(|key| format!("{key}: {:?}, not {:?}", found.get(key), expected.get(key))).collect::<Vec<_>>().join("; ")
}

/// A call whose rows may be in the table.
struct Made<'a> {
    record: &'a Record,
    /// Its number, if it was acknowledged.
    sequence: Option<u64>,
}

/// Finds an order of the calls that explains what every reader saw and what is there at the end.
fn explain(template: &Template, records: &[Record], found: &Rows) -> Result<(), String> {
    let mut acknowledged = Vec::new();
    let mut open = Vec::new();
    for record in records.iter().filter(|record| matches!(record.call, Call::Write(..))) {
        match &record.outcome {
            Outcome::Written(sequence) => acknowledged.push(Made { record, sequence: Some(*sequence) }),
            Outcome::Failed(ErrorKind::Conflict | ErrorKind::CacheFull | ErrorKind::AlreadyExists, _) => {}
            // Whoever is told that nothing was made may make it again.
            Outcome::Failed(_, text) if !record.is_killed && says_not_made(text) => {}
            _ => open.push(Made { record, sequence: None }),
        }
    }
    acknowledged.sort_by_key(|made| made.sequence);
    if acknowledged.windows(2).any(|pair| pair[0].sequence == pair[1].sequence) {
        return Err("two calls have the same number".to_owned());
    }
    let (mut orders, mut next) = (vec![acknowledged.iter().collect::<Vec<_>>()], Vec::new());
    for made in &open {
        for order in &orders {
            for place in 0..=order.len() {
                let mut with = order.clone();
                with.insert(place, made);
                next.push(with);
            }
        }
        orders.append(&mut next);
    }
    let mut first = None;
    for order in &orders {
        match explains(template, records, order, found) {
            Ok(()) => return Ok(()),
            Err(problem) => first = first.or(Some(problem)),
        }
    }
    Err(format!("{} (of {} orders)", first.unwrap_or_default(), orders.len()))
}

fn says_not_made(text: &str) -> bool {
    text.contains("were not made")
        || text.contains("the last snapshot is untouched")
        || text.contains("nothing was written")
        || text.contains("nothing was changed")
}

fn explains(template: &Template, records: &[Record], order: &[&Made<'_>], found: &Rows) -> Result<(), String> {
    let mut states = vec![template.rows.clone()];
    for made in order {
        let Call::Write(operation, first, end) = made.record.call else { continue };
        let mut rows = states[states.len() - 1].clone();
        apply(&mut rows, operation, first..end, |key| text(made.record.actor, made.record.number, key));
        states.push(rows);
    }
    let others = Others::of(records, template.is_delta);
    // Which rows of other programs were deleted by buffered changes, at which step.
    let mut hidden_since: BTreeMap<i64, usize> = BTreeMap::new();
    let mut reads: Vec<(&Record, Option<u64>, &Rows)> = Vec::new();
    for record in records {
        if let Outcome::Rows { sequence, rows } = &record.outcome {
            reads.push((record, *sequence, rows));
        }
    }
    for (record, sequence, rows) in reads {
        let mut problem = None;
        let may_end = (0..states.len())
            .filter(|made| sequence.is_none_or(|sequence| fits(&order[..*made], &order[*made..], sequence)));
        let mut is_explained = false;
        for end in may_end {
            let missing = order[end..].iter().find(|made| made.sequence.is_some() && made.record.to < record.from);
            if let Some(missing) = missing {
                problem =
                    problem.or(Some(format!("a change that was acknowledged before is missing: {:?}", missing.record)));
                continue;
            }
            match others.explain(&states[end], rows, (record.from, record.to), &hidden_since) {
                Ok(hidden) => {
                    for key in hidden {
                        hidden_since.entry(key).or_insert(record.to);
                    }
                    is_explained = true;
                    break;
                }
                Err(different) => problem = problem.or(Some(different)),
            }
        }
        if !is_explained {
            return Err(format!(
                "actor {} in call {} read at {sequence:?} what was never there: {}",
                record.actor,
                record.number,
                problem.unwrap_or_default()
            ));
        }
    }
    let all = (usize::MAX - 1, usize::MAX);
    others
        .explain(&states[states.len() - 1], found, all, &hidden_since)
        .map(drop)
        .map_err(|text| format!("at the end: {text}"))
}

/// Whether a snapshot with this number has the first calls and not the others.
fn fits(first: &[&Made<'_>], rest: &[&Made<'_>], sequence: u64) -> bool {
    first.iter().all(|made| made.sequence.is_none_or(|of| of <= sequence))
        && rest.iter().all(|made| made.sequence.is_none_or(|of| of > sequence))
}

/// A row that another program added.
struct Other {
    key: i64,
    text: String,
    /// The steps between which it was added.
    begun: usize,
    ended: usize,
    /// A folder was migrated meanwhile. Between the last listing of such a migration and its manifest a file counts as added after it
    /// (docs/limits.md), so that a row that was hidden may come back.
    is_beside_migration: bool,
}

/// Rows that other programs added.
struct Others(Vec<Other>);

impl Others {
    fn of(records: &[Record], is_delta: bool) -> Self {
        let migrations: Vec<&Record> =
            records.iter().filter(|record| !is_delta && matches!(record.call, Call::Migrate(_))).collect();
        let mut others = Vec::new();
        for record in records {
            let Call::Append(first, end) = record.call else { continue };
            let is_beside = |of: &&Record| of.from <= record.to && record.from <= of.to;
            let is_beside_migration = migrations.iter().any(is_beside);
            let added = |key| {
                let text = text(record.actor, record.number, key);
                Other { key, text, begun: record.from, ended: record.to, is_beside_migration }
            };
            others.extend((first..end).map(added));
        }
        Self(others)
    }

    /// The rows are ours and those that others added, but for those that buffered changes delete. What was deleted once stays so. Gives the
    /// keys that are hidden.
    fn explain(
        &self,
        ours: &Rows,
        found: &Rows,
        (from, to): (usize, usize),
        hidden_since: &BTreeMap<i64, usize>,
    ) -> Result<Vec<i64>, String> {
        let mut left = found.clone();
        let mut hidden = Vec::new();
        for Other { key, text, begun, ended, is_beside_migration } in &self.0 {
            let there = left.get_mut(key).and_then(|texts| {
                let place = texts.iter().position(|have| have == text)?;
                texts.remove(place);
                Some(())
            });
            if left.get(key).is_some_and(Vec::is_empty) {
                left.remove(key);
            }
            match there {
                Some(()) if *begun > to => return Err(format!("{key} is there before it was added")),
                Some(()) if !is_beside_migration && hidden_since.get(key).is_some_and(|since| *since < from) => {
                    return Err(format!(
                        "the row {text}, which buffered changes deleted, is back: {:?}",
                        found.get(key)
                    ));
                }
                Some(()) => {}
                None if *ended < from => hidden.push(*key),
                None => {}
            }
        }
        if left != *ours {
            return Err(difference(ours, &left));
        }
        Ok(hidden)
    }
}

/// The files that manifests name, by the numbers of these.
fn named(folder: &Path) -> Result<BTreeMap<u64, BTreeSet<String>>, String> {
    let of = |manifest: &Manifest| {
        let mut named: BTreeSet<String> = manifest.segments().map(|segment| segment.path.clone()).collect();
        if let Some(updates) = manifest.updates() {
            named.insert(updates.log.path.clone());
            named.extend(updates.data.iter().map(|file| file.path.clone()));
            for run in &updates.runs {
                named.insert(run.path.clone());
                named.extend(run.position_map.as_ref().map(|position_map| position_map.path.clone()));
            }
        }
        // A checkpoint needs its pieces, however the manifest was told here.
        named.extend(manifest.pieces().into_iter().map(|piece| format!("checkpoint/{piece}.lmp")));
        named
    };
    Ok(manifests(&folder.join("_lakemark"))?.into_iter().map(|(number, told)| (number, of(&told))).collect())
}

/// What the newest manifest names is there.
fn check_named(folder: &Path) -> Result<(), String> {
    let named = named(folder)?;
    let newest = named.last_key_value().map(|(_, named)| named);
    let missing = newest.into_iter().flatten().find(|path| !folder.join("_lakemark").join(path).exists());
    missing.map_or(Ok(()), |path| Err(format!("the newest manifest names {path}, which is not there")))
}

/// Fails if a file is there that no manifest names.
fn check_waste(folder: &Path) -> Result<(), String> {
    let store = folder.join("_lakemark");
    let named: BTreeSet<String> = named(folder)?.into_values().flatten().collect();
    let mut folders = vec![store.join("updates"), store.join("indexes"), store.join("data"), store.join("checkpoint")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&store).unwrap().to_str().unwrap().to_owned();
            if !name.ends_with("lock") && !named.contains(&name) {
                return Err(format!("the file {name} is left over, which nothing names"));
            }
        }
    }
    Ok(())
}
