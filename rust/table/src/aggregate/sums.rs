//! Sums of a column over a probe's exact rows, of all of them or by the values of another column, from the bits of slices.
//!
//! ```text
//! every row of a segment is selected   the directory alone
//! some rows are selected               the slices, against a bitmap of the selected rows
//! by a constant of each file           against a bitmap of each file's selected rows, if files × slices are 512 at most
//! by the values of another segment     against the selected rows of each posting, if groups × slices are 512 at most
//! ```
//!
//! A sum is given as all counts are: some values with rows. They are other values than the rows have, as many, with the same sum.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use bytes::Bytes;
use lakemark_format::column;
use lakemark_format::value_block::MAX_BLOCK_VALUES;
use lakemark_index::bitmap::{DenseSlices, GroupValue, Mask, ValueGroups, each_posting, posting_ranges};
use lakemark_index::{LiteralKey, decode_keys, is_ambiguous};

use super::allowed_values::AllowedValues;
use super::segment_values::{BITMAP_BYTES, CHEAP_ROWS, ROWS_PER_VALUE, batches, list_range, values_of};
use super::selected_rows::{ChosenRows, drop_opaque, total_of, touched_rows};
use super::sources::{IndexedFile, ValueSources, shared_files};
use super::value_counts::{GroupCountRequest, GroupCounts, SegmentCounts, ValueCounts};
use super::wanted_files::WantedFiles;
use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::segments::{Damage, ReadCounter, Segment};

/// Slices that are counted for all groups together: a scan adds up rows in the time that more slices take.
pub(super) const SLICES_OF_ALL_GROUPS: usize = 512;

/// Enters the sums of `summed`, and takes the files whose sums are entered from those that are left.
pub(super) async fn add_sums(
    snapshot: &Snapshot,
    request: &GroupCountRequest<'_>,
    summed: &str,
    counter: &Arc<ReadCounter>,
    left: &mut WantedFiles,
    counts: &mut GroupCounts,
) -> Result<()> {
    let Some(sources) = ValueSources::find(snapshot, summed, left, counter).await else { return Ok(()) };
    if !sources.covers.iter().any(|cover| DenseSlices::of(&cover.segment.directory).is_some()) {
        return Ok(());
    }
    let group = request.columns.iter().find(|column| *column != summed);
    let groups = match group {
        Some(group) => match ValueSources::find(snapshot, group, left, counter).await {
            Some(groups) => Some(groups),
            None => return Ok(()),
        },
        None => None,
    };
    let group_allowed = group.map(|group| AllowedValues::by(&request.predicate.clone().simplify(), group));
    let groups = groups.as_ref().zip(group_allowed.as_ref());
    let jobs = jobs(request, &sources, groups.map(|(sources, allowed)| GroupSources { sources, allowed }));
    let summed_first = request.columns.first().is_some_and(|column| column == summed);
    let jobs = jobs.into_iter().map(|job| {
        let counter = Arc::clone(counter);
        async move {
            let mut counted = job.run(&counter).await?;
            if let Some(counted) = counted.as_mut().filter(|_| !summed_first) {
                counted.part.values.reverse();
            }
            Ok(counted)
        }
    });
    let entered: HashSet<usize> = counts.gather(jobs.collect(), &column::display(summed)).await?.into_iter().collect();
    left.places.retain(|file| !entered.contains(file));
    Ok(())
}

/// The sources of the values that sums are grouped by, and which of these values may be selected.
#[derive(Clone, Copy)]
struct GroupSources<'a> {
    sources: &'a ValueSources,
    allowed: &'a AllowedValues,
}

/// What the rows of a sum are grouped by.
enum Grouping {
    /// Nothing: one sum.
    None,
    /// One value for each of the selected files.
    Constants(Vec<ArrayRef>),
    /// The values of a segment over the same rows.
    Values { segment: Segment, allowed: AllowedValues, data_type: DataType },
}

/// The sums of one segment.
struct SumJob {
    segment: Segment,
    data_type: DataType,
    chosen: Vec<ChosenRows>,
    grouping: Grouping,
}

fn jobs(request: &GroupCountRequest<'_>, sources: &ValueSources, groups: Option<GroupSources<'_>>) -> Vec<SumJob> {
    let rows = |covered: &IndexedFile| ChosenRows::of(covered, request.files);
    let mut jobs = Vec::new();
    for cover in sources.covers.iter().filter(|cover| DenseSlices::of(&cover.segment.directory).is_some()) {
        let mut add = |chosen: Vec<ChosenRows>, grouping: Grouping| {
            if !chosen.is_empty() {
                let (segment, data_type) = (cover.segment.clone(), sources.data_type.clone());
                jobs.push(SumJob { segment, data_type, chosen, grouping });
            }
        };
        let Some(GroupSources { sources: groups, allowed }) = groups else {
            add(cover.files.iter().filter_map(rows).collect(), Grouping::None);
            continue;
        };
        let constants: HashMap<usize, &ArrayRef> =
            groups.constants.iter().map(|constant| (constant.file, &constant.value)).collect();
        let fixed = cover.files.iter().filter_map(|covered| {
            let value = constants.get(&covered.file)?;
            Some((rows(covered)?, Arc::clone(value)))
        });
        let (chosen, values): (Vec<_>, Vec<ArrayRef>) = fixed.unzip();
        add(chosen, Grouping::Constants(values));
        for other in &groups.covers {
            let (segment, data_type) = (other.segment.clone(), groups.data_type.clone());
            let chosen = shared_files(cover, other).filter_map(rows).collect();
            add(chosen, Grouping::Values { segment, allowed: allowed.clone(), data_type });
        }
    }
    jobs
}

