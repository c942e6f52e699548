//! Which segments of an index are merged, by their sizes alone.
//!
//! ```text
//! sizes   ▇▇▇▇▇▇▇▇▇▇▇▇  ▇▇▇▇  ▇▇▇ ▇ ▇ ▇        more than there are tiers of factor 4 from the smallest to all, and three?
//!                       └──── merged ───┘        from the segment on that is least beside all smaller ones together
//! ```
//!
//! The number of segments decides whether some are merged, and not a limit for each tier. A merge waits until there are too many, and takes
//! the part that shrinks the list for the fewest bytes. An index then has at most 3 + log4(all / smallest) segments. A
//! byte is written at most about 2 + log4(n) times over n additions, the first one counted; the tests of this file count both.
//!
//! Mathieu, Staelin, Young and Yousefi (Bigtable Merge Compaction, 2014) show that both numbers can be near log4(n) for equal additions.
//! Tiers of up to three segments each would be written a little less, and be twice as many.

use std::cmp::Reverse;

/// The factor between the sizes of two tiers.
const FACTOR: u128 = 4;
/// Segments of an index beside those that its tiers allow for.
const SPARE: usize = 3;
/// Of fewer segments no merge is due, whatever their sizes are: n of them have log4(n) tiers at least.
pub(super) const LEAST: usize = SPARE + 2;

/// A segment, or some that are to be merged.
struct Tier {
    size: u128,
    places: Vec<usize>,
}

/// The merges that are due: places of sizes, two or more for each merge. None is due of four segments or fewer.
pub(super) fn due(sizes: &[u64]) -> Vec<Vec<usize>> {
    let mut tiers = by_size(sizes);
    while is_over(&tiers)
        && let Some(first) = cheapest(&tiers)
    {
        let merged = joined(tiers.split_off(first));
        let place = tiers.partition_point(|tier| tier.size >= merged.size);
        tiers.insert(place, merged);
    }
    tiers.into_iter().map(|tier| tier.places).filter(|places| places.len() > 1).collect()
}

/// The merge that is worth it where somebody asks for one. It leaves out segments that are more than four times as large as all smaller ones
/// together. Places of sizes, two or more, or none.
pub(super) fn worthwhile(sizes: &[u64]) -> Vec<usize> {
    let mut tiers = by_size(sizes);
    let smaller = smaller(&tiers);
    let is_worth_it = |(tier, smaller): (&Tier, &u128)| *smaller > 0 && tier.size <= FACTOR * smaller;
    match tiers.iter().zip(&smaller).position(is_worth_it) {
        Some(first) => joined(tiers.split_off(first)).places,
        None => Vec::new(),
    }
}

/// The largest first; of equals the one that stands first.
fn by_size(sizes: &[u64]) -> Vec<Tier> {
    let tier = |(place, size): (usize, &u64)| Tier { size: u128::from(*size).max(1), places: vec![place] };
    let mut tiers: Vec<Tier> = sizes.iter().enumerate().map(tier).collect();
    tiers.sort_by_key(|tier| Reverse(tier.size));
    tiers
}

/// Whether there are more than the tiers between the smallest and all together allow for.
fn is_over(tiers: &[Tier]) -> bool {
    let all: u128 = tiers.iter().map(|tier| tier.size).sum();
    let smallest = tiers.last().map_or(1, |tier| tier.size);
    let between = (all / smallest).max(1).ilog(FACTOR) as usize;
    tiers.len() > SPARE + between
}

/// The tier that is least beside all smaller ones together: it is merged with them.
fn cheapest(tiers: &[Tier]) -> Option<usize> {
    let smaller = smaller(tiers);
    let mut best: Option<(usize, u128, u128)> = None;
    for (place, (tier, smaller)) in tiers.iter().zip(smaller).enumerate() {
        // Fractions are compared without dividing. Sizes of files are far below 2^63, so that the products fit.
        let is_better =
            best.is_none_or(|(_, size, beside)| tier.size.saturating_mul(beside) < size.saturating_mul(smaller));
        if smaller > 0 && is_better {
            best = Some((place, tier.size, smaller));
        }
    }
    best.map(|(place, ..)| place)
}

/// For each tier the size of all that follow it.
fn smaller(tiers: &[Tier]) -> Vec<u128> {
    let mut left: u128 = tiers.iter().map(|tier| tier.size).sum();
    let behind = |tier: &Tier| {
        left -= tier.size;
        left
    };
    tiers.iter().map(behind).collect()
}

