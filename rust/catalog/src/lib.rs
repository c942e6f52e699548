#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod address;
mod config;
mod document;
mod find;
mod names;
mod place;
mod shown;
mod unity;
mod value;

pub use address::Address;
pub use config::{Config, NamedCatalog, NamedStore, NamedTable, Profile, Setting, WrittenStore};
pub use document::{Document, Leaf, Section};
pub use find::{FILE, VARIABLE};
pub use names::Names;
pub use place::Place;
pub use shown::ShownEntry;
pub use value::Value;
