//! A host with virtual machines behind one uplink, placed by a layout, in steady state.

use std::rc::Rc;

use nearfar::virt::placement::IoThreads;
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::memory::Policy;
use units::Duration;

use super::layout::{CORES, Layout};
use crate::Options;
use crate::rig::{self, Rig, Traffic};

/// Start of a run, which is not measured.
const SETTLING: Duration = Duration::from_us(600);
/// Duration and maximum number of a run's batches.
pub const BATCHES: (Duration, usize) = (Duration::from_us(100), 160);
/// Batches where pollers share cores: each as long as a time slice of a fair scheduler.
const TURNS: (Duration, usize) = (Duration::from_ms(3), 48);
/// Ample time for a server to start listening.
const STARTED: Duration = Duration::from_us(500);
/// Time for streams to fill every ring on their path.
const SETTLING_STREAMS: Duration = Duration::from_ms(2);
/// Period of the NUMA scheduler when it runs by itself: 2 s, scaled down, but longer than it takes to drain queues
/// after an overload (1.5 ms).
const PERIOD: Duration = Duration::from_ms(2);

/// Workload of the guests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Guest {
    /// Forward a generator's frames by polling (DPDK's l2fwd): frame size, and percentage of line rate in total.
    Forwards(u16, u8),
    /// Echo a generator's frames through the guest kernel and a program: frame size, and thousandths of line rate per
    /// machine.
    Echoes(u16, u8),
    /// Each sends a TCP stream, segmented by the NIC.
    Sends,
    /// Each receives a TCP stream.
    Receives,
    /// A program in each guest with its peer on a second host.
    Runs(Pair),
}

/// A server and its client, one of them in a guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pair {
    /// Name in results.
    pub name: &'static str,
    /// Whether the server, rather than the client, is in the guest.
    pub serves: bool,
    /// Command line of the server.
    pub server: &'static str,
    /// Command line of the client; `GUEST` stands for the guest's address if the server is there.
    pub client: &'static str,
}

impl Pair {
    /// Command lines for the guest and for the second host.
    fn lines(self) -> (&'static str, &'static str) {
        if self.serves { (self.server, self.client) } else { (self.client, self.server) }
    }
}

/// A measurement point: workload and number of guests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Point {
    /// The workload.
    pub guest: Guest,
    /// Number of virtual machines.
    pub vms: usize,
}

impl Point {
    /// Name in results.
    pub fn name(&self) -> String {
        let vms = self.vms;
        match self.guest {
            Guest::Forwards(frame, load) => format!("forward-{frame}/{load}/{vms}"),
            Guest::Echoes(frame, each) => format!("echo-{frame}/{each}/{vms}"),
            Guest::Sends => format!("tso/100/{vms}"),
            Guest::Receives => format!("receive/100/{vms}"),
            Guest::Runs(pair) => format!("{}/{vms}", pair.name),
        }
    }
}

/// Rates of a run in steady state.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestRates {
    /// Packets that guests forwarded, sent or received, millions per second.
    pub mpps: f64,
    /// Their data rate, Gbit/s.
    pub gbit: f64,
    /// Relative half-width of both 95 % intervals; NaN if not steady.
    pub interval: f64,
    /// Packets not returned to the generator, percent.
    pub loss: f64,
    /// Mean round trip of returned packets, us.
    pub us: f64,
    /// Number of packets that returned out of order or changed.
    pub wrong: u64,
    /// CPU time of I/O threads, in cores.
    pub threads: f64,
    /// `threads` plus interrupts on their cores and time waiting for a core; this is what the NUMA scheduler
    /// observes.
    pub load: f64,
    /// CPU time of vCPUs, in cores.
    pub vcpus: f64,
    /// CPU time of all cores, in cores.
    pub cores: f64,
    /// DRAM traffic, Gbit/s.
    pub memory: f64,
    /// Guest interrupts per packet.
    pub interrupts: f64,
    /// Traffic between sockets, Gbit/s.
    pub link: f64,
    /// Traffic between sockets for DMA, Gbit/s.
    pub link_dma: f64,
}

/// Counters at one time.
#[derive(Clone, Copy, Default)]
struct GuestCounts {
    packets: u64,
    bytes: u64,
    interrupts: u64,
    sent: u64,
    returned: u64,
    time: f64,
    wrong: u64,
    threads: Duration,
    load: Duration,
    vcpus: Duration,
    busy: Duration,
    traffic: Traffic,
}

