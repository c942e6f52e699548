//! The coarse level of a segment, row by row.

use std::sync::Arc;

use lakemark_index::bitmap::RowBins;

use super::read_ahead::ReadAhead;
use crate::store::segments::{Damage, ReadCounter};

/// The bin of every row, gone through value by value.
pub(super) struct CoarseRows {
    bins: Vec<u32>,
    /// Rows with a value by ascending bin, if there is no fine level to say which rows a value has.
    sorted: Vec<u32>,
    /// Rows among them that earlier values took.
    taken: usize,
    /// Values of each listed bin; without, each value is its own.
    sizes: Option<Vec<u32>>,
    /// The bin of the next value, and how many values it had already.
    bin: u32,
    values: u32,
}

impl CoarseRows {
    /// Reads all bitmaps; none without a coarse level.
    pub(super) async fn read(ahead: &mut ReadAhead, counter: &ReadCounter) -> Result<Option<Self>, Damage> {
        let directory = Arc::clone(&ahead.segment().directory);
        let Some(mut row_bins) = RowBins::new(&directory) else { return Ok(None) };
        for (number, bitmap) in (0..).zip(&directory.bitmaps) {
            row_bins.add(number, &ahead.rows(*bitmap, counter).await?);
        }
        let bins = row_bins.finish().map_err(Damage::corrupt)?;
        let mut sorted = Vec::new();
        if !directory.encoding.has_fine_level() {
            let mut without = ahead.rows(directory.nulls, counter).await?;
            without.extend(ahead.rows(directory.opaque, counter).await?);
            without.sort_unstable();
            for file in directory.files.iter() {
                let end = file.base.saturating_add(u32::try_from(file.rows()).unwrap_or(u32::MAX));
                sorted.extend((file.base..end).filter(|row| without.binary_search(row).is_err()));
            }
            sorted.sort_by_key(|row| bins.get(*row as usize).copied());
        }
        let sizes = directory.encoding.has_bins().then(|| directory.bins.clone());
        Ok(Some(Self { bins, sorted, taken: 0, sizes, bin: 0, values: 0 }))
    }

    /// The rows of the next value: those of its posting, if there is one, or the next of the bin.
    pub(super) fn next(&mut self, posting: Option<Vec<u32>>, count: u32) -> Result<Vec<u32>, Damage> {
        let bin = self.bin;
        self.values += 1;
        let size = self.sizes.as_ref().map_or(1, |sizes| sizes.get(bin as usize).copied().unwrap_or(1));
        if self.values >= size {
            (self.bin, self.values) = (bin + 1, 0);
        }
        let rows = match posting {
            Some(rows) => rows,
            None => {
                let end = self.taken.saturating_add(count as usize);
                let rows = self.sorted.get(self.taken..end).unwrap_or_default().to_vec();
                self.taken = end;
                rows
            }
        };
        let in_bin = |row: &u32| self.bins.get(*row as usize) == Some(&bin);
        if rows.len() != count as usize || !rows.iter().all(in_bin) {
            return Err(Damage::corrupt("the bitmaps hold other rows than the values have"));
        }
        Ok(rows)
    }
}
