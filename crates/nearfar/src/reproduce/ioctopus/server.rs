//! The paper's server with its NIC in one of the organisations that it compares, and what is at the other end of the cable.
//!
//! A run goes on in batches until what is measured is steady. Memory bandwidth, use of the interconnect and cores' time come
//! from the counters of the hardware and of the kernel over the same batches.

use machine::{Doc, Machine};
use platform::cpu::CpuId;
use platform::device::FunctionIndex;
use platform::kernel::{TaskId, TaskParams};
use platform::net::NetFeatures;
use units::Duration;
use wire::nic::registers::counter;
use workloads::Report;

use crate::reproduce::Options;
use crate::reproduce::rig::{Rig, Running, SteadyBatches, Traffic};
use crate::reproduce::runs::Known;

/// The paper's two machines.
pub const MACHINE: &str = "dell-r730";

/// How the server's NIC is connected and used; the names are those of the claims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Organisation {
    /// The NIC is at the socket on which everything runs.
    Local,
    /// The NIC is at the other socket.
    Remote,
    /// A card with a link to each socket, as one network device.
    Octo,
    /// The same with as many lanes again: an extender.
    OctoWide,
    /// As `Octo`, by what the paper did not do: a firmware with one table from queues to functions, and a driver that hides them.
    OneDriver,
    /// A card with a link to each socket, as two network devices with an address each, `eth0` at socket 0.
    TwoNetdevs,
    /// A NIC at each socket, as one channel to a switch that spreads flows over them.
    Bond,
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
            Self::Octo => "octo",
            Self::OctoWide => "octo-wide",
            Self::OneDriver => "octo-driver",
            Self::TwoNetdevs => "two-netdevs",
            Self::Bond => "bond",
            Self::RemoteDdioHome => "remote-ddio-home",
            Self::RemoteDdioDevice => "remote-ddio-device",
            Self::DdioOff => "ddio-off",
        }
    }

    const fn is_team(self) -> bool {
        matches!(self, Self::Octo | Self::OctoWide | Self::OneDriver | Self::Bond)
    }

    /// The network device.
    pub const fn device(self) -> &'static str {
        if self.is_team() { "team0" } else { "eth0" }
    }

    /// What is changed in the machine.
    const fn change(self) -> &'static str {
        match self {
            Self::RemoteDdioHome => "change.host.interconnect.remote_write = \"allocate-at-home-socket\"",
            Self::RemoteDdioDevice => "change.host.interconnect.remote_write = \"allocate-at-device-socket\"",
            Self::DdioOff => "change.host.llc.ddio_ways = 0",
            _ => "",
        }
    }
}

/// What the scenarios take from the machine's file.
pub struct ServerBench {
    options: Options,
    /// A slot of each socket.
    slots: [String; 2],
    /// Cores of a socket.
    pub cores: u16,
}

impl ServerBench {
    pub fn new(options: &Options) -> Result<Self, String> {
        let doc = Doc::<Machine>::load(&options.library, MACHINE).map_err(|error| error.to_string())?;
        let machine = doc.read().map_err(|error| error.to_string())?;
        let slot = |socket: u32| {
            let ports = &machine.host.port;
            let slot = ports.iter().find(|(_, port)| port.socket.value == socket);
            slot.map(|(name, _)| name.clone()).ok_or(format!("{MACHINE} has no slot at socket {socket}"))
        };
        let slots = [slot(0)?, slot(1)?];
        Ok(Self { options: options.clone(), slots, cores: machine.host.core.count.value.get() as u16 })
    }

    /// A core of a socket.
    pub const fn core(&self, socket: u16, number: u16) -> u16 {
        socket * self.cores + number
    }

    /// A host with a NIC; what runs there runs on socket 0. Packets follow the programs that read them, in software and by the
    /// NIC. `of_driver` are keys of its `nic_driver`.
    pub fn host(&self, name: &str, organisation: Organisation, of_driver: &str) -> String {
        use Organisation::{
            Bond, Octo, OctoWide, OneDriver, Remote, RemoteDdioDevice, RemoteDdioHome, TwoNetdevs,
        };
        let [near, far] = &self.slots;
        let both = |nic: &str, lanes: u32, more: &str| {
            format!(
                "name = \"nic\"\nnic = \"{nic}\"\n{more}\n\
                 links = [{{ slot = \"{near}\", lanes = {lanes} }}, {{ slot = \"{far}\", lanes = {lanes} }}]\n"
            )
        };
        let one = |slot: &str| format!("nic = \"connectx4\"\nslot = \"{slot}\"\nchange.link.width = 8\n");
        let device = match organisation {
            Octo => both("connectx4-octo", 8, ""),
            OctoWide => both("connectx4-octo", 16, "change.link.width = 32"),
            OneDriver => both("connectx4-octo-global", 8, ""),
            TwoNetdevs => both("connectx4", 8, ""),
            Bond => {
                format!("name = \"near\"\n{}[[host.device]]\nname = \"far\"\n{}", one(near), one(far))
            }
            Remote | RemoteDdioHome | RemoteDdioDevice => one(far),
            _ => one(near),
        };
        let team = |mode: &str, members: &str| {
            format!("[[host.team]]\nname = \"team0\"\nmode = \"{mode}\"\nmembers = [{members}]\n")
        };
        let team = match organisation {
            Octo | OctoWide => team("octo", "\"nic:0\", \"nic:1\""),
            OneDriver => team("octo-driver", "\"nic:0\", \"nic:1\""),
            Bond => team("bond-802.3ad", "\"near\", \"far\""),
            _ => String::new(),
        };
        let change = organisation.change();
        format!(
            "[[host]]\nname = \"{name}\"\nmachine = \"{MACHINE}\"\n{change}\n\
             change_kernel.steering = {{ rfs = true, arfs = true }}\n\
             [host.nic_driver]\n{of_driver}\n[[host.device]]\n{device}{team}"
        )
    }

