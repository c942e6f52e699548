//! Ids of segments: hashes of all that their bytes follow from. So two builders of the same files write the same name with the same bytes.
//!
//! ```text
//! version of the format, rules ─┐
//! index: id, kind, options      ├─▶ 128 bits ─▶ indexes/….lmx
//! encoding that is written,     │
//!   columns that ride along     │
//! files in order: version,      │
//!   footer, false statistics   ─┘
//! ```
//!
//! How many threads build, what they spill and in which parts they hand bytes on changes none of them. A test builds twice and compares.
//!
//! A file that was young when it was read has segments with random ids: two builders may read different bytes of it.
//!
//! What a builder finds out of a file while it decodes it is in the name, too: that the statistics in the footer are false. Who looks for a
//! segment without having decoded the files looks for one of files with right statistics. So nobody takes over a segment and goes on
//! to believe false statistics.

use lakemark_format::codec::ByteWriter;
use lakemark_format::container::VERSION;
use lakemark_format::{Encoding, ManifestFile, ManifestIndex, RidingColumn};
use lakemark_index::bitmap::SegmentMeta;

use crate::storage::file_time::was_young;
use crate::storage::fingerprint::fingerprint_of_name;
use crate::storage::ids::new_id;

/// Raised by whoever changes the bytes that a builder writes of the same files. A test compares these with what was written before.
const RULES: u32 = 3;

/// A data file that a segment is made of.
pub(crate) struct SourceFile<'a> {
    /// Path below the root of the table.
    pub path: &'a str,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970-01-01 UTC.
    pub modified_ns: i64,
    /// The entity tag, where there is one.
    pub tag: Option<&'a str>,
    pub footer_hash: u64,
    /// Whether the footer's statistics of the column were found to be false.
    pub has_false_statistics: bool,
}

impl<'a> SourceFile<'a> {
    fn of_manifest(file: &'a ManifestFile) -> Self {
        Self {
            path: &file.path,
            size: file.size,
            modified_ns: file.modified_ns,
            tag: file.etag.as_deref(),
            footer_hash: file.footer_hash,
            has_false_statistics: false,
        }
    }
}

/// What is written of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentContent<'a> {
    pub encoding: Encoding,
    /// The columns that ride along.
    pub riding: &'a [RidingColumn],
}

impl<'a> SegmentContent<'a> {
    /// What is written of a segment.
    pub(crate) fn of(meta: &'a SegmentMeta) -> Self {
        Self { encoding: meta.encoding, riding: &meta.riding }
    }
}

/// The id of the segment that a build makes of these files, in their order.
pub(crate) fn segment_id<'a>(
    index: &ManifestIndex,
    content: SegmentContent<'_>,
    files: impl IntoIterator<Item = SourceFile<'a>>,
) -> [u8; 16] {
    let mut source = Source::default();
    source.number(VERSION.into());
    source.number(RULES.into());
    source.text(&index.id);
    source.text(index.kind.as_str().as_bytes());
    source.text(content.encoding.name().as_bytes());
    source.number(content.riding.len() as u64);
    for column in content.riding {
        source.text(column.column.as_bytes());
        let mut of_type = ByteWriter::new();
        column.key_type.encode(&mut of_type);
        source.text(of_type.as_slice());
    }
    source.number(index.options.len() as u64);
    for (name, value) in &index.options {
        source.text(name.as_bytes());
        source.text(value.as_bytes());
    }
    for SourceFile { path, size, modified_ns, tag, footer_hash, has_false_statistics } in files {
        source.text(path.as_bytes());
        source.number(size);
        source.number(modified_ns.cast_unsigned());
        source.number(tag.is_some().into());
        source.text(tag.unwrap_or_default().as_bytes());
        source.number(footer_hash);
        source.number(has_false_statistics.into());
    }
    fingerprint_of_name(&source.0)
}

