//! Index structures of Lakemark: Arrow arrays to indexes, predicates to candidate rows.
//!
//! Pure and synchronous: bytes come in, the ranges wanted next go out, and whoever calls does
//! the reading. See the modules: [`predicate`] and [`ranges`] say what is asked, [`rows`] what is answered,
//! [`algebra`] how answers combine under SQL's three truth values ([`Candidates::among`] asks rows in memory), [`key`] how Arrow values
//! become ordered keys, [`composite`] how rows of several columns do and [`elements`] those of lists, [`precision`] where values are cut into bins,
//! [`chunk`] sorts the rows of a row group, [`error`] says why a build fails and [`segment_rows`] what a segment answers.
//! [`bitmap`] is the kinds `bitmap` and `key`,
//! and [`zones`] the kinds `bloom_tree` and `summary`.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::too_many_lines,
        clippy::disallowed_methods,
        reason = "tests"
    )
)]

pub mod algebra;
pub mod bitmap;
pub mod calendar;
pub mod chunk;
pub mod composite;
pub mod elements;
pub mod error;
mod evaluate;
pub mod key;
pub mod precision;
pub mod predicate;
pub mod ranges;
pub mod rows;
pub mod segment_rows;
pub mod values;
pub mod zones;

pub use algebra::Candidates;
pub use composite::{composite_points, composite_ranges, composite_type};
pub use elements::{element_of, list_type_of};
pub use key::{LiteralKey, encode_literal, encode_literals, hash_rows, key_type_of};
pub use precision::{Precision, PrecisionError};
pub use predicate::{Leaf, Predicate, Reason, Test, Truth};
pub use ranges::{KeyRange, KeyRanges};
pub use rows::{RowSet, RowSetBuilder};
pub use values::{decode_keys, is_ambiguous};
