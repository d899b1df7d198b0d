//! iperf, version 2.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, Policy};
use units::{Duration, Time};

use super::amount_within;
use super::print::{self, IperfVersion};
use super::stream::{self, DatagramKind, HEADER, StreamExtent, StreamSettings, StreamTally};
use crate::options::{duration, length, mixed_size, peer, within};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// Bits per second of datagrams by default, as in the original.
const UDP_RATE: u64 = 1_000_000;
/// Bytes per call by default: of TCP, and of UDP.
const TCP_LENGTH: u32 = 131_072;
const UDP_LENGTH: u32 = 1470;
/// Most bytes per call.
const MOST: u32 = 1 << 22;
/// Maximum datagram size: an IPv4 packet of 65535 B minus two headers.
pub(super) const DATAGRAM: u32 = 65_507;

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-D, --daemon", "a server is a task like any other, and prints nothing"),
    Unmodelled::harmless("-f, --format UNIT", "bandwidth is reported in Mbit/s"),
    Unmodelled::harmless("-e, --enhanced", "the report has everything"),
    Unmodelled::harmless("-m, --print_mss", "the MTU is in `ethtool eth0`"),
    Unmodelled::harmless("-C, --compatibility", "both sides have the same version"),
    Unmodelled::harmless("-v, --version", "there is one version"),
    Unmodelled::harmless("-o, --output FILE", "reports are in the program's output"),
    Unmodelled::harmless("-x, --reportexclude KINDS", "the report has everything"),
    Unmodelled::harmless("-y, --reportstyle STYLE", "`nearfar run --json` has values for programs"),
    Unmodelled::harmless("-z, --realtime", "a program on a core of its own is not preempted"),
    Unmodelled::harmless("-U, --single_udp", "datagrams of all clients are taken by one task"),
    Unmodelled::harmless("-S, --tos TOS", "no queue on the way has classes of service"),
    Unmodelled::harmless("-T, --ttl TTL", "no router counts it down to zero"),
    Unmodelled::harmless("--sum-only", "sums are reported"),
    Unmodelled::refused("-V, --ipv6_domain", "hosts have IPv4 addresses"),
    Unmodelled::refused("-M, --mss BYTES", "the event `set` changes the MTU of a device, as in `a:eth0.mtu`"),
    Unmodelled::unless("-Z, --linux-congestion ALGORITHM", "cubic", "the kernel has CUBIC"),
    Unmodelled::refused("-F, --fileinput FILE", "`netperf -t TCP_SENDFILE` sends a file"),
    Unmodelled::refused("-I, --stdin", "`netperf -t TCP_SENDFILE` sends a file"),
    Unmodelled::refused("-R, --reverse", "`iperf3 -R` receives from its server"),
    Unmodelled::refused("-d, --dualtest", "add a second program `iperf -c` at the server's host"),
    Unmodelled::refused(
        "-r, --tradeoff",
        "add a second program `iperf -c` at the server's host, with the key `start`",
    ),
    Unmodelled::refused("--full-duplex", "add a second program `iperf -c` at the server's host"),
];

/// Sends parallel streams of TCP or UDP and measures their throughput: a server with `-s`, a client with `-c`.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "iperf", disable_help_flag = true, disable_version_flag = true)]
pub struct Iperf {
    /// Run as a server.
    #[arg(short = 's', long, required_unless_present = "client")]
    server: bool,
    /// Send to this server.
    #[arg(short = 'c', long, conflicts_with = "server", value_parser = peer)]
    client: Option<Ipv4Addr>,
    /// The port: the server listens there, the client sends to it.
    #[arg(short = 'p', long, default_value_t = 5001, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Seconds to send. The real default of 10 would be long for a simulation.
    #[arg(short = 't', long, default_value_t = 0.01, value_parser = length)]
    time: f64,
    /// Bytes to send per stream, instead of a time.
    #[arg(short = 'n', long = "num", value_parser = amount, conflicts_with = "time")]
    bytes: Option<u64>,
    /// Bytes per send or receive call; 128 KiB by default, 1470 of UDP.
    #[arg(short = 'l', long = "len", value_parser = call)]
    length: Option<u32>,
    /// The local address.
    #[arg(short = 'B', long = "bind", default_value = "0.0.0.0")]
    local: Ipv4Addr,
    /// Number of streams.
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
    /// Send small segments at once (no Nagle).
    #[arg(short = 'N', long = "nodelay")]
    no_delay: bool,
    /// Bytes of the socket buffers; as the kernel sizes them by default.
    #[arg(short = 'w', long, value_parser = window)]
    window: Option<u32>,
    /// Print a line per stream at this interval in seconds.
    #[arg(short = 'i', long, value_parser = length)]
    interval: Option<f64>,
    /// UDP instead of TCP.
    #[arg(short = 'u', long)]
    udp: bool,
    /// Bits per second of a stream; of UDP 1 Mbit/s by default, of TCP no limit.
    #[arg(short = 'b', long = "bandwidth", value_parser = mixed_size)]
    rate: Option<u64>,
}

