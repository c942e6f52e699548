//! What a scan tells of the passes that it took part in, for `EXPLAIN ANALYZE`.

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};

use crate::share::role::{Role, RoleMetric};

/// Counters of a scan, which its partitions share.
#[derive(Clone, Debug)]
pub(crate) struct PassMetrics {
    role: RoleMetric,
    /// Pages that it took and that another scan took as well.
    pub(crate) pages_shared: Count,
    /// Rows that it decoded and did not take.
    pub(crate) for_others: Count,
    /// Rows that went by while it was elsewhere.
    pub(crate) missed: Count,
    /// How often it fell behind, and read the rest of a piece alone.
    pub(crate) detached: Count,
    /// What chains of star joins did for it; none if it shares none.
    pub(crate) stars: Option<StarMetrics>,
}

/// What chains of star joins did for a scan.
#[derive(Clone, Debug)]
pub(crate) struct StarMetrics {
    /// Pages of which it took what a chain left.
    pub(crate) pages: Count,
    /// Rows of these that it wanted and no join above would have kept.
    pub(crate) left_out: Count,
}

impl PassMetrics {
    pub(crate) fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let count = |name: &'static str| MetricBuilder::new(metrics).global_counter(name);
        let role = RoleMetric::of(metrics);
        role.set(Role::Alone);
        Self {
            role,
            pages_shared: count("pages_shared"),
            for_others: count("rows_decoded_for_others"),
            missed: count("rows_missed"),
            detached: count("detached"),
            stars: None,
        }
    }

    /// The same for a scan that shares star joins, so many of which are above it.
    pub(crate) fn with_stars(self, metrics: &ExecutionPlanMetricsSet, joins: usize) -> Self {
        let count = |name: &'static str| MetricBuilder::new(metrics).global_counter(name);
        count("star_joins").add(joins);
        let stars = StarMetrics { pages: count("star_pages"), left_out: count("rows_left_out_stars") };
        Self { stars: Some(stars), ..self }
    }

    /// It took a page of which a chain left out so many rows.
    pub(crate) fn routed(&self, left_out: usize) {
        if let Some(StarMetrics { pages, left_out: all }) = &self.stars {
            pages.add(1);
            all.add(left_out);
        }
    }

    /// It decoded a page of a pass, with so many rows that it does not take.
    pub(crate) fn decoded(&self, for_others: u64) {
        self.for_others.add(usize::try_from(for_others).unwrap_or(usize::MAX));
        self.role.set(Role::Host);
    }

    /// It takes pages of a pass with others.
    pub(crate) fn joined(&self) {
        self.role.set_if(Role::Alone, Role::Guest);
    }
}