/// Sums while they are put together: rows of a group with a value of the column, or with NULL.
#[derive(Default)]
struct Sums {
    keys: Vec<LiteralKey>,
    groups: Vec<u32>,
    rows: Vec<u64>,
}

impl Sums {
    fn add(&mut self, group: u32, key: LiteralKey, rows: u64) {
        if rows > 0 {
            self.keys.push(key);
            self.groups.push(group);
            self.rows.push(rows);
        }
    }

    /// Adds rows with values, whose ranks have a sum.
    fn add_spread(&mut self, group: u32, dense: &DenseSlices<'_>, rows: u64, ranks: u128) -> Result<(), Damage> {
        for value in dense.spread(rows, ranks).map_err(Damage::corrupt)? {
            self.add(group, LiteralKey::Key(value.key), value.rows);
        }
        Ok(())
    }
}

/// The selected rows of a segment, rows with a value apart from NULLs, and its slices.
struct SelectedSlices<'a> {
    dense: &'a DenseSlices<'a>,
    valued: Mask,
    nulls: Mask,
    bytes: Vec<Bytes>,
}

impl SelectedSlices<'_> {
    /// Adds the sum of a group: of the selected rows that `part` leaves.
    fn add(&self, sums: &mut Sums, group: u32, part: impl Fn(&Mask) -> Result<Mask, Damage>) -> Result<(), Damage> {
        let valued = part(&self.valued)?;
        if self.nulls.rows() > 0 {
            sums.add(group, LiteralKey::Null, part(&self.nulls)?.rows());
        }
        let ranks = self.dense.sum(&valued, &self.bytes).map_err(Damage::corrupt)?;
        sums.add_spread(group, self.dense, valued.rows(), ranks)
    }
}

impl SumJob {
    async fn run(mut self, counter: &Arc<ReadCounter>) -> Result<Option<SegmentCounts>, Damage> {
        let segment = self.segment.clone();
        let Some(dense) = DenseSlices::of(&segment.directory) else { return Ok(None) };
        let (mut sums, total) = (Sums::default(), total_of(&self.chosen));
        if matches!(self.grouping, Grouping::None) && total == segment.directory.rows() {
            let nulls = u64::from(segment.directory.nulls.rows);
            sums.add(0, LiteralKey::Null, nulls);
            let valued = total.checked_sub(nulls).ok_or_else(|| Damage::corrupt("more NULLs than rows"))?;
            sums.add_spread(0, &dense, valued, dense.sum_of_all())?;
            return self.finish(sums, None);
        }
        if let Grouping::Values { segment, .. } = &self.grouping {
            let list = segment.directory.opaque;
            if list.rows > 0 {
                let bytes = segment.read(&[list_range(list)], counter).await?;
                drop_opaque(&mut self.chosen, bytes.first().map_or(&[][..], Bytes::as_ref), list, &segment.directory)?;
            }
        }
        if !self.is_worth_it(&dense) {
            return Ok(None);
        }
        let groups = match &self.grouping {
            Grouping::Values { segment, allowed, .. } => {
                // The blocks at both ends may have few values of the range. The blocks between lie in it as a whole.
                let limit = ValueGroups::new(&segment.directory, allowed.ranges.clone()).value_limit();
                let least = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(2 * MAX_BLOCK_VALUES);
                if !self.are_few(least, &dense) {
                    return Ok(None);
                }
                let values = values_of(segment, allowed, &self.chosen, ROWS_PER_VALUE, counter).await?;
                match values.filter(|values| self.are_few(values.len() + 1, &dense) && are_clear(values, segment)) {
                    Some(values) => values,
                    None => return Ok(None),
                }
            }
            Grouping::Constants(values) if !self.are_few(values.len(), &dense) => return Ok(None),
            Grouping::Constants(_) | Grouping::None => Vec::new(),
        };
        let slices = self.slices(&dense, counter).await?;
        let constants = self.sum(&slices, &groups, &mut sums, counter).await?;
        self.finish(sums, constants)
    }

