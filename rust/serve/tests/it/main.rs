//! A server in this process, and clients of the crate for Flight SQL.

#![cfg(test)]

mod admission;
mod bad_input;
mod columns;
mod ending;
mod forged;
mod metadata;
mod pages;
mod prepared;
mod queries;
mod served;
