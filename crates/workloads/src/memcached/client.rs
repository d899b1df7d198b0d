//! memaslap: connections that send SET and GET requests one after the other.

use std::cell::Cell;
use std::net::SocketAddrV4;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::sync::{Completion, WaitQueue};
use units::{Duration, Time};

use super::LONGEST_KEY;
use super::line::Wire;
use crate::options::{size, time};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::random::{Random, content};
use crate::unmodelled::Unmodelled;

/// Cycles to build a request and check its response (assumed: less than the server's).
const REQUEST: u64 = 1_000;
/// Length of a mark at the start of a value, which identifies it and is checked in responses.
const MARK: usize = 64;

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless(
        "-T, --threads NUMBER",
        "connections have a task each, on the program's cores in turn",
    ),
    Unmodelled::harmless("-S, --stat_freq TIME", "the report covers the whole run"),
    Unmodelled::harmless("-V, --version", "there is one version"),
    Unmodelled::harmless("-b, --verbose", "the report has everything"),
    Unmodelled::harmless("-v, --verify SHARE", "every value is verified"),
    Unmodelled::harmless("-a, --facebook", "connections stay open anyway"),
    Unmodelled::refused("-B, --binary", "the text protocol is what there is"),
    Unmodelled::refused("-U, --udp", "memcached listens at TCP"),
    Unmodelled::refused("-F, --cfg_cmd FILE", "`--key`, `-X` and `--set` are the configuration"),
    Unmodelled::refused("-x, --execute_number NUMBER", "`-t` ends the run"),
    Unmodelled::refused("-d, --division NUMBER", "each request gets one value"),
    Unmodelled::refused(
        "-o, --tps NUMBER",
        "each connection sends its next request after an answer; use fewer with -c",
    ),
    Unmodelled::refused("-e, --exp_verify SHARE", "items do not expire"),
    Unmodelled::refused("-R, --reconnect", "a connection stays open"),
];

fn server(text: &str) -> Result<SocketAddrV4, String> {
    let help = "an address and a port, such as 10.0.0.2:11211";
    text.parse().map_err(|_| format!("`{text}` is no server: {help}"))
}

/// Loads a memcached server with GET and SET requests. Key lengths and request mix are options here; the original
/// reads them from a configuration file (`-F`).
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "memaslap", disable_help_flag = true)]
pub struct Memaslap {
    /// The server, `ADDRESS:PORT`.
    #[arg(short = 's', long, value_parser = server)]
    servers: SocketAddrV4,
    /// Number of connections, each with one request in flight.
    #[arg(short = 'c', long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    concurrency: u16,
    /// Duration, after all objects have been stored.
    #[arg(short = 't', long, default_value = "10ms", value_parser = time)]
    time: Duration,
    /// Bytes per value.
    #[arg(short = 'X', long, default_value = "1024", value_parser = size)]
    fixed_size: u64,
    /// Objects per connection.
    #[arg(short = 'w', long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    win_size: u32,
    /// Bytes per key.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=i64::from(LONGEST_KEY)))]
    key: u32,
    /// Share of SET requests.
    #[arg(long, default_value_t = 0.1)]
    set: f64,
}

/// What a connection did.
#[derive(Default)]
struct Done {
    gets: u64,
    sets: u64,
    misses: u64,
    wrong: u64,
    /// When it had stored its objects, and when each request after that ended.
    began: Time,
    ends: Vec<Time>,
}

/// Buffers of a connection: a request with its value, and a response's value.
struct ConnectionBuffers {
    request: Pages,
    answer: Pages,
}

/// Connections begin their mix together, once all have stored their objects or failed.
#[derive(Default)]
struct StartLine {
    /// Who is not there yet.
    left: Cell<u16>,
    all: WaitQueue,
}

/// A connection that is not at the start line yet.
struct Late(Rc<StartLine>);

impl Late {
    fn new(line: &Rc<StartLine>) -> Self {
        line.left.set(line.left.get() + 1);
        Self(Rc::clone(line))
    }

