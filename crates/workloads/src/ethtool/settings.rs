//! What ethtool sets: names and values after the device's name.

use platform::net::{Coalescing, FlowKey, Offloads, Rings};
use units::Duration;
use wire::ip::protocol;

use crate::premises::Refused;

/// Maximum interrupt delay (µs): one second.
const LONGEST: u64 = 1_000_000;
/// Descriptors of a ring.
const RING: std::ops::RangeInclusive<u32> = 8..=32_768;
/// Rings whose sizes are not known yet.
pub const NO_RINGS: Rings = Rings { tx: 0, rx: 0 };

/// What can be set.
pub const KNOWN: &str = "-C rx-usecs N, rx-frames N, adaptive-rx on|off; -G rx N, tx N; -K tso|gro|rx|tx|rxhash|ntuple on|off; \
                         -X equal N, weight W0 W1 ..., default";

/// A name and the word behind it.
fn pairs(words: &[String]) -> impl Iterator<Item = (&str, Option<&String>)> {
    words.chunks(2).map(|pair| (pair[0].as_str(), pair.get(1)))
}

fn number<T: std::str::FromStr>(word: Option<&String>, what: &str) -> Result<T, Refused> {
    let word = word.map_or("", String::as_str);
    let message = || format!("ethtool: `{word}` is not a number for {what}");
    word.parse().map_err(|_| Refused::new(message(), format!("as in `{what} 1`")))
}

fn is_on(word: Option<&String>, what: &str) -> Result<bool, Refused> {
    match word.map(String::as_str) {
        Some("on") => Ok(true),
        Some("off") => Ok(false),
        _ => Err(Refused::new(format!("ethtool: {what} is on or off"), format!("as in `{what} on`"))),
    }
}

/// A value that must agree with another one, which may be given as well.
fn same<T: PartialEq>(own: Option<&T>, other: &T, given: &str, name: &str) -> Result<(), Refused> {
    let message = format!("ethtool: a pair of queues has one interrupt, and {given} is that of {name}");
    Refused::unless(
        own.is_none_or(|own| own == other),
        message,
        format!("set {name} and {given} to the same value"),
    )
}

/// Interrupt coalescing (`-C`).
///
/// # Errors
/// If a word is unknown or a value impossible, or if those of sent packets differ from those of received ones.
pub fn coalescing(words: &[String], now: Coalescing) -> Result<Coalescing, Refused> {
    let mut wanted = now;
    let (mut time, mut packets, mut adaptive) = (None, None, None);
    // Whether received packets are named: their values before are not known when a line is read.
    let (mut rx_time, mut rx_packets) = (false, false);
    for (name, value) in pairs(words) {
        match name {
            "rx-usecs" | "tx-usecs" => {
                let us = number(value, name)?;
                let most = "ethtool: no interrupt waits so long";
                Refused::unless(us <= LONGEST, most, format!("{name} 0 to {LONGEST}"))?;
                match name {
                    "rx-usecs" => (wanted.time, rx_time) = (Duration::from_us(us), true),
                    _ => time = Some(Duration::from_us(us)),
                }
            }
            "rx-frames" => (wanted.packets, rx_packets) = (number(value, name)?, true),
            "tx-frames" => packets = Some(number(value, name)?),
            "adaptive-rx" => wanted.adaptive = is_on(value, name)?,
            "adaptive-tx" => adaptive = Some(is_on(value, name)?),
            _ => {
                let known = "rx-usecs, rx-frames and adaptive-rx, and the same of tx";
                let message = format!("ethtool: -C takes {known}, not `{name}`");
                return Err(Refused::new(message, "as in `rx-usecs 20 rx-frames 16`"));
            }
        }
    }
    let alone = |tx: bool, rx: bool| tx && !rx;
    let message = "ethtool: a pair of queues has one interrupt, whose delay -C sets by the values of rx";
    let is_alone = alone(time.is_some(), rx_time) || alone(packets.is_some(), rx_packets);
    Refused::unless(!is_alone, message, "give both, as in `rx-usecs 3 tx-usecs 3`")?;
    same(time.as_ref(), &wanted.time, "tx-usecs", "rx-usecs")?;
    same(packets.as_ref(), &wanted.packets, "tx-frames", "rx-frames")?;
    same(adaptive.filter(|on| *on).as_ref(), &wanted.adaptive, "adaptive-tx", "adaptive-rx")?;
    Ok(wanted)
}

/// Descriptors of the rings (`-G`).
///
/// # Errors
/// If a word is unknown, or no ring has so many.
pub fn rings(words: &[String], now: Rings) -> Result<Rings, Refused> {
    let mut wanted = now;
    for (name, value) in pairs(words) {
        let own = match name {
            "rx" => &mut wanted.rx,
            "tx" => &mut wanted.tx,
            _ => {
                let message = format!("ethtool: -G takes rx and tx, not `{name}`");
                return Err(Refused::new(message, "as in `rx 1024 tx 1024`"));
            }
        };
        *own = number(value, name)?;
        let message = format!("ethtool: no ring has {own} descriptors");
        let fits = own.is_power_of_two() && RING.contains(own);
        Refused::unless(fits, message, format!("a power of two from {} to {}", RING.start(), RING.end()))?;
    }
    Ok(wanted)
}

