//! A declared index.

use crate::codec::{ByteReader, ByteWriter};
use crate::error::Result;
use crate::index_kind::IndexKind;
use crate::key::KeyType;
use crate::limits::MAX_NAME_LENGTH;
use crate::name_of::NameOf;
use crate::segment::encoding::Encoding;

/// A declared index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestIndex {
    /// The index's id; a name that is dropped and declared again is another index.
    pub id: [u8; 16],
    /// The name, unique in the table.
    pub name: String,
    /// The kind, such as `bitmap`.
    pub kind: NameOf<IndexKind>,
    /// The encoding, such as `equality`.
    pub encoding: NameOf<Encoding>,
    /// The column's physical name.
    pub column: String,
    /// The column's field id, where the table has them.
    pub field_id: Option<i32>,
    /// The column's type.
    pub key_type: KeyType,
    /// Options as they were given, in order.
    pub options: Vec<(String, String)>,
}

impl ManifestIndex {
    /// The id, four empty strings, no field id, a type and no options.
    pub(super) const MIN_BYTES: usize = 16 + 4 + 1 + 1 + 1;

    pub(super) fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.bytes(&self.id);
        out.string("the name of an index", &self.name, MAX_NAME_LENGTH)?;
        out.string("the kind of an index", self.kind.as_str(), MAX_NAME_LENGTH)?;
        out.string("the encoding of an index", self.encoding.as_str(), MAX_NAME_LENGTH)?;
        out.string("the column of an index", &self.column, MAX_NAME_LENGTH)?;
        out.flag(self.field_id.is_some());
        if let Some(field_id) = self.field_id {
            out.u32(field_id.cast_unsigned());
        }
        self.key_type.encode(out);
        out.length(self.options.len());
        for (name, value) in &self.options {
            out.string("an option's name", name, MAX_NAME_LENGTH)?;
            out.string("an option's value", value, MAX_NAME_LENGTH)?;
        }
        Ok(())
    }

    pub(super) fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let id = input.array()?;
        let name = input.string("the name of an index", MAX_NAME_LENGTH)?;
        let kind = input.string("the kind of an index", MAX_NAME_LENGTH)?.as_str().into();
        let encoding = input.string("the encoding of an index", MAX_NAME_LENGTH)?.as_str().into();
        let column = input.string("the column of an index", MAX_NAME_LENGTH)?;
        let field_id = match input.flag("the presence of a field id")? {
            true => Some(input.u32()?.cast_signed()),
            false => None,
        };
        let key_type = KeyType::decode(input)?;
        let count = input.count("the number of options", 2)?;
        let mut options = Vec::with_capacity(count);
        for _ in 0..count {
            let name = input.string("an option's name", MAX_NAME_LENGTH)?;
            options.push((name, input.string("an option's value", MAX_NAME_LENGTH)?));
        }
        Ok(Self { id, name, kind, encoding, column, field_id, key_type, options })
    }
}
