//! sockperf: latency and rate of messages between a client and a server.
//!
//! | command | what the client does |
//! |---|---|
//! | `ping-pong`, `pp` | sends a message and waits for its echo |
//! | `under-load`, `ul` | sends at a rate, and asks for the echo of each 100th message |
//! | `throughput`, `tp` | sends at a rate, the highest by default, without echoes |
//!
//! As in the original, latency is half the round trip without `--full-rtt`, and a message starts with a header of 14 bytes with its number.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, Policy};
use platform::socket::{BufferSizes, TcpStream, UdpSocket};
use units::{Duration, Time};

use crate::latency::Latencies;
use crate::options::{duration, length, peer};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// sockperf's port.
const PORT: u16 = 11_111;
/// Maximum message size: an IPv4 packet of 65535 B minus two headers.
const MOST: i64 = 65_507;
/// Bytes of the header.
const HEADER: u32 = 14;
/// In the number of a message that asks for no echo (sockperf has a flag for those that do).
const SILENT: u64 = 1 << 63;
/// Messages per second of `under-load` by default.
const LOAD: f64 = 10_000.0;
/// Time after the end before missing echoes count as lost (assumed: many round trips).
const PATIENCE: Duration = Duration::from_ms(1);

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("--full-log FILE", "all samples are in the records of --json"),
    Unmodelled::harmless("--giga-size", "throughput is reported in Mbit/s"),
    Unmodelled::harmless("--increase_output_precision", "values have all their digits"),
    Unmodelled::harmless("--output_precision N", "values have all their digits"),
    Unmodelled::harmless("--no-rdtsc", "there is one clock"),
    Unmodelled::harmless("--daemonize", "a server is a task like any other, and prints nothing"),
    Unmodelled::harmless("--client_port PORT", "a client has a port that is free"),
    Unmodelled::refused("--msg-size-range BYTES", "`nearfar sweep --over program.N.m=...` varies the size"),
    Unmodelled::harmless("--dontwarmup", "the first messages are those of the test"),
    Unmodelled::harmless("--pre-warmup-wait SECONDS", "a program has the key `start` for that"),
    Unmodelled::harmless("--histogram RANGE", "percentiles are reported"),
    Unmodelled::harmless("-v, --verbose", "the summary has everything"),
    Unmodelled::harmless("-d, --debug", "the summary has everything"),
    Unmodelled::harmless("--data-integrity", "echoes are checked anyway"),
    Unmodelled::harmless("-g, --gap-detection", "lost and wrong messages are counted anyway"),
    Unmodelled::harmless("--tcp-avoid-nodelay-off", "small segments are sent at once"),
    Unmodelled::harmless("--load-vma", "the kernel's sockets are what there is"),
    Unmodelled::harmless("--ttl N", "no router counts it down to zero"),
    Unmodelled::harmless("--tos N", "no queue on the way has classes of service"),
    Unmodelled::refused("--sender-affinity CORES", "the program's key `cpus` says on which cores it runs"),
    Unmodelled::refused("--receiver-affinity CORES", "the program's key `cpus` says on which cores it runs"),
    Unmodelled::refused("--threads-affinity CORES", "the program's key `cpus` says on which cores it runs"),
    Unmodelled::refused("-f, --file FILE", "give one peer with -i, or several programs"),
    Unmodelled::refused("-F, --iomux-type TYPE", "a socket is waited for by itself"),
    Unmodelled::refused("--nonblocked", "a socket is waited for by itself"),
    Unmodelled::refused("--mc-rx-if ADDRESS", "there is no multicast"),
    Unmodelled::refused("--mc-tx-if ADDRESS", "there is no multicast"),
];

/// Measures the latency and the rate of UDP or TCP messages between a client and a server. As in the original, latency
/// is half the round trip.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "sockperf", disable_help_flag = true)]
pub struct Sockperf {
    #[command(subcommand)]
    side: Role,
}