    /// It has arrived, and waits for the others.
    async fn arrive(self) {
        let line = Rc::clone(&self.0);
        drop(self);
        line.all.wait_for(|| (line.left.get() == 0).then_some(())).await;
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.0.left.set(self.0.left.get() - 1);
        if self.0.left.get() == 0 {
            self.0.all.wake_all();
        }
    }
}

impl Memaslap {
    fn key_of(&self, connection: u16, object: u32) -> String {
        let text = format!("{connection:05}-{object:08}-");
        text + &"k".repeat(self.key as usize - 15)
    }

    /// The mark of an object's value.
    fn mark(&self, connection: u16, object: u32) -> Vec<u8> {
        content(u64::from(connection), object.into(), MARK.min(self.fixed_size as usize))
    }

    async fn set(&self, cpu: &Cpu, wire: &mut Wire, at: PhysAddr, whose: (u16, u32)) -> Result<bool, Error> {
        let head = format!("set {} 0 0 {}\r\n", self.key_of(whose.0, whose.1), self.fixed_size);
        let length = head.len() as u64 + self.fixed_size + 2;
        cpu.store(at, head.as_bytes());
        cpu.store(at + head.len() as u64, &self.mark(whose.0, whose.1));
        cpu.store(at + (length - 2), b"\r\n");
        wire.send(cpu, at, length as u32).await?;
        Ok(wire.line(cpu).await?.as_deref() == Some("STORED"))
    }

    /// Gets a value: `None` if the server has none, else whether it is correct.
    async fn get(
        &self,
        cpu: &Cpu,
        wire: &mut Wire,
        into: PhysAddr,
        whose: (u16, u32),
    ) -> Result<Option<bool>, Error> {
        let key = self.key_of(whose.0, whose.1);
        wire.say(cpu, &format!("get {key}\r\n")).await?;
        let line = wire.line(cpu).await?.ok_or(Error::Ended)?;
        if line == "END" {
            return Ok(None);
        }
        let said = format!("VALUE {key} 0 {}", self.fixed_size);
        if line != said || !wire.data(cpu, into, self.fixed_size as u32 + 2).await? {
            return Err(Error::Invalid);
        }
        let expected = self.mark(whose.0, whose.1);
        let mut found = vec![0; expected.len()];
        cpu.load(into, &mut found);
        let end = wire.line(cpu).await?;
        Ok(Some(found == expected && end.as_deref() == Some("END")))
    }

    /// Runs a connection: stores its objects, then sends the mix.
    async fn load(
        &self,
        cpu: &Cpu,
        wire: &mut Wire,
        buffers: &ConnectionBuffers,
        (connection, seed): (u16, u64),
        late: Late,
    ) -> Result<Done, Error> {
        for object in 0..self.win_size {
            if !self.set(cpu, wire, buffers.request.start, (connection, object)).await? {
                return Err(Error::NoMemory);
            }
        }
        late.arrive().await;
        cpu.sync().await;
        let (mut random, mut done) = (Random::new(seed, connection.into()), Done::default());
        let began = cpu.now();
        let until = began + self.time;
        while cpu.now() < until {
            cpu.work(REQUEST);
            let whose = (connection, random.below(self.win_size.into()) as u32);
            if (random.below(1 << 32) as f64) < self.set * (1u64 << 32) as f64 {
                done.sets += 1;
                if !self.set(cpu, wire, buffers.request.start, whose).await? {
                    return Err(Error::NoMemory);
                }
            } else {
                done.gets += 1;
                match self.get(cpu, wire, buffers.answer.start, whose).await? {
                    None => done.misses += 1,
                    Some(right) => done.wrong += u64::from(!right),
                }
            }
            cpu.sync().await;
            done.ends.push(cpu.now());
        }
        done.began = began;
        Ok(done)
    }