/// The scenario file of a point.
pub fn text(point: Point, layout: &Layout, more: &str) -> String {
    let machine = if layout.nodes > 2 { "dell-r840" } else { "dell-r720" };
    let mut taken = [0u16; 8];
    let mut text = format!(
        "[[host]]\nname = \"a\"\nmachine = \"{machine}\"\n{more}\n\
         [host.nic_driver]\nchannels = {}\nover_nodes = true\n\
         [[host.device]]\nname = \"nic\"\nnic = \"82599\"\nslot = \"slot\"\n",
        layout.nodes
    );
    let polled = matches!(point.guest, Guest::Forwards(..));
    for (n, &(node, _)) in layout.vms.iter().enumerate() {
        let place = &mut taken[usize::from(node)];
        // The first core of a node is left to its I/O thread.
        let core = u16::from(node) * CORES + 1 + *place % (CORES - 1);
        *place += 1;
        text += &format!(
            "[[host.vm]]\nname = \"v{n}\"\nvcpus = \"{core}\"\nmemory = \"64 MiB\"\nnode = {node}\nuplink = \"nic\"\n\
             polled = {polled}\n"
        );
    }
    let all = (0..layout.vms.len()).map(|n| format!("\"a/v{n}\"")).collect::<Vec<_>>().join(", ");
    let generator = |frame: u16, load: f64| {
        format!(
            "[[generator]]\nname = \"t\"\nto = [{all}]\nframe = \"{frame} B\"\nload = {load}\n\
             [[cable]]\nends = [\"a\", \"t\"]\n"
        )
    };
    text += &match point.guest {
        Guest::Forwards(frame, load) => generator(frame, f64::from(load) / 100.0),
        Guest::Echoes(frame, each) => generator(frame, point.vms as f64 * f64::from(each) / 1000.0),
        Guest::Sends => "[[sink]]\nname = \"t\"\naddress = \"10.0.0.200\"\nrate = \"10 Gbit/s\"\n\
                         [[cable]]\nends = [\"a\", \"t\"]\n"
            .to_owned(),
        Guest::Receives => {
            let mut text = String::from(
                "[[switch]]\nname = \"s\"\nqueue = \"1 MiB\"\nrate = \"10 Gbit/s\"\n\
                 [[cable]]\nends = [\"a\", \"s:0\"]\n",
            );
            for n in 0..layout.vms.len() {
                text += &format!(
                    "[[source]]\nname = \"t{n}\"\nto = \"10.0.128.{}:5001\"\nrate = \"10 Gbit/s\"\ntime = \"50 ms\"\n\
                     [[cable]]\nends = [\"t{n}\", \"s:{}\"]\n",
                    n + 1,
                    n + 1
                );
            }
            text
        }
        Guest::Runs(_) => format!(
            "[[host]]\nname = \"b\"\nmachine = \"{machine}\"\n[[host.device]]\nnic = \"82599\"\nslot = \"slot\"\n\
             [[cable]]\nends = [\"a:0\", \"b:0\"]\n"
        ),
    };
    text
}

fn cores_of(node: u8) -> Vec<CpuId> {
    (0..CORES).map(|n| CpuId(u16::from(node) * CORES + n)).collect()
}

/// Boots `text`, and places I/O threads, virtual machines and their NICs as the layout says.
fn boot_placed(options: &Options, text: &str, layout: &Layout) -> Result<Rig, String> {
    let rig = Rig::boot(options, "numa-io", text)?;
    Guests(&rig).place(layout)?;
    Ok(rig)
}

/// The first host of a rig, with its guests.
#[derive(Clone, Copy)]
pub struct Guests<'a>(pub &'a Rig);

