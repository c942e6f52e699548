//! What a subscriber of `tracing` sees of a query and of a build: which spans, within which others, with which fields.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use lakemark_table::{BuildOptions, IndexKind, IndexSpec, Table};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Instrument, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::fixture::{create_indexes, folder, open, rows, session};

/// A span: the names from the outermost one to it, and its fields.
struct Seen {
    id: u64,
    path: String,
    fields: BTreeMap<String, String>,
}

/// The spans that were opened on this thread, in their order.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Seen>>>);

/// Where there is one subscriber alone, `tracing` asks the thread that comes to a span first whether anybody wants it. That may be the
/// thread of another test, which has none, and the span is off for all from then on. Of two subscribers it asks both.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Listens to what happens on this thread, as long as the guard is there.
pub fn listening(layer: impl Layer<Registry> + Send + Sync) -> DefaultGuard {
    LazyLock::force(&SECOND);
    set_default(Registry::default().with(layer))
}

impl Spans {
    fn listen() -> (Self, DefaultGuard) {
        let spans = Self::default();
        let guard = listening(spans.clone());
        (spans, guard)
    }

    fn paths(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|seen| seen.path.clone()).collect()
    }

    /// A field of the first span that has such a path.
    fn field(&self, path: &str, name: &str) -> Option<String> {
        let spans = self.0.lock().unwrap();
        spans.iter().find(|seen| seen.path == path)?.fields.get(name).cloned()
    }

    /// The sum of a field over all spans of a name, wherever they are.
    fn sum(&self, span: &str, name: &str) -> u64 {
        let spans = self.0.lock().unwrap();
        let own = spans.iter().filter(|seen| seen.path.rsplit('/').next() == Some(span));
        own.filter_map(|seen| seen.fields.get(name)).map(|value| value.parse::<u64>().unwrap()).sum()
    }
}

/// Takes fields as text.
pub struct Fields<'a>(pub &'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        attributes.record(&mut Fields(&mut fields));
        self.0.lock().unwrap().push(Seen { id: id.into_u64(), path: path(id, &context), fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.0.lock().unwrap();
        // Ids are used again once a span is closed.
        let seen = spans.iter_mut().rfind(|seen| seen.id == id.into_u64()).unwrap();
        values.record(&mut Fields(&mut seen.fields));
    }
}

fn path<S: Subscriber + for<'a> LookupSpan<'a>>(id: &Id, context: &Context<'_, S>) -> String {
    let span = context.span(id).unwrap();
    let names: Vec<&str> = span.scope().from_root().map(|span| span.name()).collect();
    names.join("/")
}

async fn declare(folder: &Path) -> Arc<Table> {
    let table = open(folder).await;
    let spec = IndexSpec { columns: vec!["k".into()], kind: Some(IndexKind::Bitmap), ..IndexSpec::default() };
    table.create_index(spec, false).await.unwrap();
    table
}

#[tokio::test]
async fn a_build_is_a_span_with_what_it_pinned_planned_read_and_committed() {
    let folder = folder(2);
    let table = declare(folder.path()).await;
    let (spans, _listening) = Spans::listen();
    table.build(BuildOptions::default()).await.unwrap();
    let paths = spans.paths();
    for path in ["build", "build/pin/listing", "build/plan", "build/build_task"] {
        assert!(paths.iter().any(|seen| seen == path), "{path} is not in {paths:?}");
    }
    assert!(paths.iter().any(|path| path.starts_with("build/") && path.ends_with("/commit")), "{paths:?}");
    assert_eq!(spans.field("build", "table").unwrap(), table.location());
    assert_eq!(spans.field("build", "files").as_deref(), Some("2"));
    assert_eq!(spans.field("build", "rows").as_deref(), Some("2000"));
    assert!(spans.sum("build", "bytes") > 0);
    assert_eq!(spans.sum("build_task", "files"), 2);
}

#[tokio::test]
async fn a_query_is_planned_by_a_listing_and_a_probe_and_then_scans() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let (spans, _listening) = Spans::listen();
    let query = async { rows(&session, "SELECT id FROM t WHERE k = 3").await };
    let found = query.instrument(tracing::info_span!("query")).await.len();
    assert_eq!(found, (0..2000).filter(|row| row % 7 != 3 && row % 10 == 3).count());
    let paths = spans.paths();
    for ending in ["pin/listing", "plan_scan/probe"] {
        let is_there = |path: &String| path.starts_with("query/") && path.ends_with(&format!("/{ending}"));
        assert!(paths.iter().any(is_there), "{ending} is not in {paths:?}");
    }
    // A partition may be read by a task of its own.
    assert_eq!(spans.sum("scan", "rows"), found as u64, "{paths:?}");
    assert!(!paths.iter().any(|path| path.contains("build")), "{paths:?}");
}
