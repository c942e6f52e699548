//! Declaring an index: its columns, kind and options, checked against the table.

mod links;

use std::collections::HashSet;

use arrow::datatypes::{DataType, Field};
use lakemark_format::key::MAX_KEY_COLUMNS;
use lakemark_format::riding::MAX_RIDING_COLUMNS;
use lakemark_format::{Encoding, KeyType, ManifestIndex, NameOf, column};
use lakemark_index::{element_of, is_key_the_value, riding_type_of};

use crate::error::{Error, Result};
use crate::index_kind::IndexKind;
use crate::indexing::advise;
use crate::options::IndexSpec;
use crate::snapshot::{BaseTable, Snapshot};
use crate::storage::ids::new_id;
use crate::store::hashed::{HASH_BITS, HASHED, hash_bits, hash_bits_for};
use crate::store::included::{INCLUDE, column_list, included, names_of};
use crate::store::kind::{CheckedOptions, check_options, is_open, precision_of};
use crate::store::link_pair::is_of_links;
use crate::store::transaction::{Edit, commit};
use crate::values::fields::{indexable, indexed_field, key_type_in, key_type_of_field};

/// Declares an index in the store; says whether it was created now.
pub(crate) async fn create_index(
    table: &BaseTable,
    snapshot: &Snapshot,
    spec: &IndexSpec,
    if_not_exists: bool,
) -> Result<bool> {
    let store = table.writable_store()?;
    let mut index = declare(spec, snapshot)?;
    // An index that exists is left as it is, or is an error: nothing is read for it.
    let is_new = !snapshot.indexes().iter().any(|have| have.name == index.name);
    if is_of_links(&index) {
        if is_new {
            advise::check_predicates(table, snapshot, &index).await?;
        }
        return links::create(store, index, snapshot, if_not_exists).await;
    }
    if is_new {
        let open = spec.columns.len() == 1 && is_open(spec.kind, &spec.options);
        settle_hash_bits(table, snapshot, &mut index).await;
        // What rides along is in no prediction, and neither are hashes.
        if included(&index).is_empty() && hash_bits(&index).is_none() {
            advise::choose_encoding(table, snapshot, &mut index, open).await;
        }
        // The name says the kind that was chosen.
        if let (None, Some(column)) = (&spec.name, index.name.strip_suffix("_bitmap")) {
            index.name = format!("{column}_{}", index.kind);
        }
    }
    Ok(commit(store, &Edit::CreateIndex { index, if_not_exists }).await?.changed)
}

/// Chooses how many bits hashes have, where the user did not, by the rows that the table has now.
async fn settle_hash_bits(table: &BaseTable, snapshot: &Snapshot, index: &mut ManifestIndex) {
    let is_hashed = index.options.iter().any(|(name, _)| name == HASHED);
    if !is_hashed || hash_bits(index).is_some() {
        return;
    }
    let rows = advise::table_rows(table, snapshot).await;
    index.options.push((HASH_BITS.to_owned(), hash_bits_for(rows).to_string()));
}

