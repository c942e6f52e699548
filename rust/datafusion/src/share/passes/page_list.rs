//! The pages of a pass: one decode of a row group for several scans.
//!
//! ```text
//!     dropped            kept                     not decoded
//! ├──────────────┬─────────┬─────────┬─────────┬───────────────────┤
//!                │ page 4  │ page 5  │ page 6  │                      a page covers a stretch of the row group
//! ├──────────────┴─────────┴─────────┴─────────┴───────────────────┤
//!                ▲         ▲                   ▲
//!                C enters  B has taken so far  A lacks the next page
//! ```
//!
//! A consumer has rows of the row group that it gets from this pass, and has taken or missed those before some row. It neither waits for a
//! page without a row of its own nor counts for it. Whoever is behind misses pages and goes on: their rows it wants again. Who has begun and
//! misses many of them reads the rest alone.
//!
//! Invariant: of each consumer's rows every one is in exactly one place: in a page that it took, among rows that it missed or that are left
//! to it, or still to come. The first page that is kept is one that somebody waits for.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::Range;

use lakemark_table::RowSet;

use super::ranks::{TakenRows, behind, rows_in_batch};
use crate::share::pages::ConsumerId;

/// A consumer that has begun misses so many pages of a pass, and reads the rest alone then. Where it is not slower than the others, it falls
/// behind by chance: who runs next is up to the runtime. Who stalls keeps no pages for long.
const MOST_MISSED: u32 = 16;

/// What a consumer gets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Taken<T> {
    Page {
        item: T,
        /// The stretch of the row group that it covers.
        stretch: Range<u32>,
        /// Those of its rows that are the consumer's.
        rows: TakenRows,
        /// Whether others take it as well.
        is_shared: bool,
    },
    /// It needs a page that is not decoded yet.
    Lacks,
    /// The consumer was elsewhere or behind while these of its rows went by. It stays, for those that come.
    Missed(RowSet),
    /// The consumer is out of the pass, and reads these rows alone.
    Left {
        rows: RowSet,
        /// Whether it fell behind for long, rather than that the pass ended.
        is_detached: bool,
    },
    /// It has all of its rows, or went before.
    Done,
    /// The decoder gave other rows than were selected, of which the consumer took some.
    Miscounted,
}

/// Where a wanted piece and a pass meet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Rows that the pass still gives.
    pub(crate) rest: RowSet,
    /// Rows of the piece among them.
    pub(crate) taken: RowSet,
    /// The other rows of the piece.
    pub(crate) left: RowSet,
}

#[derive(Debug)]
struct Page<T> {
    item: T,
    bytes: usize,
    /// The stretch of the row group that it covers.
    stretch: Range<u32>,
    /// Consumers that have not taken it.
    waiting: usize,
    /// Consumers that it was meant for.
    takers: usize,
}

#[derive(Debug)]
struct Attached {
    /// The rows that it gets from the pass.
    rows: RowSet,
    /// Rows before this one it has taken or missed.
    at: u32,
    /// Whether it took a page.
    has_begun: bool,
    /// Stretches that it missed and was not told of.
    missed: Vec<Range<u32>>,
    /// How many pages it missed since it has begun.
    pages_missed: u32,
    /// Whether it reads the rest alone.
    is_detached: bool,
}

impl Attached {
    fn new(rows: RowSet) -> Self {
        Self { rows, at: 0, has_begun: false, missed: Vec::new(), pages_missed: 0, is_detached: false }
    }

    /// Misses a page of this stretch, which is the next one with a row of its own; false if it missed too many.
    fn misses(&mut self, stretch: &Range<u32>) -> bool {
        if self.has_begun {
            if self.pages_missed == MOST_MISSED {
                return false;
            }
            self.pages_missed += 1;
        }
        self.at = stretch.end;
        match self.missed.last_mut() {
            Some(last) if last.end == stretch.start => last.end = stretch.end,
            _ => self.missed.push(stretch.clone()),
        }
        true
    }

    /// The rows that it missed, which it gets elsewhere.
    fn take_missed(&mut self) -> RowSet {
        let none = RowSet::empty(self.rows.universe());
        let stretches = mem::take(&mut self.missed);
        let missed = stretches.into_iter().fold(none, |all, stretch| all.or(&cut(&self.rows, stretch)));
        self.rows = self.rows.minus(&missed);
        missed
    }

    fn has_rows_in(&self, stretch: &Range<u32>) -> bool {
        self.rows.count_in(stretch.start, stretch.end) > 0
    }

    fn waits_for(&self, stretch: &Range<u32>) -> bool {
        !self.is_detached && self.at < stretch.end && self.has_rows_in(stretch)
    }

