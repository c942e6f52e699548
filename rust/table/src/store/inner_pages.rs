//! The inner pages of packed trees: read where a search needs their leaves, and remembered as directories are, of which they are parts.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use lakemark_format::{Key, ValueBlockRef, inner_page};
use lakemark_index::bitmap::{InnerPages, LeavesFor};
use lakemark_index::{KeyRanges, Test};

use super::segments::{Damage, ReadCounter, Segment, SegmentKey};
use crate::storage::cache::Cache;

/// Bytes of inner pages that the process remembers.
const CACHE_BYTES: u64 = 128 << 20;

/// The leaves of an inner page.
pub(crate) type Leaves = Arc<[ValueBlockRef]>;

/// An inner page of a segment. Segments never change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PageKey {
    segment: SegmentKey,
    offset: u64,
}

static PAGES: LazyLock<Cache<PageKey, Leaves>> = LazyLock::new(|| Cache::new(CACHE_BYTES));

fn key_of(segment: &SegmentKey, page: &ValueBlockRef) -> PageKey {
    PageKey { segment: segment.clone(), offset: page.offset }
}

/// Where a page is.
fn place_of(page: &ValueBlockRef) -> Range<u64> {
    page.offset..page.offset + u64::from(page.length)
}

/// Bytes that leaves take in memory.
fn memory_bytes(leaves: &[ValueBlockRef]) -> usize {
    let of_key = |key: &Key| match key {
        Key::Bytes(bytes) => bytes.capacity(),
        Key::Fixed(_) => 0,
    };
    leaves.iter().map(|leaf| size_of::<ValueBlockRef>() + of_key(&leaf.first_key)).sum()
}

impl Segment {
    /// The segment with the leaves that a search for some keys needs in its directory: the same if that has all leaves.
    pub(crate) async fn with_leaves(
        &self,
        keys: &KeyRanges,
        leaves_for: LeavesFor,
        counter: &ReadCounter,
    ) -> Result<Cow<'_, Self>, Damage> {
        let inner = InnerPages::new(&self.directory, keys, leaves_for);
        if inner.is_empty() {
            return Ok(Cow::Borrowed(self));
        }
        let pages: Vec<&ValueBlockRef> = inner.pages(&self.directory).collect();
        let leaves = self.leaves_of(&pages, counter).await?;
        let directory = inner.replaced(&self.directory, &leaves).map_err(Damage::corrupt)?;
        Ok(Cow::Owned(self.with_directory(directory)))
    }

    /// The same for a test.
    pub(crate) async fn with_leaves_of(
        &self,
        test: &Test,
        leaves_for: LeavesFor,
        counter: &ReadCounter,
    ) -> Result<Cow<'_, Self>, Damage> {
        match test {
            Test::IsNull => Ok(Cow::Borrowed(self)),
            Test::Ranges(keys) | Test::Elements(keys) => self.with_leaves(keys, leaves_for, counter).await,
        }
    }

    /// The leaves of each of some inner pages: those that are remembered from memory, and all others at once.
    pub(crate) async fn leaves_of(
        &self,
        pages: &[&ValueBlockRef],
        counter: &ReadCounter,
    ) -> Result<Vec<Leaves>, Damage> {
        let segment = self.key();
        let known: Vec<Option<Leaves>> = pages.iter().map(|page| PAGES.get(&key_of(&segment, page))).collect();
        let missing = pages.iter().zip(&known).filter(|(_, known)| known.is_none());
        let missing: Vec<&ValueBlockRef> = missing.map(|(page, _)| *page).collect();
        let ranges: Vec<Range<u64>> = missing.iter().map(|page| place_of(page)).collect();
        let read = self.read(&ranges, counter).await?;
        let mut decoded = Vec::with_capacity(missing.len());
        for (page, bytes) in missing.into_iter().zip(read) {
            let leaves: Leaves = self.decode_leaves(page, &bytes)?.into();
            let key = key_of(&segment, page);
            let taken = memory_bytes(&leaves) + size_of::<PageKey>() + segment.text_bytes();
            PAGES.insert(key, Arc::clone(&leaves), taken as u64);
            decoded.push(leaves);
        }
        let mut decoded = decoded.into_iter();
        // As many were read as were missing.
        Ok(known.into_iter().filter_map(|known| known.or_else(|| decoded.next())).collect())
    }

    /// The leaves of an inner page as it is in the store now.
    pub(crate) async fn read_leaves(
        &self,
        page: &ValueBlockRef,
        counter: &ReadCounter,
    ) -> Result<Vec<ValueBlockRef>, Damage> {
        let bytes = self.read(&[place_of(page)], counter).await?.pop().unwrap_or_default();
        self.decode_leaves(page, &bytes)
    }

    fn decode_leaves(&self, page: &ValueBlockRef, bytes: &[u8]) -> Result<Vec<ValueBlockRef>, Damage> {
        inner_page::decode(bytes, page, &self.directory.key_type).map_err(Damage::corrupt)
    }
}
