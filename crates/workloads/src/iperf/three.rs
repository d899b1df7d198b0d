//! iperf, version 3.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, Policy};
use platform::socket::{TcpListener, TcpStream, UdpSocket};
use platform::sync::Completion;
use units::Duration;

use super::amount_within;
use super::control::{self, Iperf3Order};
use super::json;
use super::print::{self, IperfVersion};
use super::stream::{self, HEADER, StreamExtent, StreamSettings, StreamTally};
use super::two::{DATAGRAM, datagram_readings};
use crate::options::{binary_size, decimal_rate, duration, length, peer, seconds, within};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;
use crate::usage::{busy, busy_since, user_since};

/// Bits per second of datagrams by default, as in the original.
const UDP_RATE: u64 = 1_000_000;
/// Bytes per call by default: of TCP, and of UDP, where it is the segment size of the control connection.
const TCP_LENGTH: u32 = 131_072;
const UDP_LENGTH: u32 = 1448;
/// How long datagrams may be on their way when the last one has been sent (assumed: many interrupt delays).
const PATIENCE: Duration = Duration::from_ms(1);
/// Most bytes per call (iperf3: `MAX_BLOCKSIZE`).
const MOST: u32 = 1 << 20;
/// Most streams (iperf3: `MAX_STREAMS`).
const STREAMS: i64 = 128;

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-D, --daemon", "a server is a task like any other, and prints nothing"),
    Unmodelled::harmless("-1, --one-off", "a server ends with the run"),
    Unmodelled::harmless("-I, --pidfile FILE", "there is no file of processes"),
    Unmodelled::harmless("-V, --verbose", "the report has everything"),
    Unmodelled::harmless("-d, --debug", "there is no debug output"),
    Unmodelled::harmless("-f, --format UNIT", "bandwidth is reported in Mbit/s"),
    Unmodelled::harmless("-4, --version4", "hosts have IPv4 addresses"),
    Unmodelled::harmless("-T, --title TEXT", "the command line names the result"),
    Unmodelled::harmless("-S, --tos TOS", "no queue on the way has classes of service"),
    Unmodelled::harmless("--dscp DSCP", "no queue on the way has classes of service"),
    Unmodelled::harmless("-L, --flowlabel LABEL", "IPv4 has no flow label"),
    Unmodelled::harmless("--logfile FILE", "reports are in the program's output"),
    Unmodelled::harmless("--forceflush", "reports are in the program's output"),
    Unmodelled::harmless("--timestamps", "`nearfar trace` has the time of each packet"),
    Unmodelled::harmless("--connect-timeout MS", "a connection is refused at once, or made"),
    Unmodelled::harmless("--get-server-output", "the client's report has the server's results"),
    Unmodelled::harmless("--udp-counters-64bit", "datagrams have numbers of 64 bits"),
    Unmodelled::harmless("--repeating-payload", "contents of buffers take no time to choose"),
    Unmodelled::harmless("--dont-fragment", "datagrams up to the MTU are not fragmented"),
    Unmodelled::harmless("--pacing-timer US", "sending at a rate waits for each call's time"),
    Unmodelled::harmless("--idle-timeout SECONDS", "a server ends with the run"),
    Unmodelled::harmless("--snd-timeout MS", "a connection that fails is reported"),
    Unmodelled::harmless("--rcv-timeout MS", "a connection that fails is reported"),
    Unmodelled::refused("-6, --version6", "hosts have IPv4 addresses"),
    Unmodelled::refused("--cport PORT", "streams have free ports"),
    Unmodelled::refused(
        "-M, --set-mss BYTES",
        "the event `set` changes the MTU of a device, as in `a:eth0.mtu`",
    ),
    Unmodelled::unless("-C, --congestion ALGORITHM", "cubic", "the kernel has CUBIC"),
    Unmodelled::refused("-F, --file FILE", "`netperf -t TCP_SENDFILE` sends a file"),
    Unmodelled::refused("-Z, --zerocopy", "`netperf -t TCP_SENDFILE` sends without a copy"),
    Unmodelled::refused("--bidir", "add a second program, `iperf3 -R` to a second server (`-p`)"),
    Unmodelled::refused("--fq-rate RATE", "`-b` sends at a rate"),
    Unmodelled::refused("--sctp", "there are TCP and UDP"),
];

