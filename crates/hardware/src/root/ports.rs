//! The root ports of a host, and the addresses and buses that each forwards.

use std::ops::{Index, IndexMut, RangeInclusive};

use thiserror::Error;
use units::HostPhysical;
use wire::pcie::{Bdf, Generation, IntxLines, Width};

use super::inbound::PortShares;
use super::{HostId, RootPort, RootPortParams};
use crate::bridge;
use crate::link::LinkEnd;
use crate::memory::NodeId;

/// Why a core's access cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OutboundError {
    /// No root port's window holds the address.
    #[error("no root port forwards {address}")]
    NoWindow {
        /// First address of the access.
        address: HostPhysical,
    },
    /// The access exceeds the port's largest TLP or crosses a 4 KiB boundary.
    #[error("an access of {length} bytes at {address} does not fit into one TLP")]
    TooLong {
        /// First address of the access.
        address: HostPhysical,
        /// Its length in bytes.
        length: usize,
    },
}

/// An address window forwarded by a root port.
struct Window {
    base: u64,
    end: u64,
    port: u8,
    /// Opened by the port's bridge registers.
    by_bridge: bool,
}

/// Root ports by number.
pub(super) struct Ports {
    host: HostId,
    ports: Vec<RootPort>,
    windows: Vec<Window>,
}

impl Ports {
    /// No ports yet.
    pub fn new(host: HostId) -> Self {
        Self { host, ports: Vec::new(), windows: Vec::new() }
    }

    /// The host that these ports belong to.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// Adds a port at `end` that forwards to `buses`, and what it `shares` with others. Returns its number.
    pub fn add(
        &mut self,
        params: RootPortParams,
        shares: PortShares,
        end: LinkEnd,
        link: (Generation, Width),
        buses: RangeInclusive<u8>,
    ) -> u8 {
        let number = self.ports.len() as u8;
        self.ports.push(RootPort::new((self.host, number), params, shares, end, link, buses));
        number
    }

    /// All ports, in the machine file's order.
    pub fn all(&self) -> &[RootPort] {
        &self.ports
    }

    /// Power-on reset of all registers.
    pub fn reset(&mut self) {
        self.ports.iter_mut().for_each(RootPort::reset);
        self.windows.retain(|window| !window.by_bridge);
    }

    /// Forwards accesses to `[base, base + length)` through `port`.
    pub fn add_window(&mut self, base: HostPhysical, length: u64, port: u8) {
        let base = base.get();
        self.windows.push(Window { base, end: base + length, port, by_bridge: false });
    }

    /// Forwards what a port's bridge registers say.
    pub fn heed_windows(&mut self, port: u8) {
        self.windows.retain(|window| !(window.by_bridge && window.port == port));
        let opened = bridge::windows(self[port].config());
        self.windows.extend(opened.map(|w| Window { base: w.base, end: w.limit + 1, port, by_bridge: true }));
    }

    /// The port that forwards an address.
    pub fn of_address(&self, address: u64) -> Option<u8> {
        self.windows.iter().find(|w| (w.base..w.end).contains(&address)).map(|w| w.port)
    }

    /// The port that forwards an access of a core.
    ///
    /// # Errors
    /// If there is none, or the access does not fit into one TLP.
    pub fn of_access(&self, address: HostPhysical, length: usize) -> Result<u8, OutboundError> {
        let crosses = address.offset_in(4096) + length as u64 > 4096;
        if crosses || length == 0 {
            return Err(OutboundError::TooLong { address, length });
        }
        self.of_address(address.get()).ok_or(OutboundError::NoWindow { address })
    }

    /// The port with a requester ID.
    pub fn of_id(&self, id: Bdf) -> Option<u8> {
        self.ports.iter().position(|port| port.id() == id).map(|number| number as u8)
    }

    /// The port above a bus.
    pub fn of_bus(&self, bus: u8) -> Option<u8> {
        self.ports.iter().position(|port| port.leads_to(bus)).map(|number| number as u8)
    }

    /// The socket at which messages of a function enter.
    pub fn entrance_of(&self, requester: Bdf) -> NodeId {
        let is_its = |port: &&RootPort| port.id() == requester || port.leads_to(requester.bus());
        self.ports.iter().find(is_its).map_or(NodeId(0), |port| port.params().node)
    }

    /// Legacy interrupt lines that are active.
    pub fn lines(&self) -> IntxLines {
        IntxLines::above(self.ports.iter().map(RootPort::lines))
    }

    /// The port that forwards all of a range.
    pub fn of_range(&self, at: HostPhysical, length: u64) -> Option<u8> {
        let port = self.of_address(at.get())?;
        let last = at.get().checked_add(length.max(1) - 1)?;
        (self.of_address(last) == Some(port)).then_some(port)
    }

    /// Whether TLPs that arrive at one port can leave through another.
    pub fn joins(&self, from: u8, to: u8) -> bool {
        from != to || self[from].params().reflects_peers
    }
}

impl Index<u8> for Ports {
    type Output = RootPort;

    #[inline(always)]
    fn index(&self, port: u8) -> &RootPort {
        &self.ports[usize::from(port)]
    }
}

impl IndexMut<u8> for Ports {
    #[inline(always)]
    fn index_mut(&mut self, port: u8) -> &mut RootPort {
        &mut self.ports[usize::from(port)]
    }
}
