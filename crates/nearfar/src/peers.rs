//! What GPUs of a host copy to each other and to the memories of its nodes, pair by pair and all at once, by which way, and what binds
//! each copy.

mod heat_map;
mod way;

use std::path::Path;

use machine::{ComputerScenario, ComputerSetup, DeviceFile, Diagnostics, DmaMode, Doc, Library, Machine};
use serde_json::json;
use workloads::Report;

use crate::computer::{self, Counts};
use crate::experiment::{Changes, ExperimentError};
use crate::origins::Origins;
use crate::progress::Progress;
use crate::records::Record;
pub use way::PeerPlace;

/// One GPU's way to another.
#[derive(Clone, Debug)]
pub struct PeerCell {
    /// Number of the source, as the kernel numbers it.
    pub from: usize,
    /// Number of the destination.
    pub to: usize,
    /// Rate of a long copy, in GB/s; `None` if it failed.
    pub one_way: Option<f64>,
    /// Rate of two copies, one each way, in GB/s.
    pub both_ways: Option<f64>,
    /// Time that a flag takes, in microseconds.
    pub flag: Option<f64>,
    /// What binds a single copy.
    pub binds: String,
    /// What a copy passes, the two GPUs left out.
    pub hops: Vec<String>,
}

/// A GPU's way to the memory of a node and back.
#[derive(Clone, Debug)]
pub struct MemoryCell {
    /// The node.
    pub node: u32,
    /// Number of the GPU.
    pub gpu: usize,
    /// Rate of a long copy from the memory, in GB/s; `None` if it failed.
    pub from_memory: Option<f64>,
    /// Rate of a long copy to the memory, in GB/s.
    pub to_memory: Option<f64>,
    /// Time of a kernel's load from the memory, in nanoseconds.
    pub load: Option<f64>,
}

/// All ways between the GPUs of a host.
#[derive(Debug)]
pub struct PeerMatrix {
    /// The scenario's setup.
    pub setup: ComputerSetup,
    /// The host of the GPUs.
    pub host: String,
    /// The number of GPUs.
    pub gpus: usize,
    /// Each pair, by source and destination.
    pub cells: Vec<PeerCell>,
    /// Each GPU with each node's memory, by node and GPU.
    pub memories: Vec<MemoryCell>,
    /// Where the GPUs are.
    pub places: Vec<PeerPlace>,
    /// Copies with host memory and of all GPUs at once: what they are, and their rate in GB/s.
    pub others: Vec<(String, f64)>,
    /// Failed programs, with the reason.
    pub failed: Vec<String>,
    /// Where the figures come from that the rates rest on.
    pub origins: Origins,
}

/// How to look at the ways.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// The GPU that fills a machine's slots.
    pub gpu: String,
    /// Bytes of the shorter of two copies that a rate is from.
    pub bytes: u64,
    /// Whether the destination reads, instead of the source writing.
    pub reads: bool,
}

/// Lanes of a slot that takes a GPU.
const LANES: u32 = 16;

