//! A list in parts, which it shares with the list that it was made from.
//!
//! ```text
//! before   [ a b c d ] [ e f g h ] [ i j k ]
//! after    [ a b c d ] [ e g h ]   [ i j k ]       a part is copied where something in it changed
//! ```
//!
//! A change costs a part, and a pointer for each of the others. An item is found by its place in as many steps as there are halves.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::slice;
use std::sync::Arc;

/// Items of a part. A part that grows to twice as many becomes two.
const PART_ITEMS: usize = 256;
/// For so many times as many parts as full ones would be, the list is cut anew.
const RAGGED: usize = 4;

/// A list whose clones share all of its items, and whose changed copies share the parts that did not change.
pub struct PartedList<T> {
    parts: Arc<Vec<ListPart<T>>>,
}

/// A part of a list. It has an item at least.
struct ListPart<T> {
    /// The place of its first item in the list.
    first: usize,
    items: Arc<Vec<T>>,
}

/// A change at a place of a list as it was before all changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListEdit<T> {
    /// The place that the change is about; the length of the list for its end.
    pub place: usize,
    /// Whether the item at the place goes.
    pub removes: bool,
    /// An item that comes before whatever stays at the place or behind it.
    pub item: Option<T>,
}

impl<T> PartedList<T> {
    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.last().map_or(0, |part| part.first + part.items.len())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The item at a place.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&T> {
        look_at(1);
        let part = self.parts.get(self.part_of(place)?)?;
        part.items.get(place - part.first)
    }

    /// The items in order.
    #[must_use]
    pub fn iter(&self) -> PartedIter<'_, T> {
        PartedIter { parts: self.parts.iter(), items: slice::Iter::default(), left: self.len() }
    }

    /// How many items come before all others, where `is_before` is true of these alone.
    pub(crate) fn partition_point(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let number = self.parts.partition_point(|part| part.items.last().is_some_and(&is_before));
        let Some(part) = self.parts.get(number) else { return self.len() };
        part.first + part.items.partition_point(is_before)
    }

    /// The parts in order. Lists that share a part have the same allocation.
    pub(crate) fn parts(&self) -> impl ExactSizeIterator<Item = &Arc<Vec<T>>> {
        self.parts.iter().map(|part| &part.items)
    }

    /// Whether both share all of their items.
    #[must_use]
    pub fn is_same_list(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Arc<Vec<T>>, &Arc<Vec<T>>)| Arc::ptr_eq(one, other);
        Arc::ptr_eq(&self.parts, &other.parts)
            || (self.parts.len() == other.parts.len() && self.parts().zip(other.parts()).all(is_same))
    }

    /// Whether they have as many items, and `is_same` is true of each two at one place. Shared parts are not looked at.
    pub(crate) fn eq_by(&self, other: &Self, is_same: impl Fn(&T, &T) -> bool) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let is_cut_alike = self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&*other.parts).all(|(one, other)| one.first == other.first);
        if !is_cut_alike {
            return self.iter().zip(other).all(|(one, other)| is_same(one, other));
        }
        self.parts().zip(other.parts()).all(|(one, other)| {
            Arc::ptr_eq(one, other) || {
                look_at(one.len());
                one.iter().zip(&**other).all(|(one, other)| is_same(one, other))
            }
        })
    }

    /// The number of the part that has a place.
    fn part_of(&self, place: usize) -> Option<usize> {
        self.parts.partition_point(|part| part.first <= place).checked_sub(1)
    }

    fn of_parts(items: impl IntoIterator<Item = Arc<Vec<T>>>) -> Self {
        let mut first = 0;
        let part = |items: Arc<Vec<T>>| {
            let part = ListPart { first, items };
            first += part.items.len();
            part
        };
        Self { parts: Arc::new(items.into_iter().filter(|items| !items.is_empty()).map(part).collect()) }
    }
}

