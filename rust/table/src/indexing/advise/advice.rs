//! Which indexes to build, which nothing uses, and which order of the data would help.

use std::collections::{BTreeMap, BTreeSet};

use lakemark_format::column;
use lakemark_index::bitmap::cost::choice::choose_for;
use lakemark_index::bitmap::cost::reads::{WEIGHTS, WeightedShape};
use lakemark_index::{element_of, key_type_of};

use super::filter_bytes;
use super::gain::{BetterKind, CandidateIndex, ColumnProfile, Costs, KeyIndexCost};
use super::kinds::{KindChoice, KindReason, SegmentRows};
use super::queries::{QueryUse, WeighedCondition, WeighedQuery, standard};
use super::report::{Advice, LayoutHint, Proposal, QueryGain};
use super::riding::{self, RidingColumns};
use super::sample::Sampler;
use crate::error::Result;
use crate::index_kind::IndexKind;
use crate::report::IndexInfo;
use crate::snapshot::{BaseTable, Snapshot};
use crate::store::included::{INCLUDE, names_of};
use crate::store::kind::{files_per_segment_by_default, zones_with};
use crate::values::fields::indexable;

/// Rows of the pages that a hint suggests.
const SMALL_PAGE_ROWS: f64 = 2_000.0;
/// An index is proposed if it saves this part of what the queries read.
const WORTH: f64 = 0.01;
/// Another layout is worth a word if it saves this part of what the queries read with all indexes.
const LAYOUT_WORTH: f64 = 0.2;

/// An index that a column could get.
struct Candidate {
    index: CandidateIndex,
    proposal: Proposal,
}

/// The candidate that saves most.
struct BestCandidate {
    /// Bytes that all queries read less.
    saved: f64,
    /// The candidate's place among all.
    place: usize,
    /// What each query reads with the candidate.
    reads: Vec<f64>,
}

/// Advice for these queries, or for the standard shapes of predicates over every column.
pub(crate) async fn advise(table: &BaseTable, snapshot: &Snapshot, queries: Option<Vec<QueryUse>>) -> Result<Advice> {
    let sampler = Sampler::new(table, snapshot).await?;
    let wanted = wanted_columns(snapshot, queries.as_deref());
    let segment_rows = SegmentRows {
        bitmap: sampler.segment_rows(files_per_segment_by_default(IndexKind::Bitmap))?,
        key: sampler.segment_rows(files_per_segment_by_default(IndexKind::Key))?,
    };
    let mut columns: BTreeMap<String, ColumnProfile> = BTreeMap::new();
    for name in wanted {
        let stored = snapshot.physical_name(&name);
        let sampled = sampler.column(&stored).await?;
        let kinds = KindChoice::new(&sampler, &sampled, &segment_rows, &WEIGHTS);
        let better = kinds.better().map(|KindReason { kind, reason }| BetterKind {
            kind,
            reason,
            bytes: match kind {
                IndexKind::Key | IndexKind::Bitmap | IndexKind::Links => kinds.packed.unwrap_or(0),
                IndexKind::BloomTree | IndexKind::Summary => {
                    filter_bytes(&sampler, &sampled, kinds.valued(), kind, zones_with(Some(kind), &[], 0))
                }
            },
            values: kinds.distinct.round() as u64,
        });
        let shuffle = sampled.sample.shuffle();
        let page_rows = sampler.page_rows(&stored);
        let KindChoice { bitmaps: segments, keys, packed, .. } = kinds;
        let keys = KeyIndexCost { segments: keys, bytes: packed };
        columns.insert(name.clone(), ColumnProfile { segments, keys, better, page_rows, shuffle, sampled });
    }
    let all: Vec<String> = snapshot.file_schema().fields().iter().map(|field| field.name().clone()).collect();
    let parquet: BTreeMap<String, u64> =
        all.iter().map(|name| (name.clone(), sampler.parquet_bytes(&snapshot.physical_name(name)))).collect();
    let from_queries = queries.is_some();
    let weighed: Vec<_> = match queries {
        Some(queries) => queries.into_iter().map(|query| weigh(query, &columns)).collect(),
        None => {
            let of = |(name, column): (&String, &ColumnProfile)| standard(name, &column.sampled.sample, &all);
            columns.iter().flat_map(of).collect()
        }
    };
    let is_key = |column: &ColumnProfile| column.better.as_ref().is_some_and(|better| better.kind == IndexKind::Key);
    let keys = columns.iter().filter(|(_, column)| from_queries && is_key(column)).map(|(name, _)| name);
    let riding = riding::options(&sampler, snapshot, &keys.collect::<Vec<_>>(), &weighed).await?;
    let rows = sampler.rows();
    let advisor = Advisor {
        costs: Costs { columns: &columns, parquet: &parquet, rows: rows as f64 },
        columns: &columns,
        riding: &riding,
        queries: weighed,
    };
    Ok(advisor.advice(snapshot, rows, sampler.sampled_rows(), from_queries))
}