    /// What joins server and client.
    pub fn cable(organisation: Organisation) -> String {
        let cable = |one: &str, other: &str| format!("[[cable]]\nends = [\"{one}\", \"{other}\"]\n");
        match organisation {
            Organisation::Bond => {
                let switch = "[[switch]]\nname = \"switch\"\nqueue = \"4 MiB\"\nlag = [[0, 1]]\n";
                let links = [("server:0", "switch:0"), ("server:1", "switch:1"), ("client", "switch:2")];
                switch.to_owned() + &links.map(|(one, other)| cable(one, other)).concat()
            }
            _ => cable("server", "client"),
        }
    }

    /// Boots what `text` describes.
    pub fn boot(&self, text: &str) -> Result<Rig, String> {
        Rig::boot(&self.options, "ioctopus", text)
    }
}

/// What the first host has counted.
#[derive(Clone, Default)]
struct ServerCounts {
    payload: u64,
    packets: u64,
    /// In both directions, headers included.
    bytes: u64,
    busy: Duration,
    traffic: Traffic,
}

/// Rates of a run in its steady state.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerRates {
    /// Payload, Gbit/s.
    pub gbit: f64,
    /// Packets between stack and driver, in millions a second.
    pub mpps: f64,
    /// Cores' time, percent of those watched.
    pub cpu: f64,
    /// What devices wrote, payload and what tells of it, Gbit/s.
    pub written: f64,
    /// DRAM's traffic, read and written, Gbit/s.
    pub memory: f64,
    /// What crossed the interconnect for DMA, both ways, Gbit/s.
    pub link_dma: f64,
    /// What crossed it for DMA, doorbells, registers and interrupts, both ways, Gbit/s.
    pub link_io: f64,
    /// What crossed it for any cause, both ways, Gbit/s.
    pub link: f64,
    /// Lines that the cores' accesses did not find in the LLC, a packet.
    pub misses: f64,
    /// What passed devices in both directions, headers included, Gbit/s.
    pub passed: f64,
}

impl ServerRates {
    /// Of a time, by what had been counted before and after it, on so many cores.
    fn over(before: &ServerCounts, after: &ServerCounts, ns: f64, cores: usize) -> Self {
        let gbit = |counts: fn(&ServerCounts) -> u64| (counts(after) - counts(before)) as f64 * 8.0 / ns;
        let packets = (after.packets - before.packets) as f64;
        Self {
            gbit: gbit(|counts| counts.payload),
            mpps: packets / ns * 1e3,
            cpu: 100.0 * (after.busy - before.busy).as_ns_f64() / ns / cores as f64,
            written: gbit(|counts| counts.traffic.written),
            memory: gbit(|counts| counts.traffic.memory),
            link_dma: gbit(|counts| counts.traffic.link_dma),
            link_io: gbit(|counts| counts.traffic.link_io),
            link: gbit(|counts| counts.traffic.link),
            misses: (after.traffic.misses - before.traffic.misses) as f64 / packets.max(1.0),
            passed: gbit(|counts| counts.bytes),
        }
    }
}

/// Something that follows from rates.
pub type Quantity = fn(&ServerRates) -> f64;

/// A run in which the payload's rate is steady.
pub struct SteadyRun {
    steady: SteadyBatches<ServerCounts>,
    cores: usize,
}

impl SteadyRun {
    /// A quantity of its rates, and half the interval of that.
    pub fn of(&self, quantity: impl Fn(&ServerRates) -> f64) -> Known {
        self.steady.of(|before, after, ns| quantity(&ServerRates::over(before, after, ns, self.cores)))
    }

