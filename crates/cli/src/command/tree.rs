//! `nearfar tree`: the device trees of a scenario's kernels.

use std::path::PathBuf;
use std::process::ExitCode;

use nearfar::computer::{self, SysNode};
use nearfar::experiment::Experiment;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::output::Records;
use crate::{Common, input, output};

/// Boot a scenario's hosts and show devices, interrupts, queues and nodes, like sysfs.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar tree pktgen
  nearfar tree pktgen devices/system/node                  one folder
  nearfar tree pktgen devices/system/node/node0/cpulist    one attribute
  nearfar tree pktgen --json -
  nearfar tree fio-randread --nvme drives
  nearfar tree fio-switch --lspci . && lspci -F a.lspci -vvv")]
pub struct TreeArgs {
    /// The scenario, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// Only this folder or attribute; a path below each host's tree.
    path: Option<String>,
    /// Change a value of the scenario.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    /// The folder below which the scenario's own files are written: captures and drives' blocks. By default, the folder
    /// of the scenario's file; for a built-in scenario, the current one.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write each host's configuration spaces into this folder as HOST.lspci: `lspci -F HOST.lspci -vvv` shows them.
    #[arg(long, value_name = "DIR", value_parser = output::folder)]
    lspci: Option<PathBuf>,
    /// Write each drive's Identify, SMART and other log pages into folders HOST-DRIVE in this folder, as binary files
    /// that nvme-cli decodes (see tools/nvme-files.c).
    #[arg(long, value_name = "DIR", value_parser = output::folder)]
    nvme: Option<PathBuf>,
    #[command(flatten)]
    records: Records,
}

impl TreeArgs {
    fn named(&self) -> input::Named<'_> {
        input::Named { scenario: &self.scenario, folder: self.folder.as_deref() }
    }
}

/// A folder as JSON: attributes are strings, folders are objects.
fn json(folder: &SysNode) -> Value {
    let attributes = folder.attributes.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
    let children = folder.children.iter().map(|child| (child.name.clone(), json(child)));
    Value::Object(attributes.chain(children).collect::<Map<_, _>>())
}

/// A host's tree with one row per attribute.
fn attributes(tree: &Value) -> Vec<Value> {
    fn add(host: &Value, path: &str, value: &Value, to: &mut Vec<Value>) {
        match value {
            Value::Object(folder) => {
                let below =
                    |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                folder.iter().for_each(|(name, value)| add(host, &below(name), value, to));
            }
            value => to.push(serde_json::json!({ "host": host, "path": path, "value": value })),
        }
    }
    let mut all = Vec::new();
    add(&tree["host"], tree["path"].as_str().unwrap_or_default(), &tree["value"], &mut all);
    all
}

pub fn run(common: &Common, arguments: &TreeArgs) -> Result<ExitCode, Failure> {
    let mut places = arguments.records.places(&[])?;
    let library = input::library(common);
    let experiment = input::scenario(&library, &arguments.named(), "--set", &arguments.set)?;
    input::places(&mut places, &library, &experiment)?;
    if let Some(folder) = arguments.nvme.as_ref().filter(|folder| folder.exists() && !folder.is_dir()) {
        return Err(Failure::new(format!("--nvme: `{}` is no folder; name another one", folder.display())));
    }
    if let Some(folder) = &arguments.nvme {
        places.writes("--nvme", folder)?;
    }
    let to_stdout = places.to_stdout;
    let Experiment::Computers(setup) = experiment else {
        return Err(Failure::new(format!(
            "{} has a machine with a card, on which no kernel runs; `tree` is for scenarios with computers, such as pktgen",
            arguments.scenario
        )));
    };
    if let Some(folder) = &arguments.lspci {
        let all = computer::configuration(&setup)?;
        let path = |host: &str| folder.join(format!("{host}.lspci"));
        all.iter().try_for_each(|(host, _)| places.writes("--lspci", &path(host)))?;
        places.reads_through(&library)?;
        for (host, text) in all {
            let path = path(&host);
            output::write(&path, text.as_bytes())?;
            output::complain(&format!("written: {}", path.display()));
        }
    }
    if let Some(folder) = &arguments.nvme {
        let drives = computer::nvme_pages(&setup)?;
        if drives.is_empty() {
            return Err(Failure::new("--nvme: no host of this scenario has a drive"));
        }
        for drive in drives {
            let folder = folder.join(format!("{}-{}", drive.host, drive.device));
            for (name, page) in &drive.pages {
                output::write(&folder.join(format!("{name}.bin")), page)?;
            }
            output::complain(&format!("written: {}", folder.display()));
        }
    }
    let trees = computer::tree(&setup)?;
    let path = arguments.path.as_deref().unwrap_or_default();
    let (mut rows, mut text) = (Vec::new(), String::new());
    for (host, tree) in &trees {
        let value = match (tree.folder(path), tree.get(path)) {
            (Some(folder), _) => {
                text += &format!("{host}:\n{folder}");
                json(folder)
            }
            (None, Some(value)) => {
                text += &format!("{host}: {value}\n");
                value.into()
            }
            (None, None) => continue,
        };
        rows.push(serde_json::json!({ "host": host, "path": path, "value": value }));
    }
    if rows.is_empty() {
        return Err(Failure::new(format!("no host has `{path}`; without a path the whole tree is shown")));
    }
    let provenance = output::provenance(setup.seed, &[("--set", &arguments.set)], &library);
    let flat: Vec<Value> = rows.iter().flat_map(attributes).collect();
    arguments.records.write_tables(&flat, &provenance)?;
    output::list(arguments.records.json(), rows, &provenance)?;
    if !to_stdout {
        output::heading(&provenance);
        output::print(&output::prose(&text));
    }
    Ok(ExitCode::SUCCESS)
}
