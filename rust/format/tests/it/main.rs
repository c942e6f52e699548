//! Tests of the format: one binary, a module per theme.

#![cfg(test)]

mod bad;
mod bad_bins;
mod bad_checkpoints;
mod bad_containers;
mod bad_edits;
mod bad_inner;
mod bad_leaves;
mod bad_levels;
mod bad_links;
mod bad_logs;
mod bad_position_maps;
mod bad_riding;
mod bad_segments;
mod bad_updates;
mod bad_zones;
mod forge;
mod forge_manifests;
mod forge_updates;
mod forge_zones;
mod golden;
mod golden_inner;
mod golden_links;
mod golden_manifests;
mod golden_riding;
mod golden_updates;
mod golden_zones;
mod logs;
mod manifest_sizes;
mod manifests;
mod model;
mod model_bins;
mod model_leaves;
mod model_log;
mod model_manifest;
mod model_zones;
mod properties;
mod properties_manifests;
mod properties_updates;
mod properties_zones;
mod round_trip;
mod samples;
mod samples_manifests;
mod samples_updates;
mod spec;
