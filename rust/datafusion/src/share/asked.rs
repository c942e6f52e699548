//! A statement as it was asked: its text, and the values of its parameters.

use std::hash::{DefaultHasher, Hash, Hasher};

use datafusion::common::{ParamValues, ScalarValue};

/// What queries begin with. What begins otherwise changes something, or says something of the session.
const QUERIES: [&str; 4] = ["SELECT", "WITH", "FROM", "TABLE"];

/// A statement as it was asked.
#[derive(Debug)]
pub(crate) struct Asked {
    text: String,
    /// By their names or places, if some were given.
    values: Option<Vec<(String, ScalarValue)>>,
    hash: u64,
}

impl Asked {
    pub(crate) fn new(text: &str, parameters: Option<&ParamValues>) -> Self {
        let values = parameters.map(named);
        let mut hash = DefaultHasher::new();
        (text, &values).hash(&mut hash);
        Self { text: text.to_owned(), values, hash: hash.finish() }
    }

    /// Equal ones have equal ones, and few others have.
    pub(crate) fn hash_code(&self) -> u64 {
        self.hash
    }

    /// Whether values were given.
    pub(crate) fn has_values(&self) -> bool {
        self.values.is_some()
    }

    /// The values in the order of their places, if they were given by these.
    pub(crate) fn values_by_place(&self) -> Option<Vec<ScalarValue>> {
        let values = self.values.iter().flatten().zip(1_usize..);
        values.map(|((name, value), place)| (*name == place.to_string()).then(|| value.clone())).collect()
    }

    /// Whether it looks like a query. The planner knows.
    pub(crate) fn may_be_query(&self) -> bool {
        let mut rest = self.text.as_str();
        loop {
            rest = rest.trim_start_matches(|letter: char| letter.is_whitespace() || letter == '(');
            if let Some(comment) = rest.strip_prefix("--") {
                rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
            } else if let Some(comment) = rest.strip_prefix("/*") {
                rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
            } else {
                break;
            }
        }
        let word = rest.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default();
        QUERIES.iter().any(|query| query.eq_ignore_ascii_case(word))
    }
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        // Values are equal for the engine whatever their time zones.
        let is_same = |(one, other): (&(String, ScalarValue), &(String, ScalarValue))| {
            one == other && one.1.data_type() == other.1.data_type()
        };
        let has_same_values = match (&self.values, &other.values) {
            (Some(one), Some(other)) => one.len() == other.len() && one.iter().zip(other).all(is_same),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.hash == other.hash && self.text == other.text && has_same_values
    }
}

fn named(parameters: &ParamValues) -> Vec<(String, ScalarValue)> {
    match parameters {
        ParamValues::List(values) => {
            (1_usize..).zip(values).map(|(place, value)| (place.to_string(), value.value.clone())).collect()
        }
        ParamValues::Map(values) => {
            let mut values: Vec<_> = values.iter().map(|(name, value)| (name.clone(), value.value.clone())).collect();
            values.sort_by(|one, other| one.0.cmp(&other.0));
            values
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_known_by_their_first_word() {
        for text in ["SELECT 1", " (select 1)", "-- of a page\n/* of a\ntool */ With a AS (SELECT 1) FROM a", "table t"]
        {
            assert!(Asked::new(text, None).may_be_query(), "{text}");
        }
        for text in ["", "INSERT INTO t SELECT 1", "EXPLAIN SELECT 1", "-- SELECT", "SELECTED", "/* SELECT"] {
            assert!(!Asked::new(text, None).may_be_query(), "{text}");
        }
    }

    #[test]
    fn values_by_place_are_in_its_order_and_those_by_name_have_none() {
        let values = |count: i64| (0..count).map(ScalarValue::from).collect::<Vec<_>>();
        for count in [0, 1, 12] {
            let asked = Asked::new("SELECT", Some(&ParamValues::from(values(count))));
            assert!(asked.has_values() && asked.values_by_place() == Some(values(count)));
        }
        let named = ParamValues::from(vec![("a", ScalarValue::from(1_i64)), ("1", ScalarValue::from(2_i64))]);
        assert_eq!(Asked::new("SELECT", Some(&named)).values_by_place(), None);
        assert!(!Asked::new("SELECT", None).has_values());
    }

    #[test]
    fn statements_with_other_values_types_or_zones_are_others() {
        let asked = |value: ScalarValue| Asked::new("SELECT $1", Some(&ParamValues::from(vec![value])));
        let in_zone = |zone: &str| ScalarValue::TimestampSecond(Some(5), Some(zone.into()));
        let one = asked(ScalarValue::from(1_i64));
        assert!(one == asked(ScalarValue::from(1_i64)));
        assert!(one != asked(ScalarValue::from(2_i64)));
        assert!(one != asked(ScalarValue::from(1_i32)));
        assert!(asked(in_zone("+01:00")) == asked(in_zone("+01:00")));
        assert!(asked(in_zone("+01:00")) != asked(in_zone("+02:00")));
        assert!(Asked::new("SELECT $1", None) != one);
        assert!(Asked::new("SELECT  $1", None) != Asked::new("SELECT $1", None));
    }
}