    /// Its rows from where it is.
    fn rest(&self) -> RowSet {
        cut(&self.rows, self.at..self.rows.universe())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Failed,
    Miscounted,
}

/// The pages of a pass.
#[derive(Debug)]
pub(crate) struct PassPages<T> {
    /// The rows that are decoded.
    rows: RowSet,
    /// Bytes of pages that are kept, without the newest.
    window: usize,
    pages: VecDeque<Page<T>>,
    /// Pages cover the row group up to this row.
    decoded_to: u32,
    kept_bytes: usize,
    consumers: BTreeMap<ConsumerId, Attached>,
    next_id: ConsumerId,
    end: Option<End>,
}

impl<T: Clone> PassPages<T> {
    /// A pass that decodes these rows of a row group.
    pub(crate) fn new(rows: RowSet, window: usize) -> Self {
        let (pages, consumers) = (VecDeque::new(), BTreeMap::new());
        Self { rows, window, pages, decoded_to: 0, kept_bytes: 0, consumers, next_id: 0, end: None }
    }

    /// A consumer of these rows, which the pass decodes. It is there before the first page.
    pub(crate) fn begin(&mut self, rows: &RowSet) -> ConsumerId {
        self.add(rows.and(&self.rows))
    }

    /// A consumer of those of the wanted rows that the pass still gives, and the other rows. None if it gives none of them, or if that is
    /// not worth it.
    pub(crate) fn enter(
        &mut self,
        wanted: &RowSet,
        is_worth: impl FnOnce(&Entry) -> bool,
    ) -> Option<(ConsumerId, RowSet)> {
        if matches!(self.end, Some(End::Failed | End::Miscounted)) {
            return None;
        }
        let from = self.pages.front().map_or(self.decoded_to, |page| page.stretch.start);
        let rest = cut(&self.rows, from..self.rows.universe());
        let taken = wanted.and(&rest);
        let entry = Entry { left: wanted.minus(&taken), rest, taken };
        if entry.taken.is_empty() || !is_worth(&entry) {
            return None;
        }
        Some((self.add(entry.taken), entry.left))
    }

    /// Whether no more than one consumer is left, which takes each page as soon as it is there.
    pub(crate) fn is_lone(&self) -> bool {
        self.consumers.len() < 2
    }

    /// Pages that came without a weight get one.
    pub(crate) fn weigh(&mut self, weight: impl Fn(&T) -> usize) {
        for page in self.pages.iter_mut().filter(|page| page.bytes == 0) {
            page.bytes = weight(&page.item);
            self.kept_bytes += page.bytes;
        }
    }

    fn add(&mut self, rows: RowSet) -> ConsumerId {
        let id = self.next_id;
        self.next_id += 1;
        let own = Attached::new(rows);
        for page in self.pages.iter_mut().filter(|page| own.has_rows_in(&page.stretch)) {
            page.waiting += 1;
            page.takers += 1;
        }
        self.consumers.insert(id, own);
        id
    }

    /// A consumer goes.
    pub(crate) fn leave(&mut self, id: ConsumerId) {
        if let Some(gone) = self.consumers.remove(&id) {
            self.forget(&gone);
        }
    }

    /// The pages that a consumer waited for are not for it any more.
    fn forget(&mut self, gone: &Attached) {
        for page in self.pages.iter_mut().filter(|page| gone.waits_for(&page.stretch)) {
            page.waiting -= 1;
            page.takers -= 1;
        }
        self.drop_taken();
    }

    /// Adds a page with the next `rows` of the rows that are decoded.
    pub(crate) fn push(&mut self, item: T, bytes: usize, rows: u32) {
        if rows == 0 || self.end.is_some() {
            return;
        }
        let Some(end) = behind(&self.rows, self.decoded_to, rows) else {
            self.miscount();
            return;
        };
        let stretch = self.decoded_to..end;
        self.decoded_to = end;
        let waiting = self.consumers.values().filter(|own| own.waits_for(&stretch)).count();
        self.pages.push_back(Page { item, bytes, stretch, waiting, takers: waiting });
        self.kept_bytes += bytes;
        self.drop_taken();
    }

    /// The decoder gave all that it has.
    pub(crate) fn finish(&mut self) {
        if self.end.is_some() {
            return;
        }
        if self.rows.count_in(self.decoded_to, self.rows.universe()) == 0 {
            self.end = Some(End::Done);
        } else {
            self.miscount();
        }
    }

    /// The decoder gives no more. Pages that are kept are right.
    pub(crate) fn fail(&mut self) {
        self.end = self.end.or(Some(End::Failed));
    }

    /// No page is to be trusted: rows may be other ones than was thought.
    fn miscount(&mut self) {
        self.end = Some(End::Miscounted);
        self.pages.clear();
        self.kept_bytes = 0;
    }

