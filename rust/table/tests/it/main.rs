//! Tables end to end, below any engine: data files in, rows of a probe out, judged by the rows themselves.

mod adopting;
mod building;
mod choosing;
mod compacting;
mod composites;
mod delta;
mod encodings;
mod faults;
mod fixture;
mod futures;
mod layer;
mod listed;
mod lists;
mod locations;
mod mapping;
mod moments;
mod nested;
mod probing;
mod sharing;
mod stages;
mod tallies;
mod top;
mod transactions;
mod updates;
mod vacuum;
mod zones;
