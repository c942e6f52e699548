//! `config`: what the configuration says, and where.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use lakemark_catalog::{Names, ShownEntry};
use lakemark_serve::ServeConfig;

use crate::args::ConfigArgs;
use crate::failure::Failure;
use crate::output;

/// A column: its name, and what a row has there.
type Column = (&'static str, fn(&ShownEntry) -> &str);

const COLUMNS: [Column; 5] = [
    ("kind", |row| row.kind),
    ("name", |row| &row.name),
    ("key", |row| &row.key),
    ("value", |row| &row.value),
    ("source", |row| &row.place),
];

pub(crate) fn config(args: &ConfigArgs) -> Result<(), Failure> {
    let names = Names::load()?;
    // What the server would refuse is told here, too.
    ServeConfig::of(names.config().documents())?.options()?;
    let shown = names.config().shown()?;
    let columns = COLUMNS.map(|(name, of)| {
        let values: ArrayRef = Arc::new(StringArray::from_iter_values(shown.iter().map(of)));
        (name, values)
    });
    let rows = RecordBatch::try_from_iter(columns)
        .map_err(|error| Failure::Error(format!("the list cannot be drawn: {error}")))?;
    output::batch(rows, args.format)
}
