//! Tables end to end, below any engine: data files in, rows of a probe out, judged by the rows themselves.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "tests read the clock")]

mod adopting;
mod advancing;
mod backwards;
mod building;
mod checkpoints;
mod choosing;
mod committing;
mod compacting;
mod composites;
mod counting;
mod covering;
mod delta;
mod doctor;
mod encodings;
mod faults;
mod fixture;
mod folders;
mod footers;
mod futures;
mod group_counts;
mod hashed;
mod in_memory;
mod inner_pages;
mod isolating;
mod layer;
mod links;
mod links_random;
mod links_reads;
mod listed;
mod lists;
mod locations;
mod long_rows;
mod lost_answers;
mod lost_puts;
mod lost_segments;
mod mapping;
mod merging;
mod moments;
mod nested;
mod odd_files;
mod opening;
mod other_releases;
mod parts;
mod probing;
mod resuming;
mod rewritten;
mod same_state;
mod sharing;
mod sparse;
mod stages;
mod stale;
mod sums;
#[path = "../told/mod.rs"]
mod told;
mod top;
mod transactions;
mod updates;
mod vacuum;
mod watching;
mod zones;
