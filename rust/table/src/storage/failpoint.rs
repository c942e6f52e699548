//! Points at which a crash test ends the process: those between any two steps of a change of the store.

/// Ends the process if a test requests that: `LAKEMARK_CRASH_AT=name` or `name:3`, at the third time. Does nothing in a build without the
/// feature `failpoints`.
#[cfg(feature = "failpoints")]
pub(crate) fn reach(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Where a test lets the process end.
    struct CrashPoint {
        name: String,
        /// How often the point is still to be reached.
        left: AtomicU32,
    }

    static REQUESTED: LazyLock<Option<CrashPoint>> = LazyLock::new(|| {
        let text = std::env::var("LAKEMARK_CRASH_AT").ok()?;
        let (name, times) = text.split_once(':').unwrap_or((&text, "1"));
        Some(CrashPoint { name: name.to_owned(), left: AtomicU32::new(times.parse().ok()?) })
    });
    if let Some(requested) = &*REQUESTED
        && requested.name == name
        && requested.left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

#[cfg(not(feature = "failpoints"))]
pub(crate) fn reach(_name: &str) {}
