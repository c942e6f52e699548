//! The conditions of a query, in the only terms that an index knows: sets of keys per column.
//!
//! An engine translates its own expressions into a [`Predicate`]; whatever it cannot translate
//! exactly becomes [`Predicate::Unknown`], which keeps every row (law 2).

use std::collections::HashMap;
use std::fmt;

use crate::ranges::KeyRanges;

/// SQL's three truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// The row is selected.
    True,
    /// The row is not selected.
    False,
    /// Not known, because a NULL is involved.
    Null,
}

/// A condition on the rows of a table, evaluated by the candidate algebra.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// The same truth value for every row.
    Const(Truth),
    /// A test of one column.
    Leaf(Leaf),
    /// All of them.
    And(Vec<Predicate>),
    /// Any of them.
    Or(Vec<Predicate>),
    /// The opposite; NULL stays NULL.
    Not(Box<Predicate>),
    /// A condition that no index can answer exactly as the engine would.
    Unknown {
        /// Why not.
        reason: Reason,
        /// The condition as SQL, for reports.
        text: String,
    },
}

/// A test of one column, which an index may answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// The column in the table's schema, or a field inside of its structs: see [`lakemark_format::column`].
    pub column: String,
    /// The test of its values.
    pub test: Test,
    /// The condition as SQL, for reports.
    pub text: String,
}

/// What a value has to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// TRUE where the value is NULL, FALSE elsewhere.
    IsNull,
    /// TRUE where the value's key is in the set, NULL where the value is NULL, FALSE elsewhere.
    Ranges(KeyRanges),
    /// Of a list: TRUE where the key of an element is in the set, NULL where the list is NULL, FALSE elsewhere. A row may be in
    /// several such sets, so that neither their intersection nor their complement is a test of its own.
    Elements(KeyRanges),
}

impl Test {
    /// The keys of the test; none of a test for NULL.
    #[must_use]
    pub fn ranges(&self) -> Option<&KeyRanges> {
        match self {
            Self::IsNull => None,
            Self::Ranges(ranges) | Self::Elements(ranges) => Some(ranges),
        }
    }

    /// Bytes of memory that the test takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.ranges().map_or(0, KeyRanges::memory_bytes)
    }
}

/// Why an index does not answer a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No index on the column.
    NoIndex,
    /// No index kind serves the column's type.
    TypeNotIndexed,
    /// The expression has no exact translation.
    ExpressionNotSupported,
    /// The literal is not a value of the column's type (a lossy cast, NaN).
    LiteralNotRepresentable,
    /// The file came after the last build.
    FileNotCovered,
    /// The file is not the one that was indexed.
    FileChanged,
    /// The file says that its dates are not of the Gregorian calendar.
    CalendarRebased,
    /// The segment's file is gone.
    SegmentMissing,
    /// The segment's bytes are damaged.
    SegmentCorrupt,
    /// Indexes are switched off for this query.
    IndexDisabled,
    /// Searching for the rows costs more than reading and testing them.
    ScanIsCheaper,
}

impl Reason {
    /// The stable code of reports, in snake case.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NoIndex => "no_index",
            Self::TypeNotIndexed => "type_not_indexed",
            Self::ExpressionNotSupported => "expression_not_supported",
            Self::LiteralNotRepresentable => "literal_not_representable",
            Self::FileNotCovered => "file_not_covered",
            Self::FileChanged => "file_changed",
            Self::CalendarRebased => "calendar_rebased",
            Self::SegmentMissing => "segment_missing",
            Self::SegmentCorrupt => "segment_corrupt",
            Self::IndexDisabled => "index_disabled",
            Self::ScanIsCheaper => "scan_is_cheaper",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A condition that no index can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCondition<'a> {
    /// The condition as SQL.
    pub text: &'a str,
    /// Why not.
    pub reason: Reason,
}

impl Predicate {
    /// Merges what can be merged: nested AND and OR are flattened, double NOT vanishes, and tests
    /// of the same column by key ranges become one. So `a >= 1 AND a < 9` reads nine values and
    /// not two halves of the column.
    #[must_use]
    pub fn simplify(self) -> Self {
        match self {
            Self::And(parts) => merge_parts(parts, Joint::And),
            Self::Or(parts) => merge_parts(parts, Joint::Or),
            Self::Not(inner) => match inner.simplify() {
                Self::Not(twice) => *twice,
                Self::Const(Truth::True) => Self::Const(Truth::False),
                Self::Const(Truth::False) => Self::Const(Truth::True),
                Self::Const(Truth::Null) => Self::Const(Truth::Null),
                Self::Leaf(Leaf { column, test: Test::Ranges(ranges), text }) => {
                    Self::Leaf(Leaf { column, test: Test::Ranges(ranges.complement()), text: format!("NOT ({text})") })
                }
                other => Self::Not(Box::new(other)),
            },
            other => other,
        }
    }

    /// Keys of a column: where its value has another one, this is not true.
    #[must_use]
    pub fn keys_of(&self, column: &str) -> KeyRanges {
        match self {
            Self::Const(Truth::False | Truth::Null) => KeyRanges::none(),
            Self::Leaf(Leaf { column: tested, test: Test::Ranges(ranges), .. }) if tested == column => ranges.clone(),
            Self::And(parts) => parts.iter().fold(KeyRanges::all(), |keys, part| keys.intersect(&part.keys_of(column))),
            Self::Or(parts) => KeyRanges::union_all(parts.iter().map(|part| part.keys_of(column)).collect()),
            Self::Not(inner) => match inner.as_ref() {
                Self::Leaf(Leaf { column: tested, test: Test::Ranges(ranges), .. }) if tested == column => {
                    ranges.complement()
                }
                _ => KeyRanges::all(),
            },
            Self::Const(Truth::True) | Self::Leaf(_) | Self::Unknown { .. } => KeyRanges::all(),
        }
    }