/// Client or server.
#[derive(clap::Subcommand, Clone, PartialEq, Debug)]
enum Role {
    /// Echoes messages that ask for it.
    #[command(alias = "sr", disable_help_flag = true)]
    Server(SockperfServer),
    /// Sends messages and waits for the echo of each.
    #[command(alias = "pp", disable_help_flag = true)]
    PingPong(SockperfClient),
    /// Sends messages at a rate and asks for the echoes of some.
    #[command(alias = "ul", disable_help_flag = true)]
    UnderLoad(SockperfClient),
    /// Sends messages at a rate without echoes.
    #[command(alias = "tp", disable_help_flag = true)]
    Throughput(SockperfClient),
}

/// Where a server listens.
#[derive(clap::Args, Clone, PartialEq, Debug)]
struct SockperfServer {
    /// Address to listen at; all by default.
    #[arg(short = 'i', long = "ip", default_value = "0.0.0.0", value_parser = listened)]
    address: Ipv4Addr,
    /// Port to listen at.
    #[arg(short = 'p', long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Messages over TCP; UDP by default.
    #[arg(long)]
    tcp: bool,
    /// Bytes of each socket buffer.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    buffer_size: Option<u32>,
}

/// What a client sends.
#[derive(clap::Args, Clone, PartialEq, Debug)]
struct SockperfClient {
    /// The server's address.
    #[arg(short = 'i', long = "ip", value_parser = peer)]
    address: Ipv4Addr,
    /// The server's port.
    #[arg(short = 'p', long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Messages over TCP; UDP by default.
    #[arg(long)]
    tcp: bool,
    /// Bytes per message; 14 is the size of the original's header.
    #[arg(short = 'm', long = "msg-size", default_value_t = HEADER, value_parser = clap::value_parser!(u32).range(14..=MOST))]
    message: u32,
    /// Report whole round trips, not half of each.
    #[arg(long)]
    full_rtt: bool,
    /// Duration in seconds. The real default of 1 would be long for a simulation.
    #[arg(short = 't', long, default_value_t = 0.01, value_parser = length)]
    time: f64,
    /// Messages per second, or `max`; 10000 under load, `max` for throughput. For `ping-pong`, the highest number.
    #[arg(long, visible_alias = "pps", value_parser = rate)]
    mps: Option<f64>,
    /// Under load: each so many messages, one asks for an echo.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    reply_every: u64,
    /// Messages per burst.
    #[arg(short = 'b', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    burst: u32,
    /// Bytes of each socket buffer.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    buffer_size: Option<u32>,
}

/// An address of the host, or 0.0.0.0 for all.
fn listened(text: &str) -> Result<Ipv4Addr, String> {
    if text == "0.0.0.0" { Ok(Ipv4Addr::UNSPECIFIED) } else { peer(text) }
}

/// Messages per second.
fn rate(text: &str) -> Result<f64, String> {
    if text.eq_ignore_ascii_case("max") {
        return Ok(f64::INFINITY);
    }
    let number = text.parse::<f64>().ok().filter(|rate| (1e-3..=1e9).contains(rate));
    number.ok_or_else(|| format!("`{text}` is not a number of messages per second up to 1e9, or `max`"))
}

/// A socket of either kind, and memory for one message.
#[derive(Clone)]
enum MessageSocket {
    Udp(Rc<dyn UdpSocket>, SocketAddrV4),
    Tcp(Rc<dyn TcpStream>),
}

impl MessageSocket {
    async fn send(&self, cpu: &Cpu, from: Segment) -> Result<(), Error> {
        match self {
            Self::Udp(socket, to) => socket.send_to(cpu, *to, from).await,
            Self::Tcp(stream) => stream.send(cpu, from).await,
        }
    }

