//! Who does what: pairs that are walked through, and any number of actors that are drawn.

use lakemark_table::Operation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::check::Allowed;
use super::decide::Odds;
use super::world::{Call, Start};

/// A table and its actors.
#[derive(Clone, Debug)]
pub struct Scene {
    pub name: String,
    pub is_delta: bool,
    pub start: Start,
    pub calls: Vec<Vec<Call>>,
    pub allowed: Allowed,
    pub odds: Odds,
    /// Whether all that follows is looked at, too.
    pub is_thorough: bool,
}

fn pair(name: &str, is_delta: bool, start: Start, calls: [&[Call]; 2], allowed: Allowed) -> Scene {
    Scene {
        name: format!("{name}-{}", if is_delta { "delta" } else { "folder" }),
        is_delta,
        start,
        calls: calls.iter().map(|calls| calls.to_vec()).collect(),
        allowed,
        odds: Odds { faults: 0.0, kills: 0.0 },
        is_thorough: true,
    }
}

/// Pairs of operations that meet at the same files.
pub fn pairs() -> Vec<Scene> {
    use Call::*;
    let none = Allowed::default();
    let conflicts = Allowed { conflicts: true, waste: true, ..none };
    let hours = Allowed { hours_pass: true, ..conflicts };
    let mut pairs = vec![
        pair("read-publish", false, Start::Migrated, [&[Read, Read], &[Publish]], none),
        pair("checkpoint-checkpoint", false, Start::Due, [&[Flush, Read], &[CreateIndex, Read]], none),
        pair("checkpoint-vacuum", false, Start::Due, [&[Flush, Read], &[Vacuum(false)]], hours),
        pair("read-vacuum", false, Start::Migrated, [&[Read], &[Vacuum(false)]], hours),
    ];
    pairs.extend([false, true].into_iter().flat_map(pairs_of_both));
    pairs.extend([
        pair("backup-publish", false, Start::Migrated, [&[Publish], &[Backup]], none),
        pair("write-publish", false, Start::Migrated, [&[Write(Operation::Upsert, 4, 14), Read], &[Publish]], none),
        pair("migrate-publish", false, Start::Migrated, [&[Migrate(1.0)], &[Publish]], conflicts),
        pair("vacuum-publish", false, Start::Migrated, [&[Publish, Read], &[Vacuum(true)]], hours),
        pair(
            "appends-migrate",
            true,
            Start::Buffered,
            [
                &[Append(40, 41), Append(41, 42), Append(42, 43), Append(43, 44), Append(44, 45), Append(45, 46)],
                &[Migrate(1.0)],
            ],
            Allowed { waste: true, ..none },
        ),
    ]);
    pairs
}

/// Pairs of operations that there are for folders and for Delta tables.
fn pairs_of_both(is_delta: bool) -> Vec<Scene> {
    use Call::*;
    let (upsert, more): (&[Call], &[Call]) =
        (&[Write(Operation::Upsert, 4, 14)], &[Write(Operation::Delete, 8, 20), Write(Operation::Upsert, 12, 16)]);
    let none = Allowed::default();
    // A segment that somebody else was first with stays until a vacuum: the next build may take it over.
    let waste = Allowed { waste: true, ..none };
    // A vacuum leaves what writers may be about to name.
    let hours = Allowed { hours_pass: true, conflicts: true, ..waste };
    let of = |name: &str, start, calls, allowed| pair(name, is_delta, start, calls, allowed);
    vec![
        of("read-migrate", Start::Buffered, [&[Read, Read], &[Migrate(1.0)]], none),
        of("read-slice", Start::Buffered, [&[Read, Read], &[Migrate(0.4)]], none),
        of("read-flush", Start::Buffered, [&[Read, Read], &[Flush]], none),
        of("slice-append", Start::Buffered, [&[Migrate(0.4)], &[Append(5, 7), Read]], Allowed { waste: true, ..none }),
        of("migrate-append", Start::Buffered, [&[Migrate(1.0)], &[Append(5, 7), Read]], waste),
        of("write-write", Start::Buffered, [upsert, more], none),
        of("write-flush", Start::Buffered, [more, &[Flush]], none),
        of("write-migrate", Start::Buffered, [&[Write(Operation::Upsert, 4, 14), Read], &[Migrate(1.0)]], none),
        of("flush-migrate", Start::Buffered, [&[Write(Operation::Upsert, 4, 14), Flush, Read], &[Migrate(0.5)]], none),
        of("compact-build", Start::Migrated, [&[Compact], &[Build]], waste),
        of("compact-compact", Start::Migrated, [&[Compact, Read], &[Compact]], waste),
        of("build-build", Start::Migrated, [&[Build, Read], &[Build]], waste),
        of("create-build", Start::Migrated, [&[CreateIndex, Build], &[Build]], waste),
        // Each of them commits the edit that makes a checkpoint due, if it is the first.
        of("checkpoint-build", Start::Due, [&[CreateIndex, Build, Read], &[Build, Compact]], waste),
        of("checkpoint-compact", Start::Due, [&[Flush, Read], &[DropIndex, Compact, Read]], waste),
        of("vacuum-migrate", Start::Buffered, [&[Migrate(1.0), Read], &[Vacuum(false)]], hours),
        of("vacuum-flush", Start::Buffered, [&[Flush, Read], &[Vacuum(false)]], hours),
        of("backup-migrate", Start::Buffered, [&[Migrate(0.6)], &[Backup]], none),
        of(
            "refused-write",
            Start::Full,
            [&[Write(Operation::Upsert, 0, 300); 4], &[Read]],
            Allowed { is_full: true, ..none },
        ),
    ]
}

/// Calls of so many actors, which follow from the seed.
pub fn drawn(seed: u64, actors: usize) -> Scene {
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let is_delta = random.random_bool(0.4);
    let start = if random.random_bool(0.5) { Start::Migrated } else { Start::Buffered };
    // Of a seed of its own, so that all else of a seed stays what it is.
    let is_due = StdRng::seed_from_u64(seed ^ 0x6368_6563_6b70_6f69).random_bool(0.25);
    let start = if is_due && start == Start::Buffered { Start::Due } else { start };
    let has_vacuum = random.random_bool(0.2);
    let calls: Vec<Vec<Call>> =
        (0..actors).map(|_| (0..random.random_range(1..=3)).map(|_| call(&mut random, has_vacuum)).collect()).collect();
    Scene {
        name: format!("{seed}/{actors}"),
        is_delta,
        start,
        calls,
        allowed: Allowed { conflicts: true, is_full: false, hours_pass: has_vacuum, waste: true },
        odds: Odds { faults: 0.01, kills: 0.003 },
        is_thorough: seed.is_multiple_of(4),
    }
}

fn call(random: &mut StdRng, has_vacuum: bool) -> Call {
    match random.random_range(0..100) {
        0..34 => {
            let operation =
                [Operation::Upsert, Operation::Upsert, Operation::Update, Operation::Delete, Operation::Insert];
            let first = random.random_range(0..36);
            let end = first + random.random_range(1..12);
            Call::Write(operation[random.random_range(0..operation.len())], first, end)
        }
        34..60 => Call::Read,
        60..67 => Call::Flush,
        67..74 => Call::Migrate(1.0),
        74..81 => Call::Migrate(0.4),
        81..88 => Call::Publish,
        88..91 => Call::Build,
        91..93 => Call::Compact,
        93..95 => Call::CreateIndex,
        95..96 => Call::DropIndex,
        _ if has_vacuum => Call::Vacuum(random.random_bool(0.5)),
        _ => Call::Backup,
    }
}
