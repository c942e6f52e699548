//! What columns and the fields inside of them are called.
//!
//! A column of a table is called by its name. A field of a struct is called by the names on the way to it, outermost first.
//! A [`SEPARATOR`] stands between two of them. A map's values under one key are called like a field of a struct. No name
//! holds a separator. So the name of a column means what it always meant, dots and quotes included:
//!
//! ```text
//! in files and predicates   a.b     the column "a.b"        a NUL b   the field b of the column a
//! for people                a.b     as it is                a.b       the names with dots; quoted where they have some
//! ```
//!
//! An index over several columns is on a *composite* of them, whose name is theirs with [`COLUMN_SEPARATOR`] between two.

use std::borrow::Cow;

/// Stands between two names.
pub const SEPARATOR: char = '\0';

/// Stands between two columns of a composite.
pub const COLUMN_SEPARATOR: char = '\u{1}';

/// The columns of a composite, or the only one.
pub fn columns(name: &str) -> impl DoubleEndedIterator<Item = &str> + Clone {
    name.split(COLUMN_SEPARATOR)
}

/// Whether it is a composite of several columns.
#[must_use]
pub fn is_composite(name: &str) -> bool {
    name.contains(COLUMN_SEPARATOR)
}

/// The composite of these columns; of one the column.
#[must_use]
pub fn composite<'a>(columns: impl IntoIterator<Item = &'a str>) -> String {
    joined(columns, COLUMN_SEPARATOR)
}

/// The names, outermost first.
pub fn names(column: &str) -> impl DoubleEndedIterator<Item = &str> + Clone {
    column.split(SEPARATOR)
}

/// Whether it is a field, and no column.
#[must_use]
pub fn is_field(column: &str) -> bool {
    column.contains(SEPARATOR)
}

/// What the field is called that these names lead to; with one name a column.
#[must_use]
pub fn join<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    joined(names, SEPARATOR)
}

fn joined<'a>(names: impl IntoIterator<Item = &'a str>, separator: char) -> String {
    let mut joined = String::new();
    for (place, name) in names.into_iter().enumerate() {
        if place > 0 {
            joined.push(separator);
        }
        joined.push_str(name);
    }
    joined
}

/// A column as it is; the names of a field with dots between them, those quoted that could be misread; the columns of a
/// composite with commas.
#[must_use]
pub fn display(column: &str) -> Cow<'_, str> {
    if is_composite(column) {
        return Cow::Owned(columns(column).map(display).collect::<Vec<_>>().join(", "));
    }
    if !is_field(column) {
        return Cow::Borrowed(column);
    }
    let misread = |name: &str| name.is_empty() || name.contains(['.', '"']);
    let name = |name| if misread(name) { quote(name) } else { name.to_owned() };
    Cow::Owned(names(column).map(name).collect::<Vec<_>>().join("."))
}

/// The names of a field, all of them quoted, with dots between them.
#[must_use]
pub fn quoted(column: &str) -> String {
    names(column).map(quote).collect::<Vec<_>>().join(".")
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Reads what [`display`] and [`quoted`] write of a field; none if it is no such text, or has one name only.
#[must_use]
pub fn parse(text: &str) -> Option<String> {
    let (mut found, mut rest) = (Vec::new(), text);
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                let (name, after) = rest.split_at_checked(end)?;
                (name.to_owned(), after)
            }
        };
        let plain = !rest.starts_with('"');
        if plain && (name.is_empty() || name.contains('"')) || name.contains(SEPARATOR) {
            return None;
        }
        found.push(name);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None if after.is_empty() => break,
            None => return None,
        }
    }
    (found.len() > 1).then(|| join(found.iter().map(String::as_str)))
}

/// The name up to its closing quote, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text);
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stay_what_they_are_called() {
        for column in ["a", "a.b", "\"a\"", "", "größe"] {
            assert!(!is_field(column));
            assert_eq!(display(column), column);
            assert_eq!(names(column).collect::<Vec<_>>(), [column]);
        }
    }

    #[test]
    fn fields_are_shown_with_dots_and_read_again() {
        for (names, expected) in [
            (&["a", "b"][..], "a.b"),
            (&["a", "b", "c"], "a.b.c"),
            (&["a.b", "c"], "\"a.b\".c"),
            (&["a", "b\"c", ""], "a.\"b\"\"c\".\"\""),
        ] {
            let field = join(names.iter().copied());
            assert!(is_field(&field));
            assert_eq!(display(&field), expected);
            assert_eq!(parse(expected), Some(field.clone()));
            assert_eq!(parse(&quoted(&field)), Some(field));
        }
    }

    #[test]
    fn composites_are_shown_with_commas() {
        let both = composite(["a", &join(["b", "c.d"])]);
        assert!(is_composite(&both) && !is_composite("a, b"));
        assert_eq!(columns(&both).collect::<Vec<_>>(), ["a", "b\0c.d"]);
        assert_eq!(display(&both), "a, b.\"c.d\"");
        assert_eq!(composite(["a"]), "a");
    }

    #[test]
    fn what_is_no_field_is_not_read() {
        for text in ["", "a", "\"a\"", "a.", ".a", "a..b", "a.b\"", "\"a.b", "\"a\"b.c", "a.b\0c"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
