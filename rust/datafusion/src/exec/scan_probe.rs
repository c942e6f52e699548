//! What the probe of a scan found out, for operators that answer from the index alone.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lakemark_index::Predicate;
use lakemark_table::{FileProbe, FileProbes, IndexOnlyCost, Probe, ProbeOptions, ProbeReport, ReadCost, Snapshot};

/// What the probe of a scan found out, for operators that answer from indexes alone.
#[derive(Debug)]
pub(crate) struct ScanProbe {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The table's columns as the scan gives them.
    pub(crate) schema: SchemaRef,
    pub(crate) predicate: Predicate,
    /// One entry per file of the snapshot.
    pub(crate) files: FileProbes,
    /// How the scan probed, if it skipped conditions because reading is cheaper.
    pub(crate) skipped_with: Option<ProbeOptions>,
}

/// What a second probe of a scan found out.
pub(crate) struct Reprobed {
    /// The second probe, in which files with rows to be rechecked are unknown. None if the scan is still cheaper.
    pub(crate) scan_probe: Option<ScanProbe>,
    /// What the searches read.
    pub(crate) report: ProbeReport,
}

impl ScanProbe {
    /// The probe of a scan; none if the scan reads no column whose values may be index-only.
    pub(crate) fn of_scan(
        snapshot: &Arc<Snapshot>,
        schema: &SchemaRef,
        predicate: Predicate,
        probe: &Probe,
        projection: Option<&Vec<usize>>,
        options: &ProbeOptions,
    ) -> Option<Arc<Self>> {
        let known = |column: usize| {
            schema.fields().get(column).is_some_and(|field| snapshot.supports_index_only_within(field.name()))
        };
        if !projection?.iter().any(|column| known(*column)) {
            return None;
        }
        // Rows that indexes cannot decide have to be read in any case.
        let is_decided = predicate.unknowns().is_empty()
            && predicate.leaves().iter().all(|leaf| snapshot.supports_index_only(&leaf.column));
        let skipped_with = (probe.searches_skipped && is_decided).then_some(*options);
        let (snapshot, schema) = (Arc::clone(snapshot), Arc::clone(schema));
        Some(Arc::new(Self { snapshot, schema, predicate, files: probe.files.clone(), skipped_with }))
    }

    /// Whether the index knows exact rows of some file.
    pub(crate) fn has_exact_rows(&self) -> bool {
        self.files.listed().any(|(_, file)| has_rows(file))
    }

    /// Whether it may know some if more conditions are searched for.
    pub(crate) fn may_have_exact_rows(&self) -> bool {
        self.skipped_with.is_some() || self.has_exact_rows()
    }

    /// The probe where values are index-only and not read, so that more conditions may be worth a search.
    pub(crate) async fn for_index_only(
        &self,
        options: ProbeOptions,
        index_only: IndexOnlyCost,
    ) -> lakemark_table::Result<Reprobed> {
        let reading = options.reading.map(|reading| ReadCost { index_only: Some(index_only), ..reading });
        let probe = self.snapshot.probe(&self.predicate, &ProbeOptions { reading, ..options }).await?;
        let files = probe.files.map(|_, file| exact_or_unknown(file));
        let (snapshot, schema) = (Arc::clone(&self.snapshot), Arc::clone(&self.schema));
        let predicate = self.predicate.clone();
        let is_known = files.listed().any(|(_, file)| has_rows(file))
            || files.listed().all(|(_, file)| matches!(file, FileProbe::Known { .. }));
        let scan_probe = is_known.then_some(Self { snapshot, schema, predicate, files, skipped_with: None });
        Ok(Reprobed { scan_probe, report: probe.report })
    }
}

fn exact_or_unknown(file: &FileProbe) -> FileProbe {
    match file {
        FileProbe::Known { recheck, .. } if !recheck.is_empty() => FileProbe::Unknown,
        other => other.clone(),
    }
}

/// Whether some rows of a file are exact.
pub(crate) fn has_rows(file: &FileProbe) -> bool {
    matches!(file, FileProbe::Known { exact, .. } if !exact.is_empty())
}
