//! Settings of a session, under the name `lakemark`.

use datafusion::common::extensions_options;
use datafusion::config::ConfigExtension;

extensions_options! {
    /// Settings of a session: `SET lakemark.use_index = false`.
    pub struct LakemarkOptions {
        /// Whether scans may use indexes; without them every file is scanned.
        pub use_index: bool, default = true
        /// Whether rows that an index found before may be taken from memory (at most 256 MiB a process).
        pub use_cache: bool, default = true
    }
}

impl ConfigExtension for LakemarkOptions {
    const PREFIX: &'static str = "lakemark";
}
