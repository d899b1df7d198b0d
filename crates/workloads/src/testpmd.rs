//! dpdk-testpmd: forwards frames between the NICs that it polls.
//!
//! Options of DPDK's environment stand before `--`, those of testpmd behind it. As in the original, the first core of `-l`
//! does not forward; each pair of an RX queue and a port to send to is a stream, and streams are shared by the forwarding
//! cores.

use std::cell::RefCell;
use std::rc::Rc;

use clap::{CommandFactory, FromArgMatches, Parser};
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::net::{Fragment, Packet, PacketOwner, PollDevice, PollSetup, Rings};
use units::{Duration, Time};
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, UdpHeader, protocol};

use crate::command_line::refused;
use crate::l2fwd::{polled, turn_round};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::{self, Unmodelled};

/// Cycles of the loop per stream and per packet (assumed: about ten instructions per packet).
const LOOP: u64 = 40;
const EACH: u64 = 10;
/// Longest run in milliseconds: a day.
const LONGEST_MS: u64 = 86_400_000;
/// Bytes of a chunk of packets to send, of a buffer in it, and of what is in front of a buffer's data.
const CHUNK: u64 = 2 << 20;
const BUFFER: u64 = 2304;
const FRONT: u64 = 256;
/// Destination and source port of packets that are made here, as in the original's txonly.
const PORT: u16 = 9;

/// Options of the environment without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-n CHANNELS", "the memory channels are the machine's"),
    Unmodelled::harmless("-r RANKS", "the memory ranks are the machine's"),
    Unmodelled::harmless("-m MEGABYTES", "pools have the memory that rings need"),
    Unmodelled::harmless("--socket-mem SIZES", "pools have the memory that rings need"),
    Unmodelled::harmless("--huge-dir FOLDER", "pools lie in pages of 2 MiB"),
    Unmodelled::harmless("--file-prefix TEXT", "there is one process"),
    Unmodelled::harmless("--proc-type TYPE", "there is one process"),
    Unmodelled::harmless("--main-lcore CORE", "the first core of -l does not forward"),
    Unmodelled::harmless("--log-level LEVEL", "there is no debug output"),
    Unmodelled::harmless("--in-memory", "there is one process"),
    Unmodelled::harmless("--no-telemetry", "there is no telemetry"),
    Unmodelled::harmless("--no-pci", "only the NICs of the scenario are there"),
    Unmodelled::harmless("--iova-mode MODE", "addresses are those of the IOMMU, if it translates"),
    Unmodelled::refused(
        "-a, --allow DEVICE",
        "`--portlist` behind `--` names ports, in the order of the host's NICs",
    ),
    Unmodelled::refused(
        "-b, --block DEVICE",
        "`--portlist` behind `--` names ports, in the order of the host's NICs",
    ),
    Unmodelled::refused("--vdev DEVICE", "ports are the host's NICs"),
    Unmodelled::refused("--lcores MAP", "`-l` names the cores"),
    Unmodelled::refused("--no-huge", "pools lie in pages of 2 MiB"),
];

/// Options of testpmd without an effect of their own here.
const OWN_UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-i, --interactive", "forwarding starts at once"),
    Unmodelled::harmless("-a, --auto-start", "forwarding starts at once"),
    Unmodelled::harmless("--stats-period SECONDS", "the report has the counters"),
    Unmodelled::harmless("--total-num-mbufs NUMBER", "pools have the buffers that rings need"),
    Unmodelled::harmless("--mbcache NUMBER", "buffers are taken from the cache of a core"),
    Unmodelled::harmless("--mbuf-size BYTES", "a buffer holds 2048 bytes"),
    Unmodelled::harmless("--numa", "pools are at the node of the program"),
    Unmodelled::harmless("--socket-num NODE", "the program's key `memory` says at which node"),
    Unmodelled::harmless("--no-flush-rx", "rings are empty at the start"),
    Unmodelled::harmless("--rss-ip", "the hash covers addresses and ports"),
    Unmodelled::harmless("--rss-udp", "the hash covers addresses and ports"),
    Unmodelled::harmless("--disable-crc-strip", "devices remove the check sequence"),
    Unmodelled::harmless("--no-lsc-interrupt", "the link is looked at when forwarding starts"),
    Unmodelled::harmless("--rxfreet NUMBER", "32 buffers are posted together"),
    Unmodelled::harmless("--txfreet NUMBER", "packets are freed when 32 places are left"),
    Unmodelled::harmless("--txrst NUMBER", "every 32nd packet asks for a completion"),
    Unmodelled::harmless("--record-burst-stats", "the report has the counters"),
    Unmodelled::refused("--tx-first", "a program such as `pktgen` at the other end sends the first packets"),
    Unmodelled::refused("--max-pkt-len BYTES", "frames up to 2048 bytes are received"),
    Unmodelled::refused("--coremask MASK", "the cores of -l behind the first one forward, up to --nb-cores"),
    Unmodelled::refused("--nb-ports NUMBER", "`--portlist` names ports"),
];

