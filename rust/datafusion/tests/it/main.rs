//! Lakemark through DataFusion, end to end: files are written, marked and asked.

mod aggregates;
mod barriers;
mod choice;
mod corpus;
mod damaged;
mod delta;
mod differential;
mod dynamic;
mod exact_casts;
mod fixture;
mod joins;
mod lists;
mod lookup;
mod nested;
mod null_lists;
mod pending;
mod query;
mod scan;
mod shortcut;
mod sql;
mod statements;
mod sums;
mod updates;
mod zone;
