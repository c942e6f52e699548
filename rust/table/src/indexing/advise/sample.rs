//! Reading a sample of a column: whole row groups, spread evenly over the data files.

use std::collections::HashMap;
use std::sync::Arc;

use lakemark_format::column;
use lakemark_index::bitmap::cost::{BinSample, ColumnSample, ColumnShape};
use lakemark_index::{Precision, key_type_of};

use crate::error::{Error, Result};
use crate::files::columns::{SampledChunk, column_bytes, page_rows, read_sample};
use crate::files::footer::Footer;
use crate::indexing::build::group::cut;
use crate::snapshot::{BaseTable, Snapshot, SummaryOfFile, read_shapes};

/// Rows of a sample, about. A table of fewer rows is read as a whole.
const SAMPLE_ROWS: u64 = 1 << 20;
/// The most row groups of a sample: each is a read.
const SAMPLE_PARTS: u64 = 16;
/// The most segments that are predicted one by one.
const SEGMENTS: usize = 16;

/// Rows of a page, as Parquet writers cut them by default.
const PAGE_ROWS: f64 = 20_000.0;

/// Which parts of a table are read for a sample.
pub(crate) struct Sampler<'a> {
    snapshot: &'a Snapshot,
    /// Rows of each data file.
    file_rows: Vec<u64>,
    row_groups: u64,
    parts: Vec<SampledRowGroup>,
    /// Pieces of the table that the parts are; 1 if they are the whole table.
    pieces: usize,
    /// The footers of files that have parts.
    footers: HashMap<usize, Arc<Footer>>,
}

struct SampledRowGroup {
    file: usize,
    row_group: usize,
    rows: u64,
}

/// A column, measured.
#[derive(Clone)]
pub(crate) struct SampledColumn {
    pub sample: ColumnSample,
    bins: Option<BinSample>,
}

/// The shapes of an index's segments, or of some that stand for all.
pub(crate) struct SampledSegments {
    pub shapes: Vec<ColumnShape>,
    /// How many segments each shape stands for.
    pub each: f64,
}

impl SampledSegments {
    /// The bytes of all segments, from those of the shapes.
    pub(crate) fn scaled(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.each).round() as u64
    }

    /// How many segments there are.
    pub(crate) fn count(&self) -> usize {
        (self.shapes.len() as f64 * self.each).round() as usize
    }

    /// Distinct values of a segment, the largest number.
    pub(crate) fn values(&self) -> f64 {
        self.shapes.iter().map(ColumnShape::values).fold(0.0, f64::max)
    }
}

impl<'a> Sampler<'a> {
    /// Plans the sample, and reads the footers of its files.
    pub(crate) async fn new(table: &BaseTable, snapshot: &'a Snapshot) -> Result<Self> {
        let files = snapshot.files();
        let mut groups: Vec<Option<Vec<u32>>> = files.iter().map(|file| file.row_groups.clone()).collect();
        let unknown = (0..).zip(&groups).filter(|(_, groups)| groups.is_none()).map(|(file, _)| file).collect();
        for SummaryOfFile { file, summary } in read_shapes(table, files, unknown).await? {
            if let Some(slot) = groups.get_mut(file) {
                *slot = Some(summary.row_groups);
            }
        }
        let groups: Vec<Vec<u32>> = groups.into_iter().map(Option::unwrap_or_default).collect();
        let file_rows = groups.iter().map(|groups| groups.iter().copied().map(u64::from).sum()).collect();
        let row_groups = groups.iter().map(|groups| groups.len() as u64).sum();
        let ChosenParts { parts, pieces } = choose_parts(&groups);
        let mut footers = HashMap::new();
        for part in &parts {
            if footers.contains_key(&part.file) {
                continue;
            }
            let Some(file) = files.get(part.file) else { continue };
            let footer = Footer::read(snapshot.object_store().as_ref(), &file.meta, &file.path).await?;
            footers.insert(part.file, Arc::new(footer));
        }
        Ok(Self { snapshot, file_rows, row_groups, parts, pieces, footers })
    }

    /// Rows of the table.
    pub(crate) fn rows(&self) -> u64 {
        self.file_rows.iter().sum()
    }

    /// Row groups of the table.
    pub(crate) fn row_groups(&self) -> u64 {
        self.row_groups
    }

    /// Rows of the sample.
    pub(crate) fn sampled_rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Bytes of a column in all data files, estimated from the files of the sample.
    pub(crate) fn parquet_bytes(&self, stored: &str) -> u64 {
        let (mut bytes, mut rows) = (0, 0);
        for (file, footer) in &self.footers {
            bytes += column_bytes(footer, stored);
            rows += self.file_rows.get(*file).copied().unwrap_or_default();
        }
        if rows == 0 { 0 } else { (bytes as f64 * self.rows() as f64 / rows as f64) as u64 }
    }

    /// Rows of a data page of a column.
    pub(crate) fn page_rows(&self, stored: &str) -> f64 {
        let footer = self.parts.first().and_then(|part| self.footers.get(&part.file));
        footer.and_then(|footer| page_rows(footer, stored)).unwrap_or(PAGE_ROWS)
    }

    /// Rows of the segments that an index of the table would have.
    pub(crate) fn segment_rows(&self, files_per_segment: usize) -> Result<Vec<u64>> {
        let rows_of = |file: usize| self.file_rows.get(file).copied().unwrap_or_default();
        let files: Vec<usize> = (0..self.file_rows.len()).collect();
        let groups = cut(self.snapshot, &files, files_per_segment, &rows_of)?;
        Ok(groups.iter().map(|files| files.iter().map(|file| rows_of(*file)).sum()).collect())
    }

