//! A lease: what a lent function can access, and who can access it.

use std::collections::BTreeMap;

use drivers::ntb::{Mapping, NtbAdapter};
use kernel::IommuDomain;
use platform::Error;
use platform::cpu::Cpu;
use platform::dma::Direction;
use platform::memory::{PAGE, PhysAddr};
use platform::pci::PciDevice;
use units::Iova;
use wire::pcie::Bdf;

use super::sizes::Sizes;
use crate::host::{HIGH_MEMORY, LOW_MEMORY, LocalHost, MESSAGES};
use crate::message::{Bars, Peer, Terms};

/// A lease of a function.
pub(super) struct Lease {
    /// The borrowing node.
    to: u8,
    /// Index in the adapter's requester table.
    place: u8,
    /// Windows that it can access: the borrower's addresses and interrupt controllers, or a guest's memory.
    windows: Vec<Mapping>,
    sizes: Sizes,
    /// Borrowed for a guest.
    for_guest: bool,
    /// Whether its interrupts arrive at this host and are forwarded.
    forwards: bool,
    /// Doorbell bit of its legacy interrupt.
    line: Option<u8>,
    /// The IOMMU domain that restricts it to its windows.
    domain: Option<IommuDomain>,
    /// Functions that it can access, with the windows and mappings used.
    peers: BTreeMap<Peer, Vec<Joined>>,
    /// Functions of other nodes that can access it.
    guests: Vec<Guest>,
    /// Its BARs as mapped for the borrower's cores.
    shown: Shown,
}

/// A BAR that a function can access.
struct Joined {
    /// Window, if it is on another node.
    window: Option<Mapping>,
    /// Mapping in the IOMMU, if that is on: address and length.
    mapped: Option<(Iova, u64)>,
}

impl Joined {
    fn segments(&self) -> usize {
        self.window.map_or(0, |window| window.segments())
    }
}

/// A function of another node that accesses a lent one.
struct Guest {
    who: Peer,
    /// Its requester ID on this host.
    alias: Bdf,
    shown: Shown,
}

/// A function's BARs as accessed by others through the adapter; mapped in its domain if the IOMMU is on.
#[derive(Default)]
struct Shown {
    bars: Bars,
    mapped: Vec<(Iova, u64)>,
}

impl Shown {
    fn new(cpu: &Cpu, host: &LocalHost, device: &PciDevice) -> Result<Self, Error> {
        let (dma, mut shown) = (host.adapter.dma(), Self::default());
        for number in 0..6 {
            let Some(bar) = device.bar(number) else { continue };
            let mut at = Iova::new(bar.start.0);
            if host.translates() {
                let mapped = dma.map_resource(cpu, bar.start, bar.length, Direction::Bidirectional);
                at = mapped.inspect_err(|_| shown.end(cpu, &host.adapter))?;
                shown.mapped.push((at, bar.length));
            }
            shown.bars[usize::from(number)] = (at.get(), bar.length);
        }
        Ok(shown)
    }

    fn end(&self, cpu: &Cpu, adapter: &NtbAdapter) {
        for &(at, length) in &self.mapped {
            adapter.dma().unmap_resource(cpu, at, length, Direction::Bidirectional);
        }
    }
}

impl Guest {
    fn leave(self, cpu: &Cpu, adapter: &NtbAdapter) {
        self.shown.end(cpu, adapter);
        // Other lent functions may still be accessed by it.
        if adapter.remove_remote(cpu, self.alias) {
            adapter.dismiss(cpu, self.alias);
        }
    }
}

impl Lease {
    /// Opens `window` bytes of a node to a function, or nothing yet for a guest there.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if a table of the adapter is full, [`Error::NotSupported`] if nothing would restrict the
    /// function to a guest's memory, [`Error::Busy`] if its IOMMU group is in use.
    pub fn new(
        cpu: &Cpu,
        host: &LocalHost,
        device: &PciDevice,
        to: u8,
        (window, sizes): (Option<u64>, Sizes),
    ) -> Result<Self, Error> {
        let adapter = &*host.adapter;
        let place = adapter.add_local(cpu, device.address().bdf)?;
        let mut lease = Self {
            to,
            place,
            windows: Vec::new(),
            sizes,
            for_guest: window.is_none(),
            forwards: false,
            line: None,
            domain: None,
            peers: BTreeMap::new(),
            guests: Vec::new(),
            shown: Shown::default(),
        };
        let reaches = window.map(|window| [(0, window), MESSAGES]);
        let mapped = reaches.into_iter().flatten().try_for_each(|(at, length)| {
            lease.windows.push(adapter.map(cpu, to, at, length)?);
            Ok(())
        });
        let allowed = mapped.and_then(|()| if lease.for_guest { host.may_lend_to_guest() } else { Ok(()) });
        let isolated = allowed.and_then(|()| lease.isolate(cpu, host, device)).and_then(|domain| {
            lease.domain = domain;
            Shown::new(cpu, host, device)
        });
        match isolated {
            Ok(shown) => lease.shown = shown,
            Err(error) => {
                lease.end(cpu, adapter);
                return Err(error);
            }
        }
        Ok(lease)
    }