/// Bytes to send.
pub(super) fn amount(text: &str) -> Result<u64, String> {
    amount_within(mixed_size(text)?)
}

fn call(text: &str) -> Result<u32, String> {
    within(mixed_size(text)?, 1..=MOST)
}

fn window(text: &str) -> Result<u32, String> {
    within(mixed_size(text)?, 1..=1 << 30)
}

impl Iperf {
    fn settings(&self) -> StreamSettings {
        let extent = match self.bytes {
            Some(bytes) => StreamExtent::Bytes(bytes),
            None => StreamExtent::Time(duration(self.time)),
        };
        StreamSettings {
            udp: self.udp,
            length: self.length.unwrap_or(if self.udp { UDP_LENGTH } else { TCP_LENGTH }),
            window: self.window,
            extent,
            rate: self.rate.unwrap_or(if self.udp { UDP_RATE } else { 0 }),
            no_delay: self.no_delay,
            interval: self.interval.map(duration),
            omit: Duration::ZERO,
        }
    }

    /// Sends one stream. Returns what was sent, and what the server of datagrams received.
    async fn send(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        to: SocketAddrV4,
    ) -> Result<(StreamTally, Option<StreamTally>), Error> {
        let settings = self.settings();
        let pages = kernel.alloc_pages(cpu, Pages::order_for(settings.length.into()), Policy::Task)?;
        let done = if self.udp {
            let socket = kernel.network().udp(cpu, SocketAddrV4::new(self.local, 0))?;
            if let Some(sizes) = settings.buffers() {
                socket.set_buffers(sizes);
            }
            let sent = stream::send_datagrams(cpu, &*socket, to, &settings, pages).await?;
            let received = stream::end_datagrams(cpu, &*socket, to, settings.length, (&sent, pages)).await?;
            socket.close(cpu);
            (sent, received)
        } else {
            let stream = kernel.network().connect_from(cpu, SocketAddrV4::new(self.local, 0), to).await?;
            settings.prepare(&*stream);
            let sent = stream::send(cpu, &*stream, &settings, pages).await?;
            // The server closes after it has received everything.
            stream.recv(cpu, Segment { at: pages.start, length: 1 }).await?;
            let sent = stream::noted(sent, &*stream);
            stream.close(cpu);
            (sent, None)
        };
        kernel.free_pages(cpu, pages);
        Ok(done)
    }

    async fn serve(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Result<Report, Failure> {
        let Environment { kernel, .. } = environment;
        let at = SocketAddrV4::new(self.local, self.port);
        let fail = |error| Failure::about(format!("iperf, port {}", self.port), error);
        if self.udp {
            self.take_datagrams(&cpu, &kernel, at).await.map_err(fail)?;
            return Ok(Report::default());
        }
        let listener = kernel.network().listen(&cpu, at, 128).map_err(fail)?;
        loop {
            let stream = listener.accept(&cpu).await?;
            let (face, settings) = (Rc::clone(&kernel), self.settings());
            settings.prepare(&*stream);
            let drain = move |cpu: Cpu| -> Async<'static, ()> {
                Box::pin(async move {
                    let order = Pages::order_for(settings.length.into());
                    let Ok(pages) = face.alloc_pages(&cpu, order, Policy::Task) else { return };
                    // A client that disconnects reports the reason itself.
                    let _ = stream::receive(&cpu, &*stream, &settings, pages).await;
                    face.free_pages(&cpu, pages);
                    stream.close(&cpu);
                })
            };
            kernel.spawn(TaskParams::named("iperf").of(&cpu), Box::new(drain));
        }
    }

