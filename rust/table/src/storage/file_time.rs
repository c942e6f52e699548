//! Data files that were written just before they are indexed: somebody may write them again, and nothing in a listing would differ.
//!
//! A file whose clock is fine is read when the clock's tick has passed. A file with a coarse clock, or with a modification time alone, is
//! remembered as *young*. Its indexes count where its fingerprints are the same, until a build compares them later.

use std::time::{Duration, SystemTime};

use object_store::ObjectMeta;

use crate::storage::clock;
use crate::storage::local::changed_ns;

/// How the tags of young files begin in manifests.
const YOUNG: &str = "young:";
/// A clock that only some file systems and web servers have does not move for so long.
const COARSE: Duration = Duration::from_secs(2);
/// The longest that the clock of a usual file system does not move.
const FINE: Duration = Duration::from_millis(10);
const SECOND_NS: i128 = 1_000_000_000;

/// Modification time of a listed file.
pub(crate) fn modified_ns(meta: &ObjectMeta) -> i64 {
    meta.last_modified.timestamp_nanos_opt().unwrap_or_default()
}

/// The time at which a build began: nothing was read before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildStart(i128);

impl BuildStart {
    /// Now. Waits as long as one of these files could be written again within a tick of its file system's clock.
    pub(crate) async fn after(files: impl Iterator<Item = &ObjectMeta>) -> Self {
        let last = files.filter_map(|meta| changed_ns(meta.e_tag.as_deref()?)).filter(|time| !is_coarse(*time)).max();
        let now = now_ns();
        let age = last.and_then(|last| u64::try_from(now - last).ok()).map(Duration::from_nanos);
        if let Some(left) = age.and_then(|age| FINE.checked_sub(age)) {
            tokio::time::sleep(left).await;
        }
        Self(now)
    }

    /// Whether somebody may write a listed file again unseen once it was read from now on.
    pub(crate) fn has_young(self, meta: &ObjectMeta) -> bool {
        self.is_young(modified_ns(meta), meta.e_tag.as_deref())
    }

    fn is_young(self, modified_ns: i64, tag: Option<&str>) -> bool {
        let young = |time: i128| time + COARSE.as_nanos().cast_signed() > self.0;
        match tag {
            None => young(i128::from(modified_ns)),
            Some(tag) => changed_ns(tag).is_some_and(|time| is_coarse(time) && young(time)),
        }
    }

    /// What a manifest remembers as the tag of a file that was read from now on.
    pub(crate) fn tag(self, modified_ns: i64, tag: Option<&str>) -> Option<String> {
        match self.is_young(modified_ns, tag) {
            true => Some(format!("{YOUNG}{}", tag.unwrap_or_default())),
            false => tag.map(str::to_owned),
        }
    }

    /// The same of a file that is listed.
    pub(crate) fn tag_of(self, meta: &ObjectMeta) -> Option<String> {
        self.tag(modified_ns(meta), meta.e_tag.as_deref())
    }
}

/// Whether somebody may still write a file unseen: what is read of it now is not to be remembered.
#[must_use]
pub fn is_young(meta: &ObjectMeta) -> bool {
    is_young_at(now_ns(), modified_ns(meta), meta.e_tag.as_deref())
}

fn is_young_at(now: i128, modified_ns: i64, tag: Option<&str>) -> bool {
    let is_within_tick = |time: i128| is_within_tick(time, now);
    BuildStart(now).is_young(modified_ns, tag) || tag.and_then(changed_ns).is_some_and(is_within_tick)
}

/// Whether what the system last saw change at one time could change again at another, and that time would be the same. Both are in
/// nanoseconds since 1970-01-01 UTC.
pub(crate) fn may_change_unseen(changed_ns: i128, now: i128) -> bool {
    is_within_tick(changed_ns, now) || (is_coarse(changed_ns) && changed_ns + COARSE.as_nanos().cast_signed() > now)
}

fn is_within_tick(time: i128, now: i128) -> bool {
    // A clock that goes before ours by more than that says nothing of now.
    time + FINE.as_nanos().cast_signed() > now && time <= now + COARSE.as_nanos().cast_signed()
}

/// The time in nanoseconds since 1970-01-01 UTC.
pub(crate) fn now_ns() -> i128 {
    let since = clock::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

/// Whether a time is in whole seconds: a clock that counts in smaller units hits them once in a million times.
fn is_coarse(time_ns: i128) -> bool {
    time_ns % SECOND_NS == 0
}

/// Whether a manifest remembers the file of this tag as one that was young.
pub(crate) fn was_young(tag: &str) -> bool {
    tag.starts_with(YOUNG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_coarse_clocks_are_young_and_only_for_two_seconds() {
        let begun = BuildStart(1_000 * SECOND_NS);
        let at = |seconds: i64, tag: Option<&str>| begun.tag(seconds * 1_000_000_000, tag);
        assert_eq!(at(997, None), None);
        assert_eq!(at(999, None).as_deref(), Some("young:"));
        // A clock that goes before ours.
        assert_eq!(at(1_003, None).as_deref(), Some("young:"));
        assert_eq!(at(999, Some("\"etag\"")).as_deref(), Some("\"etag\""));
        let local = |changed: i128| format!("local-1-2-3-c{changed:x}");
        assert_eq!(at(5, Some(&local(999 * SECOND_NS))), Some(format!("young:{}", local(999 * SECOND_NS))));
        for old_or_fine in [local(998 * SECOND_NS), local(999 * SECOND_NS + 1)] {
            assert_eq!(at(5, Some(&old_or_fine)), Some(old_or_fine.clone()));
        }
        assert!(was_young("young:") && !was_young("local-1-2-3-c4"));
    }

    #[test]
    fn what_is_read_of_a_file_within_a_tick_of_its_change_is_not_remembered() {
        let changed = 999 * SECOND_NS + 1;
        let local = format!("local-1-2-3-c{changed:x}");
        let tick = FINE.as_nanos().cast_signed();
        let ahead = -COARSE.as_nanos().cast_signed();
        for (later, is_young) in
            [(0, true), (tick - 1, true), (tick, false), (10 * tick, false), (ahead, true), (ahead - 1, false)]
        {
            assert_eq!(is_young_at(changed + later, 0, Some(&local)), is_young, "{later}");
        }
    }
}
