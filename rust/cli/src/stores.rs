//! The object stores of statements that are the engine's alone: `COPY`, and tables of other formats.
//!
//! The engine knows local files. Every other place is opened as that of a Lakemark table is: with the settings of the environment, and with
//! the options of the statement that are for an object store, which the engine does not see.

use std::collections::HashMap;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::Value;
use lakemark_datafusion::{LakemarkSession, Statement, from_engine};
use lakemark_table::{Error, object_store_at};

/// What the name of an option for an object store begins with, and what the object store has in its place: the first as in tables of ours,
/// the others as in DataFusion's own shell.
const OF_STORES: [(&str, &str); 3] = [("lakemark.storage.", ""), ("aws.", "aws_"), ("gcp.", "google_")];

/// Makes the object stores known that a statement needs, and takes their options out of it.
///
/// # Errors
/// A place has no object store in this build, or one of its options is wrong.
pub(crate) fn open(session: &LakemarkSession, statement: &mut Statement) -> Result<(), Error> {
    let Statement::Engine(engine) = statement else { return Ok(()) };
    match engine.as_mut() {
        EngineStatement::CopyTo(copy) => open_place(session, &copy.target, &taken(&mut copy.options)),
        EngineStatement::CreateExternalTable(create) if !create.file_type.eq_ignore_ascii_case("LAKEMARK") => {
            let options = taken(&mut create.options);
            create.locations.iter().try_for_each(|location| open_place(session, location, &options))
        }
        _ => Ok(()),
    }
}

fn open_place(session: &LakemarkSession, place: &str, options: &HashMap<String, String>) -> Result<(), Error> {
    let place = ListingTableUrl::parse(place).map_err(from_engine)?;
    let root = place.object_store();
    // What an earlier statement opened stays as it is, unless this one says how it is to be opened.
    let is_open = || options.is_empty() && session.context().runtime_env().object_store(&root).is_ok();
    if place.scheme() != "file" && !is_open() {
        session.context().register_object_store(root.as_ref(), object_store_at(root.as_str(), options)?);
    }
    Ok(())
}

/// Takes what is for the object store out of the options, by the object store's names.
fn taken(options: &mut Vec<(String, Value)>) -> HashMap<String, String> {
    let mut taken = HashMap::new();
    options.retain(|(name, value)| {
        let name = name.to_ascii_lowercase();
        let name_there = |(begin, there): (&str, &str)| Some(format!("{there}{}", name.strip_prefix(begin)?));
        let Some(name) = OF_STORES.into_iter().find_map(name_there) else { return true };
        taken.insert(name, value.clone().into_string().unwrap_or_else(|| value.to_string()));
        false
    });
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(session: &LakemarkSession, text: &str) -> Result<Statement, Error> {
        let mut statement = session.parse(text).unwrap().remove(0);
        open(session, &mut statement)?;
        Ok(statement)
    }

    fn is_known(session: &LakemarkSession, place: &str) -> bool {
        session.context().runtime_env().object_store(ListingTableUrl::parse(place).unwrap()).is_ok()
    }

    #[test]
    fn places_of_the_engine_are_opened_and_their_options_taken() {
        let session = LakemarkSession::new();
        for (text, place, left) in [
            (
                "COPY t TO 's3://copies/x.parquet' OPTIONS ('AWS.region' 'eu-north-1', compression 'zstd(3)', \
                 'lakemark.storage.aws_allow_http' true)",
                "s3://copies/x.parquet",
                "COPY t TO 's3://copies/x.parquet' OPTIONS (compression 'zstd(3)')",
            ),
            (
                "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 's3://tables/t/' OPTIONS ('aws.region' 'eu-north-1', format.has_header true)",
                "s3://tables/t/",
                "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 's3://tables/t/' OPTIONS (format.has_header true)",
            ),
        ] {
            assert!(!is_known(&session, place), "{text}");
            assert_eq!(opened(&session, text).unwrap(), session.parse(left).unwrap().remove(0));
            assert!(is_known(&session, place), "{text}");
        }
    }

    #[test]
    fn options_have_the_names_of_the_object_store() {
        let text = |text: &str| Value::SingleQuotedString(text.to_owned());
        let mut options = vec![
            ("aws.access_key_id".to_owned(), text("a")),
            ("gcp.service_account_key".to_owned(), text("b")),
            ("lakemark.storage.aws_endpoint".to_owned(), text("c")),
            ("format.aws".to_owned(), text("d")),
        ];
        let mut taken: Vec<(String, String)> = taken(&mut options).into_iter().collect();
        taken.sort();
        let expected = [("aws_access_key_id", "a"), ("aws_endpoint", "c"), ("google_service_account_key", "b")];
        assert_eq!(taken, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(options, [("format.aws".to_owned(), text("d"))]);
    }

    #[test]
    fn an_object_store_that_is_known_is_kept_unless_options_say_otherwise() {
        let session = LakemarkSession::new();
        let store =
            || session.context().runtime_env().object_store(ListingTableUrl::parse("s3://b/").unwrap()).unwrap();
        opened(&session, "COPY t TO 's3://b/x.parquet'").unwrap();
        let first = store();
        opened(&session, "COPY t TO 's3://b/y.parquet'").unwrap();
        assert!(std::sync::Arc::ptr_eq(&first, &store()));
        opened(&session, "COPY t TO 's3://b/y.parquet' OPTIONS ('aws.region' 'eu-north-1')").unwrap();
        assert!(!std::sync::Arc::ptr_eq(&first, &store()));
    }

    #[test]
    fn tables_of_ours_and_queries_stay_as_they_are() {
        let session = LakemarkSession::new();
        for text in [
            "CREATE EXTERNAL TABLE t STORED AS lakemark LOCATION 's3://b/t/' OPTIONS ('lakemark.storage.aws_region' 'x')",
            "SELECT 'COPY t TO ''s3://b/x.parquet'''",
            "SHOW INDEXES FROM t",
            "COPY t TO 'x.csv'",
        ] {
            assert_eq!(opened(&session, text).unwrap(), session.parse(text).unwrap().remove(0), "{text}");
        }
        assert!(!is_known(&session, "s3://b/t/"));
        let error = opened(&session, "COPY t TO 'nowhere://b/x.parquet'").unwrap_err();
        assert!(error.message().contains("no storage for nowhere://b"), "{error}");
    }
}
