//! What was decided and predicted when an index was declared, kept in its options under names that users cannot give.

use lakemark_format::ManifestIndex;

/// A record among the options of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// Why `auto` chose the encoding.
    Reason,
    /// Bytes that the index was predicted to take.
    PredictedBytes,
    /// Rows that the prediction was for.
    PredictedRows,
}

impl Record {
    const ALL: [Self; 3] = [Self::Reason, Self::PredictedBytes, Self::PredictedRows];

    fn name(self) -> &'static str {
        match self {
            Self::Reason => "auto",
            Self::PredictedBytes => "predicted_bytes",
            Self::PredictedRows => "predicted_rows",
        }
    }

    fn add(self, index: &mut ManifestIndex, value: String) {
        index.options.push((self.name().to_owned(), value));
    }

    fn of(self, index: &ManifestIndex) -> Option<&String> {
        index.options.iter().find(|(name, _)| name == self.name()).map(|(_, value)| value)
    }
}

/// Records that `auto` chose the encoding of an index, and why.
pub(crate) fn record_reason(index: &mut ManifestIndex, reason: String) {
    Record::Reason.add(index, reason);
}

/// Records the bytes that an index is predicted to take, and for how many rows.
pub(crate) fn record_prediction(index: &mut ManifestIndex, bytes: u64, rows: u64) {
    Record::PredictedBytes.add(index, bytes.to_string());
    Record::PredictedRows.add(index, rows.to_string());
}

/// Whether `auto` chose the encoding of an index.
pub(crate) fn is_chosen_by_auto(index: &ManifestIndex) -> bool {
    Record::Reason.of(index).is_some()
}

/// Whether an option is one of our records, and none of the user's.
pub(crate) fn is_record(name: &str) -> bool {
    Record::ALL.iter().any(|record| record.name() == name)
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
        let number = |record: Record| record.of(index).and_then(|value| value.parse().ok());
        let reason = Record::Reason.of(index).cloned();
        Self { reason, bytes: number(Record::PredictedBytes), rows: number(Record::PredictedRows) }
    }

    /// The prediction for so many rows; without any, for the rows that it was made for.
    pub(crate) fn bytes_of(&self, rows: u64) -> Option<u64> {
        let (bytes, predicted) = (self.bytes?, self.rows?);
        let part = if rows == 0 || predicted == 0 { 1.0 } else { rows as f64 / predicted as f64 };
        Some((bytes as f64 * part).round() as u64)
    }
}
