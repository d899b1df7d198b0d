//! `nearfar p2p`: what GPUs copy to each other.

use std::path::PathBuf;
use std::process::ExitCode;

use nearfar::computer;
use nearfar::experiment::{Experiment, ExperimentError};
use nearfar::peers::{self, MemoryCell, PeerCell, PeerMatrix, PeerOptions};
use survey::{NcclRate, Survey};

use super::export::packed;
use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable};
use crate::{Common, input, output, progress};

/// Bandwidth and latency between all GPUs of a host, and with the memory of its nodes.
///
/// One pair at a time and all at once, with the way of each and what binds it.
#[derive(clap::Args)]
#[command(after_help = "\
A scenario keeps its hosts, switches and devices; its programs give way to the test. A machine gets a GPU in each slot of x16.
GPUs have the kernel's numbers: those below switches first (`nearfar tree` shows them). Rates are those of long copies.

Examples:
  nearfar p2p gpu-switches                    four GPUs below two switches
  nearfar p2p epyc-9575f                      a GPU in each slot
  nearfar p2p gpu-switches --svg p2p.html     heat maps, with what binds each way
  nearfar p2p gpu-switches --nccl topo.xml    NCCL's topology with the simulated rates
  nearfar p2p gpu-switches --set host.a.iommu=strict --json p2p.json")]
pub struct P2pArgs {
    /// A scenario or a machine, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// The GPU for a machine's slots.
    #[arg(long, default_value = "rtx-pro-6000")]
    gpu: String,
    /// Bytes of the shorter of the two copies that a rate is from; the other one has three times as many.
    #[arg(long, default_value_t = 512 << 10, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    bytes: u64,
    /// The destination reads, instead of the source writing.
    #[arg(long)]
    read: bool,
    /// Change a value of the scenario, as `run` does.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    /// Draw rates and latencies as heat maps; as a page if the name ends with .html.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    svg: Option<PathBuf>,
    /// Write NCCL's topology (NCCL_TOPO_FILE) with the simulated rates: each link has as many lanes as carry, as NCCL counts, the fastest
    /// copy that passes it, and each GPU a `peer` for each other one.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    nccl: Option<PathBuf>,
    #[command(flatten)]
    records: Records,
}

pub fn run(common: &Common, arguments: &P2pArgs) -> Result<ExitCode, Failure> {
    let mut places = arguments
        .records
        .places(&[("--svg", arguments.svg.as_deref()), ("--nccl", arguments.nccl.as_deref())])?;
    if let Some(path) = &arguments.svg {
        places.writes_origin("--svg", path)?;
    }
    let library = input::library(common);
    // A machine is read in the attempt.
    if let Ok(Experiment::Computers(setup)) =
        Experiment::load(&library, &arguments.scenario, "--set", &arguments.set)
    {
        places.writes_of(&setup)?;
    }
    places.reads([&arguments.scenario, &arguments.gpu])?;
    places.reads_through(&library)?;
    let to_stdout = places.to_stdout;
    let progress = progress::of(common);
    let options = PeerOptions { gpu: arguments.gpu.clone(), bytes: arguments.bytes, reads: arguments.read };
    let matrix =
        peers::matrix(&library, &arguments.scenario, "--set", &arguments.set, &options, progress.as_ref())?;
    let provenance = output::provenance(matrix.setup.seed, &[("--set", &arguments.set)], &library);
    arguments.records.write(matrix.records(), &provenance)?;
    if let Some(path) = &arguments.svg {
        let is_page = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("html"));
        let drawn = if is_page { matrix.page() } else { matrix.heat_map() };
        output::with_origin(path, files::shown(&drawn).as_bytes(), &provenance)?;
    }
    if let Some(path) = &arguments.nccl {
        output::write(path, files::shown(&nccl(&matrix)?).as_bytes())?;
    }
    if !to_stdout {
        output::heading(&provenance);
        show(&matrix);
    }
    Ok(output::complain_of(&matrix.failed))
}

