//! `links`: what nodes are linked with, what they reach, and how.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use lakemark_table::{Error, ErrorKind, LinkDirection, LinkMemoryLimit, Links, Snapshot, WalkOptions, machine_memory};

use crate::args::LinksArgs;
use crate::failure::Failure;
use crate::output;
use crate::queries::open_at;

/// Of this part of the machine's memory a walk may take, and links that no index has as much again.
const MEMORY_SHARE: u64 = 4;
/// The memory of a machine that does not say how much it has.
const UNKNOWN_MEMORY: u64 = 4 << 30;

pub(crate) async fn links(args: LinksArgs) -> Result<(), Failure> {
    let table = open_at(&args.at, args.version).await?;
    let snapshot = table.snapshot().await?;
    let columns = if args.on.is_empty() { columns_of(&snapshot)? } else { args.on.clone() };
    let memory = machine_memory().unwrap_or(UNKNOWN_MEMORY) / MEMORY_SHARE;
    let walk = LinkMemoryLimit::new(memory);
    let links = Links::of(snapshot, &columns, memory).await?;
    let direction = match (args.back, args.both) {
        (true, _) => LinkDirection::In,
        (_, true) => LinkDirection::Both,
        _ => LinkDirection::Out,
    };
    let via = Some(args.via).filter(|via| !via.is_empty()).map(texts);
    let options =
        WalkOptions { via, direction, max_depth: args.max_depth, limit: args.limit, ..WalkOptions::default() };
    let from = texts(args.from);
    let rows = match (args.to, args.reach) {
        (Some(to), _) => links.path(&from, &texts(vec![to]), &options, &walk).await?,
        (None, true) => links.reach(&from, &options, &walk).await?,
        (None, false) if args.max_depth.is_some() => {
            return Err(
                Error::new(ErrorKind::InvalidInput, "--max-depth goes with --reach or --to; give one of them").into()
            );
        }
        (None, false) => links.neighbours(&from, &options, &walk).await?,
    };
    output::batch(rows, args.format)
}

/// Nodes and predicates as they were typed; they are read as values of their column.
fn texts(values: Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

/// The columns of the only index of the kind links.
fn columns_of(snapshot: &Snapshot) -> Result<Vec<String>, Error> {
    match snapshot.link_columns().as_slice() {
        [columns] => Ok(columns.clone()),
        [] => Err(Error::new(
            ErrorKind::NotFound,
            "the table has no index of the kind links; create one with `lakemark index create TABLE --on s,p,o --using links`, or name the \
             columns with --on",
        )),
        several => {
            let shown: Vec<String> = several.iter().map(|columns| format!("({})", columns.join(", "))).collect();
            let text =
                format!("there are links over {}; name the columns that are meant with --on", shown.join(" and "));
            Err(Error::new(ErrorKind::InvalidInput, text))
        }
    }
}
