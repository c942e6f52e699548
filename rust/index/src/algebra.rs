//! The candidate algebra: upper bounds on the rows where a predicate is TRUE, FALSE and NULL.
//!
//! For every node of a predicate there are three row sets `T`, `F`, `N` over the rows of one data
//! file, each an upper bound. A row in just one of them is *exact*. With `U` all rows:
//!
//! | node | T | F | N |
//! |---|---|---|---|
//! | a AND b | Ta∩Tb | Fa∪Fb | (Na∩(Tb∪Nb)) ∪ (Ta∩Nb) |
//! | a OR b | Ta∪Tb | Fa∩Fb | (Na∩(Fb∪Nb)) ∪ (Fa∩Nb) |
//! | NOT a | Fa | Ta | Na |
//! | unknown | U | U | U |
//!
//! Where every row is exact the three sets are a partition: `T` and `N` say it all and `F` is
//! never built. That is the common case, and the cheap one.

use crate::predicate::{Leaf, Predicate, Truth};
use crate::rows::RowSet;

/// Upper bounds on where a predicate is TRUE, FALSE and NULL.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates(CandidateForm);

#[derive(Clone, Debug, PartialEq)]
enum CandidateForm {
    /// `t`, `n` and the rest are a partition of the rows.
    Exact {
        t: RowSet,
        n: RowSet,
    },
    Bounds {
        t: RowSet,
        f: RowSet,
        n: RowSet,
    },
}

impl Candidates {
    /// Nothing is known of any row.
    #[must_use]
    pub fn unknown(universe: u32) -> Self {
        let all = RowSet::full(universe);
        Self(CandidateForm::Bounds { t: all.clone(), f: all.clone(), n: all })
    }

    /// The same truth value for every row.
    #[must_use]
    pub fn constant(truth: Truth, universe: u32) -> Self {
        let (all, none) = (RowSet::full(universe), RowSet::empty(universe));
        match truth {
            Truth::True => Self::exact(all, none),
            Truth::False => Self::exact(none.clone(), none),
            Truth::Null => Self::exact(none, all),
        }
    }

    /// TRUE in `t`, NULL in `n` (which share no row), FALSE elsewhere.
    #[must_use]
    pub fn exact(t: RowSet, n: RowSet) -> Self {
        Self(CandidateForm::Exact { t, n })
    }

    /// TRUE in `t`, NULL in `n`, TRUE or FALSE in `opaque`, FALSE elsewhere; the three share no row.
    #[must_use]
    pub fn with_opaque(t: RowSet, n: RowSet, opaque: &RowSet) -> Self {
        if opaque.is_empty() {
            return Self::exact(t, n);
        }
        let f = t.or(&n).not();
        Self(CandidateForm::Bounds { t: t.or(opaque), f, n })
    }

    /// How many rows there are.
    #[must_use]
    pub fn universe(&self) -> u32 {
        match &self.0 {
            CandidateForm::Exact { t, .. } | CandidateForm::Bounds { t, .. } => t.universe(),
        }
    }