impl Guests<'_> {
    fn place(self, layout: &Layout) -> Result<(), String> {
        let host = &self.0.host(0);
        for (vm, &(home, _)) in host.vms().iter().zip(&layout.vms) {
            for task in vm.tasks() {
                host.kernel.face().set_affinity(task, &cores_of(home)).map_err(|error| error.to_string())?;
            }
        }
        let (networks, vnics) = (host.networks(), host.vnics());
        let network = Rc::clone(networks.first().ok_or("there is no uplink")?);
        let layout = layout.clone();
        let placed = host.kernel.run(TaskParams::named("place"), async move |cpu| {
            let mut placed = Ok(());
            for (thread, &node) in layout.threads.iter().enumerate() {
                let pinned = network.pin(&cpu, thread, &cores_of(node)).await;
                placed = placed.and(pinned);
            }
            for (vnic, &(_, thread)) in vnics.iter().zip(&layout.vms) {
                placed = placed.and(network.assign(&cpu, vnic, thread));
            }
            placed
        });
        self.0.wait(&placed)?.map_err(|error| error.to_string())
    }

    /// Starts a program in each guest.
    pub fn start(self, line: &str) -> Result<(), String> {
        let mut guests = self.0.host(0).vms().into_iter();
        guests.try_for_each(|vm| rig::start(vm.kernel(), &[0], Policy::Local, line).map(drop))
    }

    /// Starts a program on the second host.
    fn start_beside(self, line: &str) -> Result<(), String> {
        let cpus: Vec<u16> = (0..CORES).collect();
        self.0.start(1, &cpus, line).map(drop)
    }

    fn counts(self) -> GuestCounts {
        let host = &self.0.host(0);
        let face = host.kernel.face();
        let mut counts = GuestCounts { traffic: self.0.traffic(0), ..GuestCounts::default() };
        for passed in host.vnics().iter().map(|vnic| vnic.counters()) {
            counts.packets += passed.sent.max(passed.received);
            counts.interrupts += passed.interrupts;
            counts.bytes += passed.sent_bytes.max(passed.received_bytes);
        }
        for flow in self.0.computers.generators().iter().flat_map(|generator| generator.handle.flows()) {
            counts.sent += flow.sent;
            counts.returned += flow.returned;
            counts.time += flow.time.as_ns_f64();
            counts.wrong += flow.reordered + flow.damaged;
        }
        for (thread, _) in host.networks().iter().flat_map(|network| network.threads()) {
            let interrupts = host.kernel.core_of(thread).map(|core| host.kernel.interrupt_time(core));
            counts.threads += host.kernel.task_busy(thread);
            counts.load += host.kernel.task_busy(thread)
                + host.kernel.task_waited(thread)
                + interrupts.unwrap_or_default();
        }
        counts.vcpus =
            host.vms().iter().flat_map(|vm| vm.tasks()).map(|task| host.kernel.task_busy(task)).sum();
        counts.busy = (0..face.cpus()).flat_map(|core| face.busy(CpuId(core))).sum();
        counts
    }

    /// Measures until the packet rate is steady.
    pub fn rates(self, settling: Duration, (batch, most): (Duration, usize)) -> GuestRates {
        self.0.pass(settling);
        let batches = self.0.until_steady(batch, most, || self.counts(), |counts| counts.packets);
        let steady = batches.steady(batch);
        let (rate, half) = steady.of(|first, last, ns| (last.packets - first.packets) as f64 / ns);
        let ((first, last), ns) = (steady.ends(), steady.ns());
        let packets = (last.packets - first.packets) as f64;
        let gbit = |of: fn(&GuestCounts) -> u64| (of(last) - of(first)) as f64 * 8.0 / ns;
        let cores = |of: fn(&GuestCounts) -> Duration| (of(last) - of(first)).as_ns_f64() / ns;
        let (sent, returned) = ((last.sent - first.sent) as f64, (last.returned - first.returned) as f64);
        GuestRates {
            mpps: packets / ns * 1e3,
            gbit: gbit(|counts| counts.bytes),
            interval: half / rate,
            loss: if sent > 0.0 { (100.0 * (1.0 - returned / sent)).max(0.0) } else { 0.0 },
            us: (last.time - first.time) / returned.max(1.0) / 1e3,
            wrong: last.wrong,
            threads: cores(|counts| counts.threads),
            load: cores(|counts| counts.load),
            vcpus: cores(|counts| counts.vcpus),
            cores: cores(|counts| counts.busy),
            memory: gbit(|counts| counts.traffic.memory),
            interrupts: (last.interrupts - first.interrupts) as f64 / packets.max(1.0),
            link: gbit(|counts| counts.traffic.link),
            link_dma: gbit(|counts| counts.traffic.link_dma),
        }
    }

    /// Runs a number of scheduler periods.
    pub fn pass_periods(self, periods: u64) -> Result<(), String> {
        let manager = self.0.host(0).manager().ok_or("nothing schedules the machines")?;
        let until = manager.done().periods + periods;
        while manager.done().periods < until {
            self.0.pass(PERIOD / 10);
        }
        Ok(())
    }
}