    /// Starts a connection on a core.
    fn start(
        self: &Rc<Self>,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        on: CpuId,
        (connection, seed): (u16, u64),
        late: Late,
    ) -> Completion<Result<Done, Error>> {
        let (me, face) = (Rc::clone(self), Rc::clone(kernel));
        let thread = async move |cpu: Cpu| me.connection(&cpu, &face, (connection, seed), late).await;
        kernel.run(TaskParams::named("memaslap").on(on).of(cpu), thread)
    }

    /// Reports what connections did, and as samples the times between the ends of requests while all of them had theirs.
    fn report(&self, report: &mut Report, all: &[Done]) {
        let total = |of: fn(&Done) -> u64| all.iter().map(of).sum::<u64>() as f64;
        report.add("cmd_get", "requests", total(|done| done.gets));
        report.add("cmd_set", "requests", total(|done| done.sets));
        report.add("get_misses", "requests", total(|done| done.misses));
        report.add("verify_failed", "requests", total(|done| done.wrong));
        let mut ends: Vec<Time> = all.iter().flat_map(|done| done.ends.iter().copied()).collect();
        ends.sort_unstable();
        let first = all.iter().map(|done| done.began).min();
        let (Some(first), Some(&last)) = (first, ends.last()) else { return };
        let tps = ends.len() as f64 / last.since(first).as_s_f64();
        report.add("tps", "requests/s", tps);
        report.add("net_rate", "Mbit/s", tps * self.fixed_size as f64 * 8.0 / 1e6);
        let from = all.iter().map(|done| done.began).max();
        let until = all.iter().map(|done| done.ends.last().copied()).min().flatten();
        ends.retain(|&end| Some(end) >= from && Some(end) <= until);
        report.samples = ends.windows(2).map(|two| two[1].since(two[0]).as_ns_f64() / 1e3).collect();
    }

    async fn connection(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        of: (u16, u64),
        late: Late,
    ) -> Result<Done, Error> {
        let order = Pages::order_for(self.fixed_size + 2 * u64::from(super::LINE));
        let request = kernel.alloc_pages(cpu, order, Policy::Task)?;
        let answer = kernel.alloc_pages(cpu, order, Policy::Task)?;
        let buffers = ConnectionBuffers { request, answer };
        let stream = kernel.network().connect(cpu, self.servers).await?;
        stream.set_no_delay(true);
        let mut wire = Wire::new(cpu, kernel, stream)?;
        let done = self.load(cpu, &mut wire, &buffers, of, late).await;
        wire.close(cpu);
        kernel.free_pages(cpu, buffers.request);
        kernel.free_pages(cpu, buffers.answer);
        done
    }
}

impl Program for Memaslap {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.peer("memaslap", *self.servers.ip())?;
        let share = (0.0..=1.0).contains(&self.set);
        Refused::unless(share, format!("memaslap: --set {} is not a share", self.set), "from 0 to 1")?;
        let message = "memaslap: no value of memcached is as long";
        Refused::unless((1..=1 << 20).contains(&self.fixed_size), message, "-X 1 to 1m")
    }

    fn lasts(&self) -> Option<Duration> {
        Some(self.time)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, cpus, seed, .. } = environment;
            let began = cpu.now();
            let line = Rc::new(StartLine::default());
            let late: Vec<Late> = (0..self.concurrency).map(|_| Late::new(&line)).collect();
            let connections: Vec<_> = (0..)
                .zip(late)
                .map(|(n, late)| {
                    self.start(&cpu, &kernel, cpus[usize::from(n) % cpus.len()], (n, seed), late)
                })
                .collect();
            let mut all = Vec::new();
            for connection in connections {
                let done = connection.wait().await;
                let to = || format!("memaslap to {}", self.servers);
                all.push(done.map_err(|error| Failure::of_connection(to(), error, "memcached"))?);
            }
            cpu.sync().await;
            let mut report = Report::default();
            report.add("time", "µs", cpu.now().since(began).as_ns_f64() / 1e3);
            self.report(&mut report, &all);
            Ok(report)
        })
    }
}
