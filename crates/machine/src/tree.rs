//! A TOML text as a tree in which every key and value knows its place.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figure::Provenance;
use crate::source::{Place, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// A TOML value.
#[derive(Debug, Clone)]
pub enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// A date or time, which no file here has a use for.
    Date,
    List(Vec<Node>),
    Table(Table),
}

/// A table's entries by key.
pub type Table = BTreeMap<String, Entry>;

/// A key with its value.
#[derive(Debug, Clone)]
pub struct Entry {
    pub(crate) key: Place,
    pub(crate) node: Node,
    /// The `source` that the entry's own table states for all its bare values.
    pub(crate) source: Option<Arc<str>>,
    /// Where a value comes from that was changed after the file was read.
    pub(crate) provenance: Option<Provenance>,
}

impl Value {
    /// What a message calls a value of this type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number with a fraction",
            Self::Bool(_) => "true or false",
            Self::Date => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Reads `source` as TOML; all its syntax errors if it has any.
pub(crate) fn parse(source: &Arc<Source>) -> Result<Node, Diagnostics> {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let mut complaints: Vec<_> = errors.iter().map(|error| syntax_error(source, error)).collect();
    let node = Node {
        place: Place::new(source, 0..0),
        value: convert_table(source, table.get_ref(), &mut complaints),
    };
    if complaints.is_empty() { Ok(node) } else { Err(Diagnostics::new(complaints)) }
}

fn syntax_error(source: &Arc<Source>, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    Diagnostic::new(&Place::new(source, span), format!("not TOML: {message}"))
}

fn convert_table(source: &Arc<Source>, table: &DeTable<'_>, complaints: &mut Vec<Diagnostic>) -> Value {
    let entries = table.iter().map(|(key, value)| {
        let node = Node {
            place: Place::new(source, value.span()),
            value: convert(source, value.get_ref(), &value.span(), complaints),
        };
        (
            key.get_ref().to_string(),
            Entry { key: Place::new(source, key.span()), node, source: None, provenance: None },
        )
    });
    let mut entries: Table = entries.collect();
    let stated = match entries.get("source").map(|entry| &entry.node.value) {
        Some(Value::Text(text)) => Some(Arc::from(text.as_str())),
        _ => None,
    };
    for entry in entries.values_mut() {
        entry.source.clone_from(&stated);
    }
    Value::Table(entries)
}

fn convert(
    source: &Arc<Source>,
    value: &DeValue<'_>,
    span: &std::ops::Range<usize>,
    complaints: &mut Vec<Diagnostic>,
) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(truth) => Value::Bool(*truth),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Table(table) => convert_table(source, table, complaints),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) => Value::Integer(value),
            Err(_) => {
                complaints
                    .push(Diagnostic::new(&Place::new(source, span.clone()), "an integer beyond 64 bits"));
                Value::Integer(0)
            }
        },
        DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Array(array) => Value::List(
            array
                .iter()
                .map(|item| Node {
                    place: Place::new(source, item.span()),
                    value: convert(source, item.get_ref(), &item.span(), complaints),
                })
                .collect(),
        ),
    }
}

/// Lays `top` over `base`: tables merge key by key, anything else of `top` replaces.
///
/// A figure (`{ value = .., source = .. }`) is replaced whole, so that a value
/// never keeps the source of the one it replaced.
pub(crate) fn overlay(base: &mut Node, top: Node) {
    let is_figure = |table: &Table| table.contains_key("value");
    match (&mut base.value, top.value) {
        (Value::Table(under), Value::Table(over)) if !is_figure(under) && !is_figure(&over) => {
            base.place = top.place;
            for (key, entry) in over {
                match under.get_mut(&key) {
                    Some(existing) => {
                        existing.key = entry.key;
                        existing.source = entry.source;
                        existing.provenance = entry.provenance;
                        overlay(&mut existing.node, entry.node);
                    }
                    None => {
                        under.insert(key, entry);
                    }
                }
            }
        }
        (_, value) => *base = Node { place: top.place, value },
    }
}

/// The value that an override spells, all of it standing at `place`.
pub(crate) fn of_spelling(spelling: &toml_edit::Value, place: &Place) -> Value {
    let node = |value: &toml_edit::Value| Node { place: place.clone(), value: of_spelling(value, place) };
    match spelling {
        toml_edit::Value::String(text) => Value::Text(text.value().clone()),
        toml_edit::Value::Integer(integer) => Value::Integer(*integer.value()),
        toml_edit::Value::Float(float) => Value::Float(*float.value()),
        toml_edit::Value::Boolean(truth) => Value::Bool(*truth.value()),
        toml_edit::Value::Datetime(_) => Value::Date,
        toml_edit::Value::Array(items) => Value::List(items.iter().map(node).collect()),
        toml_edit::Value::InlineTable(table) => {
            let entry =
                |value| Entry { key: place.clone(), node: node(value), source: None, provenance: None };
            Value::Table(table.iter().map(|(key, value)| (key.to_owned(), entry(value))).collect())
        }
    }
}
