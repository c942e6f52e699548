#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod algebra;
pub mod bitmap;
pub mod calendar;
pub mod chunk;
pub mod composite;
pub mod elements;
pub mod error;
mod evaluate;
pub mod key;
pub mod links;
pub mod literal;
pub mod precision;
pub mod predicate;
pub mod ranges;
pub mod riding;
pub mod rows;
pub mod segment_rows;
pub mod values;
pub mod zones;

pub use algebra::Candidates;
pub use composite::{composite_points, composite_ranges, composite_type};
pub use elements::{element_of, list_type_of};
pub use key::{LiteralKey, encode_literal, encode_literals, hash_rows, key_type_of};
pub use literal::{literal_text, quoted};
pub use precision::{Precision, PrecisionError};
pub use predicate::{Leaf, Predicate, Reason, Test, Truth, UnknownCondition};
pub use ranges::{KeyRange, KeyRanges};
pub use riding::{decode_riding, is_key_the_value, riding_type_of};
pub use rows::{RowSet, RowSetBuilder};
pub use values::{decode_keys, is_ambiguous};
