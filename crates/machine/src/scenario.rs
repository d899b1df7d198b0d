//! Scenarios of pcie-bench: a machine with a card.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc::{Doc, Kindred};
use crate::host::{Machine, RootPort};
use crate::library::Library;
use crate::part::Part;
use crate::placed::{Placed, Several};
use crate::read::{Check, Complaints, Read, record};
use crate::scalar::names;
use crate::shape::Shape;
use crate::source::Place;
use crate::tree::{Entry, Value};
pub use settings::IommuMode;
use units::Bytes;

record! {
    /// An experiment as a scenario file describes it.
    pub struct Scenario {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// Purpose, in one line.
        summary: String,
        /// The machine: a name, or the path of a file.
        machine: Placed<String>,
        /// The card: a name, or the path of a file.
        card: Placed<String>,
        /// The machine's slot of the card; not needed if there is only one.
        slot: Option<Placed<String>>,
        /// Changes to the machine, with the keys of a machine file.
        change: Option<Changes>,
        /// Changes to the card, with the keys of a part file.
        change_card: Option<Changes>,
        /// Seed of all random numbers; 1 if not given.
        seed: Option<u64>,
        /// What is measured: the test, and the values of its parameters.
        pcie_bench: PcieBench,
    }
}

impl Kindred for Scenario {
    const WORD: &'static str = "bench-scenario";
    const WHAT: &'static str = "scenario";
    const FOLDER: &'static str = "scenarios";
    const ABOUT: &'static str = "pcie-bench on a machine with a card.";
    const EXTENDS: bool = false;

    fn summary(&self) -> &str {
        &self.summary
    }
}

names! {
    /// The measured quantity.
    pub enum Test {
        /// Latency of a read.
        LatRd = "LAT_RD",
        /// Latency of a write followed by a read of the same address.
        LatWrRd = "LAT_WRRD",
        /// Bandwidth of reads.
        BwRd = "BW_RD",
        /// Bandwidth of writes.
        BwWr = "BW_WR",
        /// Bandwidth of alternating reads and writes.
        BwRdWr = "BW_RDWR",
    }
}

impl Test {
    /// Whether latency is measured, one operation at a time.
    pub const fn is_latency(self) -> bool {
        matches!(self, Self::LatRd | Self::LatWrRd)
    }
}

names! {
    /// The card's interface to the host.
    pub enum Interface {
        /// The DMA engine.
        Dma = "dma",
        /// Commands of the card's processors, for a few bytes.
        Command = "cmd",
    }
}

names! {
    /// Order of accesses to a window.
    pub enum Pattern {
        /// In ascending order.
        Sequential = "seq",
        /// Uniformly at random.
        Random = "rand",
    }
}

names! {
    /// Preparation of caches before the measurement.
    pub enum Cache {
        /// Cold: a program on the host has written other data.
        Cold = "cold",
        /// A program on the host has written the window.
        HostWarm = "host-warm",
        /// The device has written the window, after the caches were made cold.
        DeviceWarm = "device-warm",
        /// The device has written other data.
        DeviceThrash = "device-thrash",
    }
}

record! {
    /// The sockets involved, counted from 0.
    pub struct Sockets {
        /// Socket of the card's slot.
        device: u32,
        /// Socket of the accessed memory.
        memory: u32,
        /// Socket of the program that prepares the caches.
        warming: u32,
    }
}

record! {
    /// Runs of pcie-bench: one per combination of the lists' values.
    pub struct PcieBench {
        /// The measured quantity.
        test: Several<Test>,
        /// The card's interface; `dma` if not given.
        interface: Option<Interface>,
        /// Order of accesses to the window.
        pattern: Several<Pattern>,
        /// Preparation of caches.
        cache: Several<Cache>,
        /// Size of the accessed memory (bytes).
        window: Several<Bytes>,
        /// Size of an operation (bytes).
        transfer: Several<Bytes>,
        /// Offset of operations in their 64-byte unit of host memory (bytes); 0 if not given.
        host_offset: Option<Several<Bytes>>,
        /// Offset of operations in the card's memory (bytes); 0 if not given.
        device_offset: Option<Several<Bytes>>,
        /// The sockets involved; all 0 if not given.
        sockets: Option<Placed<Sockets>>,
        /// IOMMU mode; `off` if not given.
        iommu: Option<Placed<IommuMode>>,
        /// Maximum operations of a latency test; as many as its estimate needs if not given.
        samples: Option<u64>,
    }
    check check_bench
}

/// Maximum transfer size of pcie-bench (bytes).
const LARGEST_TRANSFER: u64 = 4096;
/// Maximum window (bytes): pcie-bench's host buffer.
const LARGEST_WINDOW: u64 = 64 << 20;
/// Maximum number of runs per scenario.
const MOST_RUNS: usize = 65_536;

