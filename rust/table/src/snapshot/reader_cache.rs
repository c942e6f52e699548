//! What readers of a snapshot find out of its data files and keep with it, until nobody has a snapshot of the same files.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// One value of each type, shared by the snapshots of the same files in the same order.
#[derive(Clone, Default)]
pub(crate) struct ReaderCache(Arc<Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>);

impl ReaderCache {
    /// The value of this type, which the first reader makes.
    pub(crate) fn get<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = all.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        Arc::clone(value).downcast().unwrap_or_default()
    }
}

impl fmt::Debug for ReaderCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").finish_non_exhaustive()
    }
}
