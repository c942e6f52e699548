//! `serve`: tables for clients of Flight SQL, until somebody stops the command.

use lakemark_catalog::{Config, Document, Names};
use lakemark_serve::{ServeConfig, Server, TableSource};
use lakemark_table::{CancelFlag, TableNames, TableOptions};
use serde_json::json;

use crate::args::{ServeArgs, ShareChoice};
use crate::failure::Failure;
use crate::log::{Log, object};
use crate::output;
use crate::queries::typed_storage;
use crate::stop::Stop;

pub(crate) async fn serve(args: ServeArgs, log: Log) -> Result<(), Failure> {
    let stop = Stop::listen(CancelFlag::new())?;
    let is_named = args.config.is_some();
    let names = match &args.config {
        Some(path) => Names::of(Config::of([Document::read(path)?])?),
        None => Names::load()?,
    };
    let file = ServeConfig::of(names.config().documents())?;
    let mut config = typed(args, &names).await?.over(file);
    // Who says what is served means that, and nothing that is known besides.
    if is_named || (config.tables.is_empty() && config.warehouse.is_none()) {
        add_known(&mut config, &names).await?;
    }
    let mut options = config.options()?;
    options.settings = names.config().settings().cloned().collect();
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

/// Adds the tables that have names.
async fn add_known(config: &mut ServeConfig, names: &Names) -> Result<(), Failure> {
    for name in names.listed() {
        if !config.tables.iter().any(|known| known.name == name) {
            let place = names.resolve(&name, None, TableOptions::default()).await?;
            config.tables.push(TableSource { name, path: place.location, options: place.options });
        }
    }
    Ok(())
}

/// What was typed.
async fn typed(args: ServeArgs, names: &Names) -> Result<ServeConfig, Failure> {
    let storage = typed_storage(&args.storage);
    let mut tables: Vec<TableSource> = Vec::new();
    for table in args.tables {
        if tables.iter().any(|known| known.name == table.key) {
            return Err(Failure::Error(format!("two tables are named {}; give each a name of its own", table.key)));
        }
        let typed = TableOptions { storage: storage.clone(), ..TableOptions::default() };
        let place = names.resolve(&table.value, args.profile.as_deref(), typed).await?;
        tables.push(TableSource { name: table.key, path: place.location, options: place.options });
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
        share: args.share.map(|ShareChoice(share)| share),
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
