//! Where a predicate aims: at a row that the table has, so that few answers are empty.
//!
//! Literals that are drawn without looking at the data miss it: an AND of three such conditions is nearly always empty, and
//! an empty answer is right however wrong the algebra is. Conditions that aim at one row are true of it together.

use rand::Rng;
use rand::rngs::StdRng;

use super::column::{Column, pick};
use super::query::wild_leaf;
use super::table::{RandomTable, Sample};

/// What the conditions of a predicate have in common.
#[derive(Clone, Copy)]
pub struct Aim<'a> {
    pub columns: &'a [Column],
    /// A column of lists, if there is one.
    list: Option<&'a Column>,
    samples: &'a [Sample],
    /// The row of which conditions shall be true.
    row: Option<&'a Sample>,
}

impl<'a> Aim<'a> {
    /// An aim at a random row of a table.
    pub fn random(rng: &mut StdRng, table: &'a RandomTable) -> Self {
        Self { columns: &table.columns, list: table.list.as_ref(), samples: &table.samples, row: None }.elsewhere(rng)
    }

    /// An aim at another row.
    pub fn elsewhere(self, rng: &mut StdRng) -> Self {
        Self { row: (!self.samples.is_empty()).then(|| pick(rng, self.samples)), ..self }
    }

    /// No row in particular.
    pub fn nowhere(self) -> Self {
        Self { row: None, ..self }
    }

    /// A condition: of ten that aim at a row, one forgets to.
    pub fn leaf(&self, rng: &mut StdRng) -> String {
        // Tables without lists draw what they always drew.
        if let Some(list) = self.list
            && rng.random_bool(0.2)
        {
            return list.element_leaf(rng);
        }
        match self.row {
            Some(row) if rng.random_bool(0.9) => {
                let Target { column, at } = self.target(rng, row);
                match at {
                    Some(at) => aimed_leaf(rng, column, at, row),
                    None => null_leaf(rng, column),
                }
            }
            _ => wild_leaf(rng, self.columns),
        }
    }

    /// A column to aim at: seldom one that is NULL.
    fn target(&self, rng: &mut StdRng, row: &Sample) -> Target<'a> {
        let mut ordinal = rng.random_range(0..self.columns.len());
        for _ in 0..2 {
            if row.picks[ordinal].is_none() {
                ordinal = rng.random_range(0..self.columns.len());
            }
        }
        Target { column: &self.columns[ordinal], at: row.picks[ordinal] }
    }
}

/// A column of a row that is aimed at.
struct Target<'a> {
    column: &'a Column,
    /// Where its domain holds the row's value; none for NULL.
    at: Option<usize>,
}

/// A condition that is true of NULL.
fn null_leaf(rng: &mut StdRng, column: &Column) -> String {
    let name = &column.name;
    match rng.random_range(0..4) {
        0 => format!("{name} IS NULL"),
        1 => format!("{name} IS DISTINCT FROM {}", column.literal(rng)),
        2 => format!("coalesce({name} = {}, true)", column.literal(rng)),
        _ => format!("NOT ({name} IS NOT NULL)"),
    }
}

/// A condition that is true of a value, as far as the order of values goes.
fn aimed_leaf(rng: &mut StdRng, column: &Column, at: usize, row: &Sample) -> String {
    let (name, value) = (&column.name, column.literal_at(at));
    match rng.random_range(0..20) {
        0..=3 => format!("{name} = {value}"),
        4..=5 => format!("{name} {} {}", pick(rng, &["<", "<="]), column.bound(rng, at, false)),
        6..=7 => format!("{name} {} {}", pick(rng, &[">", ">="]), column.bound(rng, at, true)),
        8..=9 => {
            format!("{name} BETWEEN {} AND {}", column.bound(rng, at, true), column.bound(rng, at, false))
        }
        10..=12 => {
            let mut list: Vec<String> = (0..rng.random_range(0..6)).map(|_| column.literal(rng)).collect();
            list.insert(rng.random_range(0..=list.len()), value);
            if rng.random_bool(0.15) {
                list.push("NULL".into());
            }
            format!("{name} IN ({})", list.join(", "))
        }
        13 => format!("{name} NOT IN ({}, {})", column.literal(rng), column.literal(rng)),
        14 => format!("{name} IS NOT DISTINCT FROM {value}"),
        15 => format!("{} {} {name}", column.bound(rng, at, true), pick(rng, &["<", "<="])),
        16 => format!("coalesce({name} = {value}, false)"),
        17 => format!("id {} {}", pick(rng, &["<=", ">=", "="]), row.id),
        18 => format!("{name} {} {}", pick(rng, &["<>", "IS DISTINCT FROM"]), column.literal(rng)),
        _ => special_leaf(rng, column, at),
    }
}

/// A condition that only some types have.
fn special_leaf(rng: &mut StdRng, column: &Column, at: usize) -> String {
    let name = &column.name;
    if column.is_text() {
        let text = column.text_at(at);
        let letters = rng.random_range(0..=text.chars().count());
        let prefix: String = text.chars().take(letters).collect();
        return match rng.random_range(0..4) {
            0 => format!("length({name}) >= {letters}"),
            1 => format!("starts_with({name}, '{prefix}')"),
            _ => format!("{name} LIKE '{prefix}%'"),
        };
    }
    if column.data_type == arrow::datatypes::DataType::Boolean {
        return if column.text_at(at) == "true" { name.clone() } else { format!("NOT {name}") };
    }
    format!("{name} IS NOT NULL")
}
