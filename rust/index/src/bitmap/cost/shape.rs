//! What is known of the rows of a segment before they are indexed.

use super::positions::PostingShape;

/// The most cells of neighbouring values.
pub(super) const CELLS: usize = 256;
/// Between the least and the largest of a thousand draws lie about as many standard deviations.
const SPREAD: f64 = 6.5;
/// From this mean on the rows of a value are taken as five points of a bell curve: place in standard deviations, weight.
const BELL: [(f64, f64); 5] = [(-2.0, 0.054), (-1.0, 0.242), (0.0, 0.408), (1.0, 0.242), (2.0, 0.054)];
const BELL_FROM: f64 = 40.0;

/// What is known of a column in the rows of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnShape {
    /// Rows of a segment.
    pub rows: u64,
    /// Rows among them that are NULL or have no key.
    pub nulls: u64,
    /// Runs of such rows.
    pub null_runs: f64,
    /// The values by their numbers of rows.
    pub classes: Vec<FrequencyClass>,
    /// The values in their order, neighbours together.
    pub cells: Vec<ValueBucket>,
    /// The values of a value block with the fewest and the most rows, of some blocks.
    pub extremes: Vec<BlockExtremes>,
    /// Values of a value block.
    pub block_values: f64,
    /// Bits that a value takes beside the one before it: 0 for integers without gaps.
    pub key_bits: f64,
    /// Bits that a value takes in leaves beside its rows, where that was measured.
    pub leaf_key_bits: Option<f64>,
    /// How the order of rows follows that of values: 1 for not at all, 0 for sorted.
    pub shuffle: f64,
    /// How often the value changes from row to row, as a part of how often it would in random order.
    pub changes: f64,
}

/// Values that have about so many rows each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrequencyClass {
    /// How many values.
    pub values: f64,
    /// The rows of each, on average.
    pub each: PostingShape,
}

/// Values side by side in the order of values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueBucket {
    /// How many values.
    pub values: f64,
    /// The rows of all of them.
    pub rows: f64,
}

/// Rows of the rarest and of the most frequent value of a value block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockExtremes {
    /// Of the rarest.
    pub least: f64,
    /// Of the most frequent.
    pub most: f64,
}

impl ColumnShape {
    /// A column whose values are equally frequent and spread evenly over the rows.
    #[must_use]
    pub fn spread(rows: u64, nulls: u64, values: u64, key_bits: f64) -> Self {
        let valued = rows.saturating_sub(nulls) as f64;
        let count = (values as f64).min(valued);
        let null_rate = nulls as f64 / (rows as f64).max(1.0);
        let half = SPREAD / 2.0 * (count.max(1.0).log2() / 10.0).min(1.0);
        let mean = valued / count.max(1.0);
        let around = BlockExtremes { least: (mean - half * mean.sqrt()).max(1.0), most: mean + half * mean.sqrt() };
        let cells = CELLS.min(count as usize);
        let cell = ValueBucket { values: count / cells.max(1) as f64, rows: valued / cells.max(1) as f64 };
        Self {
            rows,
            nulls,
            null_runs: nulls as f64 * (1.0 - null_rate),
            classes: random_classes(count, valued, rows as f64),
            cells: vec![cell; cells],
            extremes: vec![if mean < 1.5 && count >= valued {
                BlockExtremes { least: 1.0, most: 1.0 }
            } else {
                around
            }],
            block_values: f64::INFINITY,
            key_bits,
            leaf_key_bits: None,
            shuffle: 1.0,
            changes: 1.0,
        }
    }

    /// Distinct values.
    #[must_use]
    pub fn values(&self) -> f64 {
        self.classes.iter().map(|class| class.values).sum()
    }

    /// Rows with a value.
    #[must_use]
    pub fn valued(&self) -> f64 {
        self.rows.saturating_sub(self.nulls) as f64
    }

    /// The part of the valued rows up to the end of each bin, where every value is a bin.
    pub(super) fn cuts_of_values(&self, bins: u64) -> Vec<f64> {
        self.cuts(bins, |cell| cell.values)
    }

