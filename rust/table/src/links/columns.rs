//! The columns that links are made of.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use lakemark_format::links::LinkShape;
use lakemark_format::{KeyType, column};
use lakemark_index::key_type_of;

use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::values::fields::may_be_linked;

/// The columns that links are made of, by the names that the table shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkColumns {
    pub subject: FieldRef,
    pub predicate: Option<FieldRef>,
    pub object: FieldRef,
}

impl LinkColumns {
    /// The columns of these names.
    pub(super) fn of(snapshot: &Snapshot, columns: &[String]) -> Result<Self> {
        let field = |given: &String| {
            let name = snapshot.resolve(given).filter(|name| !column::is_field(name));
            name.and_then(|name| snapshot.field(&name))
                .ok_or_else(|| Error::not_found(format!("there is no flat column {given} that links could be made of")))
        };
        let fields = columns.iter().map(field).collect::<Result<Vec<_>>>()?;
        let (subject, predicate, object) = match fields.as_slice() {
            [subject, object] => (subject, None, object),
            [subject, predicate, object] => (subject, Some(predicate), object),
            others => {
                return Err(Error::invalid(format!(
                    "links are made of (subject, predicate, object) or (subject, object), and {} columns were given",
                    others.len()
                )));
            }
        };
        let names: HashSet<&String> = fields.iter().map(|field| field.name()).collect();
        if names.len() < fields.len() {
            return Err(Error::invalid("links are made of different columns, and one was given twice"));
        }
        if let Some(other) = fields.iter().find(|field| !may_be_linked(field.data_type())) {
            return Err(Error::unsupported(format!(
                "{} of the type {} can be no part of links, which are between flat columns of whole numbers, texts or bytes; name others",
                other.name(),
                other.data_type()
            )));
        }
        if key_type_of(subject.data_type()) != key_type_of(object.data_type()) {
            return Err(Error::unsupported(format!(
                "links begin in {} and end in {}, which are no values of one type",
                subject.name(),
                object.name()
            )));
        }
        Ok(Self { subject: Arc::clone(subject), predicate: predicate.cloned(), object: Arc::clone(object) })
    }

    /// Their names, in this order or from the object to the subject.
    pub(super) fn names(&self, is_back: bool) -> Vec<&str> {
        let mut fields: Vec<&FieldRef> =
            [Some(&self.subject), self.predicate.as_ref(), Some(&self.object)].into_iter().flatten().collect();
        if is_back {
            fields.reverse();
        }
        fields.into_iter().map(|field| field.name().as_str()).collect()
    }

    pub(super) fn node_type(&self) -> &DataType {
        self.subject.data_type()
    }

    pub(super) fn shape(&self) -> Result<LinkShape> {
        let of = |field: &FieldRef| {
            key_type_of(field.data_type()).ok_or_else(|| {
                Error::unsupported(format!("{} of the type {} is no part of links", field.name(), field.data_type()))
            })
        };
        let predicate: Option<KeyType> = self.predicate.as_ref().map(of).transpose()?;
        Ok(LinkShape { end: of(&self.subject)?, predicate })
    }
}
