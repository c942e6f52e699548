//! What the probe of a scan found out, for operators that answer from the index alone.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lakemark_index::Predicate;
use lakemark_table::{FileProbe, IndexOnlyCost, Probe, ProbeOptions, ProbeReport, ReadCost, Snapshot};

/// What the probe of a scan found out, for operators that answer from indexes alone.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The table's columns as the scan gives them.
    pub(crate) schema: SchemaRef,
    pub(crate) predicate: Predicate,
    /// One entry per file of the snapshot.
    pub(crate) files: Vec<FileProbe>,
    /// How the scan probed, if it skipped conditions because reading is cheaper.
    pub(crate) left_out: Option<ProbeOptions>,
}

/// What a second probe of a scan found out.
pub(crate) struct Reprobed {
    /// The facts, in which files with rows to be rechecked are unknown. None if the scan is still cheaper.
    pub(crate) facts: Option<Facts>,
    /// What the searches read.
    pub(crate) report: ProbeReport,
}

impl Facts {
    /// The facts of a scan; none if the scan reads no column whose values may be index-only.
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
        let left_out = (probe.searches_skipped && is_decided).then_some(*options);
        let (snapshot, schema) = (Arc::clone(snapshot), Arc::clone(schema));
        Some(Arc::new(Self { snapshot, schema, predicate, files: probe.files.clone(), left_out }))
    }

    /// Whether the index knows exact rows of some file.
    pub(crate) fn knows_rows(&self) -> bool {
        self.files.iter().any(has_rows)
    }

    /// Whether it may know some if more conditions are searched for.
    pub(crate) fn may_know_rows(&self) -> bool {
        self.left_out.is_some() || self.knows_rows()
    }

    /// The facts where values are index-only and not read, so that more conditions may be worth a search.
    pub(crate) async fn for_telling(
        &self,
        options: ProbeOptions,
        told: IndexOnlyCost,
    ) -> lakemark_table::Result<Reprobed> {
        let reading = options.reading.map(|reading| ReadCost { told: Some(told), ..reading });
        let probe = self.snapshot.probe(&self.predicate, &ProbeOptions { reading, ..options }).await?;
        let files: Vec<FileProbe> = probe.files.into_iter().map(certain_or_unknown).collect();
        let (snapshot, schema) = (Arc::clone(&self.snapshot), Arc::clone(&self.schema));
        let predicate = self.predicate.clone();
        let is_known = files.iter().any(has_rows) || files.iter().all(|file| matches!(file, FileProbe::Known { .. }));
        let facts = is_known.then_some(Self { snapshot, schema, predicate, files, left_out: None });
        Ok(Reprobed { facts, report: probe.report })
    }
}

fn certain_or_unknown(file: FileProbe) -> FileProbe {
    match file {
        FileProbe::Known { uncertain, .. } if !uncertain.is_empty() => FileProbe::Unknown,
        other => other,
    }
}

/// Whether some rows of a file are exact.
pub(crate) fn has_rows(file: &FileProbe) -> bool {
    matches!(file, FileProbe::Known { certain, .. } if !certain.is_empty())
}
