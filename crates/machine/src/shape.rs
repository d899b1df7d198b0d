//! The allowed content of a value in a file. The same types parse and describe it, so the two cannot diverge.

use std::fmt::Write as _;

/// Allowed values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// One value of TOML.
    Single(Single),
    /// A value with provenance: bare in a table with a `source`, or a table with `value` and `source`.
    Figure(Box<Shape>),
    /// A table with these keys.
    Table(Vec<Key>),
    /// A list of any number of values of this shape.
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
    /// Spelling in the file.
    pub name: &'static str,
    /// Its meaning, unit and default.
    pub about: String,
    /// Whether it is required.
    pub required: bool,
    /// Allowed values.
    pub shape: Shape,
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
    pub(crate) fn table(&self) -> Option<&[Key]> {
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
