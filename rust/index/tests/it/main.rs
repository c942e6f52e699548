//! Properties of the index structures, against naive models.

#![cfg(test)]

mod algebra;
mod binned;
mod bitmap;
mod cost;
mod covered;
mod encodings;
mod groups;
mod hashed;
mod inner_pages;
mod key;
mod links;
mod lists;
mod rows;
mod sums;
mod values;
mod zones;
