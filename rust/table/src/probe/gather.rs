//! Probes every leaf of a predicate in every file: what is constant first, then segments, and of these the ones that rule files out.

use lakemark_index::{Leaf, Predicate, Reason};
use tokio::task::JoinSet;

use super::answers::{FileCandidates, LeafCandidates};
use super::conjunct_order::{first_probed, ruled_out};
use super::constants::{LeafConstants, constants};
use super::cost::SearchPlan;
use super::segment_search::{ReadContext, SegmentRequest, probe_segment, remembered, segment_requests};
use super::zones_first::probe_zones_first;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::store::segments::Damage;

/// Probes every leaf for every file that was not counted already. Of leaves that the choice leaves out no segment is searched.
pub(super) async fn gather(
    snapshot: &Snapshot,
    predicate: &Predicate,
    counted: &[Option<u64>],
    choice: &SearchPlan,
    reads: &ReadContext,
) -> Result<LeafCandidates> {
    let leaves = predicate.leaves();
    let (mut known, mut sources) = (Vec::with_capacity(leaves.len()), Vec::with_capacity(leaves.len()));
    for leaf in &leaves {
        let LeafConstants { mut candidates, source } = constants(snapshot, leaf);
        for (answer, rows) in candidates.iter_mut().zip(counted) {
            if rows.is_some() {
                *answer = FileCandidates::Counted(rows.filter(|_| matches!(predicate, Predicate::Leaf(_))));
            }
        }
        known.push(candidates);
        sources.push(source);
    }
    let mut answers = LeafCandidates::new(known, sources);
    let mut requests = Vec::with_capacity(leaves.len());
    for (place, leaf) in leaves.iter().enumerate() {
        let mut of_leaf = open_requests(&mut answers, snapshot, place, leaf);
        if choice.skipped.get(place).copied().unwrap_or(false) {
            for file in of_leaf.drain(..).flat_map(|request| request.files) {
                answers.set(place, file, FileCandidates::Unknown(Reason::ScanIsCheaper));
            }
        }
        requests.push(of_leaf);
    }
    leave_out_needless(&mut answers, predicate, &mut requests);
    if let Some(first) = first_probed(predicate, &leaves, &requests, &choice.shares) {
        let only = requests.iter_mut().enumerate();
        let only = only.map(|(place, of_leaf)| if place == first { std::mem::take(of_leaf) } else { Vec::new() });
        let only = only.collect();
        probe_all(&mut answers, snapshot, &leaves, only, reads).await?;
        leave_out_needless(&mut answers, predicate, &mut requests);
    }
    probe_all(&mut answers, snapshot, &leaves, requests, reads).await?;
    Ok(answers)
}

/// Leaves out files of which no row can be selected.
fn leave_out_needless(answers: &mut LeafCandidates, predicate: &Predicate, requests: &mut [Vec<SegmentRequest>]) {
    if requests.iter().all(Vec::is_empty) {
        return;
    }
    let ruled_out = ruled_out(answers, predicate, answers.file_count());
    if !ruled_out.contains(&true) {
        return;
    }
    let is_needless = |file: usize| ruled_out.get(file).copied().unwrap_or(false);
    for (place, of_leaf) in requests.iter_mut().enumerate() {
        for request in of_leaf.iter_mut() {
            let (needless, needed): (Vec<usize>, _) =
                std::mem::take(&mut request.files).into_iter().partition(|file| is_needless(*file));
            request.files = needed;
            for file in needless {
                answers.set(place, file, FileCandidates::NotNeeded);
            }
        }
        of_leaf.retain(|request| !request.files.is_empty());
    }
}

/// Probes all segments at once; the requests are by leaf.
async fn probe_all(
    answers: &mut LeafCandidates,
    snapshot: &Snapshot,
    leaves: &[&Leaf],
    requests: Vec<Vec<SegmentRequest>>,
    reads: &ReadContext,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    for (leaf, requests) in leaves.iter().zip(requests) {
        let requests = probe_zones_first(answers, snapshot, leaf, requests, reads).await;
        for request in requests {
            // What is remembered needs no task: to start one would take longer.
            let store = snapshot.store.as_ref();
            if let Some(known) = store.and_then(|store| remembered(store, &request, reads)) {
                answers.take(snapshot, request, Ok(known)).await;
                continue;
            }
            let (store, reads) = (snapshot.store.clone(), reads.clone());
            tasks.spawn(async move {
                let found = match &store {
                    Some(store) => probe_segment(store, &request, &reads).await,
                    None => Err(Damage::corrupt("no store")),
                };
                (request, found)
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        let (request, found) = done.map_err(|error| Error::task(&error))?;
        answers.take(snapshot, request, found).await;
    }
    Ok(())
}

/// The segments to probe for a leaf: for every file that has no answer yet, the first one that covers it.
fn open_requests(answers: &mut LeafCandidates, snapshot: &Snapshot, place: usize, leaf: &Leaf) -> Vec<SegmentRequest> {
    let indexes = snapshot.indexes_for(leaf);
    let is_open = |file: usize| {
        !matches!(answers.of_leaf(place, file), Some(FileCandidates::Constant(_) | FileCandidates::Counted(_)))
    };
    let requests = segment_requests(snapshot, place, leaf, &indexes, is_open);
    if let Some(index) = indexes.first() {
        answers.set_source(place, index);
    }
    requests
}
