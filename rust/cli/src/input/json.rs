//! JSON as it is written: numbers with all of their digits, objects with all of their members.
//!
//! The parser makes 64-bit floats of numbers, and a map keeps the last of two members of one name. Here a number is the text of it, and an
//! object a list of members, so that what a column cannot hold is found and not lost.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::de::StrRead;

/// A value.
#[derive(Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Object),
}

/// A member of an object.
#[derive(Debug, PartialEq)]
pub(super) struct Member {
    /// As it was written.
    pub(super) name: String,
    /// What stands behind the colon.
    pub(super) value: Json,
}

/// Members as they were written; a name may be there twice.
pub(super) type Object = Vec<Member>;

/// Objects one after the other, or arrays of them.
pub(super) fn objects(bytes: &[u8]) -> serde_json::Result<Vec<Object>> {
    let text = std::str::from_utf8(bytes).map_err(serde_json::Error::custom)?;
    let (mut unread, mut numbers) = (StrRead::new(text), NumberTexts(text));
    let mut objects = Vec::new();
    while has_value(text, &mut unread) {
        let mut parser = serde_json::Deserializer::new(&mut unread);
        let values = match (NumberSeed { numbers: &mut numbers }).deserialize(&mut parser)? {
            Json::List(values) => values,
            value => vec![value],
        };
        for value in values {
            let Json::Object(object) = value else {
                return Err(serde_json::Error::custom(format!("row {} is no object", objects.len())));
            };
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Whether more than white space is unread.
///
/// `Deserializer::end` says it, too, but its error counts the lines from the start of the text, for each object.
fn has_value<'t>(text: &'t str, unread: &mut StrRead<'t>) -> bool {
    let read = serde_json::Deserializer::new(unread).into_iter::<IgnoredAny>().byte_offset();
    let rest = text.as_bytes().get(read..).unwrap_or_default();
    rest.iter().any(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

/// The numbers of a text that has not been read yet, in their order.
struct NumberTexts<'t>(&'t str);

impl<'t> Iterator for NumberTexts<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        loop {
            let start = self.0.find(|sign: char| sign == '"' || sign == '-' || sign.is_ascii_digit())?;
            let rest = self.0.get(start..)?;
            if let Some(inside) = rest.strip_prefix('"') {
                let mut is_escaped = false;
                let end = inside.find(|sign: char| {
                    let ends = sign == '"' && !is_escaped;
                    is_escaped = sign == '\\' && !is_escaped;
                    ends
                })?;
                self.0 = inside.get(end + 1..)?;
                continue;
            }
            let is_part = |sign: char| sign.is_ascii_digit() || matches!(sign, '-' | '+' | '.' | 'e' | 'E');
            let (number, after) = rest.split_at(rest.find(|sign| !is_part(sign)).unwrap_or(rest.len()));
            self.0 = after;
            return Some(number);
        }
    }
}

/// Reads a value: the parser says where a number is, and its text is the next one.
struct NumberSeed<'p, 't> {
    numbers: &'p mut NumberTexts<'t>,
}

impl NumberSeed<'_, '_> {
    fn number<E: Error>(self) -> Result<Json, E> {
        let number = self.numbers.next().ok_or_else(|| E::custom("a number ends too early"))?;
        Ok(Json::Number(number.to_owned()))
    }
}

