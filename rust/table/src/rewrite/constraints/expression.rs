//! The closed language of constraints: what means the same to every engine.
//!
//! A [`Condition`] is TRUE, FALSE or NULL of a row, and a [`Value`] is what conditions are about. Every value has one type: whatever two
//! types become when they are compared was decided when the text was bound, and stands here as a [`Value::Cast`].

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

/// TRUE, FALSE or NULL of a row.
#[derive(Debug)]
pub(super) enum Condition {
    Constant(Option<bool>),
    Compare {
        comparison: Comparison,
        /// Both sides have the same type.
        left: Value,
        right: Value,
    },
    IsNull(Value),
    /// Whether a condition has this truth value; never NULL.
    Is {
        condition: Box<Condition>,
        truth: bool,
    },
    Like {
        text: Value,
        pattern: String,
    },
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    /// A value of the type boolean.
    Value(Value),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// NULL is equal to NULL alone, and the result is never NULL.
    Same,
}

/// What conditions are about.
#[derive(Debug)]
pub(super) enum Value {
    /// A column, or a field inside of its structs.
    Column {
        name: String,
        /// The names of the fields on the way inside.
        fields: Vec<String>,
        data_type: DataType,
    },
    /// An array of length 1.
    Constant(ArrayRef),
    /// Two whole numbers of the same type, and the result in that type.
    Arithmetic {
        operation: Arithmetic,
        left: Box<Value>,
        right: Box<Value>,
    },
    /// The number of characters of a text.
    Length(Box<Value>),
    Truth(Box<Condition>),
    Cast {
        value: Box<Value>,
        to: DataType,
    },
}

/// What is done with two whole numbers. A result that its type does not have is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Plus,
    Minus,
    Times,
    /// What is left of a division, with the sign of what is divided.
    Remainder,
}

impl Value {
    /// The type that every value of it has.
    pub(super) fn data_type(&self) -> DataType {
        match self {
            Self::Column { data_type, .. } => data_type.clone(),
            Self::Constant(value) => value.data_type().clone(),
            Self::Arithmetic { left, .. } => left.data_type(),
            Self::Length(_) => DataType::Int32,
            Self::Truth(_) => DataType::Boolean,
            Self::Cast { to, .. } => to.clone(),
        }
    }

    /// The value in another type.
    pub(super) fn cast(self, to: &DataType) -> Self {
        if self.data_type() == *to {
            return self;
        }
        Self::Cast { value: Box::new(self), to: to.clone() }
    }
}
