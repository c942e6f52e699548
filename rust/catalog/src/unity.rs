//! Tables of Unity Catalog: the server says where a table is, and gives credentials for it that end.
//!
//! ```text
//! uc://main.sales.trips ─▶ [catalogs.main], else the environment ─▶ GET tables/main.sales.trips ─▶ s3://lake/trips
//! requests to s3://lake/trips ─▶ Vended ─▶ POST temporary-table-credentials; again before they end, and after a refusal
//! ```
//!
//! Uses the configuration and its addresses and values; names and what is shown may use it.
//!
//! Invariant: of an answer its code alone is told: its text is not ours, and what it gives is secret.

pub(crate) mod answer;
pub(crate) mod name;
pub(crate) mod problem;
pub(crate) mod server;
#[cfg(test)]
pub(crate) mod stub;
pub(crate) mod token;
pub(crate) mod vended;

use std::sync::Arc;

use lakemark_table::Result;

use crate::config::Config;
use crate::unity::name::UnityName;
use crate::unity::server::Server;
use crate::unity::vended::Vended;

/// What a catalog says of a table.
pub(crate) struct FoundTable {
    /// Its path or URL.
    pub(crate) location: String,
    /// Gives credentials for it; none for a table on a disk.
    pub(crate) credentials: Option<Arc<Vended>>,
}

/// Asks the catalog of a name. Credentials `to_write` are for tables whose indexes are beside the data.
///
/// # Errors
/// There is no such catalog or table, the server cannot be reached, or it refuses to answer; the message says what to do.
pub(crate) async fn find(config: &Config, name: &UnityName, to_write: bool) -> Result<FoundTable> {
    let server = Server::of(config, &name.catalog)?;
    let table = server.table(name).await?;
    let location = table.location.clone();
    let is_remote = location.contains("://") && !location.starts_with("file:");
    let credentials = if is_remote { Some(Arc::new(Vended::new(server, table, to_write)?)) } else { None };
    Ok(FoundTable { location, credentials })
}
