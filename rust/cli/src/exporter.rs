//! The counters of a job's tables for whoever collects them: as a file, and on a port.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use lakemark_serve::http::{OPEN_METRICS, Page, Pages};
use lakemark_table::Table;
use lakemark_table::metrics::{NamedMetrics, open_metrics};

/// The tables whose counters are told.
#[derive(Default)]
pub(crate) struct Exporter {
    tables: Mutex<Vec<Arc<Table>>>,
    file: Option<PathBuf>,
    /// Held while the file is written: two writers would have the same temporary name.
    writing: Mutex<()>,
}

impl Exporter {
    /// An exporter that writes to a file, if one is given.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self { file, ..Self::default() }
    }

    /// Tells the counters of this table from now on.
    pub(crate) fn add(&self, table: &Arc<Table>) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(table));
    }

    /// The counters as OpenMetrics text.
    pub(crate) fn text(&self) -> String {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let named: Vec<NamedMetrics<'_>> =
            tables.iter().map(|table| NamedMetrics { table: table.location(), metrics: table.metrics() }).collect();
        open_metrics(&named, lakemark_table::now())
    }

    /// Whether there is a file to be written.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Writes the file, if there is one. Who reads it meanwhile sees all of the old one or all of the new one.
    pub(crate) fn write(&self) -> io::Result<()> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.as_deref().map_or(Ok(()), |path| replace(path, &self.text()))
    }

    /// Writes the file; what keeps it from being written is a warning, as it says nothing about the job.
    pub(crate) fn write_or_warn(&self) {
        if let (Err(error), Some(path)) = (self.write(), &self.file) {
            tracing::warn!(file = %path.display(), %error, "the metrics cannot be written");
        }
    }
}

impl Pages for Exporter {
    fn paths(&self) -> &'static [&'static str] {
        &["/metrics"]
    }

    fn page<'a>(&'a self, _path: &'a str) -> BoxFuture<'a, Page> {
        Box::pin(async move { Page { content_type: OPEN_METRICS, is_well: true, body: self.text() } })
    }
}

/// Puts a file in the place of another one at once. The temporary name has another ending, by which collectors leave it alone.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let temporary = path.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // It may never have been made.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lakemark.prom");
        let exporter = Exporter::new(Some(path.clone()));
        fs::write(&path, "old").unwrap();
        exporter.write().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "# EOF\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_a_folder_in_the_place_of_the_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Exporter::new(Some(folder.path().join("no/lakemark.prom"))).write().is_err());
        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join("inner")).unwrap();
        assert!(Exporter::new(Some(taken)).write().is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn without_a_file_nothing_is_written() {
        let exporter = Exporter::new(None);
        assert!(!exporter.has_file());
        exporter.write().unwrap();
        assert_eq!(exporter.text(), "# EOF\n");
    }
}
