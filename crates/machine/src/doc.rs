//! A file as it is edited: overrides, fitted figures, and back to text.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figure::{AnyFigure, Determined, Kind, Provenance};
use crate::library::Library;
use crate::read::{Complaints, Read};
use crate::scenario::Changed;
use crate::source::{Place, Source};
use crate::tree::{self, Entry, Node, Table, Value};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// Which folder a kind of file is kept in, and what messages call it.
pub trait Kindred: Read {
    /// What messages call such a file.
    const WHAT: &'static str;
    /// Where the library keeps them.
    const FOLDER: &'static str;
    /// Keys that a file does not take over from the one that it extends.
    const OWN: &'static [&'static str] = &[];
}

/// A machine, part or scenario file: its text with what was changed since.
///
/// Changing is checked when the typed content is asked for, with messages that
/// point at the change.
#[derive(Debug, Clone)]
pub struct Doc<T> {
    source: Arc<Source>,
    library: Library,
    changes: Vec<Change>,
    content: PhantomData<fn() -> T>,
}

#[derive(Debug, Clone)]
struct Change {
    path: Vec<String>,
    /// Where the path is stated.
    key: Place,
    /// Where the value is stated.
    place: Place,
    value: Value,
    spelling: toml_edit::Value,
    provenance: Option<Provenance>,
}

/// A figure of a file: its path and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Dotted path, as `--set` takes it.
    pub path: String,
    /// The value as the file spells it.
    pub value: String,
    /// The value in base units (picoseconds, bytes, hertz, per second) where it is a number.
    pub number: Option<f64>,
    /// All that the value can be, where that is a handful of names.
    pub choices: Vec<&'static str>,
    /// Where the value comes from.
    pub provenance: Provenance,
}

impl<T: Kindred> Doc<T> {
    /// The file called `name` in `library`, or at that path.
    pub fn load(library: &Library, name: &str) -> Result<Self, Diagnostics> {
        let source = library.find(name, None, T::FOLDER, T::WHAT).map_err(|missing| missing.alone(name))?;
        Ok(Self::of(library, source))
    }

    /// As [`Self::load`], with complaints about the name pointing at the place that gives it.
    pub(crate) fn load_at(library: &Library, name: &str, place: &Place) -> Result<Self, Diagnostics> {
        let source = library
            .find(name, Some(&place.source.name), T::FOLDER, T::WHAT)
            .map_err(|missing| missing.at(place))?;
        Ok(Self::of(library, source))
    }

    /// A file with this text; `name` is what messages call it.
    pub fn from_text(library: &Library, name: &str, text: &str) -> Self {
        Self::of(library, Arc::new(Source { name: name.into(), text: text.into() }))
    }

    fn of(library: &Library, source: Arc<Source>) -> Self {
        Self { source, library: library.clone(), changes: Vec::new(), content: PhantomData }
    }

    /// What messages call the file: its path, or `machines/NAME.toml` for one that came with the program.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The file's text.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// Whether the file has this key at its top.
    ///
    /// # Errors
    /// If the file is no TOML.
    pub fn has(&self, key: &str) -> Result<bool, Diagnostics> {
        Ok(matches!(self.tree()?.value, Value::Table(table) if table.contains_key(key)))
    }

    /// The typed content, with all changes made so far; all errors if there are any.
    pub fn read(&self) -> Result<T, Diagnostics> {
        let root =
            Entry { key: Place::new(&self.source, 0..0), node: self.tree()?, source: None, provenance: None };
        let mut complaints = Complaints::default();
        match T::read(&root, "", &mut complaints) {
            Some(content) if complaints.0.is_empty() => Ok(content),
            _ => Err(Diagnostics::new(complaints.0)),
        }
    }

    /// The file's tree over those it extends, with all changes.
    fn tree(&self) -> Result<Node, Diagnostics> {
        let mut layers = vec![tree::parse(&self.source)?];
        while let Some((name, place)) = extends(layers.last().expect("never empty")) {
            // Far more than anybody nests on purpose.
            if layers.len() > 8 {
                return Err(Diagnostics::new(vec![
                    Diagnostic::new(&place, "`extends` goes in a circle").label("extends itself in the end"),
                ]));
            }
            let source = self
                .library
                .find(&name, Some(&place.source.name), T::FOLDER, T::WHAT)
                .map_err(|missing| missing.at(&place))?;
            let mut layer = tree::parse(&source)?;
            if let Value::Table(table) = &mut layer.value {
                table.retain(|key, _| !T::OWN.contains(&key.as_str()));
            }
            layers.push(layer);
        }
        let mut tree = layers.pop().expect("never empty");
        while let Some(layer) = layers.pop() {
            tree::overlay(&mut tree, layer);
        }
        for change in &self.changes {
            change.apply(&mut tree).map_err(|wrong| Diagnostics::new(vec![*wrong]))?;
        }
        Ok(tree)
    }

