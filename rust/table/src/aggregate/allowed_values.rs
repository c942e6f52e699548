//! Which values of a column the rows can have that a predicate selects.

use lakemark_index::{KeyRanges, Leaf, Predicate, Test};

/// What a predicate says of the values that a column has in the selected rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AllowedValues {
    /// The ranges that have the keys of these values.
    pub(super) ranges: KeyRanges,
    /// Whether some rows may be NULL.
    pub(super) nulls: bool,
    /// Whether every row with such a value is selected.
    pub(super) sole_condition: bool,
}

impl AllowedValues {
    pub(super) fn by(predicate: &Predicate, column: &str) -> Self {
        let parts = match predicate {
            Predicate::And(parts) => parts.as_slice(),
            part => std::slice::from_ref(part),
        };
        let own = parts.iter().find_map(|part| Self::by_test(part, column));
        match own {
            Some(own) => Self { sole_condition: parts.len() == 1, ..own },
            None => Self { ranges: KeyRanges::all(), nulls: true, sole_condition: false },
        }
    }

    fn by_test(part: &Predicate, column: &str) -> Option<Self> {
        let test = |part: &Predicate| match part {
            Predicate::Leaf(Leaf { column: tested, test, .. }) if tested == column => Some(test.clone()),
            _ => None,
        };
        match (test(part), part) {
            (Some(Test::Ranges(ranges)), _) => Some(Self { ranges, nulls: false, sole_condition: false }),
            (Some(Test::IsNull), _) => Some(Self { ranges: KeyRanges::none(), nulls: true, sole_condition: false }),
            (None, Predicate::Not(inner)) if test(inner) == Some(Test::IsNull) => {
                Some(Self { ranges: KeyRanges::all(), nulls: false, sole_condition: false })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lakemark_format::key::Key;

    #[test]
    fn tests_of_the_column_say_which_values_are_selected() {
        let leaf =
            |column: &str, test: Test| Predicate::Leaf(Leaf { column: column.into(), test, text: String::new() });
        let one = KeyRanges::point(Key::Fixed(1));
        let ranges = || leaf("a", Test::Ranges(KeyRanges::point(Key::Fixed(1))));
        let everything = AllowedValues { ranges: KeyRanges::all(), nulls: true, sole_condition: false };
        for (predicate, expected) in [
            (Predicate::And(Vec::new()), everything.clone()),
            (leaf("b", Test::IsNull), everything.clone()),
            (Predicate::Or(vec![ranges(), leaf("b", Test::IsNull)]), everything),
            (ranges(), AllowedValues { ranges: one.clone(), nulls: false, sole_condition: true }),
            (
                Predicate::And(vec![leaf("b", Test::IsNull), ranges()]),
                AllowedValues { ranges: one, nulls: false, sole_condition: false },
            ),
            (leaf("a", Test::IsNull), AllowedValues { ranges: KeyRanges::none(), nulls: true, sole_condition: true }),
            (
                Predicate::Not(Box::new(leaf("a", Test::IsNull))),
                AllowedValues { ranges: KeyRanges::all(), nulls: false, sole_condition: true },
            ),
        ] {
            assert_eq!(AllowedValues::by(&predicate, "a"), expected, "{predicate}");
        }
    }
}