/// What a declaration becomes in the manifest, checked against the table.
fn declare(spec: &IndexSpec, snapshot: &Snapshot) -> Result<ManifestIndex> {
    let columns = spec.columns.iter().map(|given| indexed(given, snapshot)).collect::<Result<Vec<_>>>()?;
    if spec.kind == Some(IndexKind::Links) {
        links::check(&columns, snapshot)?;
    }
    // These options are of one kind alone, and stand for it.
    let is_of_keys = [INCLUDE, HASHED, HASH_BITS].iter().any(|option| spec.options.contains_key(*option));
    let kind = kind_over(&columns, spec.kind.or(is_of_keys.then_some(IndexKind::Key)), snapshot)?;
    let name = column::composite(columns.iter().map(String::as_str));
    let typed = indexed_field(&snapshot.schema(), &name).and_then(|field| Some((key_type_of_field(&field)?, field)));
    let Some((key_type, field)) = typed else { return Err(unknown_column(&name, snapshot)) };
    let shown = snapshot.display_name(&name);
    let CheckedOptions { encoding, others: mut options, is_hashed } = check_options(kind, &spec.options)?;
    if is_hashed {
        check_hashed(&columns, &key_type, &shown)?;
        options.retain(|(name, _)| name != HASHED);
        options.push((HASHED.to_owned(), "true".to_owned()));
    }
    if let Some((_, value)) = options.iter_mut().find(|(name, _)| name == INCLUDE) {
        // A key that is hashed lacks its values.
        let key: &[String] = if is_hashed { &[] } else { &columns };
        *value = include(value, key, snapshot)?;
    }
    if let Some(precision) = precision_of(&options)? {
        precision.check(&key_type).map_err(|error| Error::invalid(format!("{shown}: {error}")))?;
    }
    if key_type.is_list() && encoding != Encoding::Equality {
        let given = if kind == IndexKind::Bitmap { encoding.name() } else { kind.name() };
        return Err(Error::unsupported(format!(
            "{shown} has lists, whose elements have an index of the kind bitmap with the encoding equality, and {given} was asked for; \
             leave it out"
        )));
    }
    let own = || columns.iter().map(|column| snapshot.display_name(column)).collect::<Vec<_>>().join("_");
    let index = spec.name.clone().unwrap_or_else(|| format!("{}_{}", own(), kind.name()));
    if index.trim().is_empty() {
        return Err(Error::invalid("the name of an index cannot be empty"));
    }
    let field_id = field.metadata().get(parquet::arrow::PARQUET_FIELD_ID_META_KEY).and_then(|id| id.parse().ok());
    Ok(ManifestIndex {
        id: new_id().into_bytes(),
        name: index,
        kind: NameOf::Known(kind),
        encoding: NameOf::Known(encoding),
        column: snapshot.physical_name(&name).into_owned(),
        field_id,
        key_type,
        options,
    })
}

/// Checks that the keys of an index can be hashes.
fn check_hashed(columns: &[String], key_type: &KeyType, shown: &str) -> Result<()> {
    if columns.len() > 1 {
        return Err(Error::unsupported(
            "hashed is for an index on one column, as conditions on the first of several could not be answered; leave it out",
        ));
    }
    if key_type.is_fixed() && !key_type.is_list() {
        return Err(Error::unsupported(format!(
            "the values of {shown} are numbers of 64 bits at most, for which hashes save nothing; leave hashed out"
        )));
    }
    Ok(())
}

/// The columns that are to ride along with those of an index, as the manifest has them.
fn include(given: &str, key: &[String], snapshot: &Snapshot) -> Result<String> {
    let mut names: Vec<String> = Vec::new();
    for given in names_of(given).unwrap_or_default() {
        let name = riding(&given, snapshot)?;
        let shown = snapshot.display_name(&name);
        let is_key = snapshot
            .field(&name)
            .and_then(|field| riding_type_of(field.data_type()))
            .is_some_and(|of| is_key_the_value(&of));
        if is_key && key.contains(&name) {
            return Err(Error::invalid(format!(
                "{shown} is a column of the key, which has its values; leave it out of those to include"
            )));
        }
        if names.contains(&name) {
            return Err(Error::invalid(format!("the column {shown} is included twice; name it once")));
        }
        names.push(name);
    }
    if names.len() > MAX_RIDING_COLUMNS {
        return Err(Error::invalid(format!(
            "an index includes {MAX_RIDING_COLUMNS} columns at most, and {} were given; include those that lookups return",
            names.len()
        )));
    }
    let stored: Vec<_> = names.iter().map(|name| snapshot.physical_name(name)).collect();
    Ok(column_list(stored.iter().map(|name| &**name)))
}

/// The name of a column that can ride along with the keys of an index.
fn riding(given: &str, snapshot: &Snapshot) -> Result<String> {
    let Some((name, field)) = snapshot.resolve(given).and_then(|name| Some((name.clone(), snapshot.field(&name)?)))
    else {
        return Err(unknown_column(given, snapshot));
    };
    let shown = snapshot.display_name(&name);
    if snapshot.partition_columns().iter().any(|field| *field.name() == name) {
        return Err(Error::unsupported(format!(
            "{shown} is a partition column, whose value is constant in each file and in no index; leave it out of those to include"
        )));
    }
    if column::is_field(&name) || riding_type_of(field.data_type()).is_none() {
        return Err(Error::unsupported(format!(
            "{shown} of the type {} cannot be included, as rows ride along with single values of flat columns; leave it out",
            field.data_type()
        )));
    }
    Ok(name)
}

