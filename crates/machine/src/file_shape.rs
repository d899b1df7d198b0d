//! The kinds of files, each with every key, its meaning and type.

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
use crate::shape::Shape;

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
