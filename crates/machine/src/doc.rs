//! A file with edits: overrides and fitted parameters; can be written back to text.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figure::{AnyFigure, Determined, Kind, Provenance};
use crate::library::{Library, Redraw};
use crate::read::{Complaints, Read};
use crate::scenario::Changed;
use crate::siblings;
use crate::source::{Place, Source};
use crate::tree::{self, Entry, Node, Table, Value};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

/// A kind of file, as [`KINDS`](crate::KINDS) lists it.
pub trait Kindred: Read {
    /// Its word on command lines, in records and in scenarios.
    const WORD: &'static str;
    /// Its name in messages and among the files that made a result.
    const WHAT: &'static str = Self::WORD;
    /// Its name in lists.
    const LISTED: &'static str = Self::WHAT;
    /// Its folder in the library.
    const FOLDER: &'static str;
    /// Description.
    const ABOUT: &'static str;
    /// Whether a file may extend another one.
    const EXTENDS: bool = true;
    /// Which file a template extends if nothing else is asked for, and a figure that is often changed; no templates if `None`.
    const TEMPLATE: Option<[&'static str; 2]> = None;
    /// Keys that are not inherited from the extended file.
    const OWN: &'static [&'static str] = &[];
    /// The table whose entries can extend each other, if any.
    const SIBLINGS: Option<[&'static str; 2]> = None;

    /// What the file says of itself in a line.
    fn summary(&self) -> &str;
}

/// A machine, part or scenario file: its text and later changes.
///
/// Changes are validated when the typed content is requested; errors then refer to the change.
#[derive(Debug, Clone)]
pub struct Doc<T> {
    source: Arc<Source>,
    library: Library,
    changes: Vec<Change>,
    /// Number of changes before the file was declared to [stand in](Self::stand_in) for another one.
    stands_in: Option<usize>,
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

/// A parameter of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Dotted path, as `--set` takes it.
    pub path: String,
    /// The value as written in the file.
    pub value: String,
    /// The value in base units (picoseconds, bytes, hertz, per second) if it is a number.
    pub number: Option<f64>,
    /// All possible values, if these are a few names.
    pub choices: Vec<&'static str>,
    /// Provenance of the value.
    pub provenance: Provenance,
}

impl<T: Kindred> Doc<T> {
    /// Loads the file with this name from `library`, or from this path.
    pub fn load(library: &Library, name: &str) -> Result<Self, Diagnostics> {
        let source = library.find(name, None, T::FOLDER, T::WHAT).map_err(|missing| missing.alone(name))?;
        Ok(Self::of(library, source))
    }

    /// As [`Self::load`]; errors about the name refer to `place`.
    pub(crate) fn load_at(library: &Library, name: &str, place: &Place) -> Result<Self, Diagnostics> {
        let source = library
            .find(name, Some(&place.source.name), T::FOLDER, T::WHAT)
            .map_err(|missing| missing.at(place))?;
        Ok(Self::of(library, source))
    }

    /// Creates a file from text; `name` is its name in messages.
    pub fn from_text(library: &Library, name: &str, text: &str) -> Self {
        Self::of(library, Arc::new(Source::new(name, text)))
    }

    fn of(library: &Library, source: Arc<Source>) -> Self {
        let with = |changes| Self {
            source: Arc::clone(&source),
            library: library.clone(),
            changes,
            stands_in: None,
            content: PhantomData,
        };
        let mut doc = with(Vec::new());
        for (path, text) in library.changes() {
            // It has such a parameter, or can be read with this value.
            let mut changed = with(doc.changes.clone());
            let has = doc.get(path).is_ok_and(|value| value.is_some());
            if changed.set(path, text).is_ok() && (has || changed.read().is_ok()) {
                library.keep_change(format!("--set in {}: {path} = {text}", source.name));
                doc = changed;
            }
        }
        doc
    }

    /// The same file, whose figures get other values as it is read.
    #[must_use]
    pub fn redrawn(&self, redraw: Arc<dyn Redraw>) -> Self {
        self.copied(self.library.redrawn(redraw))
    }

    /// Name in messages: its path, or `machines/NAME.toml` for a built-in file.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The file's text.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// Whether the file has this top-level key.
    ///
    /// # Errors
    /// If the file is not valid TOML.
    pub fn has(&self, key: &str) -> Result<bool, Diagnostics> {
        Ok(matches!(self.tree()?.value, Value::Table(table) if table.contains_key(key)))
    }

    /// Parses the content with all changes so far; returns all errors.
    /// Figures have the values that the library draws for them, if it does.
    pub fn read(&self) -> Result<T, Diagnostics> {
        let content = self.parse()?;
        match self.library.redraw() {
            Some(redraw) => self.redrawn_content(content, redraw),
            None => Ok(content),
        }
    }