/// Forwards frames between NICs by polling, bypassing the kernel. testpmd's own options follow `--`.
#[derive(Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "dpdk-testpmd", disable_help_flag = true, disable_version_flag = true)]
pub struct Testpmd {
    /// Cores, such as `1-2,4`; the first one does not forward. By default, those of the program.
    #[arg(short = 'l', value_parser = core_list)]
    cores: Option<CoreList>,
    /// Cores as a hexadecimal mask.
    #[arg(short = 'c', value_parser = core_mask, conflicts_with = "cores")]
    mask: Option<CoreList>,
    /// testpmd's options: `--forward-mode=io|mac|macswap|rxonly|txonly`, `--nb-cores`, `--rxq`, `--txq`, `--rxd`, `--txd`,
    /// `--burst`, `--txpkts`, `--portlist`, `--portmask`, `--port-topology=paired|chained|loop`, `--eth-peer=PORT,MAC`; and
    /// `--time=MS` for the length of the run.
    #[arg(last = true)]
    options: Vec<String>,
}

/// Numbers of cores.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CoreList(Vec<CpuId>);

fn core_list(text: &str) -> Result<CoreList, String> {
    let wrong = || format!("`{text}` is not a list of cores, such as `1-2,4`");
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>(), last.parse::<u16>());
        let (Ok(first), Ok(last)) = (first, last) else { return Err(wrong()) };
        if first > last || last > 4095 {
            return Err(wrong());
        }
        cores.extend((first..=last).map(CpuId));
    }
    Ok(CoreList(cores))
}

fn mask_of(text: &str) -> Result<Vec<u16>, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let mask = u128::from_str_radix(digits, 16).ok().filter(|mask| *mask > 0);
    let mask = mask.ok_or_else(|| format!("`{text}` is not a hexadecimal mask, such as `0x3`"))?;
    Ok((0..128).filter(|bit| mask >> bit & 1 != 0).collect())
}

fn core_mask(text: &str) -> Result<CoreList, String> {
    Ok(CoreList(mask_of(text)?.into_iter().map(CpuId).collect()))
}

/// Ports by number.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PortNumbers(Vec<u16>);

fn port_list(text: &str) -> Result<PortNumbers, String> {
    Ok(PortNumbers(
        core_list(text)
            .map_err(|_| format!("`{text}` is not a list of ports, such as `0,1`"))?
            .0
            .into_iter()
            .map(|port| port.0)
            .collect(),
    ))
}

fn port_mask(text: &str) -> Result<PortNumbers, String> {
    mask_of(text).map(PortNumbers)
}

/// What happens to a frame.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ForwardMode {
    /// It is sent as it is.
    #[default]
    Io,
    /// It is sent with the port's address to a peer.
    Mac,
    /// Its addresses are swapped.
    Macswap,
    /// It is dropped.
    Rxonly,
    /// Frames are made here.
    Txonly,
}

/// To which port frames go.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
enum PortTopology {
    /// To the other one of two; a last port alone to itself.
    #[default]
    Paired,
    /// To the next one.
    Chained,
    /// To itself.
    Loop,
}

