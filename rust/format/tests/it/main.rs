//! Tests of the format: one binary, a module per theme.

mod golden;
mod model;
mod round_trip;
mod samples;
