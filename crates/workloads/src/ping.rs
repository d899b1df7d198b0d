//! ping: measures the round trip of ICMP echoes.
//!
//! As in the original (iputils, `ping_common.c`), requests leave at their interval whether or not answers arrive. Without an
//! interval (`-f`, `-i 0`), the next one leaves when no more than `-l` are unanswered, and at the latest after 10 ms.

use std::net::Ipv4Addr;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::Kernel;
use platform::socket::PingSocket;
use units::{Duration, Time};

use crate::latency::Latencies;
use crate::options::{check_length, duration, length, peer, seconds};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;

/// Maximum data length: an IPv4 packet of 65535 B minus two headers.
const MOST: i64 = 65_507;
/// Bytes of the IPv4 and ICMP headers.
const HEADERS: u32 = 28;
/// Requests without `-c` and `-w`.
const COUNT: u16 = 5;
/// Interval in seconds without `-i`. The original's second would be long for a simulation.
const INTERVAL: f64 = 0.001;
/// How long a flood waits for an answer (ping.h: `MIN_INTERVAL_MS`).
const FLOOD_WAIT: Duration = Duration::from_ms(10);

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-q", "only the summary is reported anyway"),
    Unmodelled::harmless("-n", "addresses are reported as numbers anyway"),
    Unmodelled::harmless("-v", "the summary has everything"),
    Unmodelled::harmless("-D", "nothing is printed per answer"),
    Unmodelled::harmless("-O", "nothing is printed per answer"),
    Unmodelled::harmless("-U", "times are those of the program, as with -U"),
    Unmodelled::harmless("-a", "there is no bell"),
    Unmodelled::harmless("-r", "there are no gateways on the way"),
    Unmodelled::harmless("-B", "the source address does not change"),
    Unmodelled::harmless("-4", "hosts have IPv4 addresses"),
    Unmodelled::harmless("-p PATTERN", "the contents of a packet take no time"),
    Unmodelled::harmless("-Q TOS", "no queue on the way has classes of service"),
    Unmodelled::harmless("-t TTL", "no router counts it down to zero"),
    Unmodelled::harmless("-m MARK", "no rule looks at marks"),
    Unmodelled::harmless("-S SNDBUF", "a request fits into any buffer"),
    Unmodelled::refused("-6", "hosts have IPv4 addresses"),
    Unmodelled::refused("-b", "give the address of a host"),
    Unmodelled::refused("-R", "routes are those of the scenario: `nearfar tree` shows the way to a device"),
    Unmodelled::refused("-T TIMESTAMP", "`nearfar trace` has the time of each packet"),
];

/// Sends echo requests to a host and measures the round trip time.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "ping", disable_help_flag = true)]
pub struct Ping {
    /// Number of requests; 5 by default, and no limit with `-w`.
    #[arg(short = 'c', value_parser = clap::value_parser!(u16).range(1..))]
    count: Option<u16>,
    /// Seconds between requests; 0.001 by default, none with `-f`.
    #[arg(short = 'i', value_parser = seconds)]
    interval: Option<f64>,
    /// Bytes of data.
    #[arg(short = 's', default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=MOST))]
    size: u16,
    /// Seconds to wait for the answer to the last request. After any answer, it is twice the longest round trip.
    #[arg(short = 'W', default_value_t = 1.0, value_parser = length)]
    wait: f64,
    /// Seconds after which to end, whatever the number of requests; with it, `-c` counts answers.
    #[arg(short = 'w', value_parser = length)]
    deadline: Option<f64>,
    /// Flood: sends the next request when the last one has been answered, or after 10 ms.
    #[arg(short = 'f')]
    flood: bool,
    /// Sends the next request when the last one has been answered.
    #[arg(short = 'A')]
    adaptive: bool,
    /// Requests that may be unanswered when the next one leaves at once.
    #[arg(short = 'l', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=65_536 / 2))]
    preload: u16,
    /// Path MTU discovery: with `do`, a packet above the MTU is not sent; otherwise it is sent in fragments.
    #[arg(short = 'M', value_parser = ["do", "want", "dont", "probe"])]
    discovery: Option<String>,
    /// Name or address of the network device by which packets leave.
    #[arg(short = 'I')]
    source: Option<String>,
    /// Address of the host that answers.
    #[arg(value_parser = peer)]
    host: Ipv4Addr,
}

/// Requests and their answers.
#[derive(Default)]
struct Echoes {
    /// When each request was sent, and whether it has been answered.
    sent: Vec<(Time, bool)>,
    times: Latencies,
    longest: Duration,
    answers: u32,
    damaged: u32,
    repeated: u32,
    /// Requests that could not be sent, because of `-M do`.
    too_long: u32,
}

impl Echoes {
    fn unanswered(&self) -> usize {
        self.sent.len() - self.answers as usize
    }
}

impl Ping {
    fn count(&self) -> u16 {
        self.count.unwrap_or(if self.deadline.is_some() { u16::MAX } else { COUNT })
    }

    fn interval(&self) -> Duration {
        let is_flood = self.flood || self.adaptive;
        duration(self.interval.unwrap_or(if is_flood { 0.0 } else { INTERVAL }))
    }

    /// Whether a packet is above the MTU and must not be fragmented; tells the MTU.
    fn is_too_long(&self, kernel: &Rc<dyn Kernel>) -> Option<u16> {
        let must_fit = matches!(self.discovery.as_deref(), Some("do" | "probe"));
        let mtu = kernel.network().route_to(self.host)?.mtu;
        (must_fit && u32::from(self.size) + HEADERS > mtu.into()).then_some(mtu)
    }

