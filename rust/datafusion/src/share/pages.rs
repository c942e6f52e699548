//! The batches of a flight that are kept, and who has yet to take them: a list of shared pages.
//!
//! ```text
//!            first                      next batch of the host
//!              ▼                              ▼
//! dropped … [ p3 ][ p4 ][ p5 ][ p6 ]
//!              ▲           ▲      ▲
//!              C           A      B        each consumer takes the pages in order, in its own time
//! ```
//!
//! Invariant: the window is open while no page was dropped, so that whoever attaches finds all pages. A page is dropped when everybody
//! has taken it and the list is not kept whole.

use std::collections::{BTreeMap, VecDeque};

/// Tells the consumers of a flight apart. The first one that is left has the smallest number.
pub(crate) type ConsumerId = u64;

/// How much of a list is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageLimits {
    /// Bytes of a whole output up to which it is kept for whoever comes later.
    pub(crate) keep: usize,
    /// Bytes that a consumer may be behind.
    pub(crate) window: usize,
}

/// A page that a consumer takes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TakenPage<T> {
    pub(crate) item: T,
    pub(crate) bytes: usize,
    /// Whether others take it as well.
    pub(crate) is_shared: bool,
}

#[derive(Debug)]
struct Page<T> {
    item: T,
    bytes: usize,
    /// Consumers that have not taken it.
    waiting: usize,
    /// Consumers that it was meant for.
    takers: usize,
}

/// The pages of a flight.
#[derive(Debug)]
pub(crate) struct PageList<T> {
    limits: PageLimits,
    pages: VecDeque<Page<T>>,
    /// The number of the first page that is kept.
    first: u64,
    /// Bytes of the pages that are kept.
    kept_bytes: usize,
    /// Bytes of all pages that there were.
    all_bytes: usize,
    /// Whether nobody comes any more.
    closed: bool,
    /// The number of the next page of each consumer.
    next: BTreeMap<ConsumerId, u64>,
    next_id: ConsumerId,
}

impl<T: Clone> PageList<T> {
    pub(crate) fn new(limits: PageLimits) -> Self {
        let (pages, next) = (VecDeque::new(), BTreeMap::new());
        Self { limits, pages, first: 0, kept_bytes: 0, all_bytes: 0, closed: false, next, next_id: 0 }
    }

    /// A consumer of all pages; none if the window is closed.
    pub(crate) fn attach(&mut self) -> Option<ConsumerId> {
        if self.closed {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.next.insert(id, self.first);
        for page in &mut self.pages {
            page.waiting += 1;
            page.takers += 1;
        }
        Some(id)
    }

    /// Takes a consumer off. It takes no page any more.
    pub(crate) fn detach(&mut self, id: ConsumerId) {
        let Some(next) = self.next.remove(&id) else { return };
        for (number, page) in (self.first..).zip(&mut self.pages) {
            if number >= next {
                page.waiting -= 1;
                page.takers -= 1;
            }
        }
        self.drop_taken();
    }

    /// Adds a page for all consumers that there are.
    pub(crate) fn push(&mut self, item: T, bytes: usize) {
        let consumers = self.next.len();
        self.pages.push_back(Page { item, bytes, waiting: consumers, takers: consumers });
        self.kept_bytes += bytes;
        self.all_bytes = self.all_bytes.saturating_add(bytes);
        self.drop_taken();
    }

    /// The next page of a consumer, if it is there.
    pub(crate) fn take(&mut self, id: ConsumerId) -> Option<TakenPage<T>> {
        let next = self.next.get_mut(&id)?;
        let place = usize::try_from(next.checked_sub(self.first)?).ok()?;
        let page = self.pages.get_mut(place)?;
        *next += 1;
        page.waiting -= 1;
        let taken = TakenPage { item: page.item.clone(), bytes: page.bytes, is_shared: page.takers > 1 };
        self.drop_taken();
        Some(taken)
    }

    /// Closes the window: what everybody has taken is not kept any more.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.limits.keep = 0;
        self.drop_taken();
    }

    /// Whether the output is more than is kept whole.
    pub(crate) fn is_large(&self) -> bool {
        self.all_bytes > self.limits.keep
    }

    /// Bytes that a consumer may be behind.
    pub(crate) fn window_bytes(&self) -> usize {
        self.limits.window
    }

    /// Whether a consumer may still attach.
    pub(crate) fn is_open(&self) -> bool {
        !self.closed
    }

    /// The consumers, in the order in which they came.
    pub(crate) fn consumers(&self) -> impl Iterator<Item = ConsumerId> {
        self.next.keys().copied()
    }

    /// The consumers that have yet to take the first page, if the pages are more than a consumer may be behind.
    pub(crate) fn laggards(&self) -> Vec<ConsumerId> {
        if self.behind_bytes() <= self.limits.window || !self.is_large() { Vec::new() } else { self.last_ones() }
    }

    /// The consumers that have yet to take the first page, if it is not the only one.
    pub(crate) fn last_ones(&self) -> Vec<ConsumerId> {
        if self.pages.len() < 2 {
            return Vec::new();
        }
        self.next.iter().filter(|(_, next)| **next == self.first).map(|(id, _)| *id).collect()
    }

    /// Bytes of the pages that are kept, without the newest one, which whoever lacked it takes at once.
    pub(crate) fn behind_bytes(&self) -> usize {
        self.kept_bytes - self.pages.back().map_or(0, |page| page.bytes)
    }

    /// Drops the first pages while nobody waits for them. A list that is kept whole drops nothing.
    fn drop_taken(&mut self) {
        if !self.closed && !self.is_large() {
            return;
        }
        while self.pages.front().is_some_and(|page| page.waiting == 0) {
            self.closed = true;
            self.first += 1;
            let dropped = self.pages.pop_front().map_or(0, |page| page.bytes);
            self.kept_bytes -= dropped;
        }
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
