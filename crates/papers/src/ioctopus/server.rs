//! The paper's server, its NIC in one of the compared configurations, and the peer at the other end of the cable.
//!
//! A run continues in batches until the measured rate is steady. Memory bandwidth, interconnect traffic and CPU time
//! come from counters of hardware and kernel over the same batches.

use machine::{Doc, Machine};
use nearfar::workloads::Report;
use platform::cpu::{CpuId, Part};
use platform::device::FunctionIndex;
use platform::kernel::{TaskId, TaskParams};
use platform::net::NetFeatures;
use units::Duration;
use wire::nic::registers::counter;

use crate::Options;
use crate::rig::{Latency, Rig, Running, SteadyBatches, Traffic};
use crate::runs::Known;

/// Model of the paper's two machines.
pub const MACHINE: &str = "dell-r730";

/// How the server's NIC is connected and used. The names are those of the claims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Organisation {
    /// The NIC is at the socket that runs everything.
    Local,
    /// The NIC is at the other socket.
    Remote,
    /// A card with a link to each socket, as one network device.
    Octo,
    /// As `Octo`, with twice as many lanes, by an extender.
    OctoWide,
    /// As `Octo`, but as the paper did not build it: firmware with one table from queues to functions (section 4.1), and
    /// a NIC driver whose network device hides the functions (section 4.2).
    OneDriver,
    /// A card with a link to each socket, as two network devices with separate addresses; `eth0` is at socket 0.
    TwoNetdevs,
    /// A NIC at each socket, bonded into one channel to a switch that spreads flows.
    Bond,
    /// As `Remote`, but DMA writes go to the LLC of the memory's socket (section 2.4, first design).
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
        matches!(self, Self::Octo | Self::OctoWide | Self::Bond)
    }

    /// Name of the network device, of two the one at socket 0.
    pub const fn device(self) -> &'static str {
        self.devices()[0]
    }

    /// Names of all network devices that programs use.
    pub const fn devices(self) -> &'static [&'static str] {
        match self {
            Self::TwoNetdevs => &["eth0", "eth1"],
            _ if self.is_team() => &["team0"],
            _ => &["eth0"],
        }
    }

    /// Changes to the machine.
    const fn change(self) -> &'static str {
        match self {
            Self::RemoteDdioHome => "change.host.interconnect.remote_write = \"allocate-at-home-socket\"",
            Self::RemoteDdioDevice => "change.host.interconnect.remote_write = \"allocate-at-device-socket\"",
            Self::DdioOff => "change.host.llc.ddio_ways = 0",
            _ => "",
        }
    }
}

/// Values that the scenarios take from the machine file.
pub struct ServerBench {
    options: Options,
    /// A slot of each socket.
    slots: [String; 2],
    /// Cores per socket.
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

    pub const fn core(&self, socket: u16, number: u16) -> u16 {
        socket * self.cores + number
    }

    /// A host with a NIC; its programs run on socket 0. Packets follow the programs that read them, both in software
    /// and in the NIC. `of_driver` are keys of its `nic_driver`.
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
        // Only the server's card is bifurcated (section 5, experimental setup).
        let lanes = if name == "client" { 16 } else { 8 };
        let one =
            |slot: &str| format!("nic = \"connectx4\"\nslot = \"{slot}\"\nchange.link.width = {lanes}\n");
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
            Bond => team("bond-802.3ad", "\"near\", \"far\""),
            _ => String::new(),
        };
        let change = organisation.change();
        let multi_pf = organisation == OneDriver;
        format!(
            "[[host]]\nname = \"{name}\"\nmachine = \"{MACHINE}\"\n{change}\n\
             change_kernel.steering = {{ rfs = true, arfs = true }}\n\
             [host.nic_driver]\nmulti_pf = {multi_pf}\n{of_driver}\n[[host.device]]\n{device}{team}"
        )
    }

    /// A drive of the host before it, in the slot of its socket 0 next to a card with two links.
    pub fn drive(&self) -> String {
        let slot = &self.slots[0];
        format!("[[host.device]]\ndrive = \"optane-900p\"\nlinks = [{{ slot = \"{slot}\", lanes = 4 }}]\n")
    }

    /// The connection between server and client.
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

    /// Boots the scenario `text`.
    pub fn boot(&self, text: &str) -> Result<Rig, String> {
        Rig::boot(&self.options, "ioctopus", text)
    }
}

/// Counters of the first host.
#[derive(Clone, Default)]
struct ServerCounts {
    payload: u64,
    packets: u64,
    /// Both directions, headers included.
    bytes: u64,
    busy: Duration,
    /// Of `busy`, for copies between programs and kernel.
    copying: Duration,
    traffic: Traffic,
}

