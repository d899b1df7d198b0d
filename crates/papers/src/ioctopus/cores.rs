//! Many cores at once: streams on all cores (section 5.1.1), and the capacity of one half of a bifurcated card
//! (section 3.2).

use units::Duration;

use super::server::{COSTS, Organisation, Server, ServerBench, SteadyRun};
use super::streams::DRIVER;
use crate::rig::Rig;
use crate::runs::{Values, named};

const BATCH: Duration = Duration::from_us(50);
const BATCHES: usize = 60;
/// TCP payload rate of a 100 Gbit/s line: 1448 of 1538 bytes on the wire.
const LINE_GBIT: f64 = 100.0 * 1448.0 / 1538.0;

/// What the streams of all cores do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streams {
    Receive,
    Send,
    SendWithoutTso,
}

impl Streams {
    pub const ALL: [Self; 3] = [Self::Receive, Self::Send, Self::SendWithoutTso];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "rx",
            Self::Send => "tx",
            Self::SendWithoutTso => "tx-no-tso",
        }
    }

    const fn sends(self) -> bool {
        !matches!(self, Self::Receive)
    }
}

/// Addresses of the server's function at a socket and of the tester that talks to it, with two network devices; a
/// single device uses the first.
fn addresses(organisation: Organisation, socket: u16, number: u16) -> [String; 2] {
    match (organisation, socket) {
        (Organisation::TwoNetdevs, 1) => ["10.0.1.1".to_owned(), format!("10.0.1.{}", 100 + number)],
        _ => ["10.0.0.1".to_owned(), format!("10.0.0.{}", 100 + number)],
    }
}

/// One stream per core, through the function at a socket.
fn streams(
    bench: &ServerBench,
    organisation: Organisation,
    way: Streams,
    cores: &[(u16, u16)],
) -> Result<SteadyRun, String> {
    let mut text = bench.host("server", organisation, DRIVER);
    text += "[[switch]]\nname = \"switch\"\nqueue = \"4 MiB\"\n[[cable]]\nends = [\"server\", \"switch\"]\n";
    for (number, &(_, socket)) in (0..).zip(cores) {
        let [to, own] = addresses(organisation, socket, number);
        text += &match way.sends() {
            true => format!("[[sink]]\nname = \"t{number}\"\naddress = \"{own}\"\n"),
            false => format!(
                "[[source]]\nname = \"t{number}\"\nto = \"{to}:{}\"\naddress = \"{own}\"\ntime = \"1 s\"\n",
                5001 + number
            ),
        };
        text += &format!("[[cable]]\nends = [\"t{number}\", \"switch\"]\n");
    }
    let rig = bench.boot(&text)?;
    if way == Streams::SendWithoutTso {
        organisation.devices().iter().try_for_each(|device| Server(&rig).without_tso(0, device))?;
    }
    if way.sends() {
        // A SYN that waits for its neighbour is sent by the core that receives the neighbour's answer. The stream would
        // keep that core's queue as long as it never pauses, and share it with others.
        let ping = |(number, &(core, socket))| {
            let [_, other] = addresses(organisation, socket, number);
            rig.start(0, &[core], &format!("ping -c 1 {other}"))
        };
        let pings: Vec<_> = (0..).zip(cores).map(ping).collect::<Result<_, _>>()?;
        pings.iter().try_for_each(|ping| rig.report(ping).map(drop))?;
    }
    for (number, &(core, socket)) in (0..).zip(cores) {
        let [_, other] = addresses(organisation, socket, number);
        let line = match way.sends() {
            true => format!("iperf -c {other} -l 65536 -t 1"),
            false => format!("iperf -s -p {} -l 65536", 5001 + number),
        };
        rig.start(0, &[core], &line)?;
    }
    rig.computers.start_sources();
    Ok(settled(&rig, cores))
}

fn settled(rig: &Rig, cores: &[(u16, u16)]) -> SteadyRun {
    // Wait until the senders' queues are full (packets count when the driver gets them) and every flow has its
    // steering rule.
    rig.pass(Duration::from_ms(12));
    let cores: Vec<u16> = cores.iter().map(|(core, _)| *core).collect();
    Server(rig).measure(&cores, BATCH, BATCHES)
}

/// A stream on every core: through the local or remote function of a card with two network devices, or through an
/// octoNIC.
pub fn all(bench: &ServerBench, way: Streams, organisation: Organisation) -> Result<Values, String> {
    let (wired, is_far) = match organisation {
        Organisation::Octo => (Organisation::Octo, false),
        other => (Organisation::TwoNetdevs, other == Organisation::Remote),
    };
    let cores: Vec<(u16, u16)> = (0..2u16)
        .flat_map(|socket| {
            let through = if is_far { 1 - socket } else { socket };
            (0..bench.cores).map(move |n| (bench.core(socket, n), through))
        })
        .collect();
    let run = streams(bench, wired, way, &cores)?;
    let each = run.each([
        ("line", |rates| 100.0 * rates.gbit / LINE_GBIT),
        ("gbit", |rates| rates.gbit),
        ("idle", |rates| 100.0 - rates.cpu),
        ("memory-share", |rates| 100.0 * rates.memory / rates.gbit),
    ]);
    let of = format!("multicore-{}", way.name());
    Ok(named(&of, organisation.name(), each.into_iter().chain(run.each(COSTS))))
}

/// All cores of one socket receive through an octoNIC.
pub fn one_socket(bench: &ServerBench, organisation: Organisation, name: &str) -> Result<Values, String> {
    let cores: Vec<(u16, u16)> = (0..bench.cores).map(|n| (bench.core(0, n), 0)).collect();
    let run = streams(bench, organisation, Streams::Receive, &cores)?;
    let each = run.each([("gbit", |rates| rates.gbit), ("dma", |rates| rates.written)]);
    Ok(named(name, "one-socket", each.into_iter().chain(run.each(COSTS))))
}
