//! The types in which a scan gives texts. Bytes are as they are declared: functions that take them, and casts to bytes of one length, know
//! no views.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use lakemark_table::Snapshot;

/// As a table declares them, or as views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTypes {
    Declared,
    Views,
}

impl TextTypes {
    /// The columns of a table. Those that its folders are named by are as they are declared: one value serves all rows of a file.
    pub(crate) fn of_table(self, snapshot: &Snapshot) -> SchemaRef {
        let partitions = snapshot.partition_columns();
        self.of(snapshot.schema(), |name| partitions.iter().any(|partition| partition.name() == name))
    }

    /// The columns of a table's files.
    pub(crate) fn of_files(self, snapshot: &Snapshot) -> SchemaRef {
        self.of(snapshot.file_schema(), |_| false)
    }

    fn of(self, schema: SchemaRef, is_left: impl Fn(&str) -> bool) -> SchemaRef {
        if self == Self::Declared {
            return schema;
        }
        let fields = schema.fields().iter().map(|field| match view_of(field) {
            Some(view) if !is_left(field.name()) => Arc::new(view),
            _ => Arc::clone(field),
        });
        Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
    }
}

fn view_of(field: &Field) -> Option<Field> {
    let view = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        _ => return None,
    };
    Some(field.clone().with_data_type(view))
}
