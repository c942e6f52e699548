#![doc = include_str!("../README.md")]

mod chains;
pub mod config;
mod error;
mod handles;
pub mod http;
mod incoming;
mod lending;
mod metadata;
mod options;
mod page;
mod planning;
mod prepared;
mod receiving;
mod recent;
mod running;
mod server;
mod service;
mod statements;
mod tables;
mod tokens;
mod turns;
mod weight;
mod wire;

pub use config::{LimitsConfig, ServeConfig};
pub use options::{Limits, ServeOptions, TableSource, TlsFiles};
pub use server::Server;
