//! A TOML text as a tree in which every key and value has its place.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figure::Provenance;
use crate::source::{Place, Source};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use toml_edit::{Document, Item, TableLike, TomlError};

/// The parser's message for a duplicate key.
const DUPLICATE: &str = "duplicate key";

/// A value and its place.
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
    /// A date or time; not used by any file.
    Date,
    List(Vec<Node>),
    Table(Table),
}

/// A table's entries by key.
pub type Table = BTreeMap<String, Entry>;

/// A key and its value.
#[derive(Debug, Clone)]
pub struct Entry {
    pub(crate) key: Place,
    pub(crate) node: Node,
    /// The `source` of the entry's table, which applies to bare values.
    pub(crate) source: Option<Arc<str>>,
    /// Provenance of a value that was changed after the file was read.
    pub(crate) provenance: Option<Provenance>,
}

impl Value {
    /// Name of the type in messages.
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

/// Maximum number of syntax errors reported at once.
const MOST_ERRORS: usize = 10;

/// Parses `source` as TOML; returns its syntax errors.
pub(crate) fn parse(source: &Arc<Source>) -> Result<Node, Diagnostics> {
    let error = match Document::parse(source.text.as_str()) {
        Ok(document) => {
            let place = |span: Option<Range<usize>>| Place::new(source, span.unwrap_or(0..0));
            return Ok(Node { place: place(None), value: table_of(document.as_table(), &place) });
        }
        Err(error) => error,
    };
    // The parser stops at the first error; without that line, it finds the next. Follow-up errors of a removed line
    // are not reported.
    let mut errors = vec![error];
    let mut text = source.text.clone();
    while let Some(span) = errors.last().and_then(TomlError::span)
        && errors.len() < MOST_ERRORS
    {
        let start = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
        let end = text[span.start..].find('\n').map_or(text.len(), |length| span.start + length);
        text.replace_range(start..end, &" ".repeat(end - start));
        match Document::parse(text.as_str()) {
            Err(next) if next.message() != DUPLICATE => errors.push(next),
            _ => break,
        }
    }
    Err(Diagnostics::new(errors.iter().map(|error| syntax_error(source, error)).collect()))
}

fn syntax_error(source: &Arc<Source>, error: &TomlError) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let message = error.message().lines().collect::<Vec<_>>().join("; ");
    Diagnostic::new(&Place::new(source, span), format!("not TOML: {message}"))
}

/// A table whose parts get their places from `place`.
fn table_of(table: &dyn TableLike, place: &dyn Fn(Option<Range<usize>>) -> Place) -> Value {
    let entries = table.iter().filter_map(|(name, item)| {
        let value = match item {
            Item::None => return None,
            Item::Value(value) => value_of(value, place),
            Item::Table(table) => table_of(table, place),
            Item::ArrayOfTables(tables) => {
                let node = |table: &toml_edit::Table| Node {
                    place: place(table.span()),
                    value: table_of(table, place),
                };
                Value::List(tables.iter().map(node).collect())
            }
        };
        let key = place(table.key(name).and_then(toml_edit::Key::span));
        let node = Node { place: place(item.span()), value };
        Some((name.to_owned(), Entry { key, node, source: None, provenance: None }))
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

fn value_of(value: &toml_edit::Value, place: &dyn Fn(Option<Range<usize>>) -> Place) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::Text(text.value().clone()),
        toml_edit::Value::Integer(integer) => Value::Integer(*integer.value()),
        toml_edit::Value::Float(float) => Value::Float(*float.value()),
        toml_edit::Value::Boolean(truth) => Value::Bool(*truth.value()),
        toml_edit::Value::Datetime(_) => Value::Date,
        toml_edit::Value::Array(items) => {
            let node =
                |item: &toml_edit::Value| Node { place: place(item.span()), value: value_of(item, place) };
            Value::List(items.iter().map(node).collect())
        }
        toml_edit::Value::InlineTable(table) => table_of(table, place),
    }
}

/// The value of an override; all of it is at `place`.
pub(crate) fn of_spelling(spelling: &toml_edit::Value, place: &Place) -> Value {
    value_of(spelling, &|_| place.clone())
}

/// Overlays `top` on `base`: tables merge key by key, anything else is replaced.
///
/// A figure (`{ value = .., source = .. }`) is replaced as a whole, so that a value never keeps another value's
/// source.
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