/// Rates of a run in steady state.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerRates {
    /// Payload, Gbit/s.
    pub gbit: f64,
    /// Packets between stack and driver, millions per second.
    pub mpps: f64,
    /// CPU time, percent of the observed cores.
    pub cpu: f64,
    /// Copies between programs and kernel, percent of that time.
    pub copying: f64,
    /// DMA writes of devices, payload and descriptors, Gbit/s.
    pub written: f64,
    /// DRAM reads and writes, Gbit/s.
    pub memory: f64,
    /// DMA over the interconnect, both directions, Gbit/s.
    pub link_dma: f64,
    /// DMA, doorbells, registers and interrupts over the interconnect, both directions, Gbit/s.
    pub link_io: f64,
    /// All traffic over the interconnect, both directions, Gbit/s.
    pub link: f64,
    /// Data of cores over the interconnect, both directions, Gbit/s.
    pub link_core: f64,
    /// LLC misses of cores, per packet.
    pub misses: f64,
    /// LLC misses of cores, in percent of the payload's lines.
    pub missed: f64,
    /// Traffic of the devices in both directions, headers included, Gbit/s.
    pub passed: f64,
}

impl ServerRates {
    /// Rates between two sets of counters, over a time, on a number of cores.
    fn over(before: &ServerCounts, after: &ServerCounts, ns: f64, cores: usize) -> Self {
        let gbit = |counts: fn(&ServerCounts) -> u64| (counts(after) - counts(before)) as f64 * 8.0 / ns;
        let packets = (after.packets - before.packets) as f64;
        let busy = (after.busy - before.busy).as_ns_f64();
        let payload = (after.payload - before.payload) as f64;
        let misses = (after.traffic.misses - before.traffic.misses) as f64;
        Self {
            gbit: gbit(|counts| counts.payload),
            mpps: packets / ns * 1e3,
            cpu: 100.0 * busy / ns / cores as f64,
            copying: 100.0 * (after.copying - before.copying).as_ns_f64() / busy.max(1.0),
            written: gbit(|counts| counts.traffic.written),
            memory: gbit(|counts| counts.traffic.memory),
            link_dma: gbit(|counts| counts.traffic.link_dma),
            link_io: gbit(|counts| counts.traffic.link_io),
            link: gbit(|counts| counts.traffic.link),
            link_core: gbit(|counts| counts.traffic.link_core),
            misses: misses / packets.max(1.0),
            missed: 100.0 * misses / (payload / LINE).max(1.0),
            passed: gbit(|counts| counts.bytes),
        }
    }
}

/// A value computed from rates.
pub type Quantity = fn(&ServerRates) -> f64;

/// What every workload costs its host.
pub const COSTS: [(&str, Quantity); 4] = [
    ("cpu", |rates| rates.cpu),
    ("memory", |rates| rates.memory),
    ("link", |rates| rates.link),
    ("link-io", |rates| rates.link_io),
];

/// A run with a steady payload rate.
pub struct SteadyRun {
    steady: SteadyBatches<ServerCounts>,
    cores: usize,
}

impl SteadyRun {
    /// A value computed from its rates, with the half interval.
    pub fn of(&self, quantity: impl Fn(&ServerRates) -> f64) -> Known {
        self.steady.of(|before, after, ns| quantity(&ServerRates::over(before, after, ns, self.cores)))
    }

