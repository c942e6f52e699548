//! Properties of the index structures, against naive models.

mod algebra;
mod bitmap;
mod cost;
mod encodings;
mod groups;
mod key;
mod rows;
mod values;
