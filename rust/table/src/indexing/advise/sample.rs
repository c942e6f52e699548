//! Reading a sample of a column: whole row groups, spread evenly over the data files.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::column;
use lakemark_index::bitmap::cost::{BinSample, ColumnSample, ColumnShape, riding_row_bytes};
use lakemark_index::{Precision, key_type_of, riding_type_of};
use object_store::ObjectStore;

use crate::error::{Error, Result};
use crate::files::columns::{IndexedFields, SampledChunk, column_bytes, page_rows, read_sample};
use crate::files::footer::Footer;
use crate::indexing::build::group::cut;
use crate::snapshot::{BaseTable, DataFile, Snapshot, SummaryOfFile, read_shapes};
use crate::values::fields::key_type_of_field;

/// The most rows of a sample.
const SAMPLE_ROWS: u64 = 1 << 20;
/// The most row groups of a sample. Each is a read, and another one of its file's footer.
const SAMPLE_PARTS: u64 = 256;
/// Footers that are read at a time.
const CONCURRENT_READS: usize = 32;
/// The most segments that are predicted one by one.
const SEGMENTS: usize = 16;
/// The most rows that columns are measured on which ride along with a key.
const RIDING_ROWS: usize = 1 << 17;

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
        let unknown = files.iter().enumerate().filter(|(_, file)| file.row_groups.is_none());
        let unknown = unknown.map(|(place, _)| place).collect();
        let shapes = read_shapes(table, files, unknown).await?.into_iter();
        let read: HashMap<usize, Vec<u32>> =
            shapes.map(|SummaryOfFile { file, summary }| (file, summary.row_groups)).collect();
        let groups = files.iter().enumerate().map(|(place, file)| {
            let groups = file.row_groups.as_ref().or_else(|| read.get(&place));
            groups.map(Vec::as_slice).unwrap_or_default()
        });
        let file_rows = groups.clone().map(|groups| groups.iter().copied().map(u64::from).sum()).collect();
        let row_groups = groups.clone().map(|groups| groups.len() as u64).sum();
        let ChosenParts { parts, pieces } = choose_parts(groups);
        let footers = read_footers(snapshot, &parts).await?;
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
        let groups = cut(self.snapshot, 0..self.file_rows.len(), files_per_segment, &rows_of)?;
        let rows = |files: Range<usize>| self.file_rows.get(files).unwrap_or_default().iter().sum::<u64>();
        Ok(groups.into_iter().map(rows).collect())
    }

    /// Reads and measures a column or field, named as it is in the files.
    pub(crate) async fn column(&self, stored: &str) -> Result<SampledColumn> {
        self.binned_column(stored, None).await
    }

    /// The same, and its bins of a precision.
    pub(crate) async fn binned_column(&self, stored: &str, precision: Option<Precision>) -> Result<SampledColumn> {
        let field = self.field(stored)?;
        let fields = IndexedFields { key: Arc::clone(&field), riding: Vec::new(), hash_bits: None };
        let chunk = read_sample(self.snapshot.object_store().as_ref(), &self.chunks(usize::MAX), &fields).await?;
        let pieces = self.pieces;
        let (key_type, of_leaves) = (key_type_of(field.data_type()), key_type_of_field(&field));
        let measured = tokio::task::spawn_blocking(move || {
            let cut = precision.zip(key_type);
            // A precision that the column cannot have is refused when the index is declared.
            let bins = cut.and_then(|(precision, key_type)| BinSample::new(&chunk, precision, key_type).ok());
            let sample = ColumnSample::new(&chunk, pieces);
            let sample = match of_leaves {
                Some(key_type) => sample.with_leaves(&chunk, &key_type),
                None => sample,
            };
            SampledColumn { sample, bins }
        });
        measured.await.map_err(|error| Error::task(&error))
    }

    /// Bytes of a row that columns take which ride along with the keys of another one, all named as they are in the files.
    pub(crate) async fn riding_row_bytes(&self, stored: &str, riding: &[String]) -> Result<f64> {
        let riding = riding.iter().map(|column| self.field(column)).collect::<Result<Vec<_>>>()?;
        let fields = IndexedFields { key: self.field(stored)?, riding, hash_bits: None };
        let most = RIDING_ROWS.div_ceil(self.parts.len().max(1));
        let chunk = read_sample(self.snapshot.object_store().as_ref(), &self.chunks(most), &fields).await?;
        let measured = tokio::task::spawn_blocking(move || {
            let types = fields.riding.iter().filter_map(|field| riding_type_of(field.data_type())).collect::<Vec<_>>();
            let key_type = key_type_of(fields.key.data_type());
            key_type.map_or(Ok(0.0), |key_type| riding_row_bytes(&chunk, &key_type, &types))
        });
        let measured = measured.await.map_err(|error| Error::task(&error))?;
        measured.map_err(|error| Error::internal("what rides along cannot be measured").with_source(error))
    }

    /// A column, typed as the table types it, under the name that it has in the files.
    fn field(&self, stored: &str) -> Result<FieldRef> {
        let field = self.snapshot.physical_field(stored);
        field.ok_or_else(|| Error::internal(format!("the column {} is gone", column::display(stored))))
    }

    /// The parts of the sample, of each the first rows.
    fn chunks(&self, most: usize) -> Vec<SampledChunk<'_>> {
        let chunk = |part: &SampledRowGroup| {
            let (file, footer) = (self.snapshot.files().get(part.file)?, self.footers.get(&part.file)?);
            let rows = usize::try_from(part.rows).unwrap_or(usize::MAX).min(most);
            let footer = Arc::clone(footer);
            Some(SampledChunk { meta: &file.meta, name: &file.path, footer, row_group: part.row_group, rows })
        };
        self.parts.iter().filter_map(chunk).collect()
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

