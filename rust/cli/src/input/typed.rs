//! Values of JSON in the types of a table, before a decoder sees them that would cut them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, StringArray};
use arrow::datatypes::{DataType, Schema};
use arrow::util::display::array_value_to_string;
use lakemark_table::{cast_exactly, item_of};
use serde_json::{Map, Value};

use super::json::{Json, Member, Object, decimal_text};

/// Something of a row that the table cannot hold.
#[derive(Debug)]
pub(super) struct UnfitValue {
    /// The value, or what else it is.
    what: String,
    /// The way to it: `.name` of a column or of a field, `[]` of a list or a map.
    way: String,
    why: String,
}

impl UnfitValue {
    fn cut(value: &str, of: &DataType) -> Self {
        let why = if of.is_integer() { ", which takes whole numbers".to_owned() } else { format!(", which is {of}") };
        Self { what: format!("{value} for"), way: String::new(), why }
    }

    fn field(name: &str, why: &str) -> Self {
        Self { what: "the field".to_owned(), way: format!(".{name}"), why: why.to_owned() }
    }

    fn within(self, step: &str) -> Self {
        Self { way: format!("{step}{}", self.way), ..self }
    }

    pub(super) fn text(&self) -> String {
        format!("{} {}{}", self.what, self.way.trim_start_matches('.'), self.why)
    }
}

/// A member of an object for the decoder.
struct Fitted {
    /// The name, or the key of a map in the type of its keys.
    key: String,
    /// In the type of its column.
    value: Value,
}

/// A row for the decoder. A column that the table lacks is NULL: the table says so itself.
pub(super) fn row(members: &Object, table: &Schema) -> Result<Map<String, Value>, UnfitValue> {
    object(members, |name, value| {
        let field = table.field_with_name(name).ok();
        let fitted = field.map_or(Ok(Value::Null), |field| fit(value, field.data_type()));
        let value = fitted.map_err(|misfit| misfit.within(&format!(".{name}")))?;
        Ok(Fitted { key: name.to_owned(), value })
    })
}

fn object(
    members: &Object,
    fit_member: impl Fn(&str, &Json) -> Result<Fitted, UnfitValue>,
) -> Result<Map<String, Value>, UnfitValue> {
    let mut object = Map::new();
    for Member { name, value } in members {
        let Fitted { key, value } = fit_member(name, value)?;
        if object.insert(key, value).is_some() {
            return Err(UnfitValue::field(name, " twice; give it once"));
        }
    }
    Ok(object)
}

fn fit(value: &Json, of: &DataType) -> Result<Value, UnfitValue> {
    match (of, value) {
        (_, Json::Null) => Ok(Value::Null),
        (_, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (_, Json::Number(number)) => fit_number(number, of),
        (_, Json::Text(text)) => fit_text(text, of).map(Value::String),
        (_, Json::List(values)) => {
            let of = item_of(of).map_or(&DataType::Null, |item| item.data_type());
            let values = values.iter().map(|value| fit(value, of).map_err(|misfit| misfit.within("[]")));
            values.collect()
        }
        (DataType::Struct(fields), Json::Object(members)) => {
            let fields = object(members, |name, value| {
                let Some(field) = fields.iter().find(|field| field.name() == name) else {
                    return Err(UnfitValue::field(name, ", which the table lacks; leave it out"));
                };
                let value = fit(value, field.data_type()).map_err(|misfit| misfit.within(&format!(".{name}")))?;
                Ok(Fitted { key: name.to_owned(), value })
            });
            fields.map(Value::Object)
        }
        (DataType::Map(entries, _), Json::Object(members)) => {
            let fields = if let DataType::Struct(fields) = entries.data_type() { fields.as_ref() } else { &[] };
            let of = |place: usize| fields.get(place).map_or(&DataType::Null, |field| field.data_type());
            let entries = object(members, |key, value| {
                let entry = fit_text(key, of(0)).and_then(|key| Ok(Fitted { key, value: fit(value, of(1))? }));
                entry.map_err(|misfit| misfit.within("[]"))
            });
            entries.map(Value::Object)
        }
        // What is no value of the type at all is the decoder's to say.
        (_, Json::Object(_)) => Ok(Value::Object(Map::new())),
    }
}

fn fit_number(number: &str, of: &DataType) -> Result<Value, UnfitValue> {
    let cut = || UnfitValue::cut(number, of);
    let whole = || decimal_text(number).filter(|number| !number.contains('.'));
    if of.is_integer() {
        return whole().map(Value::String).ok_or_else(cut);
    }
    if of.is_decimal() {
        return decimal(number, of).or_else(|| decimal_of_double(number, of)).map(Value::String).ok_or_else(cut);
    }
    if of.is_temporal() {
        // Steps of the type's unit.
        return whole().and_then(|number| number.parse::<i64>().ok()).map(Value::from).ok_or_else(cut);
    }
    if of.is_floating() && loses_digits(Arc::new(Float64Array::from(vec![number.parse::<f64>().ok()])), of) {
        return Err(cut());
    }
    serde_json::from_str(number).map_err(|_| cut())
}

fn fit_text(text: &str, of: &DataType) -> Result<String, UnfitValue> {
    let cut = || UnfitValue::cut(&format!("{text:?}"), of);
    if of.is_decimal() {
        return decimal(text, of).ok_or_else(cut);
    }
    let is_read = of.is_floating() || of.is_temporal();
    if is_read && loses_digits(Arc::new(StringArray::from(vec![text])), of) { Err(cut()) } else { Ok(text.to_owned()) }
}

fn loses_digits(given: ArrayRef, of: &DataType) -> bool {
    cast_exactly(&given, of).is_err_and(|misfit| misfit.loses_digits)
}

/// The decoder cuts what a decimal has no room for, so it gets what fits.
fn decimal(number: &str, of: &DataType) -> Option<String> {
    cast_text(Arc::new(StringArray::from(vec![decimal_text(number)?])), of)
}

/// Programs write their doubles with up to seventeen digits, which a decimal holds as it holds doubles.
fn decimal_of_double(number: &str, of: &DataType) -> Option<String> {
    let double = number.parse::<f64>().ok()?;
    let is_whole = decimal_text(number) == decimal_text(&double.to_string());
    if is_whole { cast_text(Arc::new(Float64Array::from(vec![double])), of) } else { None }
}

fn cast_text(given: ArrayRef, of: &DataType) -> Option<String> {
    array_value_to_string(&cast_exactly(&given, of).ok()?, 0).ok()
}
