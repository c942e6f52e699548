//! Random conditions, as SQL and as what they are for a row.

use std::fmt;

use rand::Rng;
use rand::rngs::StdRng;

use super::Row;

/// A condition on a row of the key `k`, the number `a` and the text `s`.
#[derive(Clone, Debug)]
pub enum Condition {
    Key(&'static str, i64),
    Number(&'static str, i32),
    Text(String),
    Begins(String),
    NumberIsNull,
    NumberIn(Vec<i32>),
    /// An expression that no index answers.
    Even,
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
}

const COMPARISONS: [&str; 5] = ["=", "<", ">=", "<>", ">"];

impl Condition {
    pub fn random(random: &mut StdRng, keys: i64, depth: u32) -> Self {
        if depth > 0 && random.random_bool(0.5) {
            let one = Box::new(Self::random(random, keys, depth - 1));
            return match random.random_range(0..5) {
                0 => Self::Not(one),
                1 | 2 => Self::And(one, Box::new(Self::random(random, keys, depth - 1))),
                _ => Self::Or(one, Box::new(Self::random(random, keys, depth - 1))),
            };
        }
        let comparison = COMPARISONS[random.random_range(0..COMPARISONS.len())];
        match random.random_range(0..8) {
            0 | 1 => Self::Key(comparison, random.random_range(0..keys)),
            2 => Self::Number(comparison, random.random_range(0..30)),
            3 => Self::Text(format!("s{}", random.random_range(0..20))),
            4 => Self::Begins(format!("s{}", random.random_range(0..5))),
            5 => Self::NumberIsNull,
            6 => Self::NumberIn((0..3).map(|_| random.random_range(0..30)).collect()),
            _ => Self::Even,
        }
    }

    /// Whether it holds; none if that is NULL.
    pub fn of(&self, key: i64, row: &Row) -> Option<bool> {
        match self {
            Self::Key(comparison, than) => Some(compare(comparison, &key, than)),
            Self::Number(comparison, than) => row.a.map(|a| compare(comparison, &a, than)),
            Self::Text(than) => row.s.as_ref().map(|s| s == than),
            Self::Begins(with) => row.s.as_ref().map(|s| s.starts_with(with)),
            Self::NumberIsNull => Some(row.a.is_none()),
            Self::NumberIn(set) => row.a.map(|a| set.contains(&a)),
            Self::Even => row.a.map(|a| (i64::from(a) + key) % 2 == 0),
            Self::And(one, other) => match (one.of(key, row), other.of(key, row)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Self::Or(one, other) => match (one.of(key, row), other.of(key, row)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Self::Not(one) => one.of(key, row).map(|holds| !holds),
        }
    }

    pub fn holds(&self, key: i64, row: &Row) -> bool {
        self.of(key, row) == Some(true)
    }
}

fn compare<T: Ord>(comparison: &str, one: &T, other: &T) -> bool {
    match comparison {
        "=" => one == other,
        "<" => one < other,
        ">=" => one >= other,
        ">" => one > other,
        _ => one != other,
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(comparison, than) => write!(f, "k {comparison} {than}"),
            Self::Number(comparison, than) => write!(f, "a {comparison} {than}"),
            Self::Text(than) => write!(f, "s = '{than}'"),
            Self::Begins(with) => write!(f, "s LIKE '{with}%'"),
            Self::NumberIsNull => write!(f, "a IS NULL"),
            Self::NumberIn(set) => {
                write!(f, "a IN ({})", set.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            Self::Even => write!(f, "(a + k) % 2 = 0"),
            Self::And(one, other) => write!(f, "({one} AND {other})"),
            Self::Or(one, other) => write!(f, "({one} OR {other})"),
            Self::Not(one) => write!(f, "NOT ({one})"),
        }
    }
}
