//! Storage: places, files and objects, as bytes.
//!
//! Uses no other room but `metrics`, which counts its requests; all that reads or writes goes through this one.
//!
//! Invariant: each write, sync, rename, link and removal of a local file is a step of `disk`, so that a test may stop or fail at it.
//! The time comes from `clock`, and what is random from `ids`.

pub(crate) mod access;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod counting_store;
pub(crate) mod credentials;
pub(crate) mod damage;
pub(crate) mod disk;
pub(crate) mod failpoint;
pub(crate) mod file_time;
pub(crate) mod fingerprint;
pub(crate) mod ids;
pub(crate) mod local;
pub(crate) mod location;
pub(crate) mod machine;
pub(crate) mod put_if_absent;
pub(crate) mod remote;
pub(crate) mod remote_store;
pub(crate) mod retry_listing;
pub(crate) mod secret;
pub(crate) mod temp_file;