    /// Bytes of memory that the row sets take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            CandidateForm::Exact { t, n } => t.memory_bytes() + n.memory_bytes(),
            CandidateForm::Bounds { t, f, n } => t.memory_bytes() + f.memory_bytes() + n.memory_bytes(),
        }
    }

    /// How many rows may be TRUE.
    fn most_true(&self) -> u32 {
        match &self.0 {
            CandidateForm::Exact { t, .. } | CandidateForm::Bounds { t, .. } => t.len(),
        }
    }

    /// Every row is FALSE.
    fn is_false(&self) -> bool {
        matches!(&self.0, CandidateForm::Exact { t, n } if t.is_empty() && n.is_empty())
    }

    /// Whether there is a row where the predicate may have this truth value.
    #[must_use]
    pub fn may_be(&self, truth: Truth) -> bool {
        match (&self.0, truth) {
            (CandidateForm::Exact { t, .. } | CandidateForm::Bounds { t, .. }, Truth::True) => !t.is_empty(),
            (CandidateForm::Exact { n, .. } | CandidateForm::Bounds { n, .. }, Truth::Null) => !n.is_empty(),
            (CandidateForm::Exact { t, n }, Truth::False) => t.len() + n.len() < t.universe(),
            (CandidateForm::Bounds { f, .. }, Truth::False) => !f.is_empty(),
        }
    }

    /// Rows where the predicate may be TRUE.
    #[must_use]
    pub fn t(&self) -> RowSet {
        match &self.0 {
            CandidateForm::Exact { t, .. } | CandidateForm::Bounds { t, .. } => t.clone(),
        }
    }

    /// Rows where the predicate may be FALSE.
    #[must_use]
    pub fn f(&self) -> RowSet {
        match &self.0 {
            CandidateForm::Exact { t, n } => t.or(n).not(),
            CandidateForm::Bounds { f, .. } => f.clone(),
        }
    }

    /// Rows where the predicate may be NULL.
    #[must_use]
    pub fn n(&self) -> RowSet {
        match &self.0 {
            CandidateForm::Exact { n, .. } | CandidateForm::Bounds { n, .. } => n.clone(),
        }
    }

    /// Rows where the predicate is TRUE beyond doubt.
    #[must_use]
    pub fn exact_true(&self) -> RowSet {
        match &self.0 {
            CandidateForm::Exact { t, .. } => t.clone(),
            CandidateForm::Bounds { t, f, n } => t.minus(f).minus(n),
        }
    }

    /// Rows to be rechecked: the predicate may be TRUE for them, and may be something else.
    #[must_use]
    pub fn recheck_true(&self) -> RowSet {
        match &self.0 {
            CandidateForm::Exact { t, .. } => RowSet::empty(t.universe()),
            CandidateForm::Bounds { t, f, n } => t.and(&f.or(n)),
        }
    }

    /// The candidates of `self AND other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let n = || {
            let (na, nb, ta) = (self.n(), other.n(), self.t());
            if na.is_empty() && nb.is_empty() {
                return na;
            }
            na.and(&other.t().or(&nb)).or(&ta.and(&nb))
        };
        if let (CandidateForm::Exact { t: ta, .. }, CandidateForm::Exact { t: tb, .. }) = (&self.0, &other.0) {
            return Self::exact(ta.and(tb), n());
        }
        Self(CandidateForm::Bounds { t: self.t().and(&other.t()), f: self.f().or(&other.f()), n: n() })
    }

    /// The candidates of `self OR other`.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        if let (CandidateForm::Exact { t: ta, n: na }, CandidateForm::Exact { t: tb, n: nb }) = (&self.0, &other.0) {
            let t = ta.or(tb);
            // NULL where either is NULL and neither is TRUE: the table's N for partitions.
            let n = na.or(nb).minus(&t);
            return Self::exact(t, n);
        }
        let (na, nb, fa) = (self.n(), other.n(), self.f());
        let n = na.and(&other.f().or(&nb)).or(&fa.and(&nb));
        Self(CandidateForm::Bounds { t: self.t().or(&other.t()), f: fa.and(&other.f()), n })
    }

    /// The candidates of `NOT self`.
    #[must_use]
    pub fn not(&self) -> Self {
        match &self.0 {
            CandidateForm::Exact { n, .. } => Self::exact(self.f(), n.clone()),
            CandidateForm::Bounds { t, f, n } => {
                Self(CandidateForm::Bounds { t: f.clone(), f: t.clone(), n: n.clone() })
            }
        }
    }

    /// The candidates of `predicate` over `universe` rows; `leaf` answers for one column.
    pub fn of(predicate: &Predicate, universe: u32, leaf: &mut impl FnMut(&Leaf) -> Self) -> Self {
        match predicate {
            Predicate::Const(truth) => Self::constant(*truth, universe),
            Predicate::Unknown { .. } => Self::unknown(universe),
            Predicate::Leaf(test) => leaf(test),
            Predicate::Not(inner) => Self::of(inner, universe, leaf).not(),
            Predicate::And(parts) => {
                Self::all(parts.iter().map(|part| Self::of(part, universe, leaf)).collect(), universe)
            }
            Predicate::Or(parts) => {
                let start = Self::constant(Truth::False, universe);
                parts.iter().fold(start, |any, part| any.or(&Self::of(part, universe, leaf)))
            }
        }
    }

    /// How many rows are TRUE, if every row that may be TRUE is exact; else the candidates. For a conjunction no set of rows is
    /// made then.
    pub fn count(predicate: &Predicate, universe: u32, leaf: &mut impl FnMut(&Leaf) -> Self) -> Result<u32, Self> {
        let Predicate::And(parts) = predicate else {
            return Self::of(predicate, universe, leaf).counted();
        };
        let parts: Vec<Self> = parts.iter().map(|part| Self::of(part, universe, leaf)).collect();
        let exact = |part: &Self| match &part.0 {
            CandidateForm::Exact { t, .. } => Some(t.clone()),
            CandidateForm::Bounds { .. } => None,
        };
        match parts.iter().map(exact).collect::<Option<Vec<RowSet>>>() {
            // A conjunction is TRUE just where every part is.
            Some(sets) => Ok(RowSet::count_common(&sets.iter().collect::<Vec<_>>(), universe)),
            None => Self::all(parts, universe).counted(),
        }
    }

    fn counted(self) -> Result<u32, Self> {
        if self.recheck_true().is_empty() { Ok(self.exact_true().len()) } else { Err(self) }
    }

    /// The candidates of a conjunction of these.
    fn all(mut parts: Vec<Self>, universe: u32) -> Self {
        // The fewest rows first: every later set is then combined with few.
        parts.sort_by_key(Self::most_true);
        let mut all = Self::constant(Truth::True, universe);
        for part in &parts {
            if all.is_false() {
                break;
            }
            all = all.and(part);
        }
        all
    }
}
