//! Non-transparent bridges: adapters that forward TLPs between the trees of different hosts, and switches between their
//! cables.
//!
//! An adapter is an endpoint whose window has no registers behind it: a TLP to the window leaves through a cable, with
//! an address of the other host and a requester ID that the other adapter can map back. The only state is the tables
//! that software wrote, so cutting a cable leaves no stale state.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | an adapter's parameters, and routing of its TLPs |
//! | `registers` | its configuration space and registers |
//! | `cluster` | a switch between cables |
//!
//! `endpoint/crossing.rs` implements how a TLP crosses an adapter.

pub mod cluster;
mod event;
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

pub use cluster::{ClusterSwitch, ClusterSwitchParams};
pub(crate) use event::ClusterSend;
pub use event::ClusterSwitchId;
pub use registers::NtbDevice;

use crate::endpoint::EndpointId;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Context;

/// Parameters of an adapter.
#[derive(Clone, Debug)]
pub struct NtbParams {
    /// Vendor and device ID.
    pub ids: (u16, u16),
    /// Its node number, unique in the cluster.
    pub node: u8,
    /// Size of its window in bytes, a power of two.
    pub window: u64,
    /// Number of window segments, a power of two.
    pub segments: u32,
    /// Entries of each requester table.
    pub requesters: u32,
    /// From the arrival of a TLP's header at one side (or of the whole TLP if stored and forwarded) until it can leave
    /// the other.
    pub latency: Duration,
    /// Whether TLPs are forwarded before their end has arrived, where possible.
    pub cut_through: bool,
    /// Latency of a register read.
    pub register_latency: Duration,
    /// Its PCIe capabilities.
    pub pcie: PcieParams,
}

impl NtbParams {
    /// An adapter without delays, for tests: 16 segments of 1 MiB.
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

    /// Size of one segment in bytes: an equal share of the window.
    pub fn segment_bytes(&self) -> u64 {
        self.window / u64::from(self.segments)
    }
}

/// Counters of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NtbCounters {
    /// TLPs sent through cables.
    pub sent: u64,
    /// TLPs received through cables for the own host.
    pub received: u64,
    /// Requests to unmapped segments, or to registers that other nodes cannot access.
    pub unmapped: u64,
    /// Requests and completions of requesters in no table.
    pub unknown_requesters: u64,
    /// TLPs for a node without a cable that is up, or for a host that does not accept them.
    pub unreachable: u64,
}

/// An adapter's tables as written by software. Owned by the registers; crossing TLPs read them.
#[derive(Debug)]
pub(crate) struct Tables {
    pub segments: Vec<Option<WindowSegment>>,
    pub local: Places<Bdf>,
    pub remote: Places<(u8, u8)>,
}

/// A table of requesters, indexed by place and by requester.
#[derive(Debug)]
pub(crate) struct Places<T> {
    entries: Vec<Option<T>>,
    /// First place of each requester.
    places: FxHashMap<T, u8>,
}

impl<T: Copy + Eq + Hash> Places<T> {
    fn new(count: u32) -> Self {
        Self { entries: vec![None; count as usize], places: FxHashMap::default() }
    }

    /// Requester at a place.
    pub fn get(&self, place: u8) -> Option<T> {
        self.entries.get(usize::from(place)).copied().flatten()
    }

    /// Place of a requester.
    pub fn place_of(&self, who: T) -> Option<u8> {
        self.places.get(&who).copied()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sets an entry for software.
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

/// Reachability of nodes, one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reach {
    /// Nodes with a cable that is up.
    up: u64,
    /// Nodes whose cable was down, until software acknowledges it.
    shut: u64,
}

impl Reach {
    /// Nodes with which requests can be exchanged.
    pub fn open(self) -> u64 {
        self.up & !self.shut
    }

    /// Sets the nodes whose cables are up.
    pub fn set_up(&mut self, up: u64) {
        self.shut |= self.up & !up;
        self.up = up;
    }

    /// Software acknowledges that cables to these nodes were down.
    pub fn admit(&mut self, nodes: u64) {
        self.shut &= !nodes;
    }
}

/// The bridge of an adapter.
pub(crate) struct Bridge {
    pub params: NtbParams,
    pub tables: Rc<RefCell<Tables>>,
    /// Its own ends of its cables.
    pub cables: Vec<LinkEnd>,
    /// By node: index of the cable towards it.
    pub routes: BTreeMap<u8, usize>,
    /// When the last TLP reached each cable's transmitter.
    pub last_out: Vec<Time>,
    pub last_in: Time,
    pub counters: NtbCounters,
    pub reach: Rc<RefCell<Reach>>,
}

impl Bridge {
    /// Creates an adapter without cables: its bridge and its registers.
    ///
    /// # Errors
    /// If its capabilities conflict.
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

    /// Translates an access of `length` bytes at `offset` of the window.
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

    /// Whether requests can be exchanged with a node.
    pub fn is_open(&self, node: u8) -> bool {
        self.reach.borrow().open() >> (node % 64) & 1 == 1
    }

    /// Place of a requester of the own host.
    pub fn local_place(&self, requester: Bdf) -> Option<u8> {
        self.tables.borrow().local.place_of(requester)
    }

    /// Place of a requester of another host.
    pub fn remote_place(&self, requester: (u8, u8)) -> Option<u8> {
        self.tables.borrow().remote.place_of(requester)
    }
}

/// When a TLP that arrived at `ingress` can leave at `egress`: `latency` after its header or its end, and behind the
/// `last` one on this path.
pub(crate) fn crossing_time(
    cx: &Context<'_>,
    (ingress, egress): (LinkEnd, LinkEnd),
    packet: PacketId,
    (latency, cut_through): (Duration, bool),
    last: &mut Time,
) -> Time {
    // A faster egress link would run dry, so the TLP is stored first.
    let [came, goes] = [ingress, egress].map(|end| cx.wires.link(end.link).wire_time_per_byte_ps());
    let is_stored = !cut_through || goes < came;
    let there = cx.now() + cx.wires.tail(ingress, packet) * u64::from(is_stored);
    let at = (there + latency).max(*last);
    *last = at;
    at
}

/// Destination node of a TLP on a cable: of a request, or of a completion's requester.
pub(crate) fn destination(tlp: &Tlp) -> Option<u8> {
    match &tlp.kind {
        TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request) => {
            Some(CableAddress::from_bits(request.address).node)
        }
        TlpKind::Completion(header) | TlpKind::CompletionData(header) => Some(header.requester.bus()),
        _ => None,
    }
}

/// What a cable can be connected to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NtbCableEnd {
    /// An adapter in a host.
    Adapter(EndpointId),
    /// A port of a cluster switch.
    Switch(ClusterSwitchId),
}

/// For each adapter or switch: the cable towards each node, by the fewest switches, then by the order of connection.
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
                // Adapters do not forward between cables.
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

/// Ties a rewritten TLP to its egress link, so that it is lost if the link goes down before it leaves.
pub(crate) fn tie(cx: &mut Context<'_>, egress: LinkEnd, packet: PacketId) {
    // Padding and LCRC belong to the ingress link.
    let hop = cx.wires.packets.hop_mut(packet);
    (hop.padding, hop.lcrc) = (0, None);
    cx.wires.tie(egress, packet);
}

/// Drops a TLP; its buffer is released once all of it has arrived.
pub(crate) fn consume_whole(cx: &mut Context<'_>, ingress: LinkEnd, packet: PacketId) {
    let whole = cx.now() + cx.wires.tail(ingress, packet);
    cx.consume(packet, whole);
}
