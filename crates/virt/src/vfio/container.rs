//! DMA domains of a guest's functions (Linux: a VFIO container).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use kernel::{IommuDomain, Kernel};
use platform::Error;
use platform::cpu::{Cpu, Node};
use platform::dma::Direction;
use platform::memory::{PAGE, PhysAddr};
use platform::pci::PciDevice;
use units::Iova;
use wire::pcie::FunctionAddress;

use crate::bus::{BarPart, Behind};
use crate::memory::{Block, GuestMemory};

/// A mapping: guest address, host address, bytes.
type Mapping = (PhysAddr, PhysAddr, u64);

/// The domains of a guest's functions, one per IOMMU. Each maps the guest's memory, and the registers of the guest's
/// other functions for peer-to-peer access.
pub struct Container {
    host: Weak<Kernel>,
    memory: Rc<GuestMemory>,
    domains: RefCell<BTreeMap<Node, IommuDomain>>,
    functions: RefCell<BTreeMap<FunctionAddress, (Node, Vec<Mapping>)>>,
}

impl Container {
    /// An empty container.
    pub fn new(host: &Rc<Kernel>, memory: &Rc<GuestMemory>) -> Rc<Self> {
        Rc::new(Self {
            host: Rc::downgrade(host),
            memory: Rc::clone(memory),
            domains: RefCell::default(),
            functions: RefCell::default(),
        })
    }

    /// The host's kernel.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if it is gone.
    pub fn host(&self) -> Result<Rc<Kernel>, Error> {
        self.host.upgrade().ok_or(Error::NoDevice)
    }

    /// Attaches a function. The first one pins the guest's memory.
    ///
    /// # Errors
    /// [`Error::NotSupported`] without an IOMMU that is on, [`Error::Busy`] if its group is in use elsewhere,
    /// [`Error::NoMemory`] if the guest's memory cannot be pinned.
    pub fn attach(&self, cpu: &Cpu, device: &PciDevice) -> Result<(), Error> {
        let (at, node) = (device.address(), device.node());
        if !self.domains.borrow().contains_key(&node) {
            self.open(cpu, node)?;
        }
        let attached = self.domains.borrow()[&node].attach(cpu, at);
        match attached {
            Ok(()) => drop(self.functions.borrow_mut().insert(at, (node, Vec::new()))),
            Err(_) => self.close_unused(cpu, node),
        }
        attached
    }

    /// Creates the domain of an IOMMU.
    fn open(&self, cpu: &Cpu, node: Node) -> Result<(), Error> {
        let domain = self.host()?.iommu().domain(node)?;
        let ranges = self.memory.ranges().into_iter().flatten();
        let mut held: Vec<(PhysAddr, u64)> = Vec::new();
        let filled = (|| {
            for (at, length) in ranges {
                let blocks = self.memory.pin(at, length)?;
                held.push((at, length));
                for block in joined(blocks) {
                    map(&domain, cpu, (block.guest, block.host, block.length))?;
                }
            }
            let functions = self.functions.borrow();
            functions.values().flat_map(|(_, bars)| bars).try_for_each(|&bar| map(&domain, cpu, bar))
        })();
        if let Err(error) = filled {
            domain.close(cpu);
            held.into_iter().for_each(|(at, length)| self.memory.unpin(at, length));
            return Err(error);
        }
        self.domains.borrow_mut().insert(node, domain);
        Ok(())
    }

    /// Detaches a function, which can then access nothing.
    pub fn detach(&self, cpu: &Cpu, at: FunctionAddress) {
        self.set_bars(cpu, at, &[]);
        let Some((node, _)) = self.functions.borrow_mut().remove(&at) else { return };
        if let Some(domain) = self.domains.borrow().get(&node) {
            // It is attached, or is gone together with its tables.
            let _ = domain.detach(cpu, at);
        }
        self.close_unused(cpu, node);
    }

    /// Closes a domain after its last function has left.
    fn close_unused(&self, cpu: &Cpu, node: Node) {
        if self.functions.borrow().values().any(|(of, _)| *of == node) {
            return;
        }
        if let Some(domain) = self.domains.borrow_mut().remove(&node) {
            domain.close(cpu);
            for (at, length) in self.memory.ranges().into_iter().flatten() {
                self.memory.unpin(at, length);
            }
        }
    }

    /// Maps a function's registers at their guest addresses for all functions.
    pub fn set_bars(&self, cpu: &Cpu, of: FunctionAddress, parts: &[BarPart]) {
        let parts = parts.iter().filter_map(|part| match part.behind {
            Behind::Host(host) if (part.guest.0 | host.0 | part.length) % PAGE == 0 => {
                Some((part.guest, host, part.length))
            }
            _ => None,
        });
        let now: Vec<Mapping> = parts.collect();
        let mut functions = self.functions.borrow_mut();
        let Some((_, bars)) = functions.get_mut(&of) else { return };
        if *bars == now {
            return;
        }
        for domain in self.domains.borrow().values() {
            for (guest, _, length) in bars.iter().filter(|old| !now.contains(old)) {
                let _ = domain.unmap(cpu, Iova::new(guest.0), *length);
            }
            for new in now.iter().filter(|new| !bars.contains(new)) {
                // While a guest sizes BARs, they may overlap something else; such mappings are skipped.
                let _ = map(domain, cpu, *new);
            }
        }
        *bars = now;
    }

    /// Requests of the functions blocked by host IOMMUs.
    pub fn faults(&self) -> u64 {
        let Some(host) = self.host.upgrade() else { return 0 };
        let functions = self.functions.borrow();
        let is_own = |bdf| functions.keys().any(|at| at.bdf == bdf);
        host.iommu_faults().into_iter().filter(|&(bdf, _)| is_own(bdf)).map(|(_, count)| count).sum()
    }
}

fn map(domain: &IommuDomain, cpu: &Cpu, (guest, host, length): Mapping) -> Result<(), Error> {
    domain.map_at(cpu, Iova::new(guest.0), host, length, Direction::Bidirectional)
}

/// Merges blocks that are contiguous on both sides.
fn joined(blocks: Vec<Block>) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    for block in blocks {
        match all.last_mut() {
            Some(last)
                if last.guest + last.length == block.guest && last.host + last.length == block.host =>
            {
                last.length += block.length;
            }
            _ => all.push(block),
        }
    }
    all
}
