//! The DMA API of one function.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use rustc_hash::FxHashMap;

use platform::Error;
use platform::cpu::{Cpu, Node, Part};
use platform::dma::{Coherent, Direction, DmaCounters, DmaOps};
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use units::Iova;
use wire::pcie::{Bdf, FunctionAddress};

use super::Dma;
use super::base::DmaBase;
use super::domain::Domain;
use super::group::{Group, Member};
use crate::mm::Pool;
use wire::vtd::Permissions;

/// An active mapping. A function has thousands, so it is no larger than it has to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Live {
    at: Iova,
    /// Length, above two bits of the direction.
    extent: u64,
}

impl Live {
    fn new(at: Iova, length: u64, direction: Direction) -> Self {
        Self { at, extent: length << 2 | direction as u64 }
    }

    fn length(self) -> u64 {
        self.extent >> 2
    }
}

/// Finds the owner of a BAR address.
pub(crate) trait BarOwners {
    /// The function with a BAR that holds this range.
    fn owner_of(&self, at: PhysAddr, length: u64) -> Option<FunctionAddress>;
}

/// The DMA API of one function.
pub(crate) struct FunctionDma {
    dma: Rc<Dma>,
    owners: Weak<dyn BarOwners>,
    member: Member,
    /// Root port above the function.
    root: Bdf,
    node: Node,
    bits: Cell<u8>,
    /// Its IOMMU group, once it has joined one.
    group: RefCell<Option<Rc<Group>>>,
    /// Its domain; `None` while addresses are not translated.
    domain: RefCell<Option<Rc<Domain>>>,
    counters: RefCell<DmaCounters>,
    /// Only iterated in sorted order, since hash order is not deterministic.
    live: RefCell<FxHashMap<Live, u32>>,
    pool: RefCell<Pool>,
    /// Pages of coherent memory, by the core's address.
    coherent: RefCell<BTreeMap<PhysAddr, (Pages, Iova)>>,
    /// Pages split up by the pool.
    cut: RefCell<Vec<PhysAddr>>,
    peers: RefCell<Vec<Peer>>,
    /// Further requester IDs, and whether each has joined the group.
    aliases: RefCell<BTreeMap<Bdf, bool>>,
}

/// A mapping of another function's BAR.
#[derive(Clone, Copy)]
struct Peer {
    owner: FunctionAddress,
    at: Iova,
    length: u64,
    direction: Direction,
    /// Revoked because the owner was removed.
    revoked: bool,
}

pub(super) fn permissions(direction: Direction) -> Permissions {
    match direction {
        Direction::ToDevice => Permissions::READ,
        Direction::FromDevice => Permissions::WRITE,
        Direction::Bidirectional => Permissions::READ_WRITE,
    }
}

impl FunctionDma {
    pub fn new(dma: Rc<Dma>, owners: Weak<dyn BarOwners>, member: Member, root: Bdf, node: Node) -> Rc<Self> {
        Rc::new(Self {
            dma,
            owners,
            member,
            root,
            node,
            bits: Cell::new(32),
            group: RefCell::new(None),
            domain: RefCell::new(None),
            counters: RefCell::default(),
            live: RefCell::default(),
            pool: RefCell::default(),
            coherent: RefCell::default(),
            cut: RefCell::default(),
            peers: RefCell::default(),
            aliases: RefCell::default(),
        })
    }

    fn count(&self, change: impl FnOnce(&mut DmaCounters)) {
        change(&mut self.counters.borrow_mut());
    }

    /// The function's domain, created on first use; `None` where addresses are not translated.
    fn domain(&self, cpu: &Cpu) -> Result<Option<Rc<Domain>>, Error> {
        if let Some(domain) = &*self.domain.borrow() {
            return Ok(Some(Rc::clone(domain)));
        }
        let Some(unit) = self.dma.units.of(self.node) else { return Ok(None) };
        if !self.dma.is_on() || self.group.borrow().is_some() {
            return Ok(None);
        }
        let group = self.dma.groups.join_group(cpu, unit, self.member)?;
        let domain = group.domain();
        if domain.is_err() {
            self.dma.groups.leave(cpu, &group, self.member.requester);
        } else {
            *self.group.borrow_mut() = Some(group);
            let aliases: Vec<Bdf> = self.aliases.borrow().keys().copied().collect();
            for alias in aliases {
                self.join_alias(cpu, alias)?;
            }
        }
        self.domain.borrow_mut().clone_from(&domain.clone()?);
        domain
    }