    /// Sets the value at the dotted `path` to `text`, as `--set PATH=TEXT` does. A list's item is named by its number,
    /// counted from 0, or by its `name`.
    ///
    /// `text` is TOML; what is not is taken as text without its quotes, so that
    /// `62 ns` needs none. The figure's source becomes the override.
    ///
    /// # Errors
    /// If the path is empty. A path or value that the file cannot have shows when it is read.
    pub fn set(&mut self, path: &str, text: &str) -> Result<(), Diagnostics> {
        self.set_by("--set", None, path, text)
    }

    /// As [`Self::set`], for the command line's `option`, to which complaints point; the path begins in the table
    /// called `within`, if one is given.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn set_by(
        &mut self,
        option: &str,
        within: Option<&str>,
        path: &str,
        text: &str,
    ) -> Result<(), Diagnostics> {
        let source = format!("override: {path} = {text}");
        let provenance =
            Provenance { source, kind: Kind::Override, determined: None, uncertainty: None, without: None };
        self.change(option, within, path, text, Some(provenance))
    }

    /// Sets the figure at the dotted `path` to `text` and states where that comes from, as fitting does.
    pub fn set_figure(&mut self, path: &str, text: &str, provenance: Provenance) -> Result<(), Diagnostics> {
        self.change("--set", None, path, text, Some(provenance))
    }

    /// States anew where the figure at the dotted `path` comes from; its value stays as it is spelt.
    ///
    /// # Errors
    /// If the file is wrong, or has no such figure.
    pub fn restate(&mut self, path: &str, provenance: Provenance) -> Result<(), Diagnostics> {
        let text = match self.spelling(path)? {
            Some(spelt) => spelt,
            None => self.get(path)?.unwrap_or_default(),
        };
        self.set_figure(path, &text, provenance)
    }

    /// How the file itself spells the value of the figure at `path`; `None` if it does not, or a change came in between.
    fn spelling(&self, path: &str) -> Result<Option<String>, Diagnostics> {
        if self.changes.iter().any(|change| change.path.join(".") == path) {
            return Ok(None);
        }
        let document = self.document()?;
        let item = path.split('.').try_fold(document.as_item(), |item, key| item.get(key));
        let value = item.map(|item| item.get("value").unwrap_or(item)).and_then(toml_edit::Item::as_value);
        Ok(value.map(|value| value.to_string().trim().to_owned()))
    }

    /// Sets what the keys of `path`, dots in them and all, lead to. For what is no figure.
    ///
    /// # Panics
    /// If `path` is empty.
    pub fn set_entry(&mut self, path: &[&str], text: &str) {
        assert!(!path.is_empty(), "an entry has a key");
        let segments = path.iter().map(|&key| key.to_owned()).collect();
        self.spell("--set", &path.join("."), segments, text, None);
    }

    /// Takes the key and what it leads to out of the file's text.
    ///
    /// # Errors
    /// If the file is no TOML.
    pub fn remove(&mut self, key: &str) -> Result<(), Diagnostics> {
        let mut document = self.document()?;
        if document.remove(key).is_some() {
            let (name, text) = (self.source.name.clone(), document.to_string());
            self.source = Arc::new(Source { name, text });
        }
        Ok(())
    }

    /// The file as it is written, without changes.
    fn document(&self) -> Result<toml_edit::DocumentMut, Diagnostics> {
        let wrong = |error: toml_edit::TomlError| Diagnostics::about(self.name(), error.to_string(), None);
        self.source.text.parse().map_err(wrong)
    }

    /// Makes a change that another file states.
    pub(crate) fn lay(&mut self, changed: &Changed) -> Result<(), Diagnostics> {
        let path = segments(&changed.path, &changed.place)?;
        let statement = format!("override: {} of {}", changed.path, changed.place.source.name);
        let provenance = Provenance {
            source: statement,
            kind: Kind::Override,
            determined: None,
            uncertainty: None,
            without: None,
        };
        let (key, place, value) = (changed.key.clone(), changed.place.clone(), changed.value.clone());
        let text = &changed.place.source.text[changed.place.span.clone()];
        let from = &changed.place.source.name;
        // The command line says itself what it changes, and what is no file's change is the program's own doing.
        if from.ends_with(".toml") {
            let change = format!("{from}: {}: {} = {}", self.source.name, changed.path, text.trim());
            self.library.keep_change(change);
        }
        let spelling = text.parse();
        let spelling = spelling.unwrap_or_else(|_| toml_edit::Value::from(""));
        self.changes.push(Change { path, key, place, value, spelling, provenance: Some(provenance) });
        Ok(())
    }

    fn change(
        &mut self,
        option: &str,
        within: Option<&str>,
        path: &str,
        text: &str,
        provenance: Option<Provenance>,
    ) -> Result<(), Diagnostics> {
        let source = Arc::new(Source { name: option.into(), text: format!("{path}={text}") });
        let mut segments = segments(path, &Place::new(&source, 0..path.len()))?;
        segments.splice(..0, within.map(ToOwned::to_owned));
        self.spell(option, path, segments, text, provenance);
        Ok(())
    }

    fn spell(
        &mut self,
        option: &str,
        path: &str,
        segments: Vec<String>,
        text: &str,
        provenance: Option<Provenance>,
    ) {
        let source = Arc::new(Source { name: option.into(), text: format!("{path}={text}") });
        let key = Place::new(&source, 0..path.len());
        let place = Place::new(&source, path.len() + 1..source.text.len());
        let spelling = match text.trim().parse::<toml_edit::Value>() {
            Ok(value) => value,
            Err(_) => text.trim().into(),
        };
        let value = tree::of_spelling(&spelling, &place);
        self.changes.push(Change { path: segments, key, place, value, spelling, provenance });
    }

    /// The value at the dotted `path` as a file would spell it, or nothing if there is none.
    pub fn get(&self, path: &str) -> Result<Option<String>, Diagnostics> {
        Ok(self.list()?.into_iter().find(|figure| figure.path == path).map(|figure| figure.value))
    }

    /// Every figure with its path, value and provenance, in the order of the schema.
    pub fn list(&self) -> Result<Vec<Listed>, Diagnostics> {
        Ok(figures(&self.read()?))
    }

    /// The file's text with all changes, its comments and order kept.
    ///
    /// # Errors
    /// If the file or a change is wrong: a wrong file is not written.
    pub fn to_text(&self) -> Result<String, Diagnostics> {
        let figures: BTreeSet<String> = self.list()?.into_iter().map(|figure| figure.path).collect();
        let mut document = self.document()?;
        for change in &self.changes {
            change.write(document.as_table_mut(), figures.contains(&change.path.join(".")));
        }
        Ok(document.to_string())
    }

    /// Writes the file with all changes to `path`.
    pub fn save(&self, path: &Path) -> Result<(), Diagnostics> {
        files::write(path, self.to_text()?.as_bytes()).map_err(|error| {
            Diagnostics::about(&path.display().to_string(), format!("cannot be written: {error}"), None)
        })
    }
}

