//! Publications: data files that migrations wrote into the store become files of the folder.
//!
//! Uses `state`, `indexing` and `locks`; turns of writers finish a publication that was stopped.
//!
//! Invariant: our readers see the same rows before, during and after a publication.

pub(super) mod finish;
mod places;
pub(super) mod publish;
