//! Which runs are merged when a scan has too many.
//!
//! MaSM-M merges the N oldest of one pass. That comes to 2 − ¼·α² writes of an update when the cache is full, and to nearly two each time
//! that it has just merged. Where there is room for it (see [`Parameters::keeps_bound`]), we merge as many neighbours as the bound allows
//! for what was written so far. Of all equally long stretches, those with the fewest bytes are merged. So the bound holds however full the
//! cache is.
//!
//! The theorem counts on runs of S pages: no more of them fit the cache than two passes can take. Runs that are flushed sooner may be any
//! number. Where no neighbours of one pass are left, stretches of the smallest runs are merged, whatever their passes. They are tiers of
//! about equal size, as stores that merge logs keep them. So runs stay few in any case, and changes of n runs are written about
//! log n / log(runs / 4) times more.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use lakemark_format::{ManifestRun, ManifestUpdates, WriteCounters};

use crate::updates::parameters::Parameters;

/// How much larger than its parts a merged run may be: indexes of larger dictionaries take more bits.
const MERGED_GROWTH: f64 = 1.0625;
/// Runs of a tier are less than four times as large as each other.
const TIER_BITS: u32 = 2;

/// The neighbours from `first` on that are to be merged, if a scan has too many runs.
pub(crate) fn to_merge(updates: &ManifestUpdates, parameters: &Parameters, first: usize) -> Option<Range<usize>> {
    if updates.runs.len() as u64 <= parameters.scanned_runs {
        return None;
    }
    // Runs before the first one stay in any case: those behind them are merged again only if they alone are too many.
    let is_many = updates.runs.len().saturating_sub(first) as u64 > parameters.scanned_runs;
    of_one_pass(updates, parameters, first).or_else(|| if is_many { of_small_tier(&updates.runs, first) } else { None })
}

/// Neighbours of one pass.
fn of_one_pass(updates: &ManifestUpdates, parameters: &Parameters, first: usize) -> Option<Range<usize>> {
    let runs = &updates.runs;
    if !parameters.keeps_bound() {
        return oldest(runs, parameters.merged_runs, first);
    }
    let budget = budget(&updates.written, parameters);
    let stretches = stretches(runs, first);
    let within = stretches.iter().filter(|stretch| stretch.bytes as f64 * MERGED_GROWTH <= budget);
    let longest = within.max_by_key(|stretch| (stretch.runs.len(), Reverse(stretch.bytes)));
    let chosen = longest.or_else(|| stretches.iter().min_by_key(|stretch| stretch.bytes))?;
    Some(chosen.runs.clone())
}

/// The longest stretch of the smallest runs from a place on: of a quarter of them at least, so that each merge leaves many fewer.
fn of_small_tier(runs: &[ManifestRun], from: usize) -> Option<Range<usize>> {
    let candidates = runs.get(from..)?;
    let least = candidates.iter().map(|run| run.length).min()?.max(1);
    let tier = |run: &ManifestRun| (run.length / least).max(1).ilog2() / TIER_BITS;
    let tiers: BTreeSet<u32> = candidates.iter().map(tier).collect();
    let fewest = (candidates.len() / 4).max(2);
    tiers.into_iter().find_map(|most| {
        let small = stretches_where(runs, from, |run| tier(run) <= most).into_iter();
        let many = small.filter(|stretch| stretch.runs.len() >= fewest);
        many.min_by_key(|stretch| (Reverse(stretch.runs.len()), stretch.bytes)).map(|longest| longest.runs)
    })
}

/// Bytes that merges may write for what was flushed so far.
fn budget(written: &WriteCounters, parameters: &Parameters) -> f64 {
    (parameters.writes_per_update() - 1.0) * written.flushed_bytes as f64 - written.merged_bytes as f64
}

/// The oldest neighbours of one pass, `most` at most.
fn oldest(runs: &[ManifestRun], most: u64, from: usize) -> Option<Range<usize>> {
    let is_first = |place: &usize| runs.get(*place..place + 2).is_some_and(|two| two.iter().all(|run| run.passes == 1));
    let first = (from..runs.len()).find(is_first)?;
    let of_one_pass = runs.get(first..)?.iter().take_while(|run| run.passes == 1).count();
    let count = of_one_pass.min(usize::try_from(most).unwrap_or(usize::MAX));
    Some(first..first + count)
}