/// Number of queue pairs (`-L`).
///
/// # Errors
/// If it is not `combined N`.
pub fn channels(words: &[String]) -> Result<u16, Refused> {
    match words {
        [name, _] if name == "combined" => number(words.get(1), name),
        _ => {
            let message = format!("ethtool: -L takes combined, not `{}`", words.join(" "));
            Err(Refused::new(message, "RX and TX queues are pairs, as in `combined 4`"))
        }
    }
}

/// An offload that can be switched.
pub struct Offload {
    /// Its names: the long one, and others.
    pub name: &'static str,
    others: &'static [&'static str],
    /// Whether it is on.
    pub of: fn(&mut Offloads) -> &mut bool,
}

impl Offload {
    /// All, in ethtool's order.
    pub const ALL: [Self; 6] = [
        Self { name: "rx-checksumming", others: &["rx"], of: |on| &mut on.device.rx_checksum },
        Self {
            name: "tx-checksumming",
            others: &["tx", "tx-checksum-ipv4", "tx-checksum-ip-generic"],
            of: |on| &mut on.device.tx_checksum,
        },
        Self {
            name: "tcp-segmentation-offload",
            others: &["tso", "tx-tcp-segmentation"],
            of: |on| &mut on.device.tso,
        },
        Self { name: "generic-receive-offload", others: &["gro", "rx-gro"], of: |on| &mut on.gro },
        Self {
            name: "ntuple-filters",
            others: &["ntuple", "rx-ntuple-filter"],
            of: |on| &mut on.device.flow_steering,
        },
        Self { name: "receive-hashing", others: &["rxhash", "rx-hashing"], of: |on| &mut on.device.rss },
    ];
}

/// Offloads that no device here has: switching them off changes nothing.
const ABSENT: [(&str, &str); 6] = [
    ("lro", "large-receive-offload"),
    ("ufo", "udp-fragmentation-offload"),
    ("rxvlan", "rx-vlan-offload"),
    ("txvlan", "tx-vlan-offload"),
    ("rx-gro-hw", "rx-gro-hw"),
    ("rx-gro-list", "rx-gro-list"),
];
/// What the stack always does: switching it on changes nothing.
const ALWAYS: [(&str, &str); 2] = [("sg", "scatter-gather"), ("gso", "generic-segmentation-offload")];

/// Offloads (`-K`).
///
/// # Errors
/// If one is unknown, or cannot be switched.
pub fn offloads(words: &[String], mut on: Offloads) -> Result<Offloads, Refused> {
    for (name, value) in pairs(words) {
        let wanted = is_on(value, name)?;
        let known =
            Offload::ALL.iter().find(|offload| offload.name == name || offload.others.contains(&name));
        let is_in = |list: &[(&str, &str)]| list.iter().any(|(short, long)| *short == name || *long == name);
        match known {
            Some(offload) => *(offload.of)(&mut on) = wanted,
            None if is_in(&ABSENT) => {
                let message = format!("ethtool: no device here has {name}");
                Refused::unless(!wanted, message, format!("`{name} off` is what is"))?;
            }
            None if is_in(&ALWAYS) => {
                let message = format!("ethtool: {name} is always on here");
                Refused::unless(wanted, message, "without `tso`, the stack makes segments as it sends them")?;
            }
            None => {
                let message = format!("ethtool: there is no offload `{name}`");
                return Err(Refused::new(message, "tso, gro, rx, tx, rxhash and ntuple can be switched"));
            }
        }
    }
    Ok(on)
}

/// Queues to which the values of the receive hash are assigned in turn (`-X`).
pub struct HashQueues(pub Vec<u16>);

impl HashQueues {
    /// Those of a device with `there` queues.
    ///
    /// # Errors
    /// If it has none of them, or the words say something else.
    pub fn read(words: &[String], there: u16) -> Result<Self, Refused> {
        let queues = Self::listed(words, there)?;
        let holds = !queues.is_empty() && queues.iter().all(|&queue| queue < there);
        let help = format!("queues 0 to {}", there.saturating_sub(1));
        Refused::unless(holds, "ethtool: -X names no queue, or one that the device has not got", help)?;
        Ok(Self(queues))
    }

