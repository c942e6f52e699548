//! What was decided and predicted when an index was declared, kept in its options under names that users cannot give.

use lakemark_format::ManifestIndex;

/// Why `auto` chose the encoding.
pub(crate) const REASON: &str = "auto";
/// Bytes that the index was predicted to take.
pub(crate) const PREDICTED_BYTES: &str = "predicted_bytes";
/// Rows that the prediction was for.
pub(crate) const PREDICTED_ROWS: &str = "predicted_rows";

/// Whether `auto` chose the encoding of an index.
pub(crate) fn is_chosen_by_auto(index: &ManifestIndex) -> bool {
    index.options.iter().any(|(name, _)| name == REASON)
}

/// Whether an option is one of our records, and none of the user's.
pub(crate) fn is_record(name: &str) -> bool {
    [REASON, PREDICTED_BYTES, PREDICTED_ROWS].contains(&name)
}

/// What was recorded when an index was declared.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// Why `auto` chose the encoding.
    pub reason: Option<String>,
    bytes: Option<u64>,
    rows: Option<u64>,
}

impl Recorded {
    pub(crate) fn of(index: &ManifestIndex) -> Self {
        let option = |wanted: &str| index.options.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let number = |wanted: &str| option(wanted).and_then(|value| value.parse().ok());
        Self { reason: option(REASON).cloned(), bytes: number(PREDICTED_BYTES), rows: number(PREDICTED_ROWS) }
    }

    /// The prediction for so many rows; without any, for the rows that it was made for.
    pub(crate) fn bytes_of(&self, rows: u64) -> Option<u64> {
        let (bytes, predicted) = (self.bytes?, self.rows?);
        let part = if rows == 0 || predicted == 0 { 1.0 } else { rows as f64 / predicted as f64 };
        Some((bytes as f64 * part).round() as u64)
    }
}
