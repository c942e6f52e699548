//! Prepared statements: a text, the types of its parameters, and the values that a client gives to them.
//!
//! A query that is prepared is planned once: each run binds its plan to values and to the newest states of its tables. No state is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{ParamValues, ScalarValue};
use lakemark_datafusion::{Parameter, PreparedQuery};
use tonic::Status;

use crate::error::engine_status;
use crate::receiving::{Room, Values};
use crate::wire;

/// The values of each run. They are taken out of their columns one row after the other, since there may be many.
pub(crate) type Runs = Box<dyn Iterator<Item = Result<Option<ParamValues>, Status>> + Send>;

/// A prepared statement.
pub(crate) struct Prepared {
    text: String,
    parameters: Vec<Parameter>,
    is_query: bool,
    bound: Mutex<Bound>,
    /// As long as it is there, the text is not planned again.
    _kept: Option<Arc<PreparedQuery>>,
}

/// The values that were bound last, and the room that they take.
#[derive(Default)]
struct Bound {
    values: Values,
    _room: Room,
}

impl Prepared {
    pub(crate) fn new(
        text: String,
        parameters: Vec<Parameter>,
        is_query: bool,
        kept: Option<Arc<PreparedQuery>>,
    ) -> Arc<Self> {
        Arc::new(Self { text, parameters, is_query, bound: Mutex::default(), _kept: kept })
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The statement.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it gives rows and changes nothing.
    pub(crate) fn is_query(&self) -> bool {
        self.is_query
    }

    /// The parameters as columns, of which drivers make their values. A type that nobody knows is a text, which the engine casts.
    pub(crate) fn parameter_schema(&self) -> SchemaRef {
        let field = |parameter: &Parameter| {
            let known = parameter.data_type.as_ref().map_or(DataType::Utf8, wire::data_type);
            Field::new(parameter.name.trim_start_matches('$'), known, true)
        };
        Arc::new(Schema::new(self.parameters.iter().map(field).collect::<Vec<_>>()))
    }

    /// Keeps values for the next run.
    pub(crate) fn bind(&self, values: Values, room: Room) {
        *self.bound() = Bound { values, _room: room };
    }

    /// Whether it keeps values.
    pub(crate) fn has_values(&self) -> bool {
        self.bound().values.is_some()
    }

    /// The values that were bound, which are bound no more.
    fn unbound(&self) -> Values {
        std::mem::take(&mut *self.bound()).values
    }

    /// The values of each run of a change: those that came with it, or else those that were bound for it. Nothing stays bound: a change
    /// that comes without values must not be made again with old ones.
    pub(crate) fn runs(&self, given: Values) -> Result<Runs, Status> {
        let bound = self.unbound();
        self.runs_of(given.or(bound))
    }

    /// The values of the one run of a statement that is run for its rows. A query may be run again with the same ones.
    pub(crate) fn only_run(&self) -> Result<Option<ParamValues>, Status> {
        let values = match self.is_query {
            true => self.bound().values.clone(),
            false => self.unbound(),
        };
        let rows: usize = values.as_ref().map_or(1, |batches| batches.iter().map(RecordBatch::num_rows).sum());
        if rows != 1 {
            return Err(Status::invalid_argument(format!(
                "a query takes one row of parameters, and {rows} were given: run it once for each"
            )));
        }
        Ok(self.runs_of(values)?.next().transpose()?.flatten())
    }

    fn runs_of(&self, values: Values) -> Result<Runs, Status> {
        let Some(batches) = values else {
            // A statement with parameters says which value it lacks.
            let none = (!self.parameters.is_empty()).then(|| ParamValues::List(Vec::new()));
            return Ok(Box::new(std::iter::once(Ok(none))));
        };
        if self.parameters.is_empty() {
            return Err(Status::invalid_argument("the statement takes no parameters, and values were given for some"));
        }
        let by_place = self.parameters.iter().all(is_numbered);
        let rows = batches
            .into_iter()
            .flat_map(move |batch| (0..batch.num_rows()).map(move |row| values_of(&batch, row, by_place).map(Some)));
        Ok(Box::new(rows))
    }
}

/// The values in a row.
fn values_of(batch: &RecordBatch, row: usize, by_place: bool) -> Result<ParamValues, Status> {
    let value = |column: &ArrayRef| ScalarValue::try_from_array(column, row).map_err(engine_status);
    let values = batch.columns().iter().map(value).collect::<Result<Vec<_>, _>>()?;
    if by_place {
        return Ok(ParamValues::from(values));
    }
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name().trim_start_matches('$').to_owned());
    Ok(ParamValues::from(names.zip(values).collect::<HashMap<_, _>>()))
}

