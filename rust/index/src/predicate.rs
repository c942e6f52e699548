//! What a query asks of rows, in the only terms that an index knows: sets of keys per column.
//!
//! An engine translates its own expressions into a [`Predicate`]; whatever it cannot translate
//! exactly becomes [`Predicate::Unknown`], which keeps every row (law 2).

use std::fmt;
use std::ops::Bound;

use lakemark_format::key::Key;

/// SQL's three truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// The row is chosen.
    True,
    /// The row is not chosen.
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
        /// The condition as the engine prints it, for reports.
        text: String,
    },
}

/// A test of one column, which an index may answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// Name of the column in the table's schema.
    pub column: String,
    /// What is asked of the column.
    pub test: Test,
    /// The condition as the engine prints it, for reports.
    pub text: String,
}

/// What is asked of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// TRUE where the value is NULL, FALSE elsewhere.
    IsNull,
    /// TRUE where the value's key is in the set, NULL where the value is NULL, FALSE elsewhere.
    Ranges(KeyRanges),
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
    /// The segment's file is gone.
    SegmentMissing,
    /// The segment's bytes are damaged.
    SegmentCorrupt,
    /// Indexes are switched off for this query.
    IndexDisabled,
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
            Self::SegmentMissing => "segment_missing",
            Self::SegmentCorrupt => "segment_corrupt",
            Self::IndexDisabled => "index_disabled",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Predicate {
    /// Merges what can be merged: nested AND and OR are flattened, double NOT vanishes, and tests
    /// of the same column by key ranges become one (so `a >= 1 AND a < 9` reads nine values and
    /// not two halves of the column).
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
                Self::Leaf(Leaf {
                    column,
                    test: Test::Ranges(ranges),
                    text,
                }) => Self::Leaf(Leaf {
                    column,
                    test: Test::Ranges(ranges.complement()),
                    text: format!("NOT ({text})"),
                }),
                other => Self::Not(Box::new(other)),
            },
            other => other,
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

    /// Every condition that no index can answer, with its reason.
    #[must_use]
    pub fn unknowns(&self) -> Vec<(&str, Reason)> {
        match self {
            Self::Const(_) | Self::Leaf(_) => Vec::new(),
            Self::Unknown { reason, text } => vec![(text, *reason)],
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
    fn word(self) -> &'static str {
        match self {
            Self::And => " AND ",
            Self::Or => " OR ",
        }
    }
}

/// Over one column `a IN A AND a IN B` is `a IN A ∩ B` in all three truth values (both are NULL
/// exactly where `a` is), and OR likewise is the union.
fn merge_parts(parts: Vec<Predicate>, joint: Joint) -> Predicate {
    let mut merged: Vec<Predicate> = Vec::with_capacity(parts.len());
    for part in parts {
        let nested = match (part.simplify(), joint) {
            (Predicate::And(inner), Joint::And) | (Predicate::Or(inner), Joint::Or) => inner,
            (other, _) => vec![other],
        };
        for part in nested {
            absorb(&mut merged, part, joint);
        }
    }
    match merged.len() {
        1 => merged.remove(0),
        _ if joint == Joint::And => Predicate::And(merged),
        _ => Predicate::Or(merged),
    }
}

fn absorb(merged: &mut Vec<Predicate>, part: Predicate, joint: Joint) {
    if let Predicate::Leaf(Leaf {
        column,
        test: Test::Ranges(ranges),
        text,
    }) = &part
    {
        for earlier in merged.iter_mut() {
            if let Predicate::Leaf(Leaf {
                column: same,
                test: Test::Ranges(have),
                text: have_text,
            }) = earlier
                && same == column
            {
                *have = match joint {
                    Joint::And => have.intersect(ranges),
                    Joint::Or => have.union(ranges),
                };
                *have_text = format!("{have_text}{}{text}", joint.word());
                return;
            }
        }
    }
    merged.push(part);
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

/// A set of keys: disjoint, ascending ranges that do not touch.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyRanges(Vec<KeyRange>);

/// Keys from `low` to `high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Where the range begins.
    pub low: Bound<Key>,
    /// Where it ends.
    pub high: Bound<Key>,
}

impl KeyRange {
    /// The range's only key, if it has just one.
    #[must_use]
    pub fn point(&self) -> Option<&Key> {
        match (&self.low, &self.high) {
            (Bound::Included(low), Bound::Included(high)) if low == high => Some(low),
            _ => None,
        }
    }

    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.begins_at_or_before(key) && !self.ends_before(key)
    }

    /// Whether the range begins at or before `key`.
    #[must_use]
    pub fn begins_at_or_before(&self, key: &Key) -> bool {
        match &self.low {
            Bound::Unbounded => true,
            Bound::Included(low) => low <= key,
            Bound::Excluded(low) => low < key,
        }
    }

    /// Whether every key of the range is less than `key`.
    #[must_use]
    pub fn ends_before(&self, key: &Key) -> bool {
        match &self.high {
            Bound::Unbounded => false,
            Bound::Included(high) => high < key,
            Bound::Excluded(high) => high <= key,
        }
    }

    fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (
                Bound::Included(low) | Bound::Excluded(low),
                Bound::Included(high) | Bound::Excluded(high),
            ) => low >= high,
        }
    }
}