fn joined(tiers: Vec<Tier>) -> Tier {
    let mut joined = Tier { size: 0, places: Vec::new() };
    for Tier { size, places } in tiers {
        joined.size += size;
        joined.places.extend(places);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a stream of additions comes to.
    #[derive(Debug, Default)]
    struct Stream {
        segments: Vec<u64>,
        added: u64,
        written: u64,
        most: usize,
        merges: usize,
    }

    impl Stream {
        fn add(&mut self, size: u64) {
            self.segments.push(size);
            self.added += size;
            self.written += size;
            let merges = due(&self.segments);
            let mut left: Vec<Option<u64>> = self.segments.iter().copied().map(Some).collect();
            for places in merges {
                let merged = places.iter().map(|place| left[*place].take().unwrap()).sum();
                self.merges += 1;
                self.written += merged;
                left.push(Some(merged));
            }
            self.segments = left.into_iter().flatten().collect();
            self.most = self.most.max(self.segments.len());
            assert!(self.segments.len() <= self.bound(), "{self:?}");
        }

        fn bound(&self) -> usize {
            3 + (self.added / self.segments.iter().min().unwrap()).ilog(4) as usize
        }

        fn amplification(&self) -> f64 {
            self.written as f64 / self.added as f64
        }
    }

    /// Ten thousand additions of these sizes.
    fn stream(size: impl Fn(u64) -> u64) -> Stream {
        let mut stream = Stream::default();
        (0..10_000).for_each(|number| stream.add(size(number)));
        assert_eq!(stream.segments.iter().sum::<u64>(), stream.added);
        stream
    }

    fn drawn(number: u64) -> u64 {
        let word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word ^ (word >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
    }

    #[test]
    fn ten_thousand_equal_additions_are_a_handful_of_segments_and_written_eight_times() {
        let equal = stream(|_| 1 << 16);
        assert!(equal.most <= 9, "{} segments", equal.most);
        assert!(equal.amplification() < 2.0 + 10_000f64.log(4.0), "{}", equal.amplification());
        assert!(equal.merges < 3_000, "{} merges", equal.merges);
    }

    #[test]
    fn additions_of_any_sizes_keep_both_bounds() {
        let sizes: [(&str, &dyn Fn(u64) -> u64); 7] = [
            ("one to ten", &|number| 1000 + drawn(number) % 9000),
            ("over nine powers of two", &|number| 1 << (10 + drawn(number) % 9)),
            ("one large, then small ones", &|number| if number == 0 { 1 << 40 } else { 1 << 12 }),
            ("a large one now and then", &|number| if number % 500 == 0 { 1000 << 12 } else { 1 << 12 }),
            ("growing", &|number| 1000 + number * 7),
            ("shrinking", &|number| 100_000 - number * 9),
            ("two sizes in turn", &|number| if number % 2 == 0 { 7000 } else { 1000 }),
        ];
        for (name, size) in sizes {
            let stream = stream(size);
            assert!(stream.amplification() < 2.0 + 10_000f64.log(4.0), "{name}: {}", stream.amplification());
            assert!(stream.most <= 19, "{name}: {} segments", stream.most);
        }
    }

    #[test]
    fn four_segments_are_left_alone_and_of_five_equal_ones_all_are_merged() {
        assert_eq!(due(&[]), Vec::<Vec<usize>>::new());
        assert_eq!((LEAST, due(&[5; 4])), (5, Vec::new()));
        assert_eq!(due(&[5; 5]), [vec![0, 1, 2, 3, 4]]);
        assert_eq!(due(&[0; 5]), [vec![0, 1, 2, 3, 4]]);
        // A large one stays where small ones are merged, wherever it stands.
        assert_eq!(due(&[7, 7, 1000, 7, 7, 7, 7, 7, 7]), [vec![0, 1, 3, 4, 5, 6, 7, 8]]);
    }

    #[test]
    fn what_is_asked_for_is_merged_unless_it_is_far_larger_than_the_rest() {
        assert_eq!(worthwhile(&[]), Vec::<usize>::new());
        assert_eq!(worthwhile(&[5]), Vec::<usize>::new());
        assert_eq!(worthwhile(&[5, 20]), [1, 0]);
        assert_eq!(worthwhile(&[5, 21]), Vec::<usize>::new());
        assert_eq!(worthwhile(&[1000, 5, 5]), [1, 2]);
        // A segment in the middle may be beside what follows it what the largest is not beside the rest.
        assert_eq!(worthwhile(&[10, 9, 1]), [0, 1, 2]);
    }
}