    /// The content with other values of its figures, where these fit together.
    fn redrawn_content(&self, own: T, redraw: &dyn Redraw) -> Result<T, Diagnostics> {
        let mut others = Vec::new();
        own.figures("", &mut |path, figure| {
            let other = redraw.redraw(path, figure);
            others.extend(other.map(|text| (path.to_owned(), text, figure.provenance().clone())));
        });
        let mut doc = self.copied(self.library.clone());
        for (path, text, provenance) in &others {
            doc.set_figure(path, text, provenance.clone())?;
        }
        if let Ok(content) = doc.parse() {
            return Ok(content);
        }
        // One by one, without those that do not fit the others.
        doc.changes.truncate(self.changes.len());
        let mut content = own;
        for (path, text, provenance) in others {
            doc.set_figure(&path, &text, provenance)?;
            match doc.parse() {
                Ok(with) => content = with,
                Err(_) => drop(doc.changes.pop()),
            }
        }
        Ok(content)
    }

    fn copied(&self, library: Library) -> Self {
        let (source, changes, content) = (Arc::clone(&self.source), self.changes.clone(), PhantomData);
        Self { source, library, changes, stands_in: self.stands_in, content }
    }

    /// The content as the file and its changes have it.
    fn parse(&self) -> Result<T, Diagnostics> {
        let root =
            Entry { key: Place::new(&self.source, 0..0), node: self.tree()?, source: None, provenance: None };
        let mut complaints = Complaints::default();
        match T::read(&root, "", &mut complaints) {
            Some(mut content) if complaints.0.is_empty() => {
                self.restate_figures(&mut content);
                Ok(content)
            }
            _ => Err(Diagnostics::new(complaints.0)),
        }
    }

    /// Says that the file stands in for another one, about which nothing is known: what was found out about its own
    /// subject, rather than assumed or laid down by a standard, is a relative's. Later changes are not.
    pub fn stand_in(&mut self) {
        self.stands_in = Some(self.changes.len());
    }

    /// Makes figures a relative's if the file stands in for another one.
    fn restate_figures(&self, content: &mut T) {
        let Some(before) = self.stands_in else { return };
        let later: BTreeSet<String> =
            self.changes[before..].iter().map(|change| change.path.join(".")).collect();
        content.figures_mut("", &mut |path, figure| {
            let provenance = figure.provenance_mut();
            let own = [Kind::Override, Kind::Assumed, Kind::Specification];
            if !own.contains(&provenance.kind) && !later.contains(path) {
                provenance.kind = Kind::Relative;
                provenance.uncertainty = None;
            }
        });
    }