    /// As [`Kernel::map_row`](crate::Kernel::map_row).
    pub fn map_row(&self, cpu: &Cpu, blocks: &[(PhysAddr, u64)]) -> Result<Iova, Error> {
        let domain = self.domain(cpu)?.ok_or(Error::NotSupported)?;
        domain.map_row(cpu, blocks, permissions(Direction::Bidirectional))
    }

    /// As [`Kernel::unmap_row`](crate::Kernel::unmap_row).
    pub fn unmap_row(&self, cpu: &Cpu, row: Iova, length: u64) {
        let domain = self.domain.borrow().clone();
        if let Some(domain) = domain {
            let _ = domain.unmap(cpu, row, length);
            domain.flush_all(cpu);
        }
    }

    /// Makes requests with ID `requester` translate as the function's own do.
    ///
    /// # Errors
    /// [`Error::Busy`] if another function uses that ID.
    pub fn add_alias(&self, cpu: &Cpu, requester: Bdf) -> Result<(), Error> {
        if requester == self.member.requester || self.aliases.borrow().contains_key(&requester) {
            return Ok(());
        }
        self.aliases.borrow_mut().insert(requester, false);
        let _part = cpu.book(Part::Dma);
        self.domain(cpu)?;
        self.join_alias(cpu, requester)
    }

    /// Undoes [`add_alias`](Self::add_alias).
    pub fn remove_alias(&self, cpu: &Cpu, requester: Bdf) {
        let is_in = self.aliases.borrow_mut().remove(&requester).unwrap_or(false);
        let group = self.group.borrow().clone();
        if let (true, Some(group)) = (is_in, group) {
            self.dma.groups.leave(cpu, &group, requester);
        }
    }

    fn join_alias(&self, cpu: &Cpu, requester: Bdf) -> Result<(), Error> {
        let Some(group) = self.group.borrow().clone() else { return Ok(()) };
        if self.aliases.borrow().get(&requester) == Some(&true) {
            return Ok(());
        }
        let joined = group.join(cpu, requester);
        match joined {
            Ok(()) => self.aliases.borrow_mut().insert(requester, true),
            Err(_) => self.aliases.borrow_mut().remove(&requester),
        };
        joined
    }

    /// Makes a range, of memory or a BAR, accessible to the function.
    fn reach(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction) -> Result<Iova, Error> {
        let _part = cpu.book(Part::Dma);
        if length == 0 {
            return Err(Error::Invalid);
        }
        match self.domain(cpu)? {
            Some(domain) => domain.map(cpu, at, length, permissions(direction), self.bits.get()),
            None => {
                cpu.work(self.dma.base.cores.costs.dma_direct);
                let last = at.0.checked_add(length - 1).ok_or(Error::Invalid)?;
                // There are no bounce buffers, so unreachable addresses are refused.
                if self.bits.get() < 64 && last >> self.bits.get() != 0 {
                    return Err(Error::NotSupported);
                }
                Ok(Iova::new(at.0))
            }
        }
    }

    fn unreach(&self, cpu: &Cpu, at: Iova, length: u64) {
        let _part = cpu.book(Part::Dma);
        let domain = self.domain.borrow().clone();
        match domain {
            Some(domain) => {
                if domain.unmap(cpu, at, length).is_err() {
                    self.count(|c| c.errors += 1);
                }
            }
            None => cpu.work(self.dma.base.cores.costs.dma_direct),
        }
    }

    fn remember(&self, at: Iova, length: u64, direction: Direction) {
        self.count(|c| c.maps += 1);
        let live = Live::new(at, length, direction);
        *self.live.borrow_mut().entry(live).or_default() += 1;
    }

    /// Removes a mapping. Returns whether it existed.
    fn forget(&self, at: Iova, length: u64, direction: Direction) -> bool {
        let key = Live::new(at, length, direction);
        let known = {
            let mut live = self.live.borrow_mut();
            let count = live.get_mut(&key).map(|count| {
                *count -= 1;
                *count
            });
            if count == Some(0) {
                live.remove(&key);
            }
            count.is_some()
        };
        if !known {
            self.count(|c| c.errors += 1);
            let who = self.member.requester;
            self.dma.base.log.write(format!("dma {who}: {length} bytes at {at} unmapped but not mapped"));
            return false;
        }
        self.count(|c| c.unmaps += 1);
        true
    }