pub fn measure(options: &Options, point: Point, layout: &Layout, more: &str) -> Result<GuestRates, String> {
    let rig = boot_placed(options, &text(point, layout, more), layout)?;
    match point.guest {
        Guest::Forwards(..) => Guests(&rig).start("l2fwd")?,
        Guest::Echoes(..) => {
            Guests(&rig).start("sockperf server -p 9")?;
            rig.pass(STARTED);
        }
        Guest::Sends => Guests(&rig).start("iperf -c 10.0.0.200 -t 1")?,
        Guest::Receives => Guests(&rig).start("iperf -s")?,
        Guest::Runs(pair) => {
            let (guest, beside) = pair.lines();
            if pair.serves {
                Guests(&rig).start(guest)?;
                rig.pass(STARTED);
                for vm in 1..=point.vms {
                    Guests(&rig).start_beside(&beside.replace("GUEST", &format!("10.0.128.{vm}")))?;
                }
            } else {
                Guests(&rig).start_beside(beside)?;
                rig.pass(STARTED);
                Guests(&rig).start(guest)?;
            }
        }
    }
    rig.pass(Duration::from_us(50));
    rig.computers.start_sources();
    let (settling, batches) = match point.guest {
        Guest::Forwards(..) if layout.is_crowded() => (TURNS.0, TURNS),
        Guest::Forwards(..) => (SETTLING, BATCHES),
        Guest::Echoes(..) | Guest::Sends | Guest::Receives | Guest::Runs(_) => (SETTLING_STREAMS, BATCHES),
    };
    let rates = Guests(&rig).rates(settling, batches);
    match rates.wrong {
        0 => Ok(rates),
        wrong => Err(format!("{wrong} packets came back changed, or in another order")),
    }
}

/// Boots forwarding machines at a layout's home nodes and then lets the NUMA scheduler decide.
pub fn scheduled(options: &Options, point: Point, layout: &Layout) -> Result<Rig, String> {
    let period = PERIOD.as_ps() / 1_000_000;
    let more = format!("[host.hypervisor]\nplacement = \"numa\"\nperiod = \"{period} us\"");
    let rig = Rig::boot(options, "numa-io", &text(point, layout, &more))?;
    Guests(&rig).start("l2fwd")?;
    rig.pass(Duration::from_us(50));
    rig.computers.start_sources();
    Ok(rig)
}

/// Lets the scheduler run while forwarding machines get a series of loads (percentage of line rate, periods). Returns
/// the number of mode changes after each period.
pub fn live(options: &Options, vms: usize, loads: &[(u8, usize)]) -> Result<Vec<u64>, String> {
    let point = Point { guest: Guest::Forwards(512, 0), vms };
    let rig = scheduled(options, point, &Layout::heavy(2, vms))?;
    let manager = rig.host(0).manager().ok_or("nothing schedules the machines")?;
    let mut switches = Vec::new();
    for &(load, periods) in loads {
        let generators = rig.computers.generators();
        generators.iter().for_each(|generator| generator.handle.set_load(f64::from(load) / 100.0));
        for _ in 0..periods {
            Guests(&rig).pass_periods(1)?;
            switches.push(manager.done().switches);
        }
    }
    Ok(switches)
}

/// Moves virtual NICs between threads while their guests forward. Returns packets sent, packets returned, and moves.
#[cfg(test)]
pub fn moving(options: &Options, point: Point, layout: &Layout) -> Result<(u64, u64, u64), String> {
    let rig = boot_placed(options, &text(point, layout, ""), layout)?;
    Guests(&rig).start("l2fwd")?;
    rig.pass(Duration::from_us(50));
    rig.computers.start_sources();
    let mut moves = 0;
    for turn in 0..8 {
        rig.pass(Duration::from_us(300));
        let moved = Layout {
            vms: layout
                .vms
                .iter()
                .map(|&(home, thread)| (home, (thread + turn) % layout.threads.len()))
                .collect(),
            ..layout.clone()
        };
        // A NIC that has not yet left its old queue stays for now.
        moves += u64::from(Guests(&rig).place(&moved).is_ok());
    }
    rig.computers.generators().iter().for_each(|generator| generator.handle.set_load(0.0));
    rig.pass(Duration::from_ms(1));
    let counts = Guests(&rig).counts();
    match counts.wrong {
        0 => Ok((counts.sent, counts.returned, moves)),
        wrong => Err(format!("{wrong} packets came back changed, or in another order")),
    }
}
