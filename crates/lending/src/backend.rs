//! Access to a borrowed function.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use drivers::ntb::Mapping;
use kernel::{Backend, Message};
use platform::Error;
use platform::cpu::{Async, Cpu, Node};
use platform::dma::{Coherent, Direction, DmaCounters, DmaOps};
use platform::memory::PhysAddr;
use platform::pci::BarRange;
use units::Iova;
use wire::pcie::Bdf;

use crate::host::{LocalHost, MESSAGES};
use crate::message::{Peer, Reply, Request};

/// A borrowed function's backend: configuration accesses by messages, everything else through windows.
pub(crate) struct BorrowedBackend {
    pub host: Weak<LocalHost>,
    /// The lender, and the function's BDF there.
    pub node: u8,
    pub function: Bdf,
    /// Its requester ID on this host.
    pub alias: Bdf,
    /// The adapter's function, whose IOMMU domain it shares, and the root port above.
    pub adapter: Bdf,
    pub root: Bdf,
    /// Windows onto its BARs.
    pub bars: [Option<Mapping>; 6],
    /// Address and size of its window onto this host's addresses.
    pub window: (u64, u64),
    /// Address of its window onto the interrupt controllers.
    pub messages: u64,
    /// Other functions that it can access.
    pub peers: Peers,
    /// Functions that are lost, by lender and BDF there.
    pub lost: LostFunctions,
}

/// Functions revoked, or whose lender is gone, while being borrowed, by lender and BDF there.
pub(crate) type LostFunctions = Rc<RefCell<BTreeSet<(u8, Bdf)>>>;

/// BARs of other borrowed functions that a function can access.
pub(crate) type Peers = Rc<RefCell<Vec<PeerBar>>>;

/// A BAR of another borrowed function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerBar {
    pub peer: Peer,
    /// Address for this host, and length.
    pub at: PhysAddr,
    pub length: u64,
    /// Address for the function.
    pub there: u64,
}

impl BorrowedBackend {
    async fn ask(&self, cpu: &Cpu, request: Request) -> Result<Reply, Error> {
        let is_lost = self.lost.borrow().contains(&(self.node, self.function));
        match self.host.upgrade().filter(|_| !is_lost) {
            Some(host) => host.ask(cpu, self.node, request).await,
            None => Err(Error::NoDevice),
        }
    }
}

impl Backend for BorrowedBackend {
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32> {
        Box::pin(async move {
            let request = Request::ConfigRead { function: self.function, register: register & !3 };
            match self.ask(cpu, request).await {
                Ok(Reply::Value(value)) => value,
                _ => u32::MAX,
            }
        })
    }

    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()> {
        Box::pin(async move {
            let register = register & !3;
            let request = Request::ConfigWrite { function: self.function, register, value, enables };
            let _ = self.ask(cpu, request).await;
        })
    }

    fn map_bar(&self, bar: u8, range: BarRange) -> Result<BarRange, Error> {
        let mapping = self.bars.get(usize::from(bar)).copied().flatten().ok_or(Error::NoSpace)?;
        Ok(BarRange { start: mapping.at, ..range })
    }

    fn requester(&self) -> Bdf {
        self.alias
    }

    fn shares_domain_of(&self) -> Option<Bdf> {
        Some(self.adapter)
    }

    fn root_port(&self) -> Bdf {
        self.root
    }

    fn virtual_function(&self, _: Bdf) -> Option<Rc<dyn Backend>> {
        // Virtual functions are lent as functions of their own.
        None
    }

    fn dma(&self, own: Rc<dyn DmaOps>) -> Rc<dyn DmaOps> {
        let (base, length) = self.window;
        Rc::new(WindowDma { own, base, length, peers: Rc::clone(&self.peers) })
    }

    fn message(&self, _: u16, message: Message) -> Result<Message, Error> {
        let (start, length) = MESSAGES;
        let offset = message.address.checked_sub(start).filter(|&offset| offset < length);
        let offset = offset.ok_or(Error::NotSupported)?;
        Ok(Message { address: self.messages + offset, ..message })
    }

    fn close(&self) {
        // The borrower frees its windows after the kernel has removed the function.
    }
}

/// Number of address bits for `length` bytes.
fn bits_of(length: u64) -> u8 {
    length.next_power_of_two().ilog2() as u8
}

/// The kernel's DMA API with an address offset: the function reaches this host's addresses through a window.
struct WindowDma {
    own: Rc<dyn DmaOps>,
    base: u64,
    length: u64,
    peers: Peers,
}

impl WindowDma {
    /// Converts to the function's address.
    fn there(&self, at: Iova) -> Iova {
        Iova::new(self.base + at.get())
    }

    /// Converts to this host's address.
    fn here(&self, at: Iova) -> Iova {
        Iova::new(at.get().wrapping_sub(self.base))
    }

    fn holds(&self, at: Iova, length: u64) -> bool {
        at.get().checked_add(length).is_some_and(|end| end <= self.length)
    }
}

impl DmaOps for WindowDma {
    fn set_mask(&self, bits: u8) -> Result<(), Error> {
        // The function must be able to address the whole window.
        let last = self.base + (self.length - 1);
        if bits < 64 && last >> bits != 0 {
            return Err(Error::NotSupported);
        }
        self.own.set_mask(bits.min(bits_of(self.length)))
    }

    fn alloc_coherent(&self, cpu: &Cpu, length: u64, node: Option<Node>) -> Result<Coherent, Error> {
        let memory = self.own.alloc_coherent(cpu, length, node)?;
        if !self.holds(memory.bus, length) {
            self.own.free_coherent(cpu, memory);
            return Err(Error::NoSpace);
        }
        Ok(Coherent { bus: self.there(memory.bus), ..memory })
    }

    fn free_coherent(&self, cpu: &Cpu, memory: Coherent) {
        self.own.free_coherent(cpu, Coherent { bus: self.here(memory.bus), ..memory });
    }

    fn map(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction) -> Result<Iova, Error> {
        let mapped = self.own.map(cpu, at, length, direction)?;
        if !self.holds(mapped, length) {
            self.own.unmap(cpu, mapped, length, direction);
            return Err(Error::NoSpace);
        }
        Ok(self.there(mapped))
    }

    fn unmap(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction) {
        self.own.unmap(cpu, self.here(at), length, direction);
    }

    fn map_resource(
        &self,
        cpu: &Cpu,
        at: PhysAddr,
        length: u64,
        direction: Direction,
    ) -> Result<Iova, Error> {
        // Borrowed functions were joined with it when they were borrowed.
        let end = at.0.checked_add(length).ok_or(Error::Invalid)?;
        let holds = |bar: &&PeerBar| bar.at <= at && end <= bar.at.0 + bar.length;
        if let Some(bar) = self.peers.borrow().iter().find(holds) {
            return Ok(Iova::new(bar.there + (at.0 - bar.at.0)));
        }
        let mapped = self.own.map_resource(cpu, at, length, direction)?;
        if !self.holds(mapped, length) {
            self.own.unmap_resource(cpu, mapped, length, direction);
            return Err(Error::NoSpace);
        }
        Ok(self.there(mapped))
    }

    fn unmap_resource(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction) {
        let window = self.base..self.base + self.length;
        if window.contains(&at.get()) {
            self.own.unmap_resource(cpu, self.here(at), length, direction);
        }
    }

    fn counters(&self) -> DmaCounters {
        self.own.counters()
    }
}