    /// The next rows of a consumer, as far as they are there.
    pub(crate) fn take(&mut self, id: ConsumerId) -> Taken<T> {
        let Some(own) = self.consumers.get_mut(&id) else { return Taken::Done };
        if self.end == Some(End::Miscounted) {
            let (has_begun, rows) = (own.has_begun, own.rows.clone());
            self.consumers.remove(&id);
            return if has_begun { Taken::Miscounted } else { Taken::Left { rows, is_detached: false } };
        }
        if !own.missed.is_empty() {
            return Taken::Missed(own.take_missed());
        }
        if own.is_detached {
            let rows = own.rest();
            self.consumers.remove(&id);
            return Taken::Left { rows, is_detached: true };
        }
        if let Some(page) = self.pages.iter_mut().find(|page| own.waits_for(&page.stretch)) {
            own.at = page.stretch.end;
            own.has_begun = true;
            page.waiting -= 1;
            let rows = rows_of_stretch(&self.rows, &own.rows, &page.stretch);
            let (item, stretch) = (page.item.clone(), page.stretch.clone());
            let taken = Taken::Page { item, stretch, rows, is_shared: page.takers > 1 };
            self.drop_taken();
            return taken;
        }
        let rest = own.rest();
        if !rest.is_empty() && self.end.is_none() {
            return Taken::Lacks;
        }
        self.consumers.remove(&id);
        if rest.is_empty() { Taken::Done } else { Taken::Left { rows: rest, is_detached: false } }
    }

    /// Lets consumers fall behind while more is kept than the window, or than fits elsewhere. That is asked for the bytes that are kept
    /// without the newest page, and at least once. Gives the consumers that were behind.
    pub(crate) fn shed(&mut self, mut fits: impl FnMut(usize) -> bool) -> Vec<ConsumerId> {
        let mut away = Vec::new();
        loop {
            let bytes = self.behind_bytes();
            if (fits(bytes) && bytes <= self.window) || self.pages.len() < 2 {
                return away;
            }
            away.extend(self.pass_by_first());
        }
    }

    /// Drops the first page. Whoever waits for it misses it, or leaves if it missed many.
    fn pass_by_first(&mut self) -> Vec<ConsumerId> {
        let late = self.late();
        let Some(first) = self.pages.pop_front() else { return late };
        self.kept_bytes -= first.bytes;
        for id in &late {
            let Some(own) = self.consumers.get_mut(id) else { continue };
            if own.misses(&first.stretch) {
                continue;
            }
            for page in self.pages.iter_mut().filter(|page| own.waits_for(&page.stretch)) {
                page.waiting -= 1;
                page.takers -= 1;
            }
            own.is_detached = true;
        }
        self.drop_taken();
        late
    }

    /// Rows that are decoded from a row on and that a consumer does not take.
    pub(crate) fn decoded_for_others(&self, id: ConsumerId, from: u32) -> u32 {
        let of = |rows: &RowSet| rows.count_in(from, self.decoded_to);
        of(&self.rows).saturating_sub(self.consumers.get(&id).map_or(0, |own| of(&own.rows)))
    }

    /// The rows of a page of this stretch that are a consumer's; none if it takes none of them.
    pub(crate) fn rows_in(&self, stretch: &Range<u32>, id: ConsumerId) -> Option<TakenRows> {
        let own = self.consumers.get(&id).filter(|own| !own.is_detached && own.has_rows_in(stretch))?;
        Some(rows_of_stretch(&self.rows, &own.rows, stretch))
    }

    /// Pages cover the row group up to this row.
    pub(crate) fn decoded_to(&self) -> u32 {
        self.decoded_to
    }

    /// Whether somebody needs a page that is not decoded yet.
    pub(crate) fn needs_more(&self) -> bool {
        let to_come = self.decoded_to..self.rows.universe();
        self.end.is_none() && self.consumers.values().any(|own| own.waits_for(&to_come))
    }

    /// Bytes of the pages that are kept, without the newest one, which whoever lacked it takes at once.
    pub(crate) fn behind_bytes(&self) -> usize {
        self.kept_bytes - self.pages.back().map_or(0, |page| page.bytes)
    }

    /// Whether half of the window is full.
    pub(crate) fn is_halfway(&self) -> bool {
        self.behind_bytes() > self.window / 2
    }

    /// The consumers that have not taken the first page that is kept.
    pub(crate) fn late(&self) -> Vec<ConsumerId> {
        let Some(first) = self.pages.front() else { return Vec::new() };
        let late = self.consumers.iter().filter(|(_, own)| own.waits_for(&first.stretch));
        late.map(|(id, _)| *id).collect()
    }

    /// How many consumers there are.
    pub(crate) fn consumers(&self) -> usize {
        self.consumers.len()
    }

    fn drop_taken(&mut self) {
        while self.pages.front().is_some_and(|page| page.waiting == 0) {
            let dropped = self.pages.pop_front().map_or(0, |page| page.bytes);
            self.kept_bytes -= dropped;
        }
    }
}

/// Where the rows of a consumer are in a page of the rows that are decoded.
fn rows_of_stretch(decoded: &RowSet, own: &RowSet, stretch: &Range<u32>) -> TakenRows {
    let Range { start, end } = *stretch;
    rows_in_batch(&decoded.slice(start, end), &own.slice(start, end))
}

/// The rows of a set that are in a range.
fn cut(rows: &RowSet, range: Range<u32>) -> RowSet {
    if range.start == 0 && range.end >= rows.universe() {
        return rows.clone();
    }
    rows.and(&RowSet::from_range(range, rows.universe()))
}

#[cfg(test)]
#[path = "page_list_tests.rs"]
mod tests;