/// The id of the segment that a merge makes for these files, in their order, as the manifest knows them. It is another id than that of a
/// build: what a build may take over was made of the files themselves. `copied` are the segments whose bytes are in it as they are: the same
/// files in other segments may have other filters.
pub(crate) fn merged_segment_id(
    index: &ManifestIndex,
    content: SegmentContent<'_>,
    files: &[ManifestFile],
    copied: &[[u8; 16]],
) -> [u8; 16] {
    if files.iter().filter_map(|file| file.etag.as_deref()).any(was_young) {
        return new_id().into_bytes();
    }
    let mut source = Source::default();
    source.text(&segment_id(index, content, files.iter().map(SourceFile::of_manifest)));
    for id in copied {
        source.text(id);
    }
    fingerprint_of_name(&source.0)
}

/// What is hashed. Texts come after their lengths, so that two of them are never taken for two others.
#[derive(Default)]
struct Source(Vec<u8>);

impl Source {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.0.extend(text);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;

    use arrow::array::Int64Array;
    use lakemark_format::{KeyType, SegmentFile};
    use lakemark_index::Precision;
    use lakemark_index::bitmap::{ChunkBuilder, ChunkSource, merge};
    use lakemark_index::zones::ZoneOptions;

    use super::*;

    fn index() -> ManifestIndex {
        ManifestIndex {
            id: [1; 16],
            name: "i".to_owned(),
            kind: "bitmap".into(),
            encoding: "equality".into(),
            column: "k".to_owned(),
            field_id: None,
            key_type: KeyType::Int32,
            options: vec![("files_per_segment".to_owned(), "16".to_owned())],
        }
    }

