//! What was opened last, for the next walk.

/// So many are kept at most.
const MOST: usize = 8;
/// So many bytes all of them take together at most.
const MOST_BYTES: u64 = 256 << 20;

/// Values with the bytes that each takes, the newest first.
#[derive(Debug)]
pub(super) struct Recent<T>(Vec<(T, u64)>);

impl<T> Recent<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Keeps a value, unless it takes more bytes than all may. Those that were kept first make room.
    pub(super) fn keep(&mut self, value: T, bytes: u64) {
        let Some(room) = MOST_BYTES.checked_sub(bytes) else { return };
        self.0.truncate(MOST - 1);
        while self.0.iter().map(|(_, bytes)| bytes).sum::<u64>() > room {
            self.0.pop();
        }
        self.0.insert(0, (value, bytes));
    }

    pub(super) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        self.0.iter().map(|(value, _)| value).find(|&value| is_it(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(recent: &Recent<u32>) -> Vec<u32> {
        recent.0.iter().map(|(value, _)| *value).collect()
    }

    #[test]
    fn the_newest_are_kept_as_far_as_there_is_room() {
        let mut recent = Recent::new();
        (0..12).for_each(|value| recent.keep(value, 0));
        assert_eq!(kept(&recent), [11, 10, 9, 8, 7, 6, 5, 4]);
        recent.keep(20, MOST_BYTES / 2);
        recent.keep(21, MOST_BYTES / 2);
        assert_eq!(kept(&recent), [21, 20, 11, 10, 9, 8, 7, 6]);
        // One byte too many for both of them.
        recent.keep(22, 1);
        assert_eq!(kept(&recent), [22, 21]);
        recent.keep(23, MOST_BYTES + 1);
        assert_eq!(kept(&recent), [22, 21]);
        assert_eq!(recent.find(|value| value % 2 == 1), Some(&21));
        assert_eq!(recent.find(|value| *value == 20), None);
    }
}
