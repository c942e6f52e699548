//! Every future of the public interface can change threads as it is: this file does not compile otherwise.

use std::sync::Arc;

use lakemark_index::Predicate;
use lakemark_table::{BuildOptions, ProbeOptions, Table, TableOptions, VacuumOptions};
use object_store::ObjectStore;

use crate::fixture::{equals, folder, open, spec};

fn can_change_threads<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn every_public_future_can_change_threads() {
    let folder = folder(1);
    let path = folder.path().to_str().unwrap();
    let layer = |store: Arc<dyn ObjectStore>| store;
    can_change_threads(Table::open_layered(path, TableOptions::default(), &layer)).await.unwrap();
    let table = can_change_threads(Table::open(path, TableOptions::default())).await.unwrap();
    can_change_threads(table.create_index(spec("k"), false)).await.unwrap();
    can_change_threads(table.build(BuildOptions::default())).await.unwrap();
    can_change_threads(table.verify()).await.unwrap();
    can_change_threads(table.vacuum(VacuumOptions::default())).await.unwrap();
    let snapshot = can_change_threads(table.snapshot()).await.unwrap();
    let options = ProbeOptions::default();
    let found = can_change_threads(snapshot.probe(&equals("k", 3), &options)).await.unwrap();
    assert_eq!(found.report.coverage, 1.0);
    assert!(can_change_threads(table.drop_index("k_bitmap", false)).await.unwrap());
}

/// A caller's own future over borrowed things can, too.
#[tokio::test]
async fn futures_of_callers_need_no_tricks() {
    async fn counts(table: &Table, predicates: &[Predicate]) -> Vec<u64> {
        let mut counts = Vec::new();
        for predicate in predicates {
            let options = ProbeOptions { count_only: true, ..ProbeOptions::default() };
            let found = table.snapshot().await.unwrap().probe(predicate, &options).await.unwrap();
            counts.push(found.report.files_total);
        }
        counts
    }
    let folder = folder(2);
    let table = open(folder.path()).await;
    let predicates = [equals("k", 1), equals("k", 2)];
    assert_eq!(can_change_threads(counts(&table, &predicates)).await, [2, 2]);
}
