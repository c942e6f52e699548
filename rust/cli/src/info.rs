//! `info`: what a table is, and what is known of it.

use std::fmt::Write;

use lakemark_datafusion::QueryOptions;
use lakemark_table::{IndexInfo, Snapshot, Table, UpdatesInfo};
use serde_json::json;

use crate::args::{Format, InfoArgs, TextFormat};
use crate::ask::open_at;
use crate::failure::Failure;
use crate::maintain::index_rows;
use crate::output;
use crate::updates::updates_text;

pub(crate) async fn info(args: InfoArgs) -> Result<(), Failure> {
    let table = open_at(&args.at, args.version).await?;
    let snapshot = table.snapshot().await?;
    let facts = Facts {
        rows: lakemark_datafusion::count(&table, None, &QueryOptions::default()).await?,
        updates: table.updates_info().await?,
        indexes: snapshot.checked_indexes().await?,
    };
    match args.format {
        TextFormat::Json => output::json_value(&info_json(&table, &snapshot, &facts)),
        TextFormat::Text => {
            output::text(&info_text(&table, &snapshot, &facts))?;
            if facts.indexes.is_empty() {
                return output::text("indexes: none; `lakemark index create TABLE --on COLUMN` makes one");
            }
            output::batch(index_rows(&facts.indexes)?, Format::Table)
        }
    }
}

/// What has to be asked for beside the snapshot.
struct Facts {
    rows: u64,
    updates: Option<UpdatesInfo>,
    indexes: Vec<IndexInfo>,
}

fn info_json(table: &Table, snapshot: &Snapshot, facts: &Facts) -> serde_json::Value {
    let schema = snapshot.schema();
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| json!({ "name": field.name(), "data_type": field.data_type().to_string(), "nullable": field.is_nullable() }))
        .collect();
    let partitions: Vec<_> = snapshot.partition_columns().iter().map(|field| field.name().clone()).collect();
    json!({
        "table": table.location(),
        "format": table.format().to_string(),
        "store": table.store_location(),
        "delta_version": snapshot.delta_version(),
        "manifest": snapshot.manifest_number(),
        "files": snapshot.files().len(),
        "bytes": data_bytes(snapshot),
        "rows": facts.rows,
        "columns": columns,
        "partition_columns": partitions,
        "indexes": facts.indexes,
        "updates": facts.updates,
    })
}

fn info_text(table: &Table, snapshot: &Snapshot, facts: &Facts) -> String {
    let mut text = format!(
        "table:    {} ({})\nstore:    {}\n",
        table.location(),
        table.format(),
        table.store_location().unwrap_or("none")
    );
    if let Some(version) = snapshot.delta_version() {
        let _ = writeln!(text, "version:  {version}");
    }
    let manifest = snapshot.manifest_number().map_or_else(|| "none".to_owned(), |number| number.to_string());
    let _ = writeln!(text, "manifest: {manifest}");
    let _ = writeln!(text, "data:     {} files, {} bytes", snapshot.files().len(), data_bytes(snapshot));
    let _ = writeln!(text, "rows:     {}", facts.rows);
    let partitions: Vec<&String> = snapshot.partition_columns().iter().map(|field| field.name()).collect();
    text.push_str("columns:");
    for field in snapshot.schema().fields() {
        let partition = if partitions.contains(&field.name()) { " (partition)" } else { "" };
        let _ = write!(text, "\n  {} {}{partition}", field.name(), field.data_type());
    }
    match &facts.updates {
        Some(updates) => text.push_str(&format!("\n{}", updates_text(updates))),
        None if table.version().is_some() => {}
        None => text.push_str("\nupdates: none; `lakemark key TABLE --on COLUMN` makes the table take some"),
    }
    text
}

fn data_bytes(snapshot: &Snapshot) -> u64 {
    snapshot.files().iter().map(|file| file.meta.size).sum()
}
