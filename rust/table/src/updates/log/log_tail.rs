//! The log as it is read: its commits, merged. It is the buffer of MaSM, and the newest of the runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use lakemark_format::log::LOG_START;
use lakemark_format::{LogCommit, LoggedCommit, ManifestLog};

use super::log_file::{self, LogPosition, OpenLog, damaged, unreadable};
use crate::error::{Error, Result};
use crate::files::column_mapping::ColumnMapping;
use crate::storage::disk;
use crate::updates::changes::change::Transaction;
use crate::updates::changes::merge_changes::ChangeMerger;
use crate::updates::changes::rows::changes;
use crate::updates::key::KeyColumns;

/// What the commits from a sequence number on come to.
#[derive(Clone, Debug)]
struct RecentChanges {
    /// The sequence number.
    since: u64,
    changes: Arc<ChangeMerger>,
}

/// The last call of an application that numbers its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastCall {
    /// Its number.
    pub version: u64,
    /// The sequence number of its changes.
    pub sequence: u64,
}

/// What was read of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogTail {
    pub log: [u8; 16],
    /// The fingerprint of the names of columns that it was read with.
    pub names: u64,
    /// Where the last good frame begins; its end if there is none.
    pub last: u64,
    /// Where the last good frame ends.
    pub end: u64,
    /// Up to where this process wrote and synced the log itself.
    pub own: u64,
    /// The sequence number of the next commit.
    pub next: u64,
    /// Whether bytes follow that belong to no call that returned.
    pub torn: bool,
    /// What the commits come to.
    pub changes: Arc<ChangeMerger>,
    /// What the newer ones come to, merged apart, if a reader has requested that.
    recent: Option<RecentChanges>,
    /// Rows of changes, before they were merged.
    pub rows: u64,
    /// The last call of each application.
    pub transactions: BTreeMap<String, LastCall>,
}

impl LogTail {
    /// A log of which nothing was read.
    pub(crate) fn new(log: &ManifestLog, names: u64, schema: &SchemaRef, key: &Arc<KeyColumns>) -> Self {
        Self {
            log: log.id,
            names,
            last: LOG_START,
            end: LOG_START,
            own: LOG_START,
            next: log.first_sequence,
            torn: false,
            changes: Arc::new(ChangeMerger::new(Arc::clone(schema), Arc::clone(key))),
            recent: None,
            rows: 0,
            transactions: BTreeMap::new(),
        }
    }

    /// From here on also merges new commits apart.
    pub(crate) fn split(&mut self) {
        self.recent = Some(RecentChanges { since: self.next, changes: Arc::new(self.changes.emptied()) });
    }

    /// What the commits from this sequence number on come to, if they were merged apart.
    pub(crate) fn since(&self, sequence: u64) -> Option<&ChangeMerger> {
        self.recent.as_ref().filter(|recent| recent.since == sequence).map(|recent| recent.changes.as_ref())
    }

    /// Reads on, up to the end of the file. Another process may have died between writing and syncing frames: these are synced first.
    pub(crate) fn read_on(&mut self, path: &Path, schema: &SchemaRef, names: Option<&ColumnMapping>) -> Result<()> {
        let from = LogPosition { end: self.end, next: self.next };
        let OpenLog { file, read } = log_file::read_on(path, &self.log, from)?;
        if !read.commits.is_empty() {
            disk::sync_bytes(&file, path).map_err(|error| unreadable(path, error))?;
        }
        for LoggedCommit { sequence, commit } in read.commits {
            self.apply(sequence, &commit, schema, names).map_err(|error| damaged(path).with_source(error))?;
        }
        if read.end > self.end {
            self.last = read.last;
        }
        (self.end, self.torn) = (read.end, read.torn);
        Ok(())
    }

