//! Expressions: from the engine's to those that an index is probed with.
//!
//! Uses no other room; every other room uses this one.
//!
//! Invariant: a translation says of each row what the expression says of it, or leaves the row open.

pub(crate) mod fields;
pub(crate) mod projection;
pub(crate) mod simplify;
pub(crate) mod text;
pub(crate) mod translate;
pub(crate) mod types;
pub(crate) mod zone_maps;