    /// Every leaf, in the order of the text.
    #[must_use]
    pub fn leaves(&self) -> Vec<&Leaf> {
        match self {
            Self::Const(_) | Self::Unknown { .. } => Vec::new(),
            Self::Leaf(leaf) => vec![leaf],
            Self::And(parts) | Self::Or(parts) => parts.iter().flat_map(Self::leaves).collect(),
            Self::Not(inner) => inner.leaves(),
        }
    }

    /// Every condition that no index can answer.
    #[must_use]
    pub fn unknowns(&self) -> Vec<UnknownCondition<'_>> {
        match self {
            Self::Const(_) | Self::Leaf(_) => Vec::new(),
            Self::Unknown { reason, text } => vec![UnknownCondition { text, reason: *reason }],
            Self::And(parts) | Self::Or(parts) => parts.iter().flat_map(Self::unknowns).collect(),
            Self::Not(inner) => inner.unknowns(),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Joint {
    And,
    Or,
}

impl Joint {
    /// What changes nothing beside others.
    fn neutral(self) -> Truth {
        match self {
            Self::And => Truth::True,
            Self::Or => Truth::False,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::And => " AND ",
            Self::Or => " OR ",
        }
    }
}

/// Over one column `a IN A AND a IN B` is `a IN A ∩ B` in all three truth values, as both are NULL
/// exactly where `a` is. OR likewise is the union. Of tests of elements that holds for OR alone.
fn merge_parts(parts: Vec<Predicate>, joint: Joint) -> Predicate {
    let mut merged: Vec<Merged> = Vec::with_capacity(parts.len());
    let mut places: HashMap<TestedColumn, usize> = HashMap::new();
    for part in parts {
        let is_other_joint = matches!((&part, joint), (Predicate::Or(_), Joint::And) | (Predicate::And(_), Joint::Or));
        let nested = match (part.simplify(), joint) {
            (Predicate::And(inner), Joint::And) | (Predicate::Or(inner), Joint::Or) => inner,
            // Tests of one column that became one: its text goes into that of the others.
            (Predicate::Leaf(leaf), _) if is_other_joint => {
                vec![Predicate::Leaf(Leaf { text: format!("({})", leaf.text), ..leaf })]
            }
            (other, _) => vec![other],
        };
        for part in nested {
            let (tested, set, text) = match part {
                Predicate::Leaf(Leaf { column, test: Test::Ranges(set), text }) => {
                    (TestedColumn { column, of_elements: false }, set, text)
                }
                // Of lists that have an element in A and one in B, none may have one in both.
                Predicate::Leaf(Leaf { column, test: Test::Elements(set), text }) if joint == Joint::Or => {
                    (TestedColumn { column, of_elements: true }, set, text)
                }
                other => {
                    merged.push(Merged::Other(other));
                    continue;
                }
            };
            match places.get(&tested).and_then(|place| merged.get_mut(*place)) {
                Some(Merged::Tests { sets, text: texts, .. }) => {
                    sets.push(set);
                    // Both bounds of a BETWEEN have its text.
                    if *texts != text {
                        texts.push_str(joint.word());
                        texts.push_str(&text);
                    }
                }
                _ => {
                    places.insert(tested.clone(), merged.len());
                    merged.push(Merged::Tests { tested, sets: vec![set], text });
                }
            }
        }
    }
    let mut merged: Vec<Predicate> = merged.into_iter().map(|part| part.finish(joint)).collect();
    if merged.len() > 1 {
        let neutral = Predicate::Const(joint.neutral());
        merged.retain(|part| *part != neutral);
        if merged.is_empty() {
            return neutral;
        }
    }
    match merged.len() {
        1 => merged.remove(0),
        _ if joint == Joint::And => Predicate::And(merged),
        _ => Predicate::Or(merged),
    }
}

/// What the tests of a column must have in common to become one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TestedColumn {
    column: String,
    /// They are of its elements, not of its values.
    of_elements: bool,
}

/// A part of a conjunction or disjunction while parts are merged.
enum Merged {
    /// The tests of one column by ranges.
    Tests { tested: TestedColumn, sets: Vec<KeyRanges>, text: String },
    /// Anything else.
    Other(Predicate),
}

impl Merged {
    fn finish(self, joint: Joint) -> Predicate {
        match self {
            Self::Tests { tested: TestedColumn { column, of_elements }, sets, text } => {
                let set = match joint {
                    Joint::And => sets.into_iter().reduce(|all, set| all.intersect(&set)).unwrap_or_default(),
                    Joint::Or => KeyRanges::union_all(sets),
                };
                let test = if of_elements { Test::Elements(set) } else { Test::Ranges(set) };
                Predicate::Leaf(Leaf { column, test, text })
            }
            Self::Other(predicate) => predicate,
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Predicate], word: &str| {
            f.write_str("(")?;
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    f.write_str(word)?;
                }
                write!(f, "{part}")?;
            }
            f.write_str(")")
        };
        match self {
            Self::Const(truth) => write!(f, "{truth:?}"),
            Self::Leaf(leaf) => f.write_str(&leaf.text),
            Self::And(parts) => joined(f, parts, Joint::And.word()),
            Self::Or(parts) => joined(f, parts, Joint::Or.word()),
            Self::Not(inner) => write!(f, "NOT ({inner})"),
            Self::Unknown { text, .. } => f.write_str(text),
        }
    }
}
