//! Statements, tables and answers for a judge that is another engine.
//!
//! Each seed gets a folder: `t.parquet`, `u.parquet` and `v.parquet`, and `statements.jsonl`, one statement a line with the rows of its answer as text.
//! Only what every engine has and means alike is written: no type of one engine, no error that a row raises.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use parquet::arrow::ArrowWriter;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;

use super::super::alone;
use super::super::answer::{Answer, ask_sql};
use super::source::NamedTable;
use super::statement::Statement;
use super::{Judges, STATEMENTS_PER_SEED, run_sql, tables};

/// Writes `statements` statements and what they need into a folder.
pub fn write(folder: &Path, statements: u64, seed: u64) {
    for ordinal in 0..statements.div_ceil(STATEMENTS_PER_SEED) {
        let count = STATEMENTS_PER_SEED.min(statements - ordinal * STATEMENTS_PER_SEED);
        let seed = seed.wrapping_add(ordinal);
        alone(write_seed(&folder.join(seed.to_string()), count, seed));
    }
}

async fn write_seed(folder: &Path, count: u64, seed: u64) {
    let tables = tables(seed, true).await;
    let judges = Judges::open(&tables, &mut StdRng::seed_from_u64(seed)).await;
    std::fs::create_dir_all(folder).unwrap();
    for NamedTable { name, .. } in &tables {
        let rows = run_sql(&judges.memory, &format!("SELECT * FROM {name}")).await;
        let schema = judges.memory.context().table_provider(*name).await.unwrap().schema();
        let file = File::create(folder.join(format!("{name}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, schema, None).unwrap();
        rows.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.close().unwrap();
    }
    let mut lines = File::create(folder.join("statements.jsonl")).unwrap();
    for number in 0..count {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let statement = Statement::random(&mut rng, &tables);
        if statement.may_raise {
            continue;
        }
        let (sql, is_ordered) = (statement.sql(), statement.is_ordered());
        if let Answer::Rows(rows) = ask_sql(&judges.memory, &sql, is_ordered).await {
            let line = json!({"seed": seed, "statement": number, "sql": sql, "ordered": is_ordered, "rows": rows});
            writeln!(lines, "{line}").unwrap();
        }
    }
}