/// testpmd's own options.
#[derive(Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "dpdk-testpmd --", disable_help_flag = true, no_binary_name = true)]
struct PmdOptions {
    #[arg(long = "forward-mode", value_enum, default_value_t)]
    mode: ForwardMode,
    #[arg(long = "nb-cores", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    forwarders: u16,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    rxq: u16,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    txq: u16,
    #[arg(long, default_value_t = 1024, value_parser = descriptors)]
    rxd: u32,
    #[arg(long, default_value_t = 1024, value_parser = descriptors)]
    txd: u32,
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512))]
    burst: u16,
    /// Bytes of a frame of txonly, without check sequence.
    #[arg(long = "txpkts", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=2048))]
    size: u16,
    #[arg(long = "portlist", value_parser = port_list)]
    list: Option<PortNumbers>,
    #[arg(long = "portmask", value_parser = port_mask, conflicts_with = "list")]
    mask: Option<PortNumbers>,
    #[arg(long = "port-topology", value_enum, default_value_t)]
    topology: PortTopology,
    #[arg(long = "eth-peer", value_parser = peer)]
    peers: Vec<(u16, MacAddr)>,
    /// Milliseconds to forward; by default, until all other programs have ended.
    #[arg(long = "time", value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    time_ms: Option<u64>,
}

fn descriptors(text: &str) -> Result<u32, String> {
    let number =
        text.parse().ok().filter(|number: &u32| number.is_power_of_two() && (64..=32_768).contains(number));
    number.ok_or_else(|| format!("`{text}` is not a number of descriptors: a power of two from 64 to 32768"))
}

fn peer(text: &str) -> Result<(u16, MacAddr), String> {
    let parsed = text.split_once(',').and_then(|(port, mac)| Some((port.parse().ok()?, mac.parse().ok()?)));
    parsed.ok_or_else(|| {
        format!("`{text}` is not a port and an Ethernet address, such as `0,02:00:00:00:00:01`")
    })
}

impl PmdOptions {
    fn ports(&self, there: usize) -> Vec<u16> {
        match self.list.as_ref().or(self.mask.as_ref()) {
            Some(ports) => ports.0.clone(),
            None => (0..there as u16).collect(),
        }
    }

    /// The place among `count` ports to which frames of a place go.
    fn target(&self, from: usize, count: usize) -> usize {
        match self.topology {
            PortTopology::Loop => from,
            PortTopology::Chained => (from + 1) % count,
            PortTopology::Paired if from ^ 1 < count => from ^ 1,
            PortTopology::Paired => from,
        }
    }
}

/// An RX queue, and where its frames go.
#[derive(Clone, Copy)]
struct ForwardStream {
    from: usize,
    to: usize,
    queue: u16,
    tx_queue: u16,
}

/// What was done, by port.
#[derive(Default, Clone, Copy)]
struct PortCount {
    received: u64,
    sent: u64,
    dropped: u64,
}

/// Buffers of frames that are made here.
struct MadeFrames {
    free: RefCell<Vec<PhysAddr>>,
}

impl MadeFrames {
    fn new(cpu: &Cpu, kernel: &Rc<dyn Kernel>, count: u64) -> Result<Rc<Self>, Failure> {
        let mut free = Vec::new();
        for _ in 0..count.div_ceil(CHUNK / BUFFER) {
            let chunk = kernel.alloc_pages(cpu, Pages::order_for(CHUNK), Policy::Task)?;
            free.extend((0..CHUNK / BUFFER).rev().map(|n| chunk.start + (n * BUFFER + FRONT)));
        }
        Ok(Rc::new(Self { free: RefCell::new(free) }))
    }
}

impl PacketOwner for MadeFrames {
    fn released(&self, _: &Cpu, packet: &mut Packet) {
        self.free.borrow_mut().extend(packet.fragments.drain(..).map(|fragment| fragment.at));
    }
}

/// Ports and counters that the forwarding cores share.
struct PmdShared {
    options: PmdOptions,
    ports: Vec<Rc<dyn PollDevice>>,
    counts: RefCell<Vec<PortCount>>,
    end: Time,
}

impl PmdShared {
    fn count(&self, port: usize, add: impl FnOnce(&mut PortCount)) {
        add(&mut self.counts.borrow_mut()[port]);
    }

    /// What was done in a time.
    fn report(&self, took: Duration, notes: Vec<String>) -> Report {
        let mut report = Report { notes, ..Report::default() };
        let us = took.as_ns_f64() / 1e3;
        report.add("time", "µs", us);
        for (port, count) in self.counts.borrow().iter().enumerate() {
            report.add(format!("port {port} rx"), "packets", count.received as f64);
            report.add(format!("port {port} tx"), "packets", count.sent as f64);
            report.add(format!("port {port} tx dropped"), "packets", count.dropped as f64);
            if self.options.mode != ForwardMode::Txonly {
                report.add(format!("port {port} rx rate"), "Mpackets/s", count.received as f64 / us);
            }
            if self.options.mode != ForwardMode::Rxonly {
                report.add(format!("port {port} tx rate"), "Mpackets/s", count.sent as f64 / us);
            }
        }
        report
    }

