//! What a scan reads of each row group, and which columns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource, ParquetSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::expressions::{Column, DynamicFilterTracking};
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_expr::utils::collect_columns;
use futures::{StreamExt, stream};
use lakemark_table::ColumnReadCost;
use object_store::ObjectMeta;
use object_store::path::Path;
use parquet::file::metadata::ParquetMetaData;
use tokio::runtime::Handle;

use super::file_rows::{FilePlan, FileRows};
use super::zone_maps::ZoneMaps;
use crate::read::access::Pages;
use crate::read::planning_cache::FilePlace;
use crate::read::reader::{CONCURRENT_FOOTERS, Footers};
use crate::share::key::Principal;
use crate::share::passes::unit::{UnitFile, UnitKey, UnitReading};
use crate::share::piece_rows::PlannedRows;
use crate::share::prediction::{ColumnCosts, Piece};

/// A scan of more files is read as it was planned: their footers are not all read before the first row.
const MOST_FILES: usize = 1_024;
/// A scan keeps so many bytes of footers that the session does not remember: each turn opens a file again, and each pass does.
const MOST_FOOTER_BYTES: usize = 64 << 20;
/// To number a row.
const ROW_NUMBER: ColumnReadCost = ColumnReadCost { count: 1.0, decode: 1.0 };

/// What a scan reads.
pub(super) struct ScanPieces {
    pub(super) files: Vec<SharedFile>,
    /// In the order of the files' names, which is the same for all scans.
    pub(super) pieces: Vec<(UnitKey, Piece)>,
    pub(super) columns: ScanColumns,
    /// Footers of the files, as far as these are not to be read again.
    pub(super) footers: Footers,
}

/// A file that is read.
pub(super) struct SharedFile {
    pub(super) unit: Arc<UnitFile>,
    /// As it was planned, without what is read of it.
    pub(super) file: PartitionedFile,
    pub(super) rows: Arc<FileRows>,
}

/// A column of a scan's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputColumn {
    /// One that is read: its place among those that are.
    Read(usize),
    /// The value of a partition column, by its place among these.
    Constant(usize),
}

/// The columns of a scan.
pub(super) struct ScanColumns {
    pub(super) output: Vec<OutputColumn>,
    /// Those that are read, by their places in files. The number of a row is behind all of them.
    pub(super) read: ColumnCosts,
}

/// A file as a scan planned it.
struct PlannedFile {
    file: PartitionedFile,
    /// What each partition reads of it; none for all.
    accesses: Vec<Option<ParquetAccessPlan>>,
}

impl ScanPieces {
    /// What a scan reads; none if that cannot be said before its files are opened. Nobody looks at rows and pages for it.
    pub(super) async fn of(
        config: &FileScanConfig,
        source: &ParquetSource,
        footers: &Footers,
        context: &Arc<TaskContext>,
    ) -> Option<Self> {
        let planned = planned_files(config)?;
        let columns = ScanColumns::of(source)?;
        let reading = Arc::new(UnitReading {
            runtime: context.runtime_env(),
            principal: context.session_config().get_extension::<Principal>(),
            driver: Handle::try_current().ok()?,
            store: Arc::clone(footers.store()),
            columns: Arc::clone(source.table_schema().file_schema()),
            options: source.table_parquet_options().clone(),
            batch_rows: config.batch_size.unwrap_or_else(|| context.session_config().batch_size()),
        });
        let KnownFiles { files: known, footers } = KnownFiles::of(&planned, footers).await?;
        let (zone_maps, read) = (ZoneMaps::lazily(source), Arc::new(columns.read.clone()));
        let later = LaterPruning::of(source);
        let (mut files, mut pieces) = (Vec::with_capacity(planned.len()), Vec::new());
        for (PlannedFile { file, accesses }, known) in planned.into_iter().zip(known) {
            let (meta, is_open) = (file.object_meta.clone(), !later.may_prune(&known));
            let KnownFile { lengths, is_divisible, .. } = known;
            let all = || ParquetAccessPlan::new_all(lengths.len());
            let accesses = accesses.into_iter().map(|access| access.unwrap_or_else(all)).collect();
            let plan = FilePlan { meta: meta.clone(), accesses, lengths };
            let rows = Arc::new(FileRows::of(plan, &footers, &zone_maps)?);
            let unit = Arc::new(UnitFile::new(Arc::clone(&reading), footers.key_of(&meta), meta));
            for (row_group, most) in rows.planned() {
                let of_file = Arc::clone(&rows);
                let planned = PlannedRows::new(most, move || of_file.needed(row_group)).in_runs(rows.runs(row_group));
                let planned = planned.among(rows.length(row_group));
                let piece = Piece::planned(planned, Arc::clone(&read)).divisible(is_divisible).open(is_open);
                pieces.push((UnitKey { file: Arc::clone(&unit), row_group }, piece));
            }
            files.push(SharedFile { unit, file, rows });
        }
        Some(Self { files, pieces, columns, footers })
    }
}

