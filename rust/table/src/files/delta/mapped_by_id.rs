//! The files of a table that maps columns by id: each has to have its columns under names and ids that agree.
//!
//! Everybody who reads a file finds its columns by their stored names, so that a snapshot of such a table has files only whose footers were
//! checked. A process checks a file once.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use futures::{StreamExt, stream};

use super::{DeltaFile, DeltaState};
use crate::error::{Error, ErrorKind, Result};
use crate::files::column_mapping::ColumnMapping;
use crate::files::file_version::FileVersion;
use crate::files::footer::Footer;
use crate::storage::location::Location;

/// Footers that are read at a time.
const CONCURRENT_READS: usize = 32;
/// Files that the process remembers.
const CACHE_ENTRIES: usize = 100_000;

/// A file that agrees with a mapping.
#[derive(PartialEq, Eq, Hash)]
struct CheckedFile {
    /// The root of the table.
    root: String,
    file: FileVersion,
    mapping: u64,
}

static CHECKED: LazyLock<Mutex<HashSet<CheckedFile>>> = LazyLock::new(Mutex::default);

impl DeltaState {
    /// Checks files of the table, if it maps columns by id.
    ///
    /// # Errors
    /// A file has names and ids that do not agree (`Unsupported`), or its footer cannot be read.
    pub(super) async fn check_ids(&self, files: impl Iterator<Item = Arc<DeltaFile>>) -> Result<()> {
        let Some(names) = self.names.as_deref().filter(|names| names.is_by_id()) else { return Ok(()) };
        // Collected first, so that the futures do not borrow the iterator.
        let checks: Vec<_> = files.map(|file| check(&self.location, names, file)).collect();
        let mut done = stream::iter(checks).buffer_unordered(CONCURRENT_READS);
        while let Some(checked) = done.next().await {
            checked?;
        }
        Ok(())
    }
}

async fn check(location: &Location, names: &ColumnMapping, file: Arc<DeltaFile>) -> Result<()> {
    let key = CheckedFile {
        root: location.root.to_string(),
        file: FileVersion::of(&file.meta),
        mapping: names.fingerprint(),
    };
    if CHECKED.lock().unwrap_or_else(PoisonError::into_inner).contains(&key) {
        return Ok(());
    }
    let footer = match Footer::read(location.object_store.as_ref(), &file.meta, &file.path).await {
        Ok(footer) => footer,
        // What nobody can read is no danger. Whoever needs the file says so.
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => return Ok(()),
        Err(error) => return Err(error),
    };
    if let Some(wrong) = names.disagreement(footer.metadata.file_metadata().schema_descr().root_schema()) {
        return Err(Error::unsupported(format!(
            "the Delta table {} maps columns by id, and its file {} {wrong}, so that their names do not find them; have a writer of Delta \
             write the file anew, or copy the table",
            location.text, file.path
        )));
    }
    let mut checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
    if checked.len() >= CACHE_ENTRIES {
        checked.clear();
    }
    checked.insert(key);
    Ok(())
}
