//! Ways of TLPs between devices of a tree, and what they take: the sum of their parts, and the narrowest of them.

use std::collections::BTreeMap;
use std::ops::Range;

use hardware::Fabric;
use hardware::link::{Credits, LinkEnd, Side};
use hardware::root::HostId;
use hardware::switch::SwitchId;
use units::{Bytes, Duration};
use wire::pcie::FlowClass;
use wire::pcie::config::acs;

use super::tree::{Leaf, Tree};

/// Bytes of a DLLP on the wire.
const DLLP_BYTES: u64 = 8;
/// Bytes of a header of three doublewords: all addresses are below 4 GiB.
const HEADER_BYTES: u64 = 12;
/// Bytes after which a switch knows where a TLP goes.
const ROUTED_BYTES: u64 = 20;

/// A TLP between two devices, with its payload in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    Write(u64),
    Read,
    Completion(u64),
}

impl Sent {
    fn payload(self) -> u64 {
        match self {
            Self::Write(bytes) | Self::Completion(bytes) => bytes,
            Self::Read => 0,
        }
    }

    fn class(self) -> FlowClass {
        match self {
            Self::Write(_) => FlowClass::Posted,
            Self::Read => FlowClass::NonPosted,
            Self::Completion(_) => FlowClass::Completion,
        }
    }
}

/// The component at the end of a link.
#[derive(Clone, Copy, Debug)]
enum Next {
    Switch(SwitchId),
    /// The root complex, from one root port to another or back.
    Root {
        from: u8,
        to: u8,
    },
    Device,
}

/// A link, by its transmitting end, and the component behind it.
#[derive(Clone, Copy, Debug)]
struct Hop {
    end: LinkEnd,
    next: Next,
}

/// The way of a TLP from one device to another.
#[derive(Clone, Debug)]
pub struct Way {
    sent: Sent,
    hops: Vec<Hop>,
}

/// Something of which a stream has `tokens`; each is in use for a time between these two.
struct Window {
    tokens: u64,
    times: (Duration, Duration),
}

/// What a transfer of a stream brings to a wire.
#[derive(Default)]
struct Load {
    tlps: u64,
    /// Wire time, without and with all DLLPs.
    times: (Duration, Duration),
}

type Loads = BTreeMap<LinkEnd, Load>;

impl Tree {
    /// The way of a TLP: by the nearest common switch, or by the root complex if there is none or its port redirects.
    pub fn way(&self, from: &Leaf, to: &Leaf, sent: Sent) -> Way {
        let common = from.switches.iter().zip(&to.switches).take_while(|(a, b)| a == b).count();
        let redirect = match sent {
            Sent::Completion(_) => acs::COMPLETION_REDIRECT,
            _ => acs::REQUEST_REDIRECT,
        };
        let is_direct = common > 0 && self.services(from, common) & redirect == 0;
        self.way_below(from, to, sent, if is_direct { common } else { 0 })
    }

    /// The ways of a read's request and of its completion, which follows the request to a root complex that reads by
    /// itself.
    pub fn ways_of_read(&self, from: &Leaf, to: &Leaf, bytes: u64) -> [Way; 2] {
        let request = self.way(from, to, Sent::Read);
        let reader = request.root_ports().filter(|&(port, _)| {
            self.simulation.with(|fabric, _| fabric.host(self.host).port(port).params().peer_reads.is_some())
        });
        let completion = match reader {
            Some(_) => self.way_below(to, from, Sent::Completion(bytes), 0),
            None => self.way(to, from, Sent::Completion(bytes)),
        };
        [request, completion]
    }

    /// The way that avoids the uppermost `avoided` links.
    fn way_below(&self, from: &Leaf, to: &Leaf, sent: Sent, avoided: usize) -> Way {
        let [from_port, to_port] = [from, to].map(|leaf| self.root_port(leaf));
        let up = (avoided..from.links.len()).rev().map(|level| Hop {
            end: LinkEnd { link: from.links[level], side: Side::Downstream },
            next: match level.checked_sub(1) {
                Some(above) => Next::Switch(from.switches[above]),
                None => Next::Root { from: from_port, to: to_port },
            },
        });
        let down = (avoided..to.links.len()).map(|level| Hop {
            end: LinkEnd { link: to.links[level], side: Side::Upstream },
            next: to.switches.get(level).map_or(Next::Device, |&switch| Next::Switch(switch)),
        });
        Way { sent, hops: up.chain(down).collect() }
    }

    /// Latency of TLPs that follow each other: the sum of the latencies of all parts.
    pub fn sum_of_parts(&self, ways: &[Way]) -> Duration {
        self.simulation.with(|fabric, _| {
            let parts = Parts { fabric, host: self.host };
            ways.iter().map(|way| parts.sum(way, 0..way.hops.len())).sum()
        })
    }