    async fn take_datagrams(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        at: SocketAddrV4,
    ) -> Result<(), Error> {
        let settings = self.settings();
        let pages = kernel.alloc_pages(cpu, Pages::order_for(DATAGRAM.into()), Policy::Task)?;
        let socket = kernel.network().udp(cpu, at)?;
        if let Some(sizes) = settings.buffers() {
            socket.set_buffers(sizes);
        }
        let mut clients: BTreeMap<SocketAddrV4, (Time, StreamTally)> = BTreeMap::new();
        loop {
            let room = Segment { at: pages.start, length: DATAGRAM };
            let (bytes, from) = socket.recv_from(cpu, room).await?;
            let (began, tally) = clients.entry(from).or_insert_with(|| (cpu.now(), StreamTally::default()));
            if let DatagramKind::Last = stream::take_datagram(cpu, &settings, tally, (*began, pages, bytes)) {
                stream::send_report(cpu, &*socket, from, tally, pages).await?;
            }
            cpu.sync().await;
        }
    }

    fn report(&self, sent: &[StreamTally], received: &[StreamTally], took: f64) -> Report {
        let bytes: u64 = sent.iter().map(|tally| tally.bytes).sum();
        let mut report = Report::default();
        report.add("time", "µs", took / 1e3);
        report.add("transfer", "bytes", bytes as f64);
        let rate = bytes as f64 * 8.0 / took * 1e3;
        report.add("bandwidth", "Mbit/s", rate);
        // What the server reports of datagrams; streams lose nothing.
        let arrived: u64 = received.iter().map(|tally| tally.bytes).sum();
        let arrived = arrived as f64 * 8.0 / took * 1e3;
        self.settings().set_pace(&mut report, sent.len(), if self.udp { arrived } else { rate });
        if self.udp {
            datagram_readings(&mut report, received, took);
            if received.len() < sent.len() {
                let missing = sent.len() - received.len();
                report.notes.push(format!("{missing} streams had no report from the server"));
            }
        } else {
            let again: u64 = sent.iter().map(|tally| tally.again).sum();
            report.add("sent again", "segments", again as f64);
        }
        if let Some(interval) = self.interval {
            let shown = stream::seen(sent, received);
            report.text =
                Some(print::lines(IperfVersion::Two, duration(interval), &shown, self.udp).join("\n"));
        }
        report
    }
}

/// What receivers of datagrams saw.
pub(super) fn datagram_readings(report: &mut Report, received: &[StreamTally], took: f64) {
    let sum = |of: fn(&StreamTally) -> u64| received.iter().map(of).sum::<u64>() as f64;
    let (bytes, datagrams, lost) = (sum(|t| t.bytes), sum(|t| t.datagrams), sum(|t| t.lost));
    let jitter =
        received.iter().map(|tally| tally.jitter.as_ns_f64()).sum::<f64>() / received.len().max(1) as f64;
    report.add("received", "bytes", bytes);
    report.add("received bandwidth", "Mbit/s", bytes * 8.0 / took * 1e3);
    report.add("jitter", "µs", jitter / 1e3);
    report.add("lost", "datagrams", lost);
    report.add("loss", "%", 100.0 * lost / (lost + datagrams).max(1.0));
    report.add("out of order", "datagrams", sum(|t| t.late));
}

impl Program for Iperf {
    fn serves(&self) -> bool {
        self.server
    }

    fn lasts(&self) -> Option<Duration> {
        self.settings().lasts()
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        self.settings().check("iperf")?;
        self.client.map_or(Ok(()), |server| premises.peer("iperf", server))?;
        let length = self.settings().length;
        let fits = !self.udp || (HEADER..=DATAGRAM).contains(&length);
        Refused::unless(
            fits,
            format!("iperf: no datagram has {length} bytes"),
            format!("-l {HEADER} to {DATAGRAM}"),
        )
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Some(host) = self.client else { return self.serve(cpu, environment).await };
            let to = SocketAddrV4::new(host, self.port);
            let fail = |error| Failure::of_connection(format!("iperf to {to}"), error, "iperf -s");
            let (began, cpus) = (cpu.now(), environment.cpus.len());
            let mut streams = Vec::new();
            for n in 0..self.parallel {
                let (me, kernel) = (Rc::clone(&self), Rc::clone(&environment.kernel));
                let send = async move |cpu: Cpu| me.send(&cpu, &kernel, to).await;
                let on = environment.cpus[usize::from(n) % cpus];
                let params = TaskParams::named(format!("iperf/{n}")).on(on).of(&cpu);
                streams.push(environment.kernel.run(params, send));
            }
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            for stream in streams {
                let (own, other) = stream.wait().await.map_err(fail)?;
                sent.push(own);
                received.extend(other);
            }
            // Datagrams: without the exchange of reports.
            let took = match self.udp {
                true => sent.iter().map(|tally| tally.took.as_ns_f64()).fold(0.0, f64::max),
                false => cpu.now().since(began).as_ns_f64(),
            };
            Ok(self.report(&sent, &received, took.max(1.0)))
        })
    }
}
