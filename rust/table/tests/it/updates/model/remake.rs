//! A Delta table is dropped and made anew in the same place, beside the store of the old one.

use std::fs;
use std::sync::Arc;

use lakemark_table::Operation;
use rand::Rng;

use super::changes::write;
use super::upkeep::says_what_to_do;
use super::{Trial, assert_same, files_below};
use crate::fixture::open;

impl Trial {
    pub async fn remake(&mut self) -> &'static str {
        if !self.others.form.is_delta || self.is_uncertain {
            return "nothing";
        }
        let old = Arc::clone(&self.tables[0]);
        let was_buffered = !self.expected.buffered.is_empty();
        let root = self.root();
        fs::remove_dir_all(root.join("_delta_log")).unwrap();
        for path in files_below(&root) {
            if !path.starts_with(root.join("_lakemark")) {
                fs::remove_file(path).unwrap();
            }
        }
        self.held.clear();
        self.expected.base.clear();
        self.oldest = 0;
        self.others.begin(&mut self.random);
        self.fill();
        let is_kept = self.random.random_bool(0.7);
        if is_kept {
            let call = self.draw(Operation::Upsert);
            for table in [old, open(&root).await] {
                match table.snapshot().await {
                    Err(error) => {
                        assert!(says_what_to_do(error.kind()), "{error:?}");
                        let columns = self.others.columns.clone();
                        let written = write(&table, std::slice::from_ref(&call), &columns, &self.key, None).await;
                        assert!(written.is_err_and(says_what_to_do));
                    }
                    Ok(snapshot) => {
                        assert!(!was_buffered, "what is buffered of a table that is gone is laid over another one");
                        let rows = self.reader.rows_of(&snapshot, &self.others.columns, &self.others.stored).unwrap();
                        assert_same(&rows, &self.expected.base, "made anew");
                    }
                }
            }
        }
        self.discard_store().await;
        if is_kept { "others: table made anew beside its store" } else { "others: table and store made anew" }
    }
}
