//! Tests of the format: one binary, a module per theme.

mod round_trip;
mod samples;