impl<'de> DeserializeSeed<'de> for NumberSeed<'_, '_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Json, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NumberSeed<'_, '_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Json, E> {
        self.number()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Json, E> {
        self.number()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Json, E> {
        self.number()
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(NumberSeed { numbers: &mut *self.numbers })? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(name) = members.next_key()? {
            let value = members.next_value_seed(NumberSeed { numbers: &mut *self.numbers })?;
            object.push(Member { name, value });
        }
        Ok(Json::Object(object))
    }
}

/// The same number with all of its digits and no exponent; none if it is no number, or one of more than a thousand digits.
pub(super) fn decimal_text(number: &str) -> Option<String> {
    const DIGITS: usize = 1_000;
    let (digits, exponent) = match number.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let shift = usize::try_from(exponent.unsigned_abs()).ok()?;
    let all = whole.len() + fraction.len();
    if all == 0 || !whole.bytes().chain(fraction.bytes()).all(|digit| digit.is_ascii_digit()) || all + shift > DIGITS {
        return None;
    }
    // As many zeros as the point could move over.
    let zeros = "0".repeat(shift);
    let moved = format!("{zeros}{whole}{fraction}{zeros}");
    let point = if exponent < 0 { whole.len() } else { whole.len() + 2 * shift };
    let (whole, fraction) = moved.split_at_checked(point)?;
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    Some(match (whole, fraction) {
        ("", "") => "0".to_owned(),
        (whole, "") => format!("{sign}{whole}"),
        ("", fraction) => format!("{sign}0.{fraction}"),
        (whole, fraction) => format!("{sign}{whole}.{fraction}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_texts_that_were_written() {
        let text = r#"{"a": [1.50, -2e-3], "b\"1": "4 \\", "": {"c": 90071992547409931, "c": 0.1e1}}
            [{"d": null, "e": true}]"#;
        let number = |number: &str| Json::Number(number.to_owned());
        let member = |name: &str, value| Member { name: name.to_owned(), value };
        let inside = vec![member("c", number("90071992547409931")), member("c", number("0.1e1"))];
        let first = vec![
            member("a", Json::List(vec![number("1.50"), number("-2e-3")])),
            member("b\"1", Json::Text("4 \\".to_owned())),
            member("", Json::Object(inside)),
        ];
        let second = vec![member("d", Json::Null), member("e", Json::Bool(true))];
        assert_eq!(objects(text.as_bytes()).unwrap(), [first, second]);
        for (text, says) in [
            (&b"{\"a\": 1} 7"[..], "row 1 is no object"),
            (b"{\"a\": 01}", "invalid number"),
            (b"{\"a\": 1e999}", "number out of range"),
            (b"{\"a\": 1", "EOF"),
            (b"{\"a\": 1}\n\n {\"a\": 01}", "invalid number at line 3 column 9"),
            (b"{\"a\": 1} \x0b", "expected value at line 1 column 10"),
            (b"{\"a\": \"\xff\"}", "utf-8"),
        ] {
            let error = objects(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    /// Done at once where the time grows with the text, and after minutes where it grows with its square.
    #[test]
    fn a_hundred_thousand_lines_are_as_many_objects() {
        let lines = 0..100_000;
        let text =
            lines.clone().map(|line| format!("{{\"id\": {line}, \"x\": [{line}.50]}}\r\n \n")).collect::<String>();
        let number = |number: String| Json::Number(number);
        let member = |name: &str, value| Member { name: name.to_owned(), value };
        let expected = lines.map(|line| {
            let list = Json::List(vec![number(format!("{line}.50"))]);
            vec![member("id", number(line.to_string())), member("x", list)]
        });
        assert!(objects(text.as_bytes()).unwrap().into_iter().eq(expected));
    }

    #[test]
    fn a_plain_number_has_every_digit() {
        for (number, expected) in [
            ("1.5e-7", "0.00000015"),
            ("12e2", "1200"),
            ("-1.250E+1", "-12.5"),
            ("7.0", "7"),
            ("-0.0", "0"),
            ("+.5", "0.5"),
            ("00120e-1", "12"),
            ("90071992547409931", "90071992547409931"),
            ("123.456e2", "12345.6"),
        ] {
            assert_eq!(decimal_text(number).as_deref(), Some(expected), "{number}");
        }
        for none in ["", ".", "-", "1e", "1e5000", "x", "1.2.3", "1 ", "NaN"] {
            assert_eq!(decimal_text(none), None, "{none}");
        }
    }
}
