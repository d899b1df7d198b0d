//! `nearfar machines`: what there is to choose from.

use std::path::PathBuf;
use std::process::ExitCode;

use machine::{ComputerScenario, Doc, Drive, KernelFile, Kindred, Library, Machine, Nic, Part, Scenario};

use crate::failure::Failure;
use crate::{Common, input, output};

/// List machines, devices, kernels and scenarios, or every figure of one of them with its source.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar machines
  nearfar machines dell-t430")]
pub struct Arguments {
    /// A machine, card, drive, NIC or kernel whose figures to list.
    name: Option<String>,
    /// Write the list as JSON; - for the standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let library = input::library(common);
    let to_stdout = output::is_stdout(arguments.json.as_deref());
    let Some(name) = &arguments.name else {
        let mut all = Vec::new();
        for name in library.names("machines") {
            all.push(("machine", name.clone(), read::<Machine>(&library, &name)?.summary));
        }
        for name in library.names("machines/parts") {
            all.push(("card", name.clone(), read::<Part>(&library, &name)?.summary));
        }
        for name in library.names("machines/drives") {
            all.push(("drive", name.clone(), read::<Drive>(&library, &name)?.summary));
        }
        for name in library.names("machines/nics") {
            all.push(("NIC", name.clone(), read::<Nic>(&library, &name)?.summary));
        }
        for name in library.names("machines/kernels") {
            all.push(("kernel", name.clone(), read::<KernelFile>(&library, &name)?.summary));
        }
        for name in library.names("scenarios") {
            let computers = Doc::<ComputerScenario>::load(&library, &name)?;
            let summary = match computers.has("host")? {
                true => computers.read()?.summary,
                false => read::<Scenario>(&library, &name)?.summary,
            };
            all.push(("scenario", name, summary));
        }
        let json: Vec<_> = all
            .iter()
            .map(|(kind, name, summary)| serde_json::json!({"kind": kind, "name": name, "summary": summary}))
            .collect();
        output::json(arguments.json.as_deref(), &json)?;
        if !to_stdout {
            let rows = all.into_iter().map(|(kind, name, summary)| vec![kind.to_owned(), name, summary]);
            output::print(&output::table(&["", "name", "what it is"], rows));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let is_in = |folder: &str| library.names(folder).contains(name);
    let figures = match () {
        () if is_in("machines/parts") => Doc::<Part>::load(&library, name)?.list()?,
        () if is_in("machines/drives") => Doc::<Drive>::load(&library, name)?.list()?,
        () if is_in("machines/nics") => Doc::<Nic>::load(&library, name)?.list()?,
        () if is_in("machines/kernels") => Doc::<KernelFile>::load(&library, name)?.list()?,
        () => Doc::<Machine>::load(&library, name)?.list()?,
    };
    let json: Vec<_> = figures
        .iter()
        .map(|f| {
            serde_json::json!({
                "path": f.path, "value": f.value.trim().trim_matches('"'), "kind": f.provenance.kind.as_str(),
                "source": f.provenance.source, "uncertainty": f.provenance.uncertainty,
                "determined": f.provenance.determined.map(machine::Determined::as_str),
            })
        })
        .collect();
    output::json(arguments.json.as_deref(), &json)?;
    if !to_stdout {
        let rows = figures.into_iter().map(|f| {
            let determined = f.provenance.determined.map_or("", machine::Determined::as_str);
            vec![
                f.path,
                f.value.trim().trim_matches('"').to_owned(),
                determined.to_owned(),
                f.provenance.source,
            ]
        });
        output::print(&output::table(&["figure", "value", "determined", "source"], rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn read<T: Kindred>(library: &Library, name: &str) -> Result<T, Failure> {
    Ok(Doc::<T>::load(library, name)?.read()?)
}
