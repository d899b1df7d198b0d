//! Values that remember their place in the text, and lists that may be a single value.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::read::{Complaints, Read};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::source::Place;
use crate::tree::{Entry, Value};
use std::ops::Deref;

/// A value with its place, for errors found only in combination with another file.
#[derive(Debug, Clone)]
pub struct Placed<T> {
    /// What the file says there.
    pub value: T,
    pub(crate) place: Place,
}

impl<T> Placed<T> {
    /// An error about the value, at its place.
    pub fn complaint(&self, message: impl Into<String>, help: Option<String>) -> Diagnostics {
        let mut diagnostic = Diagnostic::new(&self.place, message);
        diagnostic.help = help;
        Diagnostics::new(vec![diagnostic])
    }
}

/// Compares values, not places.
impl<T: PartialEq> PartialEq for Placed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Read> Read for Placed<T> {
    const REQUIRED: bool = T::REQUIRED;

    fn shape() -> Shape {
        T::shape()
    }

    fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self> {
        T::read(entry, name, complaints).map(|value| Self { value, place: entry.node.place.clone() })
    }
    fn absent(table: &Place, name: &str, complaints: &mut Complaints) -> Option<Self> {
        T::absent(table, name, complaints).map(|value| Self { value, place: table.clone() })
    }
}

/// One or several values: `size = "64 B"` or `size = ["64 B", "128 B"]`. Never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Several<T>(pub Vec<T>);

impl<T> Deref for Several<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Scalar> Read for Several<T> {
    fn shape() -> Shape {
        Shape::Several(Box::new(T::scalar_shape()))
    }

    fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self> {
        match &entry.node.value {
            Value::List(items) if items.is_empty() => {
                complaints.push(
                    Diagnostic::new(&entry.node.place, format!("`{name}` is an empty list"))
                        .help("one value, or a list of at least one"),
                );
                None
            }
            Value::List(_) => Vec::scalar(&entry.node, name, complaints).map(Self),
            _ => T::scalar(&entry.node, name, complaints).map(|value| Self(vec![value])),
        }
    }
}
