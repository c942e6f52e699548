use std::collections::HashSet;

use super::families::{ALL, FamilyKind};
use super::*;

fn seconds(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn value(metrics: &Metrics, name: &str, label: Option<&str>) -> Option<f64> {
    let samples = metrics.samples(seconds(1000));
    let found = samples.iter().find(|sample| sample.family.name == name && sample.label.as_deref() == label);
    found.map(|sample| sample.value)
}

fn covered(uncovered: u64, oldest: Option<u64>) -> IndexCoverage {
    IndexCoverage {
        files: 4,
        uncovered_files: uncovered,
        oldest_uncovered: oldest.map(seconds),
        indexes: vec![CoverageOfIndex { name: "a \"b\"\\".into(), coverage: 0.75, segments: 2, bytes: 99 }],
    }
}

#[test]
fn names_are_distinct_and_end_with_their_units() {
    let names: HashSet<&str> = ALL.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), ALL.len());
    for family in ALL {
        assert!(family.name.starts_with("lakemark_") && !family.name.ends_with("_total"), "{family:?}");
        assert!(family.unit.is_none_or(|unit| family.name.ends_with(&format!("_{unit}"))), "{family:?}");
        assert!(family.help.ends_with('.'), "{family:?}");
        let is_counter = family.kind == FamilyKind::Counter;
        assert_eq!(family.sample_name().ends_with("_total"), is_counter, "{family:?}");
    }
}

#[test]
fn every_number_has_a_family_that_is_listed_and_the_label_that_the_family_has() {
    let metrics = Metrics::default();
    for run in [&metrics.build, &metrics.compact, &metrics.migrate] {
        run.record(RunEnd::Done, 1.5, seconds(10));
    }
    metrics.set_coverage(covered(1, Some(900)), seconds(990));
    let samples = metrics.samples(seconds(1000));
    let told: HashSet<&str> = samples.iter().map(|sample| sample.family.name).collect();
    assert_eq!(told, ALL.iter().map(|family| family.name).collect());
    assert!(samples.iter().all(|sample| sample.family.label.is_some() == sample.label.is_some()));
}

#[test]
fn runs_count_failures_and_remember_when_the_last_one_went_well() {
    let metrics = Metrics::default();
    assert_eq!(value(&metrics, "lakemark_last_success_timestamp_seconds", Some("build")), None);
    metrics.build.record(RunEnd::Done, 1.5, seconds(10));
    metrics.build.record(RunEnd::Failed, 0.25, seconds(20));
    metrics.build.record(RunEnd::Stopped, 0.25, seconds(30));
    assert_eq!(value(&metrics, "lakemark_runs", Some("build")), Some(3.0));
    assert_eq!(value(&metrics, "lakemark_failures", Some("build")), Some(1.0));
    assert_eq!(value(&metrics, "lakemark_run_seconds", Some("build")), Some(2.0));
    assert_eq!(value(&metrics, "lakemark_last_success_timestamp_seconds", Some("build")), Some(10.0));
    assert_eq!(value(&metrics, "lakemark_runs", Some("migrate")), Some(0.0));
}

#[test]
fn the_lag_is_the_age_of_the_oldest_uncovered_file_at_the_time_it_is_told() {
    let metrics = Metrics::default();
    assert_eq!(value(&metrics, "lakemark_lag_seconds", None), None, "nobody has looked yet");
    metrics.set_coverage(covered(1, Some(900)), seconds(950));
    assert_eq!(value(&metrics, "lakemark_lag_seconds", None), Some(100.0));
    assert_eq!(value(&metrics, "lakemark_last_look_timestamp_seconds", None), Some(950.0));
    // A clock of another machine may be ahead of ours.
    metrics.set_coverage(covered(1, Some(5000)), seconds(990));
    assert_eq!(value(&metrics, "lakemark_lag_seconds", None), Some(0.0));
    metrics.set_coverage(covered(0, None), seconds(990));
    assert_eq!(value(&metrics, "lakemark_lag_seconds", None), Some(0.0));
    assert_eq!(covered(1, None).share(), 0.75);
    assert_eq!(IndexCoverage::default().share(), 1.0);
}

#[test]
fn as_an_object_numbers_are_by_their_names_and_by_their_labels() {
    let metrics = Metrics::default();
    metrics.commits.add(2);
    metrics.build.record(RunEnd::Failed, 0.5, seconds(10));
    metrics.set_coverage(covered(1, Some(900)), seconds(990));
    let values = metrics.values(seconds(1000));
    assert_eq!(values["lakemark_commits_total"], 2.0);
    assert_eq!(values["lakemark_failures_total"]["build"], 1.0);
    assert_eq!(values["lakemark_failures_total"]["migrate"], 0.0);
    assert_eq!(values["lakemark_coverage_ratio"]["a \"b\"\\"], 0.75);
    assert_eq!(values["lakemark_lag_seconds"], 100.0);
    assert!(!values.contains_key("lakemark_last_success_timestamp_seconds"), "no run went well yet");
}

#[test]
fn families_stand_together_whatever_table_their_numbers_are_of() {
    let (one, other) = (Metrics::default(), Metrics::default());
    one.commits.add(2);
    one.set_coverage(covered(1, Some(900)), seconds(990));
    let tables = [
        NamedMetrics { table: "/lake/\"odd\"\n", metrics: &one },
        NamedMetrics { table: "s3://lake/b", metrics: &other },
    ];
    let text = open_metrics(&tables, seconds(1000));
    let expected = "# HELP lakemark_commits Manifests that were committed.\n# TYPE lakemark_commits counter\n\
                    lakemark_commits_total{table=\"/lake/\\\"odd\\\"\\n\"} 2\nlakemark_commits_total{table=\"s3://lake/b\"} 0\n";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("# UNIT lakemark_lag_seconds seconds\n"), "{text}");
    assert!(text.contains(",index=\"a \\\"b\\\"\\\\\"} 0.75\n"), "{text}");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    // What only one of them has seen is told of that one.
    assert_eq!(text.matches("lakemark_lag_seconds{").count(), 1);
    assert_eq!(text.matches("# TYPE ").count(), text.matches("# HELP ").count());
}

#[test]
fn what_is_described_has_the_value_and_the_words_of_its_family() {
    let metrics = Metrics::default();
    metrics.commits.add(3);
    metrics.set_coverage(covered(1, Some(900)), seconds(1000));
    let described = metrics.described(seconds(1000));
    let values = metrics.values(seconds(1000));
    assert_eq!(described.len(), values.len());
    for each in &described {
        let name = each["name"].as_str().unwrap();
        let family = ALL.iter().find(|family| family.sample_name() == name).unwrap();
        assert_eq!((&each["value"], each["meaning"].as_str()), (&values[name], Some(family.help)));
        assert_eq!((each["unit"].as_str(), each["by"].as_str()), (family.unit, family.label));
        assert_eq!(each["kind"] == "counter", family.kind == FamilyKind::Counter);
    }
    let commits = described.iter().find(|each| each["name"] == "lakemark_commits_total").unwrap();
    assert_eq!(commits["value"], 3.0);
}