    /// Checks that packets leave by the device that `-I` names.
    fn check_source(&self, kernel: &Rc<dyn Kernel>) -> Result<(), Failure> {
        let (Some(source), Some(way)) = (&self.source, kernel.network().route_to(self.host)) else {
            return Ok(());
        };
        let is_it = *source == way.device || source.parse() == Ok(way.address);
        let message = format!(
            "ping: -I {source}: the route to {} leaves by {} ({}); add a `[[route]]`, or give the devices addresses of \
             different networks",
            self.host, way.device, way.address
        );
        if is_it { Ok(()) } else { Err(Failure(message)) }
    }

    /// Takes answers until a time, or until `enough`.
    async fn take(
        &self,
        cpu: &Cpu,
        socket: &dyn PingSocket,
        echoes: &mut Echoes,
        until: Time,
        enough: impl Fn(&Echoes) -> bool,
    ) -> Result<(), Error> {
        while !enough(echoes) {
            let echo = match socket.recv(cpu, until).await {
                Ok(echo) => echo,
                Err(Error::TimedOut) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some((began, answered)) = echoes.sent.get_mut(usize::from(echo.sequence.wrapping_sub(1)))
            else {
                continue;
            };
            if core::mem::replace(answered, true) {
                echoes.repeated += 1;
                continue;
            }
            let time = cpu.now().since(*began);
            echoes.answers += 1;
            echoes.damaged += u32::from(!echo.intact);
            echoes.times.add(time);
            echoes.longest = echoes.longest.max(time);
        }
        Ok(())
    }

    async fn echo(&self, cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Result<Echoes, Error> {
        let socket = kernel.network().ping(cpu)?;
        let socket = &*socket;
        let (mut echoes, interval) = (Echoes::default(), self.interval());
        let began = cpu.now();
        let end = self.deadline.map_or(Time::NEVER, |seconds| began + duration(seconds));
        let mut next = began;
        let requests = if self.deadline.is_some() { u16::MAX } else { self.count() };
        for sequence in 1..=requests {
            let allowed = usize::from(self.preload) - 1;
            let is_paced = !interval.is_zero();
            if sequence > 1 && is_paced && usize::from(sequence) > usize::from(self.preload) {
                next += interval;
                let until = next.min(end);
                self.take(cpu, socket, &mut echoes, until, |echoes| echoes.unanswered() == 0).await?;
                if cpu.now() < until && echoes.answers < self.count().into() {
                    cpu.sleep_until(until).await;
                }
            } else if sequence > 1 {
                let until = (cpu.now() + FLOOD_WAIT).min(end);
                self.take(cpu, socket, &mut echoes, until, |echoes| {
                    is_paced || echoes.unanswered() <= allowed
                })
                .await?;
            }
            if cpu.now() >= end || echoes.answers >= self.count().into() {
                break;
            }
            if self.is_too_long(kernel).is_some() {
                echoes.too_long += 1;
                continue;
            }
            echoes.sent.push((cpu.now(), false));
            match socket.send(cpu, self.host, sequence, self.size) {
                // Without a carrier, the packet is lost; like the original, report it and continue.
                Ok(()) | Err(Error::Io) => {}
                // As it is if the device goes while the program runs.
                Err(Error::Unreachable) if sequence > 1 => {}
                Err(error) => return Err(error),
            }
            cpu.sync().await;
        }
        // The original lingers for two round trips, but not below the interval, or for -W without any answer.
        let linger = match echoes.answers {
            0 => duration(self.wait),
            _ => (echoes.longest * 2).max(interval),
        };
        let until = (cpu.now() + linger).min(end);
        self.take(cpu, socket, &mut echoes, until, |echoes| echoes.unanswered() == 0).await?;
        Ok(echoes)
    }
}

impl Program for Ping {
    fn lasts(&self) -> Option<Duration> {
        let all = self.interval().as_ps().saturating_mul(u64::from(self.count()) - 1);
        let end = self.deadline.map_or(u64::MAX, |seconds| duration(seconds).as_ps());
        Some(Duration::from_ps(all.min(end)))
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        if self.deadline.is_none() {
            check_length("ping", u64::from(self.count()) - 1, self.interval())?;
        }
        match &self.source {
            Some(source) if source.parse::<Ipv4Addr>().is_err() => premises.link("ping", source).map(drop),
            _ => Ok(()),
        }
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let kernel = &environment.kernel;
            self.check_source(kernel)?;
            let mut echoes = self
                .echo(&cpu, kernel)
                .await
                .map_err(|error| Failure::about(format!("ping {}", self.host), error))?;
            let mut report = Report::default();
            let sent = echoes.sent.len() as f64;
            report.add("sent", "packets", sent);
            report.add("received", "packets", echoes.answers.into());
            report.add("loss", "%", 100.0 * (1.0 - f64::from(echoes.answers) / sent.max(1.0)));
            echoes.times.report(&mut report, "round trip");
            if echoes.too_long > 0 {
                let mtu = self.is_too_long(kernel).unwrap_or_default();
                let packets = echoes.too_long;
                report.notes.push(format!("{packets} requests were not sent: message too long, mtu={mtu}"));
            }
            if echoes.damaged > 0 {
                report.notes.push(format!("{} answers brought other data back", echoes.damaged));
            }
            if echoes.repeated > 0 {
                report.notes.push(format!("{} answers came more than once", echoes.repeated));
            }
            Ok(report)
        })
    }
}
