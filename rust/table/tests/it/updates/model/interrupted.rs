//! A reader is overtaken between two of its requests: what it then has is the table before or after, and never a mixture.

use lakemark_table::{ErrorKind, MigrateOptions, Operation, Table, TableOptions};
use rand::Rng;

use super::rows::{Reader, Unread};
use super::{Trial, assert_same};
use crate::layer::{Hook, Layer, Log};
use crate::updates::stops::Stops;

/// Requests that a snapshot of a small table makes.
const REQUESTS: u64 = 12;

impl Trial {
    pub async fn between(&mut self) -> &'static str {
        // It has looked before, or it comes for the first time.
        let (operations, location) = (Log::new(), self.root().to_str().unwrap().to_owned());
        let layer = |store| Layer::over(store, &operations);
        let reader = Table::open_layered(&location, TableOptions::default(), &layer).await.unwrap();
        if self.random.random_bool(0.5) {
            reader.snapshot().await.unwrap();
        }
        let (stops, mut stopped) = Stops::new(Some(self.random.random_range(0..REQUESTS)));
        operations.hook.set(Hook(Box::new(move || stops.step(false)))).unwrap();
        let (before, columns) = (self.expected.rows(), self.others.columns.clone());
        let mut reading = tokio::spawn({
            let reader = std::sync::Arc::clone(&reader);
            async move { reader.snapshot().await }
        });
        let mut what = "others: nothing between two requests";
        let snapshot = loop {
            tokio::select! {
                done = &mut reading => break done.unwrap().unwrap_or_else(|error| panic!("{what} between two requests: {error:?}")),
                Some(go) = stopped.recv() => {
                    what = self.overtake().await;
                    self.trace.push(format!("{} between {what}", self.operations));
                    self.note_versions();
                    go.send(()).unwrap();
                }
            }
        };
        let after = self.expected.rows();
        let rows = Reader::default().rows_of(&snapshot, &columns, &self.others.stored);
        match rows {
            Ok(rows) if rows == before => {}
            Ok(rows) => assert_same(&rows, &after, what),
            // A query that began before others removed a file of a folder has to be made again.
            Err(Unread::Gone(path)) => {
                let is_ours = self.others.form.is_delta || what == "others: publish";
                assert!(!is_ours, "{what}: {} is gone", path.display());
                let again = reader.snapshot().await.unwrap();
                assert_same(&self.reader.rows_of(&again, &columns, &self.others.stored).unwrap(), &after, what);
            }
            Err(why) => panic!("{what} between two requests: {why}"),
        }
        what
    }

    async fn overtake(&mut self) -> &'static str {
        match self.random.random_range(0..10) {
            0..4 if !self.others.form.is_delta => {
                if self.random.random_bool(0.5) {
                    self.migrate_part(1.0, None).await;
                }
                self.publish().await;
                "others: publish"
            }
            0..4 => {
                self.migrate().await;
                "others: migrate"
            }
            4..6 => {
                self.migrate().await;
                self.flush().await;
                "others: migrate and flush"
            }
            6 => match self.table().flush().await {
                Err(error) if error.kind() != ErrorKind::CacheFull => panic!("{error:?}"),
                _ => "others: flush",
            },
            7 => {
                let call = self.draw(Operation::Upsert);
                self.make_if_room(&call).await;
                "others: write"
            }
            8 => {
                // Twice, so that what the reader saw is two steps behind.
                self.migrate().await;
                self.call(Operation::Update).await;
                if !self.is_uncertain {
                    self.table().migrate(MigrateOptions::default()).await.unwrap();
                    self.all_migrated().await;
                }
                "others: two migrations"
            }
            // Folders of partitions are listed one after the other: of what others do to several files a reader may see a part.
            _ if self.classes.has("rows") && (self.others.form.is_delta || !self.others.form.is_partitioned) => {
                self.plain("rows").await
            }
            _ => "others: nothing between two requests",
        }
    }
}
