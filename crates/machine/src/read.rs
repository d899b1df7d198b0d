//! Converts a tree to typed structures and collects all errors.

use crate::diagnostic::Diagnostic;
use crate::figure::AnyFigure;
use crate::shape::Shape;
use crate::source::Place;
use crate::suggest;
use crate::tree::{Entry, Node, Table, Value};
use std::collections::BTreeMap;

/// Errors collected while reading a tree.
#[derive(Default)]
pub struct Complaints(pub(crate) Vec<Diagnostic>);

impl Complaints {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Reports that `node` is not a `wanted`.
    pub(crate) fn wrong_type(&mut self, node: &Node, name: &str, wanted: &str) {
        let found = node.value.type_name();
        self.push(
            Diagnostic::new(&node.place, format!("`{name}` takes {wanted}, not {found}"))
                .label(format!("this is {found}")),
        );
    }
}

/// A type that can be read from a value of a file.
pub trait Read: Sized {
    /// Reads `entry` under the key `name`; `None` after an error.
    #[doc(hidden)]
    fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self>;

    /// The value if the table lacks this key; `None` after an error.
    #[doc(hidden)]
    fn absent(table: &Place, name: &str, complaints: &mut Complaints) -> Option<Self> {
        complaints.push(Diagnostic::new(table, format!("`{name}` is missing")).label("in this table"));
        None
    }

    /// The allowed content.
    fn shape() -> Shape;

    /// Whether the key is required.
    #[doc(hidden)]
    const REQUIRED: bool = true;

    /// Calls `visit` for every figure inside, with its dotted path below `path`.
    #[doc(hidden)]
    fn figures(&self, _path: &str, _visit: &mut dyn FnMut(&str, &dyn AnyFigure)) {}

    /// As `figures`, for changes.
    #[doc(hidden)]
    fn figures_mut(&mut self, _path: &str, _visit: &mut dyn FnMut(&str, &mut dyn AnyFigure)) {}
}

impl<T: Read> Read for Option<T> {
    const REQUIRED: bool = false;

    fn shape() -> Shape {
        T::shape()
    }

    fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self> {
        T::read(entry, name, complaints).map(Some)
    }
    fn absent(_: &Place, _: &str, _: &mut Complaints) -> Option<Self> {
        Some(None)
    }
    fn figures(&self, path: &str, visit: &mut dyn FnMut(&str, &dyn AnyFigure)) {
        if let Some(inner) = self {
            inner.figures(path, visit);
        }
    }
    fn figures_mut(&mut self, path: &str, visit: &mut dyn FnMut(&str, &mut dyn AnyFigure)) {
        if let Some(inner) = self {
            inner.figures_mut(path, visit);
        }
    }
}

impl<T: Read> Read for Vec<T> {
    const REQUIRED: bool = false;

    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }

    fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self> {
        let Value::List(items) = &entry.node.value else {
            complaints.wrong_type(&entry.node, name, "a list");
            return None;
        };
        // Read all items first, so that every error is reported.
        let read: Vec<Option<T>> = items
            .iter()
            .map(|item| {
                let entry = Entry {
                    key: item.place.clone(),
                    node: item.clone(),
                    source: entry.source.clone(),
                    provenance: entry.provenance.clone(),
                };
                T::read(&entry, name, complaints)
            })
            .collect();
        read.into_iter().collect()
    }
    fn absent(_: &Place, _: &str, _: &mut Complaints) -> Option<Self> {
        Some(Vec::new())
    }
    fn figures(&self, path: &str, visit: &mut dyn FnMut(&str, &dyn AnyFigure)) {
        for (index, item) in self.iter().enumerate() {
            item.figures(&join(path, &index.to_string()), visit);
        }
    }
    fn figures_mut(&mut self, path: &str, visit: &mut dyn FnMut(&str, &mut dyn AnyFigure)) {
        for (index, item) in self.iter_mut().enumerate() {
            item.figures_mut(&join(path, &index.to_string()), visit);
        }
    }
}

impl<T: Read> Read for BTreeMap<String, T> {
    const REQUIRED: bool = false;

    fn shape() -> Shape {
        Shape::Named(Box::new(T::shape()))
    }

    fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self> {
        let Value::Table(table) = &entry.node.value else {
            complaints.wrong_type(&entry.node, name, "a table of named entries");
            return None;
        };
        let read: Vec<Option<(String, T)>> = table
            .iter()
            .filter(|(key, _)| *key != "source")
            .map(|(key, entry)| T::read(entry, key, complaints).map(|value| (key.clone(), value)))
            .collect();
        read.into_iter().collect()
    }
    fn absent(_: &Place, _: &str, _: &mut Complaints) -> Option<Self> {
        Some(Self::new())
    }
    fn figures(&self, path: &str, visit: &mut dyn FnMut(&str, &dyn AnyFigure)) {
        for (key, item) in self {
            item.figures(&join(path, key), visit);
        }
    }
    fn figures_mut(&mut self, path: &str, visit: &mut dyn FnMut(&str, &mut dyn AnyFigure)) {
        for (key, item) in self {
            item.figures_mut(&join(path, key), visit);
        }
    }
}