/// Every figure in `content` with its path, value and provenance.
pub fn figures(content: &impl Read) -> Vec<Listed> {
    let mut all = Vec::new();
    content.figures("", &mut |path, figure| all.push(Listed::of(path, figure)));
    all
}

/// Sets the figure at `path` of `content` to the nearest possible to `number`
/// in base units; false, and nothing changed, if there is none such. For
/// fitting, which tries many values without going through text.
pub fn set_number(content: &mut impl Read, path: &str, number: f64) -> bool {
    let mut done = false;
    content.figures_mut("", &mut |here, figure| {
        if here == path {
            done = figure.set_number(number);
        }
    });
    done
}

impl Listed {
    fn of(path: &str, figure: &dyn AnyFigure) -> Self {
        let value = figure.to_toml().to_string();
        Self {
            path: path.into(),
            value,
            number: figure.number(),
            choices: figure.choices(),
            provenance: figure.provenance().clone(),
        }
    }
}

/// The keys of a dotted path.
fn segments(path: &str, place: &Place) -> Result<Vec<String>, Diagnostics> {
    let segments: Vec<String> = path.trim().split('.').map(|segment| segment.trim().to_owned()).collect();
    if segments.iter().any(String::is_empty) || segments.len() > 16 {
        let wrong =
            Diagnostic::new(place, format!("`{path}` is not a path")).help("such as `host.llc.ddio_ways`");
        return Err(Diagnostics::new(vec![wrong]));
    }
    Ok(segments)
}

/// What a file says it extends.
fn extends(node: &Node) -> Option<(String, Place)> {
    let Value::Table(table) = &node.value else { return None };
    match &table.get("extends")?.node {
        Node { value: Value::Text(name), place } => Some((name.clone(), place.clone())),
        _ => None,
    }
}

/// What an item of a list gives as its name.
fn name_of(item: &Node) -> Option<&str> {
    let Value::Table(table) = &item.value else { return None };
    match &table.get("name")?.node.value {
        Value::Text(name) => Some(name),
        _ => None,
    }
}