    fn listed(words: &[String], there: u16) -> Result<Vec<u16>, Refused> {
        let (how, numbers) = words.split_first().map_or(("", &[][..]), |(how, n)| (how.as_str(), n));
        let left = |most: usize| {
            let rest = numbers.get(most..).unwrap_or_default().join(" ");
            let message = format!("ethtool: `{rest}` is left over");
            Refused::unless(rest.is_empty(), message, "`equal N`, `weight W0 W1 ...` or `default`")
        };
        match how {
            "default" => left(0).map(|()| (0..there).collect()),
            "equal" => {
                let count = number::<u16>(numbers.first(), "equal")?;
                let start = match numbers.get(1).map(String::as_str) {
                    Some("start") => number::<u16>(numbers.get(2), "start")?,
                    _ => left(1).map(|()| 0)?,
                };
                Ok((0..count).map(|queue| start.saturating_add(queue)).collect())
            }
            "weight" => {
                let weights = numbers.iter().map(|word| number::<u16>(Some(word), "weight"));
                let weights = weights.collect::<Result<Vec<_>, _>>()?;
                Ok((0u16..)
                    .zip(weights)
                    .flat_map(|(queue, weight)| std::iter::repeat_n(queue, weight.into()))
                    .collect())
            }
            _ => {
                let help = "`equal N`, `weight W0 W1 ...` or `default`";
                Err(Refused::new("ethtool: -X says to which queues", help))
            }
        }
    }
}

/// What `-N` says: a rule, or `rx-flow-hash` with the fields that the hash covers in any case.
///
/// # Errors
/// If the rule is not possible, or the hash covers other fields.
pub fn rule(words: &[String], there: u16) -> Result<Option<FlowRule>, Refused> {
    match words {
        [what, flow, fields] if what == "rx-flow-hash" => {
            let is_so = ["tcp4", "udp4"].contains(&flow.as_str()) && fields == "sdfn";
            let message = format!("ethtool: the hash of {flow} does not cover `{fields}`");
            Refused::unless(is_so, message, "addresses and ports of TCP and UDP, `sdfn`").map(|()| None)
        }
        _ => FlowRule::read(words, there).map(Some),
    }
}

/// What `-n eth0 rx-flow-hash tcp4` tells, as the original prints it.
///
/// # Errors
/// If it asks for other flows.
pub fn hashed(words: &[String]) -> Result<String, Refused> {
    let flow = match words {
        [what, flow] if what == "rx-flow-hash" => match flow.as_str() {
            "tcp4" => Some("TCP"),
            "udp4" => Some("UDP"),
            _ => None,
        },
        _ => None,
    };
    let message = format!("ethtool: `{}` is not a kind of flows that is hashed", words.join(" "));
    let protocol = flow.ok_or_else(|| Refused::new(message, "`rx-flow-hash tcp4` or `rx-flow-hash udp4`"))?;
    Ok(format!(
        "{protocol} over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n\
         L4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\n"
    ))
}

/// A rule that steers a flow to a queue (`-N`).
pub struct FlowRule {
    /// The flow.
    pub flow: FlowKey,
    /// The queue.
    pub queue: u16,
}

impl FlowRule {
    /// One for a device with `there` queues.
    ///
    /// # Errors
    /// If it does not name a whole flow, or a queue that is not there.
    pub fn read(words: &[String], there: u16) -> Result<Self, Refused> {
        let help =
            "as in `flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 src-port 5001 dst-port 40000 action 1`";
        let wrong = |what: String| Refused::new(format!("ethtool: {what}"), help);
        let (mut protocol, mut queue) = (None, None);
        let (mut addresses, mut ports) = ([None; 2], [None; 2]);
        for (name, value) in pairs(words) {
            let word = value.map_or("", String::as_str);
            let address = || word.parse().map(|at: std::net::Ipv4Addr| Some(at.octets()));
            match name {
                "flow-type" => {
                    protocol = match word {
                        "tcp4" => Some(protocol::TCP),
                        "udp4" => Some(protocol::UDP),
                        _ => return Err(wrong(format!("rules are for tcp4 and udp4, not `{word}`"))),
                    };
                }
                "src-ip" | "dst-ip" => {
                    addresses[usize::from(name == "dst-ip")] =
                        address().map_err(|_| wrong(format!("`{word}` is not an IPv4 address")))?;
                }
                "src-port" | "dst-port" => {
                    ports[usize::from(name == "dst-port")] = Some(number::<u16>(value, name)?);
                }
                "action" | "queue" => queue = Some(number::<u16>(value, name)?),
                "loc" => drop(number::<u32>(value, name)?),
                _ => return Err(wrong(format!("-N does not take `{name}`"))),
            }
        }
        let whole = "the card's rules match a whole flow: protocol, both addresses and both ports";
        let ([Some(source), Some(destination)], [Some(from), Some(to)]) = (addresses, ports) else {
            return Err(wrong(whole.to_owned()));
        };
        let protocol = protocol.ok_or_else(|| wrong(whole.to_owned()))?;
        let queue = queue.filter(|queue| *queue < there);
        let queue = queue
            .ok_or_else(|| wrong(format!("action names a queue from 0 to {}", there.saturating_sub(1))))?;
        Ok(Self { flow: FlowKey { protocol, source, destination, ports: (from, to) }, queue })
    }
}
