//! The bytes of a posting, from what its rows look like.

use lakemark_format::posting::BLOCK_ROWS;

/// A bitmap is taken up to this part above the smallest form.
const BITMAP_TOLERANCE: f64 = 1.2;
/// Up to so many rows a posting's bytes are rounded as they are written.
const FEW_ROWS: f64 = 256.0;

/// The rows of one value, or of one bitmap; means over several like it may be fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PostingShape {
    /// How many rows.
    pub rows: f64,
    /// Runs of neighbouring rows.
    pub runs: f64,
    /// From the first row to the last.
    pub span: f64,
}

impl PostingShape {
    /// Rows that are spread evenly over `universe` rows, in random order.
    #[must_use]
    pub fn spread(rows: f64, universe: f64) -> Self {
        let density = (rows / universe.max(1.0)).min(1.0);
        let span = (universe * (rows - 1.0) / (rows + 1.0) + 1.0).clamp(rows.min(universe), universe);
        Self { rows, runs: rows * (1.0 - density) + density, span }
    }

    /// Rows in so many runs, these spread evenly.
    #[must_use]
    pub fn of_runs(rows: f64, runs: f64, universe: f64) -> Self {
        let runs = runs.clamp(rows.min(1.0), rows.max(1.0));
        Self { rows, runs, span: if runs < 2.0 { rows } else { universe * (runs - 1.0) / (runs + 1.0) }.max(rows) }
    }

    /// Another number of rows that lie in the same way.
    #[must_use]
    pub fn scaled_to(self, rows: f64) -> Self {
        let factor = rows / self.rows.max(1e-9);
        Self { rows, runs: (self.runs * factor).max(1.0), span: (self.span * factor.min(1.0)).max(rows) }
    }

    /// Bytes of the posting in a row space of `universe` rows.
    #[must_use]
    pub fn posting_bytes(&self, universe: f64) -> f64 {
        if self.rows <= 0.0 || universe < 1.0 {
            return 0.0;
        }
        let rows = self.rows.max(1.0);
        let full = (rows / BLOCK_ROWS as f64).floor();
        let rest = rows - full * BLOCK_ROWS as f64;
        full * self.block_bytes(BLOCK_ROWS as f64, universe) + self.block_bytes(rest, universe)
    }

    /// A posting block of `count` of the rows: the smallest of its forms, or a bitmap if that is little larger.
    fn block_bytes(&self, count: f64, universe: f64) -> f64 {
        if count < 1.0 {
            return 0.0;
        }
        let part = count / self.rows.max(count);
        let span = (self.span * part).max(count).min(universe);
        let runs = (self.runs * part).clamp(1.0, count);
        let round = |bytes: f64| if count < FEW_ROWS { bytes.ceil() } else { bytes + 0.5 };
        // The form, the first row and the span.
        let bounds = 1.0 + varint_below(universe) + varint(span);
        let gap = (span - count) / (runs - 1.0).max(1.0);
        let (lengths, gaps) =
            if runs < 1.5 { (varint(count), 0.0) } else { (varint_mean(count / runs), varint_mean(gap)) };
        let in_runs = 1.0 + varint(runs) + varint_below(universe) + (runs - 1.0) * gaps + runs * lengths;
        let best = (1.0 + elias_fano(count, universe, round)).min(bounds + elias_fano(count, span, round)).min(in_runs);
        let bitmap = bounds + round(span / 8.0);
        if bitmap <= best * BITMAP_TOLERANCE { bitmap } else { best }
    }
}

/// Low bits, a bit for each row, and the steps: two lists.
fn elias_fano(count: f64, span: f64, round: impl Fn(f64) -> f64) -> f64 {
    let low = (span / count).max(1.0).log2().floor();
    round(count * low / 8.0) + round((count + (span / low.exp2()).floor()) / 8.0)
}

fn varint(number: f64) -> f64 {
    ((number + 1.0).log2() / 7.0).ceil().max(1.0)
}

/// Numbers that are as likely anywhere below `most`.
fn varint_below(most: f64) -> f64 {
    (1..5).map(|bytes| 1.0 - ((7 * bytes) as f64).exp2() / most.max(1.0)).filter(|part| *part > 0.0).sum::<f64>() + 1.0
}

/// Numbers whose logarithms fall off evenly (gaps between random rows), with this mean.
fn varint_mean(mean: f64) -> f64 {
    (1..5).map(|bytes| (-((7 * bytes) as f64).exp2() / mean.max(0.1)).exp()).sum::<f64>() + 1.0
}

#[cfg(test)]
mod tests {
    use lakemark_format::posting;

    use super::*;

    fn actual(rows: &[u32], universe: u32) -> f64 {
        let mut bytes = Vec::new();
        posting::encode(rows, universe, &mut bytes);
        bytes.len() as f64
    }

    #[test]
    fn single_rows_runs_and_random_rows_are_predicted() {
        let universe = 1_000_000;
        for row in [0u32, 70_000, 999_999] {
            let predicted = PostingShape { rows: 1.0, runs: 1.0, span: 1.0 }.posting_bytes(f64::from(universe));
            assert!((predicted - actual(&[row], universe)).abs() <= 2.0, "{predicted}");
        }
        let run: Vec<u32> = (500_000..600_000).collect();
        let predicted = PostingShape { rows: 1e5, runs: 1.0, span: 1e5 }.posting_bytes(f64::from(universe));
        let is = actual(&run, universe);
        assert!((predicted / is - 1.0).abs() < 0.1, "{predicted} for {is}");
        // A multiplier without a pattern.
        for count in [10u32, 100, 3000, 50_000, 400_000] {
            let mut rows: Vec<u32> = (0..count).map(|i| (u64::from(i) * 2_654_435_761 % 1_000_003) as u32).collect();
            rows.retain(|row| *row < universe);
            rows.sort_unstable();
            let predicted =
                PostingShape::spread(rows.len() as f64, f64::from(universe)).posting_bytes(f64::from(universe));
            let is = actual(&rows, universe);
            assert!((predicted / is - 1.0).abs() < 0.1, "{count}: {predicted} for {is}");
        }
    }
}
