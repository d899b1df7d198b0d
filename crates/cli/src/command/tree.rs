//! `nearfar tree`: what the kernels of a scenario find and make of it.

use std::path::PathBuf;
use std::process::ExitCode;

use nearfar::computer::{self, SysNode};
use nearfar::experiment::Experiment;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::{Common, input, output};

/// Boot the hosts of a scenario and show their devices, interrupts, queues and nodes, as sysfs does.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar tree pktgen
  nearfar tree pktgen devices/system/node                  one folder
  nearfar tree pktgen devices/system/node/node0/cpulist    one attribute
  nearfar tree pktgen --json -
  nearfar tree fio-switch --lspci . && lspci -F a.lspci -vvv")]
pub struct Arguments {
    /// The scenario, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// Only this folder or attribute, by its path below each host's tree.
    path: Option<String>,
    /// Change a value of the scenario.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    /// Write each host's configuration spaces into this folder, as HOST.lspci: `lspci -F HOST.lspci -vvv` shows them.
    #[arg(long, value_name = "DIR", value_parser = output::folder)]
    lspci: Option<PathBuf>,
    /// Write the trees as JSON; - for the standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    json: Option<PathBuf>,
}

/// A folder as JSON: attributes are strings, folders objects.
fn json(folder: &SysNode) -> Value {
    let attributes = folder.attributes.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
    let children = folder.children.iter().map(|child| (child.name.clone(), json(child)));
    Value::Object(attributes.chain(children).collect::<Map<_, _>>())
}

/// Runs the command.
pub fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let library = input::library(common);
    let Experiment::Computers(setup) =
        input::scenario(&library, &arguments.scenario, "--set", &arguments.set)?
    else {
        return Err(Failure::new(format!(
            "{} has a machine with a card, on which no kernel runs; `tree` is for scenarios with computers, such as pktgen",
            arguments.scenario
        )));
    };
    if let Some(folder) = &arguments.lspci {
        for (host, text) in computer::configuration(&setup)? {
            let path = folder.join(format!("{host}.lspci"));
            output::write(&path, text.as_bytes())?;
            output::complain(&format!("written: {}", path.display()));
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
    output::records(arguments.json.as_deref(), rows, &provenance)?;
    if !output::is_stdout(arguments.json.as_deref()) {
        output::heading(&provenance);
        output::print(&output::prose(&text));
    }
    Ok(ExitCode::SUCCESS)
}
