//! Tests of the format: one binary, a module per theme.

mod bad;
mod bad_bins;
mod bad_containers;
mod bad_leaves;
mod bad_levels;
mod bad_manifests;
mod bad_segments;
mod forge;
mod golden;
mod model;
mod model_bins;
mod model_leaves;
mod properties;
mod round_trip;
mod samples;
mod spec;