    /// The file's tree merged with those that it extends and with all changes.
    fn tree(&self) -> Result<Node, Diagnostics> {
        let mut layers = vec![tree::parse(&self.source)?];
        while let Some((name, place)) = extends(layers.last().expect("never empty")) {
            // More than any sensible nesting.
            if layers.len() > 8 {
                return Err(Diagnostics::new(vec![
                    Diagnostic::new(&place, "`extends` goes in a circle, or through more than 8 files")
                        .label("extends itself in the end, or one file too many"),
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
        if let Some(path) = T::SIBLINGS {
            siblings::resolve(&mut tree, path).map_err(|wrong| Diagnostics::new(vec![*wrong]))?;
        }
        Ok(tree)
    }

    /// Sets the value at the dotted `path` to `text`, like `--set PATH=TEXT`. An item of a list is addressed by its
    /// index, from 0, or by its `name`.
    ///
    /// `text` is TOML; anything else is taken as a string without quotes, so that `62 ns` needs none. The parameter's
    /// provenance becomes an override.
    ///
    /// # Errors
    /// If the path is empty. Invalid paths and values are reported when the file is read.
    pub fn set(&mut self, path: &str, text: &str) -> Result<(), Diagnostics> {
        self.set_by("--set", None, path, text)
    }

    /// As [`Self::set`], for the command line's `option`, which errors refer to. The path is relative to the table
    /// `within`, if given.
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

    /// Sets the parameter at the dotted `path` to `text` with a provenance, as fitting does.
    pub fn set_figure(&mut self, path: &str, text: &str, provenance: Provenance) -> Result<(), Diagnostics> {
        self.change("--set", None, path, text, Some(provenance))
    }

    /// Changes the provenance of the parameter at the dotted `path`; its value stays as written.
    ///
    /// # Errors
    /// If the file is invalid or has no such parameter.
    pub fn restate(&mut self, path: &str, provenance: Provenance) -> Result<(), Diagnostics> {
        let text = match self.spelling(path)? {
            Some(spelt) => spelt,
            None => self.get(path)?.unwrap_or_default(),
        };
        self.set_figure(path, &text, provenance)
    }

    /// The value of the parameter at `path` as written in the file; `None` if the file does not contain it or it was
    /// changed.
    fn spelling(&self, path: &str) -> Result<Option<String>, Diagnostics> {
        if self.changes.iter().any(|change| change.path.join(".") == path) {
            return Ok(None);
        }
        let document = self.document()?;
        let item = path.split('.').try_fold(document.as_item(), |item, key| item.get(key));
        let value = item.map(|item| item.get("value").unwrap_or(item)).and_then(toml_edit::Item::as_value);
        Ok(value.map(|value| value.to_string().trim().to_owned()))
    }

    /// Sets the value at `path`, whose keys may contain dots. Not for parameters.
    ///
    /// # Panics
    /// If `path` is empty.
    pub fn set_entry(&mut self, path: &[&str], text: &str) {
        assert!(!path.is_empty(), "an entry has a key");
        let segments = path.iter().map(|&key| key.to_owned()).collect();
        self.spell("--set", &path.join("."), segments, text, None);
    }

    /// Removes a key and its value from the file's text.
    ///
    /// # Errors
    /// If the file is not valid TOML.
    pub fn remove(&mut self, key: &str) -> Result<(), Diagnostics> {
        let mut document = self.document()?;
        if document.remove(key).is_some() {
            let (name, text) = (self.source.name.clone(), document.to_string());
            self.source = Arc::new(Source::new(name, text));
        }
        Ok(())
    }

    /// The file as written, without changes.
    fn document(&self) -> Result<toml_edit::DocumentMut, Diagnostics> {
        let wrong = |error: toml_edit::TomlError| Diagnostics::about(self.name(), error.to_string(), None);
        self.source.text.parse().map_err(wrong)
    }

    /// Applies a change stated in another file.
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
        // Command-line changes are already recorded, and changes without a file are internal.
        if from.ends_with(".toml") {
            let (line, _) = changed.place.line_and_column();
            let change = format!("{from}:{line}: {}: {} = {}", self.source.name, changed.path, text.trim());
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
        let source = Arc::new(Source::new(option, format!("{path}={text}")));
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
        let source = Arc::new(Source::new(option, format!("{path}={text}")));
        let key = Place::new(&source, 0..path.len());
        let place = Place::new(&source, path.len() + 1..source.text.len());
        let spelling = match text.trim().parse::<toml_edit::Value>() {
            Ok(value) => value,
            Err(_) => text.trim().into(),
        };
        let value = tree::of_spelling(&spelling, &place);
        self.changes.push(Change { path: segments, key, place, value, spelling, provenance });
    }

    /// The value at the dotted `path` as a file would write it; `None` if there is none.
    pub fn get(&self, path: &str) -> Result<Option<String>, Diagnostics> {
        Ok(self.list()?.into_iter().find(|figure| figure.path == path).map(|figure| figure.value))
    }

    /// All parameters with path, value and provenance, in order of the schema.
    pub fn list(&self) -> Result<Vec<Listed>, Diagnostics> {
        Ok(figures(&self.parse()?))
    }

    /// The file's text with all changes; keeps comments and order.
    ///
    /// # Errors
    /// If the file or a change is invalid: invalid files are not written.
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

/// All parameters of `content` with path, value and provenance.
pub fn figures(content: &impl Read) -> Vec<Listed> {
    let mut all = Vec::new();
    content.figures("", &mut |path, figure| all.push(Listed::of(path, figure)));
    all
}

/// Sets the parameter at `path` to the closest possible value to `number`, in base units. Returns false without a
/// change if there is none. For fitting, which tries many values without parsing text.
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
    pub(crate) fn of(path: &str, figure: &dyn AnyFigure) -> Self {
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

/// The file that a file extends.
fn extends(node: &Node) -> Option<(String, Place)> {
    let Value::Table(table) = &node.value else { return None };
    match &table.get("extends")?.node {
        Node { value: Value::Text(name), place } => Some((name.clone(), place.clone())),
        _ => None,
    }
}

/// The `name` of a list's item.
fn name_of(item: &Node) -> Option<&str> {
    let Value::Table(table) = &item.value else { return None };
    match &table.get("name")?.node.value {
        Value::Text(name) => Some(name),
        _ => None,
    }
}

impl Change {
    /// Applies the change to a tree; places refer to the change.
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
                    self.check_value_only(value, depth)?;
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
            value => {
                self.check_value_only(value, above.len())?;
                *value = self.value.clone();
            }
        }
        Ok(())
    }

    /// Below what is neither a table nor a list, there is at most its value.
    fn check_value_only(&self, value: &Value, depth: usize) -> Result<(), Box<Diagnostic>> {
        if self.path[depth..] == ["value"] {
            return Ok(());
        }
        let (above, below) = (self.path[..depth].join("."), self.path[depth..].join("."));
        let wrong = format!("`{above}` is {}, which has no `{below}`", value.type_name());
        Err(Box::new(Diagnostic::new(&self.key, wrong).help(format!("set `{above}` itself, or another key"))))
    }

    /// The item of a list addressed by the path's segment at `depth`: by index or `name`.
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

    /// Applies the change to a document, keeping its comments.
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
