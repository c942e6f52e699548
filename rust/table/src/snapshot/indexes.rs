//! The indexes of a snapshot: what they are on, how much of it they cover, and which of them can answer a condition.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use lakemark_format::{Encoding, Manifest, ManifestIndex, ManifestSegment, column};
use lakemark_index::{Leaf, Test};

use super::Snapshot;
use super::coverage::CoveredFiles;
use crate::error::Result;
use crate::index_kind::IndexKind;
use crate::report::{ChosenBy, IndexInfo};
use crate::store::hashed::hash_bits;
use crate::store::recorded::{Recorded, is_chosen_by_auto};
use crate::store::segments::missing;
use crate::values::fields::key_type_of_field;

impl Snapshot {
    /// Whether there are indexes.
    #[must_use]
    pub fn has_indexes(&self) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.indexes().len() > 0)
    }

    /// Whether an index is on a column, alone or with others.
    #[must_use]
    pub fn is_indexed(&self, column: &str) -> bool {
        let indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        indexes.into_iter().any(|index| self.logical_columns(index).iter().any(|own| own == column))
    }

    /// The indexes and how much of this snapshot they cover.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexInfo> {
        self.indexes_without(&HashSet::new())
    }

    /// The same, for people: segments that are gone cover nothing. That takes a listing of the store; the next build makes such segments
    /// again.
    pub async fn checked_indexes(&self) -> Result<Vec<IndexInfo>> {
        let (Some(store), Some(manifest)) = (&self.store, &self.manifest) else { return Ok(self.indexes()) };
        let lost = missing(store, manifest, manifest.indexes()).await?;
        Ok(self.indexes_without(&lost.iter().map(|segment| segment.id).collect()))
    }

    fn indexes_without(&self, lost: &HashSet<[u8; 16]>) -> Vec<IndexInfo> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        manifest.indexes().map(|index| self.index_info(manifest, index, lost)).collect()
    }

    /// The columns of each index of one of these kinds.
    #[must_use]
    pub fn columns_of_kinds(&self, kinds: &[IndexKind]) -> Vec<Vec<String>> {
        let indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        let kept = indexes.filter(|index| index.kind.known().is_some_and(|kind| kinds.contains(&kind)));
        kept.map(|index| self.logical_columns(index)).collect()
    }

    /// The columns of an index, as the table shows them.
    pub(super) fn logical_columns(&self, index: &ManifestIndex) -> Vec<String> {
        let shown = self.logical_name(&index.column).unwrap_or(Cow::Borrowed(&index.column));
        column::columns(&shown).map(|column| self.display_name(column)).collect()
    }

    fn index_info(&self, manifest: &Manifest, index: &ManifestIndex, lost: &HashSet<[u8; 16]>) -> IndexInfo {
        let of_index = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
        let segments: Vec<&ManifestSegment> = of_index.filter(|segment| !lost.contains(&segment.id)).collect();
        let covered = match self.is_usable(index) {
            true => self.covered_by(manifest, segments.iter().copied()),
            false => CoveredFiles::default(),
        };
        let CoveredFiles { files: files_covered, rows } = covered;
        let files_total = self.files.len() as u64;
        let data_type = self.physical_field(&index.column).map(|field| field.data_type().to_string());
        let shown = self.logical_name(&index.column).unwrap_or(Cow::Borrowed(&index.column));
        let recorded = Recorded::of(index);
        IndexInfo {
            name: index.name.clone(),
            kind: index.kind.clone(),
            encoding: index.encoding.clone(),
            column: self.display_name(&shown),
            columns: self.logical_columns(index),
            data_type: data_type.unwrap_or_else(|| "gone".to_owned()),
            chosen_by: if is_chosen_by_auto(index) { ChosenBy::Auto } else { ChosenBy::User },
            predicted_bytes: recorded.bytes_of(rows),
            reason: recorded.reason,
            options: self.shown_options(index),
            files_covered,
            files_total,
            coverage: if files_total == 0 { 1.0 } else { files_covered as f64 / files_total as f64 },
            segments: segments.len() as u64,
            bytes: segments.iter().map(|segment| segment.length).sum(),
            rows,
        }
    }

    /// The indexes that can answer tests of the values of `column`, as it is typed now. First are those that know every row, then those
    /// with hashes, then those that know the smaller zones.
    pub(crate) fn indexes_of(&self, column: &str) -> Vec<&ManifestIndex> {
        let mut found = self.usable_on(column);
        found.retain(|index| !index.key_type.is_list());
        found
    }

    /// The indexes that can answer the test of a leaf, in the same order. Of lists, an index knows the elements and which are NULL.
    pub(crate) fn indexes_for(&self, leaf: &Leaf) -> Vec<&ManifestIndex> {
        let mut found = self.usable_on(&leaf.column);
        found.retain(|index| match &leaf.test {
            Test::IsNull => true,
            // Hashes say nothing of the order of values.
            Test::Ranges(ranges) if hash_bits(index).is_some() => ranges.are_points(),
            Test::Ranges(_) => !index.key_type.is_list(),
            Test::Elements(_) => index.key_type.is_list(),
        });
        found
    }

    fn usable_on(&self, column: &str) -> Vec<&ManifestIndex> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        let stored = self.physical_name(column);
        let usable = manifest.indexes().filter(|index| index.column == stored && self.answers_conditions(index));
        let mut found: Vec<&ManifestIndex> = usable.collect();
        found.sort_by_key(|index| match index.kind.known() {
            Some(kind) if kind.is_exact() && hash_bits(index).is_none() => 0,
            Some(kind) if kind.is_exact() => 1,
            Some(IndexKind::BloomTree) => 2,
            _ => 3,
        });
        found
    }

    /// Whether something may be known of conditions on a column: it is one of the partition columns, or an index is on it.
    #[must_use]
    pub fn is_prunable(&self, column: &str) -> bool {
        self.partition_columns.iter().any(|field| field.name() == column)
            || !self.usable_on(column).is_empty()
            || self.begins_composite(column)
    }

    /// Whether an index over several columns begins with this one: of its other columns alone the index knows nothing.
    fn begins_composite(&self, column: &str) -> bool {
        let stored = self.physical_name(column);
        let is_over = |index: &ManifestIndex| {
            column::is_composite(&index.column) && column::columns(&index.column).next() == Some(&stored)
        };
        let mut indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        indexes.any(|index| is_over(index) && self.answers_conditions(index))
    }

    /// Whether an index that is made to find single values, of the kind `key`, `bloom_tree` or `summary`, is on a column or begins with it.
    #[must_use]
    pub fn has_key_index(&self, column: &str) -> bool {
        let stored = self.physical_name(column);
        let begins = |index: &ManifestIndex| column::columns(&index.column).next() == Some(stored.as_ref());
        let made_for_it =
            |index: &ManifestIndex| index.kind.known() != Some(IndexKind::Bitmap) && self.answers_conditions(index);
        let mut indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        indexes.any(|index| begins(index) && made_for_it(index))
    }

    /// The indexes of [`Self::indexes_of`] that know every row.
    pub(crate) fn exact_indexes_of(&self, column: &str) -> Vec<&ManifestIndex> {
        exact(self.indexes_of(column))
    }

    /// The indexes of [`Self::indexes_for`] that know every row.
    pub(crate) fn exact_indexes_for(&self, leaf: &Leaf) -> Vec<&ManifestIndex> {
        exact(self.indexes_for(leaf))
    }

    /// The indexes of [`Self::indexes_for`] that know rows: every one, and where keys are hashes those that may have a value.
    pub(crate) fn row_indexes_for(&self, leaf: &Leaf) -> Vec<&ManifestIndex> {
        let mut indexes = self.indexes_for(leaf);
        indexes.retain(|index| index.kind.known().is_some_and(IndexKind::finds_rows));
        indexes
    }

    /// Whether the index is usable, and is of a kind that conditions are asked of.
    fn answers_conditions(&self, index: &ManifestIndex) -> bool {
        index.kind.known().is_some_and(IndexKind::answers_conditions) && self.is_usable(index)
    }

    /// Whether the index is of a kind that is known and of a column that the table has now, with the type that it has now.
    pub(crate) fn is_usable(&self, index: &ManifestIndex) -> bool {
        index.kind.known().is_some()
            && (!index.key_type.is_list() || index.encoding.known() == Some(Encoding::Equality))
            && self.physical_field(&index.column).and_then(|field| key_type_of_field(&field)).as_ref()
                == Some(&index.key_type)
    }
}

/// Of these indexes those that know every row.
fn exact(mut indexes: Vec<&ManifestIndex>) -> Vec<&ManifestIndex> {
    indexes.retain(|index| index.kind.known().is_some_and(IndexKind::finds_rows) && hash_bits(index).is_none());
    indexes
}
