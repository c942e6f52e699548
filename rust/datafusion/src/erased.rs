//! Values that the compiler does not look into.
//!
//! A plan is made of plans and expressions, and these of plans again. Whether a future may go to another thread is asked of all that it
//! holds, through every plan and session anew. A crate with hundreds of futures takes minutes for that. A trait object is asked once, where
//! it is made.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A shared value behind a trait object.
pub struct Erased<T>(Arc<dyn Holds<T>>);

trait Holds<T>: Send + Sync {
    fn held(&self) -> &T;

    fn into_held(self: Arc<Self>) -> T;
}

impl<T: Clone + Send + Sync> Holds<T> for T {
    fn held(&self) -> &T {
        self
    }

    fn into_held(self: Arc<Self>) -> T {
        Arc::unwrap_or_clone(self)
    }
}

impl<T: Clone + Send + Sync + 'static> Erased<T> {
    /// Puts a value behind a trait object.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Erased<T> {
    /// The value, or a copy of it if others have it, too.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0.into_held()
    }
}

impl<T> Clone for Erased<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Erased<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (*self.0).held()
    }
}

impl<T: fmt::Debug> fmt::Debug for Erased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}