/// The columns and fields that an index could be on: all, or those of the queries.
fn wanted_columns(snapshot: &Snapshot, queries: Option<&[QueryUse]>) -> BTreeSet<String> {
    let names: Option<BTreeSet<String>> =
        queries.map(|queries| queries.iter().flat_map(QueryUse::indexed_columns).collect());
    let is_wanted = |name: &String| names.as_ref().is_none_or(|names| names.contains(name));
    // The keys of maps are known from queries only.
    let has_key_type =
        |name: &&String| snapshot.field(name).is_some_and(|field| key_type_of(field.data_type()).is_some());
    let fields = names.iter().flatten().filter(|name| column::is_field(name)).filter(has_key_type).cloned();
    // How many elements lists have is not sampled.
    let is_flat = |name: &String| snapshot.field(name).is_some_and(|field| element_of(field.data_type()).is_none());
    indexable(&snapshot.file_schema()).into_iter().filter(is_wanted).filter(is_flat).chain(fields).collect()
}

fn weigh(query: QueryUse, columns: &BTreeMap<String, ColumnProfile>) -> WeighedQuery {
    let sample = |name: &str| columns.get(name).map(|column| &column.sampled.sample);
    let conditions = query.conditions.iter().map(|used| WeighedCondition::new(used, &sample)).collect();
    WeighedQuery { query, conditions }
}

struct Advisor<'a> {
    costs: Costs<'a>,
    columns: &'a BTreeMap<String, ColumnProfile>,
    /// Columns that could ride along with the keys of a column.
    riding: &'a BTreeMap<String, Vec<RidingColumns>>,
    queries: Vec<WeighedQuery>,
}