    /// Allocates whole pages that core and device both access. If the device cannot address the node's memory, others
    /// that it can (Linux: `dma_direct_alloc`, which then takes `GFP_DMA32`).
    fn coherent_pages(&self, cpu: &Cpu, length: u64, node: Option<Node>) -> Result<Coherent, Error> {
        let DmaBase { memory, cores, .. } = &*self.dma.base;
        let (order, policy) = (Pages::order_for(length), Policy::Preferred(node.unwrap_or(self.node)));
        let reach = |pages: Pages| match self.reach(cpu, pages.start, pages.len(), Direction::Bidirectional) {
            Ok(bus) => Ok((pages, bus)),
            Err(error) => {
                memory.give(cpu, pages);
                Err(error)
            }
        };
        let (pages, bus) = match reach(memory.take(cpu, order, policy)?) {
            Err(Error::NotSupported) => reach(memory.take_below(cpu, order, 1 << self.bits.get())?)?,
            reached => reached?,
        };
        cores.ground.poke(pages.start, &vec![0; pages.len() as usize]);
        self.coherent.borrow_mut().insert(pages.start, (pages, bus));
        Ok(Coherent { cpu: pages.start, bus, length })
    }

    fn free_coherent_pages(&self, cpu: &Cpu, at: PhysAddr) {
        let Some((pages, bus)) = self.coherent.borrow_mut().remove(&at) else {
            self.count(|c| c.errors += 1);
            return;
        };
        self.unreach(cpu, bus, pages.len());
        self.dma.base.memory.give(cpu, pages);
    }

    /// The owner of the BAR that holds a range, if the function can reach it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, [`Error::NotSupported`] if there is no path to it.
    fn peer_of(&self, at: PhysAddr, length: u64) -> Result<FunctionAddress, Error> {
        if length == 0 {
            return Err(Error::Invalid);
        }
        let owner = self.owners.upgrade().and_then(|owners| owners.owner_of(at, length));
        let owner = owner.ok_or(Error::Invalid)?;
        let has_way = self.dma.base.cores.ground.has_way(self.root, at, length);
        if has_way { Ok(owner) } else { Err(Error::NotSupported) }
    }

    /// Revokes mappings of BARs of a removed function, since another device may get its addresses.
    pub fn revoke(&self, cpu: &Cpu, owner: FunctionAddress) {
        let gone: Vec<Peer> = {
            let mut peers = self.peers.borrow_mut();
            let gone = peers.iter_mut().filter(|peer| peer.owner == owner && !peer.revoked);
            gone.map(|peer| {
                peer.revoked = true;
                *peer
            })
            .collect()
        };
        for peer in &gone {
            if self.forget(peer.at, peer.length, peer.direction) {
                self.unreach(cpu, peer.at, peer.length);
            }
        }
        let domain = self.domain.borrow().clone();
        if let Some(domain) = domain.filter(|_| !gone.is_empty()) {
            // Flush even in lazy mode.
            domain.flush_all(cpu);
        }
    }

    /// Removes all mappings that the driver left. Returns their number.
    pub fn close(&self, cpu: &Cpu) -> u64 {
        let left = self.counters.borrow().live();
        let mut live: Vec<(Live, u32)> = self.live.borrow_mut().drain().collect();
        live.sort_unstable();
        for (mapping, count) in live {
            for _ in 0..count {
                self.unreach(cpu, mapping.at, mapping.length());
            }
        }
        self.peers.borrow_mut().clear();
        self.cut.borrow_mut().clear();
        let coherent: Vec<PhysAddr> = self.coherent.borrow().keys().copied().collect();
        for at in coherent {
            self.free_coherent_pages(cpu, at);
        }
        self.domain.borrow_mut().take();
        let group = self.group.borrow_mut().take();
        if let Some(group) = group {
            for (alias, is_in) in self.aliases.take() {
                if is_in {
                    self.dma.groups.leave(cpu, &group, alias);
                }
            }
            self.dma.groups.leave(cpu, &group, self.member.requester);
        }
        left
    }

