//! Values: schemas, fields and casts of Arrow arrays, in memory alone.
//!
//! Uses no other room.
//!
//! Invariant: a value becomes one of another type as it is, or is named in an error; none loses a digit unnoticed.

pub(crate) mod conform;
pub(crate) mod exact;
pub(crate) mod fields;
pub(crate) mod footer_edit;
pub(crate) mod int96;
pub(crate) mod schema;