/// Neighbours that may be merged.
struct RunStretch {
    /// Their places.
    runs: Range<usize>,
    /// Bytes of all of them.
    bytes: u64,
}

/// Neighbours from a place on for which something is true, as many together as there are.
fn stretches_where(runs: &[ManifestRun], from: usize, is_so: impl Fn(&ManifestRun) -> bool) -> Vec<RunStretch> {
    let (mut stretches, mut end) = (Vec::new(), from);
    for together in runs.get(from..).unwrap_or_default().chunk_by(|one, next| is_so(one) == is_so(next)) {
        let first = end;
        end += together.len();
        if together.first().is_some_and(&is_so) {
            let bytes = together.iter().map(|run| run.length).sum();
            stretches.push(RunStretch { runs: first..end, bytes });
        }
    }
    stretches
}

/// All stretches of two or more neighbours of one pass, from a place on.
fn stretches(runs: &[ManifestRun], from: usize) -> Vec<RunStretch> {
    let mut stretches = Vec::new();
    for first in from..runs.len() {
        let of_one_pass = runs.iter().enumerate().skip(first).take_while(|(_, run)| run.passes == 1);
        let mut bytes = 0;
        for (place, run) in of_one_pass {
            bytes += run.length;
            if place > first {
                stretches.push(RunStretch { runs: first..place + 1, bytes });
            }
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(length: u64, passes: u8) -> ManifestRun {
        ManifestRun {
            id: [0; 16],
            path: String::new(),
            length,
            passes,
            rows: 1,
            first_sequence: 1,
            last_sequence: 1,
            migrated: Vec::new(),
            position_map: None,
            during: 0,
        }
    }

    fn parameters(pages: u64, alpha: f64) -> Parameters {
        let options = [("cache_bytes", (pages * pages * 512).to_string()), ("page_bytes", "512".to_owned())];
        let mut options: Vec<(String, String)> =
            options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        options.push(("alpha".to_owned(), alpha.to_string()));
        Parameters::of(&options).unwrap()
    }

    /// Adds a run of so many bytes, and merges while the policy says so.
    fn flush(updates: &mut ManifestUpdates, length: u64, parameters: &Parameters) {
        updates.runs.push(run(length, 1));
        updates.written.flushed_bytes += length;
        while let Some(chosen) = to_merge(updates, parameters, 0) {
            let bytes = updates.runs[chosen.clone()].iter().map(|run| run.length).sum();
            updates.runs.splice(chosen, [run(bytes, 2)]);
            updates.written.merged_bytes += bytes;
        }
    }

    /// How often a byte was written.
    fn writes_per_byte(updates: &ManifestUpdates) -> f64 {
        let WriteCounters { flushed_bytes, merged_bytes, .. } = updates.written;
        1.0 + merged_bytes as f64 / flushed_bytes as f64
    }

    /// Fills a cache with buffers; gives the most writes per byte that there ever were, those at the end, and the most runs.
    fn fill(parameters: &Parameters) -> (f64, f64, usize) {
        let mut updates = ManifestUpdates::default();
        let (mut most, mut last, mut runs) = (0f64, 0.0, 0);
        loop {
            let length = parameters.buffer_bytes(updates.runs.len());
            // The buffer, and a page for each run: the memory of a scan.
            let held = length / parameters.page_bytes + updates.runs.len() as u64;
            assert!(held <= parameters.memory_pages(), "{held} pages");
            if updates.run_bytes() + length > parameters.cache_bytes {
                return (most, last, runs);
            }
            flush(&mut updates, length, parameters);
            last = writes_per_byte(&updates);
            (most, runs) = (most.max(last), runs.max(updates.runs.len()));
        }
    }

    /// Theorem 3.2, however full the cache is, and as many runs as it says.
    #[test]
    fn the_bound_holds_at_every_filling() {
        for pages in [64, 128, 256] {
            for alpha in [0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0] {
                let parameters = parameters(pages, alpha);
                if !parameters.keeps_bound() {
                    assert_eq!((pages, alpha), (64, 0.75));
                    continue;
                }
                let (most, _, runs) = fill(&parameters);
                assert!(most <= parameters.writes_per_update(), "{pages} pages, alpha {alpha}: {most}");
                assert!(runs as u64 <= parameters.scanned_runs, "{pages} pages, alpha {alpha}: {runs} runs");
            }
        }
        // The largest buffers there are need no merge.
        assert_eq!(fill(&parameters(128, 2.0)).0, 1.0);
    }

    /// Where little memory leaves no room, the theorem holds as it is written: when the cache is full, and roughly.
    #[test]
    fn little_memory_comes_near_the_bound_when_the_cache_is_full() {
        for (pages, alpha) in [(64, 0.75), (128, 0.65), (128, 0.5)] {
            let parameters = parameters(pages, alpha);
            let (most, last, runs) = fill(&parameters);
            assert!(!parameters.keeps_bound() && most <= 2.0, "{most}");
            let bound = parameters.writes_per_update();
            assert!(last <= bound + 0.025, "{pages} pages, alpha {alpha}: {last} of {bound}");
            assert!(runs as u64 <= parameters.scanned_runs, "{pages} pages, alpha {alpha}: {runs} runs");
        }
    }

    /// The most runs that there ever were after flushes of these sizes, and how often a byte was written.
    fn flushed(parameters: &Parameters, sizes: impl Iterator<Item = u64>) -> (usize, f64) {
        let (mut updates, mut runs) = (ManifestUpdates::default(), 0);
        for length in sizes {
            flush(&mut updates, length, parameters);
            runs = runs.max(updates.runs.len());
        }
        (runs, writes_per_byte(&updates))
    }

    /// Somebody flushes every few changes: no cache is full for long.
    #[test]
    fn runs_stay_few_however_small_they_are() {
        let parameters = parameters(64, 1.0);
        let mixed = [10, 100, 100, 500, 3000].into_iter().cycle();
        let cases: [(Box<dyn Iterator<Item = u64>>, f64); 3] = [
            (Box::new(std::iter::repeat_n(100, 5_000)), 4.5),
            (Box::new(mixed.take(5_000)), 5.5),
            (Box::new((1..5_000).map(|number| 100 + 500_000 / number)), 4.5),
        ];
        for (sizes, most) in cases {
            let (runs, writes) = flushed(&parameters, sizes);
            assert_eq!(runs as u64, parameters.scanned_runs);
            assert!(writes <= most, "{writes}");
        }
    }

    /// A migration under way names the first runs: what comes behind them is not written again at each flush.
    #[test]
    fn runs_behind_a_migration_are_written_twice_until_they_alone_are_too_many() {
        let parameters = parameters(64, 1.0);
        let mut updates = ManifestUpdates { runs: vec![run(100, 1); 32], ..ManifestUpdates::default() };
        updates.written.flushed_bytes = 3_200;
        updates.runs.extend([run(500, 2), run(100, 1)]);
        assert_eq!(to_merge(&updates, &parameters, 32), None);
        updates.runs.push(run(100, 1));
        assert_eq!(to_merge(&updates, &parameters, 32), Some(33..35));
        updates.runs.truncate(32);
        updates.runs.extend(vec![run(100, 2); 33]);
        assert_eq!(to_merge(&updates, &parameters, 32), Some(32..65));
    }

    #[test]
    fn the_longest_stretch_within_the_bound_is_merged_and_the_cheapest_of_these() {
        let parameters = parameters(64, 1.0);
        let mut updates = ManifestUpdates { runs: vec![run(100, 1); 33], ..ManifestUpdates::default() };
        updates.runs[20] = run(90, 1);
        updates.written.flushed_bytes = 1000;
        // 750 bytes may be merged.
        assert_eq!(to_merge(&updates, &parameters, 0), Some(20..27));
        updates.written.merged_bytes = 740;
        assert_eq!(to_merge(&updates, &parameters, 0), Some(19..21));
        updates.runs[20].passes = 2;
        assert_eq!(to_merge(&updates, &parameters, 0), Some(0..2));
        updates.runs.pop();
        assert_eq!(to_merge(&updates, &parameters, 0), None);
    }
}
