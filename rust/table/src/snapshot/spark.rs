//! What Spark says of its columns in the footers of data files: Parquet has no collations.

use serde_json::Value;

use crate::error::Result;
use crate::files::footer::Footer;
use crate::snapshot::Snapshot;

/// The entry of a footer that has Spark's schema, as JSON.
pub(crate) const SPARK_SCHEMA: &str = "org.apache.spark.sql.parquet.row.metadata";
/// The entry of a field's metadata that has the collations of its texts.
pub(crate) const COLLATIONS: &str = "__COLLATIONS";

impl Snapshot {
    /// The schema that Spark wrote into the first data file, as JSON, if it has collations. Spark takes the schema of the first file for
    /// the table's, too. None of a Delta table, whose log says what its columns are.
    ///
    /// # Errors
    /// The footer cannot be read.
    pub async fn spark_schema(&self) -> Result<Option<String>> {
        let first = self.files().iter().min_by(|a, b| a.path.cmp(&b.path)).filter(|_| self.delta_version().is_none());
        let Some(file) = first else { return Ok(None) };
        let footer = Footer::read(self.object_store().as_ref(), &file.meta, &file.path).await?;
        let entries = footer.metadata.file_metadata().key_value_metadata().into_iter().flatten();
        let schema = entries.filter(|entry| entry.key == SPARK_SCHEMA).find_map(|entry| entry.value.clone());
        Ok(schema.filter(|schema| schema.contains(COLLATIONS)))
    }

    /// That schema, if its columns are those of the files. None otherwise: Spark would not see a column that the schema lacks.
    pub(crate) async fn spark_schema_of_files(&self) -> Result<Option<String>> {
        let fields = self.file_schema();
        let of_table = |text: &String| {
            let schema: Option<Value> = serde_json::from_str(text).ok();
            let names = schema.as_ref().and_then(|schema| schema.get("fields")?.as_array());
            names.is_some_and(|said| {
                let said = said.iter().map(|field| field.get("name").and_then(Value::as_str));
                said.eq(fields.fields().iter().map(|field| Some(field.name().as_str())))
            })
        };
        Ok(self.spark_schema().await?.filter(of_table))
    }
}
