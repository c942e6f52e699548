//! The groups of a process, by what their queries have in common. They last as long as their queries.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use datafusion::execution::memory_pool::MemoryPool;

use super::group::StarGroup;

/// The groups of a process.
#[derive(Debug, Default)]
pub(crate) struct StarGroups(Mutex<Vec<Weak<StarGroup>>>);

impl StarGroups {
    /// The group of those who have this in common. A new one has its tables in this memory.
    pub(crate) fn of<K: Any + PartialEq + Send + Sync>(
        &self,
        key: &Arc<K>,
        memory: &Arc<dyn MemoryPool>,
    ) -> Arc<StarGroup> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.strong_count() > 0);
        // Those that end meanwhile end behind the lock.
        let known: Vec<Arc<StarGroup>> = groups.iter().filter_map(Weak::upgrade).collect();
        let found = known.iter().find(|group| group.key::<K>() == Some(key.as_ref()));
        let group = found.map_or_else(
            || {
                let new = Arc::new(StarGroup::new(Arc::clone(key) as Arc<dyn Any + Send + Sync>, memory));
                groups.push(Arc::downgrade(&new));
                new
            },
            Arc::clone,
        );
        drop(groups);
        drop(known);
        group
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    use super::*;

    #[test]
    fn who_has_the_same_in_common_is_in_one_group_as_long_as_it_lasts() {
        let groups = StarGroups::default();
        let memory: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let group = |key: u32| groups.of(&Arc::new(key), &memory);
        let (one, same, other) = (group(1), group(1), group(2));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert!(!Arc::ptr_eq(&one, &groups.of(&Arc::new("1"), &memory)));
        drop((one, same));
        assert!(groups.0.lock().unwrap().iter().filter(|group| group.strong_count() > 0).count() == 1);
        assert_eq!(group(1).key::<u32>(), Some(&1));
    }
}
