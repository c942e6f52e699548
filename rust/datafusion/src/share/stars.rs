//! Star joins that queries share: rows of a fact table that no join of a query would keep are found once for all queries.
//!
//! ```text
//! page ─▶ bits of the queries that want each row ─▶ AND, column by column ─▶ rows of each query
//!                                                    ▲
//!                                  groups ─▶ group: queries, and for each column the keys that they accept
//! ```
//!
//! [`dimension`] has the keys of a column with a bit for each query, as numbers ([`keys`]). A [`chain`] takes the rows of a page along the
//! columns. A [`group`] has the queries whose chains are one, and [`groups`] those of a process. [`prediction`] says when a chain pays.
//!
//! All but `groups` and the lock of a group is plain state. `docs/internals/star-joins.md` has the design.
//!
//! Invariant: what a chain leaves out of a query's rows no join of the query would keep.

pub(crate) mod chain;
pub(crate) mod dimension;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod prediction;

#[cfg(test)]
#[path = "stars/costs_tests.rs"]
mod tests;
