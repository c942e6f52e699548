//! Spans on their way to a collector of OpenTelemetry, of a command that was built with the feature `otel`.
//!
//! ```text
//! span of a library ─▶ layer of the subscriber ─▶ batches, on a thread of their own ─▶ OTLP over HTTP ─▶ collector
//! ```
//!
//! The variables of the environment are those of OpenTelemetry. None is sent where no endpoint is named, and without the feature none can be.

/// Where spans go; nowhere without the feature.
#[derive(Default)]
pub(crate) struct Spans {
    #[cfg(feature = "otel")]
    exporter: otlp::Exporter,
}

#[cfg(not(feature = "otel"))]
impl Spans {
    /// Begins with nothing.
    pub(crate) fn begin() -> Self {
        Self::default()
    }

    /// What knows the spans of this process.
    pub(crate) fn registry(&self) -> tracing_subscriber::Registry {
        tracing_subscriber::registry()
    }

    /// Nothing is to be said.
    pub(crate) fn tell(&self) {}

    /// Nothing is left.
    pub(crate) fn end(self) {}
}

#[cfg(feature = "otel")]
mod otlp {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::Subscriber;
    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::registry::LookupSpan;

    use super::Spans;

    /// By these the environment names a collector.
    const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
    /// By this it names the service, or by an attribute among these.
    const SERVICE: &str = "OTEL_SERVICE_NAME";
    const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
    /// What the service and its spans are called where nobody says otherwise, and how the targets begin whose spans are sent.
    const LAKEMARK: &str = "lakemark";

    /// What sends spans, or why nothing does.
    #[derive(Default)]
    pub(super) struct Exporter {
        provider: Option<SdkTracerProvider>,
        problem: Option<ExporterBuildError>,
    }

    fn is_set(name: &str) -> bool {
        std::env::var_os(name).is_some_and(|value| !value.is_empty())
    }

    /// Whether the environment says what the service is called.
    fn is_named() -> bool {
        let is_name = |entry: &str| entry.split('=').next().is_some_and(|key| key.trim() == "service.name");
        is_set(SERVICE) || std::env::var(ATTRIBUTES).is_ok_and(|entries| entries.split(',').any(is_name))
    }

    fn provider(exporter: SpanExporter) -> SdkTracerProvider {
        let resource = Resource::builder();
        let resource = if is_named() { resource } else { resource.with_service_name(LAKEMARK) };
        SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build()
    }

    impl Spans {
        /// Begins to send spans, if the environment names a collector. Not from within the runtime, as the client has one of its own.
        pub(crate) fn begin() -> Self {
            if !ENDPOINTS.into_iter().any(is_set) {
                return Self::default();
            }
            let exporter = match SpanExporter::builder().with_http().build() {
                Ok(exporter) => Exporter { provider: Some(provider(exporter)), problem: None },
                Err(problem) => Exporter { provider: None, problem: Some(problem) },
            };
            Self { exporter }
        }

        /// What knows the spans of this process, and sends ours.
        pub(crate) fn registry(&self) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync + use<> {
            let ours = Targets::new().with_target(LAKEMARK, LevelFilter::DEBUG);
            let layer = self.exporter.provider.as_ref().map(|provider| {
                tracing_opentelemetry::layer().with_tracer(provider.tracer(LAKEMARK)).with_filter(ours)
            });
            tracing_subscriber::registry().with(layer)
        }

        /// Says why nothing is sent, if somebody wanted it to be.
        pub(crate) fn tell(&self) {
            if let Some(error) = &self.exporter.problem {
                tracing::warn!(%error, "spans are not sent; see to the variables OTEL_EXPORTER_OTLP_…");
            }
        }

        /// Sends what is left. A collector that does not answer is waited for no longer than some seconds.
        pub(crate) fn end(self) {
            if let Some(Err(error)) = self.exporter.provider.map(|provider| provider.shutdown()) {
                tracing::warn!(%error, "not all spans were sent; see that the collector answers");
            }
        }
    }
}
