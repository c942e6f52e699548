//! Whether two sessions have the same settings.
//!
//! Statements of a session mostly have one and the same copy of them. Copies of several sessions are compared by what they say, which is
//! written down once for each copy: there are hundreds of settings, each with its own way to be written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::config::ConfigOptions;

/// Copies whose text is remembered. What is forgotten is written down again.
const MOST_COPIES: usize = 64;

/// What was written down last, of all sessions of the process.
static WRITTEN: Mutex<VecDeque<Written>> = Mutex::new(VecDeque::new());

/// What settings say: names and values, by name.
type Text = Arc<[(String, Option<String>)]>;

/// A copy of settings, and what it says. A copy that is known here is never changed in place: whoever has it alone and changes it moves it
/// elsewhere first (`Arc::make_mut`).
struct Written {
    copy: Weak<ConfigOptions>,
    text: Text,
}

/// Whether two copies of settings say the same.
pub(super) fn has_same_settings(one: &Arc<ConfigOptions>, other: &Arc<ConfigOptions>) -> bool {
    if Arc::ptr_eq(one, other) {
        return true;
    }
    let [one, other] = [one, other].map(text_of);
    Arc::ptr_eq(&one, &other) || one == other
}

/// What a copy of settings says. Copies that say the same have one text, as long as both are remembered.
fn text_of(copy: &Arc<ConfigOptions>) -> Text {
    let is_of_copy = |known: &&Written| std::ptr::eq(known.copy.as_ptr(), Arc::as_ptr(copy));
    if let Some(known) = written().iter().find(is_of_copy) {
        return Arc::clone(&known.text);
    }
    let mut entries: Vec<_> = copy.entries().into_iter().map(|entry| (entry.key, entry.value)).collect();
    entries.sort();
    let text: Text = entries.into();
    let mut written = written();
    let same = written.iter().find(|known| known.text == text).map(|known| Arc::clone(&known.text));
    let text = same.unwrap_or(text);
    written.retain(|known| known.copy.strong_count() > 0);
    written.truncate(MOST_COPIES - 1);
    written.push_front(Written { copy: Arc::downgrade(copy), text: Arc::clone(&text) });
    text
}

fn written() -> MutexGuard<'static, VecDeque<Written>> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionConfig;

    use super::*;

    fn settings(batch_rows: usize) -> SessionConfig {
        SessionConfig::new().with_batch_size(batch_rows)
    }

    #[test]
    fn sessions_that_say_the_same_have_the_same_settings_and_no_others() {
        let [one, same, other] = [settings(10), settings(10), settings(11)];
        assert!(has_same_settings(one.options(), same.options()));
        assert!(!has_same_settings(one.options(), other.options()));
        assert!(!has_same_settings(other.options(), same.options()));
    }

    #[test]
    fn a_copy_is_written_down_once_and_copies_that_say_the_same_have_one_text() {
        let [one, same] = [settings(12), settings(12)];
        let text = text_of(one.options());
        assert!(Arc::ptr_eq(&text, &text_of(one.options())) && Arc::ptr_eq(&text, &text_of(same.options())));
    }

    #[test]
    fn what_was_written_down_is_not_said_of_settings_that_change() {
        let [mut one, same] = [settings(13), settings(13)];
        assert!(has_same_settings(one.options(), same.options()));
        one.options_mut().execution.time_zone = Some("+05:00".to_owned());
        assert!(!has_same_settings(one.options(), same.options()));
        one.options_mut().execution.time_zone.clone_from(&same.options().execution.time_zone);
        assert!(has_same_settings(one.options(), same.options()));
    }
}
