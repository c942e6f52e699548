//! What is known of a leaf without any index: partition columns are constants, and a column that a file lacks is NULL there.

use std::sync::Arc;

use arrow::array::Array;
use lakemark_index::{Leaf, LiteralKey, Reason, Test, Truth, encode_literal};

use super::answers::FileCandidates;
use crate::report::AnsweredBy;
use crate::snapshot::Snapshot;
use crate::values::fields::{Presence, has_other_calendar, indexed_field, key_type_of_field};

/// What is known of a leaf without any index.
pub(super) struct LeafConstants {
    /// By file; the reason where nothing is known.
    pub candidates: Vec<FileCandidates>,
    /// What answers, for reports.
    pub source: Option<AnsweredBy>,
}

pub(super) fn constants(snapshot: &Snapshot, leaf: &Leaf) -> LeafConstants {
    let files = snapshot.files();
    if let Some(place) = snapshot.partition_columns().iter().position(|field| *field.name() == leaf.column) {
        let of_file =
            |value: Option<&Arc<dyn Array>>| match value.and_then(|value| test_value(value.as_ref(), &leaf.test)) {
                Some(truth) => FileCandidates::Constant(truth),
                None => FileCandidates::Unknown(Reason::TypeNotIndexed),
            };
        let candidates = files.iter().map(|file| of_file(file.partition_values.get(place))).collect();
        return LeafConstants { candidates, source: Some(AnsweredBy::Partition) };
    }
    let has_index = !snapshot.indexes_for(leaf).is_empty();
    let (table, name) = (snapshot.file_schema(), leaf.column.as_str());
    let indexable = indexed_field(&table, name).is_some_and(|field| key_type_of_field(&field).is_some());
    let null = if leaf.test == Test::IsNull { Truth::True } else { Truth::Null };
    let answers = snapshot.index_states.iter().map(|state| match &state.schema {
        Some(schema) if Presence::of(schema, &table, name) == Presence::Lacking => FileCandidates::Constant(null),
        _ if !indexable => FileCandidates::Unknown(Reason::TypeNotIndexed),
        _ if !has_index => FileCandidates::Unknown(Reason::NoIndex),
        Some(schema) if has_other_calendar(schema, name) => FileCandidates::Unknown(Reason::CalendarRebased),
        _ if state.size_changed => FileCandidates::Unknown(Reason::FileChanged),
        _ => FileCandidates::Unknown(Reason::FileNotCovered),
    });
    LeafConstants { candidates: answers.collect(), source: None }
}

/// The truth of a test of a constant.
fn test_value(value: &dyn Array, test: &Test) -> Option<Truth> {
    let key = encode_literal(value)?;
    Some(match (key, test) {
        // No partition column is a list.
        (_, Test::Elements(_)) => return None,
        (LiteralKey::Null, Test::IsNull) => Truth::True,
        (LiteralKey::Null, Test::Ranges(_)) => Truth::Null,
        (LiteralKey::Key(_), Test::IsNull) => Truth::False,
        (LiteralKey::Key(key), Test::Ranges(ranges)) if ranges.contains(&key) => Truth::True,
        (LiteralKey::Key(_), Test::Ranges(_)) => Truth::False,
    })
}