fn is_numbered(parameter: &Parameter) -> bool {
    parameter.name.trim_start_matches('$').parse::<usize>().is_ok()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn prepared(names: &[&str]) -> Arc<Prepared> {
        of_kind(names, true)
    }

    fn of_kind(names: &[&str], is_query: bool) -> Arc<Prepared> {
        let parameter = |name: &&str| Parameter { name: (*name).to_owned(), data_type: None };
        Prepared::new("SELECT".to_owned(), names.iter().map(parameter).collect(), is_query, None)
    }

    fn values(names: [&str; 2], rows: usize) -> RecordBatch {
        let columns: [ArrayRef; 2] =
            [Arc::new(Int64Array::from_iter_values((0..).take(rows))), Arc::new(StringArray::from(vec!["x"; rows]))];
        RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap()
    }

    fn counted(runs: Result<Runs, Status>) -> usize {
        runs.unwrap().collect::<Result<Vec<_>, _>>().unwrap().len()
    }

    #[test]
    fn values_go_by_place_or_by_name() {
        let by_place = prepared(&["$1", "$2"]);
        by_place.bind(Some(vec![values(["whatever", "there"], 1)]), None);
        let Some(ParamValues::List(list)) = by_place.only_run().unwrap() else { panic!("no list") };
        assert_eq!((list[0].value.clone(), list[1].value.clone()), (ScalarValue::from(0_i64), ScalarValue::from("x")));
        let by_name = prepared(&["$a", "$b"]);
        by_name.bind(Some(vec![values(["b", "$a"], 1)]), None);
        let Some(ParamValues::Map(map)) = by_name.only_run().unwrap() else { panic!("no map") };
        assert_eq!(
            (map["b"].value.clone(), map["a"].value.clone()),
            (ScalarValue::from(0_i64), ScalarValue::from("x"))
        );
    }

    #[test]
    fn a_change_runs_once_for_each_row_and_a_query_takes_one() {
        let prepared = prepared(&["$1", "$2"]);
        prepared.bind(Some(vec![values(["a", "b"], 2), values(["a", "b"], 1)]), None);
        assert!(prepared.only_run().unwrap_err().message().contains("3 were given"));
        assert_eq!(counted(prepared.runs(None)), 3);
    }

    #[test]
    fn a_change_is_not_made_again_with_values_that_were_bound_for_another_one() {
        let prepared = prepared(&["$1", "$2"]);
        prepared.bind(Some(vec![values(["a", "b"], 2)]), None);
        assert_eq!(counted(prepared.runs(Some(vec![values(["a", "b"], 3)]))), 3);
        // The statement then says which value it lacks.
        let left = prepared.runs(None).unwrap().next().unwrap().unwrap();
        assert!(matches!(left, Some(ParamValues::List(list)) if list.is_empty()));
        prepared.bind(Some(vec![values(["a", "b"], 2)]), None);
        assert_eq!(counted(prepared.runs(Some(Vec::new()))), 0);
        for (is_query, expected) in [(true, 2), (false, 0)] {
            let read = of_kind(&["$1", "$2"], is_query);
            read.bind(Some(vec![values(["a", "b"], 1)]), None);
            read.only_run().unwrap();
            let Some(ParamValues::List(again)) = read.only_run().unwrap() else { panic!("no list") };
            assert_eq!(again.len(), expected);
        }
    }

    #[test]
    fn a_statement_without_parameters_runs_once_and_takes_no_values() {
        let without = prepared(&[]);
        assert!(without.only_run().unwrap().is_none());
        assert_eq!(counted(without.runs(None)), 1);
        let refused = without.runs(Some(vec![values(["a", "b"], 1)])).err().unwrap();
        assert!(refused.message().contains("takes no parameters"), "{refused:?}");
        assert_eq!(*prepared(&["$1"]).parameter_schema().field(0).data_type(), DataType::Utf8);
    }
}
