//! Index files that are missing, cut off, or cannot be opened.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt, stream};
use lakemark_format::{ManifestIndex, ManifestSegment};

use super::coverage::{are, files};
use super::of_error;
use crate::error::Result;
use crate::report::{Finding, Problem, ProblemName};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::store::segments::{ReadCounter, Segment, missing};

/// Index files that are opened at a time.
const CONCURRENT_OPENS: usize = 16;

/// What opening the index files of a snapshot gave.
#[derive(Default)]
struct Opened {
    lost: Vec<Finding>,
    damaged: Vec<Finding>,
    unread: Vec<Finding>,
}

/// Looks for every index file that the newest manifest names, and opens it as a query does.
pub(super) async fn look_at(location: &str, snapshot: &Snapshot) -> Vec<Problem> {
    let opened = match opened(snapshot).await {
        Ok(opened) => opened,
        Err(error) => return vec![of_error(ProblemName::UnreadIndexFiles, &error)],
    };
    let build = format!("run `lakemark index build {location}`, which makes them again");
    let verify = format!("run `lakemark index build {location} --verify`, which makes them again");
    let again = "see that the storage answers, and look again; queries scan meanwhile".to_owned();
    let kinds = [
        (ProblemName::LostIndexFiles, "missing or cut off", opened.lost, build),
        (ProblemName::DamagedIndexFiles, "damaged", opened.damaged, verify),
        (ProblemName::UnreadIndexFiles, "not to be had from the storage", opened.unread, again),
    ];
    let problem = |(name, what, findings, remedy): (ProblemName, &str, Vec<Finding>, String)| {
        let first = findings.first()?;
        let number = findings.len() as u64;
        let problem = format!(
            "{} of the indexes {} {what}, such as {}: {}",
            files(number),
            are(number),
            first.path,
            first.problem
        );
        Some(Problem::new(name, problem, remedy))
    };
    kinds.into_iter().filter_map(problem).collect()
}

async fn opened(snapshot: &Snapshot) -> Result<Opened> {
    let (Some(store), Some(manifest)) = (&snapshot.store, &snapshot.manifest) else { return Ok(Opened::default()) };
    let lost = missing(store, manifest, manifest.indexes()).await?;
    let of_lost = |segment: &&ManifestSegment| Finding {
        path: segment.path.clone(),
        problem: format!("it had {} bytes", segment.length),
    };
    let mut opened = Opened { lost: lost.iter().map(of_lost).collect(), ..Opened::default() };
    let ids: HashSet<[u8; 16]> = lost.iter().map(|segment| segment.id).collect();
    // Nobody opens what is of a kind that this release does not know.
    let known = || manifest.indexes().filter(|index| index.kind.known().is_some());
    let index_of = |segment: &ManifestSegment| known().find(|index| index.id == segment.index_id).cloned();
    let there: Vec<(Arc<ManifestSegment>, ManifestIndex)> = manifest
        .segments()
        .filter(|segment| !ids.contains(&segment.id))
        .filter_map(|segment| Some((Arc::clone(segment), index_of(segment.as_ref())?)))
        .collect();
    let mut named = None;
    let mut looks = stream::iter(there).map(|look| open(Arc::clone(store), look)).buffered(CONCURRENT_OPENS);
    while let Some((segment, found)) = looks.next().await {
        let Some((finding, is_unread)) = found else { continue };
        // Others may have merged it meanwhile, and a vacuum removed it.
        if named.is_none() {
            named = Some(store.named_segments().await?);
        }
        if named.as_ref().is_some_and(|named| !named.contains(&segment.id)) {
            continue;
        }
        if is_unread { opened.unread.push(finding) } else { opened.damaged.push(finding) }
    }
    Ok(opened)
}

/// Opens an index file: gives what is wrong with it, and whether nothing is known of its bytes.
async fn open(
    store: Arc<Store>,
    (segment, index): (Arc<ManifestSegment>, ManifestIndex),
) -> (Arc<ManifestSegment>, Option<(Finding, bool)>) {
    let outcome = Segment::open_afresh(&store, &segment, &index, &ReadCounter::default()).await;
    let found =
        outcome.err().map(|damage| (Finding { path: segment.path.clone(), problem: damage.problem }, damage.is_unread));
    (segment, found)
}
