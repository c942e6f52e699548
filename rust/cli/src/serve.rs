//! `serve`: tables for clients of Flight SQL, until somebody stops the command.

use lakemark_serve::{ServeConfig, Server, TableSource};
use lakemark_table::CancelFlag;
use serde_json::json;

use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::log::{Log, object};
use crate::output;
use crate::stop::Stop;

pub(crate) async fn serve(args: ServeArgs, log: Log) -> Result<(), Failure> {
    let stop = Stop::listen(CancelFlag::new())?;
    let file = args.config.as_deref().map(ServeConfig::read).transpose()?.unwrap_or_default();
    let options = typed(args)?.over(file).options()?;
    let server = Server::bind(options).await?;
    // Whoever began the server may want to hear nothing.
    match output::text(&format!("listening on {}", server.url())) {
        Ok(()) | Err(Failure::PipeClosed) => {}
        Err(failure) => return Err(failure),
    }
    if let Some(address) = server.http_address() {
        let text = format!("the page is at http://{address}/");
        log.line("page", &text, object(json!({ "address": address.to_string() })));
    }
    server.run(stop.requested()).await?;
    Ok(())
}

/// What was typed.
fn typed(args: ServeArgs) -> Result<ServeConfig, Failure> {
    let storage: std::collections::HashMap<String, String> =
        args.storage.into_iter().map(|option| (option.key, option.value)).collect();
    let mut tables: Vec<TableSource> = Vec::new();
    for table in args.tables {
        if tables.iter().any(|known| known.name == table.key) {
            return Err(Failure::Error(format!("two tables are named {}; give each a name of its own", table.key)));
        }
        tables.push(TableSource { name: table.key, path: table.value, store: None, storage: storage.clone() });
    }
    let mut config = ServeConfig {
        tables,
        warehouse: args.warehouse,
        listen: args.listen,
        http: args.http,
        token_file: args.token_file,
        tls_cert: args.tls_cert,
        tls_key: args.tls_key,
        read_only: args.read_only.then_some(true),
        slow_query_ms: args.slow_query_ms,
        ..ServeConfig::default()
    };
    if let Some(bytes) = args.memory {
        config.limits.set("memory_bytes", usize::try_from(bytes).unwrap_or(usize::MAX))?;
    }
    if let Some(running) = args.running {
        config.limits.set("running", running.get())?;
    }
    Ok(config)
}
