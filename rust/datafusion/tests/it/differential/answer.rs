//! Answers in a form that can be compared.

use std::collections::HashMap;
use std::fmt;

use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use lakemark_datafusion::LakemarkSession;

use super::query::Shape;

/// The answer to a statement: its rows as text (so that NaN equals itself and -0.0 is not 0.0), or that it is an error.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Rows; sorted unless the statement orders them.
    Rows(Vec<String>),
    /// An error. Its text may name operators, so that it is shown and not compared.
    Error(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(text) => write!(f, "error: {text}"),
            Self::Rows(rows) => {
                write!(f, "{} rows: {}", rows.len(), rows.iter().take(12).cloned().collect::<Vec<_>>().join(" ; "))
            }
        }
    }
}

impl Answer {
    /// How many rows of the table it is about; none for an error.
    pub fn table_rows(&self, shape: &Shape) -> Option<u64> {
        let Self::Rows(rows) = self else { return None };
        let last_number = |row: &String| row.rsplit('|').next().and_then(|text| text.parse::<u64>().ok());
        match shape {
            Shape::Count | Shape::Groups(_) | Shape::Aggregates(_) => rows.iter().map(last_number).sum(),
            Shape::Ids | Shape::Rows | Shape::Computed(_) | Shape::Top { .. } | Shape::Limit(_) => {
                u64::try_from(rows.len()).ok()
            }
        }
    }

    /// Whether these are rows of `all`, each at most as often as there, and `limit` of them or all.
    pub fn is_part_of(&self, all: &Self, limit: usize) -> bool {
        let (Self::Rows(rows), Self::Rows(all)) = (self, all) else {
            // A LIMIT may end before the row that would be an error.
            return true;
        };
        let mut left: HashMap<&str, usize> = HashMap::new();
        for row in all {
            *left.entry(row).or_default() += 1;
        }
        let contained = rows.iter().all(|row| {
            left.get_mut(row.as_str()).is_some_and(|count| count.checked_sub(1).map(|less| *count = less).is_some())
        });
        contained && rows.len() == limit.min(all.len())
    }
}

/// Asks one session for rows of a shape.
pub async fn ask(session: &LakemarkSession, shape: &Shape, sql: &str) -> Answer {
    ask_sql(session, sql, matches!(shape, Shape::Top { .. })).await
}

/// Asks one session; rows are sorted unless they are in an order.
pub async fn ask_sql(session: &LakemarkSession, sql: &str, is_ordered: bool) -> Answer {
    let batches = match session.sql(sql).await {
        Ok(frame) => frame.collect().await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match batches {
        Err(text) => Answer::Error(text),
        Ok(batches) => {
            let mut rows: Vec<String> = batches.iter().flat_map(texts).collect();
            if !is_ordered {
                rows.sort_unstable();
            }
            Answer::Rows(rows)
        }
    }
}

/// Whether two answers are the same, as far as the shape determines the answer.
pub fn same(shape: &Shape, one: &Answer, other: &Answer) -> bool {
    match (shape, one, other) {
        (Shape::Limit(_), ..) | (_, Answer::Error(_), Answer::Error(_)) => true,
        (_, Answer::Rows(one), Answer::Rows(other)) => one == other,
        _ => false,
    }
}

fn texts(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("∅");
    let columns: Vec<ArrayFormatter<'_>> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|"))
        .collect()
}