fn check_bench(bench: &PcieBench, check: &mut Check<'_>) {
    for transfer in bench.transfer.iter() {
        check.require(
            (1..=LARGEST_TRANSFER).contains(&transfer.get()),
            "transfer",
            format!("an operation cannot move {transfer}"),
            format!("from 1 B to {}", Bytes::new(LARGEST_TRANSFER)),
        );
    }
    for window in bench.window.iter() {
        check.require(
            window.get() <= LARGEST_WINDOW,
            "window",
            format!("{window} are more than pcie-bench's buffer"),
            format!("at most {}", Bytes::new(LARGEST_WINDOW)),
        );
    }
    for (key, offsets) in [("host_offset", &bench.host_offset), ("device_offset", &bench.device_offset)] {
        for offset in offsets.iter().flat_map(|several| several.iter()) {
            check.require(
                offset.get() < 4096,
                key,
                format!("{offset} is more than a page"),
                "less than 4 KiB",
            );
        }
    }
    let far = bench
        .host_offset
        .iter()
        .flat_map(|several| several.iter())
        .map(|offset| offset.get())
        .max()
        .unwrap_or(0);
    let most = bench.transfer.iter().map(|transfer| transfer.get()).max().unwrap_or(0);
    let least = bench.window.iter().map(|window| window.get()).min().unwrap_or(0);
    let unit = (most + far).div_ceil(64) * 64;
    check.require(
        least >= unit,
        "window",
        format!("{} cannot hold one transfer of {} at offset {far}", Bytes::new(least), Bytes::new(most)),
        format!("at least {} (transfer and offset, rounded up to 64 B)", Bytes::new(unit)),
    );
    check.require(
        bench.host_offset.is_none() || most + far <= LARGEST_TRANSFER,
        "host_offset",
        format!(
            "a transfer of {} at offset {far} ends beyond a page, which pcie-bench refuses",
            Bytes::new(most)
        ),
        format!("transfer and offset together at most {}", Bytes::new(LARGEST_TRANSFER)),
    );
    let lists = [
        bench.test.len(),
        bench.pattern.len(),
        bench.cache.len(),
        bench.window.len(),
        bench.transfer.len(),
        bench.host_offset.as_ref().map_or(1, |several| several.len()),
        bench.device_offset.as_ref().map_or(1, |several| several.len()),
    ];
    let runs = lists.iter().fold(1usize, |runs, length| runs.saturating_mul(*length));
    check.require(
        runs <= MOST_RUNS,
        "transfer",
        format!("the lists make {runs} combinations"),
        format!("at most {MOST_RUNS} in one scenario"),
    );
    // pcie-bench itself takes two million; a thousand times as many would take days.
    check.require_within(
        "samples",
        bench.samples.unwrap_or(1),
        (1, 2_000_000_000),
        "samples are not possible",
    );
    if bench.interface == Some(Interface::Command) {
        let bandwidth = bench.test.iter().find(|test| !test.is_latency());
        check.require(
            bandwidth.is_none(),
            "test",
            format!(
                "{} has no variant for the command interface",
                bandwidth.map_or("", |test| test.as_str())
            ),
            "LAT_RD and LAT_WRRD with `interface = \"cmd\"`",
        );
    }
}

/// One run of pcie-bench: a value of each parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchRun {
    /// The measured quantity.
    pub test: Test,
    /// The card's interface.
    pub interface: Interface,
    /// Order of accesses to the window.
    pub pattern: Pattern,
    /// Preparation of caches.
    pub cache: Cache,
    /// Size of the accessed memory.
    pub window: Bytes,
    /// Size of an operation.
    pub transfer: Bytes,
    /// Offset of operations in their unit of host memory.
    pub host_offset: Bytes,
    /// Offset of operations in the card's memory.
    pub device_offset: Bytes,
}