impl Change {
    /// Makes the change in a tree, with places that point at the change.
    fn apply(&self, tree: &mut Node) -> Result<(), Box<Diagnostic>> {
        let mut node = tree;
        let (last, above) = self.path.split_last().expect("paths are not empty");
        for (depth, key) in above.iter().enumerate() {
            node = match &mut node.value {
                Value::Table(table) => {
                    &mut table
                        .entry(key.clone())
                        .or_insert_with(|| self.entry(Value::Table(Table::new())))
                        .node
                }
                Value::List(items) => self.item(items, depth)?,
                value => {
                    *value = self.value.clone();
                    return Ok(());
                }
            };
        }
        match &mut node.value {
            Value::Table(table) => {
                table.insert(last.clone(), self.figure());
            }
            Value::List(items) => *self.item(items, above.len())? = self.figure().node,
            value => *value = self.value.clone(),
        }
        Ok(())
    }

    /// The item of a list that the path's segment at `depth` means: its number, or what it gives as its `name`.
    fn item<'a>(&self, items: &'a mut [Node], depth: usize) -> Result<&'a mut Node, Box<Diagnostic>> {
        let wanted = &self.path[depth];
        let names: Vec<Option<&str>> = items.iter().map(name_of).collect();
        let found = wanted.parse().ok().filter(|&number: &usize| number < items.len());
        if let Some(at) = found.or_else(|| names.iter().position(|name| *name == Some(wanted))) {
            return Ok(&mut items[at]);
        }
        let list = self.path[..depth].join(".");
        let count = items.len();
        let of = |(at, name): (usize, &Option<&str>)| name.map_or_else(|| at.to_string(), str::to_owned);
        let all: Vec<String> = names.iter().enumerate().map(of).collect();
        let wrong = format!("`{list}` has {count} items, none of which is `{wanted}`");
        Err(Box::new(Diagnostic::new(&self.key, wrong).help(format!(
            "say which by its name or its number, counted from 0: `{list}.{}`",
            all.join(&format!("`, `{list}."))
        ))))
    }

    fn entry(&self, value: Value) -> Entry {
        Entry {
            key: self.key.clone(),
            node: Node { place: self.place.clone(), value },
            source: None,
            provenance: None,
        }
    }

    fn figure(&self) -> Entry {
        let mut entry = self.entry(self.value.clone());
        entry.provenance.clone_from(&self.provenance);
        entry
    }

    /// Makes the change in a document, keeping its comments.
    fn write(&self, document: &mut toml_edit::Table, is_figure: bool) {
        let (last, tables) = self.path.split_last().expect("paths are not empty");
        let mut table: &mut dyn toml_edit::TableLike = document;
        let mut tables = tables.iter();
        while let Some(key) = tables.next() {
            let fresh = || {
                let mut table = toml_edit::Table::new();
                table.set_implicit(true);
                toml_edit::Item::Table(table)
            };
            let inner = match table.entry(key).or_insert_with(fresh) {
                toml_edit::Item::ArrayOfTables(items) => {
                    let wanted = tables.next().map_or("", String::as_str);
                    let named = |item: &toml_edit::Table| {
                        item.get("name").and_then(|name| name.as_str()) == Some(wanted)
                    };
                    let number = wanted.parse().ok().filter(|&number: &usize| number < items.len());
                    let at = number.or_else(|| items.iter().position(named));
                    at.and_then(|at| items.get_mut(at)).map(|item| item as &mut dyn toml_edit::TableLike)
                }
                item => item.as_table_like_mut(),
            };
            match inner {
                Some(inner) => table = inner,
                None => return,
            }
        }
        let mut value = self.spelling.clone();
        if let Some(provenance) = self.provenance.as_ref().filter(|_| is_figure) {
            value = provenance.around(value);
        }
        match table.get_mut(last).and_then(toml_edit::Item::as_value_mut) {
            Some(existing) => {
                *value.decor_mut() = existing.decor().clone();
                *existing = value;
            }
            None => {
                table.insert(last, value.into());
            }
        }
    }
}

impl Provenance {
    /// The figure `{ value = .., source = .. }`.
    fn around(&self, value: toml_edit::Value) -> toml_edit::Value {
        let mut figure = toml_edit::InlineTable::new();
        figure.insert("value", value.decorated(" ", ""));
        figure.insert("source", self.source.as_str().into());
        if Provenance::stated(&self.source).is_none_or(|stated| stated.kind != self.kind) {
            figure.insert("kind", self.kind.as_str().into());
        }
        if let Some(determined) = self.determined {
            figure.insert("determined", Determined::as_str(determined).into());
        }
        if let Some(uncertainty) = &self.uncertainty {
            figure.insert("uncertainty", uncertainty.as_str().into());
        }
        if let Some(without) = &self.without {
            figure.insert("without", without.as_str().into());
        }
        figure.into()
    }
}
