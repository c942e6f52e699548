//! Zones against the data: the zone of each row must have the row's value, and a zone has as many values as it says.

use bytes::Bytes;
use lakemark_index::bitmap::ValueRows;
use lakemark_index::zones::LoadedZones;

use super::{MovedRows, READ_AHEAD_BYTES, SegmentCursor};
use crate::store::segments::{Damage, ReadCounter, Segment};

/// Compares stored zones with a segment that was derived from the data and has its values; `places` says where stored rows are among
/// the derived ones.
pub(super) async fn compare_zones(
    stored: &Segment,
    derived: &Segment,
    places: &[MovedRows],
    counter: &ReadCounter,
) -> Result<(), Damage> {
    let Some(zones) = &stored.directory.zones else { return Err(Damage::corrupt("the zones are missing")) };
    let read = stored.read(std::slice::from_ref(&(zones.offset..zones.offset + zones.filter_bytes())), counter).await?;
    let held = LoadedZones::new(zones, read.first().map_or(&[][..], Bytes::as_ref));
    let ends = derived_ends(stored, &zones.rows, places);
    let mut counts = vec![0u32; zones.rows.len()];
    let mut values = SegmentCursor::new(derived, READ_AHEAD_BYTES, counter).await?;
    while let Some(ValueRows { key, rows, .. }) = values.next(counter).await? {
        let mut last = None;
        for row in rows {
            let Some(ZoneEnd { zone, .. }) = ends.get(ends.partition_point(|zone| zone.end <= row)) else { continue };
            if last == Some(*zone) {
                continue;
            }
            last = Some(*zone);
            if !held.may_contain(*zone, &key) {
                return Err(Damage::corrupt(format!(
                    "the filter of zone {zone} lacks a value that the data has there"
                )));
            }
            if let Some(count) = counts.get_mut(*zone) {
                *count += 1;
            }
        }
    }
    for ZoneEnd { zone, .. } in ends {
        if counts.get(zone) != zones.keys.get(zone) {
            let (found, stored) = (counts.get(zone), zones.keys.get(zone));
            return Err(Damage::corrupt(format!("zone {zone} counts {stored:?} values where the data has {found:?}")));
        }
    }
    Ok(())
}

/// Where a zone ends among the derived rows.
struct ZoneEnd {
    end: u32,
    /// The number of the zone.
    zone: usize,
}

/// The ends of the zones of files that are compared, ascending.
fn derived_ends(stored: &Segment, rows: &[u32], places: &[MovedRows]) -> Vec<ZoneEnd> {
    let mut ends = Vec::with_capacity(rows.len());
    let mut zone = 0;
    for (file, moved) in stored.directory.files.iter().zip(places) {
        let (mut row, end) = (0u64, file.rows());
        while row < end {
            let Some(length) = rows.get(zone) else { return ends };
            row += u64::from(*length);
            ends.extend(moved.to.map(|to| ZoneEnd { end: to.saturating_add(row as u32), zone }));
            zone += 1;
        }
    }
    // Files are compared in the order of their stored bases, so that the ends ascend.
    ends
}