impl PcieBench {
    /// All combinations; transfer sizes vary fastest.
    pub fn runs(&self) -> Vec<BenchRun> {
        let zero = Several(vec![Bytes::ZERO]);
        let host_offsets = self.host_offset.as_ref().unwrap_or(&zero);
        let device_offsets = self.device_offset.as_ref().unwrap_or(&zero);
        let interface = self.interface.unwrap_or(Interface::Dma);
        let mut runs = Vec::new();
        for &test in self.test.iter() {
            for &pattern in self.pattern.iter() {
                for &cache in self.cache.iter() {
                    for &window in self.window.iter() {
                        for &host_offset in host_offsets.iter() {
                            for &device_offset in device_offsets.iter() {
                                for &transfer in self.transfer.iter() {
                                    runs.push(BenchRun {
                                        test,
                                        interface,
                                        pattern,
                                        cache,
                                        window,
                                        transfer,
                                        host_offset,
                                        device_offset,
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
        runs
    }

    /// The sockets involved.
    pub fn sockets(&self) -> Sockets {
        self.sockets
            .as_ref()
            .map_or(Sockets { device: 0, memory: 0, warming: 0 }, |placed| placed.value.clone())
    }

    /// How the IOMMU translates; off if the file does not say.
    pub fn iommu(&self) -> IommuMode {
        self.iommu.as_ref().map_or(IommuMode::Off, |placed| placed.value)
    }
}

/// Changes to another file: an overlay table, as dotted paths with values.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes(pub(crate) Vec<Changed>);

/// A changed value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Changed {
    pub(crate) path: String,
    pub(crate) value: Value,
    pub(crate) key: Place,
    pub(crate) place: Place,
}

impl PartialEq for Changed {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.place == other.place
    }
}

impl Read for Changes {
    fn shape() -> Shape {
        Shape::Changes
    }

    fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self> {
        let Value::Table(table) = &entry.node.value else {
            complaints.wrong_type(&entry.node, name, "a table laid out as the file that it changes");
            return None;
        };
        let mut all = Vec::new();
        flatten("", table, &mut all);
        Some(Self(all))
    }
}

fn flatten(path: &str, table: &crate::tree::Table, all: &mut Vec<Changed>) {
    for (key, entry) in table {
        // A quoted key may itself be a dotted path.
        let path = crate::read::join(path, key);
        match &entry.node.value {
            // An empty table is no figure, as who reads it says.
            Value::Table(inner) if !inner.contains_key("value") && !inner.is_empty() => {
                flatten(&path, inner, all)
            }
            value => {
                let (key, place) = (entry.key.clone(), entry.node.place.clone());
                all.push(Changed { path, value: value.clone(), key, place });
            }
        }
    }
}

/// A scenario and all files that it refers to, checked for consistency.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The experiment.
    pub scenario: Scenario,
    /// The machine, with the scenario's changes.
    pub machine: Machine,
    /// The card, with the scenario's changes.
    pub card: Part,
    /// Name of the card's slot.
    pub slot: String,
}

impl Setup {
    /// Loads the scenario and the files that it refers to.
    ///
    /// # Errors
    /// All errors of the scenario; if there are none, those of the machine or the card; if there are none, all
    /// inconsistencies.
    pub fn load(library: &Library, scenario: &Doc<Scenario>) -> Result<Self, Diagnostics> {
        let scenario = scenario.read()?;
        let mut machine = Doc::<Machine>::load_at(library, &scenario.machine.value, &scenario.machine.place)?;
        let mut card = Doc::<Part>::load_at(library, &scenario.card.value, &scenario.card.place)?;
        for changed in scenario.change.iter().flat_map(|changes| &changes.0) {
            machine.lay(changed)?;
        }
        for changed in scenario.change_card.iter().flat_map(|changes| &changes.0) {
            card.lay(changed)?;
        }
        Self::fit_together(scenario, machine.read()?, card.read()?)
    }

    fn fit_together(scenario: Scenario, machine: Machine, card: Part) -> Result<Self, Diagnostics> {
        let mut wrong = Vec::new();
        let sockets = machine.host.sockets.value.get();
        if let Some(placed) = &scenario.pcie_bench.sockets {
            for (what, socket) in
                [("device", placed.device), ("memory", placed.memory), ("warming", placed.warming)]
            {
                if socket >= sockets {
                    wrong.push(
                        Diagnostic::new(
                            &placed.place,
                            format!("`{what}`: {} has no socket {socket}", machine.name),
                        )
                        .help(format!("sockets are numbered 0 to {}", sockets - 1)),
                    );
                }
            }
        }
        let slot = match &scenario.slot {
            Some(placed) => placed.value.clone(),
            None => slot_of(&machine, scenario.pcie_bench.sockets().device).unwrap_or_default(),
        };
        if !machine.host.port.contains_key(&slot) {
            let slots = crate::suggest::list(machine.host.port.keys().map(String::as_str));
            let (place, what) = match &scenario.slot {
                Some(placed) => (&placed.place, format!("{} has no slot `{slot}`", machine.name)),
                None => {
                    (&scenario.machine.place, format!("{} has no slot at the device's socket", machine.name))
                }
            };
            wrong.push(Diagnostic::new(place, what).help(format!("its slots are {slots}")));
        }
        if let Some(placed) = &scenario.pcie_bench.iommu {
            let known = machine.host.iommu.as_ref().map(|iommu| &iommu.page_sizes.value);
            if placed.value != IommuMode::Off && known.is_none() {
                wrong.push(
                    Diagnostic::new(&placed.place, format!("{} has no IOMMU", machine.name)).help("`off`"),
                );
            }
        }
        if scenario.pcie_bench.interface == Some(Interface::Command) && card.dma_engine.command.is_none() {
            let message = format!("{} has no command interface", card.name);
            wrong.push(Diagnostic::new(&scenario.card.place, message).help("`interface = \"dma\"`"));
        }
        if wrong.is_empty() {
            Ok(Self { scenario, machine, card, slot })
        } else {
            Err(Diagnostics::new(wrong))
        }
    }
}

/// The slot of a socket with the fastest link, the first by name of such. Drives' bays are slots, too.
pub fn slot_of(machine: &Machine, socket: u32) -> Option<String> {
    let rate = |port: &RootPort| port.width.value.get() << port.generation.value.get();
    let slots = machine.host.port.iter().filter(|(_, port)| port.socket.value == socket && port.count() > 0);
    slots.rev().max_by_key(|(_, port)| rate(port)).map(|(name, _)| name.clone())
}