/// The footers of the files that the parts are in, some read at a time.
async fn read_footers(snapshot: &Snapshot, parts: &[SampledRowGroup]) -> Result<HashMap<usize, Arc<Footer>>> {
    let store = snapshot.object_store();
    let mut places: Vec<usize> = parts.iter().map(|part| part.file).collect();
    // The parts are in the order of the files.
    places.dedup();
    let files = places.into_iter().filter_map(|place| Some((place, snapshot.files().get(place)?)));
    // Collected first, so that the futures do not borrow the iterator.
    let reads: Vec<_> = files.map(|(place, file)| read_footer(store.as_ref(), place, file)).collect();
    stream::iter(reads).buffered(CONCURRENT_READS).try_collect().await
}

async fn read_footer(store: &dyn ObjectStore, place: usize, file: &DataFile) -> Result<(usize, Arc<Footer>)> {
    Ok((place, Arc::new(Footer::read(store, &file.meta, &file.path).await?)))
}

/// What is read of a table for a sample.
struct ChosenParts {
    parts: Vec<SampledRowGroup>,
    /// Pieces of the table that the parts are; 1 if they are the whole table.
    pieces: usize,
}

/// All row groups of the files if they are few and small enough, else some at even distances.
fn choose_parts<'a>(files: impl Iterator<Item = &'a [u32]> + Clone) -> ChosenParts {
    let in_file = |(file, groups): (usize, &'a [u32])| {
        let groups = groups.iter().enumerate();
        groups.map(move |(row_group, rows)| SampledRowGroup { file, row_group, rows: u64::from(*rows) })
    };
    let row_groups = files.enumerate().flat_map(in_file).filter(|part| part.rows > 0);
    let (mut count, mut total, mut squares) = (0, 0, 0);
    for part in row_groups.clone() {
        count += 1;
        total += part.rows;
        squares += u128::from(part.rows).pow(2);
    }
    if count <= SAMPLE_PARTS && total <= SAMPLE_ROWS {
        return ChosenParts { parts: row_groups.collect(), pieces: 1 };
    }
    // Rows of the row group that any row is in, on average. One large row group among many tiny ones counts by its rows.
    let typical = u64::try_from(squares / u128::from(total.max(1))).unwrap_or(u64::MAX).max(1);
    let wanted = (SAMPLE_ROWS / typical).clamp(2, SAMPLE_PARTS);
    let (mut parts, mut before, mut next) = (Vec::new(), 0, 0);
    for part in row_groups {
        let end = before + part.rows;
        // The places in the sample are the middles of `wanted` even stretches.
        let mut hit = false;
        while next < wanted && (2 * next + 1) * total / (2 * wanted) < end {
            hit = true;
            next += 1;
        }
        if hit {
            parts.push(SampledRowGroup { rows: part.rows.min(SAMPLE_ROWS / wanted), ..part });
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
        let ChosenParts { parts, pieces } = choose_parts(groups.iter().map(Vec::as_slice));
        (parts.into_iter().map(|part| (part.file, part.row_group, part.rows)).collect(), pieces)
    }

    fn rows(parts: &[(usize, usize, u64)]) -> u64 {
        parts.iter().map(|part| part.2).sum()
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

    #[test]
    fn of_many_small_row_groups_no_more_are_read_than_a_sample_may_have() {
        // As many as are read whole.
        let (parts, pieces) = chosen(&vec![vec![1]; 256]);
        assert_eq!((parts.len(), pieces), (256, 1));
        for (groups, files) in [(1, 257), (1, 50_000), (300, 2), (3, 40_000)] {
            let (parts, pieces) = chosen(&vec![vec![1; groups]; files]);
            assert_eq!((parts.len(), pieces), (256, 256), "{groups} in each of {files} files");
            let places: Vec<usize> = parts.iter().map(|(file, row_group, _)| file * groups + row_group).collect();
            let distances: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let even = groups * files / 256;
            assert!(distances.iter().all(|distance| (even..=even + 1).contains(distance)), "{distances:?}");
        }
        // More than a million rows: as many row groups as have the rows of a sample.
        let (parts, pieces) = chosen(&vec![vec![10_000]; 5_000]);
        assert_eq!((parts.len(), pieces, rows(&parts)), (104, 104, 1_040_000));
        let (parts, _) = chosen(&vec![vec![2_000]; 5_000]);
        assert_eq!((parts.len(), rows(&parts)), (256, 512_000));
    }

    #[test]
    fn a_large_row_group_does_not_hide_many_tiny_ones_nor_they_it() {
        // A tenth of the rows is in one row group: the others are sampled, too.
        let mut files = vec![vec![100]; 90_000];
        files.insert(0, vec![1_000_000]);
        let (parts, pieces) = chosen(&files);
        assert_eq!((parts.len(), pieces), (10, 10));
        assert_eq!(parts[0], (0, 0, SAMPLE_ROWS / 10));
        assert!(parts[1..].iter().all(|part| part.2 == 100));
        // Nearly all rows are in one row group.
        let mut files = vec![vec![1]; 1_000];
        files.push(vec![500_000]);
        assert_eq!(chosen(&files), (vec![(1_000, 0, 500_000)], 1));
    }
}
