//! A TOML text as a tree in which every key and value knows its place.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figure::Provenance;
use crate::source::{Place, Source};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use toml_edit::{Document, Item, TableLike, TomlError};

/// What the parser says of a key that stands twice.
const DUPLICATE: &str = "duplicate key";

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

/// Syntax errors of one text that are told at once.
const MOST_ERRORS: usize = 10;

/// Reads `source` as TOML; its syntax errors if it has any.
pub(crate) fn parse(source: &Arc<Source>) -> Result<Node, Diagnostics> {
    let error = match Document::parse(source.text.as_str()) {
        Ok(document) => {
            let place = |span: Option<Range<usize>>| Place::new(source, span.unwrap_or(0..0));
            return Ok(Node { place: place(None), value: table_of(document.as_table(), &place) });
        }
        Err(error) => error,
    };
    // The parser stops at the first: without that line it finds the next. What a missing line makes wrong is not told.
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

/// A table, each part of which stands where `place` makes it of its span.
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

/// The value that an override spells, all of it standing at `place`.
pub(crate) fn of_spelling(spelling: &toml_edit::Value, place: &Place) -> Value {
    value_of(spelling, &|_| place.clone())
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
