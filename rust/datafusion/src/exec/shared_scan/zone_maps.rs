//! What zone maps of a file say of a predicate, where others want some of the same rows.
//!
//! A reader goes by them when it opens the file. The scan of a pass has no predicate, and rows that no query needs would count as wanted.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::datasource::physical_plan::parquet::{
    PagePruningAccessPlanFilter, ParquetAccessPlan, RowGroupAccessPlanFilter,
};
use datafusion::datasource::physical_plan::{FileSource, ParquetFileMetrics, ParquetSource};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;

/// The predicate of a scan, as zone maps answer it.
pub(super) struct ZoneMaps {
    row_groups: PruningPredicate,
    pages: PagePruningAccessPlanFilter,
    /// The columns of the predicate that are in files.
    columns: Vec<(String, DataType)>,
}

/// The same, once somebody asks.
pub(super) type LazyZoneMaps = LazyLock<Option<ZoneMaps>, Box<dyn FnOnce() -> Option<ZoneMaps> + Send>>;

impl ZoneMaps {
    /// The predicate of a scan as it is when somebody asks, which may know more of it than now.
    pub(super) fn lazily(source: &ParquetSource) -> Arc<LazyZoneMaps> {
        let source = source.clone();
        let find: Box<dyn FnOnce() -> Option<Self> + Send> = Box::new(move || Self::of(&source));
        Arc::new(LazyLock::new(find))
    }

    /// The predicate of a scan as it is now; none if it has none that zone maps answer.
    fn of(source: &ParquetSource) -> Option<Self> {
        let options = &source.table_parquet_options().global;
        let predicate: Arc<dyn PhysicalExpr> = source.filter().filter(|_| options.pruning)?;
        let schema = source.table_schema();
        let all: &SchemaRef = schema.schema_without_virtual_columns();
        let row_groups = PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(all))
            .with_max_in_list_size(source.max_in_list_size())
            .try_build(Arc::clone(&predicate))
            .ok()?;
        let pages = PagePruningAccessPlanFilter::new(&predicate, Arc::clone(all));
        let columns = collect_columns(&predicate).into_iter().filter_map(|column| {
            let field = schema.file_schema().field_with_name(column.name()).ok()?;
            Some((field.name().clone(), field.data_type().clone()))
        });
        Some(Self { row_groups, pages, columns: columns.collect() })
    }

    /// What is left of a plan for a file with this footer.
    pub(super) fn pruned(&self, plan: ParquetAccessPlan, footer: &ParquetMetaData, name: &str) -> ParquetAccessPlan {
        let file = footer.file_metadata();
        let Ok(columns) = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()) else { return plan };
        if plan.len() != footer.num_row_groups() || !self.columns.iter().all(|column| has_same(&columns, column)) {
            return plan;
        }
        let metrics = ParquetFileMetrics::new(0, name, &ExecutionPlanMetricsSet::new());
        let mut filter = RowGroupAccessPlanFilter::new(plan);
        let (parquet, row_groups) = (file.schema_descr(), footer.row_groups());
        filter.prune_by_statistics(&columns, parquet, row_groups, &self.row_groups, &metrics);
        self.pages.prune_plan_with_page_index(filter.build(), &columns, parquet, footer, &metrics)
    }
}

/// Whether a file has a column of the table's type. Of others the reader knows how their bounds compare.
fn has_same(file: &Schema, (name, data_type): &(String, DataType)) -> bool {
    let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let of_file = file.field_with_name(name).map(|field| field.data_type());
    of_file.is_ok_and(|of_file| of_file == data_type || is_text(of_file) && is_text(data_type))
}