/// The whole name of a column or field that an index can be on.
fn indexed(given: &str, snapshot: &Snapshot) -> Result<String> {
    let Some((name, field)) = snapshot.resolve(given).and_then(|name| Some((name.clone(), snapshot.field(&name)?)))
    else {
        return Err(unknown_column(given, snapshot));
    };
    if snapshot.partition_columns().iter().any(|field| *field.name() == name) {
        return Err(Error::unsupported(format!(
            "{} is a partition column: its value is constant in each file, so that no index is needed",
            snapshot.display_name(&name)
        )));
    }
    if key_type_in(field.data_type()).is_none() {
        return Err(no_kind_for(&name, &field, snapshot));
    }
    Ok(name)
}

/// The kind of an index over these columns. Without a request it is `bitmap` for one column, until a sample shows more, and `key` for
/// several.
fn kind_over(columns: &[String], requested: Option<IndexKind>, snapshot: &Snapshot) -> Result<IndexKind> {
    match columns {
        [] => return Err(Error::invalid("an index needs a column; name one with --on or in parentheses")),
        [_] => return Ok(requested.unwrap_or(IndexKind::Bitmap)),
        _ => {}
    }
    let is_list = |name: &&String| snapshot.field(name).is_some_and(|field| element_of(field.data_type()).is_some());
    if let Some(list) = columns.iter().find(is_list) {
        let shown = snapshot.display_name(list);
        return Err(Error::unsupported(format!(
            "{shown} has lists, of which each row has several keys, and none would be that of a row; give it an index of its own"
        )));
    }
    if columns.len() > MAX_KEY_COLUMNS {
        return Err(Error::invalid(format!(
            "an index is over {MAX_KEY_COLUMNS} columns at most, and {} were given; the first of them tell most rows apart",
            columns.len()
        )));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = columns.iter().find(|column| !seen.insert(column.as_str())) {
        let shown = snapshot.display_name(twice);
        return Err(Error::invalid(format!("the column {shown} stands in the index twice; name it once")));
    }
    match requested {
        None | Some(IndexKind::Key) => Ok(IndexKind::Key),
        Some(IndexKind::Links) => Ok(IndexKind::Links),
        Some(other) => Err(Error::unsupported(format!(
            "an index over several columns is of the kind key or links, and {} was asked for; declare one for each column, \
             conditions on several combine them",
            other.name()
        ))),
    }
}

/// The error of a name that the table does not have.
fn unknown_column(given: &str, snapshot: &Snapshot) -> Error {
    let schema = snapshot.schema();
    let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let fields = indexable(&snapshot.file_schema()).into_iter().filter(|name| column::is_field(name));
    let fields: Vec<String> = fields.map(|name| snapshot.display_name(&name)).collect();
    let inside = if fields.is_empty() { String::new() } else { format!("; inside of them are {}", fields.join(", ")) };
    Error::not_found(format!(
        "there is no column {}; the table has {}{inside}",
        column::display(given),
        columns.join(", ")
    ))
}

/// The error of a column that no index can be on.
fn no_kind_for(name: &str, field: &Field, snapshot: &Snapshot) -> Error {
    let inside = indexable(&snapshot.file_schema()).into_iter().filter(|inner| inner.starts_with(&format!("{name}\0")));
    let inside: Vec<String> = inside.map(|inner| snapshot.display_name(&inner)).collect();
    let instead = if let DataType::Map(..) = field.data_type() {
        "index the values of a key, as in map.key, if keys are strings and values flat".to_owned()
    } else if inside.is_empty() {
        "index flat columns, lists of flat values and fields of structs".to_owned()
    } else {
        format!("index a field of it: {}", inside.join(", "))
    };
    Error::unsupported(format!(
        "an index cannot serve {}, as no index kind has the type {}; {instead}",
        snapshot.display_name(name),
        field.data_type()
    ))
}
