//! Where the slices of a migration end, so that each of them writes few bytes.
//!
//! ```text
//! file 0  ├────────┤                                     files in the order of keys: slices end between them,
//! file 1            ├───────┤                            and each file is written once
//! file 2                     ├──────────┤
//! file 3         ├─────────────────────────────┤         a file over an end is written in both slices
//!         slice 0   │ slice 1 │  slice 2 …
//! ```
//!
//! Where many files reach over ends, slices are longer: all of them together write at most twice what one migration would.

/// What a migration writes anew for a stretch of keys: a data file, or a page of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyExtent {
    /// A value at or below which the first key column begins, as bytes in the order of keys; none if nobody knows.
    pub low: Option<Box<[u8]>>,
    /// A value at or above which the first key column ends; none if nobody knows.
    pub high: Option<Box<[u8]>>,
    pub bytes: u64,
}

/// Values of the first key column below which slices end, ascending; the last slice has what is left. A slice writes `max_bytes` at most,
/// unless what cannot be parted is larger. It writes more as well where files over ends would come to more than all files.
pub(super) fn slice_ends(files: &[KeyExtent], pages: &[KeyExtent], max_bytes: u64) -> Vec<Box<[u8]>> {
    let starts = starts_of(files, pages);
    let mut highs: Vec<(&[u8], u64)> = files.iter().filter_map(|of| Some((of.high.as_deref()?, of.bytes))).collect();
    highs.sort_unstable();
    let once: u64 = files.iter().map(|of| of.bytes).sum();
    let mut most = max_bytes.max(1);
    loop {
        let Sliced { ends, again } = sliced(&starts, &highs, most);
        if again <= once {
            return ends.into_iter().map(Box::from).collect();
        }
        most = most.saturating_mul(2);
    }
}

/// What begins at a value.
struct Start<'a> {
    low: Option<&'a [u8]>,
    /// Bytes of files and of pages.
    bytes: u64,
    file_bytes: u64,
}

/// What begins at each value, ascending.
fn starts_of<'a>(files: &'a [KeyExtent], pages: &'a [KeyExtent]) -> Vec<Start<'a>> {
    let start = |of: &'a KeyExtent, is_file: bool| {
        let file_bytes = if is_file { of.bytes } else { 0 };
        Start { low: of.low.as_deref(), bytes: of.bytes, file_bytes }
    };
    let of_files = files.iter().map(|of| start(of, true));
    let mut all: Vec<Start<'a>> = of_files.chain(pages.iter().map(|of| start(of, false))).collect();
    all.sort_by_key(|start| start.low);
    all.dedup_by(|next, first| {
        let is_same = next.low == first.low;
        if is_same {
            first.bytes += next.bytes;
            first.file_bytes += next.file_bytes;
        }
        is_same
    });
    all
}

/// Slices of at most so many bytes each.
struct Sliced<'a> {
    ends: Vec<&'a [u8]>,
    /// Bytes of files that are written again by a slice after their first one.
    again: u64,
}

fn sliced<'a>(starts: &[Start<'a>], highs: &[(&[u8], u64)], most: u64) -> Sliced<'a> {
    let mut found = Sliced { ends: Vec::new(), again: 0 };
    let mut highs = highs.iter().peekable();
    // Bytes of files that began, and that ended, below the value in hand.
    let (mut begun, mut ended) = (0u64, 0u64);
    let (mut in_slice, mut is_empty) = (0u64, true);
    for start in starts {
        if let Some(low) = start.low.filter(|_| !is_empty && in_slice.saturating_add(start.bytes) > most) {
            while let Some((_, bytes)) = highs.next_if(|(high, _)| *high < low) {
                ended += bytes;
            }
            found.ends.push(low);
            in_slice = begun.saturating_sub(ended);
            found.again += in_slice;
        }
        in_slice = in_slice.saturating_add(start.bytes);
        begun += start.file_bytes;
        is_empty = false;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(low: u8, high: u8, bytes: u64) -> KeyExtent {
        KeyExtent { low: Some(Box::from([low])), high: Some(Box::from([high])), bytes }
    }

    fn ends(files: &[KeyExtent], pages: &[KeyExtent], most: u64) -> Vec<u8> {
        slice_ends(files, pages, most).iter().map(|end| end[0]).collect()
    }

    /// Bytes of files that each slice writes.
    fn written(files: &[KeyExtent], ends: &[u8]) -> Vec<u64> {
        let from = std::iter::once(0).chain(ends.iter().copied());
        let slices = from.zip(ends.iter().map(|end| u32::from(*end)).chain([256]));
        let meets = |of: &KeyExtent, from: u8, end: u32| {
            let (low, high) = (of.low.as_ref().map_or(0, |low| low[0]), of.high.as_ref().map_or(255, |high| high[0]));
            u32::from(low) < end && high >= from
        };
        let bytes = |(from, end): (u8, u32)| files.iter().filter(|of| meets(of, from, end)).map(|of| of.bytes).sum();
        slices.map(bytes).collect()
    }

    #[test]
    fn files_in_the_order_of_keys_are_written_once_each() {
        let files: Vec<_> = (0..20).map(|file| extent(file * 10, file * 10 + 9, 100)).collect();
        let found = ends(&files, &[], 350);
        assert_eq!(found, [30, 60, 90, 120, 150, 180]);
        assert_eq!(written(&files, &found), [300, 300, 300, 300, 300, 300, 200]);
        // A file that is larger than a slice is a slice.
        assert_eq!(written(&files, &ends(&files, &[], 1)), [100; 20]);
        assert!(ends(&files, &[], 2000).is_empty() && ends(&[], &[], 1).is_empty());
    }

    /// Files whose keys are anywhere: each slice would write all of them.
    #[test]
    fn slices_together_write_at_most_twice_what_one_migration_writes() {
        let anywhere: Vec<_> = (0..20).map(|file| extent(file, 255 - file, 100)).collect();
        assert_eq!(written(&anywhere, &ends(&anywhere, &[], 100)), [2000]);
        // Every second file is in order.
        let mixed: Vec<_> = (0..20u8)
            .map(|file| if file % 2 == 0 { extent(file * 10, file * 10 + 15, 100) } else { extent(file, 250, 10) })
            .collect();
        let found = ends(&mixed, &[], 150);
        let written = written(&mixed, &found);
        assert!(found.len() > 2 && written.iter().sum::<u64>() <= 2 * 1100, "{found:?} {written:?}");
    }

    #[test]
    fn a_file_of_unknown_keys_is_in_every_slice_and_counts_as_such() {
        let unknown = KeyExtent { low: None, high: None, bytes: 50 };
        let files: Vec<_> =
            [unknown].into_iter().chain((1..11).map(|file| extent(file * 10, file * 10 + 5, 100))).collect();
        let found = ends(&files, &[], 250);
        assert_eq!(written(&files, &found), [250, 250, 250, 250, 250]);
        assert_eq!(found, [30, 50, 70, 90]);
    }

    /// Inserts hit no file: what they are written to counts by the pages of runs.
    #[test]
    fn new_rows_are_parted_by_the_pages_of_runs() {
        let pages: Vec<_> = (0..10).map(|page| extent(page * 20, page * 20 + 40, 30)).collect();
        assert_eq!(ends(&[], &pages, 90), [60, 120, 180]);
        let files = [extent(0, 70, 60), extent(80, 200, 60)];
        // The first file would be written in three slices, so that these are longer.
        assert_eq!(ends(&files, &pages, 120), [80]);
    }
}