    /// Whether rows cost more to read than the slices.
    fn is_worth_it(&self, dense: &DenseSlices<'_>) -> bool {
        let touched: u64 = self.chosen.iter().map(|chosen| touched_rows(&chosen.rows)).sum();
        let rows = u64::from(self.segment.directory.universe);
        !self.chosen.is_empty() && dense.bytes() <= BITMAP_BYTES && rows <= touched.saturating_mul(2).max(CHEAP_ROWS)
    }

    fn are_few(&self, groups: usize, dense: &DenseSlices<'_>) -> bool {
        groups.saturating_mul(dense.slice_ranges().len().max(1)) <= SLICES_OF_ALL_GROUPS
    }

    async fn slices<'a>(
        &self,
        dense: &'a DenseSlices<'a>,
        counter: &Arc<ReadCounter>,
    ) -> Result<SelectedSlices<'a>, Damage> {
        let nulls = self.segment.directory.nulls;
        let mut wanted = vec![list_range(nulls)];
        wanted.extend(dense.slice_ranges().iter().cloned());
        let mut bytes = self.segment.read(&wanted, counter).await?.into_iter();
        let null_bytes = bytes.next().ok_or_else(|| Damage::corrupt("lists are missing"))?;
        let mut valued = Mask::new(self.segment.directory.universe);
        self.chosen.iter().for_each(|chosen| valued.insert(chosen.covered.base, &chosen.rows));
        let nulls_of = valued.among(&null_bytes, nulls.rows).map_err(Damage::corrupt)?;
        valued.remove(&null_bytes, nulls).map_err(Damage::corrupt)?;
        Ok(SelectedSlices { dense, valued, nulls: nulls_of, bytes: bytes.collect() })
    }

    /// Adds the sums of all groups, and gives the groups' values.
    async fn sum(
        &self,
        slices: &SelectedSlices<'_>,
        values: &[GroupValue],
        sums: &mut Sums,
        counter: &Arc<ReadCounter>,
    ) -> Result<Option<ArrayRef>, Damage> {
        match &self.grouping {
            Grouping::None => {
                slices.add(sums, 0, |rows| Ok(rows.clone()))?;
                Ok(None)
            }
            Grouping::Constants(values) => {
                for (ChosenRows { covered, rows }, group) in self.chosen.iter().zip(0..) {
                    let mut file = Mask::new(self.segment.directory.universe);
                    file.insert(covered.base, rows);
                    slices.add(sums, group, |rows| Ok(rows.both(&file)))?;
                }
                let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
                concat(&values).map(Some).map_err(Damage::corrupt)
            }
            Grouping::Values { segment, allowed, data_type } => {
                let (mut group, mut damage) = (0, None);
                for batch in batches(values) {
                    let bytes = segment.read(&posting_ranges(batch), counter).await?;
                    each_posting(batch, &bytes, |value, posting| {
                        let part = |rows: &Mask| rows.among(posting, value.rows).map_err(Damage::corrupt);
                        damage = damage.take().or(slices.add(sums, group, part).err());
                        group += 1;
                        Ok(())
                    })
                    .map_err(Damage::corrupt)?;
                }
                let nulls = segment.directory.nulls;
                if allowed.nulls && nulls.rows > 0 {
                    let bytes = segment.read(&[list_range(nulls)], counter).await?;
                    let posting = bytes.first().map_or(&[][..], Bytes::as_ref);
                    slices.add(sums, group, |rows| rows.among(posting, nulls.rows).map_err(Damage::corrupt))?;
                }
                if let Some(damage) = damage {
                    return Err(damage);
                }
                let keys = values.iter().map(|value| LiteralKey::Key(value.key.clone())).chain([LiteralKey::Null]);
                decode_keys(&keys.collect::<Vec<_>>(), data_type).map(Some).map_err(Damage::corrupt)
            }
        }
    }

    /// The result, the column's own values first.
    fn finish(&self, sums: Sums, groups: Option<ArrayRef>) -> Result<Option<SegmentCounts>, Damage> {
        let (found, expected) = (sums.rows.iter().sum::<u64>(), total_of(&self.chosen));
        if found != expected {
            return Err(Damage::corrupt(format_args!("{found} rows are in groups where {expected} are")));
        }
        let mut values = vec![decode_keys(&sums.keys, &self.data_type).map_err(Damage::corrupt)?];
        if let Some(groups) = groups {
            values.push(take(&groups, &UInt32Array::from(sums.groups), None).map_err(Damage::corrupt)?);
        }
        let files = self.chosen.iter().map(|chosen| chosen.covered.file).collect();
        Ok(Some(SegmentCounts { files, part: ValueCounts { values, rows: sums.rows } }))
    }
}

/// Whether values have postings, and none of them stands for two values of SQL.
fn are_clear(values: &[GroupValue], segment: &Segment) -> bool {
    let key_type = &segment.directory.key_type;
    values.iter().all(|value| !value.posting.is_empty() && !is_ambiguous(&value.key, key_type))
}
