//! What browsers and collectors see of a server: a page, the counters, and whether it is well.
//!
//! The page is made whole for each request, without scripts, and asks for itself again from time to time.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use lakemark_datafusion::{PlanningCounts, SharingCounts};
use lakemark_table::metrics::{NamedMetrics, open_metrics};
use lakemark_table::{Error, ErrorKind, IndexInfo, Result, Stopwatch, UpdatesInfo};

use crate::http::{OPEN_METRICS, Page, Pages, TEXT};
use crate::running::{Running, Shown};
use crate::statements::Statements;
use crate::tables::ServedTable;
use crate::turns::{Load, Turns};

const HTML: &str = "text/html; charset=utf-8";

/// How long the page waits for what is known of a table.
const TOLD_WITHIN: Duration = Duration::from_secs(3);

/// An empty icon. For a page without one the browser asks for `/favicon.ico`, and complains that the policy of the page forbids it.
const ICON: &str = "data:,";

/// The look of the page.
const STYLE: &str = "\
:root{color-scheme:light dark;--line:color-mix(in srgb,currentColor 18%,transparent);--quiet:color-mix(in srgb,currentColor 60%,transparent)}\
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.25rem 0;color:var(--quiet)}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35rem .75rem .35rem 0;border-bottom:1px solid var(--line);vertical-align:top}\
th{font-weight:600;color:var(--quiet)}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
code{font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}meter{width:6rem;vertical-align:middle}\
.bad{color:#c0392b}";

/// The pages of a server.
pub(crate) struct ServerPages {
    pub(crate) statements: Arc<Statements>,
    pub(crate) running: Arc<Running>,
    pub(crate) turns: Arc<Turns>,
    /// Where clients connect.
    pub(crate) address: String,
    pub(crate) since: Stopwatch,
    /// Whether the server was told to end.
    pub(crate) is_ending: Arc<AtomicBool>,
}

impl Pages for ServerPages {
    fn paths(&self) -> &'static [&'static str] {
        &["/", "/metrics", "/health"]
    }

    fn page<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Page> {
        Box::pin(async move {
            match path {
                "/metrics" => Page { content_type: OPEN_METRICS, is_well: true, body: self.counters() },
                "/health" => self.health(),
                _ => Page { content_type: HTML, is_well: true, body: self.overview().await },
            }
        })
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl ServerPages {
    fn health(&self) -> Page {
        let is_well = !self.is_ending.load(Ordering::Relaxed);
        let body = if is_well { "serving\n" } else { "ending\n" };
        Page { content_type: TEXT, is_well, body: body.to_owned() }
    }

    /// The counters of the tables, and those of the server.
    fn counters(&self) -> String {
        let tables = self.statements.tables().list();
        let named: Vec<NamedMetrics<'_>> = tables
            .iter()
            .map(|served| NamedMetrics { table: served.table.location(), metrics: served.table.metrics() })
            .collect();
        let text = open_metrics(&named, lakemark_table::now());
        let of_tables = text.strip_suffix("# EOF\n").unwrap_or(&text);
        let Load { running, waiting, refused } = self.turns.load();
        let SharingCounts { hosts, guests, detached } = self.statements.shared();
        let PlanningCounts { planned, taken, .. } = self.statements.plannings();
        let mut all = of_tables.to_owned();
        for (name, kind, help, sample, value) in [
            ("lakemark_statements", "counter", "Statements that began.", "_total", self.running.begun()),
            ("lakemark_statements_refused", "counter", "Statements that got no turn.", "_total", refused),
            (
                "lakemark_statements_planned",
                "counter",
                "Queries whose text was planned, each for all who asked it.",
                "_total",
                planned,
            ),
            (
                "lakemark_statements_planned_by_others",
                "counter",
                "Queries that another one was planned for.",
                "_total",
                taken,
            ),
            ("lakemark_plans_hosted", "counter", "Plans that ran, and that others could share.", "_total", hosts),
            ("lakemark_plans_shared", "counter", "Plans that another one ran for.", "_total", guests),
            ("lakemark_plans_detached", "counter", "Shared plans that had to run in the end.", "_total", detached),
            ("lakemark_statements_running", "gauge", "Statements that have a turn.", "", running as u64),
            ("lakemark_statements_waiting", "gauge", "Statements that wait for a turn.", "", waiting as u64),
        ] {
            // Writing into a text cannot fail.
            let _ = writeln!(all, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{sample} {value}");
        }
        all.push_str("# EOF\n");
        all
    }

    async fn overview(&self) -> String {
        let tables = self.statements.tables().list();
        let states = join_all(tables.iter().map(state_of)).await;
        let Load { running, waiting, refused } = self.turns.load();
        let SharingCounts { hosts, guests, .. } = self.statements.shared();
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <link rel=\"icon\" href=\"{ICON}\"><meta http-equiv=\"refresh\" content=\"5\"><title>Lakemark</title><style>{STYLE}</style></head><body>\
             <h1>Lakemark</h1><p><code>{}</code> · {} · up {} · {running} running, {waiting} waiting, {refused} refused, {} since the start · {} of {} plans shared</p>",
            escaped(&self.address),
            if self.statements.is_read_only() { "read-only" } else { "takes updates" },
            duration(self.since.seconds()),
            self.running.begun(),
            guests,
            hosts.saturating_add(guests),
        );
        add_statements(&mut page, &self.running.list());
        page.push_str("<h2>Tables</h2><table id=\"tables\"><thead><tr><th>table</th><th>place</th><th class=\"n\">files</th><th class=\"n\">rows</th><th>indexes</th><th>pending updates</th></tr></thead><tbody>");
        for (served, state) in tables.iter().zip(&states) {
            add_table(&mut page, served, state);
        }
        page.push_str(
            "</tbody></table><p><a href=\"/metrics\">counters</a> · <a href=\"/health\">health</a></p></body></html>\n",
        );
        page
    }
}

/// What is shown of a table.
struct TableState {
    files: u64,
    rows: Option<u64>,
    indexes: Vec<IndexInfo>,
    updates: Option<UpdatesInfo>,
}

/// What is shown of a table, or why that is not known. One whose storage does not answer must not keep the others from the page.
async fn state_of(served: &ServedTable) -> Result<TableState> {
    let told = tokio::time::timeout(TOLD_WITHIN, read_state(served)).await;
    told.unwrap_or_else(|_| {
        let message = format!("nothing was heard of the table within {} s", TOLD_WITHIN.as_secs());
        Err(Error::new(ErrorKind::Io, message))
    })
}

async fn read_state(served: &ServedTable) -> Result<TableState> {
    let snapshot = served.table.snapshot().await?;
    Ok(TableState {
        files: snapshot.files().len() as u64,
        rows: snapshot.rows(),
        indexes: snapshot.indexes(),
        updates: served.table.updates_info().await?,
    })
}

fn add_statements(page: &mut String, statements: &[Shown]) {
    page.push_str("<h2>Running</h2>");
    if statements.is_empty() {
        page.push_str("<p id=\"running\">Nothing runs.</p>");
        return;
    }
    page.push_str("<table id=\"running\"><thead><tr><th>statement</th><th>client</th><th class=\"n\">seconds</th><th class=\"n\">rows sent</th></tr></thead><tbody>");
    for Shown { text, client, seconds, rows } in statements {
        let _ = write!(
            page,
            "<tr><td><code>{}</code></td><td>{}</td><td class=\"n\">{seconds:.1}</td><td class=\"n\">{rows}</td></tr>",
            escaped(text),
            escaped(client)
        );
    }
    page.push_str("</tbody></table>");
}

fn add_table(page: &mut String, served: &ServedTable, state: &Result<TableState>) {
    let (name, place) = (escaped(&served.shown_name()), escaped(served.table.location()));
    let _ = write!(page, "<tr><td><strong>{name}</strong></td><td><code>{place}</code></td>");
    let state = match state {
        Ok(state) => state,
        Err(error) => {
            let _ = write!(page, "<td colspan=\"4\" class=\"bad\">{}</td></tr>", escaped(&error.to_string()));
            return;
        }
    };
    let rows = state.rows.map_or_else(|| "–".to_owned(), |rows| rows.to_string());
    let _ = write!(page, "<td class=\"n\">{}</td><td class=\"n\">{rows}</td><td>", state.files);
    if state.indexes.is_empty() {
        page.push_str("none");
    }
    for index in &state.indexes {
        let percent = (index.coverage * 100.0).floor();
        let _ = write!(
            page,
            "<div>{} <meter value=\"{}\" title=\"{percent}% of the files\"></meter> {percent}%</div>",
            escaped(&index.name),
            index.coverage
        );
    }
    let pending = match &state.updates {
        None => "takes none".to_owned(),
        Some(updates) => {
            let percent = (updates.cache_share * 100.0).ceil();
            format!("{} keys in the buffer, {} runs, {percent}% of the cache", updates.buffer_keys, updates.runs.len())
        }
    };
    let _ = write!(page, "</td><td>{pending}</td></tr>");
}

fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// A text as part of a page, whatever letters it has.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_can_write_into_the_page() {
        let mut page = String::new();
        let shown = Shown {
            text: "SELECT '<script>alert(1)</script>&\"'".to_owned(),
            client: "<b>".into(),
            seconds: 1.25,
            rows: 3,
        };
        add_statements(&mut page, &[shown]);
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;") && page.contains("&lt;b&gt;"),
            "{page}"
        );
        assert!(!page.contains("<script") && page.contains(">1.2<") && page.contains(">3<"), "{page}");
    }

    #[test]
    fn times_have_their_two_largest_units() {
        assert_eq!([59.9, 61.0, 3700.0, 90_061.0].map(duration), ["59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }
}