    /// Values with their names.
    pub fn each<const N: usize>(
        &self,
        quantities: [(&'static str, Quantity); N],
    ) -> [(&'static str, Known); N] {
        quantities.map(|(name, quantity)| (name, self.of(quantity)))
    }
}

/// Headers of a TCP segment with timestamps in an Ethernet frame.
pub const HEADERS: u64 = 66;
/// Bytes of a cache line.
const LINE: f64 = 64.0;

/// The first host of a rig, as the server of an experiment.
#[derive(Clone, Copy)]
pub struct Server<'a>(pub &'a Rig);

impl Server<'_> {
    /// Moves all tasks of the first host whose names start with `name` to a core.
    pub fn move_tasks(self, name: &str, to: u16) -> Result<(), String> {
        let face = self.0.host(0).kernel.face();
        let tasks = face.tasks().into_iter().filter(|task| !task.ended && task.name.starts_with(name));
        let tasks: Vec<TaskId> = tasks.map(|task| task.id).collect();
        tasks
            .into_iter()
            .try_for_each(|task| face.set_affinity(task, &[CpuId(to)]).map_err(|error| error.to_string()))
    }

    /// Turns off segmentation offload of a host's network device (`ethtool -K eth0 tso off`).
    pub fn without_tso(self, host: usize, name: &str) -> Result<(), String> {
        let device = self.0.host(host).kernel.net().device(name).ok_or(format!("the host has no {name}"))?;
        let wanted = NetFeatures { tso: false, ..device.features() };
        let set = async move |cpu| device.set_features(&cpu, &wanted).tso;
        match self.0.wait(&self.0.host(host).kernel.run(TaskParams::named("ethtool"), set))? {
            false => Ok(()),
            true => Err(format!("{name} keeps its segmentation offload on")),
        }
    }

    /// Flushes the first host's caches. Opening the devices clears rings of both nodes; without the flush, those
    /// lines would stay in that socket's caches until each ring has wrapped once.
    pub fn forget_the_beginning(self) {
        let id = self.0.host(0).host;
        self.0.computers.simulation().with(|fabric, _| fabric.host_mut(id).memory.flush_all());
    }

    /// Latency of a program's round trips, and what they cost the server. `line` builds its command line for a duration in
    /// seconds; it runs for `first` up to `most`.
    pub fn round_trips(
        self,
        organisation: Organisation,
        at: (usize, u16),
        line: impl Fn(f64) -> String,
        (first, most): (Duration, Duration),
    ) -> Result<(Latency, SteadyRun), String> {
        self.wrap_ring(organisation, at, &line(first.as_s_f64()))?;
        let latency = self.0.latency(at, &line, first, most)?;
        Ok((latency, self.measure_while(at, &line(1.0))?))
    }

    /// Repeats a program on a core of a host until the first host has received as many packets as a receive ring of its
    /// NIC has buffers. Until then, each buffer is in the caches or not as the NIC's start has left it, and a round trip
    /// of 64 B takes 1 % longer.
    fn wrap_ring(
        self,
        organisation: Organisation,
        (host, core): (usize, u16),
        line: &str,
    ) -> Result<(), String> {
        let net = self.0.host(0).kernel.net();
        let device = |name| net.device(name).ok_or(format!("the host has no {name}"));
        // A team has no rings of its own.
        let nic = device("eth0")?.driver().and_then(|driver| driver.rings());
        let buffers = nic.ok_or("eth0 does not tell the size of its rings")?.rx.into();
        let received = device(organisation.device())?;
        while received.counters().rx_packets < buffers {
            self.0.report(&self.0.start(host, &[core], line)?)?;
        }
        Ok(())
    }

    /// A counter of the first host's two network functions: of one NIC, or of two with one each.
    pub fn of_functions(self, which: usize) -> [u64; 2] {
        let nics = &self.0.host(0).nics;
        [0u8, 1].map(|n| {
            let (nic, function) = if nics.len() > 1 { (usize::from(n), 0) } else { (0, n) };
            nics.get(nic).map_or(0, |(_, nic)| nic.counter(FunctionIndex(function), which))
        })
    }

    /// Frames lost at the first host: by its NIC, and by its stack.
    pub fn lost(self) -> u64 {
        let all = [counter::RX_NO_BUFFER, counter::RX_OVERFLOW, counter::RX_NO_QUEUE, counter::RX_FILTERED];
        let by_nic: u64 = all.into_iter().flat_map(|which| self.of_functions(which)).sum();
        let stack = self.0.host(0).kernel.face().network().counters();
        by_nic + stack.backlog_full + stack.socket_full + stack.no_memory + stack.bad_checksums
    }

    /// Packets that the first host's TCP received ahead of others of their stream.
    pub fn overtaking(self) -> u64 {
        self.0.host(0).kernel.face().network().counters().tcp_out_of_order
    }

    /// Runs the first host batch by batch until the payload rate is steady, for up to `most` batches. `cores` are
    /// those that do network work.
    pub fn measure(self, cores: &[u16], batch: Duration, most: usize) -> SteadyRun {
        let batches = self.0.until_steady(batch, most, || self.server_counts(cores), |counts| counts.payload);
        SteadyRun { steady: batches.steady(batch), cores: cores.len() }
    }

    /// The first host's rates while a long-running program runs on a host's core; CPU time is that of the first
    /// host's core of the same number. Excludes the program's first packets, before its flow has a steering rule.
    fn measure_while(self, (host, core): (usize, u16), line: &str) -> Result<SteadyRun, String> {
        let running = self.0.start(host, &[core], line)?;
        self.0.pass(Duration::from_us(500));
        let run = self.measure(&[core], Duration::from_us(50), 60);
        running.still_runs().map(|()| run)
    }

    /// The first host's rates until a program ends, and the program's report.
    pub fn measure_until_end(
        self,
        cores: &[u16],
        running: &Running,
        batch: Duration,
    ) -> Result<(Report, SteadyRun), String> {
        let (report, counts) = self.0.until_end(running, batch, || self.server_counts(cores))?;
        Ok((report, SteadyRun { steady: SteadyBatches::all(counts, batch), cores: cores.len() }))
    }

    fn server_counts(self, cores: &[u16]) -> ServerCounts {
        let server = self.0.host(0);
        let face = server.kernel.face();
        let mut counts = ServerCounts { traffic: self.0.traffic(0), ..ServerCounts::default() };
        for (part, time) in cores.iter().flat_map(|&core| Part::ALL.into_iter().zip(face.busy(CpuId(core)))) {
            counts.busy += time;
            if part == Part::Copy {
                counts.copying += time;
            }
        }
        // A team's traffic passes its members, too.
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
