//! The option `include`: columns that ride along with the keys of an index, as a list of names.
//!
//! ```text
//! in manifests      customer,"a, b"      the names that columns have in the files
//! from users        customer, "a, b"     those that the table shows
//! ```

use arrow::datatypes::FieldRef;
use lakemark_format::{ManifestIndex, RidingColumn};
use lakemark_index::riding_type_of;

/// The name of the option.
pub(crate) const INCLUDE: &str = "include";

/// Names with commas between. One is quoted where it could be read otherwise.
#[must_use]
pub fn column_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let plain = |name: &str| !name.is_empty() && name.trim() == name && !name.contains([',', '"']);
    let shown = |name: &str| if plain(name) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) };
    names.into_iter().map(shown).collect::<Vec<_>>().join(",")
}

/// Reads what [`column_list`] writes, and blanks around names; none if it is no such text.
#[must_use]
pub fn names_of(text: &str) -> Option<Vec<String>> {
    let (mut names, mut rest) = (Vec::new(), text.trim());
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (name, after) = rest.split_at_checked(end)?;
                (name.trim().to_owned(), after)
            }
        };
        if name.is_empty() || (!rest.starts_with('"') && name.contains('"')) {
            return None;
        }
        names.push(name);
        match after.trim_start().strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None if after.trim().is_empty() => return Some(names),
            None => return None,
        }
    }
}

/// The name up to its closing quote, and what follows.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text);
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(next) => {
                name.push('"');
                rest = next;
            }
            None => return Some((name, after)),
        }
    }
}

/// The columns that ride along with an index, by the names that they have in the files.
pub(crate) fn included(index: &ManifestIndex) -> Vec<String> {
    let given = index.options.iter().find(|(name, _)| name == INCLUDE);
    given.and_then(|(_, value)| names_of(value)).unwrap_or_default()
}

/// What a segment says of columns that ride along.
pub(crate) fn riding_columns(fields: &[FieldRef]) -> Vec<RidingColumn> {
    let column = |field: &FieldRef| {
        Some(RidingColumn { column: field.name().clone(), key_type: riding_type_of(field.data_type())? })
    };
    fields.iter().filter_map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_names_come_back() {
        for names in [vec!["a"], vec!["a", "b c", "größe"], vec!["a,b", "\"", " x ", "y\"z"], vec!["A"]] {
            let text = column_list(names.iter().copied());
            assert_eq!(names_of(&text), Some(names.iter().map(|name| (*name).to_owned()).collect()), "{text}");
        }
        assert_eq!(column_list(["a", "b"]), "a,b");
        assert_eq!(names_of(" a , \"b,\" "), Some(vec!["a".to_owned(), "b,".to_owned()]));
        for text in ["", ",", "a,", "a,,b", "\"a", "a\"b", "\"a\"b", "\"\""] {
            assert_eq!(names_of(text), None, "{text}");
        }
    }
}
