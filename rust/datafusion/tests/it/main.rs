//! Lakemark through DataFusion, end to end: files are written, indexed and asked.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "tests read the clock")]

mod aggregates;
mod barriers;
mod buffered;
mod choice;
mod corpus;
mod covering;
mod damaged;
mod delta;
mod differential;
mod dynamic;
mod engine;
mod exact_casts;
mod extremes;
mod fast_path;
mod fixture;
mod floats;
mod in_lists;
mod inexact;
mod joins;
mod lambdas;
mod links;
mod lists;
mod lookup;
mod nested;
mod partitions;
mod planned;
mod planned_again;
mod planned_together;
mod published;
mod query;
mod scan;
mod schemas;
mod shared_reads;
mod shared_scans;
mod sharing;
mod sharing_aggregates;
mod sharing_apart;
mod sharing_failures;
mod sort_limits;
mod spans;
mod sql;
mod star_dimensions;
mod star_failures;
mod star_joins;
mod statements;
mod statistics;
mod subqueries;
mod sums;
mod together;
mod unsupported;
mod updates;
mod views;
mod zone;
