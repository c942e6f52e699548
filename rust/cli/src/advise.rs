//! `index advise`: which indexes to build, and building them.

use std::sync::Arc;

use lakemark_table::advise::{Advice, Proposal};
use lakemark_table::{BuildReport, CancelFlag, IndexKind, IndexOption, IndexSpec, Report, Table, column_list};

use crate::args::{AdviseArgs, TextFormat};
use crate::failure::Failure;
use crate::maintain::{check_failures, run_build};
use crate::output;
use crate::progress::CtrlC;
use crate::queries::open;

pub(crate) async fn advise(args: AdviseArgs) -> Result<(), Failure> {
    let cancel = CancelFlag::new();
    let _listening = if args.apply { Some(CtrlC::sets(cancel.clone())?) } else { None };
    let queries = match &args.queries {
        None => None,
        Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
            Failure::Error(format!(
                "the queries in {} cannot be read: {error}; give a text file of SQL",
                path.display()
            ))
        })?),
    };
    let table = open(&args.at).await?;
    let advice = lakemark_datafusion::advise(&table, queries.as_deref()).await?;
    let is_json = args.json || args.format == TextFormat::Json;
    if is_json {
        output::json_value(&advice)?;
    } else {
        let next = if args.apply { String::new() } else { format!("\n{}", next_step(&args, &advice)) };
        output::text(&format!("{}{next}", advice.to_string().trim_end()))?;
    }
    if !args.apply || advice.indexes.is_empty() {
        return Ok(());
    }
    let Applied { created, reports } = apply(&table, &advice.indexes, &args, cancel).await?;
    if !is_json {
        let said = reports.iter().map(|report| format!("\n{}", report.describe()));
        output::text(&format!("\ncreated {}{}", created.join(", "), said.collect::<String>()))?;
    }
    reports.iter().try_for_each(|report| check_failures(report, &table))
}

/// The line that says what to do now.
fn next_step(args: &AdviseArgs, advice: &Advice) -> String {
    let table = &args.at.table;
    let queries = args.queries.as_ref().map(|path| format!(" --queries {}", path.display())).unwrap_or_default();
    match (advice.indexes.first(), &args.queries) {
        (Some(first), _) => {
            let include = included(first).map(|names| format!(" --include {names}")).unwrap_or_default();
            format!(
                "\nnext: `lakemark index advise {table}{queries} --apply` builds them all, `lakemark index create {table} --on {}{include}` \
                 the first",
                first.column
            )
        }
        (None, None) => format!("\nnext: `lakemark index advise {table} --queries FILE.sql` looks at your own queries"),
        (None, Some(_)) => {
            format!("\nnext: nothing to do; `lakemark index list {table}` shows the indexes that there are")
        }
    }
}

/// The columns to include, as a list; none if there are none.
fn included(proposal: &Proposal) -> Option<String> {
    let names = proposal.include.iter().map(String::as_str);
    (!proposal.include.is_empty()).then(|| column_list(names))
}

/// What was made of an advice.
struct Applied {
    /// Names of the indexes.
    created: Vec<String>,
    reports: Vec<BuildReport>,
}

/// Declares the indexes and builds them.
async fn apply(
    table: &Arc<Table>,
    proposals: &[Proposal],
    args: &AdviseArgs,
    cancel: CancelFlag,
) -> Result<Applied, Failure> {
    // Other indexes are not filled: that may take hours and was not asked for. Where all are, one pass serves the new ones.
    let at_once = table.snapshot().await?.indexes().iter().all(|index| index.files_covered == index.files_total);
    let mut created = Vec::new();
    for proposal in proposals {
        // Other kinds have the one encoding of theirs.
        let is_bitmap = proposal.kind == IndexKind::Bitmap;
        let encoding =
            is_bitmap.then(|| (IndexOption::Encoding.name().to_owned(), proposal.encoding.name().to_owned()));
        let include = included(proposal).map(|names| (IndexOption::Include.name().to_owned(), names));
        let spec = IndexSpec {
            columns: vec![proposal.column.clone()],
            kind: Some(proposal.kind),
            options: encoding.into_iter().chain(include).collect(),
            ..IndexSpec::default()
        };
        table.create_index(spec, false).await?;
        created.push(format!("{}_{}", proposal.column, proposal.kind.name()));
    }
    let mut reports = Vec::new();
    if at_once {
        reports.push(run_build(table, None, &args.tuning, cancel).await?);
        return Ok(Applied { created, reports });
    }
    for name in &created {
        reports.push(run_build(table, Some(name.clone()), &args.tuning, cancel.clone()).await?);
    }
    Ok(Applied { created, reports })
}
