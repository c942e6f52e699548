//! Ids of stores, indexes, runs and files. Nothing else of the crate is random, which a lint holds (`rust/clippy.toml`).

use uuid::Uuid;

/// An id that nothing else has, and that nobody can guess: 122 bits from the operating system.
#[expect(clippy::disallowed_methods, reason = "the one place that draws ids")]
#[must_use]
pub fn new_id() -> Uuid {
    Uuid::new_v4()
}
