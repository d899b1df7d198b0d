//! Non-transparent bridges: adapters that let TLPs pass from one host's tree into another's, and the switches between their
//! cables.
//!
//! An adapter is an endpoint whose window does not end in registers: what is addressed to it leaves by a cable, with an address of the
//! other host and a requester that the other adapter knows how to answer. Nothing is stored but the tables that software
//! wrote, so a cable that is cut leaves nothing behind.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | what an adapter is made of, and where its TLPs go |
//! | `registers` | its configuration space and registers |
//! | `cluster` | a switch between cables |
//!
//! How a TLP crosses it, as part of an endpoint, is in `endpoint/crossing.rs`.

pub mod cluster;
mod registers;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use units::{Duration, Time};
use wire::ntb::{CableAddress, WindowSegment};
use wire::pcie::config::{ConfigError, PcieParams};
use wire::pcie::{Bdf, Tlp, TlpKind};

pub use cluster::{ClusterSwitch, ClusterSwitchId, ClusterSwitchParams};
pub use registers::NtbDevice;

use crate::endpoint::EndpointId;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// What an adapter is made of.
#[derive(Clone, Debug)]
pub struct NtbParams {
    /// Vendor and device ID.
    pub ids: (u16, u16),
    /// Its number in the cluster; each adapter has its own.
    pub node: u8,
    /// Bytes of its window, a power of two.
    pub window: u64,
    /// Segments of the window, a power of two.
    pub segments: u32,
    /// Entries of each table of requesters.
    pub requesters: u32,
    /// From a TLP's header being at one side, or all of it where it is stored first, until it can leave the other.
    pub latency: Duration,
    /// Whether a TLP goes on before its end has come, where that can be.
    pub cut_through: bool,
    /// How long it takes to read a register.
    pub register_latency: Duration,
    /// Capabilities that it announces.
    pub pcie: PcieParams,
}

impl NtbParams {
    /// An adapter that takes no time, for tests: 16 segments of 1 MiB.
    pub fn ideal(node: u8, pcie: PcieParams) -> Self {
        Self {
            ids: (0x10b5, 0x87b0),
            node,
            window: 16 << 20,
            segments: 16,
            requesters: 32,
            latency: Duration::ZERO,
            cut_through: true,
            register_latency: Duration::ZERO,
            pcie,
        }
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.window / u64::from(self.segments)
    }
}

/// Counts of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NtbCounters {
    /// TLPs that have gone out by cables.
    pub sent: u64,
    /// TLPs that have come in by cables for the own host.
    pub received: u64,
    /// Requests to segments that lead nowhere, or to registers that others do not reach.
    pub unmapped: u64,
    /// Requests and completions of requesters that are in no table.
    pub unknown_requesters: u64,
    /// TLPs for a node to which no cable is up, or a host that does not take them.
    pub unreachable: u64,
}

/// What software has written into an adapter's tables. The registers are its one owner, crossing TLPs look at it.
#[derive(Debug)]
pub(crate) struct Tables {
    pub segments: Vec<Option<WindowSegment>>,
    pub local: Places<Bdf>,
    pub remote: Places<(u8, u8)>,
}

/// A table of requesters, looked up by place and by who is in it.
#[derive(Debug)]
pub(crate) struct Places<T> {
    entries: Vec<Option<T>>,
    /// The first place of each.
    places: FxHashMap<T, u8>,
}

impl<T: Copy + Eq + Hash> Places<T> {
    fn new(count: u32) -> Self {
        Self { entries: vec![None; count as usize], places: FxHashMap::default() }
    }

    /// Who is in a place.
    pub fn get(&self, place: u8) -> Option<T> {
        self.entries.get(usize::from(place)).copied().flatten()
    }

    /// Where somebody is.
    pub fn place_of(&self, who: T) -> Option<u8> {
        self.places.get(&who).copied()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Software writes an entry.
    pub fn set(&mut self, place: usize, who: Option<T>) {
        self.entries[place] = who;
        self.places.clear();
        for (place, who) in self.entries.iter().enumerate().rev() {
            if let Some(who) = who {
                self.places.insert(*who, place as u8);
            }
        }
    }

    pub fn clear(&mut self) {
        self.entries.fill(None);
        self.places.clear();
    }
}

impl Tables {
    pub fn new(params: &NtbParams) -> Self {
        Self {
            segments: vec![None; params.segments as usize],
            local: Places::new(params.requesters),
            remote: Places::new(params.requesters),
        }
    }
}

/// Nodes, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reach {
    /// A cable is up.
    up: u64,
    /// It has been down, and software has not said that it knows.
    shut: u64,
}

impl Reach {
    /// Those that requests pass to and from.
    pub fn open(self) -> u64 {
        self.up & !self.shut
    }

    /// Cables have gone or come.
    pub fn set_up(&mut self, up: u64) {
        self.shut |= self.up & !up;
        self.up = up;
    }

    /// Software knows that cables to these have been down.
    pub fn admit(&mut self, nodes: u64) {
        self.shut &= !nodes;
    }
}

/// The bridge of an adapter.
pub(crate) struct Bridge {
    pub params: NtbParams,
    pub tables: Rc<RefCell<Tables>>,
    /// Its ends of its cables.
    pub cables: Vec<LinkEnd>,
    /// By node: the cable that leads there.
    pub routes: BTreeMap<u8, usize>,
    /// When the last TLP came to each cable's transmitter, and to the host's.
    pub last_out: Vec<Time>,
    pub last_in: Time,
    pub counters: NtbCounters,
    pub reach: Rc<RefCell<Reach>>,
}

