//! Conditions on several columns become one, where an index over these columns answers it.
//!
//! ```text
//! a = 1 AND b IN (2, 3) AND d > 4          an index over (a, b, c)
//!   ▶  (a, b, c) in [(1, 2), after all that begin with (1, 3)) AND d > 4
//! ```
//!
//! The condition on the composite is TRUE for the same rows, and never NULL: where the others are NULL or FALSE it is FALSE. So conditions
//! are put together where only their being TRUE counts. That is so below AND and OR, and not below NOT.

use std::cmp::Reverse;

use arrow::array::{Array, ArrayRef};
use lakemark_format::{KeyType, ManifestIndex, column};
use lakemark_index::{KeyRanges, Leaf, Predicate, Test, composite_points, composite_ranges};

use crate::index_kind::IndexKind;
use crate::snapshot::Snapshot;

/// Ranges of keys that a condition is made of, at most: lists of values multiply.
const MOST_RANGES: usize = 16_384;

impl Snapshot {
    /// The predicate that indexes are probed with: simplified, and in terms of indexes over several columns where there are some. It is
    /// true of the same rows, and may be false where the other is NULL.
    #[must_use]
    pub fn with_composites(&self, predicate: &Predicate) -> Predicate {
        let simple = predicate.clone().simplify();
        let composites = Composite::all(self);
        if composites.is_empty() { simple } else { composed(&composites, simple).simplify() }
    }

    /// The condition that a row has one of the keys in these columns, given as a column each. An index that begins with these columns, in
    /// any order, gets it as one condition. A NULL in a key is a value like any other. None for a single column, without such an index, if
    /// an index on the first column alone knows more files, or if a key has no place in the index.
    #[must_use]
    pub fn composite_lookup(&self, columns: &[String], keys: &[ArrayRef]) -> Option<Predicate> {
        if columns.len() < 2 {
            return None;
        }
        let composites = Composite::all(self);
        let fits = composites.iter().filter_map(|composite| Some((composite, composite.places_of(columns)?)));
        let best = fits.max_by_key(|(composite, _)| (composite.covered, Reverse(composite.types.len())));
        let (composite, places) = best?;
        if composite.is_outdone(columns.first()?) {
            return None;
        }
        let ordered: Vec<ArrayRef> = places.into_iter().filter_map(|place| keys.get(place).cloned()).collect();
        let count = ordered.first()?.len();
        let test = Test::Ranges(composite_points(composite.types, &ordered)?);
        let text = format!("({}) is one of {count} keys", column::display(&composite.name));
        Some(Predicate::Leaf(Leaf { column: composite.name.clone(), test, text }))
    }
}