impl<T: Clone> PartedList<T> {
    /// The item at a place, to be changed. Its part is copied if another list shares it.
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        look_at(1);
        let number = self.part_of(place)?;
        let part = Arc::make_mut(&mut self.parts).get_mut(number)?;
        Arc::make_mut(&mut part.items).get_mut(place - part.first)
    }

    /// The list with these changes, which are in the order of their places. At one place what comes is before what goes.
    #[must_use]
    pub(crate) fn edited(&self, edits: impl IntoIterator<Item = ListEdit<T>>) -> Self {
        let mut edits = edits.into_iter().peekable();
        let mut parts = Vec::with_capacity(self.parts.len() + 1);
        for (number, part) in self.parts.iter().enumerate() {
            let (end, is_last) = (part.first + part.items.len(), number + 1 == self.parts.len());
            let own: Vec<ListEdit<T>> =
                std::iter::from_fn(|| edits.next_if(|edit| is_last || edit.place < end)).collect();
            match own.is_empty() {
                true => parts.push(Arc::clone(&part.items)),
                false => parts.extend(cut(part.edited(own))),
            }
        }
        parts.extend(cut(edits.filter_map(|edit| edit.item).collect()));
        let edited = Self::of_parts(parts);
        let is_ragged = edited.parts.len() > RAGGED * (edited.len() / PART_ITEMS + 1);
        if is_ragged { edited.iter().cloned().collect() } else { edited }
    }
}

impl<T: Clone> PartedList<T> {
    /// The changes that lead from another list to this one. Both are in this order. Parts that both share are not looked at.
    pub(crate) fn edits_since(
        &self,
        before: &Self,
        order: impl Fn(&T, &T) -> Ordering,
        is_same: impl Fn(&T, &T) -> bool,
    ) -> Vec<ListEdit<T>> {
        let shared: HashMap<*const Vec<T>, usize> = before.parts().map(Arc::as_ptr).zip(0..).collect();
        let (mut edits, mut was, mut now) = (Vec::new(), 0, 0);
        let mut compare = |was: &[ListPart<T>], now: &[ListPart<T>], place: usize| {
            let (mut was, mut now, mut place) = (items_of(was).peekable(), items_of(now).peekable(), place);
            loop {
                let order = match (was.peek(), now.peek()) {
                    (None, None) => return,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some(was), Some(now)) => order(was, now),
                };
                let (was, now) = (was.next_if(|_| order.is_le()), now.next_if(|_| order.is_ge()));
                if !was.zip(now).is_some_and(|(was, now)| is_same(was, now)) {
                    edits.push(ListEdit { place, removes: was.is_some(), item: now.cloned() });
                }
                place += usize::from(was.is_some());
            }
        };
        // Between two parts that both share there may be others of either list.
        let place_of = |part: usize| before.parts.get(part).map_or(before.len(), |part| part.first);
        for (number, part) in self.parts.iter().enumerate() {
            let Some(&same) = shared.get(&Arc::as_ptr(&part.items)).filter(|same| **same >= was) else { continue };
            let between = (before.parts.get(was..same), self.parts.get(now..number));
            compare(between.0.unwrap_or_default(), between.1.unwrap_or_default(), place_of(was));
            (was, now) = (same + 1, number + 1);
        }
        let rest = (before.parts.get(was..), self.parts.get(now..));
        compare(rest.0.unwrap_or_default(), rest.1.unwrap_or_default(), place_of(was));
        edits
    }
}

/// The items of parts in a row.
fn items_of<T>(parts: &[ListPart<T>]) -> impl Iterator<Item = &T> {
    parts.iter().flat_map(|part| part.items.iter())
}

impl<T: Clone> ListPart<T> {
    fn edited(&self, edits: Vec<ListEdit<T>>) -> Vec<T> {
        look_at(self.items.len());
        let mut items = Vec::with_capacity(self.items.len() + edits.len());
        let mut next = 0;
        for ListEdit { place, removes, item } in edits {
            let at = place.saturating_sub(self.first).min(self.items.len());
            items.extend(self.items.get(next..at).unwrap_or_default().iter().cloned());
            items.extend(item);
            next = next.max(at + usize::from(removes));
        }
        items.extend(self.items.get(next..).unwrap_or_default().iter().cloned());
        items
    }
}