/// `path.key`, or `key` at top level.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

/// The table at `entry`; reports keys outside `known`.
pub(crate) fn table<'a>(
    entry: &'a Entry,
    name: &str,
    known: &[&str],
    complaints: &mut Complaints,
) -> Option<&'a Table> {
    let Value::Table(table) = &entry.node.value else {
        complaints.wrong_type(&entry.node, name, "a table");
        return None;
    };
    for (key, entry) in table {
        if key == "source" || known.contains(&key.as_str()) {
            continue;
        }
        let diagnostic = Diagnostic::new(&entry.key, format!("unknown key `{key}` in {}", titled(name)))
            .label("not a key of this table");
        complaints.push(diagnostic.help(suggest::among(key, known.iter().copied(), "the keys here are")));
    }
    Some(table)
}

fn titled(name: &str) -> String {
    if name.is_empty() { "the file".into() } else { format!("`{name}`") }
}

/// Checks a table after its values were read; errors refer to keys.
pub struct Check<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) complaints: &'a mut Complaints,
}

impl Check<'_> {
    /// The check for the table under `key`, or for this one if there is none.
    pub(crate) fn at(&mut self, key: &str) -> Check<'_> {
        let inner = match &self.entry.node.value {
            Value::Table(table) => table.get(key).unwrap_or(self.entry),
            _ => self.entry,
        };
        Check { entry: inner, complaints: self.complaints }
    }

    /// Reports an error about the value of `key` unless `holds`.
    pub(crate) fn require(
        &mut self,
        holds: bool,
        key: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if holds {
            return;
        }
        let place = self.place_of(key);
        self.complaints.push(Diagnostic::new(&place, format!("`{key}`: {}", message.into())).help(help));
    }

    /// Place of `key`'s value; the table if it has none.
    fn place_of(&self, key: &str) -> Place {
        let Value::Table(table) = &self.entry.node.value else { return self.entry.node.place.clone() };
        match table.get(key).map(|entry| &entry.node) {
            Some(Node { value: Value::Table(figure), place }) => {
                figure.get("value").map_or(place, |value| &value.node.place).clone()
            }
            Some(node) => node.place.clone(),
            None => self.entry.node.place.clone(),
        }
    }
}

/// Defines a table of a file as a structure: one line per key, with its type.
///
/// All keys are read, so that all errors of a table are reported. After `check`, an optional `fn(&Self, &mut Check)`
/// checks combinations. A key that is a Rust keyword is given after `as`.
macro_rules! record {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $( $(#[$field_attribute:meta])* $field:ident $(as $key:literal)? : $type:ty, )*
        }
        $( check $check:expr )?
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[$field_attribute])* pub $field: $type, )*
        }

        impl $crate::read::Read for $name {
            fn shape() -> $crate::shape::Shape {
                $crate::shape::Shape::Table(vec![$( $crate::shape::Key {
                    name: $crate::read::key!($field $($key)?),
                    about: $crate::shape::about(&[$( stringify!($field_attribute) ),*]),
                    required: <$type as $crate::read::Read>::REQUIRED,
                    shape: <$type as $crate::read::Read>::shape(),
                } ),*])
            }

            fn read(
                entry: &$crate::tree::Entry,
                name: &str,
                complaints: &mut $crate::read::Complaints,
            ) -> Option<Self> {
                const KEYS: &[&str] = &[$( $crate::read::key!($field $($key)?) ),*];
                let table = $crate::read::table(entry, name, KEYS, complaints)?;
                $(
                    let key = $crate::read::key!($field $($key)?);
                    let $field = match table.get(key) {
                        Some(entry) => <$type as $crate::read::Read>::read(entry, key, complaints),
                        None => <$type as $crate::read::Read>::absent(&entry.node.place, key, complaints),
                    };
                )*
                let value = Self { $( $field: $field?, )* };
                $( #[allow(clippy::redundant_closure_call)] ($check)(&value, &mut $crate::read::Check { entry, complaints }); )?
                Some(value)
            }

            fn figures(&self, path: &str, visit: &mut dyn FnMut(&str, &dyn $crate::figure::AnyFigure)) {
                $( self.$field.figures(&$crate::read::join(path, $crate::read::key!($field $($key)?)), visit); )*
            }

            fn figures_mut(&mut self, path: &str, visit: &mut dyn FnMut(&str, &mut dyn $crate::figure::AnyFigure)) {
                $( self.$field.figures_mut(&$crate::read::join(path, $crate::read::key!($field $($key)?)), visit); )*
            }
        }
    };
}
pub(crate) use record;

/// A field's key in files.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}
pub(crate) use key;
