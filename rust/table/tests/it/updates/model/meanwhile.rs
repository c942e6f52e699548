//! Others go on while a migration writes its files: it stops at some step of its progress until they are done.

use lakemark_table::{ErrorKind, MigrateOptions, Operation};
use rand::Rng;

use super::expected::{Call, Expected};
use super::rows::{Rows, draw_row};
use super::{HANDLES, Trial, store};
use crate::updates::stops::{Stops, vacuum_hours_later};

impl Trial {
    /// A migration, and what others do while it runs.
    pub async fn meanwhile(&mut self) -> &'static str {
        if self.is_uncertain || self.expected.buffered.is_empty() {
            return "nothing";
        }
        let is_whole = self.random.random_bool(0.5) || !self.classes.has("slices");
        let fraction = if is_whole { 1.0 } else { self.random.random_range(0.05..0.9) };
        let is_blind = self.random.random_bool(0.15);
        let (stops, mut stopped) = Stops::new((!is_blind).then(|| self.random.random_range(0..4)));
        let begun = self.expected.buffered.clone();
        let mut since: Vec<Call> = Vec::new();
        let options = MigrateOptions { fraction, progress: Some(stops), ..MigrateOptions::default() };
        let migrating = self.at;
        let table = self.table();
        let mut migration = tokio::spawn(async move { table.migrate(options).await });
        let (mut what, mut is_over) = ("others: nothing while it was migrated", false);
        loop {
            tokio::select! {
                done = &mut migration => {
                    if let Err(error) = done.unwrap() { panic!("{what}: {error:?}") }
                    break;
                }
                Some(go) = stopped.recv() => {
                    // Indexes are built once it is over: then others come later.
                    let has_ended = !is_over && !store::is_migrating(&self.root());
                    let is_unknown = has_ended && fraction < 1.0 && !self.knows_what_was_migrated().await;
                    if has_ended && !is_unknown {
                        is_over = true;
                        self.ended(fraction, &begun, &since).await;
                    }
                    self.at = (migrating + self.random.random_range(1..HANDLES)) % HANDLES;
                    what = match is_blind {
                        true => self.blind_append(),
                        false if is_unknown => "others: read while it was migrated",
                        false => self.during(is_whole && !is_over, &mut since).await,
                    };
                    self.trace.push(format!("{} meanwhile {what}", self.operations));
                    self.note_versions();
                    self.check().await;
                    go.send(()).unwrap();
                }
            }
        }
        self.at = migrating;
        if !is_over {
            self.ended(fraction, &begun, &since).await;
        }
        what
    }

    /// What was buffered when it began is in the data files; what came since is not.
    async fn ended(
        &mut self,
        fraction: f64,
        begun: &std::collections::BTreeMap<i64, super::expected::Buffered>,
        since: &[Call],
    ) {
        if fraction < 1.0 {
            return self.sliced().await;
        }
        let rows = self.expected.rows();
        let mut expected = Expected { base: std::mem::take(&mut self.expected.base), buffered: begun.clone() };
        // Columns that others dropped meanwhile are gone from what was buffered as well.
        expected.keep_columns(&self.others.columns);
        if let Some(backup) = &mut self.backup {
            backup.migrated.extend(begun.keys());
        }
        expected.migrated(&std::collections::BTreeSet::new());
        since.iter().for_each(|call| assert!(expected.make(std::slice::from_ref(call)), "{call:?}"));
        expected.keep_columns(&self.others.columns);
        super::assert_same(&expected.rows(), &rows, "the model itself");
        self.expected = expected;
        self.check_base();
    }

    async fn during(&mut self, may_write: bool, since: &mut Vec<Call>) -> &'static str {
        match self.random.random_range(0..10) {
            0 => "others: read while it was migrated",
            1 | 2 if may_write => {
                let operation =
                    [Operation::Upsert, Operation::Delete, Operation::Update][self.random.random_range(0..3)];
                // Mostly of keys that are buffered.
                let mut keys = self.some_keys();
                let buffered = self.expected.buffered.keys().copied();
                keys.extend(buffered.filter(|_| self.random.random_bool(0.3)).collect::<Vec<_>>());
                keys.sort_unstable();
                keys.dedup();
                let call = self.draw_for(operation, keys);
                let before = self.sequence;
                self.make_if_room(&call).await;
                if self.sequence > before {
                    since.push(call);
                }
                if self.random.random_bool(0.5) {
                    // A full cache takes no run.
                    drop(self.table().flush().await);
                }
                "others: write while it was migrated"
            }
            3 => {
                self.held.clear();
                vacuum_hours_later(&self.root()).await;
                "others: vacuum while it was migrated"
            }
            4 if !self.others.form.is_delta => {
                let error = self.table().publish().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
                "others: publish while it was migrated"
            }
            5 | 6 if self.classes.has("schema") => self.plain("schema").await,
            7 if self.classes.has("restore") => self.plain("restore").await,
            _ if self.classes.has("rows") => self.plain("rows").await,
            _ => "others: read while it was migrated",
        }
    }

    /// A key that nobody has changed and no file has is added, each time that the migration begins anew.
    fn blind_append(&mut self) -> &'static str {
        let key = (self.keys..).find(|key| !self.expected.base.contains_key(key) && !self.expected.is_buffered(*key));
        let rows = Rows::from([(key.unwrap(), draw_row(&mut self.random, &self.others.columns))]);
        self.others.append(&mut self.random, &rows);
        self.expected.base.extend(rows);
        "others: append whenever it is migrated"
    }
}