    /// Receives a message of so many bytes. Returns how many came.
    async fn receive(&self, cpu: &Cpu, into: Segment, bytes: u32) -> Result<u32, Error> {
        match self {
            Self::Udp(socket, _) => Ok(socket.recv_from(cpu, into).await?.0),
            Self::Tcp(stream) => {
                let mut done = 0;
                while done < bytes {
                    let room = Segment { at: into.at + u64::from(done), length: bytes - done };
                    match stream.recv(cpu, room).await? {
                        0 => return Err(Error::Ended),
                        taken => done += taken,
                    }
                }
                Ok(done)
            }
        }
    }

    fn set_buffers(&self, size: Option<u32>) {
        let sizes = BufferSizes { send: size, receive: size };
        match self {
            _ if size.is_none() => {}
            Self::Udp(socket, _) => socket.set_buffers(sizes),
            Self::Tcp(stream) => stream.set_buffers(sizes),
        }
    }

    fn close(&self, cpu: &Cpu) {
        match self {
            Self::Udp(socket, _) => socket.close(cpu),
            Self::Tcp(stream) => stream.close(cpu),
        }
    }
}

/// Memory for a message.
fn buffer(kernel: &Rc<dyn Kernel>, cpu: &Cpu) -> Result<Pages, Error> {
    kernel.alloc_pages(cpu, Pages::order_for(MOST as u64), Policy::Task)
}

/// Where a message over TCP has its length: behind number and flags.
const LENGTH_AT: u64 = 10;

impl SockperfServer {
    async fn serve(&self, cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Result<(), Error> {
        let at = SocketAddrV4::new(self.address, self.port);
        if self.tcp {
            let listener = kernel.network().listen(cpu, at, 128)?;
            loop {
                let stream = listener.accept(cpu).await?;
                let kernel = Rc::clone(kernel);
                let sizes = BufferSizes { send: self.buffer_size, receive: self.buffer_size };
                if self.buffer_size.is_some() {
                    stream.set_buffers(sizes);
                }
                stream.set_no_delay(true);
                let face = Rc::clone(&kernel);
                let echo = move |cpu: Cpu| -> Async<'static, ()> {
                    Box::pin(async move {
                        // A client that disconnects reports the reason itself.
                        let _ = echo_stream(&cpu, &face, &*stream).await;
                        stream.close(&cpu);
                    })
                };
                kernel.spawn(TaskParams::named("sockperf").of(cpu), Box::new(echo));
            }
        }
        let pages = buffer(kernel, cpu)?;
        let socket = kernel.network().udp(cpu, at)?;
        if self.buffer_size.is_some() {
            socket.set_buffers(BufferSizes { send: self.buffer_size, receive: self.buffer_size });
        }
        let room = Segment { at: pages.start, length: MOST as u32 };
        loop {
            let (length, from) = socket.recv_from(cpu, room).await?;
            if cpu.load_u64(pages.start) & SILENT == 0 {
                socket.send_to(cpu, from, Segment { at: pages.start, length }).await?;
            }
        }
    }
}

/// Echoes messages of a stream. A message's length is in its header, behind the flags.
async fn echo_stream(cpu: &Cpu, kernel: &Rc<dyn Kernel>, stream: &dyn TcpStream) -> Result<(), Error> {
    let pages = buffer(kernel, cpu)?;
    let mut done = 0u32;
    let mut wanted = HEADER;
    loop {
        let room = Segment { at: pages.start + u64::from(done), length: wanted - done };
        match stream.recv(cpu, room).await? {
            0 => break,
            taken => done += taken,
        }
        if done < HEADER {
            continue;
        }
        let mut length = [0; 4];
        cpu.load(pages.start + LENGTH_AT, &mut length);
        wanted = u32::from_le_bytes(length).clamp(HEADER, MOST as u32);
        if done < wanted {
            continue;
        }
        if cpu.load_u64(pages.start) & SILENT == 0 {
            stream.send(cpu, Segment { at: pages.start, length: wanted }).await?;
        }
        (done, wanted) = (0, HEADER);
        cpu.sync().await;
    }
    kernel.free_pages(cpu, pages);
    Ok(())
}

