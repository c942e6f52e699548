//! The disk fails while a build writes the checkpoint that its commit makes due: the commit stays, and a later one writes the checkpoint.

use lakemark_table::faults::{Event, InjectedFailure, journal, mend, watch};
use lakemark_table::{IndexSpec, Table};

use super::told::compare_checkpoints;
use super::{FailureAt, check, copy, create, open, spec_of, work};

/// Edits before the build: its commit is the 64th.
const EDITS: u64 = 63;

/// Commits until there are so many edits, and leaves nothing else.
pub async fn commit_until(table: &Table, edits: u64) {
    while table.snapshot().await.unwrap().manifest_number() < Some(edits) {
        let spare = IndexSpec { name: Some("spare".to_owned()), ..spec_of("k", "bitmap") };
        if !table.drop_index("spare", true).await.unwrap() {
            table.create_index(spare, false).await.unwrap();
        }
    }
    assert_eq!(table.snapshot().await.unwrap().indexes().len(), 2, "an odd number of commits was left");
}

/// Whether a step is about a piece of the checkpoint.
fn is_of_piece(event: &Event) -> bool {
    format!("{event:?}").contains("_lakemark/checkpoint")
}

/// Whether a step gives the root of the checkpoint its name.
fn is_link_of_root(event: &Event) -> bool {
    matches!(event, Event::Link { to, .. } if to.extension().is_some_and(|end| end == "lmk"))
}

/// The first step of the disk that is about the checkpoint, and the one that gives its root the name. How many lie between them depends on
/// the times of the files, which decide where the pieces end.
fn steps_of_checkpoint(events: &[Event]) -> (u64, u64) {
    let number = |is_it: fn(&Event) -> bool| events.iter().position(is_it).unwrap() as u64 + 1;
    (number(is_of_piece), number(is_link_of_root))
}

/// Whether the step that failed first was one of the checkpoint.
fn failed_in_checkpoint(events: &[Event]) -> bool {
    let first = events.iter().position(|event| matches!(event, Event::Failed(_))).unwrap();
    events[..=first].iter().any(is_of_piece) && !events[..first].iter().any(is_link_of_root)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_while_a_checkpoint_is_due_costs_the_checkpoint_and_no_commit() {
    let stride: u64 = std::env::var("LAKEMARK_BUILD_STRIDE").map_or(5, |text| text.parse().unwrap());
    let template = tempfile::tempdir().unwrap();
    create(template.path()).await;
    commit_until(&*open(template.path()).await, EDITS).await;
    let begin = || {
        let folder = tempfile::tempdir().unwrap();
        copy(template.path(), folder.path());
        let root = std::fs::canonicalize(folder.path()).unwrap();
        (folder, root)
    };
    let (_folder, root) = begin();
    watch(&root, InjectedFailure::None, true);
    work(&*open(&root).await).await.unwrap();
    let (first, last) = steps_of_checkpoint(&journal(&root));
    assert!(last - first > 8, "steps {first} to {last}");
    let failures: [FailureAt; 3] = [InjectedFailure::Full, InjectedFailure::Once, InjectedFailure::Folders];
    for failure in failures {
        let mut hits = 0;
        for at in (first..=last).step_by(stride.div_ceil(2) as usize) {
            let (_folder, root) = begin();
            let text = format!("{:?} of steps {first} to {last}", failure(at));
            let table = open(&root).await;
            watch(&root, failure(at), true);
            let worked = work(&table).await;
            let of_checkpoint = failed_in_checkpoint(&journal(&root));
            hits += u64::from(of_checkpoint);
            mend(&root);
            match worked {
                // What follows the checkpoint failed, too.
                Err(error) if !of_checkpoint || !matches!(failure(at), InjectedFailure::Once(_)) => {
                    assert!(error.to_string().contains("again"), "{text}: {error}");
                }
                worked => worked.unwrap_or_else(|error| panic!("{text}: {error}")),
            }
            check(&root, &text).await;
            let next = IndexSpec { name: Some("next".to_owned()), ..spec_of("k", "bitmap") };
            open(&root).await.create_index(next, false).await.unwrap();
            let compared =
                compare_checkpoints(&root.join("_lakemark")).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(compared > 0, "{text}: no later commit wrote the checkpoint");
        }
        assert!(hits > 1, "{:?}: {hits} failures of the checkpoint", failure(0));
    }
}