    fn peer(&self, port: usize) -> MacAddr {
        let given = self.options.peers.iter().find(|(of, _)| usize::from(*of) == port);
        given.map_or(MacAddr([2, 0, 0, 0, 0, port as u8]), |(_, mac)| *mac)
    }

    /// Changes a frame's addresses.
    fn change(&self, cpu: &Cpu, to: usize, packet: &Packet) {
        cpu.work(EACH);
        match self.options.mode {
            ForwardMode::Macswap => turn_round(cpu, packet),
            ForwardMode::Mac => {
                let addresses = [self.peer(to).0, self.ports[to].mac().0].concat();
                if let Some(first) = packet.fragments.first() {
                    cpu.store(first.at, &addresses);
                }
            }
            _ => {}
        }
    }

    /// A frame made here.
    fn make(&self, cpu: &Cpu, to: usize, made: &Rc<MadeFrames>) -> Option<Packet> {
        let at = made.free.borrow_mut().pop()?;
        cpu.work(EACH);
        let mut headers = [0; HEADER_LEN + 28];
        EthernetHeader::new(self.ports[to].mac(), self.peer(to), EtherType::IPV4).emit(&mut headers);
        let length = self.options.size - HEADER_LEN as u16 - 20;
        let (from, target) = ([198, 18, 0, 1].into(), [198, 18, 0, 2].into());
        Ipv4Header::new(from, target, protocol::UDP, length).emit(&mut headers[HEADER_LEN..]);
        UdpHeader { source: PORT, destination: PORT, len: length, checksum: 0 }
            .emit(&mut headers[HEADER_LEN + 20..]);
        cpu.store(at, &headers);
        let fragment = Fragment { pages: None, at, length: self.options.size.into() };
        Some(Packet::of(fragment, Some(Rc::clone(made) as Rc<dyn PacketOwner>)))
    }

    /// Forwards the frames of some streams.
    async fn forward(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        streams: &[ForwardStream],
    ) -> Result<(), Failure> {
        let _part = cpu.book(Part::User);
        let burst = usize::from(self.options.burst);
        let room = 2 * u64::from(self.options.txd) + u64::from(self.options.burst);
        let made = match self.options.mode {
            ForwardMode::Txonly => Some(MadeFrames::new(cpu, kernel, room * streams.len() as u64)?),
            _ => None,
        };
        let mut packets = Vec::with_capacity(burst);
        while cpu.now() < self.end {
            for stream in streams {
                cpu.work(LOOP);
                match &made {
                    Some(made) => {
                        while packets.len() < burst
                            && let Some(packet) = self.make(cpu, stream.to, made)
                        {
                            packets.push(packet);
                        }
                    }
                    None => {
                        self.ports[stream.from].receive(cpu, stream.queue, &mut packets, burst);
                        let taken = packets.len() as u64;
                        self.count(stream.from, |count| count.received += taken);
                    }
                }
                let given = packets.len() as u64;
                if self.options.mode == ForwardMode::Rxonly {
                    packets.drain(..).for_each(|packet| packet.release(cpu));
                }
                if given == 0 {
                    cpu.rebook(Part::User, Part::Poll);
                }
                if !packets.is_empty() {
                    if made.is_none() {
                        packets.iter().for_each(|packet| self.change(cpu, stream.to, packet));
                    }
                    cpu.sync().await;
                    self.ports[stream.to].send(cpu, stream.tx_queue, &mut packets);
                    // As in the original, packets that do not fit are dropped.
                    let left = packets.len() as u64;
                    packets.drain(..).for_each(|packet| packet.release(cpu));
                    self.count(stream.to, |count| {
                        count.sent += given - left;
                        count.dropped += if made.is_some() { 0 } else { left };
                    });
                }
                cpu.sync().await;
            }
        }
        Ok(())
    }
}