/// Sends parallel streams of TCP or UDP and measures their throughput: a server with `-s`, a client with `-c`. Streams
/// have a task each, on the program's cores in turn.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "iperf3", disable_help_flag = true, disable_version_flag = true)]
pub struct Iperf3 {
    /// Run as a server.
    #[arg(short = 's', long, required_unless_present = "client")]
    server: bool,
    /// Test with this server.
    #[arg(short = 'c', long, conflicts_with = "server", value_parser = peer)]
    client: Option<Ipv4Addr>,
    /// TCP port of the server.
    #[arg(short = 'p', long, default_value_t = 5201, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Seconds to send. The real default of 10 would be long for a simulation.
    #[arg(short = 't', long, default_value_t = 0.01, value_parser = length)]
    time: f64,
    /// Bytes to send, all streams together, instead of a time.
    #[arg(short = 'n', long, value_parser = amount, conflicts_with_all = ["time", "blocks"])]
    bytes: Option<u64>,
    /// Calls, of all streams together, instead of a time.
    #[arg(short = 'k', long = "blockcount", value_parser = amount, conflicts_with = "time")]
    blocks: Option<u64>,
    /// Bytes per send or receive call; 128 KiB by default, 1448 of UDP.
    #[arg(short = 'l', long, value_parser = call)]
    length: Option<u32>,
    /// The local address.
    #[arg(short = 'B', long = "bind", default_value = "0.0.0.0")]
    local: Ipv4Addr,
    /// Number of streams.
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=STREAMS))]
    parallel: u16,
    /// The server sends.
    #[arg(short = 'R', long)]
    reverse: bool,
    /// UDP instead of TCP.
    #[arg(short = 'u', long)]
    udp: bool,
    /// Bits per second of a stream, 0 for no limit; of UDP 1 Mbit/s by default, of TCP no limit.
    #[arg(short = 'b', long = "bitrate", visible_alias = "bandwidth", value_parser = rate)]
    rate: Option<u64>,
    /// Bytes of the socket buffers; as the kernel sizes them by default.
    #[arg(short = 'w', long, value_parser = window)]
    window: Option<u32>,
    /// Send small segments at once (no Nagle).
    #[arg(short = 'N', long)]
    no_delay: bool,
    /// Print a line per stream at this interval in seconds; 0 for none. With `-J`, one by default.
    #[arg(short = 'i', long, value_parser = seconds)]
    interval: Option<f64>,
    /// Seconds at the start that do not count.
    #[arg(short = 'O', long, default_value_t = 0.0, value_parser = seconds)]
    omit: f64,
    /// Core of the client's streams, and of the server's: `N` or `N,M`.
    #[arg(short = 'A', long, value_parser = affinity)]
    affinity: Option<(CpuId, Option<CpuId>)>,
    /// Print JSON with the original's fields.
    #[arg(short = 'J', long)]
    json: bool,
}

fn amount(text: &str) -> Result<u64, String> {
    amount_within(binary_size(text)?)
}

fn call(text: &str) -> Result<u32, String> {
    within(binary_size(text)?, 1..=MOST)
}

fn window(text: &str) -> Result<u32, String> {
    within(binary_size(text)?, 1..=1 << 29)
}

/// A rate, perhaps with the number of calls per burst behind a slash, which only shapes it.
fn rate(text: &str) -> Result<u64, String> {
    let (rate, burst) = text.split_once('/').unwrap_or((text, "1"));
    let is_burst = burst.parse().is_ok_and(|burst: u32| (1..=1000).contains(&burst));
    if is_burst { decimal_rate(rate) } else { Err(format!("`{burst}` is not a burst of 1 to 1000 calls")) }
}

fn affinity(text: &str) -> Result<(CpuId, Option<CpuId>), String> {
    let core =
        |text: &str| text.parse().map(CpuId).map_err(|_| format!("`{text}` is not the number of a core"));
    match text.split_once(',') {
        Some((own, other)) => Ok((core(own)?, Some(core(other)?))),
        None => Ok((core(text)?, None)),
    }
}

/// A stream's socket.
enum StreamSocket {
    Tcp(Rc<dyn TcpStream>),
    /// With the peer's address, as far as it is known.
    Udp(Rc<dyn UdpSocket>, Option<SocketAddrV4>),
}

