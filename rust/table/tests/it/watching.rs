//! A watch: it builds what is new, costs one listing where nothing is, and goes on after errors. The test is its clock.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lakemark_table::metrics::Metrics;
use lakemark_table::watch::{Look, Watch};
use lakemark_table::{BuildOptions, Table, now};

use crate::fixture::{batch, folder, open, segments, spec, write};

const EVERY: Duration = Duration::from_secs(30);

async fn watched(table: &Arc<Table>) -> Watch {
    table.create_index(spec("k"), false).await.unwrap();
    Watch::new(Arc::clone(table), BuildOptions::default(), EVERY)
}

/// What a look cost: listings of the data files, builds.
async fn cost(watch: &mut Watch) -> (u64, u64, Look) {
    let metrics = Arc::clone(watch.table().metrics());
    let before = (metrics.listings.get(), metrics.build.runs.get());
    let look = watch.look().await.unwrap();
    (metrics.listings.get() - before.0, metrics.build.runs.get() - before.1, look)
}

fn told(metrics: &Metrics, name: &str) -> Option<f64> {
    let samples = metrics.samples(now());
    samples.iter().find(|sample| sample.family.name == name).map(|sample| sample.value)
}

#[tokio::test]
async fn an_unchanged_table_costs_one_listing_and_a_new_file_is_built() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    let mut watch = watched(&table).await;
    let (_, builds, look) = cost(&mut watch).await;
    assert_eq!((builds, look.report.unwrap().files, look.coverage.uncovered_files), (1, 2, 0));
    for _ in 0..3 {
        let (listings, builds, look) = cost(&mut watch).await;
        assert_eq!((listings, builds, look.report), (1, 0, None));
    }
    write(&folder.path().join("f0007.parquet"), &batch(500, 250));
    let (_, builds, look) = cost(&mut watch).await;
    assert_eq!((builds, look.report.unwrap().files, look.coverage.share()), (1, 1, 1.0));
    let (listings, builds, _) = cost(&mut watch).await;
    assert_eq!((listings, builds), (1, 0));
}

#[tokio::test]
async fn what_somebody_else_has_built_is_not_built_again() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    let mut watch = watched(&table).await;
    watch.look().await.unwrap();
    write(&folder.path().join("f0007.parquet"), &batch(500, 250));
    open(folder.path()).await.build(BuildOptions::default()).await.unwrap();
    let written = segments(folder.path());
    let (_, builds, look) = cost(&mut watch).await;
    assert_eq!((builds, look.coverage.share()), (0, 1.0));
    assert_eq!(segments(folder.path()), written);
}

#[tokio::test]
async fn an_index_that_is_declared_later_is_built_by_the_next_look() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    let mut watch = Watch::new(Arc::clone(&table), BuildOptions::default(), EVERY);
    let (_, builds, look) = cost(&mut watch).await;
    assert_eq!((builds, look.coverage.indexes.len()), (0, 0), "nothing is declared, so that nothing is missing");
    open(folder.path()).await.create_index(spec("s"), false).await.unwrap();
    let (_, builds, look) = cost(&mut watch).await;
    assert_eq!((builds, look.coverage.indexes.len(), look.coverage.share()), (1, 1, 1.0));
}

#[tokio::test]
async fn a_watch_that_begins_anew_finds_segments_that_were_lost() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    watched(&table).await.look().await.unwrap();
    fs::remove_file(&segments(folder.path())[0]).unwrap();
    let mut again = Watch::new(open(folder.path()).await, BuildOptions::default(), EVERY);
    assert_eq!(again.look().await.unwrap().report.unwrap().repaired, 1);
    assert_eq!(segments(folder.path()).len(), 1);
}

#[tokio::test]
async fn lag_and_coverage_are_told_and_the_lag_is_the_age_of_the_oldest_file_that_waits() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    let mut watch = watched(&table).await;
    watch.look().await.unwrap();
    assert_eq!(told(table.metrics(), "lakemark_lag_seconds"), Some(0.0));
    assert_eq!(told(table.metrics(), "lakemark_coverage_ratio"), Some(1.0));
    for (name, age) in [("f0007.parquet", 500), ("f0008.parquet", 200)] {
        let path = folder.path().join(name);
        write(&path, &batch(500, 250));
        let written = SystemTime::now() - Duration::from_secs(age);
        fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    }
    let coverage = table.snapshot().await.unwrap().index_coverage();
    assert_eq!((coverage.files, coverage.uncovered_files, coverage.share()), (4, 2, 0.5));
    let oldest = coverage.oldest_uncovered.unwrap();
    assert_eq!(coverage.lag(oldest + Duration::from_secs(77)), Duration::from_secs(77));
    assert!(coverage.lag(SystemTime::now()) >= Duration::from_secs(500));
    table.metrics().set_coverage(coverage, now());
    assert!(told(table.metrics(), "lakemark_lag_seconds").unwrap() >= 500.0);
    assert_eq!(told(table.metrics(), "lakemark_uncovered_files"), Some(2.0));
}

#[tokio::test]
async fn after_an_error_the_pause_is_longer_and_the_next_look_goes_on() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    let mut watch = watched(&table).await;
    watch.look().await.unwrap();
    let manifests = folder.path().join("_lakemark/manifest");
    let newest = fs::read_dir(&manifests).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let kept = fs::read(&newest).unwrap();
    fs::write(&newest, b"damaged").unwrap();
    assert!(watch.look().await.is_err());
    assert!(watch.look().await.is_err());
    let most = |times: f64| EVERY.mul_f64(times * 1.1);
    assert!(watch.pause() > most(2.0) && watch.pause() <= most(4.0));
    fs::write(&newest, kept).unwrap();
    write(&folder.path().join("f0007.parquet"), &batch(500, 250));
    assert_eq!(watch.look().await.unwrap().report.unwrap().files, 1);
    assert!(watch.pause() <= most(1.0));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_waited_for_and_tried_again() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    let mut watch = watched(&table).await;
    watch.look().await.unwrap();
    let path = folder.path().join("f0007.parquet");
    fs::write(&path, b"PAR1 and nothing more PAR1").unwrap();
    for _ in 0..2 {
        let (_, builds, look) = cost(&mut watch).await;
        assert_eq!((builds, look.failed()), (1, 1));
        assert_eq!((look.coverage.files, look.coverage.uncovered_files), (3, 1));
        assert_eq!(look.coverage.indexes[0].coverage, 2.0 / 3.0);
        assert!(look.coverage.oldest_uncovered.is_some());
    }
    assert!(watch.pause() > EVERY.mul_f64(2.0));
    write(&path, &batch(500, 250));
    let (_, builds, look) = cost(&mut watch).await;
    assert_eq!((builds, look.report.unwrap().files, look.coverage.share()), (1, 1, 1.0));
    let (_, builds, _) = cost(&mut watch).await;
    assert_eq!(builds, 0);
}
