//! Points at which a crash test ends the process: those between any two steps of a change of the store.

/// Ends the process if a test asked for it: `LAKEMARK_CRASH_AT=name` or `name:3`, at the third time. Does nothing in a build
/// without the feature `failpoints`.
#[cfg(feature = "failpoints")]
pub(crate) fn reach(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static ASKED: LazyLock<Option<(String, AtomicU32)>> = LazyLock::new(|| {
        let text = std::env::var("LAKEMARK_CRASH_AT").ok()?;
        let (name, times) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicU32::new(times.parse().ok()?)))
    });
    if let Some((asked, left)) = &*ASKED
        && asked == name
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

#[cfg(not(feature = "failpoints"))]
pub(crate) fn reach(_name: &str) {}