    /// Adds a commit to what was read.
    pub(crate) fn apply(
        &mut self,
        sequence: u64,
        commit: &LogCommit,
        schema: &SchemaRef,
        names: Option<&ColumnMapping>,
    ) -> Result<()> {
        let merger = Arc::make_mut(&mut self.changes);
        for change in &commit.changes {
            for rows in from_ipc(&change.rows, names)? {
                self.rows += rows.num_rows() as u64;
                let rows = changes(schema, change.operation, sequence, &as_typed(rows, schema)?)?;
                if let Some(recent) = &mut self.recent {
                    Arc::make_mut(&mut recent.changes).add(rows.clone())?;
                }
                merger.add(rows)?;
            }
        }
        self.called(&commit.tag, sequence);
        Ok(())
    }

    /// Remembers that a call with this tag had this number.
    pub(crate) fn called(&mut self, tag: &str, sequence: u64) {
        if let Some(Transaction { application, version }) = Transaction::of_tag(tag) {
            self.transactions.insert(application, LastCall { version, sequence });
        }
        self.next = sequence + 1;
    }
}

/// What was read of a log, kept for the next one to read on.
#[derive(Default)]
pub(crate) struct LogTailSlot(Mutex<Option<LogTail>>);

impl LogTailSlot {
    /// The tail that is kept; the slot is empty from then on.
    pub(crate) fn take(&self) -> Option<LogTail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Merges what comes after this tail apart, unless somebody read on meanwhile.
    pub(crate) fn split(&self, tail: &LogTail) {
        if let Some(known) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)
            && (known.log, known.next) == (tail.log, tail.next)
        {
            known.split();
        }
    }

    /// Keeps what was read.
    pub(crate) fn put(&self, tail: LogTail) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tail);
    }
}

/// Rows as the bytes of a log, under their stored names.
pub(crate) fn to_ipc(rows: &RecordBatch, names: Option<&ColumnMapping>) -> Result<Vec<u8>> {
    let impossible = |error| Error::unsupported("the rows cannot be written to a log").with_source(error);
    let stored = renamed(rows, |name| names.map_or(Some(name.to_owned()), |names| names.physical(name)))?;
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &stored.schema()).map_err(impossible)?;
    writer.write(&stored).and_then(|()| writer.finish()).map_err(impossible)?;
    drop(writer);
    Ok(bytes)
}

/// The columns that rows of a log were written with, under their stored names.
pub(super) fn schema_of(bytes: &[u8]) -> Result<SchemaRef> {
    let reader = StreamReader::try_new(bytes, None);
    reader.map(|reader| reader.schema()).map_err(|error| Error::corrupt("a change has no columns").with_source(error))
}

fn from_ipc(bytes: &[u8], names: Option<&ColumnMapping>) -> Result<Vec<RecordBatch>> {
    let impossible = |error| Error::corrupt("a change has rows that cannot be read").with_source(error);
    let reader = StreamReader::try_new(bytes, None).map_err(impossible)?;
    let mut batches = Vec::new();
    for batch in reader {
        batches.push(renamed(&batch.map_err(impossible)?, |name| {
            names.map_or(Some(name.to_owned()), |names| names.logical(name))
        })?);
    }
    Ok(batches)
}

/// The same columns under other names; those without one are left out.
pub(crate) fn renamed(rows: &RecordBatch, name: impl Fn(&str) -> Option<String>) -> Result<RecordBatch> {
    let schema = rows.schema();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in schema.fields().iter().zip(rows.columns()) {
        if let Some(name) = name(field.name()) {
            fields.push(Arc::new(field.as_ref().clone().with_name(name)));
            columns.push(Arc::clone(column));
        }
    }
    crate::updates::changes::rows::batch(&Arc::new(Schema::new(fields)), columns, rows.num_rows())
}

/// Columns that the table has, with the types that they have now.
fn as_typed(rows: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
        let Ok(wanted) = schema.field_with_name(field.name()) else { continue };
        let cast = match column.data_type() == wanted.data_type() {
            true => Arc::clone(column),
            false => crate::updates::changes::change::cast_exactly(column, wanted)?,
        };
        fields.push(Arc::new(wanted.clone()));
        columns.push(cast);
    }
    crate::updates::changes::rows::batch(&Arc::new(Schema::new(fields)), columns, rows.num_rows())
}