/// What a reader may leave out that has the predicate of a scan, when zone maps were asked already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaterPruning {
    /// The predicate may say more while the query runs, such as the least value so far, or with the values of partition columns.
    says_more: bool,
    asks_bloom_filters: bool,
}

impl LaterPruning {
    fn of(source: &ParquetSource) -> Self {
        let Some(filter) = source.filter() else { return Self { says_more: false, asks_bloom_filters: false } };
        let constants = source.table_schema().table_partition_cols();
        let says_more = split_conjunction(&filter).into_iter().any(|part| {
            let columns = collect_columns(part);
            let is_constant = |column: &&Column| constants.iter().any(|constant| constant.name() == column.name());
            let asked = columns.iter().filter(is_constant).count();
            match DynamicFilterTracking::classify(part) {
                // What asks partition columns alone left out files before.
                DynamicFilterTracking::Static => asked > 0 && asked < columns.len(),
                DynamicFilterTracking::AllComplete => asked > 0,
                DynamicFilterTracking::Watching(_) => true,
            }
        });
        Self { says_more, asks_bloom_filters: source.table_parquet_options().global.bloom_filter_on_read }
    }

    /// Whether it may leave out rows of a file.
    fn may_prune(self, file: &KnownFile) -> bool {
        self.says_more || self.asks_bloom_filters && file.has_bloom_filters
    }
}

impl ScanColumns {
    /// None if the scan computes something.
    fn of(source: &ParquetSource) -> Option<Self> {
        let schema: &TableSchema = source.table_schema();
        let columns = source.projection()?.iter().map(|given| Some(given.expr.downcast_ref::<Column>()?.index()));
        let columns = columns.collect::<Option<Vec<usize>>>()?;
        let (of_files, partitions) = (schema.file_schema().fields().len(), schema.table_partition_cols().len());
        let place = |column: usize| match column {
            column if column < of_files => Ok(column),
            column if column < of_files + partitions => Err(column - of_files),
            column => Ok(column - partitions),
        };
        let read: BTreeSet<usize> = columns.iter().filter_map(|&column| place(column).ok()).collect();
        let output = columns.iter().map(|&column| match place(column) {
            Ok(place) => read.iter().position(|read| *read == place).map(OutputColumn::Read),
            Err(partition) => Some(OutputColumn::Constant(partition)),
        });
        let output = output.collect::<Option<Vec<_>>>()?;
        let cost = |place: usize| match schema.file_schema().fields().get(place) {
            Some(field) => ColumnReadCost::of(field.data_type()),
            None => ROW_NUMBER,
        };
        Some(Self { output, read: read.into_iter().map(|place| (place, cost(place))).collect() })
    }
}

/// The files of a scan, each once and in the order of their names. None if they are many, or if one file is at two places of the table.
fn planned_files(config: &FileScanConfig) -> Option<Vec<PlannedFile>> {
    let mut found: HashMap<Path, PlannedFile> = HashMap::new();
    for file in config.file_groups.iter().flat_map(|group| group.files()) {
        let place = |file: &PartitionedFile| file.extension::<FilePlace>().map(|FilePlace(place)| *place);
        let access = file.extension::<ParquetAccessPlan>().cloned();
        match found.get_mut(&file.object_meta.location) {
            Some(known) if place(&known.file) == place(file) => known.accesses.push(access),
            Some(_) => return None,
            None => {
                if found.len() == MOST_FILES {
                    return None;
                }
                let whole = PartitionedFile { range: None, ..file.clone() };
                let planned = PlannedFile { file: whole, accesses: vec![access] };
                found.insert(file.object_meta.location.clone(), planned);
            }
        }
    }
    let mut files: Vec<PlannedFile> = found.into_values().collect();
    files.sort_by(|one, other| one.file.object_meta.location.cmp(&other.file.object_meta.location));
    Some(files)
}

/// What footers say of files before somebody looks at rows.
struct KnownFiles {
    /// In the order of the files.
    files: Vec<KnownFile>,
    footers: Footers,
}

struct KnownFile {
    /// Rows of each row group.
    lengths: Vec<u32>,
    /// Whether a part of a row group can be read without what lies before it.
    is_divisible: bool,
    has_bloom_filters: bool,
}

impl KnownFile {
    /// None if a row group has more rows than are counted.
    fn of(footer: &ParquetMetaData) -> Option<Self> {
        let lengths = footer.row_groups().iter().map(|group| u32::try_from(group.num_rows()).ok());
        let mut columns = footer.row_groups().iter().flat_map(|group| group.columns());
        let has_bloom_filters = columns.any(|column| column.bloom_filter_offset().is_some());
        let is_divisible = Pages::of(footer) == Pages::Indexed;
        Some(Self { lengths: lengths.collect::<Option<_>>()?, is_divisible, has_bloom_filters })
    }
}

