//! The allowed content of files: every key with its meaning and type.
//!
//! The same types parse and describe files, so the two cannot diverge.

use std::fmt::Write as _;

use crate::computer::ComputerScenario;
use crate::doc::Kindred;
use crate::drive::Drive;
use crate::gpu::Gpu;
use crate::host::Machine;
use crate::kernel::KernelFile;
use crate::nic::Nic;
use crate::ntb::{ClusterSwitch, Ntb};
use crate::part::Part;
use crate::pcie_switch::PcieSwitch;
use crate::scenario::Scenario;

/// Allowed values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// One value of TOML.
    Single(Single),
    /// A value with provenance: bare in a table with a `source`, or a table with `value` and `source`.
    Figure(Box<Shape>),
    /// A table with these keys.
    Table(Vec<Key>),
    /// A list.
    List(Box<Shape>),
    /// A value or a list of them.
    Several(Box<Shape>),
    /// A table with arbitrary names as keys.
    Named(Box<Shape>),
    /// A table with the keys of another file.
    Changes,
}

/// One value of TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Single {
    /// JSON type: `string`, `integer`, `number`, `boolean`.
    pub kind: &'static str,
    /// Description: `a time with its unit`.
    pub what: &'static str,
    /// An example in TOML; empty if not needed.
    pub example: &'static str,
    /// Minimum and maximum in TOML.
    pub range: Option<(String, String)>,
    /// All possible values, if there are few.
    pub choices: Vec<String>,
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, unit and default.
    pub about: String,
    /// Whether it is required.
    pub required: bool,
    /// Allowed values.
    pub shape: Shape,
}

/// A kind of file.
pub struct FileShape {
    /// Name of the kind: `machine`, `scenario`.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// Folder of the files: `machines/nics`.
    pub folder: &'static str,
    /// Top-level keys.
    pub shape: Shape,
    /// Whether it may extend another file of its kind.
    pub extends: bool,
}

fn of<T: Kindred>(name: &'static str, about: &'static str, extends: bool) -> FileShape {
    FileShape { name, about, folder: T::FOLDER, shape: T::shape(), extends }
}

/// All kinds of files.
pub fn files() -> Vec<FileShape> {
    vec![
        of::<Machine>(
            "machine",
            "A computer without the devices in its slots: sockets, caches, memory, root ports.",
            true,
        ),
        of::<Part>("card", "A card with a DMA engine, as pcie-bench runs on.", true),
        of::<Nic>("nic", "A network card.", true),
        of::<Drive>("drive", "An NVMe drive.", true),
        of::<Gpu>("gpu", "A GPU.", true),
        of::<Ntb>("ntb", "An adapter with a non-transparent bridge.", true),
        of::<ClusterSwitch>("cluster-switch", "A switch between NTB adapters.", true),
        of::<PcieSwitch>("switch", "A PCIe switch.", true),
        of::<KernelFile>("kernel", "An operating system's kernel: what its work costs.", true),
        of::<Scenario>("bench-scenario", "pcie-bench on a machine with a card.", false),
        of::<ComputerScenario>(
            "scenario",
            "Computers with devices, cables between them, and programs that run on them.",
            false,
        ),
    ]
}