    fn file(path: &str) -> SourceFile<'_> {
        SourceFile { path, size: 7, modified_ns: 5, tag: None, footer_hash: 1, has_false_statistics: false }
    }

    fn content(encoding: Encoding) -> SegmentContent<'static> {
        SegmentContent { encoding, riding: &[] }
    }

    fn with_riding(key_type: KeyType) -> [u8; 16] {
        let riding = [RidingColumn { column: "b".to_owned(), key_type }];
        let content = SegmentContent { encoding: Encoding::Equality, riding: &riding };
        segment_id(&index(), content, [file("a"), file("b")])
    }

    fn of_files(files: [SourceFile<'_>; 2]) -> [u8; 16] {
        segment_id(&index(), content(Encoding::Equality), files)
    }

    fn of_index(index: &ManifestIndex, encoding: Encoding) -> [u8; 16] {
        segment_id(index, content(encoding), [file("a"), file("b")])
    }

    #[test]
    fn a_merge_has_ids_of_its_own_and_none_that_comes_again_for_young_files() {
        let known = |tag: Option<&str>| ManifestFile {
            path: "a".to_owned(),
            size: 7,
            modified_ns: 5,
            etag: tag.map(str::to_owned),
            footer_hash: 1,
            schema: 0,
            row_groups: vec![1],
            false_statistics: vec![3],
        };
        let of_copied =
            |copied: &[[u8; 16]]| merged_segment_id(&index(), content(Encoding::Equality), &[known(None)], copied);
        let merged = |tag: Option<&str>| merged_segment_id(&index(), content(Encoding::Equality), &[known(tag)], &[]);
        assert_eq!(merged(None), merged(None));
        assert_ne!(merged(None), segment_id(&index(), content(Encoding::Equality), [file("a")]));
        assert_ne!(merged(None), merged(Some("e")));
        assert_ne!(merged(Some("young:")), merged(Some("young:")));
        // Filters are those of the segments that they come from.
        let both = [[1; 16], [2; 16]];
        let ids: HashSet<[u8; 16]> = [&both[..], &both[..1], &both[1..], &[]].into_iter().map(of_copied).collect();
        assert_eq!((ids.len(), of_copied(&[])), (4, merged(None)));
    }

    #[test]
    fn whatever_changes_the_bytes_gives_another_id_and_nothing_else_does() {
        let plain = of_files([file("a"), file("b")]);
        let second = |changed: SourceFile<'_>| of_files([file("a"), changed]);
        let others = [
            of_files([file("b"), file("a")]),
            of_files([file("ab"), file("")]),
            segment_id(&index(), content(Encoding::Equality), [file("a")]),
            with_riding(KeyType::Int32),
            with_riding(KeyType::Int64),
            second(SourceFile { size: 8, ..file("b") }),
            second(SourceFile { modified_ns: -5, ..file("b") }),
            second(SourceFile { tag: Some(""), ..file("b") }),
            second(SourceFile { tag: Some("e"), ..file("b") }),
            second(SourceFile { footer_hash: 2, ..file("b") }),
            second(SourceFile { has_false_statistics: true, ..file("b") }),
            of_index(&index(), Encoding::Packed),
            of_index(&ManifestIndex { id: [2; 16], ..index() }, Encoding::Equality),
            of_index(&ManifestIndex { kind: "key".into(), ..index() }, Encoding::Equality),
            of_index(&ManifestIndex { options: Vec::new(), ..index() }, Encoding::Equality),
        ];
        let distinct: HashSet<[u8; 16]> = others.iter().copied().chain([plain]).collect();
        assert_eq!(distinct.len(), others.len() + 1);
        assert_eq!(of_index(&ManifestIndex { name: "j".to_owned(), ..index() }, Encoding::Equality), plain);
    }

    /// What a builder writes of the same two row groups, with values that come again, others that do not, and NULL.
    fn written(encoding: Encoding) -> Vec<u8> {
        let groups: [Vec<Option<i64>>; 2] = [
            (0..3000).map(|row| (row % 97 != 0).then_some(row * 7919 % 1000)).collect(),
            (0..2000).map(|row| Some(row * row % 100_003 - 500)).collect(),
        ];
        let (mut sources, mut row_groups, mut row) = (Vec::new(), Vec::new(), 0);
        for group in groups {
            row_groups.push(u32::try_from(group.len()).unwrap());
            let mut chunk = ChunkBuilder::new(&KeyType::Int64);
            chunk.push(&Int64Array::from(group)).unwrap();
            sources.push(ChunkSource::memory(row, chunk.finish()));
            row += row_groups[row_groups.len() - 1];
        }
        let file = SegmentFile { path: "a".to_owned(), base: 0, row_groups, footer_hash: 1, column_hash: 2 };
        let meta = SegmentMeta {
            segment_id: [7; 16],
            index_id: [8; 16],
            column: "k".to_owned(),
            key_type: KeyType::Int64,
            files: vec![file],
            encoding,
            bins: None,
            precision: (encoding == Encoding::Binned).then_some(Precision::Digits(2)),
            zones: ZoneOptions { zone_rows: Some(64), ..ZoneOptions::default() },
            riding: Vec::new(),
        };
        let mut bytes = Vec::new();
        let mut sink = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        merge(meta, sources, &mut sink).unwrap();
        bytes
    }

    /// `LAKEMARK_GOLDEN=write` writes the hashes anew once [`RULES`] is another number than theirs.
    #[test]
    fn who_changes_what_a_builder_writes_raises_the_rules() {
        let rules = format!("rules {RULES} of version {VERSION}\n");
        let mut now = rules.clone();
        for encoding in Encoding::ALL {
            let hash = u128::from_be_bytes(fingerprint_of_name(&written(encoding)));
            writeln!(now, "{} {hash:032x}", encoding.name()).unwrap();
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/built_segments.txt");
        let before = fs::read_to_string(&path).unwrap_or_default();
        if std::env::var_os("LAKEMARK_GOLDEN").is_some_and(|mode| mode == "write") && !before.starts_with(&rules) {
            fs::write(&path, &now).unwrap();
            return;
        }
        assert_eq!(
            before, now,
            "a builder writes other bytes of the same files than before: raise RULES, and run this with LAKEMARK_GOLDEN=write. Otherwise two \
             contents have one name"
        );
    }
}