impl KnownFiles {
    /// None if a footer cannot be read.
    async fn of(files: &[PlannedFile], footers: &Footers) -> Option<Self> {
        let metas: Vec<ObjectMeta> = files.iter().map(|planned| planned.file.object_meta.clone()).collect();
        let fetches = metas.into_iter().map(|meta| {
            let footers = footers.clone();
            async move { (footers.fetch(&meta).await, footers.remembered(&meta).is_some(), meta.location) }
        });
        let mut fetches = stream::iter(fetches).buffered(CONCURRENT_FOOTERS);
        let (mut known, mut read, mut read_bytes) = (Vec::with_capacity(files.len()), HashMap::new(), 0);
        while let Some((footer, is_remembered, name)) = fetches.next().await {
            let footer = footer.ok()?;
            known.push(KnownFile::of(&footer)?);
            if is_remembered {
                continue;
            }
            let bytes = footer.memory_size();
            if read_bytes + bytes <= MOST_FOOTER_BYTES {
                read_bytes += bytes;
                read.insert(name, footer);
            }
        }
        Some(Self { files: known, footers: footers.with_read(read) })
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::physical_plan::parquet::RowGroupAccess;
    use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, binary, col, lit};

    use super::*;

    /// A scan of these files by partitions.
    fn config(groups: Vec<Vec<PartitionedFile>>) -> FileScanConfig {
        let source = Arc::new(ParquetSource::new(TableSchema::from(Arc::new(Schema::empty()))));
        FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_groups(groups.into_iter().map(FileGroup::new).collect())
            .build()
    }

    #[test]
    fn filters_that_change_and_bloom_filters_leave_out_more_than_zone_maps() {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, true)]));
        let source = ParquetSource::new(TableSchema::from(Arc::clone(&schema)));
        let file = |has_bloom_filters| KnownFile { lengths: vec![1], is_divisible: false, has_bloom_filters };
        let may_prune =
            |source: &ParquetSource| [false, true].map(|has| LaterPruning::of(source).may_prune(&file(has)));
        assert_eq!(may_prune(&source), [false, false]);
        assert_eq!(may_prune(&source.clone().with_predicate(lit(true))), [false, true]);
        let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![col("k", &schema).unwrap()], lit(true)));
        let filtered = source.with_predicate(Arc::clone(&dynamic) as _);
        assert_eq!(may_prune(&filtered), [true, true]);
        dynamic.mark_complete();
        assert_eq!(may_prune(&filtered), [false, true]);
    }

    #[test]
    fn values_of_partition_columns_leave_out_more_than_zone_maps() {
        let [k, day] = ["k", "day"].map(|name| Arc::new(Field::new(name, DataType::Boolean, true)));
        let of_files = Arc::new(Schema::new(vec![Arc::clone(&k)]));
        let source = ParquetSource::new(
            TableSchema::builder(of_files).with_table_partition_cols(vec![Arc::clone(&day)]).build(),
        );
        let schema = Schema::new(vec![k, day]);
        let [k, day] = ["k", "day"].map(|name| col(name, &schema).unwrap());
        let both = |operator| binary(Arc::clone(&k), operator, Arc::clone(&day), &schema).unwrap();
        let says_more = |filter| LaterPruning::of(&source.with_predicate(filter)).says_more;
        assert!(!says_more(both(Operator::And)) && says_more(both(Operator::Or)));
        for (column, is_more) in [(&k, false), (&day, true)] {
            let dynamic = DynamicFilterPhysicalExpr::new(vec![Arc::clone(column)], lit(true));
            dynamic.mark_complete();
            assert_eq!(says_more(Arc::new(dynamic)), is_more);
        }
    }

    #[test]
    fn a_file_that_partitions_share_is_one_and_its_ranges_are_all_of_it() {
        let file = |name: &str, place: usize| PartitionedFile::new(name, 100).with_extension(FilePlace(place));
        let part = |rows: Vec<RowGroupAccess>| file("b", 1).with_extension(ParquetAccessPlan::new(rows));
        let (scan, skip) = (RowGroupAccess::Scan, RowGroupAccess::Skip);
        let one = part(vec![scan.clone(), skip.clone()]);
        let other = part(vec![skip, scan]);
        let found = planned_files(&config(vec![vec![one, file("a", 0)], vec![other]])).unwrap();
        let accesses: Vec<usize> = found.iter().map(|planned| planned.accesses.len()).collect();
        assert_eq!((found[0].file.object_meta.location.as_ref(), accesses), ("a", vec![1, 2]));
        assert!(planned_files(&config(vec![vec![file("a", 0)], vec![file("a", 1)]])).is_none());
    }
}