fn composed(composites: &[Composite<'_>], predicate: Predicate) -> Predicate {
    match predicate {
        Predicate::Leaf(_) => conjunction(composites, vec![predicate]),
        Predicate::And(parts) => {
            let inner = |part| if matches!(part, Predicate::Leaf(_)) { part } else { composed(composites, part) };
            conjunction(composites, parts.into_iter().map(inner).collect())
        }
        Predicate::Or(parts) => Predicate::Or(parts.into_iter().map(|part| composed(composites, part)).collect()),
        other => other,
    }
}

/// Puts parts of a conjunction together as long as an index takes some of them.
fn conjunction(composites: &[Composite<'_>], mut parts: Vec<Predicate>) -> Predicate {
    loop {
        let fits = composites.iter().filter_map(|composite| Some((composite, composite.fit(&parts)?)));
        // The one that knows most files, then the most conditions. Of equal ones the one over the fewest columns, whose keys are the
        // shortest.
        let best = fits.max_by_key(|(composite, fit)| (composite.covered, fit.columns, Reverse(composite.types.len())));
        let Some((_, fit)) = best else { break };
        let mut place = 0;
        parts.retain(|_| {
            place += 1;
            !fit.places.contains(&(place - 1))
        });
        parts.push(Predicate::Leaf(fit.leaf));
    }
    match parts.len() {
        1 => parts.remove(0),
        _ => Predicate::And(parts),
    }
}

/// An index over several columns.
struct Composite<'a> {
    snapshot: &'a Snapshot,
    /// The name that the composite shows.
    name: String,
    types: &'a [KeyType],
    /// Data files that it knows.
    covered: u64,
}

/// A condition on a composite in the place of some parts of a conjunction.
struct Fit {
    /// Columns with a condition.
    columns: usize,
    /// The conditions, and those that follow from these: a value that is in a set is not NULL.
    places: Vec<usize>,
    leaf: Leaf,
}

impl<'a> Composite<'a> {
    fn all(snapshot: &'a Snapshot) -> Vec<Self> {
        let Some(manifest) = &snapshot.manifest else { return Vec::new() };
        let of_index = |index: &'a ManifestIndex| {
            let KeyType::Composite(types) = &index.key_type else { return None };
            let is_usable = index.kind.known().is_some_and(IndexKind::finds_rows) && snapshot.is_usable(index);
            let name = is_usable.then(|| snapshot.logical_name(&index.column)).flatten()?.into_owned();
            Some(Self { snapshot, name, types, covered: covered(snapshot, index) })
        };
        manifest.indexes().filter_map(of_index).collect()
    }

    /// Where each of its first columns is among `columns`, if they are just these.
    fn places_of(&self, columns: &[String]) -> Option<Vec<usize>> {
        let first = column::columns(&self.name).take(columns.len());
        let places: Vec<usize> = first.filter_map(|column| columns.iter().position(|have| have == column)).collect();
        (places.len() == columns.len()).then_some(places)
    }

    /// A condition on its first columns; none if there are no conditions on these, or if other indexes know more.
    fn fit(&self, parts: &[Predicate]) -> Option<Fit> {
        let (mut places, mut sets, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        let mut ranges = 1_usize;
        for column in column::columns(&self.name) {
            let Some(ColumnCondition { place, leaf, set }) = condition_on(parts, column) else { break };
            ranges = ranges.saturating_mul(set.ranges().len());
            if ranges > MOST_RANGES || self.knows_fewer_files(self.snapshot.indexes_for(leaf)) {
                break;
            }
            places.push(place);
            places.extend(not_null(parts, column));
            sets.push(set);
            texts.push(leaf.text.as_str());
            if !set.are_points() {
                break;
            }
        }
        // One condition is better left to an index of its own column, if that can answer it.
        let has_own =
            |part: &Predicate| matches!(part, Predicate::Leaf(leaf) if !self.snapshot.indexes_for(leaf).is_empty());
        let is_alone = sets.len() == 1 && places.first().and_then(|place| parts.get(*place)).is_some_and(has_own);
        if sets.is_empty() || is_alone {
            return None;
        }
        let test = Test::Ranges(composite_ranges(self.types, &sets));
        Some(Fit {
            columns: sets.len(),
            places,
            leaf: Leaf { column: self.name.clone(), test, text: texts.join(" AND ") },
        })
    }

    /// Whether the column has an index of its own that knows more files.
    fn is_outdone(&self, column: &str) -> bool {
        self.knows_fewer_files(self.snapshot.indexes_of(column))
    }

    /// Whether one of these indexes knows more files.
    fn knows_fewer_files(&self, others: Vec<&ManifestIndex>) -> bool {
        others.into_iter().any(|index| covered(self.snapshot, index) > self.covered)
    }
}

/// A condition on a column, among the parts of a conjunction.
struct ColumnCondition<'a> {
    place: usize,
    leaf: &'a Leaf,
    /// The keys that meet the condition.
    set: &'a KeyRanges,
}

fn condition_on<'a>(parts: &'a [Predicate], column: &str) -> Option<ColumnCondition<'a>> {
    parts.iter().enumerate().find_map(|(place, part)| match part {
        Predicate::Leaf(leaf @ Leaf { column: tested, test: Test::Ranges(set), .. }) if tested == column => {
            Some(ColumnCondition { place, leaf, set })
        }
        _ => None,
    })
}

/// The places of the conditions that a column is not NULL.
fn not_null<'a>(parts: &'a [Predicate], column: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_not_null = move |part: &Predicate| match part {
        Predicate::Not(inner) => {
            matches!(inner.as_ref(), Predicate::Leaf(leaf) if leaf.column == column && leaf.test == Test::IsNull)
        }
        _ => false,
    };
    parts.iter().enumerate().filter(move |(_, part)| is_not_null(part)).map(|(place, _)| place)
}

/// Data files that an index knows.
fn covered(snapshot: &Snapshot, index: &ManifestIndex) -> u64 {
    let segments = snapshot.manifest.iter().flat_map(|manifest| manifest.segments());
    let of_index = segments.filter(|segment| segment.index_id == index.id);
    of_index.map(|segment| segment.files.len()).sum()
}
