//! Names that a session knows beside those that its statements defined: their tables are opened when a statement needs them, and once.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_datafusion::{LakemarkSession, is_unopened};
use lakemark_table::{Error, ErrorKind, Result, TableNames, TableOptions, TablePlace};
use tempfile::TempDir;

use crate::fixture::{FILE_ROWS, folder, rows};

/// `known` and `main.sales.trips` stand for a folder, and `gone` for nothing.
#[derive(Debug)]
struct Known {
    folder: PathBuf,
    resolved: AtomicUsize,
}

impl TableNames for Known {
    fn listed(&self) -> Vec<String> {
        vec!["gone".to_owned(), "known".to_owned()]
    }

    fn catalogs(&self) -> Vec<String> {
        vec!["main".to_owned()]
    }

    fn resolve<'a>(
        &'a self,
        written: &'a str,
        profile: Option<&'a str>,
        typed: TableOptions,
    ) -> BoxFuture<'a, Result<TablePlace>> {
        self.resolved.fetch_add(1, Ordering::SeqCst);
        let place = match (written, profile) {
            ("known" | "main.sales.trips", None | Some("lake")) => {
                Ok(TablePlace { location: self.folder.display().to_string(), options: typed })
            }
            _ => Err(Error::new(ErrorKind::NotFound, format!("{written} is nowhere"))),
        };
        async move { place }.boxed()
    }
}

/// A session that knows the names of a folder, and the names, which count how often they were resolved.
struct Knowing {
    session: LakemarkSession,
    names: Arc<Known>,
    /// It lasts as long as the session.
    _folder: TempDir,
}

impl Knowing {
    fn new() -> Self {
        let folder = folder(1);
        let names = Arc::new(Known { folder: folder.path().to_owned(), resolved: AtomicUsize::new(0) });
        let session = LakemarkSession::new();
        let known: Arc<dyn TableNames> = names.clone();
        session.know(known).unwrap();
        Self { session, names, _folder: folder }
    }

    fn resolved(&self) -> usize {
        self.names.resolved.load(Ordering::SeqCst)
    }

    async fn count(&self, name: &str) -> usize {
        rows(&self.session, &format!("SELECT count(*) AS n FROM {name}")).await[0].parse().unwrap()
    }

    async fn run(&self, sql: &str) -> Result<()> {
        self.session.sql(sql).await.map(drop)
    }
}

#[tokio::test]
async fn a_name_is_opened_when_a_statement_needs_it_and_once() {
    let knowing = Knowing::new();
    let listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name";
    assert_eq!(rows(&knowing.session, listed).await, ["gone", "known"]);
    let schema = knowing.session.context().catalog("datafusion").unwrap().schema("public").unwrap();
    assert!(is_unopened(&schema, "known") && !is_unopened(&schema, "other"));
    assert_eq!(knowing.resolved(), 0);
    for _ in 0..2 {
        assert_eq!(knowing.count("known").await, FILE_ROWS);
    }
    assert_eq!((is_unopened(&schema, "known"), knowing.resolved()), (false, 1));
    for _ in 0..2 {
        assert_eq!(knowing.count("main.sales.trips").await, FILE_ROWS);
    }
    assert_eq!(knowing.resolved(), 2);
}

#[tokio::test]
async fn a_name_that_stands_for_nothing_fails_the_statements_that_read_it_alone() {
    let knowing = Knowing::new();
    for name in ["gone", "main.sales.lost"] {
        let error = knowing.run(&format!("SELECT id FROM {name}")).await.unwrap_err();
        assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("is nowhere"), "{name}: {error}");
    }
    assert_eq!(knowing.count("known").await, FILE_ROWS);
}

#[tokio::test]
async fn a_statement_may_give_a_name_to_another_table_and_drops_none_that_it_did_not_define() {
    let knowing = Knowing::new();
    let create = "CREATE EXTERNAL TABLE gone STORED AS LAKEMARK LOCATION 'known' OPTIONS ('profile' 'lake')";
    knowing.run(create).await.unwrap();
    assert_eq!(knowing.count("gone").await, FILE_ROWS);
    knowing.run("DROP TABLE gone").await.unwrap();
    let error = knowing.run("SELECT id FROM gone").await.unwrap_err().to_string();
    assert!(error.contains("gone is nowhere"), "{error}");
    let error = knowing.run("DROP TABLE known").await.unwrap_err().to_string();
    assert!(error.contains("the table known is a name of lakemark.toml; take it out there"), "{error}");
    let error = knowing.run(&create.replace("lake'", "other'")).await.unwrap_err().to_string();
    assert!(error.contains("known is nowhere"), "{error}");
}

#[tokio::test]
async fn a_session_without_names_knows_no_profile() {
    let create = "CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION 't' OPTIONS ('profile' 'lake')";
    let error = LakemarkSession::new().sql(create).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("this session knows no profiles; leave 'profile' out"), "{error}");
}

#[tokio::test]
async fn a_setting_is_what_set_makes_it() {
    let session = LakemarkSession::new();
    session.set("lakemark.use_index", "false").await.unwrap();
    let shown = "SELECT value FROM information_schema.df_settings WHERE name LIKE '%use_index'";
    assert_eq!(rows(&session, shown).await, ["false"]);
    for (name, value) in [("lakemark.nothing", "1"), ("lakemark.use_index", "it's")] {
        assert!(session.set(name, value).await.is_err(), "{name}");
    }
    assert_eq!(rows(&session, shown).await, ["false"]);
}
