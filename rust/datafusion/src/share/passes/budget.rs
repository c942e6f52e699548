//! Bytes of pages that all passes of a process keep for consumers that have not taken them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes, whatever the number of passes.
#[derive(Debug)]
pub(crate) struct PageBudget {
    most: usize,
    used: AtomicUsize,
}

impl PageBudget {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, used: AtomicUsize::new(0) })
    }

    /// Whether little is left of it.
    pub(crate) fn is_tight(&self) -> bool {
        self.used() > self.most / 4 * 3
    }

    /// Whether much is left of it.
    pub(crate) fn is_easy(&self) -> bool {
        self.used() <= self.most / 2
    }

    /// The share of a pass, which has nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> BudgetShare {
        BudgetShare { budget: Arc::clone(self), bytes: 0 }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// What a pass has of a budget. It goes back with the pass.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<PageBudget>,
    bytes: usize,
}

impl BudgetShare {
    /// Takes so many bytes in place of those that it had; false if the budget has no room for more, and it keeps what it had.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let PageBudget { most, used } = self.budget.as_ref();
        let had = self.bytes;
        let fits = |used: usize| {
            let after = (used - had).checked_add(bytes)?;
            (bytes <= had || after <= *most).then_some(after)
        };
        let is_resized = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if is_resized {
            self.bytes = bytes;
        }
        is_resized
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_no_more_than_the_budget_and_go_back() {
        let budget = PageBudget::new(100);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.resize(60) && other.resize(40));
        assert!(!other.resize(41) && !one.resize(usize::MAX));
        assert!(one.resize(10) && other.resize(90));
        assert_eq!(budget.used(), 100);
        drop(other);
        assert_eq!(budget.used(), 10);
        assert!(one.resize(0));
        assert_eq!(budget.used(), 0);
    }
}