impl KeyRanges {
    /// No key.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![KeyRange {
            low: Bound::Unbounded,
            high: Bound::Unbounded,
        }])
    }

    /// Keys between two bounds.
    #[must_use]
    pub fn between(low: Bound<Key>, high: Bound<Key>) -> Self {
        let range = KeyRange { low, high };
        Self(if range.is_empty() {
            Vec::new()
        } else {
            vec![range]
        })
    }

    /// One key.
    #[must_use]
    pub fn point(key: Key) -> Self {
        Self::between(Bound::Included(key.clone()), Bound::Included(key))
    }

    /// The listed keys, in any order, repeated or not.
    #[must_use]
    pub fn points(mut keys: Vec<Key>) -> Self {
        keys.sort();
        keys.dedup();
        Self(
            keys.into_iter()
                .map(|key| KeyRange {
                    low: Bound::Included(key.clone()),
                    high: Bound::Included(key),
                })
                .collect(),
        )
    }

    /// Keys below `key`, with `key` itself if `inclusive`.
    #[must_use]
    pub fn less_than(key: Key, inclusive: bool) -> Self {
        let high = if inclusive {
            Bound::Included(key)
        } else {
            Bound::Excluded(key)
        };
        Self::between(Bound::Unbounded, high)
    }

    /// Keys above `key`, with `key` itself if `inclusive`.
    #[must_use]
    pub fn greater_than(key: Key, inclusive: bool) -> Self {
        let low = if inclusive {
            Bound::Included(key)
        } else {
            Bound::Excluded(key)
        };
        Self::between(low, Bound::Unbounded)
    }

    /// Byte keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut successor = prefix.to_vec();
        while successor.last() == Some(&u8::MAX) {
            successor.pop();
        }
        let high = match successor.last_mut() {
            None => Bound::Unbounded,
            Some(last) => {
                *last += 1;
                Bound::Excluded(Key::Bytes(successor))
            }
        };
        Self::between(Bound::Included(Key::Bytes(prefix.to_vec())), high)
    }

    /// The ranges, ascending and disjoint.
    #[must_use]
    pub fn ranges(&self) -> &[KeyRange] {
        &self.0
    }

    /// Whether `key` is in the set.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        let first = self.0.partition_point(|range| range.ends_before(key));
        self.0.get(first).is_some_and(|range| range.contains(key))
    }

    /// Keys in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut ranges = Vec::new();
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let both = KeyRange {
                low: if low_order(&x.low, &y.low).is_lt() {
                    y.low.clone()
                } else {
                    x.low.clone()
                },
                high: if high_order(&x.high, &y.high).is_lt() {
                    x.high.clone()
                } else {
                    y.high.clone()
                },
            };
            if !both.is_empty() {
                ranges.push(both);
            }
            if high_order(&x.high, &y.high).is_lt() {
                a.next();
            } else {
                b.next();
            }
        }
        Self(ranges)
    }

    /// Keys that are not in the set.
    #[must_use]
    pub fn complement(&self) -> Self {
        let mut ranges = Vec::with_capacity(self.0.len() + 1);
        let mut low = Bound::Unbounded;
        let mut open = true;
        for range in &self.0 {
            if let Some(high) = flip(&range.low) {
                let gap = KeyRange {
                    low: low.clone(),
                    high,
                };
                if !gap.is_empty() {
                    ranges.push(gap);
                }
            }
            match flip(&range.high) {
                Some(next) => low = next,
                None => open = false,
            }
        }
        if open {
            ranges.push(KeyRange {
                low,
                high: Bound::Unbounded,
            });
        }
        Self(ranges)
    }

    /// Keys in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.complement()
            .intersect(&other.complement())
            .complement()
    }
}

/// The bound of the complement; none where the range is open.
fn flip(bound: &Bound<Key>) -> Option<Bound<Key>> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(Bound::Excluded(key.clone())),
        Bound::Excluded(key) => Some(Bound::Included(key.clone())),
    }
}

/// Which range begins first: (key, 0 if it is taken in).
fn low_order(a: &Bound<Key>, b: &Bound<Key>) -> std::cmp::Ordering {
    fn rank(bound: &Bound<Key>) -> Option<(&Key, u8)> {
        match bound {
            Bound::Unbounded => None,
            Bound::Included(key) => Some((key, 0)),
            Bound::Excluded(key) => Some((key, 1)),
        }
    }
    rank(a).cmp(&rank(b))
}

/// Which range ends first: an open end is last.
fn high_order(a: &Bound<Key>, b: &Bound<Key>) -> std::cmp::Ordering {
    fn rank(bound: &Bound<Key>) -> (bool, Option<(&Key, u8)>) {
        match bound {
            Bound::Unbounded => (true, None),
            Bound::Excluded(key) => (false, Some((key, 0))),
            Bound::Included(key) => (false, Some((key, 1))),
        }
    }
    rank(a).cmp(&rank(b))
}
