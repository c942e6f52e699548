//! The files of a snapshot whose values an aggregate wants, of which few are looked at one by one.
//!
//! ```text
//! listed by a probe, and its rows are known    looked at one by one
//! listed, and nothing is known of it           its values are not wanted
//! not listed                                   no row counts: a number of the rest
//! ```
//!
//! What a segment says of a settled file holds where it says what the manifest says. So the rest is told by numbers alone.

use lakemark_format::FileNumbers;

use crate::snapshot::{FileProbes, Snapshot};

/// The files whose values are wanted.
#[derive(Clone, Debug)]
pub(super) struct WantedFiles {
    /// Files that are looked at one by one, by place, ascending.
    pub places: Vec<usize>,
    /// The numbers of settled files besides these.
    pub rest: FileNumbers,
    /// Whether the values of the rest are wanted. Otherwise no row of them counts.
    pub is_rest_wanted: bool,
}

impl WantedFiles {
    /// The files whose exact rows a probe knows. Files that the probe does not list have no row that counts.
    pub(super) fn known_to(files: &FileProbes, snapshot: &Snapshot) -> Self {
        let known = files.listed().filter(|(_, file)| file.exact_rows().is_some());
        let places = known.map(|(place, _)| place).collect();
        let has_rest = files.listed().len() < files.len();
        let rest = if has_rest { settled_besides(snapshot, files) } else { FileNumbers::default() };
        Self { places, rest, is_rest_wanted: false }
    }

    /// All files, looked at one by one.
    pub(super) fn each_of(snapshot: &Snapshot) -> Self {
        let places = (0..snapshot.files().len()).collect();
        Self { places, rest: FileNumbers::default(), is_rest_wanted: false }
    }

    /// All files. Those alone are looked at one by one that are not settled.
    pub(super) fn all_of(snapshot: &Snapshot) -> Self {
        let digest = &snapshot.matched.digest;
        Self { places: digest.unsettled().collect(), rest: digest.numbers().clone(), is_rest_wanted: true }
    }
}

/// The numbers of settled files that a probe does not list.
fn settled_besides(snapshot: &Snapshot, files: &FileProbes) -> FileNumbers {
    let number = |(place, _): (usize, _)| snapshot.index_states.get(place)?.number;
    let listed: FileNumbers = files.listed().filter_map(number).collect();
    snapshot.matched.digest.numbers().difference(&listed)
}