/// The doc comment in an attribute's text, `doc = " text"`; empty for another attribute.
pub(crate) fn about(attributes: &[&str]) -> String {
    let line = |attribute: &&str| {
        let text = attribute.trim().strip_prefix("doc")?.trim_start().strip_prefix('=')?.trim();
        let text = text.trim_start_matches('r').trim_matches('#').strip_prefix('"')?.strip_suffix('"')?;
        Some(text.replace("\\\"", "\"").replace("\\\\", "\\").trim().to_owned())
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join(" ")
}

impl Shape {
    /// A short description.
    pub fn words(&self) -> String {
        match self {
            Self::Single(single) => single.words(),
            Self::Figure(inner) => format!("{}; a figure, with its source", inner.words()),
            Self::Table(_) => "a table".to_owned(),
            Self::List(inner) => format!("a list: {}", inner.words()),
            Self::Several(inner) => format!("one or a list: {}", inner.words()),
            Self::Named(inner) => format!("a table by name: {}", inner.words()),
            Self::Changes => "a table laid out as the file that it changes".to_owned(),
        }
    }

    /// The inner table, if there is one.
    fn table(&self) -> Option<&[Key]> {
        match self {
            Self::Table(keys) => Some(keys),
            Self::List(inner) | Self::Named(inner) | Self::Several(inner) => inner.table(),
            _ => None,
        }
    }

    /// As a JSON Schema (draft 2020-12).
    pub fn schema(&self) -> serde_json::Value {
        use serde_json::json;
        match self {
            Self::Single(single) => single.schema(),
            Self::Figure(inner) => {
                let value = inner.schema();
                let text = json!({"type": "string"});
                json!({"anyOf": [value, {
                    "type": "object", "required": ["value"], "additionalProperties": false,
                    "properties": {
                        "value": value, "source": text, "kind": text, "determined": text, "uncertainty": text,
                        "without": text,
                    },
                }]})
            }
            Self::Table(keys) => {
                let property = |key: &Key| {
                    let mut schema = key.shape.schema();
                    schema["description"] = key.about.clone().into();
                    (key.name.to_owned(), schema)
                };
                let mut properties: serde_json::Map<String, serde_json::Value> =
                    keys.iter().map(property).collect();
                // Every table may have a `source` for its figures.
                properties.entry("source").or_insert_with(|| json!({"type": "string"}));
                let required: Vec<&str> =
                    keys.iter().filter(|key| key.required).map(|key| key.name).collect();
                json!({
                    "type": "object", "properties": properties, "required": required, "additionalProperties": false,
                })
            }
            Self::List(inner) => json!({"type": "array", "items": inner.schema()}),
            Self::Several(inner) => {
                let one = inner.schema();
                json!({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})
            }
            Self::Named(inner) => {
                json!({"type": "object", "properties": {"source": {"type": "string"}}, "additionalProperties": inner.schema()})
            }
            Self::Changes => json!({"type": "object"}),
        }
    }
}

impl Single {
    fn words(&self) -> String {
        let mut text = self.what.to_owned();
        if !self.choices.is_empty() {
            let all: Vec<String> = self.choices.iter().map(|choice| format!("`{choice}`")).collect();
            text = all.join(", ");
        }
        if !self.example.is_empty() {
            let _ = write!(text, ", such as `\"{}\"`", self.example);
        }
        if let Some((least, most)) = &self.range {
            let _ = write!(text, ", from {least} to {most}");
        }
        text
    }

    fn schema(&self) -> serde_json::Value {
        let mut schema = serde_json::json!({"type": self.kind});
        if !self.choices.is_empty() {
            // Numeric choices are numbers.
            let choice = |choice: &String| -> serde_json::Value {
                match self.kind {
                    "string" => choice.as_str().into(),
                    _ => serde_json::from_str(choice).unwrap_or_default(),
                }
            };
            schema["enum"] = self.choices.iter().map(choice).collect();
        }
        if self.kind == "integer"
            && let Some((least, most)) = &self.range
            && let (Ok(least), Ok(most)) = (least.parse::<i64>(), most.parse::<i64>())
        {
            schema["minimum"] = least.into();
            schema["maximum"] = most.into();
        }
        schema
    }
}

impl FileShape {
    /// The file's JSON Schema. Keys of a file that extends another are not required.
    pub fn schema(&self) -> serde_json::Value {
        let mut schema = self.shape.schema();
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        schema["title"] = format!("nearfar {}", self.name).into();
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
        let mut text = format!("# Keys of a {} file\n\n{}\n", self.name, self.about);
        if self.extends {
            text += "\n`extends = \"NAME\"` takes another file of the kind over, but for what this one says itself.\n";
        }
        tables(&mut text, "", &self.shape);
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