impl Advisor<'_> {
    fn advice(&self, snapshot: &Snapshot, rows: u64, sampled_rows: u64, from_queries: bool) -> Advice {
        // Of several columns the first must be in a query, or the index finds nothing.
        let on = |index: IndexInfo| {
            let first = index.columns.first().unwrap_or(&index.column);
            (snapshot.resolve(first).unwrap_or_else(|| first.clone()), index)
        };
        let indexes: Vec<(String, IndexInfo)> = snapshot.indexes().into_iter().map(on).collect();
        let mut by_column: BTreeMap<String, CandidateIndex> = BTreeMap::new();
        for (column, index) in &indexes {
            let encoding = index.encoding.known();
            let candidate =
                encoding.zip(self.columns.get(column)).and_then(|(e, column)| CandidateIndex::new(column, e));
            // What an index over several columns saves is not predicted.
            if let (Some(mut candidate), 1) = (candidate, index.columns.len()) {
                candidate.riding = riding_along(index, &candidate);
                by_column.insert(column.clone(), candidate);
            }
        }
        let now = self.reads(&by_column);
        let indexed = indexes.iter().filter(|(_, index)| index.columns.len() == 1).map(|(column, _)| column).collect();
        let mut proposals = self.proposals(&mut by_column, &indexed);
        proposals.iter_mut().for_each(|proposal| proposal.column = snapshot.display_name(&proposal.column));
        let after = self.reads(&by_column);
        let requested = self.requested_columns();
        Advice {
            rows,
            sampled_rows,
            queries: if from_queries { self.queries.len() as u64 } else { 0 },
            indexes: proposals,
            unused: (indexes.iter())
                .filter(|(column, _)| from_queries && !requested.contains(column))
                .map(|(_, index)| index.name.clone())
                .collect(),
            layout: if from_queries { self.layout(&by_column, &after) } else { Vec::new() },
            gains: (self.queries.iter().zip(now.iter().zip(&after)))
                .filter(|_| from_queries)
                .map(|(weighed, (now, after))| QueryGain {
                    line: weighed.query.line as u64,
                    text: weighed.query.text.clone(),
                    bytes_now: *now as u64,
                    bytes_after: *after as u64,
                })
                .collect(),
            problems: Vec::new(),
        }
    }

    /// What each query reads.
    fn reads(&self, indexes: &BTreeMap<String, CandidateIndex>) -> Vec<f64> {
        self.queries.iter().map(|weighed| self.costs.with(&weighed.query, &weighed.conditions, indexes)).collect()
    }

    fn total(&self, reads: &[f64]) -> f64 {
        self.queries.iter().zip(reads).map(|(weighed, bytes)| weighed.query.weight * bytes).sum()
    }

    /// Columns for which a search or an aggregate could use an index.
    fn requested_columns(&self) -> BTreeSet<String> {
        self.queries.iter().flat_map(|weighed| weighed.query.indexed_columns()).collect()
    }

    /// Takes the index that saves most, then the next one beside it, as long as it is worth it. Columns that have an index get no other.
    fn proposals(&self, indexes: &mut BTreeMap<String, CandidateIndex>, indexed: &BTreeSet<&String>) -> Vec<Proposal> {
        let open = self.columns.keys().filter(|column| !indexed.contains(column));
        let mut open: Vec<Candidate> = open.filter_map(|column| self.candidate(column)).collect();
        let weights: f64 = self.queries.iter().map(|weighed| weighed.query.weight).sum::<f64>().max(1e-9);
        let mut proposals = Vec::new();
        let mut now = self.reads(indexes);
        loop {
            let total = self.total(&now);
            let mut best: Option<BestCandidate> = None;
            let mut tried = Vec::with_capacity(open.len());
            for (place, Candidate { index, proposal }) in open.into_iter().enumerate() {
                indexes.insert(proposal.column.clone(), index);
                let reads = self.reads(indexes);
                let saved = total - self.total(&reads);
                if best.as_ref().is_none_or(|best| saved > best.saved) {
                    best = Some(BestCandidate { saved, place, reads });
                }
                tried.extend(indexes.remove(&proposal.column).map(|index| Candidate { index, proposal }));
            }
            open = tried;
            let Some(BestCandidate { saved, place, reads }) = best else { break };
            if saved < WORTH * total || saved <= 0.0 {
                break;
            }
            let Candidate { index, mut proposal } = open.remove(place);
            indexes.insert(proposal.column.clone(), index);
            let reads = self.with_riding(indexes, &mut proposal, reads);
            let gained = now.iter().zip(&reads).filter(|(before, after)| **after < 0.99 * **before).count();
            proposal.saved_bytes = ((total - self.total(&reads)) / weights) as u64;
            proposal.queries = gained as u64;
            proposals.push(proposal);
            now = reads;
        }
        proposals
    }

    /// Lets the columns ride along with a proposed index that save most beside it, if they are worth it. Gives what the queries read then.
    fn with_riding(
        &self,
        indexes: &mut BTreeMap<String, CandidateIndex>,
        proposal: &mut Proposal,
        mut reads: Vec<f64>,
    ) -> Vec<f64> {
        let plain = self.total(&reads);
        let mut best: Option<&RidingColumns> = None;
        for riding in self.riding.get(&proposal.column).into_iter().flatten() {
            set_riding(indexes, &proposal.column, Some(riding));
            let with = self.reads(indexes);
            if self.total(&with) < self.total(&reads).min((1.0 - WORTH) * plain) {
                (best, reads) = (Some(riding), with);
            }
        }
        set_riding(indexes, &proposal.column, best);
        if let Some(RidingColumns { columns, row_bytes }) = best {
            let names: Vec<&str> = columns.iter().map(String::as_str).collect();
            let reason = format!("; with {row_bytes:.1} bytes a row for {} lookups read no data", names.join(", "));
            proposal.reason.push_str(&reason);
            proposal.predicted_bytes += (row_bytes * self.costs.rows) as u64;
            proposal.include = columns.iter().cloned().collect();
        }
        reads
    }

    /// The index that a column would get.
    fn candidate(&self, name: &str) -> Option<Candidate> {
        let column = self.columns.get(name)?;
        if let Some(BetterKind { kind, reason, bytes, values }) = &column.better {
            let index = CandidateIndex::of_keys(column, *bytes)?;
            let proposal = Proposal {
                column: name.to_owned(),
                kind: *kind,
                encoding: kind.encoding(),
                reason: reason.clone(),
                values: *values,
                predicted_bytes: *bytes,
                saved_bytes: 0,
                queries: 0,
                include: Vec::new(),
            };
            return Some(Candidate { index, proposal });
        }
        let choice = choose_for(&column.segments.shapes, &self.shapes_of(name));
        let index = CandidateIndex::new(column, choice.encoding)?;
        let proposal = Proposal {
            column: name.to_owned(),
            kind: IndexKind::Bitmap,
            encoding: choice.encoding,
            reason: choice.reason,
            values: column.segments.values().round() as u64,
            predicted_bytes: index.bytes(),
            saved_bytes: 0,
            queries: 0,
            include: Vec::new(),
        };
        Some(Candidate { index, proposal })
    }

    /// The shapes of the queries' conditions on a column.
    fn shapes_of(&self, name: &str) -> Vec<WeightedShape> {
        let mut shapes = Vec::new();
        for weighed in &self.queries {
            let searches = weighed.conditions.iter().flat_map(|condition| condition.searches.iter().flatten());
            let of_column = searches.filter(|search| search.column == name);
            let weight = weighed.query.weight;
            shapes.extend(of_column.map(|search| WeightedShape { shape: search.shape, weight }));
        }
        if shapes.is_empty() { WEIGHTS.to_vec() } else { shapes }
    }

    /// Whether the data sorted by a column, or smaller pages, would let the queries read much less.
    fn layout(&self, indexes: &BTreeMap<String, CandidateIndex>, now: &[f64]) -> Vec<LayoutHint> {
        let total = self.total(now);
        let with = |change: &dyn Fn(&str, &mut f64, &mut f64)| {
            let columns = (self.columns.iter()).map(|(name, column)| {
                let (mut shuffle, mut page_rows) = (column.shuffle, column.page_rows);
                change(name, &mut shuffle, &mut page_rows);
                (name.clone(), column.with_layout(shuffle, page_rows))
            });
            let columns: BTreeMap<String, ColumnProfile> = columns.collect();
            let costs = Costs { columns: &columns, parquet: self.costs.parquet, rows: self.costs.rows };
            let read = |weighed: &WeighedQuery| {
                weighed.query.weight * costs.with(&weighed.query, &weighed.conditions, indexes)
            };
            self.queries.iter().map(read).sum::<f64>()
        };
        let mut hints = Vec::new();
        let sorted = self.columns.keys().map(|by| {
            (
                with(&|name, shuffle, _| {
                    if name == by {
                        *shuffle = 0.0
                    }
                }),
                by,
            )
        });
        if let Some((bytes, by)) = sorted.min_by(|a, b| a.0.total_cmp(&b.0))
            && bytes < (1.0 - LAYOUT_WORTH) * total
        {
            hints.push(LayoutHint::new(format!("data sorted by {}", column::display(by)), total, bytes));
        }
        let bytes = with(&|_, _, page_rows| *page_rows = page_rows.min(SMALL_PAGE_ROWS));
        if bytes < (1.0 - LAYOUT_WORTH) * total {
            let now = self.columns.values().map(|column| column.page_rows).fold(0.0, f64::max);
            let change = format!("data pages of {SMALL_PAGE_ROWS} rows instead of {now:.0}");
            hints.push(LayoutHint::new(change, total, bytes));
        }
        hints
    }
}

/// Lets these columns ride along with the keys of an index, or none.
fn set_riding(indexes: &mut BTreeMap<String, CandidateIndex>, column: &str, riding: Option<&RidingColumns>) {
    if let Some(index) = indexes.get_mut(column) {
        index.riding = riding.cloned();
    }
}

/// The columns that an index includes, with what they take of its bytes.
fn riding_along(index: &IndexInfo, candidate: &CandidateIndex) -> Option<RidingColumns> {
    let (_, given) = index.options.iter().find(|(name, _)| name == INCLUDE)?;
    let columns = names_of(given)?.into_iter().collect();
    let row_bytes = index.bytes.saturating_sub(candidate.bytes()) as f64 / (index.rows as f64).max(1.0);
    Some(RidingColumns { columns, row_bytes })
}