/// NCCL's topology of the GPUs' host, with their rates.
fn nccl(matrix: &PeerMatrix) -> Result<String, Failure> {
    let all = computer::system_files(&matrix.setup).map_err(ExperimentError::from)?;
    let own = all.into_iter().find(|own| own.host == matrix.host).unwrap_or_default();
    let survey = Survey::from_bytes(&matrix.host, &packed(&own)?).map_err(Failure::new)?;
    let rate = |cell: &PeerCell| {
        let PeerCell { from, to, both_ways, flag, .. } = *cell;
        Some(NcclRate { from, to, one_way: cell.one_way?, both_ways, flag })
    };
    Ok(survey.to_nccl_xml_with(&matrix.cells.iter().filter_map(rate).collect::<Vec<_>>()))
}

fn show(matrix: &PeerMatrix) {
    type Value = fn(&PeerCell) -> Option<f64>;
    let tables: [(&str, Value); 3] = [
        ("one way, GB/s, from row to column", |cell| cell.one_way),
        ("both ways at once, GB/s", |cell| cell.both_ways),
        ("a flag from kernel to kernel, us", |cell| cell.flag),
    ];
    for (title, value) in tables {
        let names: Vec<String> = (0..matrix.gpus).map(|gpu| format!("gpu{gpu}")).collect();
        let header = std::iter::once(title).chain(names.iter().map(String::as_str));
        let mut table = TextTable::new(header, Fit::Fold(0)).numbers(1..1 + matrix.gpus);
        for (from, name) in names.iter().enumerate() {
            let cells = (0..matrix.gpus).map(|to| {
                let value = matrix.cell(from, to).and_then(value);
                value.map_or("-".to_owned(), |value| format!("{value:.2}"))
            });
            table.add(std::iter::once(name.clone()).chain(cells).collect());
        }
        output::print(&(table.render(output::width()) + "\n"));
    }
    type Of = fn(&MemoryCell) -> Option<f64>;
    let tables: [(&str, usize, Of); 3] = [
        ("from memory to GPU, GB/s", 2, |cell| cell.from_memory),
        ("from GPU to memory, GB/s", 2, |cell| cell.to_memory),
        ("a kernel's load from memory, ns", 0, |cell| cell.load),
    ];
    for (title, digits, value) in tables {
        let names: Vec<String> = (0..matrix.gpus).map(|gpu| format!("gpu{gpu}")).collect();
        let header = std::iter::once(title).chain(names.iter().map(String::as_str));
        let mut table = TextTable::new(header, Fit::Fold(0)).numbers(1..1 + matrix.gpus);
        for node in matrix.nodes() {
            let cells = (0..matrix.gpus).map(|gpu| {
                let value = matrix.memory(node, gpu).and_then(value);
                value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            });
            table.add(std::iter::once(format!("node {node}")).chain(cells).collect());
        }
        output::print(&(table.render(output::width()) + "\n"));
    }
    let mut table = TextTable::new(["", "GB/s"], Fit::Fold(0)).numbers(1..2);
    for (what, rate) in &matrix.others {
        table.add(vec![what.clone(), format!("{rate:.2}")]);
    }
    output::print(&(table.render(output::width()) + "\n"));
    for (gpu, place) in matrix.places.iter().enumerate() {
        output::print(&output::prose(&format!("gpu{gpu}: {place}")));
    }
    // Pairs alike are told together.
    let mut told: Vec<(&str, Vec<String>)> = Vec::new();
    for PeerCell { from, to, binds, .. } in &matrix.cells {
        let pair = format!("{from} to {to}");
        let cause = binds.split([',', ';']).next().unwrap_or_default();
        match told.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, pairs)) => pairs.push(pair),
            None => told.push((cause, vec![pair])),
        }
    }
    for (cause, pairs) in told {
        output::print(&output::prose(&format!("what binds {}: {cause}", pairs.join(", "))));
    }
    output::print(&output::trust_lines(&matrix.origins, &[]));
}
