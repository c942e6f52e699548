//! What the process remembers between queries: bounded in bytes, the least recently used goes first.
//!
//! Keys name content that never changes (a segment by its id), so nothing here can be stale.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Values by key, shared by all threads.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    limit: u64,
    inner: Mutex<LruState<K, V>>,
}

#[derive(Debug)]
struct LruState<K, V> {
    entries: HashMap<K, LruEntry<V>>,
    /// Keys by the time of their last use.
    used: BTreeMap<u64, K>,
    bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct LruEntry<V> {
    value: V,
    bytes: u64,
    used: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    /// A cache of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        let inner = LruState { entries: HashMap::new(), used: BTreeMap::new(), bytes: 0, clock: 0 };
        Self { limit, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, LruState<K, V>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a key, now the most recently used.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut inner = self.lock();
        inner.clock += 1;
        let now = inner.clock;
        let entry = inner.entries.get_mut(key)?;
        let (value, before) = (entry.value.clone(), std::mem::replace(&mut entry.used, now));
        if let Some(key) = inner.used.remove(&before) {
            inner.used.insert(now, key);
        }
        Some(value)
    }

    /// Remembers a value of so many bytes; one beyond the limit is not kept.
    pub(crate) fn insert(&self, key: K, value: V, bytes: u64) {
        if bytes > self.limit {
            return;
        }
        let mut inner = self.lock();
        inner.clock += 1;
        let used = inner.clock;
        inner.bytes += bytes;
        inner.used.insert(used, key.clone());
        if let Some(old) = inner.entries.insert(key, LruEntry { value, bytes, used }) {
            inner.bytes -= old.bytes;
            inner.used.remove(&old.used);
        }
        while inner.bytes > self.limit
            && let Some((_, oldest)) = inner.used.pop_first()
        {
            if let Some(entry) = inner.entries.remove(&oldest) {
                inner.bytes -= entry.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = Cache::new(10);
        cache.insert("a", 1, 4);
        cache.insert("b", 2, 4);
        assert_eq!(cache.get(&"a"), Some(1));
        cache.insert("c", 3, 4);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.get(&"c")), (Some(1), None, Some(3)));
    }

    #[test]
    fn bytes_are_counted_once_for_each_key_and_stay_below_the_limit() {
        let cache = Cache::new(10);
        for _ in 0..5 {
            cache.insert("a", 1, 6);
        }
        cache.insert("b", 2, 4);
        assert_eq!((cache.get(&"a"), cache.get(&"b")), (Some(1), Some(2)));
        assert_eq!(cache.lock().bytes, 10);
        cache.insert("huge", 3, 11);
        assert_eq!((cache.get(&"huge"), cache.get(&"a")), (None, Some(1)));
        cache.insert("c", 3, 10);
        let inner = cache.lock();
        assert_eq!((inner.entries.len(), inner.used.len(), inner.bytes), (1, 1, 10));
    }
}
