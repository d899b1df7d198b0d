//! The paper's server with its NIC in one of the organisations that it compares, and what is at the other end of the cable.
//!
//! A run goes on in batches until what is measured is steady. Memory bandwidth, use of the interconnect and cores' time come
//! from the counters of the hardware and of the kernel over the same batches.

use std::rc::Rc;

use engine::steady::SteadyMean;
use hardware::memory::{CacheUser, Cause, MemoryCounters};
use machine::{ComputerScenario, ComputerSetup, Doc, Machine};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::net::NetFeatures;
use platform::sync::Completion;
use units::Duration;
use workloads::{Environment, Failure, Report};

use super::super::Options;
use crate::computer::{Computer, Computers};

/// The paper's two machines.
pub const MACHINE: &str = "dell-r730";
/// Half the 95 % interval of a rate at which it is steady, as a share of it.
const STEADY: f64 = 0.01;

/// How the server's NIC is connected and used; the names are those of the claims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Organisation {
    /// The NIC is at the socket on which everything runs.
    Local,
    /// The NIC is at the other socket.
    Remote,
    /// As `Remote`, but DMA writes go into the LLC of the memory's socket (section 2.4, first design).
    RemoteDdioHome,
    /// As `Remote`, but DMA writes stay in the LLC of the NIC's socket (section 2.4, second design).
    RemoteDdioDevice,
    /// As `Local`, without DDIO.
    DdioOff,
}

impl Organisation {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::RemoteDdioHome => "remote-ddio-home",
            Self::RemoteDdioDevice => "remote-ddio-device",
            Self::DdioOff => "ddio-off",
        }
    }

    const fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::DdioOff)
    }

    /// What is changed in the machine.
    const fn change(self) -> &'static str {
        match self {
            Self::Local | Self::Remote => "",
            Self::RemoteDdioHome => "change.host.interconnect.remote_write = \"allocate-at-home-socket\"",
            Self::RemoteDdioDevice => "change.host.interconnect.remote_write = \"allocate-at-device-socket\"",
            Self::DdioOff => "change.host.llc.ddio_ways = 0",
        }
    }
}

/// What the scenarios take from the machine's file.
pub struct Bench {
    options: Options,
    /// A slot of each socket.
    slots: [String; 2],
}

impl Bench {
    pub fn new(options: &Options) -> Result<Self, String> {
        let doc = Doc::<Machine>::load(&options.library, MACHINE).map_err(|error| error.to_string())?;
        let machine = doc.read().map_err(|error| error.to_string())?;
        let slot = |socket: u32| {
            let ports = &machine.host.port;
            let slot = ports.iter().find(|(_, port)| port.socket.value == socket);
            slot.map(|(name, _)| name.clone()).ok_or(format!("{MACHINE} has no slot at socket {socket}"))
        };
        let slots = [slot(0)?, slot(1)?];
        Ok(Self { options: options.clone(), slots })
    }

    /// A host with a NIC; what runs there runs on socket 0. `of_driver` are the keys of its `nic_driver`.
    pub fn host(&self, name: &str, organisation: Organisation, of_driver: &str) -> String {
        let slot = &self.slots[usize::from(!organisation.is_local())];
        let change = organisation.change();
        format!(
            "[[host]]\nname = \"{name}\"\nmachine = \"{MACHINE}\"\n{change}\n\
             [host.nic_driver]\n{of_driver}\n\
             [[host.device]]\nnic = \"connectx4\"\nslot = \"{slot}\"\n\
             change.link.width = 8\n"
        )
    }

    /// Boots what `text` describes.
    pub fn boot(&self, text: &str) -> Result<Rig, String> {
        let seed = self.options.seed;
        let text = format!("name = \"ioctopus\"\nsummary = \"a run\"\nseed = {seed}\n{text}");
        let doc = Doc::<ComputerScenario>::from_text(&self.options.library, "ioctopus", &text);
        let setup = ComputerSetup::load(&self.options.library, &doc).map_err(|error| error.to_string())?;
        let computers = Computers::new(&setup).map_err(|error| error.to_string())?;
        computers.boot().map_err(|error| error.to_string())?;
        Ok(Rig { computers })
    }
}

/// A program under way.
pub type Running = Completion<Result<Report, Failure>>;

/// Hosts that have booted.
pub struct Rig {
    pub computers: Computers,
}

/// What of the server is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Its cores that work for the network.
    pub cores: &'a [u16],
}

/// What the server has counted.
#[derive(Clone, Default)]
struct Counts {
    payload: u64,
    packets: u64,
    busy: Duration,
    memory: u64,
    link_dma: u64,
    link: u64,
    misses: u64,
}

/// Rates of a run in its steady state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Payload, Gbit/s.
    pub gbit: f64,
    /// Half its 95 % interval.
    pub gbit_half: f64,
    /// Packets between stack and driver, in millions a second.
    pub mpps: f64,
    /// Cores' time, percent of those watched.
    pub cpu: f64,
    /// DRAM's traffic, read and written, Gbit/s.
    pub memory: f64,
    /// What crossed the interconnect, both ways, Gbit/s: for DMA, and for any cause.
    pub link_dma: f64,
    /// See `link_dma`.
    pub link: f64,
    /// Lines that the cores' accesses did not find in the LLC, a packet.
    pub misses: f64,
    /// Batches.
    pub batches: usize,
}