impl StreamSocket {
    fn close(&self, cpu: &Cpu) {
        match self {
            Self::Tcp(stream) => stream.close(cpu),
            Self::Udp(socket, _) => socket.close(cpu),
        }
    }

    /// Local port, and that of the peer.
    fn ports(&self) -> (u16, u16) {
        match self {
            Self::Tcp(stream) => (stream.local().port(), stream.peer().port()),
            Self::Udp(socket, peer) => (socket.local().port(), peer.map_or(0, |peer| peer.port())),
        }
    }
}

/// Sends or receives one stream.
async fn carry(
    cpu: &Cpu,
    kernel: &Rc<dyn Kernel>,
    socket: &StreamSocket,
    settings: &StreamSettings,
    sends: bool,
) -> Result<StreamTally, Error> {
    let most = settings.length.max(if settings.udp { DATAGRAM } else { 1 });
    let pages = kernel.alloc_pages(cpu, Pages::order_for(most.into()), Policy::Task)?;
    let tally = match (socket, sends) {
        (StreamSocket::Tcp(stream), true) => {
            let sent = stream::send(cpu, &**stream, settings, pages).await?;
            // The receiver closes after it has received everything.
            stream.recv(cpu, Segment { at: pages.start, length: 1 }).await?;
            Ok(stream::noted(sent, &**stream))
        }
        (StreamSocket::Tcp(stream), false) => {
            let received = stream::receive(cpu, &**stream, settings, pages).await;
            stream.shutdown(cpu);
            received
        }
        (StreamSocket::Udp(socket, Some(to)), true) => {
            stream::send_datagrams(cpu, &**socket, *to, settings, pages).await
        }
        (StreamSocket::Udp(socket, _), true) => {
            // The client's first datagram tells where it is.
            let room = Segment { at: pages.start, length: DATAGRAM };
            let (_, from) = socket.recv_from(cpu, room).await?;
            stream::send_datagrams(cpu, &**socket, from, settings, pages).await
        }
        (StreamSocket::Udp(socket, _), false) => {
            let (began, mut tally) = (cpu.now(), StreamTally::default());
            // The end comes on the control connection, and closes the socket.
            while let Ok((bytes, _)) =
                socket.recv_from(cpu, Segment { at: pages.start, length: DATAGRAM }).await
            {
                stream::take_datagram(cpu, settings, &mut tally, (began, pages, bytes));
                cpu.sync().await;
            }
            Ok(tally)
        }
    };
    kernel.free_pages(cpu, pages);
    tally
}

/// Starts a task per stream.
fn start(
    cpu: &Cpu,
    kernel: &Rc<dyn Kernel>,
    sockets: &[Rc<StreamSocket>],
    (settings, sends): (StreamSettings, bool),
    cores: &[CpuId],
) -> Vec<Completion<Result<StreamTally, Error>>> {
    let one = |(n, socket): (usize, &Rc<StreamSocket>)| {
        let (socket, face) = (Rc::clone(socket), Rc::clone(kernel));
        let work = async move |cpu: Cpu| carry(&cpu, &face, &socket, &settings, sends).await;
        let params = TaskParams::named(format!("iperf3/{n}")).on(cores[n % cores.len()]).of(cpu);
        kernel.run(params, work)
    };
    sockets.iter().enumerate().map(one).collect()
}

async fn finish(streams: Vec<Completion<Result<StreamTally, Error>>>) -> Result<Vec<StreamTally>, Error> {
    let mut tallies = Vec::new();
    for stream in streams {
        tallies.push(stream.wait().await?);
    }
    Ok(tallies)
}

/// CPU time of a side: all of it, and the programs' own part.
type CpuUsed = (Duration, Duration);

/// The results of a test.
pub(super) struct TestResults {
    pub sent: Vec<StreamTally>,
    pub received: Vec<StreamTally>,
    /// Ports of each stream: the client's and the server's.
    pub ports: Vec<(u16, u16)>,
    pub took: Duration,
    /// Share of a core's time in percent: all, and the programs' own; on this host, and the server's.
    pub local_cpu: (f64, f64),
    pub remote_cpu: (f64, f64),
}

