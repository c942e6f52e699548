//! Numbers as OpenMetrics text, which Prometheus and everything around it reads.
//!
//! ```text
//! # HELP lakemark_commits Manifests that were committed.
//! # TYPE lakemark_commits counter
//! lakemark_commits_total{table="/data/lake/flights"} 3
//! # EOF
//! ```

use std::fmt::Write;
use std::time::SystemTime;

use super::families::{ALL, Family};
use super::{Metrics, Sample};

/// The metrics of a table, and what the table is called where they are told.
#[derive(Clone, Copy, Debug)]
pub struct NamedMetrics<'a> {
    /// The value of the label `table`.
    pub table: &'a str,
    /// The numbers.
    pub metrics: &'a Metrics,
}

/// The numbers of these tables as OpenMetrics text; `now` is what ages are counted from. No two tables may have the same name.
#[must_use]
pub fn open_metrics(tables: &[NamedMetrics<'_>], now: SystemTime) -> String {
    let told: Vec<(&str, Vec<Sample>)> = tables.iter().map(|named| (named.table, named.metrics.samples(now))).collect();
    let mut text = String::new();
    for family in ALL {
        // The samples of a family stand together, whatever table they are of.
        let mut lines = String::new();
        for (table, samples) in &told {
            for sample in samples.iter().filter(|sample| sample.family == family) {
                add_sample(&mut lines, table, sample);
            }
        }
        if !lines.is_empty() {
            add_head(&mut text, family);
            text.push_str(&lines);
        }
    }
    text.push_str("# EOF\n");
    text
}

// Writing into a text cannot fail.

fn add_head(text: &mut String, family: &Family) {
    let Family { name, help, .. } = family;
    let _ = writeln!(text, "# HELP {name} {}", escaped(help));
    let _ = writeln!(text, "# TYPE {name} {}", family.kind.name());
    if let Some(unit) = family.unit {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
}

fn add_sample(text: &mut String, table: &str, sample: &Sample) {
    let _ = write!(text, "{}{{table=\"{}\"", sample.family.sample_name(), escaped(table));
    if let (Some(name), Some(value)) = (sample.family.label, &sample.label) {
        let _ = write!(text, ",{name}=\"{}\"", escaped(value));
    }
    let _ = writeln!(text, "}} {}", sample.value);
}

/// A text without what would end it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
