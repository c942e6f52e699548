//! What drivers ask before they show a table: catalogs, keys, types, and what the server can do.
//!
//! Uses the statements and tables of the server; the service hands the answers on.
//!
//! Invariant: an answer has the columns that Flight SQL gives it, also where it has no rows.

pub(crate) mod catalogs;
pub(crate) mod keys;
pub(crate) mod server_info;
pub(crate) mod type_info;