impl Iperf3 {
    pub(super) fn settings(&self) -> StreamSettings {
        let share = |all: u64| all.div_ceil(self.parallel.into());
        let extent = match (self.bytes, self.blocks) {
            (Some(bytes), _) => StreamExtent::Bytes(share(bytes)),
            (_, Some(blocks)) => StreamExtent::Blocks(share(blocks)),
            _ => StreamExtent::Time(duration(self.time)),
        };
        let wanted = self.interval.or(self.json.then_some(1.0)).filter(|seconds| *seconds > 0.0);
        StreamSettings {
            udp: self.udp,
            length: self.length.unwrap_or(if self.udp { UDP_LENGTH } else { TCP_LENGTH }),
            window: self.window,
            extent,
            rate: self.rate.unwrap_or(if self.udp { UDP_RATE } else { 0 }),
            no_delay: self.no_delay,
            interval: wanted.map(duration),
            omit: duration(self.omit),
        }
    }

    pub(super) fn order(&self) -> Iperf3Order {
        Iperf3Order {
            settings: self.settings(),
            parallel: self.parallel,
            reverse: self.reverse,
            core: self.affinity.and_then(|(_, other)| other),
        }
    }

    /// Address of the server.
    pub(super) fn to(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.client.unwrap_or(Ipv4Addr::UNSPECIFIED), self.port)
    }

    fn from(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.local, 0)
    }

    async fn serve(&self, cpu: &Cpu, environment: &Environment) -> Result<(), Failure> {
        let kernel = &environment.kernel;
        let at = SocketAddrV4::new(self.local, self.port);
        let listener = kernel.network().listen(cpu, at, 128);
        let listener =
            listener.map_err(|error| Failure::about(format!("iperf3, port {}", self.port), error))?;
        let own = self.affinity.map(|(core, _)| core);
        let pages = kernel.alloc_pages(cpu, 0, Policy::Task)?;
        loop {
            let control = listener.accept(cpu).await?;
            // A client that disconnects reports the reason itself.
            let _ = serve_test(cpu, environment, &*listener, &*control, (own, pages)).await;
            control.close(cpu);
        }
    }

    /// Opens the sockets of a test that the server has accepted.
    async fn connect(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        control: &dyn TcpStream,
        pages: Pages,
    ) -> Result<Vec<Rc<StreamSocket>>, Error> {
        let (settings, mut sockets) = (self.settings(), Vec::new());
        for _ in 0..self.parallel {
            let socket = if self.udp {
                let port = control::receive(cpu, control, pages).await?[0] as u16;
                let to = SocketAddrV4::new(*self.to().ip(), port);
                let socket = kernel.network().udp(cpu, self.from())?;
                if let Some(sizes) = settings.buffers() {
                    socket.set_buffers(sizes);
                }
                if self.reverse {
                    socket.send_to(cpu, to, Segment { at: pages.start, length: HEADER }).await?;
                }
                StreamSocket::Udp(socket, Some(to))
            } else {
                let stream = kernel.network().connect_from(cpu, self.from(), self.to()).await?;
                control::send(cpu, &*stream, pages, control::data(control.local().port())).await?;
                settings.prepare(&*stream);
                StreamSocket::Tcp(stream)
            };
            sockets.push(Rc::new(socket));
        }
        Ok(sockets)
    }

    async fn test(&self, cpu: &Cpu, environment: &Environment) -> Result<TestResults, Error> {
        let kernel = &environment.kernel;
        let pages = kernel.alloc_pages(cpu, 0, Policy::Task)?;
        let control = kernel.network().connect_from(cpu, self.from(), self.to()).await?;
        control.set_no_delay(true);
        control::send(cpu, &*control, pages, self.order().message()).await?;
        let [is_accepted, ..] = control::receive(cpu, &*control, pages).await?;
        if is_accepted == 0 {
            return Err(Error::NotSupported);
        }
        let sockets = self.connect(cpu, kernel, &*control, pages).await?;
        // The server is ready for data.
        control::receive(cpu, &*control, pages).await?;
        let (before, began) = (busy(kernel), cpu.now());
        environment.span.begin();
        let cores = self.affinity.map_or_else(|| environment.cpus.clone(), |(core, _)| vec![core]);
        let settings = self.settings();
        let streams = start(cpu, kernel, &sockets, (settings, !self.reverse), &cores);
        let (own, other, took);
        if self.udp && self.reverse {
            other = self.results(cpu, &*control, pages).await?;
            took = cpu.now().since(began);
            environment.span.end();
            cpu.sleep(PATIENCE).await;
            sockets.iter().for_each(|socket| socket.close(cpu));
            own = finish(streams).await?;
        } else {
            own = finish(streams).await?;
            took = cpu.now().since(began);
            environment.span.end();
            if !self.reverse {
                control::send(cpu, &*control, pages, [0; 8]).await?;
            }
            other = self.results(cpu, &*control, pages).await?;
            sockets.iter().for_each(|socket| socket.close(cpu));
        }
        let used = (busy_since(kernel, before), user_since(kernel, before));
        control.close(cpu);
        kernel.free_pages(cpu, pages);
        let share = |(all, own): CpuUsed| {
            (100.0 * all.as_ns_f64() / took.as_ns_f64(), 100.0 * own.as_ns_f64() / took.as_ns_f64())
        };
        let (other, remote) = other;
        let (mut sent, mut received) = if self.reverse { (other, own) } else { (own, other) };
        // What came last may have been lost as well.
        for (sent, received) in sent.iter_mut().zip(&mut received).filter(|_| self.udp) {
            received.lost = sent.datagrams.saturating_sub(received.datagrams);
            sent.lost = received.lost;
        }
        // Where the sender waits between calls, the test lasts longer than what arrives.
        for (sent, received) in sent.iter().zip(&mut received).filter(|_| settings.rate > 0) {
            received.took = received.took.max(sent.took);
        }
        let ports = sockets.iter().map(|socket| socket.ports()).collect();
        Ok(TestResults { sent, received, ports, took, local_cpu: share(used), remote_cpu: share(remote) })
    }

    /// Takes the server's results: of each stream, and its CPU time.
    async fn results(
        &self,
        cpu: &Cpu,
        control: &dyn TcpStream,
        pages: Pages,
    ) -> Result<(Vec<StreamTally>, CpuUsed), Error> {
        let mut tallies = Vec::new();
        for _ in 0..self.parallel {
            tallies.push(control::tally(control::receive(cpu, control, pages).await?));
        }
        let [all, own, ..] = control::receive(cpu, control, pages).await?;
        Ok((tallies, (Duration::from_ps(all), Duration::from_ps(own))))
    }

    fn report(&self, cpu: &Cpu, results: &TestResults) -> Report {
        let sum =
            |tallies: &[StreamTally], of: fn(&StreamTally) -> u64| tallies.iter().map(of).sum::<u64>() as f64;
        // The time that data flowed.
        let took =
            |tallies: &[StreamTally]| tallies.iter().map(|tally| tally.took.as_ns_f64()).fold(1.0, f64::max);
        let (sent, received) = (&results.sent, &results.received);
        let mut report = Report::default();
        report.add("time", "µs", took(sent).max(took(received)) / 1e3);
        report.add("transfer", "bytes", sum(sent, |tally| tally.bytes));
        let rate = sum(sent, |tally| tally.bytes) * 8.0 / took(sent) * 1e3;
        report.add("bandwidth", "Mbit/s", rate);
        let arrived = sum(received, |tally| tally.bytes) * 8.0 / took(received) * 1e3;
        self.settings().set_pace(&mut report, sent.len(), if self.udp { arrived } else { rate });
        if self.udp {
            datagram_readings(&mut report, received, took(received));
        } else {
            report.add("received", "bytes", sum(received, |tally| tally.bytes));
            let bits = sum(received, |tally| tally.bytes) * 8.0;
            report.add("received bandwidth", "Mbit/s", bits / took(received) * 1e3);
            report.add("sent again", "segments", sum(sent, |tally| tally.again));
        }
        report.add("local cpu", "% of a core", results.local_cpu.0);
        report.add("remote cpu", "% of a core", results.remote_cpu.0);
        let here = if self.reverse { received } else { sent };
        if self.json {
            report.text = Some(json::text(self, results, cpu.now()));
        } else if let (Some(_), Some(interval)) = (self.interval, self.settings().interval) {
            let shown = if self.udp { stream::seen(here, received) } else { here.clone() };
            report.text = Some(print::lines(IperfVersion::Three, interval, &shown, self.udp).join("\n"));
        }
        report
    }
}