impl Bridge {
    /// An adapter without cables: its bridge and its registers.
    ///
    /// # Errors
    /// If its capabilities do not fit together.
    pub fn new(params: NtbParams) -> Result<(Self, NtbDevice), ConfigError> {
        let tables = Rc::new(RefCell::new(Tables::new(&params)));
        let reach = Rc::new(RefCell::new(Reach::default()));
        let device = NtbDevice::new(&params, Rc::clone(&tables), Rc::clone(&reach))?;
        let bridge = Self {
            params,
            tables,
            cables: Vec::new(),
            routes: BTreeMap::new(),
            last_out: Vec::new(),
            last_in: Time::ZERO,
            counters: NtbCounters::default(),
            reach,
        };
        Ok((bridge, device))
    }

    pub fn add_cable(&mut self, end: LinkEnd) {
        self.cables.push(end);
        self.last_out.push(Time::ZERO);
    }

    /// Where an access of `length` bytes at `offset` of the window leads.
    pub fn translate(&self, offset: u64, length: u32) -> Option<CableAddress> {
        let bytes = self.params.segment_bytes();
        let (index, within) = (offset / bytes, offset % bytes);
        if within + u64::from(length) > bytes {
            return None;
        }
        let segment = (*self.tables.borrow().segments.get(index as usize)?)?;
        let address = segment.target + within;
        Some(CableAddress { node: segment.node, registers: segment.registers, address })
    }

    /// Whether requests pass to and from a node.
    pub fn is_open(&self, node: u8) -> bool {
        self.reach.borrow().open() >> (node % 64) & 1 == 1
    }

    /// The place of a requester of the own host.
    pub fn local_place(&self, requester: Bdf) -> Option<u8> {
        self.tables.borrow().local.place_of(requester)
    }

    /// The place of a requester of another host.
    pub fn remote_place(&self, requester: (u8, u8)) -> Option<u8> {
        self.tables.borrow().remote.place_of(requester)
    }
}

/// When a TLP that came at `ingress` can leave at `egress`, `latency` behind its header or its end, and behind the `last` one that
/// went this way.
pub(crate) fn crossing_time(
    wires: &Wires,
    now: Time,
    (ingress, egress): (LinkEnd, LinkEnd),
    packet: PacketId,
    (latency, cut_through): (Duration, bool),
    last: &mut Time,
) -> Time {
    // A link that is faster than the one by which it comes would run dry: there it is stored first.
    let [came, goes] = [ingress, egress].map(|end| wires.link(end.link).wire_time_per_byte_ps());
    let is_stored = !cut_through || goes < came;
    let there = now + wires.tail(ingress, packet) * u64::from(is_stored);
    let at = (there + latency).max(*last);
    *last = at;
    at
}

/// Whose it is on a cable: the node that a request is for, or whose requester a completion is for.
pub(crate) fn destination(tlp: &Tlp) -> Option<u8> {
    match &tlp.kind {
        TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request) => {
            Some(CableAddress::from_bits(request.address).node)
        }
        TlpKind::Completion(header) | TlpKind::CompletionData(header) => Some(header.requester.bus()),
        _ => None,
    }
}

/// A place where a cable can end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NtbCableEnd {
    /// An adapter.
    Adapter(EndpointId),
    /// A cluster switch.
    Switch(ClusterSwitchId),
}

/// For each place, the nodes that each of its cables leads to first: the fewest switches between, of those the cable that was
/// connected first.
pub(crate) fn routes(
    cables: &[[NtbCableEnd; 2]],
    node_of: impl Fn(EndpointId) -> u8,
) -> BTreeMap<NtbCableEnd, BTreeMap<u8, usize>> {
    let mut own: BTreeMap<NtbCableEnd, Vec<NtbCableEnd>> = BTreeMap::new();
    for &[a, b] in cables {
        own.entry(a).or_default().push(b);
        own.entry(b).or_default().push(a);
    }
    let mut all = BTreeMap::new();
    for (&from, neighbours) in &own {
        let mut found: BTreeMap<u8, usize> = BTreeMap::new();
        let mut seen: BTreeSet<NtbCableEnd> = [from].into();
        let mut queue: VecDeque<(NtbCableEnd, usize)> =
            neighbours.iter().enumerate().map(|(cable, &to)| (to, cable)).collect();
        while let Some((at, cable)) = queue.pop_front() {
            match at {
                // Nothing passes through an adapter.
                NtbCableEnd::Adapter(adapter) => {
                    found.entry(node_of(adapter)).or_insert(cable);
                }
                NtbCableEnd::Switch(_) if seen.insert(at) => {
                    queue.extend(own[&at].iter().filter(|to| !seen.contains(to)).map(|&to| (to, cable)));
                }
                NtbCableEnd::Switch(_) => {}
            }
        }
        if let NtbCableEnd::Adapter(adapter) = from {
            found.remove(&node_of(adapter));
        }
        all.insert(from, found);
    }
    all
}

/// Lets a TLP that has been rewritten leave at `at`, unless the link goes down before.
pub(crate) fn tie(wires: &mut Wires, egress: LinkEnd, packet: PacketId) {
    // Room around it, and a CRC, are of the link by which it came.
    let hop = wires.packets.hop_mut(packet);
    (hop.padding, hop.lcrc) = (0, None);
    wires.tie(egress, packet);
}

/// A TLP that goes no further frees its buffer once all of it has come.
pub(crate) fn consume_whole(cx: &mut Context<'_>, ingress: LinkEnd, packet: PacketId) {
    let whole = cx.now() + cx.wires.tail(ingress, packet);
    cx.consume(packet, whole);
}
