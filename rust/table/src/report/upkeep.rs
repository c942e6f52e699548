//! What builds, compactions, verifications and vacuums did and found.

use serde::{Deserialize, Serialize};

use crate::report::description::{Description, Report, bytes, count, time};

/// What a build did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildReport {
    /// Names of the indexes that got segments.
    pub indexes: Vec<String>,
    /// Data files that were indexed.
    pub files: u64,
    /// Rows of these files.
    pub rows: u64,
    /// Segments that were written.
    pub segments: u64,
    /// Segments that were there: a build that was stopped had left them, or another one had just written them. Nobody read their files again.
    pub taken_over: u64,
    /// Bytes of the segments that were written.
    pub bytes_written: u64,
    /// Parts that went to disk because of the memory limit.
    pub spilled: u64,
    /// Files that could not be indexed now, each with the reason: they are damaged, cannot be read, vanished, or changed while they were
    /// read. The next build tries them again.
    pub failed: Vec<Finding>,
    /// Touched files whose hashes proved that nothing changed, so that they keep their indexes.
    pub adopted: u64,
    /// Segments that were compared with the data.
    pub verified: u64,
    /// Segments that were missing or damaged: their files count as not indexed, and are indexed again.
    pub repaired: u64,
    /// Files whose column an index leaves out for good, each with the reason.
    pub declined: Vec<Finding>,
    /// Files of which the build has seen that the footer's statistics exclude values that are there. Nothing goes by these statistics any
    /// more.
    pub false_statistics: Vec<Finding>,
    /// Segments that were merged afterwards, as they were too many; they stay until a vacuum.
    pub segments_merged: u64,
    /// Segments that took their place.
    pub merged_into: u64,
    /// Bytes of these.
    pub bytes_merged: u64,
    /// Wall time.
    pub seconds: f64,
}

impl BuildReport {
    /// The report of a build after which segments were merged.
    pub(crate) fn with_merged(self, merged: &CompactReport) -> Self {
        Self {
            segments_merged: merged.segments_merged,
            merged_into: merged.segments_written,
            bytes_merged: merged.bytes_written,
            seconds: self.seconds + merged.seconds,
            ..self
        }
    }
}

impl Report for BuildReport {
    fn describe(&self) -> Description {
        let able = if self.declined.is_empty() { "" } else { " that they can" };
        let mut said = if self.segments + self.taken_over > 0 {
            Description::titled(format!("built {}", self.indexes.join(", ")))
                .fact("rows", count(self.rows))
                .fact("files", count(self.files))
                .fact("segments", count(self.segments))
                .fact("written", bytes(self.bytes_written))
                .fact("time", time(self.seconds))
        } else if !self.failed.is_empty() {
            Description::titled("built nothing: what is not indexed cannot be read now")
        } else if self.repaired > 0 {
            Description::titled("nothing to build: no data file is left of what lost segments covered")
        } else {
            Description::titled(format!("nothing to build: the indexes cover every file{able}"))
        };
        if self.verified > 0 {
            said = said.note(format!("compared {} segments with the data", count(self.verified)));
        }
        if self.repaired > 0 {
            said = said.note(format!(
                "{} segments were missing or damaged: what they covered counts as not indexed, and is built again",
                count(self.repaired)
            ));
        }
        if self.taken_over > 0 {
            let taken_over = count(self.taken_over);
            said =
                said.note(format!("took over {taken_over} segments that another build of the same files had written"));
        }
        if self.adopted > 0 {
            let adopted = count(self.adopted);
            said = said.note(format!("took over {adopted} touched files: their bytes are those that were indexed"));
        }
        if self.segments_merged > 0 {
            said = said.note(format!(
                "merged {} segments into {} ({}), as they were too many; a vacuum removes the old ones once they are old enough",
                count(self.segments_merged),
                count(self.merged_into),
                bytes(self.bytes_merged)
            ));
        }
        said.notes(lines("failed: ", &self.failed))
            .notes(lines("left out: ", &self.declined))
            .notes(lines("", &self.false_statistics))
    }
}

