//! Is a data file still the one that was indexed? If only its time or tag differs, fingerprints decide.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use lakemark_format::{ManifestFile, ManifestSegment, SegmentDirectory, SegmentFile, column};

use crate::error::Result;
use crate::files::columns::hash_column;
use crate::files::file_version::FileVersion;
use crate::files::footer::Footer;
use crate::snapshot::{DataFile, Snapshot};
use crate::storage::file_time::{is_young, modified_ns};
use crate::store::manifests::file_of;

/// Verdicts that the process remembers.
const CACHE_ENTRIES: usize = 100_000;

/// What a verdict is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VerdictKey {
    /// The root of the table.
    root: String,
    file: FileVersion,
    /// The id of the segment.
    segment: [u8; 16],
}

static VERDICTS: LazyLock<Mutex<HashMap<VerdictKey, bool>>> = LazyLock::new(Mutex::default);

impl DataFile {
    /// The version of the file, by its path below the table's root.
    pub(crate) fn version(&self) -> FileVersion {
        FileVersion::of_path(self.path.clone(), &self.meta)
    }

    /// Whether another is the same version of the same file.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        let of = |file: &Self| (file.meta.size, modified_ns(&file.meta));
        self.path == other.path && of(self) == of(other) && self.meta.e_tag == other.meta.e_tag
    }
}

/// Whether the segment's postings of `file` (one that its directory lists as `entry`) hold for the file as it is now.
pub(crate) async fn is_same_data(
    snapshot: &Snapshot,
    file: usize,
    entry: &SegmentFile,
    segment: &ManifestSegment,
    directory: &SegmentDirectory,
) -> bool {
    let (Some(state), Some(data_file)) = (snapshot.index_states.get(file), snapshot.files().get(file)) else {
        return false;
    };
    let known = state.number.and_then(|number| file_of(snapshot.manifest.as_ref()?, number));
    let Some(known) = known else { return false };
    if !says_same(known, entry) {
        return false;
    }
    if !state.unverified {
        return true;
    }
    let key = VerdictKey {
        root: snapshot.root_url().to_string(),
        file: FileVersion::of(&data_file.meta),
        segment: segment.id,
    };
    if let Some(verdict) = VERDICTS.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return *verdict;
    }
    let was_young = is_young(&data_file.meta);
    // What is stored of columns that ride along holds if their bytes are the same as well.
    let riding = directory.riding.iter().map(|column| column.column.as_str());
    let columns = column::composite(std::iter::once(directory.column.as_str()).chain(riding));
    let verdict = compare(snapshot, file, entry, &columns).await.unwrap_or_else(|error| {
        tracing::warn!(file = data_file.path, %error, "the file cannot be compared with its indexes");
        false
    });
    if was_young {
        return verdict;
    }
    let mut verdicts = VERDICTS.lock().unwrap_or_else(PoisonError::into_inner);
    if verdicts.len() >= CACHE_ENTRIES {
        verdicts.clear();
    }
    verdicts.insert(key, verdict);
    verdict
}

/// Whether a segment says of a file's footer what the manifest says.
pub(crate) fn says_same(known: &ManifestFile, entry: &SegmentFile) -> bool {
    known.footer_hash == entry.footer_hash && known.row_groups == entry.row_groups
}

async fn compare(snapshot: &Snapshot, file: usize, entry: &SegmentFile, column: &str) -> Result<bool> {
    let Some(data_file) = snapshot.files().get(file) else { return Ok(false) };
    let store = snapshot.object_store();
    let footer = Footer::read(store.as_ref(), &data_file.meta, &data_file.path).await?;
    if footer.hash != entry.footer_hash || footer.row_groups != entry.row_groups {
        return Ok(false);
    }
    Ok(hash_column(store.as_ref(), &data_file.meta, &data_file.path, &footer, column).await? == entry.column_hash)
}