/// Simulates all pairs of GPUs of a scenario's first host that has two; of a machine, with a GPU in each slot of x16.
///
/// # Errors
/// If there is no such scenario or machine, or no host has two GPUs.
pub fn matrix(
    library: &Library,
    name: &str,
    option: &str,
    changes: &Changes,
    options: &PeerOptions,
    progress: &dyn Progress,
) -> Result<PeerMatrix, ExperimentError> {
    let scenario = Doc::<ComputerScenario>::load(library, name).and_then(|doc| doc.read().map(|_| doc));
    let mut base = match scenario {
        Ok(doc) => doc,
        Err(no_scenario) => match Doc::<Machine>::load(library, name).and_then(|doc| doc.read()) {
            Ok(machine) => filled(library, name, &machine, &options.gpu),
            Err(_) => return Err(no_scenario.into()),
        },
    };
    crate::experiment::set_all(&mut base, option, changes)?;
    let setup = ComputerSetup::load(library, &base)?;
    let is_gpu = |device: &DeviceFile| device.gpu().is_some();
    let gpus_of =
        |host: &machine::HostSetup| host.devices.iter().filter(|device| is_gpu(&device.kind)).count();
    let Some((host, gpus)) =
        setup.hosts.iter().map(|host| (host.name.clone(), gpus_of(host))).find(|&(_, gpus)| gpus > 1)
    else {
        let help = "a scenario such as gpu-switches, or a machine with two slots of x16";
        return Err(Diagnostics::about(name, "no host has two GPUs", Some(help.to_owned())).into());
    };
    base.remove("program")?;
    base.remove("event")?;
    let text = base.to_text()?;
    let with = |run: &str| -> Result<ComputerSetup, ExperimentError> {
        let text = format!("{text}\n[[program]]\nhost = {host:?}\ncpus = \"0\"\nrun = {run:?}\n");
        let setup = ComputerSetup::load(library, &Doc::<ComputerScenario>::from_text(library, name, &text))?;
        computer::check_syntax(&setup)?;
        // Runs side by side have no files in common.
        Ok(setup.without_files())
    };
    let PeerOptions { bytes, reads, .. } = *options;
    let read = if reads { " --p2p_read" } else { "" };
    let mut setups = vec![with(&format!("p2pBandwidthLatencyTest --bytes={bytes} --all{read}"))?];
    let pairs: Vec<(usize, usize)> = (0..gpus)
        .flat_map(|from| (0..gpus).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    for (from, to) in &pairs {
        let through = if reads { "read" } else { "peer" };
        // So long that what it takes to start does not matter.
        let bytes = 16 * bytes;
        setups.push(with(&format!(
            "gpu-copy --from={from} --to={to} --bytes={bytes} --count=1 --through={through}"
        ))?);
    }
    let number = setup.hosts.iter().position(|own| own.name == host).expect("its name is from there");
    let nodes: Vec<u32> = (0..setup.hosts[number].machine.host.nodes()).collect();
    let flows: String = (0..gpus).map(|gpu| format!(" --flows=host-{gpu} --flows={gpu}-host")).collect();
    for node in &nodes {
        let bound = format!("numactl --membind={node}");
        setups.push(with(&format!("{bound} p2pBandwidthLatencyTest --bytes={bytes}{flows}"))?);
        setups.push(with(&format!("{bound} nvbandwidth -t host_device_latency_sm"))?);
    }
    let mut runs = computer::run_all(&setups.iter().collect::<Vec<_>>(), name, progress).into_iter();
    let values = runs.next().expect("there is one for each setup")?;
    let copies = runs.by_ref().take(pairs.len()).collect::<Result<Vec<Counts>, _>>()?;
    let of_memories = runs.collect::<Result<Vec<Counts>, _>>()?;
    let mut origins = Origins::default();
    for (setup, counts) in setups.iter().zip(std::iter::once(&values).chain(&copies).chain(&of_memories)) {
        origins.extend(Origins::of_computers(setup, &counts.counted));
    }
    let failed = std::iter::once(&values).chain(&copies).chain(&of_memories).flat_map(|counts| &counts.done);
    let failed = failed
        .filter_map(|done| done.failure().map(|failure| format!("{}: {}: {failure}", done.host, done.run)))
        .collect();
    let report = report_of(&values);
    let get = |name: String| report.and_then(|report| report.get(&name));
    let places = way::places(&setup, number);
    let is_redirected = setup.hosts[number].iommu != DmaMode::Off;
    let cells = pairs.iter().zip(&copies).map(|(&(from, to), counts)| {
        let (first, second) = (from.min(to), from.max(to));
        PeerCell {
            from,
            to,
            one_way: get(format!("gpu{from} to gpu{to}")),
            both_ways: get(format!("gpu{first} and gpu{second}, both ways")),
            flag: get(format!("gpu{first} to gpu{second}, a flag")),
            binds: binds(counts, &host),
            hops: match (places.get(from), places.get(to)) {
                (Some(from), Some(to)) => from.way_to(to, is_redirected),
                _ => Vec::new(),
            },
        }
    });
    let memories = nodes.iter().zip(of_memories.chunks_exact(2)).flat_map(|(&node, runs)| {
        let [rates, loads] = [0, 1].map(|run| report_of(&runs[run]));
        (0..gpus).map(move |gpu| MemoryCell {
            node,
            gpu,
            from_memory: rates.and_then(|report| report.get(&format!("flows host-{gpu}"))),
            to_memory: rates.and_then(|report| report.get(&format!("flows {gpu}-host"))),
            load: loads.and_then(|report| report.get(&format!("host_device_latency_sm: host from gpu{gpu}"))),
        })
    });
    let readings = report.map_or(&[][..], |report| &report.readings);
    let others = readings
        .iter()
        .filter(|reading| reading.quantity.contains("host") || reading.quantity.starts_with("all "));
    Ok(PeerMatrix {
        cells: cells.collect(),
        memories: memories.collect(),
        places,
        others: others.map(|reading| (reading.quantity.clone(), reading.value)).collect(),
        failed,
        origins,
        setup,
        host,
        gpus,
    })
}

/// The slots of a machine with at least a GPU's lanes.
pub(crate) fn wide_slots(machine: &Machine) -> impl Iterator<Item = String> {
    let wide = machine.host.port.iter().filter(|(_, port)| port.width.value.get() >= LANES);
    let name = |slot: &str, number| if number == 0 { slot.to_owned() } else { format!("{slot}.{number}") };
    wide.flat_map(move |(slot, port)| (0..port.count()).map(move |number| name(slot, number)))
}

/// A scenario of a machine with a GPU in each slot of x16.
fn filled(library: &Library, name: &str, machine: &Machine, gpu: &str) -> Doc<ComputerScenario> {
    // A file is found beside the scenario that has its name.
    let file = Path::new(name).file_name().map_or(name.into(), |file| file.to_string_lossy());
    let mut text = format!(
        "name = \"p2p\"\nsummary = \"A GPU in each slot of {file}\"\n[[host]]\nname = \"a\"\nmachine = {file:?}\n"
    );
    for slot in wide_slots(machine) {
        let place = slot.replace('.', "_");
        text += &format!("[[host.device]]\nname = \"in-{place}\"\ngpu = {gpu:?}\nslot = \"{slot}\"\n");
    }
    // A scenario has a program.
    text += "[[program]]\ncpus = \"0\"\nrun = \"p2pBandwidthLatencyTest\"\n";
    Doc::from_text(library, name, &text)
}

/// What the program of a run has reported.
fn report_of(counts: &Counts) -> Option<&Report> {
    counts.done.iter().find_map(|done| done.number().and(done.outcome.as_ref().ok()))
}

/// What binds the program of a run.
fn binds(counts: &Counts, host: &str) -> String {
    counts.counted.first().map_or(String::new(), |counted| counted.window.binding(host).sentence())
}

impl PeerMatrix {
    /// The nodes with memory.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + use<> {
        let last = self.memories.last().map_or(0, |cell| cell.node + 1);
        0..last
    }

    /// A GPU with the memory of a node.
    pub fn memory(&self, node: u32, gpu: usize) -> Option<&MemoryCell> {
        self.memories.iter().find(|cell| (cell.node, cell.gpu) == (node, gpu))
    }

    /// The way from one GPU to another.
    pub fn cell(&self, from: usize, to: usize) -> Option<&PeerCell> {
        self.cells.iter().find(|cell| (cell.from, cell.to) == (from, to))
    }

    /// A record for each pair, and for each of the others.
    pub fn records(&self) -> Vec<Record> {
        let (scenario, host) = (&self.setup.name, &self.host);
        let cell = |cell: &PeerCell| {
            json!({
                "kind": "peer", "scenario": scenario, "host": host, "from": cell.from, "to": cell.to,
                "one_way_gb_per_s": cell.one_way, "both_ways_gb_per_s": cell.both_ways, "flag_us": cell.flag,
                "binds": cell.binds, "hops": cell.hops.len(), "way": cell.hops,
            })
        };
        let memory = |cell: &MemoryCell| {
            json!({
                "kind": "peer_memory", "scenario": scenario, "host": host, "node": cell.node, "gpu": cell.gpu,
                "from_memory_gb_per_s": cell.from_memory, "to_memory_gb_per_s": cell.to_memory, "load_ns": cell.load,
            })
        };
        let other = |(quantity, rate): &(String, f64)| json!({ "kind": "peers", "scenario": scenario, "host": host, "quantity": quantity, "gb_per_s": rate });
        let own = self.cells.iter().map(cell).chain(self.memories.iter().map(memory));
        let own = own.chain(self.others.iter().map(other));
        own.chain(self.origins.records()).collect()
    }
}
