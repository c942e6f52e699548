//! How much of the suite was run, and how much of that reached us.

use std::collections::BTreeSet;
use std::fmt;

use crate::records::{Outcome, Verdict};
use crate::statement::Kind;
use crate::suite::SuiteFile;
use crate::tables::TableCounts;

/// Counts of files, records and tables.
#[derive(Debug, Default)]
pub struct Counts {
    files: BTreeSet<String>,
    left_out: Vec<String>,
    tables: TableCounts,
    /// Records for other engines.
    pub skipped: usize,
    /// Records that the engine by itself does not pass, of files that name data which is not here.
    pub lacking_data: usize,
    /// Records that the engine by itself does not pass either.
    pub engine_differs: usize,
    plans: usize,
    compared: usize,
    same: usize,
    other_order: usize,
    selects: usize,
    over_tables: usize,
    reaching: usize,
}

impl Counts {
    /// Counts a file and its tables.
    pub fn begin(&mut self, file: &SuiteFile, tables: &TableCounts) {
        self.files.insert(file.name.clone());
        self.tables.add(tables);
    }

    /// Counts a file that the suite itself leaves out in this build.
    pub fn left_out(&mut self, file: &SuiteFile) {
        self.left_out.push(file.name.clone());
    }

    /// Whether a file was run.
    pub fn ran(&self, file: &str) -> bool {
        self.files.contains(file)
    }

    /// Counts a record that the engine passes, with what became of it over tables of ours.
    pub fn compared(&mut self, on: &Outcome, off: &Outcome) {
        match on.kind {
            Kind::Explain => {
                self.plans += 1;
                return;
            }
            Kind::Select { .. } => {
                self.selects += 1;
                self.over_tables += usize::from(on.seen.names_table);
                self.reaching += usize::from(on.seen.reaches_ours);
            }
            Kind::Other => {}
        }
        self.compared += 1;
        match (&on.verdict, &off.verdict) {
            (Verdict::Same, Verdict::Same) => self.same += 1,
            (Verdict::Same | Verdict::OtherOrder, Verdict::Same | Verdict::OtherOrder) => self.other_order += 1,
            _ => {}
        }
    }

    /// Whether at least half of the SELECTs over tables reach us.
    pub fn enough_selects_reach_our_scan(&self) -> bool {
        self.reaching > 0 && 2 * self.reaching >= self.over_tables
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.skipped + self.lacking_data + self.engine_differs + self.plans + self.compared;
        writeln!(f, "{} files, {records} records", self.files.len())?;
        for name in &self.left_out {
            writeln!(f, "  {name} is for other builds, or needs data that is not here")?;
        }
        writeln!(f, "  {:>6} for other engines", self.skipped)?;
        writeln!(f, "  {:>6} that need data which the suite does not bring", self.lacking_data)?;
        writeln!(f, "  {:>6} that the engine by itself answers otherwise here", self.engine_differs)?;
        writeln!(f, "  {:>6} plans, which were made and are others than the engine's", self.plans)?;
        writeln!(f, "  {:>6} compared:", self.compared)?;
        writeln!(f, "    {:>6} equal with the index on and off", self.same)?;
        writeln!(f, "    {:>6} equal but for an order that nobody asked for", self.other_order)?;
        writeln!(f, "    {:>6} differ", self.compared - self.same - self.other_order)?;
        let (of_tables, of_all) = (percent(self.reaching, self.over_tables), percent(self.reaching, self.selects));
        writeln!(f, "{} SELECTs, {} over tables", self.selects, self.over_tables)?;
        writeln!(f, "  {:>6} reach us: {of_tables:.1}% of those over tables, {of_all:.1}% of all", self.reaching)?;
        let TableCounts { written, columns, indexes, kept } = &self.tables;
        writeln!(f, "{written} tables became ours, with {indexes} indexes on {columns} columns; what did not:")?;
        for (reason, tables) in kept {
            writeln!(f, "  {tables:>6} {reason}")?;
        }
        Ok(())
    }
}