    /// Whether the function can access any byte of a range of memory.
    pub fn reaches(&self, at: PhysAddr, length: u64) -> bool {
        let meets = |start: u64, bytes: u64| start < at.0 + length && at.0 < start + bytes;
        if self.coherent.borrow().values().any(|(pages, _)| meets(pages.start.0, pages.len())) {
            return true;
        }
        let domain = self.domain.borrow();
        // Order does not matter: one match is enough.
        self.live.borrow().keys().any(|mapping| match &*domain {
            None => meets(mapping.at.get(), mapping.length()),
            Some(domain) => {
                let (first, last) =
                    (mapping.at.get() / PAGE, (mapping.at.get() + mapping.length() - 1) / PAGE);
                (first..=last).any(|page| {
                    domain.frame(Iova::new(page * PAGE)).is_some_and(|frame| meets(frame.0, PAGE))
                })
            }
        })
    }

    /// Its domain ID, if it has a domain.
    pub fn domain_id(&self) -> Option<u16> {
        self.group.borrow().as_ref().map(|group| group.id().0)
    }

    /// Number of pages mapped in the IOMMU.
    pub fn mapped_pages(&self) -> u64 {
        self.domain.borrow().as_ref().map_or(0, |domain| domain.mapped())
    }
}

impl DmaOps for FunctionDma {
    fn set_mask(&self, bits: u8) -> Result<(), Error> {
        if !(13..=64).contains(&bits) {
            return Err(Error::Invalid);
        }
        self.bits.set(bits);
        Ok(())
    }

    fn alloc_coherent(&self, cpu: &Cpu, length: u64, node: Option<Node>) -> Result<Coherent, Error> {
        if length == 0 {
            return Err(Error::Invalid);
        }
        // Small allocations are cut from pages of the function's own node.
        let class = Pool::class(length).filter(|_| node.is_none_or(|node| node == self.node));
        let memory = match class {
            None => self.coherent_pages(cpu, length, node)?,
            Some(class) => {
                let ready = self.pool.borrow_mut().take(class);
                let piece = match ready {
                    Some(piece) => piece,
                    None => {
                        let page = self.coherent_pages(cpu, PAGE, None)?;
                        self.cut.borrow_mut().push(page.cpu);
                        let mut pool = self.pool.borrow_mut();
                        pool.cut(class, page);
                        pool.take(class).ok_or(Error::NoMemory)?
                    }
                };
                cpu.store(piece.cpu, &vec![0; length as usize]);
                Coherent { length, ..piece }
            }
        };
        self.count(|c| c.allocations += 1);
        Ok(memory)
    }

    fn free_coherent(&self, cpu: &Cpu, memory: Coherent) {
        self.count(|c| c.frees += 1);
        let page = memory.cpu.align_down(PAGE);
        match Pool::class(memory.length).filter(|_| self.cut.borrow().contains(&page)) {
            Some(class) => self.pool.borrow_mut().give(class, Coherent { length: class, ..memory }),
            None => self.free_coherent_pages(cpu, memory.cpu),
        }
    }

    fn map(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction) -> Result<Iova, Error> {
        let mapped = if self.dma.base.cores.ground.is_memory(at, length) {
            self.reach(cpu, at, length, direction)
        } else {
            Err(Error::Invalid)
        };
        match mapped {
            Ok(iova) => self.remember(iova, length, direction),
            Err(_) => self.count(|c| c.errors += 1),
        }
        mapped
    }

    fn unmap(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction) {
        if self.forget(at, length, direction) {
            self.unreach(cpu, at, length);
        }
    }

    fn map_resource(
        &self,
        cpu: &Cpu,
        at: PhysAddr,
        length: u64,
        direction: Direction,
    ) -> Result<Iova, Error> {
        let mapped = self.peer_of(at, length).and_then(|owner| {
            let bus = self.reach(cpu, at, length, direction)?;
            self.peers.borrow_mut().push(Peer { owner, at: bus, length, direction, revoked: false });
            Ok(bus)
        });
        match mapped {
            Ok(iova) => self.remember(iova, length, direction),
            Err(_) => self.count(|c| c.errors += 1),
        }
        mapped
    }

    fn unmap_resource(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction) {
        let found = {
            let mut peers = self.peers.borrow_mut();
            let same = |p: &Peer| (p.at, p.length, p.direction) == (at, length, direction);
            peers.iter().position(same).map(|found| peers.swap_remove(found))
        };
        // A revoked mapping is already gone.
        if !found.is_some_and(|peer| peer.revoked) {
            self.unmap(cpu, at, length, direction);
        }
    }

    fn counters(&self) -> DmaCounters {
        *self.counters.borrow()
    }
}
