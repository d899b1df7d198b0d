//! What is alike for all kinds of files.

use std::fmt::Write as _;
use std::path::Path;

use crate::diagnostic::Diagnostics;
use crate::doc::{Doc, Kindred, Listed};
use crate::library::Library;
use crate::shape::Shape;

/// A kind of file: what its type says as [`Kindred`].
pub struct FileKind {
    /// Its word on command lines, in records and in scenarios: `machine`, `nic`.
    pub word: &'static str,
    /// Its name in lists: `NIC`.
    pub listed: &'static str,
    /// Description.
    pub about: &'static str,
    /// Folder of the files: `machines/nics`.
    pub folder: &'static str,
    /// Whether it may extend another file of its kind. Those that may not are scenarios.
    pub extends: bool,
    /// Which file a template extends, and a figure that is often changed.
    pub template: Option<[&'static str; 2]>,
    /// Top-level keys.
    pub shape: fn() -> Shape,
    load: Load,
}

/// Opens a file by its name, or with a text.
type Load = fn(&Library, &str, Option<&str>) -> Result<Box<dyn AnyDoc>, Diagnostics>;

fn load<T: Kindred + Clone + 'static>(
    library: &Library,
    name: &str,
    text: Option<&str>,
) -> Result<Box<dyn AnyDoc>, Diagnostics> {
    Ok(match text {
        Some(text) => Box::new(Doc::<T>::from_text(library, name, text)),
        None => Box::new(Doc::<T>::load(library, name)?),
    })
}

/// A [`Doc`] of any kind.
pub trait AnyDoc: Send + Sync {
    /// As [`Doc::name`].
    fn name(&self) -> &str;
    /// As [`Doc::text`].
    fn text(&self) -> &str;
    /// As [`Doc::has`].
    ///
    /// # Errors
    /// As there.
    fn has(&self, key: &str) -> Result<bool, Diagnostics>;
    /// As [`Doc::set_by`].
    ///
    /// # Errors
    /// As there.
    fn set_by(
        &mut self,
        option: &str,
        within: Option<&str>,
        path: &str,
        text: &str,
    ) -> Result<(), Diagnostics>;
    /// As [`Doc::list`].
    ///
    /// # Errors
    /// As there.
    fn list(&self) -> Result<Vec<Listed>, Diagnostics>;
    /// Its line about itself. The whole file is read.
    ///
    /// # Errors
    /// As [`Doc::read`].
    fn summary(&self) -> Result<String, Diagnostics>;
    /// As [`Doc::to_text`].
    ///
    /// # Errors
    /// As there.
    fn to_text(&self) -> Result<String, Diagnostics>;
    /// As [`Doc::save`].
    ///
    /// # Errors
    /// As there.
    fn save(&self, path: &Path) -> Result<(), Diagnostics>;
    /// Another one like it.
    fn copy(&self) -> Box<dyn AnyDoc>;
}

impl<T: Kindred + Clone + 'static> AnyDoc for Doc<T> {
    fn name(&self) -> &str {
        self.name()
    }

    fn text(&self) -> &str {
        self.text()
    }

    fn has(&self, key: &str) -> Result<bool, Diagnostics> {
        self.has(key)
    }

    fn set_by(
        &mut self,
        option: &str,
        within: Option<&str>,
        path: &str,
        text: &str,
    ) -> Result<(), Diagnostics> {
        self.set_by(option, within, path, text)
    }

    fn list(&self) -> Result<Vec<Listed>, Diagnostics> {
        self.list()
    }

    fn summary(&self) -> Result<String, Diagnostics> {
        Ok(self.read()?.summary().to_owned())
    }

    fn to_text(&self) -> Result<String, Diagnostics> {
        self.to_text()
    }

    fn save(&self, path: &Path) -> Result<(), Diagnostics> {
        self.save(path)
    }

    fn copy(&self) -> Box<dyn AnyDoc> {
        Box::new(self.clone())
    }
}

impl FileKind {
    pub(crate) const fn of<T: Kindred + Clone + 'static>() -> Self {
        Self {
            word: T::WORD,
            listed: T::LISTED,
            about: T::ABOUT,
            folder: T::FOLDER,
            extends: T::EXTENDS,
            template: T::TEMPLATE,
            shape: T::shape,
            load: load::<T>,
        }
    }

    /// The file with this name or path, or with `text`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(
        &self,
        library: &Library,
        name: &str,
        text: Option<&str>,
    ) -> Result<Box<dyn AnyDoc>, Diagnostics> {
        (self.load)(library, name, text)
    }

    /// The file's JSON Schema. Keys of a file that extends another are not required.
    pub fn schema(&self) -> serde_json::Value {
        let mut schema = (self.shape)().schema();
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        schema["title"] = format!("nearfar {}", self.word).into();
        schema["description"] = self.about.into();
        if self.extends {
            schema["properties"]["extends"] = serde_json::json!({
                "type": "string", "description": "The file of the same kind that this one takes over, but for what it says itself",
            });
            let whole = schema.clone();
            relax(&mut schema);
            schema["if"] = serde_json::json!({"required": ["extends"]});
            schema["else"] = serde_json::json!({"required": whole["required"]});
        }
        schema
    }

    /// The file's reference in Markdown: a table of keys for each table of the file.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Keys of a {} file\n\n{}\n", self.word, self.about);
        if self.extends {
            text += "\n`extends = \"NAME\"` takes another file of the kind over, but for what this one says itself.\n";
        }
        tables(&mut text, "", &(self.shape)());
        text
    }
}

/// Makes keys optional that the extended file provides.
fn relax(schema: &mut serde_json::Value) {
    match schema {
        serde_json::Value::Object(fields) => {
            // A figure's own `value` is always required.
            let is_figure = fields.get("properties").is_some_and(|keys| keys.get("determined").is_some());
            if !is_figure {
                fields.remove("required");
            }
            fields.values_mut().for_each(relax);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(relax),
        _ => {}
    }
}

fn tables(text: &mut String, path: &str, shape: &Shape) {
    let Some(keys) = shape.table() else { return };
    let title = if path.is_empty() { "At the top".to_owned() } else { format!("`{path}`") };
    let _ = writeln!(text, "\n## {title}\n\n| Key | Meaning | Value |\n|---|---|---|");
    for key in keys {
        let cell = |text: &str| text.replace('|', "\\|");
        let required = if key.required { " (required)" } else { "" };
        let _ = writeln!(
            text,
            "| `{}`{required} | {} | {} |",
            key.name,
            cell(&key.about),
            cell(&key.shape.words())
        );
    }
    for key in keys {
        let below = match &key.shape {
            Shape::List(_) => format!("[[{}]]", crate::read::join(path.trim_matches(['[', ']']), key.name)),
            Shape::Named(_) => crate::read::join(path, &format!("{}.NAME", key.name)),
            _ => crate::read::join(path, key.name),
        };
        tables(text, &below, &key.shape);
    }
}
