//! Passes: decodes of row groups that overlapping scans share.
//!
//! ```text
//! unit          what two scans may share: a row group, as it is read
//! arrivals      scans that are on the way, and who waits for them
//! unit_pieces   the pieces that scans want of a unit
//! wanted        pieces by unit ──▶ a pass for those that are worth one decode ──▶ a pass of one ──▶ or pieces for a query alone
//! scans         the registry of a process, and what the partitions of a scan get
//! driven        rows of a decoder, read on the runtime that all consumers began on
//! pass          the decoder, which whoever lacks a page polls, around
//! page_list     the pages of a pass: who takes which, who falls behind, who leaves with what
//! ranks         the rows of a consumer in a page of the union's rows
//! budget        bytes of pages that all passes of a process keep
//! pass_metrics  what a scan tells of the passes that it took part in
//! ```
//!
//! All but `pass`, `arrivals` and `scans` is plain state without locks. `docs/internals/shared-scans.md` has the design.

pub(crate) mod arrivals;
pub(crate) mod budget;
pub(crate) mod driven;
pub(crate) mod page_list;
pub(crate) mod pass;
pub(crate) mod pass_metrics;
pub(crate) mod ranks;
pub(crate) mod scans;
pub(crate) mod unit;
pub(crate) mod unit_pieces;
pub(crate) mod wanted;

#[cfg(test)]
#[path = "passes/rounds_tests.rs"]
mod rounds_tests;