    /// What its borrower has to know.
    pub fn terms(&self) -> Terms {
        let window = |n: usize| self.windows.get(n).map_or(0, |own| own.at.0);
        Terms {
            place: self.place,
            payload: self.sizes.payload(),
            window: window(0),
            messages: window(1),
            bars: self.shown.bars,
        }
    }

    /// The borrowing node.
    pub const fn to(&self) -> u8 {
        self.to
    }

    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Whether an IOMMU domain of its own restricts it.
    pub const fn is_isolated(&self) -> bool {
        self.domain.is_some()
    }

    /// Functions of a node that it can access.
    pub fn peers_of(&self, node: u8) -> usize {
        self.peers.keys().filter(|peer| peer.node == node).count()
    }

    /// Segments of the adapter's window that lead to functions which it can access.
    pub fn peer_segments(&self) -> usize {
        self.peers.values().flatten().map(Joined::segments).sum()
    }

    /// Whether its interrupts arrive at this host and are forwarded.
    pub const fn forwards(&self) -> bool {
        self.forwards
    }

    /// Doorbell bit of its legacy interrupt.
    pub const fn line(&self) -> Option<u8> {
        self.line
    }

    /// Its interrupts are forwarded from now on; its legacy one to doorbell bit `line`.
    pub const fn start_forwarding(&mut self, line: Option<u8>) {
        (self.forwards, self.line) = (true, line);
    }

    /// Its interrupts are no longer forwarded. Returns whether they were.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it is not for a guest.
    pub const fn stop_forwarding(&mut self) -> Result<bool, Error> {
        if !self.for_guest {
            return Err(Error::NotPermitted);
        }
        self.line = None;
        Ok(core::mem::replace(&mut self.forwards, false))
    }

    /// Lets a guest's function access `target` (address and length) of a peer at the guest's address `seen`.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it is not for a guest, [`Error::NoSpace`].
    pub fn join_guest(
        &mut self,
        cpu: &Cpu,
        adapter: &NtbAdapter,
        (peer, target): (Peer, (u64, u64)),
        seen: u64,
    ) -> Result<(), Error> {
        if !self.for_guest {
            return Err(Error::NotPermitted);
        }
        let joined = self.reach(cpu, adapter, peer.node, target, Some(seen))?;
        self.peers.entry(peer).or_default().push(joined);
        Ok(())
    }

    /// If the IOMMU is on, restricts the function to its windows, at their own addresses.
    fn isolate(&self, cpu: &Cpu, host: &LocalHost, device: &PciDevice) -> Result<Option<IommuDomain>, Error> {
        let Some(kernel) = host.kernel() else { return Err(Error::NoDevice) };
        let domain = match kernel.iommu().domain(device.node()) {
            Ok(domain) => domain,
            Err(Error::NotSupported) if !self.for_guest => return Ok(None),
            Err(error) => return Err(error),
        };
        let mapped = self.windows.iter().try_for_each(|window| {
            domain.map_at(cpu, Iova::new(window.at.0), window.at, window.length, Direction::Bidirectional)
        });
        match mapped.and_then(|()| domain.attach(cpu, device.address())) {
            Ok(()) => Ok(Some(domain)),
            Err(error) => {
                domain.close(cpu);
                Err(error)
            }
        }
    }

    /// Lets the function access a peer's BARs, on this host or where another node reports them.
    pub fn join(&mut self, cpu: &Cpu, host: &LocalHost, peer: Peer, bars: Bars) -> Result<Bars, Error> {
        let adapter = &host.adapter;
        self.unreach(cpu, adapter, peer);
        let mut joined = Vec::new();
        let mut found = Bars::default();
        let mut reach = || {
            for (own, &(at, length)) in found.iter_mut().zip(&bars).filter(|(_, (_, length))| *length > 0) {
                let one = self.reach(cpu, adapter, peer.node, (at, length), None)?;
                *own = (one.window.map_or(at, |window| window.at.0), length);
                joined.push(one);
            }
            Ok(())
        };
        let reached = reach();
        self.peers.insert(peer, joined);
        if reached.is_err() {
            self.unreach(cpu, adapter, peer);
        }
        reached.map(|()| found)
    }

