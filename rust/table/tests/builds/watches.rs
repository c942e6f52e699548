//! A watch is killed while it builds, merges and writes checkpoints.
//!
//! ```text
//! victim   ┌─▶ a file comes ─▶ a look: build ─▶ merge ─▶ checkpoint ─┐    killed at a random instant or at a named point
//!          └─────────────────────────────────────────────────────────┘
//! then     answers are those of the data ─▶ the next look covers all ─▶ all segments of an index can be merged
//! ```
//!
//! `LAKEMARK_WATCH_KILLS` is how many victims there are.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lakemark_table::watch::Watch;
use lakemark_table::{BuildOptions, IndexSpec, Merging};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::due::commit_until;
use super::told::{compare_checkpoints, manifests};
use super::{AT, POINTS, at_once, check_answers, open, options, rows, spec_of, write_rows};

const FOLDER: &str = "LAKEMARK_WATCHES_FOLDER";
/// The number of the first file that comes.
const FIRST: &str = "LAKEMARK_WATCHES_FIRST";
const TEST: &str = "watches::killed_at_any_instant_a_watch_leaves_right_answers_and_the_next_look_does_the_rest";
/// Files that come if the victim does not reach the point at which it dies.
const LOOKS: usize = 12;
/// Files that come at most to a victim that is killed from outside, which has not taken all of them by then on any machine.
const MOST_LOOKS: usize = 1000;
/// Victims that follow one table.
const VICTIMS: u64 = 6;
/// Files that are there at first, each with segments of its own.
const FILES: usize = 3;
/// Edits before the first victim: one of its first commits is the 64th, which writes a checkpoint.
const EDITS: u64 = 61;
const EVERY: Duration = Duration::from_secs(30);

fn path_of(folder: &Path, file: usize) -> PathBuf {
    folder.join(format!("f{file:04}.parquet"))
}

/// A file comes as a whole, as from a writer that renames.
fn arrive(folder: &Path, file: usize) {
    let waiting = folder.join(format!(".f{file:04}"));
    write_rows(&waiting, &rows(file));
    fs::rename(waiting, path_of(folder, file)).unwrap();
}

/// Follows the table, to which files come, until it is killed.
async fn victim(folder: &Path) {
    let first: usize = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut watch = Watch::new(open(folder).await, at_once(), EVERY);
    let mut out = std::io::stdout();
    writeln!(out, "\nlooking").and_then(|()| out.flush()).unwrap();
    let looks = if std::env::var(AT).is_ok() { LOOKS } else { MOST_LOOKS };
    for file in first..first + looks {
        arrive(folder, file);
        let look = watch.look().await.unwrap();
        assert_eq!((look.failed(), look.coverage.share()), (0, 1.0));
    }
}

/// A table that victims follow.
struct Followed {
    folder: tempfile::TempDir,
}

impl Followed {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        arrive(folder.path(), 0);
        let table = open(folder.path()).await;
        for file in 0..FILES {
            if file > 0 {
                arrive(folder.path(), file);
            } else {
                // A segment has room for all files.
                let options = BTreeMap::from([("files_per_segment".to_owned(), "1000".to_owned())]);
                for (column, kind) in [("k", "bitmap"), ("s", "key")] {
                    let spec = IndexSpec { options: options.clone(), ..spec_of(column, kind) };
                    table.create_index(spec, false).await.unwrap();
                }
            }
            table.build(BuildOptions { merging: Merging::Never, ..options() }).await.unwrap();
        }
        commit_until(&table, EDITS).await;
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a watch and lets it die: at a point, or so long after its first look began. Says whether it died.
    fn kill(&self, point: Option<&str>, after: Duration) -> bool {
        let first = (0..).find(|file| !path_of(self.path(), *file).exists()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(FOLDER, self.path()).env(FIRST, first.to_string());
        command.envs(point.map(|point| (AT, point))).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let is_looking = lines.any(|line| line == "looking");
        if point.is_none() {
            assert!(is_looking, "the watch did not begin");
            std::thread::sleep(after);
            child.kill().unwrap();
        }
        // Nobody who writes waits for a reader.
        lines.for_each(drop);
        !child.wait().unwrap().success()
    }

    /// What is there now is right: answers, what the manifest says to be covered, and checkpoints.
    async fn check(&self, at: &str) -> usize {
        let table = open(self.path()).await;
        let snapshot = table.snapshot().await.unwrap();
        check_answers(&snapshot, at).await;
        assert_eq!(snapshot.checked_indexes().await.unwrap(), snapshot.indexes(), "{at}");
        let report = table.verify().await.unwrap();
        assert!(report.is_ok(), "{at}: {report:?}");
        compare_checkpoints(&self.path().join("_lakemark")).unwrap_or_else(|problem| panic!("{at}: {problem}"))
    }

    /// The next look covers everything, and all that victims left is merged into one segment for each index.
    async fn recover(&self, at: &str) {
        let table = open(self.path()).await;
        let look = Watch::new(Arc::clone(&table), options(), EVERY).look().await.unwrap();
        assert_eq!((look.failed(), look.coverage.share()), (0, 1.0), "{at}");
        self.check(at).await;
        let merged = BuildOptions { merging: Merging::All, ..options() };
        table.compact(merged).await.unwrap();
        let (_, newest) = manifests(&self.path().join("_lakemark")).unwrap().pop_last().unwrap();
        assert_eq!(newest.segments().count(), 2, "{at}: one segment for each index");
        self.check(at).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_instant_a_watch_leaves_right_answers_and_the_next_look_does_the_rest() {
    if let Ok(folder) = std::env::var(FOLDER) {
        return victim(Path::new(&folder)).await;
    }
    let kills: u64 = std::env::var("LAKEMARK_WATCH_KILLS").map_or(12, |text| text.parse().unwrap());
    let mut random = StdRng::seed_from_u64(23);
    let (mut table, mut checkpoints) = (Followed::new().await, 0);
    let mut died_at = BTreeMap::<&str, u64>::new();
    for kill in 0..kills {
        let (life, turn) = (kill / VICTIMS, kill % VICTIMS);
        if turn == 0 && life > 0 {
            table = Followed::new().await;
        }
        let after = Duration::from_millis(random.random_range(0..250));
        let point = match turn {
            // The first victim of a table comes to the checkpoint.
            0 => Some(["checkpoint-pieces", "checkpoint-root"][life as usize % 2]),
            2 | 4 => Some(POINTS[random.random_range(0..POINTS.len())]),
            _ => None,
        };
        let most = if turn == 0 { 1 } else { [1, 5, 30][random.random_range(0..3)] };
        let requested = point.map(|point| format!("{point}:{}", random.random_range(1..=most)));
        let at = format!("victim {kill}, {requested:?}, after {after:?}");
        let has_died = table.kill(requested.as_deref(), after);
        assert!(has_died || turn > 0, "{at}: it never came to its checkpoint");
        *died_at.entry(point.unwrap_or("any instant")).or_default() += u64::from(has_died);
        checkpoints += table.check(&at).await;
        // Some victims meet what others left.
        if random.random_bool(0.6) || turn + 1 == VICTIMS {
            table.recover(&at).await;
        }
    }
    println!("{kills} watches, died at {died_at:?}; compared {checkpoints} checkpoints");
    assert!(died_at.values().sum::<u64>() * 2 > kills, "{died_at:?}");
    assert!(checkpoints > 0 || kills < VICTIMS);
}