    /// The same for bins whose postings have the same bytes.
    pub(super) fn cuts_of_bytes(&self, bins: u64) -> Vec<f64> {
        let universe = self.rows as f64;
        self.cuts(bins, |cell| {
            let mean = cell.rows / cell.values.max(1.0);
            cell.values * PostingShape::spread(mean, universe).posting_bytes(universe)
        })
    }

    /// Cuts where `weight` reaches the next of `bins` equal parts; weight and rows are even within a cell.
    fn cuts(&self, bins: u64, weight: impl Fn(&ValueBucket) -> f64) -> Vec<f64> {
        let weights: Vec<f64> = self.cells.iter().map(&weight).collect();
        let total: f64 = weights.iter().sum::<f64>().max(1e-9);
        let rows = self.cells.iter().map(|cell| cell.rows).sum::<f64>().max(1e-9);
        let mut cuts = Vec::with_capacity(bins as usize);
        let (mut weight_before, mut rows_before) = (0.0, 0.0);
        for (cell, weight) in self.cells.iter().zip(weights) {
            while (cuts.len() as u64) < bins {
                let border = total * (cuts.len() + 1) as f64 / bins as f64;
                if border > weight_before + weight + total * 1e-9 {
                    break;
                }
                let part = ((border - weight_before) / weight.max(1e-9)).clamp(0.0, 1.0);
                cuts.push((rows_before + part * cell.rows) / rows);
            }
            weight_before += weight;
            rows_before += cell.rows;
        }
        cuts.resize(bins as usize, 1.0);
        cuts
    }
}

/// Classes of `values` values that have `rows` rows together, each row as likely of any of them.
pub(super) fn random_classes(values: f64, rows: f64, universe: f64) -> Vec<FrequencyClass> {
    if values < 1.0 || rows < 1.0 {
        return Vec::new();
    }
    let mean = rows / values;
    let class = |values: f64, rows: f64| FrequencyClass { values, each: PostingShape::spread(rows, universe) };
    if mean < 1.0 + 1e-6 {
        return vec![class(values, 1.0)];
    }
    if mean > BELL_FROM || values < 2.0 {
        let deviation = if values < 2.0 { 0.0 } else { mean.sqrt() };
        return BELL.iter().map(|(place, weight)| class(values * weight, mean + place * deviation)).collect();
    }
    // Values without a row are not seen: the mean of those that are is rate / (1 - e^-rate).
    let mut rate = mean;
    for _ in 0..50 {
        rate = mean * (1.0 - (-rate).exp());
    }
    let seen = (1.0 - (-rate).exp()).max(1e-9);
    let mut probability = (-rate).exp();
    let mut classes = Vec::new();
    for count in 1..=(rate + 8.0 * rate.sqrt() + 8.0) as u32 {
        probability *= rate / f64::from(count);
        classes.push(class(values * probability / seen, f64::from(count)));
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_all_values_and_rows() {
        for (values, rows) in [(2.0, 1e6), (1000.0, 2e5), (1e5, 2e5), (2e5, 2e5), (1e5, 1.1e5)] {
            let classes = random_classes(values, rows, 1e6);
            let sum = |of: fn(&FrequencyClass) -> f64| classes.iter().map(of).sum::<f64>();
            assert!((sum(|class| class.values) / values - 1.0).abs() < 1e-3, "{values}");
            assert!((sum(|class| class.values * class.each.rows) / rows - 1.0).abs() < 1e-2, "{values}");
        }
    }

    #[test]
    fn cuts_follow_the_rows_of_cells() {
        let mut shape = ColumnShape::spread(1000, 0, 4, 0.0);
        assert_eq!(shape.cuts_of_values(4), [0.25, 0.5, 0.75, 1.0]);
        shape.cells = [700.0, 100.0, 100.0, 100.0].map(|rows| ValueBucket { values: 1.0, rows }).to_vec();
        assert_eq!(shape.cuts_of_values(4), [0.7, 0.8, 0.9, 1.0]);
        assert_eq!(shape.cuts_of_values(2), [0.8, 1.0]);
    }
}
