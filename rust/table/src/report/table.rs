//! A table at a glance: columns, indexes, versions.

use lakemark_format::{Encoding, IndexKind, NameOf};
use serde::{Serialize, Serializer};

use crate::report::description::{Description, Report, bytes, count};
use crate::report::serialized::as_text;
use crate::report::updates::UpdatesInfo;
use crate::report::version_operation::VersionOperation;
use crate::table_format::TableFormat;

/// Columns of a table that are named; of wider tables the others are counted.
const NAMED_COLUMNS: usize = 64;

/// A table at a glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TableInfo {
    /// Where the data is.
    pub location: String,
    /// How the list of data files is known.
    pub format: TableFormat,
    /// Where the indexes are; none for a glob or a single file opened without a store.
    pub store: Option<String>,
    /// The version that was requested, if one was: the state of updates is known of the newest state alone.
    pub version: Option<u64>,
    /// Version of the Delta table, if it is one.
    pub delta_version: Option<u64>,
    /// Number of the manifest, if there is one.
    pub manifest: Option<u64>,
    /// Number of data files.
    pub files: u64,
    /// Bytes of the data files.
    pub bytes: u64,
    /// Rows that the table shows.
    pub rows: u64,
    /// The columns in their order.
    pub columns: Vec<ColumnInfo>,
    /// Names of the columns whose values are constant in a file.
    pub partition_columns: Vec<String>,
    /// Bytes of all index files.
    pub index_bytes: u64,
    /// The indexes.
    pub indexes: Vec<IndexInfo>,
    /// The state of the buffered updates; none if the table takes none.
    pub updates: Option<UpdatesInfo>,
}

impl Report for TableInfo {
    fn describe(&self) -> Description {
        let number = |number: Option<u64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
        let mut said = Description::default()
            .fact("location", self.location.clone())
            .fact("format", self.format.name())
            .fact("store", self.store.clone().unwrap_or_else(|| "none".to_owned()));
        if self.delta_version.is_some() {
            said = said.fact("Delta version", number(self.delta_version));
        }
        said = said
            .fact("manifest", number(self.manifest))
            .fact("files", format!("{}, {}", count(self.files), bytes(self.bytes)))
            .fact("rows", count(self.rows))
            .fact("columns", count(self.columns.len() as u64));
        for column in self.columns.iter().take(NAMED_COLUMNS) {
            let partition = if self.partition_columns.contains(&column.name) { ", partition" } else { "" };
            said = said.fact(format!("  {}", column.name), format!("{}{partition}", column.data_type));
        }
        if let Some(more) = self.columns.len().checked_sub(NAMED_COLUMNS).filter(|more| *more > 0) {
            said = said.fact("  …", format!("{} more", count(more as u64)));
        }
        for index in &self.indexes {
            let (covered, size) = (index.coverage * 100.0, bytes(index.bytes));
            let how = format!("{} ({}) on {}", index.kind, index.encoding, index.column);
            said = said.fact(format!("index {}", index.name), format!("{how}, {covered:.0}% covered, {size}"));
        }
        if self.indexes.is_empty() {
            said = said.fact("indexes", "none");
        }
        match &self.updates {
            Some(updates) => said.facts.extend(updates.describe().facts),
            None if self.version.is_some() => {}
            None => said = said.fact("updates", "none"),
        }
        said
    }
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColumnInfo {
    /// Its name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: String,
    /// Whether a value may be missing.
    pub nullable: bool,
}

/// An index as users see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IndexInfo {
    /// Its name.
    pub name: String,
    /// Its kind, e.g. `bitmap`.
    #[serde(serialize_with = "as_text")]
    pub kind: NameOf<IndexKind>,
    /// Its encoding, e.g. `equality`.
    #[serde(serialize_with = "as_text")]
    pub encoding: NameOf<Encoding>,
    /// Its column, or the way to its field, with dots between the names; several columns with commas.
    pub column: String,
    /// Its columns one by one.
    pub columns: Vec<String>,
    /// The column's Arrow type; a struct of several columns.
    pub data_type: String,
    /// Who chose the encoding.
    pub chosen_by: ChosenBy,
    /// Why `auto` chose the encoding.
    pub reason: Option<String>,
    /// Bytes that were predicted when it was declared, for the rows that it covers now (for all rows until it covers some).
    pub predicted_bytes: Option<u64>,
    /// Its options.
    pub options: Vec<(String, String)>,
    /// Data files of the snapshot that the index covers for certain. A file that was touched since is read only to compare hashes, and
    /// counts again when a build has taken it over. Nothing counts while the column is gone or has another type.
    pub files_covered: u64,
    /// Data files of the snapshot.
    pub files_total: u64,
    /// `files_covered / files_total`, 1 for no files.
    pub coverage: f64,
    /// Its segments.
    pub segments: u64,
    /// Bytes of its segments.
    pub bytes: u64,
    /// Rows that it covers.
    pub rows: u64,
}

/// Who chose the encoding of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChosenBy {
    /// Lakemark: who declared the index left the choice open.
    Auto,
    /// Who declared the index.
    #[default]
    User,
}

/// Who chose is written as a name.
impl Serialize for ChosenBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl ChosenBy {
    /// The name in reports and lists.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::User => "user",
        }
    }
}

/// A version of a table: a commit of a Delta table, or an edit of its store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VersionInfo {
    /// Its number.
    pub version: u64,
    /// When it was made, in milliseconds since 1970-01-01 UTC; of a commit that does not say it, when its file was written.
    pub time_ms: Option<i64>,
    /// What made it.
    pub operation: VersionOperation,
    /// Data files that it added; of a run of changes, one.
    pub files_added: u64,
    /// Data files that it took away.
    pub files_removed: u64,
    /// Rows in what it added, where that is known: of Delta's files, or changes of a run.
    pub rows: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_wide_tables_some_columns_are_named() {
        let column = |place: usize| ColumnInfo { name: format!("c{place}"), ..ColumnInfo::default() };
        let info = TableInfo { columns: (0..70).map(column).collect(), ..TableInfo::default() };
        let said = info.describe().to_string();
        assert!(said.contains("c63") && !said.contains("c64") && said.contains("6 more"), "{said}");
    }
}
