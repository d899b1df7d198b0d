//! The network between a scenario's hosts: cables, switches, captures.

mod find;

use crate::placed::{Placed, Several};
use crate::read::{Check, record};
pub(crate) use find::{Stations, port};
use units::{BitRate, Bytes, Duration};

record! {
    /// A cable between two ports.
    pub struct CableEntry {
        /// Name, if something else refers to it.
        name: Option<Placed<String>>,
        /// The ports: `a` for the first Ethernet port of host `a`, `a:1` for its second, `a:n` for the first of its
        /// NIC `n`, `s:3` for port 3 of switch `s`, `s` for its next free one, `t` for traffic source, sink or generator `t`.
        ends: Vec<Placed<String>>,
        /// Speed, at most that of both ports; that of the slower port if not given.
        rate: Option<Placed<BitRate>>,
        /// Delay from one end to the other, transceivers included; 20 ns (about 4 m) if not given.
        propagation: Option<Duration>,
        /// Share of frames lost; 0 if not given.
        loss: Option<f64>,
        /// Share of frames with a flipped bit; 0 if not given.
        corruption: Option<f64>,
        /// Share of frames that arrive twice; 0 if not given.
        duplication: Option<f64>,
        /// Share of frames that are delayed, so that later ones overtake them; 0 if not given.
        reordering: Option<f64>,
        /// Maximum delay of such frames; 100 µs if not given.
        longest_delay: Option<Duration>,
    }
    check |cable: &CableEntry, check: &mut Check<'_>| {
        let count = cable.ends.len();
        check.require(count == 2, "ends", format!("a cable has two ends, not {count}"), "`ends = [\"a\", \"b\"]`");
        let shares = [
            ("loss", cable.loss),
            ("corruption", cable.corruption),
            ("duplication", cable.duplication),
            ("reordering", cable.reordering),
        ];
        for (name, share) in shares {
            let share = share.unwrap_or(0.0);
            check.require((0.0..=1.0).contains(&share), name, format!("{share} is not a share"), "from 0 to 1");
        }
        let given: Vec<_> = shares.into_iter().filter_map(|(name, share)| Some((name, share?))).collect();
        let sum: f64 = given.iter().map(|(_, share)| share).sum();
        if let Some((last, _)) = given.last().filter(|_| given.iter().all(|(_, share)| *share <= 1.0)) {
            check.require(sum <= 1.0, last, format!("all shares together come to {sum}"), "1 at most");
        }
        let delays = cable.longest_delay.is_none() || cable.reordering.is_some();
        check.require(delays, "longest_delay", "no frame is held back", "add `reordering`, the share that is");
        check.require_ethernet("rate", cable.rate.as_ref().map(|rate| rate.value));
        for (key, time) in [("propagation", cable.propagation), ("longest_delay", cable.longest_delay)] {
            let short = time.is_none_or(|time| time <= Duration::from_ms(1_000));
            check.require(short, key, "no frame is under way for as long", "1 s at most");
        }
    }
}

record! {
    /// An Ethernet switch.
    pub struct SwitchEntry {
        /// Name, by which the ends of cables refer to it.
        name: Placed<String>,
        /// Number of ports, up to 255; as many as cables if not given.
        ports: Option<u32>,
        /// Speed of its ports; 100 Gbit/s if not given.
        rate: Option<BitRate>,
        /// Latency from a frame's last bit in to its first bit out, without contention; 300 ns if not given.
        latency: Option<Duration>,
        /// Maximum bytes queued at a port; 384 KiB if not given.
        queue: Option<Bytes>,
        /// Queue length in bytes from which frames are marked (ECN), if their senders use ECN; never if not given.
        mark: Option<Bytes>,
        /// Groups of ports that form a channel (IEEE 802.3ad): `[[0, 1]]`. A flow's hash selects the port for its
        /// frames.
        lag: Option<Placed<Several<Vec<u32>>>>,
    }
    check |switch: &SwitchEntry, check: &mut Check<'_>| {
        check.require_within("ports", switch.ports.map_or(2, u64::from), (1, MOST_PORTS.into()), "ports are not possible");
        check.require_ethernet("rate", switch.rate);
        let short = switch.latency.is_none_or(|time| time <= Duration::from_ms(1_000));
        check.require(short, "latency", "no switch takes as long", "1 s at most");
        let queue = switch.queue.unwrap_or(QUEUE).get();
        let holds = (LEAST_QUEUE..=u32::MAX.into()).contains(&queue);
        let message = format!("a queue of {queue} B is not possible: it must hold a frame of usual size, and fit into 32 bits");
        check.require(holds, "queue", message, format!("{LEAST_QUEUE} B to 4 GiB"));
        let ports: Vec<u32> = switch.lag.iter().flat_map(|lag| lag.value.iter().flatten().copied()).collect();
        let least = ports.iter().max().map_or(0, |&port| u64::from(port) + 1);
        let most = switch.ports.map_or(MOST_PORTS.into(), u64::from);
        let message = "a channel has a port that the switch has not";
        check.require(least <= most, "lag", message, format!("ports 0 to {}", most.saturating_sub(1)));
        let once = ports.iter().collect::<std::collections::BTreeSet<_>>().len() == ports.len();
        check.require(once, "lag", "a port is in it twice", "each port in one channel");
        let marks = switch.mark.is_none_or(|mark| mark.get() < queue);
        check.require(marks, "mark", "no frame would ever be marked", format!("less than the queue's {queue} B"));
    }
}

/// Default queue of a switch's port.
pub(crate) const QUEUE: Bytes = Bytes::kib(384);
/// A frame of the usual size including check sequence (bytes).
const LEAST_QUEUE: u64 = 1518;
/// Maximum number of ports of a switch: port numbers have 8 bits.
const MOST_PORTS: u8 = 255;

record! {
    /// A capture of the frames at a port.
    pub struct CaptureEntry {
        /// The port, in the syntax of a cable's end.
        port: Placed<String>,
        /// The pcapng file to write, below the scenario's folder or that of `--folder`. It replaces only captures that
        /// nearfar wrote. Captures of several ports may share one.
        file: Placed<String>,
    }
}

/// A port of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortSetup {
    /// An Ethernet port: host, device, port of the device.
    Host(usize, usize, u8),
    /// A switch, by its index, and its port.
    Switch(usize, u8),
    /// The port of a traffic source, by its index.
    Source(usize),
    /// The port of a sink, by its index.
    Sink(usize),
    /// The port of a generator, by its index.
    Generator(usize),
}

/// A cable with its ends resolved.
#[derive(Debug, Clone)]
pub struct CableSetup {
    /// The ports that it connects.
    pub ends: [PortSetup; 2],
    /// Its speed.
    pub rate: BitRate,
    /// Its entry in the scenario.
    pub entry: CableEntry,
}

/// The network of a scenario.
#[derive(Debug, Clone, Default)]
pub struct NetworkSetup {
    /// Switches with their number of ports.
    pub switches: Vec<(SwitchEntry, u8)>,
    /// Cables, in the scenario's order.
    pub cables: Vec<CableSetup>,
    /// Captured ports, with their names in the scenario and their files.
    pub captures: Vec<(PortSetup, String, Placed<String>)>,
    /// Comment of the capture files.
    pub comment: String,
}

impl NetworkSetup {
    /// The port at the other end of a port's cable; `None` without a cable.
    pub fn other_end(&self, port: PortSetup) -> Option<PortSetup> {
        self.cables.iter().find_map(|cable| match cable.ends {
            [one, other] if one == port => Some(other),
            [other, one] if one == port => Some(other),
            _ => None,
        })
    }
}