    /// Reads and measures a column or field, named as it is in the files.
    pub(crate) async fn column(&self, stored: &str) -> Result<SampledColumn> {
        self.binned_column(stored, None).await
    }

    /// The same, and its bins of a precision.
    pub(crate) async fn binned_column(&self, stored: &str, precision: Option<Precision>) -> Result<SampledColumn> {
        let field = self.snapshot.physical_field(stored);
        let field = field.ok_or_else(|| Error::internal(format!("the column {} is gone", column::display(stored))))?;
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let (Some(file), Some(footer)) = (self.snapshot.files().get(part.file), self.footers.get(&part.file))
            else {
                continue;
            };
            let rows = usize::try_from(part.rows).unwrap_or(usize::MAX);
            let footer = Arc::clone(footer);
            parts.push(SampledChunk { meta: &file.meta, name: &file.path, footer, row_group: part.row_group, rows });
        }
        let chunk = read_sample(self.snapshot.object_store().as_ref(), &parts, &field).await?;
        let pieces = self.pieces;
        let key_type = key_type_of(field.data_type());
        let measured = tokio::task::spawn_blocking(move || {
            let cut = precision.zip(key_type);
            // A precision that the column cannot have is refused when the index is declared.
            let bins = cut.and_then(|(precision, key_type)| BinSample::new(&chunk, precision, key_type).ok());
            SampledColumn { sample: ColumnSample::new(&chunk, pieces), bins }
        });
        measured.await.map_err(|error| Error::task(&error))
    }
}

impl SampledColumn {
    /// Bytes of segments of so many rows with bins of the precision, if one was given.
    pub(crate) fn binned_bytes(&self, rows: &[u64]) -> Option<u64> {
        let bins = self.bins.as_ref()?;
        if rows.len() <= SEGMENTS {
            return Some(rows.iter().map(|rows| bins.bytes(*rows)).sum());
        }
        let count = rows.len() as u64;
        Some(bins.bytes(rows.iter().sum::<u64>() / count) * count)
    }

    /// The shapes of segments of so many rows.
    pub(crate) fn segments(&self, rows: &[u64]) -> SampledSegments {
        if rows.len() <= SEGMENTS {
            return SampledSegments { shapes: rows.iter().map(|rows| self.sample.shape(*rows)).collect(), each: 1.0 };
        }
        let mean = rows.iter().sum::<u64>() / rows.len() as u64;
        let shape = self.sample.shape(mean);
        SampledSegments { shapes: vec![shape], each: rows.len() as f64 }
    }
}

/// What is read of a table for a sample.
struct ChosenParts {
    parts: Vec<SampledRowGroup>,
    /// Pieces of the table that the parts are; 1 if they are the whole table.
    pieces: usize,
}

/// All row groups if they are small enough, else some at even distances.
fn choose_parts(groups: &[Vec<u32>]) -> ChosenParts {
    let all: Vec<SampledRowGroup> = groups
        .iter()
        .enumerate()
        .flat_map(|(file, groups)| {
            let parts = groups.iter().enumerate();
            parts.map(move |(row_group, rows)| SampledRowGroup { file, row_group, rows: u64::from(*rows) })
        })
        .filter(|part| part.rows > 0)
        .collect();
    let total: u64 = all.iter().map(|part| part.rows).sum();
    if total <= SAMPLE_ROWS {
        return ChosenParts { parts: all, pieces: 1 };
    }
    let largest = all.iter().map(|part| part.rows).max().unwrap_or(1);
    let wanted = (SAMPLE_ROWS / largest).clamp(2, SAMPLE_PARTS);
    let (mut parts, mut before, mut next) = (Vec::new(), 0, 0);
    for part in all {
        let end = before + part.rows;
        // The places in the sample are the middles of `wanted` even stretches.
        let mut hit = false;
        while next < wanted && (2 * next + 1) * total / (2 * wanted) < end {
            hit = true;
            next += 1;
        }
        if hit {
            parts.push(SampledRowGroup { rows: part.rows.min(SAMPLE_ROWS / 2), ..part });
        }
        before = end;
    }
    let pieces = parts.len().max(1);
    ChosenParts { parts, pieces }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(groups: &[Vec<u32>]) -> (Vec<(usize, usize, u64)>, usize) {
        let ChosenParts { parts, pieces } = choose_parts(groups);
        (parts.into_iter().map(|part| (part.file, part.row_group, part.rows)).collect(), pieces)
    }

    #[test]
    fn small_tables_are_read_whole_and_large_ones_at_even_distances() {
        assert_eq!(chosen(&[vec![100, 0, 50], vec![], vec![7]]), (vec![(0, 0, 100), (0, 2, 50), (2, 0, 7)], 1));
        assert_eq!(chosen(&[]), (vec![], 1));
        let files: Vec<Vec<u32>> = vec![vec![131_072; 10]; 4];
        let (parts, pieces) = chosen(&files);
        assert_eq!((parts.len(), pieces), (8, 8));
        assert_eq!(parts.iter().map(|part| part.0).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2, 3, 3]);
        // One huge row group is not read to its end.
        assert_eq!(chosen(&[vec![50_000_000]]), (vec![(0, 0, 1 << 19)], 1));
    }
}