/// Items as parts: one, or several if they are too many for one.
fn cut<T>(items: Vec<T>) -> Vec<Arc<Vec<T>>> {
    if items.len() <= 2 * PART_ITEMS {
        return vec![Arc::new(items)];
    }
    let mut parts = Vec::with_capacity(items.len() / PART_ITEMS + 1);
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        parts.push(Arc::new(items.by_ref().take(PART_ITEMS).collect()));
    }
    parts
}

impl<T> From<Vec<T>> for PartedList<T> {
    fn from(items: Vec<T>) -> Self {
        Self::of_parts(cut(items))
    }
}

impl<T> FromIterator<T> for PartedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        items.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T> Default for PartedList<T> {
    fn default() -> Self {
        Self { parts: Arc::default() }
    }
}

impl<T> Clone for PartedList<T> {
    fn clone(&self) -> Self {
        Self { parts: Arc::clone(&self.parts) }
    }
}

impl<T> Clone for ListPart<T> {
    fn clone(&self) -> Self {
        Self { first: self.first, items: Arc::clone(&self.items) }
    }
}

impl<T: PartialEq> PartialEq for PartedList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.eq_by(other, T::eq)
    }
}

impl<T: fmt::Debug> fmt::Debug for PartedList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<'a, T> IntoIterator for &'a PartedList<T> {
    type Item = &'a T;
    type IntoIter = PartedIter<'a, T>;

    fn into_iter(self) -> PartedIter<'a, T> {
        self.iter()
    }
}

/// The items of a [`PartedList`].
pub struct PartedIter<'a, T> {
    parts: slice::Iter<'a, ListPart<T>>,
    items: slice::Iter<'a, T>,
    left: usize,
}

impl<'a, T> Iterator for PartedIter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.items.next() {
                look_at(1);
                self.left -= 1;
                return Some(item);
            }
            self.items = self.parts.next()?.items.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for PartedIter<'_, T> {}

impl<T> Clone for PartedIter<'_, T> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), items: self.items.clone(), left: self.left }
    }
}

impl<T> fmt::Debug for PartedIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartedIter").field("left", &self.left).finish_non_exhaustive()
    }
}

/// Items are looked at, or copied: tests count them.
#[inline]
fn look_at(items: usize) {
    #[cfg(test)]
    looks::add(items);
    let _ = items;
}

/// How many items of lists are looked at.
#[cfg(test)]
pub(crate) mod looks {
    use std::cell::Cell;

    thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn add(items: usize) {
        LOOKS.set(LOOKS.get() + items as u64);
    }

