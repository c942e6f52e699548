//! Tests of the format: one binary, a module per theme.

mod bad;
mod bad_bins;
mod bad_containers;
mod bad_leaves;
mod bad_levels;
mod bad_manifests;
mod bad_segments;
mod bad_zones;
mod forge;
mod forge_zones;
mod golden;
mod golden_zones;
mod model;
mod model_bins;
mod model_leaves;
mod model_zones;
mod properties;
mod properties_zones;
mod round_trip;
mod samples;
mod spec;