/// What a client saw.
#[derive(Default)]
struct EchoTotals {
    sent: u64,
    asked: u64,
    echoes: u64,
    wrong: u64,
    latencies: Latencies,
}

impl SockperfClient {
    async fn connect(&self, cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Result<MessageSocket, Error> {
        let to = SocketAddrV4::new(self.address, self.port);
        let socket = if self.tcp {
            let stream = kernel.network().connect(cpu, to).await?;
            stream.set_no_delay(true);
            MessageSocket::Tcp(stream)
        } else {
            let own = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            MessageSocket::Udp(kernel.network().udp(cpu, own)?, to)
        };
        socket.set_buffers(self.buffer_size);
        Ok(socket)
    }

    fn message(&self, cpu: &Cpu, pages: Pages, number: u64) -> Segment {
        cpu.store_u64(pages.start, number);
        if self.tcp {
            cpu.store(pages.start + LENGTH_AT, &self.message.to_le_bytes());
        }
        Segment { at: pages.start, length: self.message }
    }

    /// Sends one message after the other, each when the echo of the last one has arrived.
    async fn ping_pong(&self, cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Result<EchoTotals, Error> {
        let (socket, pages) = (self.connect(cpu, kernel).await?, buffer(kernel, cpu)?);
        let room = Segment { at: pages.start, length: MOST as u32 };
        let (mut seen, pause) = (EchoTotals::default(), self.pause(f64::INFINITY));
        let until = cpu.now() + duration(self.time);
        let mut next = cpu.now();
        while cpu.now() < until {
            seen.sent += 1;
            let began = cpu.now();
            let message = self.message(cpu, pages, seen.sent);
            socket.send(cpu, message).await?;
            // A lost message ends the program: the original would wait forever.
            let length = socket.receive(cpu, room, self.message).await?;
            let number = cpu.load_u64(pages.start);
            seen.wrong += u64::from(length != self.message || number != seen.sent);
            seen.latencies.add(self.latency(cpu.now().since(began)));
            next += pause;
            if next > cpu.now() && !pause.is_zero() {
                cpu.sleep_until(next.min(until)).await;
            }
        }
        (seen.asked, seen.echoes) = (seen.sent, seen.sent);
        socket.close(cpu);
        kernel.free_pages(cpu, pages);
        Ok(seen)
    }

    /// What a round trip is reported as.
    fn latency(&self, round_trip: Duration) -> Duration {
        if self.full_rtt { round_trip } else { round_trip / 2 }
    }

    /// Time per burst at the wanted rate.
    fn pause(&self, default: f64) -> Duration {
        duration(f64::from(self.burst) / self.mps.unwrap_or(default))
    }

    /// Sends at a rate; every so many messages, one asks for an echo, or none.
    async fn load(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        reply_every: Option<u64>,
        pause: Duration,
    ) -> Result<EchoTotals, Error> {
        let (socket, pages) = (self.connect(cpu, kernel).await?, buffer(kernel, cpu)?);
        let asked: Rc<RefCell<BTreeMap<u64, Time>>> = Rc::default();
        let echoes = Rc::new(RefCell::new(EchoTotals::default()));
        let ended = Rc::new(Cell::new(false));
        let receiver = {
            let (socket, asked, echoes, ended) =
                (socket.clone(), Rc::clone(&asked), Rc::clone(&echoes), Rc::clone(&ended));
            let (face, bytes, client) = (Rc::clone(kernel), self.message, self.clone());
            async move |cpu: Cpu| -> Result<(), Error> {
                let pages = buffer(&face, &cpu)?;
                let room = Segment { at: pages.start, length: MOST as u32 };
                while !ended.get() {
                    let Ok(length) = socket.receive(&cpu, room, bytes).await else { break };
                    let number = cpu.load_u64(pages.start);
                    let began = asked.borrow_mut().remove(&number);
                    let mut seen = echoes.borrow_mut();
                    seen.wrong += u64::from(length != bytes || began.is_none());
                    if let Some(began) = began {
                        seen.echoes += 1;
                        seen.latencies.add(client.latency(cpu.now().since(began)));
                    }
                }
                face.free_pages(&cpu, pages);
                Ok(())
            }
        };
        let receiving =
            reply_every.map(|_| kernel.run(TaskParams::named("sockperf/receiver").of(cpu), receiver));
        let until = cpu.now() + duration(self.time);
        let mut next = cpu.now();
        let (mut sent, mut wanted) = (0u64, 0u64);
        while cpu.now() < until {
            for _ in 0..self.burst {
                sent += 1;
                let asks = reply_every.is_some_and(|every| (sent - 1) % every == 0);
                if asks {
                    wanted += 1;
                    asked.borrow_mut().insert(sent, cpu.now());
                }
                let message = self.message(cpu, pages, if asks { sent } else { sent | SILENT });
                socket.send(cpu, message).await?;
            }
            cpu.sync().await;
            next += pause;
            if !pause.is_zero() && next > cpu.now() {
                cpu.sleep_until(next.min(until)).await;
            }
        }
        let patience = cpu.now() + PATIENCE;
        while receiving.is_some() && !asked.borrow().is_empty() && cpu.now() < patience {
            cpu.sleep(PATIENCE / 20).await;
        }
        ended.set(true);
        socket.close(cpu);
        if let Some(receiving) = receiving {
            receiving.wait().await?;
        }
        kernel.free_pages(cpu, pages);
        Ok(EchoTotals { sent, asked: wanted, ..echoes.take() })
    }
}

impl Program for Sockperf {
    fn serves(&self) -> bool {
        matches!(self.side, Role::Server(_))
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        match &self.side {
            Role::Server(_) => Ok(()),
            Role::PingPong(client) | Role::UnderLoad(client) | Role::Throughput(client) => {
                premises.peer("sockperf", client.address)
            }
        }
    }

    fn lasts(&self) -> Option<Duration> {
        match &self.side {
            Role::Server(_) => None,
            Role::PingPong(client) | Role::UnderLoad(client) | Role::Throughput(client) => {
                Some(duration(client.time))
            }
        }
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let (kernel, fail) =
                (environment.kernel, |error| Failure::of_connection("sockperf", error, "sockperf server"));
            let began = cpu.now();
            let (client, seen) = match &self.side {
                Role::Server(place) => {
                    return place.serve(&cpu, &kernel).await.map(|()| Report::default()).map_err(fail);
                }
                Role::PingPong(client) => (client, client.ping_pong(&cpu, &kernel).await),
                Role::UnderLoad(client) => {
                    let load = client.load(&cpu, &kernel, Some(client.reply_every), client.pause(LOAD));
                    (client, load.await)
                }
                Role::Throughput(client) => {
                    (client, client.load(&cpu, &kernel, None, client.pause(f64::INFINITY)).await)
                }
            };
            let mut seen = seen.map_err(fail)?;
            let mut report = Report::default();
            let is_under_load = matches!(self.side, Role::UnderLoad(_));
            report.add("messages", "", seen.sent as f64);
            let seconds = duration(client.time).as_s_f64().min(cpu.now().since(began).as_s_f64());
            let rate = seen.sent as f64 / seconds;
            if let Some(asked) = client.mps.or(is_under_load.then_some(LOAD)) {
                report.set_pace("--mps", asked, rate);
            }
            if !matches!(self.side, Role::PingPong(_)) {
                report.add("message rate", "messages/s", rate);
                report.add("bandwidth", "Mbit/s", rate * f64::from(client.message) * 8.0 / 1e6);
            }
            if is_under_load {
                report.add("echoes", "messages", seen.echoes as f64);
                report.add("lost", "messages", (seen.asked - seen.echoes) as f64);
            }
            if !matches!(self.side, Role::Throughput(_)) {
                report.add("wrong", "messages", seen.wrong as f64);
                seen.latencies.report(&mut report, "latency");
            }
            Ok(report)
        })
    }
}