    /// How many items this thread has looked at since it asked last.
    pub(crate) fn take() -> u64 {
        LOOKS.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(place: usize, removes: bool, item: Option<u32>) -> ListEdit<u32> {
        ListEdit { place, removes, item }
    }

    fn items(list: &PartedList<u32>) -> Vec<u32> {
        list.iter().copied().collect()
    }

    /// The same changes of a plain list.
    fn applied(before: &[u32], edits: &[ListEdit<u32>]) -> Vec<u32> {
        let mut after = Vec::new();
        for place in 0..=before.len() {
            let here = || edits.iter().filter(|edit| edit.place == place);
            after.extend(here().filter_map(|edit| edit.item));
            if !here().any(|edit| edit.removes) {
                after.extend(before.get(place));
            }
        }
        after
    }

    #[test]
    fn a_changed_list_shares_the_parts_that_did_not_change() {
        let before: PartedList<u32> = (0..3000).collect();
        let after = before.edited([edit(1000, true, None), edit(1001, false, Some(7))]);
        let shared = before.parts().filter(|part| after.parts().any(|other| Arc::ptr_eq(part, other)));
        assert_eq!(shared.count(), before.parts().len() - 1);
        assert_eq!(
            (after.len(), after.get(999), after.get(1000), after.get(1001)),
            (3000, Some(&999), Some(&7), Some(&1001))
        );
        assert_eq!((before.get(1000), before.get(3000)), (Some(&1000), None));
    }

    #[test]
    fn a_changed_item_leaves_other_lists_as_they_are() {
        let before: PartedList<u32> = (0..600).collect();
        let mut after = before.clone();
        assert!(after.is_same_list(&before));
        *after.get_mut(300).unwrap() = 7;
        assert_eq!((before.get(300), after.get(300)), (Some(&300), Some(&7)));
        assert_eq!(after.get_mut(600), None);
        assert!(!after.is_same_list(&before) && after != before);
    }

    #[test]
    fn a_list_that_loses_most_of_its_items_is_cut_anew() {
        let before: PartedList<u32> = (0..100_000).collect();
        let after = before.edited((0..100_000).filter(|place| place % 250 != 0).map(|place| edit(place, true, None)));
        assert_eq!((after.len(), after.parts().len()), (400, 1));
        assert_eq!(after.iter().len(), 400);
    }

    #[test]
    fn shared_parts_are_not_looked_at_for_what_differs() {
        let before: PartedList<u32> = (0..6000).map(|item| 2 * item).collect();
        let after =
            before.edited([edit(1000, true, None), edit(1001, false, Some(2001)), edit(6000, false, Some(12_000))]);
        let looks = std::cell::Cell::new(0);
        let order = |one: &u32, other: &u32| {
            looks.set(looks.get() + 1);
            one.cmp(other)
        };
        let edits = after.edits_since(&before, order, u32::eq);
        assert_eq!(edits, [edit(1000, true, None), edit(1001, false, Some(2001)), edit(6000, false, Some(12_000))]);
        assert!(looks.get() <= 2 * 2 * PART_ITEMS, "{}", looks.get());
        assert_eq!(before.edits_since(&before, order, u32::eq), []);
    }

    proptest! {
        #[test]
        fn what_differs_leads_from_one_list_to_the_other(
            before in proptest::collection::btree_set(0..4000_u32, 0..2000),
            steps in proptest::collection::vec(proptest::collection::btree_set(0..4000_u32, 0..20), 0..6),
        ) {
            let before: PartedList<u32> = before.into_iter().collect();
            let mut after = before.clone();
            for step in steps {
                // A number that is there goes, and another one comes.
                let edits = step.into_iter().map(|item| {
                    let place = after.partition_point(|have| *have < item);
                    let is_there = after.get(place) == Some(&item);
                    edit(place, is_there, (!is_there).then_some(item))
                });
                after = after.edited(edits.collect::<Vec<_>>());
            }
            let edits = after.edits_since(&before, u32::cmp, u32::eq);
            prop_assert!(edits.iter().all(|edit| edit.removes != edit.item.is_some()));
            prop_assert_eq!(items(&before.edited(edits)), items(&after));
        }

        #[test]
        fn changes_are_those_of_a_plain_list(
            length in 0..1500_usize,
            changes in proptest::collection::vec((0..1500_usize, any::<bool>(), proptest::option::of(0..9_u32)), 0..40),
            probe in 0..1500_u32,
        ) {
            let before: Vec<u32> = (0..length).map(|item| item as u32).collect();
            let mut edits: Vec<ListEdit<u32>> = changes.into_iter().map(|(place, removes, item)| {
                let place = place % (length + 1);
                edit(place, removes && place < length, item)
            }).collect();
            edits.sort_by_key(|edit| (edit.place, edit.removes));
            edits.dedup_by(|later, earlier| later.place == earlier.place && earlier.removes);
            let list = PartedList::from(before.clone());
            let after = list.edited(edits.clone());
            let expected = applied(&before, &edits);
            prop_assert_eq!(items(&after), &expected[..]);
            prop_assert_eq!((after.len(), after.is_empty()), (expected.len(), expected.is_empty()));
            prop_assert!((0..=expected.len()).all(|place| after.get(place) == expected.get(place)));
            prop_assert!(after == expected.into_iter().collect());
            prop_assert_eq!(list.partition_point(|item| *item < probe), before.partition_point(|item| *item < probe));
        }
    }
}
