//! `info`: what a table is, and what is known of it.

use lakemark_datafusion::table_info;
use lakemark_table::Report;

use crate::args::{InfoArgs, TextFormat};
use crate::failure::Failure;
use crate::output;
use crate::queries::open_at;

pub(crate) async fn info(args: InfoArgs) -> Result<(), Failure> {
    let table = open_at(&args.at, args.version).await?;
    let info = table_info(&table).await?;
    if args.format == TextFormat::Json {
        return output::json_value(&info);
    }
    let mut said = info.describe();
    if info.indexes.is_empty() {
        said.notes.push("`lakemark index create TABLE --on COLUMN` makes an index".to_owned());
    }
    if info.updates.is_none() && info.version.is_none() {
        said.notes.push("`lakemark key TABLE --on COLUMN` makes the table take updates".to_owned());
    }
    output::text(&said.to_string())
}