    /// Quantities with their names.
    pub fn each<const N: usize>(
        &self,
        quantities: [(&'static str, Quantity); N],
    ) -> [(&'static str, Known); N] {
        quantities.map(|(name, quantity)| (name, self.of(quantity)))
    }
}

/// Headers of a TCP segment with timestamps in an Ethernet frame.
const HEADERS: u64 = 66;

/// What its experiments do with the server, the first host.
impl Rig {
    /// Moves all tasks of the first host whose names begin so to a core.
    pub fn move_tasks(&self, name: &str, to: u16) -> Result<(), String> {
        let face = self.host(0).kernel.face();
        let tasks = face.tasks().into_iter().filter(|task| !task.ended && task.name.starts_with(name));
        let tasks: Vec<TaskId> = tasks.map(|task| task.id).collect();
        tasks
            .into_iter()
            .try_for_each(|task| face.set_affinity(task, &[CpuId(to)]).map_err(|error| error.to_string()))
    }

    /// Turns segmentation offload off at a host's network device (`ethtool -K eth0 tso off`).
    pub fn without_tso(&self, host: usize, name: &str) -> Result<(), String> {
        let device = self.host(host).kernel.net().device(name).ok_or(format!("the host has no {name}"))?;
        let wanted = NetFeatures { tso: false, ..device.features() };
        let set = async move |cpu| device.set_features(&cpu, &wanted).tso;
        match self.wait(&self.host(host).kernel.run(TaskParams::named("ethtool"), set))? {
            false => Ok(()),
            true => Err(format!("{name} keeps its segmentation offload on")),
        }
    }

    /// Empties the first host's caches. Whoever opened the devices has cleared rings of both nodes, and their lines would stay
    /// in his socket's caches until each ring has gone round once.
    pub fn forget_the_beginning(&self) {
        let id = self.host(0).host;
        self.computers.simulation().with(|fabric, _| fabric.host_mut(id).memory.flush_all());
    }

    /// A counter of the first host's two network functions: of one NIC, or of two with one each.
    pub fn of_functions(&self, which: usize) -> [u64; 2] {
        let nics = &self.host(0).nics;
        [0u8, 1].map(|n| {
            let (nic, function) = if nics.len() > 1 { (usize::from(n), 0) } else { (0, n) };
            nics.get(nic).map_or(0, |(_, nic)| nic.counter(FunctionIndex(function), which))
        })
    }

    /// Frames that the first host's NIC has dropped.
    pub fn dropped(&self) -> u64 {
        let all = [counter::RX_NO_BUFFER, counter::RX_OVERFLOW, counter::RX_NO_QUEUE, counter::RX_FILTERED];
        all.into_iter().flat_map(|which| self.of_functions(which)).sum()
    }

    /// Lets the first host run batch after batch until the payload's rate is steady, for `most` batches at most. `cores` are those
    /// that work for the network.
    pub fn measure(&self, cores: &[u16], batch: Duration, most: usize) -> SteadyRun {
        let batches = self.until_steady(batch, most, || self.server_counts(cores), |counts| counts.payload);
        SteadyRun { steady: batches.steady(batch), cores: cores.len() }
    }

    /// What crosses between the first host's sockets for its devices, as [`ServerRates::link_io`], while a program that goes on for long
    /// runs on a core of a host: beside its first packets, which come before its flow has a rule.
    pub fn link_io_of(&self, (host, core): (usize, u16), line: &str) -> Result<Known, String> {
        let running = self.start(host, &[core], line)?;
        self.pass(Duration::from_us(500));
        let run = self.measure(&[core], Duration::from_us(50), 60);
        running.still_runs().map(|()| run.of(|rates| rates.link_io))
    }

    /// What the first host did until a program ends, and the program's report.
    pub fn measure_until_end(
        &self,
        running: &Running,
        batch: Duration,
    ) -> Result<(Report, SteadyRun), String> {
        let (report, counts) = self.until_end(running, batch, || self.server_counts(&[]))?;
        Ok((report, SteadyRun { steady: SteadyBatches::all(counts, batch), cores: 1 }))
    }

    fn server_counts(&self, cores: &[u16]) -> ServerCounts {
        let server = self.host(0);
        let face = server.kernel.face();
        let busy = cores.iter().flat_map(|&core| face.busy(CpuId(core))).sum();
        let mut counts = ServerCounts { busy, traffic: self.traffic(0), ..ServerCounts::default() };
        // What passes a team passes its members, too.
        for device in server.kernel.net().devices().into_iter().filter(|device| device.name() != "team0") {
            let passed = device.counters();
            let packets = passed.rx_packets.max(passed.tx_packets);
            let bytes = passed.rx_bytes.max(passed.tx_bytes);
            counts.packets += packets;
            counts.bytes += passed.rx_bytes + passed.tx_bytes;
            counts.payload += bytes - (HEADERS * packets).min(bytes);
        }
        counts
    }
}