impl Testpmd {
    /// testpmd's own options, and notes on those without effect.
    fn own(&self) -> Result<(PmdOptions, Vec<String>), Refused> {
        let wrong = |error: clap::Error| refused("dpdk-testpmd", &PmdOptions::command(), &error);
        let command = unmodelled::add(PmdOptions::command(), OWN_UNMODELLED);
        let matches = command.try_get_matches_from(&self.options).map_err(wrong)?;
        let notes = unmodelled::notes("dpdk-testpmd", &matches, OWN_UNMODELLED);
        let notes = notes.into_iter().collect::<Result<Vec<String>, Refused>>()?;
        Ok((PmdOptions::from_arg_matches(&matches).map_err(wrong)?, notes))
    }

    fn given_cores(&self) -> Option<&[CpuId]> {
        self.cores.as_ref().or(self.mask.as_ref()).map(|cores| &cores.0[..])
    }

    async fn run(&self, cpu: &Cpu, environment: &Environment) -> Result<Report, Failure> {
        let (options, notes) = self.own()?;
        let kernel = &environment.kernel;
        let all = self.given_cores().unwrap_or(&environment.cpus);
        let forwarders = all.get(1..).unwrap_or_default();
        let names = (0..).map(|n| format!("uio{n}")).take_while(|name| kernel.open_file(name).is_some());
        let setup = PollSetup {
            queues: options.rxq.max(options.txq),
            rings: Rings { tx: options.txd, rx: options.rxd },
        };
        let mut ports = Vec::new();
        for port in options.ports(names.count()) {
            let name = format!("uio{port}");
            let device = polled(kernel, &name)?;
            device.start(cpu, setup).await.map_err(|error| Failure::about(name, error))?;
            ports.push(device);
        }
        let count = ports.len();
        let streams: Vec<ForwardStream> = (0..options.rxq)
            .flat_map(|queue| (0..count).map(move |from| (queue, from)))
            .map(|(queue, from)| ForwardStream {
                from,
                to: options.target(from, count),
                queue,
                tx_queue: queue % options.txq,
            })
            .collect();
        let began = cpu.now();
        let end = options.time_ms.map_or(Time::NEVER, |ms| began + Duration::from_ms(ms));
        let cores = usize::from(options.forwarders).min(forwarders.len()).min(streams.len());
        let counts = RefCell::new(vec![PortCount::default(); count]);
        let shared = Rc::new(PmdShared { options, ports, counts, end });
        let (counted, told) = (Rc::clone(&shared), notes.clone());
        let report = move |now: Time| counted.report(now.since(began), told.clone());
        environment.so_far.by(report);
        let mut tasks = Vec::new();
        for (n, &core) in forwarders.iter().enumerate().take(cores) {
            let own: Vec<ForwardStream> = streams.iter().copied().skip(n).step_by(cores).collect();
            let (shared, face) = (Rc::clone(&shared), Rc::clone(kernel));
            let work = async move |cpu: Cpu| shared.forward(&cpu, &face, &own).await;
            let params = TaskParams::named(format!("dpdk-worker{n}")).on(core).of(cpu);
            tasks.push(kernel.run(params, work));
        }
        for task in tasks {
            task.wait().await?;
        }
        Ok(shared.report(cpu.now().since(began), notes))
    }
}

impl Program for Testpmd {
    fn serves(&self) -> bool {
        self.own().is_ok_and(|(options, _)| options.time_ms.is_none())
    }

    fn lasts(&self) -> Option<Duration> {
        self.own().ok()?.0.time_ms.map(Duration::from_ms)
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let (options, _) = self.own()?;
        let given = self.given_cores();
        if let Some(core) =
            given.and_then(|cores| cores.iter().find(|core| usize::from(core.0) >= premises.all_cores))
        {
            let help = format!("cores 0 to {}", premises.all_cores.saturating_sub(1));
            return Err(Refused::new(format!("dpdk-testpmd: there is no core {}", core.0), help));
        }
        let cores = given.map_or(premises.cores, <[CpuId]>::len);
        let message = format!("dpdk-testpmd: {cores} cores, and the first one does not forward");
        let help = format!("-l with a core more than the {} that forward", options.forwarders);
        Refused::unless(cores > usize::from(options.forwarders), message, help)?;
        let there = premises.polled.len();
        let ports = options.ports(there);
        let asked = if ports.is_empty() { vec![0] } else { ports };
        asked.iter().try_for_each(|port| premises.polled("dpdk-testpmd", &format!("uio{port}")))
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move { Self::run(&self, &cpu, &environment).await })
    }
}
