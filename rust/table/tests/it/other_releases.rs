//! Files of a store that another release wrote: nothing of them is believed, and the error says which release can go on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lakemark_index::Reason;
use lakemark_table::{BuildOptions, Change, ErrorKind, FileProbe, IndexSpec, Operation, VacuumOptions, WriteOptions};

use crate::fixture::{batch, create_indexes, equals, exact_rows, folder, open, probe, rows_of, segments, spec, write};
use crate::told::numbered;

/// The version comes before the checksum of the end, so that nobody looks at the latter.
fn set_version(path: &Path, version: u16) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() - 14..bytes.len() - 12;
    bytes[at].copy_from_slice(&version.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

/// A table whose store is of another release: its edits, or the checkpoint that it begins with.
async fn of_another_release(version: u16, ending: &str) -> tempfile::TempDir {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let store = folder.path().join("_lakemark");
    if ending == "lmk" {
        while numbered(&store, ending).is_empty() {
            let spare = IndexSpec { name: Some("spare".to_owned()), ..spec("s") };
            if !table.drop_index("spare", true).await.unwrap() {
                table.create_index(spare, false).await.unwrap();
            }
        }
        // As after a vacuum: the edits before are gone.
        let edits = numbered(&store, "lmm");
        edits.values().rev().skip(1).for_each(|path| fs::remove_file(path).unwrap());
    }
    numbered(&store, ending).values().for_each(|path| set_version(path, version));
    folder
}

#[tokio::test]
async fn a_store_of_another_release_is_said_to_be_one_and_the_table_is_scanned() {
    for (version, ending, what) in [(5, "lmm", "the edit"), (7, "lmm", "the edit"), (7, "lmk", "the checkpoint")] {
        let folder = of_another_release(version, ending).await;
        let table = open(folder.path()).await;
        let snapshot = table.snapshot().await.unwrap();
        assert!(snapshot.indexes().is_empty(), "{ending}");
        assert_eq!(probe(&snapshot, &equals("k", 3)).await.files[..], [FileProbe::Unknown]);
        let errors = [
            table.build(BuildOptions::default()).await.unwrap_err(),
            table.compact(BuildOptions::default()).await.unwrap_err(),
            table.create_index(spec("s"), false).await.unwrap_err(),
            table.drop_index("k_bitmap", true).await.unwrap_err(),
            table.vacuum(VacuumOptions::default()).await.unwrap_err(),
        ];
        for (call, error) in errors.into_iter().enumerate() {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{ending}, call {call}: {error}");
            assert!(text.contains(what) && text.contains("of another release"), "{ending}, call {call}: {error}");
            assert!(text.contains(&format!("format version {version}")), "{ending}, call {call}: {error}");
            assert!(text.contains("go on with that release, or"), "{ending}, call {call}: {error}");
        }
    }
}

/// Buffered changes are data: without the manifest that says what they are nothing is read.
#[tokio::test]
async fn law_5_a_store_of_another_release_that_has_updates_is_an_error_that_says_what_to_do_before() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f.parquet"), &batch(1, 5));
    let table = open(folder.path()).await;
    table.declare_key(&["s".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let change = || vec![Change { operation: Operation::Upsert, rows: batch(1, 1) }];
    table.write(change(), WriteOptions::default()).await.unwrap();
    for path in numbered(&folder.path().join("_lakemark"), "lmm").values() {
        set_version(path, 7);
    }
    let table = open(folder.path()).await;
    for error in [
        table.snapshot().await.unwrap_err(),
        table.write(change(), WriteOptions::default()).await.unwrap_err(),
        table.build(BuildOptions::default()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("format version 7"), "{error}");
        assert!(
            error.to_string().contains("migrate what is buffered before with the release that wrote it"),
            "{error}"
        );
        assert!(!error.to_string().contains("queries go on"), "{error}");
    }
}

#[tokio::test]
async fn law_1_segments_of_another_release_are_scanned_and_the_next_build_writes_them_again() {
    for version in [5, 7] {
        let folder = folder(2);
        create_indexes(&*open(folder.path()).await).await;
        set_version(&segments(folder.path())[0], version);
        // Under another path, as the process remembers what segments say.
        let copy = tempfile::tempdir().unwrap();
        let way = copy.path().join("table");
        std::os::unix::fs::symlink(folder.path(), &way).unwrap();
        let table = open(&way).await;
        let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
        assert_eq!(found.files[..], [FileProbe::Unknown, FileProbe::Unknown]);
        let reasons: Vec<Reason> = found.report.leaves.iter().filter_map(|leaf| leaf.reason).collect();
        assert_eq!(reasons, [Reason::SegmentCorrupt]);
        let report = table.build(BuildOptions { verify: 1.0, ..BuildOptions::default() }).await.unwrap();
        assert_eq!((report.repaired, report.files), (1, 2));
        let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
        assert_eq!(exact_rows(&found.files[0]), rows_of(&crate::fixture::k_values(0, 250), 3));
        assert!(table.verify().await.unwrap().is_ok());
    }
}
