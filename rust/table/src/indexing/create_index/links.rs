//! Declaring an index of links: its columns, and the index that walks the same links back.

use lakemark_format::{ManifestIndex, column};
use lakemark_index::key_type_of;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::storage::ids::new_id;
use crate::store::Store;
use crate::store::link_pair::{back_name, is_back_of, is_of_links, reversed};
use crate::store::transaction::{Edit, commit};
use crate::values::fields::{indexed_field, key_type_of_field, may_be_linked};

/// Checks the columns that links are to be made of.
pub(super) fn check(columns: &[String], snapshot: &Snapshot) -> Result<()> {
    let (first, last) = match columns {
        [first, .., last] if columns.len() <= 3 => (first, last),
        _ => {
            return Err(Error::invalid(format!(
                "an index of the kind links is over (subject, predicate, object) or (subject, object), and {} columns were given",
                columns.len()
            )));
        }
    };
    for name in columns {
        let shown = snapshot.display_name(name);
        let field = snapshot.field(name).ok_or_else(|| Error::internal("a column that was resolved is gone"))?;
        if column::is_field(name) || !may_be_linked(field.data_type()) {
            return Err(Error::unsupported(format!(
                "{shown} of the type {} can be no part of links, which are between flat columns of whole numbers, texts or bytes; \
                 choose other columns",
                field.data_type()
            )));
        }
    }
    let type_of = |name: &String| snapshot.field(name).and_then(|field| key_type_of(field.data_type()));
    if type_of(first) != type_of(last) {
        let shown = [first, last].map(|name| snapshot.display_name(name));
        let [first, last] = shown;
        return Err(Error::unsupported(format!(
            "links begin in {first} and end in {last}, which have different types, so that no node would be in both; write one of them anew"
        )));
    }
    Ok(())
}

/// Whether there is an index of that name over something else. It is left as it is, or is an error.
fn is_name_of_another(index: &ManifestIndex, snapshot: &Snapshot) -> bool {
    let own = snapshot.manifest.as_ref().and_then(|manifest| manifest.index(&index.name));
    own.is_some_and(|own| !is_of_links(own) || own.column != index.column)
}

/// The name of the index that walks the links back, which no other index has.
fn name_of_back(index: &ManifestIndex, snapshot: &Snapshot) -> Result<String> {
    let name = back_name(&index.name);
    let other = snapshot.manifest.as_ref().and_then(|manifest| manifest.index(&name));
    match other.is_some_and(|other| !is_back_of(other, index)) {
        true => Err(Error::new(
            ErrorKind::AlreadyExists,
            format!(
                "links are walked back by an index {name}, and there is another one of that name; drop it or give a name"
            ),
        )),
        false => Ok(name),
    }
}

/// Declares an index of links, and the one that walks them back. Says whether one of both was created now.
pub(super) async fn create(
    store: &Store,
    index: ManifestIndex,
    snapshot: &Snapshot,
    if_not_exists: bool,
) -> Result<bool> {
    if is_name_of_another(&index, snapshot) {
        return Ok(commit(store, &Edit::CreateIndex { index, if_not_exists }).await?.changed);
    }
    let name = name_of_back(&index, snapshot)?;
    let composite = reversed(&index.column);
    let shown = snapshot.logical_name(&composite);
    let field = shown.and_then(|shown| indexed_field(&snapshot.file_schema(), &shown));
    let key_type = field.and_then(|field| key_type_of_field(&field));
    let key_type = key_type.ok_or_else(|| Error::internal("the columns of links have no type in their other order"))?;
    let back =
        ManifestIndex { id: new_id().into_bytes(), name, column: composite, key_type, field_id: None, ..index.clone() };
    let created = commit(store, &Edit::CreateIndex { index, if_not_exists }).await?.changed;
    // Whoever declares links again after a kill in between gets the other one.
    Ok(commit(store, &Edit::CreateIndex { index: back, if_not_exists: true }).await?.changed || created)
}