    /// Bounds of the interval, in picoseconds, of a device's transfers, each of which takes `ways`: the interval of the
    /// narrowest part.
    pub fn narrowest_part(&self, ways: &[Way], from: &Leaf) -> (f64, f64) {
        self.simulation.with(|fabric, _| {
            let tags = fabric.endpoint(from.id).core.requester(Default::default()).tags();
            let parts = Parts { fabric, host: self.host };
            let loads = parts.loads(ways);
            let windows = ways.iter().flat_map(|way| parts.windows(way, &loads));
            let windows = windows.chain(parts.of_reads(ways, &loads, tags));
            let root = ways.iter().flat_map(|way| parts.root_loads(way)).map(|time| (time, time));
            let servers =
                loads.values().map(|load| load.times).chain(root).map(|times| Window { tokens: 1, times });
            let intervals = windows.chain(servers).map(|window| window.interval());
            intervals.fold((0.0, 0.0), |all: (f64, f64), each| (all.0.max(each.0), all.1.max(each.1)))
        })
    }
}

impl Hop {
    fn is_to_root(&self) -> bool {
        matches!(self.next, Next::Root { .. })
    }
}

impl Way {
    /// The root ports that the TLP enters and leaves, if it goes by the root complex.
    pub fn root_ports(&self) -> Option<(u8, u8)> {
        self.hops.iter().find_map(|hop| match hop.next {
            Next::Root { from, to } => Some((from, to)),
            _ => None,
        })
    }

    /// Whether TLPs of both ways use the same wire.
    pub fn shares_wire(&self, other: &Self) -> bool {
        self.hops.iter().any(|hop| other.hops.iter().any(|another| hop.end == another.end))
    }

    /// Whether it passes a switch.
    pub fn passes(&self, switch: SwitchId) -> bool {
        self.hops.iter().any(|hop| matches!(hop.next, Next::Switch(there) if there == switch))
    }
}

impl Window {
    /// In picoseconds.
    fn interval(&self) -> (f64, f64) {
        let share = |time: Duration| time.as_ps() as f64 / self.tokens as f64;
        (share(self.times.0), share(self.times.1))
    }
}

/// The delays of a fabric's parts.
struct Parts<'a> {
    fabric: &'a Fabric,
    host: HostId,
}

