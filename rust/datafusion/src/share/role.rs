//! What a query was for another one, for `EXPLAIN ANALYZE`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use datafusion::physical_plan::metrics::{
    Count, CustomMetricValue, ExecutionPlanMetricsSet, MetricBuilder, MetricValue,
};

/// What a query was for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// It has not run.
    None,
    /// It ran its own plan, and nobody could share it.
    Alone,
    /// Its plan ran, for itself and for whoever came.
    Host,
    /// It took the batches of another one's plan.
    Guest,
    /// It took part, gave no row, and had to run its own plan.
    Detached,
}

impl Role {
    const ALL: [Self; 5] = [Self::None, Self::Alone, Self::Host, Self::Guest, Self::Detached];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Alone => "alone",
            Self::Host => "host",
            Self::Guest => "guest",
            Self::Detached => "detached",
        }
    }
}

/// The role as a metric that is shown by its name. The last one stands.
#[derive(Debug, Default)]
struct RoleValue(AtomicU8);

impl RoleValue {
    fn get(&self) -> Role {
        let place = usize::from(self.0.load(Ordering::Relaxed));
        Role::ALL.get(place).copied().unwrap_or(Role::None)
    }
}

/// The role of an operator.
#[derive(Clone, Debug)]
pub(crate) struct RoleMetric(Arc<RoleValue>);

impl RoleMetric {
    /// A metric of an operator, which has no role yet.
    pub(crate) fn of(metrics: &ExecutionPlanMetricsSet) -> Self {
        let role = Arc::new(RoleValue::default());
        let value: Arc<dyn CustomMetricValue> = Arc::clone(&role) as _;
        MetricBuilder::new(metrics).build(MetricValue::Custom { name: "shared_role".into(), value });
        Self(role)
    }

    pub(crate) fn set(&self, role: Role) {
        self.0.0.store(role as u8, Ordering::Relaxed);
    }

    /// Another role in place of just this one.
    pub(crate) fn set_if(&self, before: Role, role: Role) {
        // Any other role stays.
        let _ = self.0.0.compare_exchange(before as u8, role as u8, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl fmt::Display for RoleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get().name())
    }
}

impl CustomMetricValue for RoleValue {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Self::default())
    }

    fn aggregate(&self, other: Arc<dyn CustomMetricValue + 'static>) {
        if let Some(other) = other.as_any().downcast_ref::<Self>() {
            self.0.fetch_max(other.get() as u8, Ordering::Relaxed);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_usize(&self) -> usize {
        self.get() as usize
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| other.get() == self.get())
    }
}

/// What an execution of a shared plan tells of itself.
#[derive(Clone, Debug)]
pub(crate) struct SharedMetrics {
    role: RoleMetric,
    /// Batches that it took and that another query took as well.
    pub(crate) batches_shared: Count,
    pub(crate) output_rows: Count,
}

impl SharedMetrics {
    pub(crate) fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let role = RoleMetric::of(metrics);
        let batches_shared = MetricBuilder::new(metrics).global_counter("batches_shared");
        Self { role, batches_shared, output_rows: MetricBuilder::new(metrics).output_rows(0) }
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.set(role);
    }
}