    /// Lets the function access `length` bytes from `at` of this host or another. If the IOMMU is on, they appear at
    /// address `seen`, or at their own.
    fn reach(
        &self,
        cpu: &Cpu,
        adapter: &NtbAdapter,
        node: u8,
        (at, length): (u64, u64),
        seen: Option<u64>,
    ) -> Result<Joined, Error> {
        let window = match node == adapter.node() {
            true => None,
            false => Some(adapter.map(cpu, node, at, length)?),
        };
        let here = window.map_or(PhysAddr(at), |window| window.at);
        let Some(domain) = &self.domain else { return Ok(Joined { window, mapped: None }) };
        // The IOMMU maps whole pages.
        let (start, end) = (here.align_down(PAGE), (here.0 + length).next_multiple_of(PAGE));
        let (iova, pages) = (Iova::new(seen.map_or(start.0, |seen| seen & !(PAGE - 1))), end - start.0);
        match domain.map_at(cpu, iova, start, pages, Direction::Bidirectional) {
            Ok(()) => Ok(Joined { window, mapped: Some((iova, pages)) }),
            Err(error) => {
                window.into_iter().for_each(|window| adapter.unmap(cpu, window));
                Err(error)
            }
        }
    }

    /// Maps a guest's memory at the guest's addresses.
    pub fn open(
        &mut self,
        cpu: &Cpu,
        adapter: &NtbAdapter,
        (at, low, high): (u64, u64, u64),
    ) -> Result<(), Error> {
        let Some(domain) = self.domain.as_ref().filter(|_| self.for_guest) else {
            return Err(Error::NotPermitted);
        };
        if !self.windows.is_empty() {
            return Err(Error::Busy);
        }
        let bytes = low.checked_add(high).ok_or(Error::Invalid)?;
        let window = adapter.map(cpu, self.to, at, bytes)?;
        self.windows.push(window);
        let parts = [(LOW_MEMORY, window.at, low), (HIGH_MEMORY, window.at + low, high)];
        let parts = parts.into_iter().filter(|(.., length)| *length > 0);
        parts.into_iter().try_for_each(|(guest, at, length)| {
            domain.map_at(cpu, Iova::new(guest), at, length, Direction::Bidirectional)
        })
    }

    /// Ends access between two functions in both directions.
    pub fn part(&mut self, cpu: &Cpu, adapter: &NtbAdapter, peer: Peer) {
        let all = std::mem::take(&mut self.guests).into_iter();
        let (gone, kept): (Vec<Guest>, Vec<Guest>) = all.partition(|guest| guest.who == peer);
        self.guests = kept;
        gone.into_iter().for_each(|guest| guest.leave(cpu, adapter));
        self.unreach(cpu, adapter, peer);
    }

    /// Ends access to a peer.
    pub fn unreach(&mut self, cpu: &Cpu, adapter: &NtbAdapter, peer: Peer) {
        for joined in self.peers.remove(&peer).into_iter().flatten() {
            if let (Some(domain), Some((iova, length))) = (&self.domain, joined.mapped) {
                let _ = domain.unmap(cpu, iova, length);
            }
            if let Some(window) = joined.window {
                adapter.unmap(cpu, window);
            }
        }
    }

    /// Lets a function of another node access this one's BARs through the adapter. Returns the addresses to use.
    pub fn admit(
        &mut self,
        cpu: &Cpu,
        host: &LocalHost,
        (who, place): (Peer, u8),
        device: &PciDevice,
    ) -> Result<Bars, Error> {
        let adapter = &host.adapter;
        let alias = adapter.add_remote(cpu, who.node, place)?;
        let mut guest = Guest { who, alias, shown: Shown::default() };
        let admitted = adapter.admit(cpu, alias).and_then(|()| Shown::new(cpu, host, device));
        match admitted {
            Ok(shown) => {
                guest.shown = shown;
                let bars = guest.shown.bars;
                self.guests.push(guest);
                Ok(bars)
            }
            Err(error) => {
                guest.leave(cpu, adapter);
                Err(error)
            }
        }
    }

    /// Ends all access.
    pub fn end(mut self, cpu: &Cpu, adapter: &NtbAdapter) {
        let peers: Vec<Peer> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.unreach(cpu, adapter, peer));
        self.guests.drain(..).for_each(|guest| guest.leave(cpu, adapter));
        self.shown.end(cpu, adapter);
        if let Some(domain) = self.domain {
            domain.close(cpu);
        }
        for window in self.windows {
            adapter.unmap(cpu, window);
        }
        adapter.remove_local(cpu, self.place);
    }
}