impl Parts<'_> {
    fn on_wire(&self, end: LinkEnd, sent: Sent) -> Duration {
        let link = self.fabric.wires.link(end.link);
        link.wire_time(end.side, HEADER_BYTES + sent.payload() + link.framing_bytes())
    }

    /// From the start of a TLP on a link until a device or root port has all of it, or until it can leave a switch.
    fn arrival(&self, way: &Way, hop: usize) -> Duration {
        let Hop { end, next } = way.hops[hop];
        let link = self.fabric.wires.link(end.link);
        let whole = self.on_wire(end, way.sent);
        let Next::Switch(switch) = next else { return whole + link.params().latency };
        let switch = self.fabric.switch(switch).params();
        let after = self.fabric.wires.link(way.hops[hop + 1].end.link);
        let outpaces = after.wire_time_per_byte_ps() < link.wire_time_per_byte_ps();
        let is_stored = outpaces || !switch.cut_through;
        let routed = if is_stored { whole } else { whole.min(link.wire_time(end.side, ROUTED_BYTES)) };
        routed + link.params().latency + switch.latency
    }

    /// What the root complex adds to the arrival of a TLP that it forwards.
    fn root(&self, sent: Sent, (from, to): (u8, u8)) -> Duration {
        let host = self.fabric.host(self.host);
        let (ingress, egress) = (host.port(from).params(), host.port(to).params());
        let intake = match sent {
            Sent::Completion(_) => Duration::ZERO,
            _ => self.intake(sent, from) + ingress.request_latency,
        };
        let between = self.between_sockets(sent, (from, to));
        intake + between.map_or(Duration::ZERO, |(time, latency)| time + latency) + egress.peer_latency
    }

    /// How long a request occupies a root port.
    fn intake(&self, sent: Sent, port: u8) -> Duration {
        let port = self.fabric.host(self.host).port(port).params();
        port.intake_per_request + port.intake_per_line * sent.payload().max(1).div_ceil(64)
    }

    /// How long a TLP occupies the interconnect, and the interconnect's latency.
    fn between_sockets(&self, sent: Sent, (from, to): (u8, u8)) -> Option<(Duration, Duration)> {
        let host = self.fabric.host(self.host);
        let own = &host.memory.params().interconnect;
        let time = own.links[0].bandwidth.time_for(Bytes::new(sent.payload()) + own.header);
        (host.port(from).params().node != host.port(to).params().node).then_some((time, own.links[0].latency))
    }

    /// The sum of the latencies of some hops.
    fn sum(&self, way: &Way, hops: Range<usize>) -> Duration {
        hops.map(|hop| {
            let root = match way.hops[hop].next {
                Next::Root { from, to } => self.root(way.sent, (from, to)),
                _ => Duration::ZERO,
            };
            self.arrival(way, hop) + root
        })
        .sum()
    }

    /// What a transfer that takes `ways` brings to each wire. Each TLP brings an Ack and an UpdateFC at most, on the
    /// opposite wire.
    fn loads(&self, ways: &[Way]) -> Loads {
        let mut loads = Loads::new();
        for way in ways {
            for &Hop { end, .. } in &way.hops {
                let time = self.on_wire(end, way.sent);
                let load = loads.entry(end).or_default();
                load.tlps += 1;
                load.times = (load.times.0 + time, load.times.1 + time);
                let opposite = LinkEnd { side: end.side.opposite(), ..end };
                let dllps = self.fabric.wires.link(end.link).wire_time(opposite.side, 2 * DLLP_BYTES);
                loads.entry(opposite).or_default().times.1 += dllps;
            }
        }
        loads
    }

    /// How long a TLP occupies root ports and the interconnect.
    fn root_loads(&self, way: &Way) -> impl Iterator<Item = Duration> {
        let root = way.root_ports().into_iter();
        root.flat_map(|(from, to)| {
            let intake = match way.sent {
                Sent::Completion(_) => Duration::ZERO,
                _ => self.intake(way.sent, from),
            };
            self.between_sockets(way.sent, (from, to)).map(|(time, _)| time).into_iter().chain([intake])
        })
    }

    /// How long some hops take: at least, and where a TLP waits on each wire for everything else of a transfer.
    fn with_waits(&self, way: &Way, loads: &Loads, hops: Range<usize>) -> (Duration, Duration) {
        let sum = self.sum(way, hops.clone());
        let waits =
            way.hops[hops].iter().map(|hop| loads[&hop.end].times.1 - self.on_wire(hop.end, way.sent));
        (sum, sum + waits.sum())
    }

    /// Credits and replay buffers along a way.
    fn windows(&self, way: &Way, loads: &Loads) -> impl Iterator<Item = Window> {
        (0..way.hops.len()).flat_map(move |hop| {
            let Hop { end, next } = way.hops[hop];
            let link = self.fabric.wires.link(end.link);
            let receiver = &link.params().receivers[end.side.opposite() as usize];
            let back = link.wire_time(end.side.opposite(), DLLP_BYTES) + link.params().latency;
            let tlps = loads[&end].tlps;
            let wait = loads[&end].times.1 - self.on_wire(end, way.sent);
            // A buffer is free once the TLP has been handed to the next link, or consumed.
            let held = self.arrival(way, hop)
                + match (next, way.sent) {
                    (Next::Root { from, .. }, Sent::Read) => self.intake(Sent::Read, from),
                    (Next::Root { from, to }, Sent::Write(_)) => self.root(way.sent, (from, to)),
                    _ => Duration::ZERO,
                };
            let data = way.sent.payload().div_ceil(16);
            let fit = |credits: Credits| match data {
                0 => u64::from(credits.header),
                data => (u64::from(credits.data) / data).min(credits.header.into()),
            };
            let credits = receiver.credits.of(way.sent.class()).map(|limit| Window {
                tokens: fit(limit),
                times: (held + back, held + wait + receiver.credit_update_delay + back),
            });
            let whole = self.on_wire(end, way.sent) + link.params().latency;
            let replay = Window {
                tokens: receiver.replay_tlps as u64,
                times: ((whole + back) * tlps, (whole + wait + receiver.ack_delay + back) * tlps),
            };
            credits.into_iter().chain([replay])
        })
    }

    /// What a device and a root complex can have outstanding of reads.
    fn of_reads(&self, ways: &[Way], loads: &Loads, tags: u16) -> Vec<Window> {
        let [request, completion] = ways else { return Vec::new() };
        let both = |hops: [Range<usize>; 2]| {
            let [a, b] = [(request, hops[0].clone()), (completion, hops[1].clone())]
                .map(|(way, hops)| self.with_waits(way, loads, hops));
            (a.0 + b.0, a.1 + b.1)
        };
        let mut windows = vec![Window {
            tokens: tags.into(),
            times: both([0..request.hops.len(), 0..completion.hops.len()]),
        }];
        let host = self.fabric.host(self.host);
        if let Some((from, to)) = request.root_ports()
            && let Some(own) = host.port(from).params().peer_reads
        {
            // A piece is under way from this root complex to the device and back.
            let down = request.hops.iter().position(Hop::is_to_root).expect("it goes by the root") + 1;
            let up = completion.hops.iter().position(Hop::is_to_root).expect("it goes back to the root");
            let (least, most) = both([down..request.hops.len(), 0..up + 1]);
            let back = self.root(completion.sent, (to, from));
            let asks = host.port(to).params().peer_latency;
            windows
                .push(Window { tokens: own.places.into(), times: (asks + least - back, asks + most - back) });
        }
        windows
    }
}