/// Headers of a TCP segment with timestamps in an Ethernet frame.
const HEADERS: u64 = 66;

impl Rig {
    /// A host, by its number.
    pub fn host(&self, number: usize) -> &Computer {
        &self.computers.hosts()[number]
    }

    /// Starts a program on a core of a host; more cores are for its threads.
    pub fn start(&self, host: usize, cpus: &[u16], line: &str) -> Result<Running, String> {
        let program = workloads::parse(line).map_err(|refused| refused.message)?;
        let host = self.host(host);
        let cpus: Vec<CpuId> = cpus.iter().copied().map(CpuId).collect();
        let environment = Environment { kernel: host.kernel.face(), cpus: cpus.clone(), seed: 1 };
        let done = Completion::new();
        let told = done.clone();
        let params = TaskParams { cpus, ..TaskParams::named(line) };
        host.kernel.spawn(params, move |cpu| {
            Box::pin(async move { told.complete(Rc::clone(&program).run(cpu, environment).await) })
        });
        Ok(done)
    }

    /// Turns segmentation offload off at a host's first network device (`ethtool -K eth0 tso off`).
    pub fn without_tso(&self, host: usize) -> Result<(), String> {
        let device = self.host(host).kernel.net().device("eth0").ok_or("the host has no eth0")?;
        let done = Completion::new();
        let told = done.clone();
        self.host(host).kernel.spawn(TaskParams::named("ethtool"), move |cpu| {
            Box::pin(async move {
                let wanted = NetFeatures { tso: false, ..device.features() };
                told.complete(device.set_features(&cpu, &wanted).tso);
            })
        });
        let left = self.computers.simulation().block_on(async move { done.wait().await });
        match left.map_err(|error| error.to_string())? {
            false => Ok(()),
            true => Err("eth0 keeps its segmentation offload on".to_owned()),
        }
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        let simulation = self.computers.simulation();
        simulation.run_until(simulation.now() + time);
    }

    /// Lets the first host run batch after batch until the payload's rate is steady, for `most` batches at most.
    pub fn measure(&self, watched: Watched<'_>, batch: Duration, most: usize) -> Rates {
        let mut rate = SteadyMean::new();
        let mut all = vec![self.counts(watched)];
        loop {
            self.pass(batch);
            let counts = self.counts(watched);
            let payload = counts.payload - all.last().map_or(0, |last| last.payload);
            rate.push(payload as f64 * 8.0 / batch.as_ns_f64());
            all.push(counts);
            if rate.is_steady(STEADY) || rate.len() >= most {
                break;
            }
        }
        let estimate = rate.estimate();
        let from = estimate.map_or(0.5, |estimate| estimate.warm_up);
        let first = (from * rate.len() as f64) as usize;
        let (before, after) = (&all[first], &all[rate.len()]);
        let ns = batch.as_ns_f64() * (rate.len() - first) as f64;
        let gbit = |counts: fn(&Counts) -> u64| (counts(after) - counts(before)) as f64 * 8.0 / ns;
        let packets = (after.packets - before.packets) as f64;
        Rates {
            gbit: gbit(|counts| counts.payload),
            gbit_half: estimate.map_or(f64::NAN, |estimate| estimate.half_width),
            mpps: packets / ns * 1e3,
            cpu: 100.0 * (after.busy - before.busy).as_ns_f64() / ns / watched.cores.len() as f64,
            memory: gbit(|counts| counts.memory),
            link_dma: gbit(|counts| counts.link_dma),
            link: gbit(|counts| counts.link),
            misses: (after.misses - before.misses) as f64 / packets.max(1.0),
            batches: rate.len(),
        }
    }

    fn counts(&self, watched: Watched<'_>) -> Counts {
        let server = self.host(0);
        let face = server.kernel.face();
        let mut counts = Counts {
            busy: watched.cores.iter().flat_map(|&core| face.busy(CpuId(core))).sum(),
            ..Counts::default()
        };
        for device in server.kernel.net().devices() {
            let passed = device.counters();
            let packets = passed.rx_packets.max(passed.tx_packets);
            let bytes = passed.rx_bytes.max(passed.tx_bytes);
            counts.packets += packets;
            counts.payload += bytes - (HEADERS * packets).min(bytes);
        }
        let id = server.host;
        self.computers.simulation().with(|fabric, _| counts.add(fabric.host(id).memory.counters()));
        counts
    }
}

impl Counts {
    fn add(&mut self, memory: &MemoryCounters) {
        for node in &memory.nodes {
            self.memory += (node.dram_read.total() + node.dram_written.total()).get();
            self.misses += node.llc_by(CacheUser::Core).misses;
        }
        for link in &memory.links {
            self.link_dma += link.bytes.of(Cause::Dma).get();
            self.link += link.bytes.total().get();
        }
    }
}
