//! Which columns and fields of a Delta table have statistics in its log.

use lakemark_format::column;

use crate::files::delta::DeltaState;

/// Columns that have statistics unless a table says otherwise.
const INDEXED_COLUMNS: usize = 32;

/// The columns that have statistics.
pub(super) enum IndexedColumns {
    All,
    /// The first ones, the fields of structs counted one by one.
    First(usize),
    /// These, and all fields inside of them, by the names of files.
    Named(Vec<String>),
}

impl IndexedColumns {
    /// Those of a table: the columns that it names, or the first ones, or all of a clustered one.
    pub(super) fn of(state: &DeltaState) -> Self {
        if state.is_clustered() {
            return Self::All;
        }
        let properties = state.properties();
        if let Some(named) = properties.get("delta.dataSkippingStatsColumns") {
            let stored = |shown: String| state.names.as_ref().and_then(|names| names.physical(&shown)).unwrap_or(shown);
            return Self::Named(names_in(named).into_iter().map(stored).collect());
        }
        match properties.get("delta.dataSkippingNumIndexedCols").and_then(|count| count.parse::<i64>().ok()) {
            Some(count) => Self::First(usize::try_from(count).unwrap_or(usize::MAX)),
            None => Self::First(INDEXED_COLUMNS),
        }
    }

    /// Whether a column or field has statistics, by its place among those of the files and by its whole name.
    pub(super) fn has(&self, place: usize, name: &str) -> bool {
        let is_inside = |named: &String| {
            let rest = name.strip_prefix(named.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(column::SEPARATOR))
        };
        match self {
            Self::All => true,
            Self::First(count) => place < *count,
            Self::Named(named) => named.iter().any(is_inside),
        }
    }
}

/// The whole names of columns and fields in a text such as ``a, b.c, `d.e`.f``.
fn names_in(text: &str) -> Vec<String> {
    let (mut names, mut is_quoted) = (String::new(), false);
    for letter in text.chars() {
        match letter {
            '`' => is_quoted = !is_quoted,
            ',' if !is_quoted => names.push(column::COLUMN_SEPARATOR),
            '.' if !is_quoted => names.push(column::SEPARATOR),
            letter => names.push(letter),
        }
    }
    let whole = |name: &str| column::join(column::names(name).map(str::trim));
    column::columns(&names).map(whole).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_fields_and_quotes() {
        assert_eq!(names_in("a, b.c ,`d.e`.f,`g,h`"), ["a", "b\0c", "d.e\0f", "g,h"]);
        assert_eq!(names_in(""), [] as [&str; 0]);
    }

    #[test]
    fn a_struct_that_is_named_has_statistics_of_all_its_fields() {
        let named = IndexedColumns::Named(names_in("a, b.c"));
        let has = |name: &str| named.has(0, name);
        assert!(["a", "a\0x", "b\0c", "b\0c\0d"].into_iter().all(has));
        assert!(!["b", "b\0x", "ab", "b\0cd"].into_iter().any(has));
        let first = IndexedColumns::First(2);
        assert_eq!([0, 1, 2].map(|place| first.has(place, "x")), [true, true, false]);
        assert!(IndexedColumns::All.has(99, "x"));
    }
}