/// Serves one test.
async fn serve_test(
    cpu: &Cpu,
    environment: &Environment,
    listener: &dyn TcpListener,
    control: &dyn TcpStream,
    (own, pages): (Option<CpuId>, Pages),
) -> Result<(), Error> {
    let kernel = &environment.kernel;
    control.set_no_delay(true);
    let message = control::receive(cpu, control, pages).await?;
    let order = Iperf3Order::of(message).ok_or(Error::Invalid)?;
    let core = order.core.or(own);
    let has_core = core.is_none_or(|core| core.0 < kernel.cpus());
    control::send(cpu, control, pages, [u64::from(has_core), 0, 0, 0, 0, 0, 0, 0]).await?;
    if !has_core {
        return Ok(());
    }
    let settings = order.settings;
    let mut sockets = Vec::new();
    while sockets.len() < order.parallel.into() {
        if settings.udp {
            let socket = kernel.network().udp(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
            if let Some(sizes) = settings.buffers() {
                socket.set_buffers(sizes);
            }
            let port = socket.local().port();
            control::send(cpu, control, pages, [port.into(), 0, 0, 0, 0, 0, 0, 0]).await?;
            sockets.push(Rc::new(StreamSocket::Udp(socket, None)));
        } else {
            let stream = listener.accept(cpu).await?;
            let message = control::receive(cpu, &*stream, pages).await?;
            if message == control::data(control.peer().port()) {
                settings.prepare(&*stream);
                sockets.push(Rc::new(StreamSocket::Tcp(stream)));
            } else {
                // Another client, which is told by this that the server is busy.
                stream.close(cpu);
            }
        }
    }
    let cores = core.map_or_else(|| environment.cpus.clone(), |core| vec![core]);
    let before = busy(kernel);
    let streams = start(cpu, kernel, &sockets, (settings, order.reverse), &cores);
    control::send(cpu, control, pages, [1, 0, 0, 0, 0, 0, 0, 0]).await?;
    if !order.reverse {
        control::receive(cpu, control, pages).await?;
        if settings.udp {
            cpu.sleep(PATIENCE).await;
            sockets.iter().for_each(|socket| socket.close(cpu));
        }
    }
    let tallies = finish(streams).await?;
    let (all, own) = (busy_since(kernel, before), user_since(kernel, before));
    for tally in &tallies {
        control::send(cpu, control, pages, control::result(tally)).await?;
    }
    control::send(cpu, control, pages, [all.as_ps(), own.as_ps(), 0, 0, 0, 0, 0, 0]).await?;
    if !settings.udp || order.reverse {
        sockets.iter().for_each(|socket| socket.close(cpu));
    }
    Ok(())
}

impl Program for Iperf3 {
    fn serves(&self) -> bool {
        self.server
    }

    fn lasts(&self) -> Option<Duration> {
        self.settings().lasts()
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        self.settings().check("iperf3")?;
        self.client.map_or(Ok(()), |server| premises.peer("iperf3", server))?;
        let length = self.settings().length;
        let fits = !self.udp || (HEADER..=DATAGRAM).contains(&length);
        let message = format!("iperf3: no datagram has {length} bytes");
        Refused::unless(fits, message, format!("-l {HEADER} to {DATAGRAM}"))?;
        let Some((core, _)) = self.affinity else { return Ok(()) };
        let all = premises.all_cores;
        let help = format!("cores 0 to {}", all.saturating_sub(1));
        Refused::unless(usize::from(core.0) < all, format!("iperf3: -A: there is no core {}", core.0), help)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            if self.server {
                return self.serve(&cpu, &environment).await.map(|()| Report::default());
            }
            let results = self.test(&cpu, &environment).await.map_err(|error| match error {
                Error::Ended => Failure(format!(
                    "iperf3 to {}: the server has closed the control socket; it may be busy with another test",
                    self.to()
                )),
                Error::NotSupported => Failure("iperf3: -A: the host of the server has no such core".to_owned()),
                error => Failure::of_connection(format!("iperf3 to {}", self.to()), error, "iperf3 -s"),
            })?;
            Ok(self.report(&cpu, &results))
        })
    }
}
