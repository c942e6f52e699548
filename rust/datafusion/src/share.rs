//! Work that queries share: one execution for equal plans in flight.
//!
//! ```text
//! query A ─▶ SharedExec ─┐                     ┌─▶ A: the host, whose plan runs
//! query B ─▶ SharedExec ─┼─▶ Flight ─ pages ───┼─▶ B: a guest, which takes the same batches
//! query C ─▶ SharedExec ─┘   (one stream)      └─▶ C: …
//! ```
//!
//! [`registry`] knows the flights by their keys ([`key`]). A [`flight`] has the stream of the host and the batches that some consumer has
//! not taken yet ([`pages`]). Nobody pushes: the consumer that lacks the next batch polls the stream, and the others wait for its batch.
//! A consumer that falls behind keeps what it has not taken for itself ([`backlog`]), or runs its own plan if that costs little and it gave no
//! row so far. What is kept leaves half of a session's memory to operators ([`kept_memory`]).
//!
//! Before there is a plan there is a text: [`statements`] knows those in flight, each of which is planned once ([`joint_work`]) for all who
//! ask it, while its names mean the same ([`bound_query`]) and the session is the same ([`alike`]). Of a text that somebody has prepared there is a
//! plan without states of tables ([`prepared_query`]).
//!
//! Overlapping scans of different queries share decodes of row groups: [`passes`] has their pages and who wants which, and [`prediction`]
//! says when that pays. Star queries share the joins of a fact table as well: [`stars`].
//!
//! Uses no other room. `plan` makes the operators and the keys of plans; the scan operator in `exec` takes pages.
//!
//! Invariant: a query gives the rows that it would give alone, as a multiset, whoever else comes, goes, fails or waits. No query waits for
//! the consumer of another one.

mod alike;
pub(crate) mod asked;
pub(crate) mod backlog;
pub(crate) mod batch_bytes;
pub(crate) mod bound_query;
pub(crate) mod consumer;
pub(crate) mod flight;
pub(crate) mod joint_work;
mod kept_memory;
pub(crate) mod key;
pub(crate) mod opaque;
pub(crate) mod operator;
pub(crate) mod pages;
pub(crate) mod passes;
pub(crate) mod piece_rows;
pub(crate) mod prediction;
pub(crate) mod prepared_query;
pub(crate) mod registry;
pub(crate) mod role;
mod settings;
pub(crate) mod sightings;
pub(crate) mod stars;
pub(crate) mod statements;
