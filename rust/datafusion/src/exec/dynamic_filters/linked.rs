//! Rows that an index of links gives for the keys of a join: those of an edge table by one of their ends, if no other column is wanted.

use lakemark_index::Predicate;
use lakemark_table::{CoveredValues, IndexedLinks, LinkedRequest, LinkedRows, Probe, ProbeReport};

use super::DynamicProber;
use super::covering::{ScanColumns, given};
use super::pruned_scan::PrunedScan;

/// The place of the file of a row that may be in any.
const ANY_FILE: usize = usize::MAX;

impl DynamicProber {
    /// The rows that have the keys of a join, with their values; files that no index covers are left as they are. None if an index on the key
    /// has the values, if no index of links does, or if reading the table is thought to be cheaper.
    pub(super) async fn linked(&self, keys: &Predicate, scan: &ScanColumns<'_>) -> Option<PrunedScan> {
        let links = self.links.get_or_init(|| IndexedLinks::of(&self.snapshot)).as_ref()?;
        let wanted = scan.wanted()?;
        let columns: Vec<String> = wanted.iter().map(|field| field.name().clone()).collect();
        if self.snapshot.is_covered(keys, &columns) {
            return None;
        }
        let request = LinkedRequest { keys, condition: &self.predicate, columns: &columns, reading: &self.reading };
        let LinkedRows { columns, rows, files, index_reads, index_bytes_read } = links.rows(&request).await?;
        let values = CoveredValues {
            index: String::new(),
            columns,
            files: vec![ANY_FILE; rows],
            rows: Vec::new(),
            index_reads,
            index_bytes_read,
        };
        // Whatever cannot be given is read, and the reader says what is wrong with it.
        let given = given(values, wanted, scan).ok()?;
        let report = ProbeReport::default();
        let probe = Probe { files, buffered: None, searches_skipped: false, skipped_selectivity: None, report };
        PrunedScan::to(&self.snapshot, probe, None).map(|pruned| pruned.with_given(given))
    }
}