/// What merging segments did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompactReport {
    /// Indexes of which segments were merged.
    pub indexes: Vec<String>,
    /// Segments that were merged; they stay until a vacuum.
    pub segments_merged: u64,
    /// Segments that took their place.
    pub segments_written: u64,
    /// Bytes of these.
    pub bytes_written: u64,
    /// Wall time.
    pub seconds: f64,
}

impl Report for CompactReport {
    fn describe(&self) -> Description {
        if self.segments_written == 0 {
            return Description::titled(
                "nothing to merge: the segments of every index are few or far larger than the rest",
            );
        }
        Description::titled(format!("merged segments of {}", self.indexes.join(", ")))
            .fact("segments merged", count(self.segments_merged))
            .fact("segments written", count(self.segments_written))
            .fact("written", bytes(self.bytes_written))
            .fact("time", time(self.seconds))
            .note("a vacuum removes the merged segments once they are old enough")
    }
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VerifyReport {
    /// One entry per index.
    pub indexes: Vec<IndexVerdict>,
    /// Data files of which a build has seen that the footer's statistics exclude values that are there. The indexes are right all the same.
    pub false_statistics: Vec<Finding>,
}

impl VerifyReport {
    /// Whether nothing is damaged; stale parts are no damage.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.indexes.iter().all(|index| index.damaged.is_empty())
    }
}

impl Report for VerifyReport {
    fn describe(&self) -> Description {
        let mut said = match self.indexes.len() {
            0 => Description::titled("no index to verify"),
            indexes => Description::titled("verified").fact("indexes", count(indexes as u64)),
        };
        for index in &self.indexes {
            let (damaged, stale) = (count(index.damaged.len() as u64), count(index.stale.len() as u64));
            let files = count(index.files_ok);
            said = said
                .note(format!("{}: {files} files ok, {damaged} damaged, {stale} stale", index.name))
                .notes(lines("  damaged: ", &index.damaged))
                .notes(lines("  stale: ", &index.stale));
        }
        said.notes(lines("", &self.false_statistics))
    }
}

/// What a verification found in one index.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IndexVerdict {
    /// The index.
    pub name: String,
    /// Data files whose postings are just what the data says.
    pub files_ok: u64,
    /// Segments that are missing, unreadable or wrong, each with what is wrong.
    pub damaged: Vec<Finding>,
    /// Data files that changed or vanished since they were indexed.
    pub stale: Vec<Finding>,
}

/// A file and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// The segment or data file, relative to the store or the table.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// What a vacuum removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VacuumReport {
    /// Whether nothing was removed: `removed` then says what would be.
    pub dry_run: bool,
    /// Roots of checkpoints, edits, then segments and all else, in the order of removal.
    pub removed: Vec<Waste>,
    /// Bytes of these files.
    pub bytes: u64,
    /// Manifests that stay: versions that can be told.
    pub manifests_kept: u64,
    /// Segments that stay.
    pub segments_kept: u64,
    /// Wall time.
    pub seconds: f64,
}

impl Report for VacuumReport {
    fn describe(&self) -> Description {
        let named = self.removed.iter().filter(|_| self.dry_run);
        let named = named.map(|waste| format!("{}: {}", waste.path, bytes(waste.bytes)));
        Description::titled(if self.dry_run { "would remove" } else { "removed" })
            .fact("files", count(self.removed.len() as u64))
            .fact("bytes", bytes(self.bytes))
            .fact("manifests kept", count(self.manifests_kept))
            .fact("segments kept", count(self.segments_kept))
            .fact("time", time(self.seconds))
            .notes(named)
    }
}

/// A file that nobody needs any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waste {
    /// The file, relative to the store.
    pub path: String,
    /// Its length.
    pub bytes: u64,
}

fn lines(prefix: &str, findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|Finding { path, problem }| format!("{prefix}{path}: {problem}")).collect()
}
