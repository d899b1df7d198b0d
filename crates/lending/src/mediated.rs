//! Functions borrowed for guests (Linux: VFIO mediated devices).
//!
//! The host offers its guests functions of other nodes that are not borrowed yet. A guest's reset of one borrows it.
//! When the guest enables bus mastering, its memory is pinned, and this host's IOMMU maps it to one contiguous range
//! for the lender's window; the lender's IOMMU maps that at the guest's addresses. Interrupts come through the
//! lender's handler and a doorbell. The function is returned when the guest ends or the function is unplugged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use drivers::ntb::Mapping;
use kernel::Kernel;
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::memory::PhysAddr;
use platform::pci::{BarRange, Identity};
use platform::sync::Semaphore;
use units::Iova;
use virt::{BarPart, Behind, GuestMemory, Signal, VfioDevice};
use wire::pcie::Bdf;
use wire::pcie::config::caps::{Walk, id};
use wire::pcie::config::{header, pcie_cap};

use crate::doorbell::Heard;
use crate::host::{HIGH_MEMORY, LOW_MEMORY, LocalHost};
use crate::message::{BarMapping, Bars, Forwarding, Peer, Reply, Request, Terms};

/// Unit in which guest memory is pinned: a page of its tables.
const PIECE: u64 = 2 << 20;

/// All mediated functions of a host.
#[derive(Default)]
pub(crate) struct AllMediated {
    all: RefCell<Vec<Rc<Mediated>>>,
    /// Serialises changes of who can access whom.
    joining: OneAtATime,
}

struct OneAtATime(Semaphore);

impl Default for OneAtATime {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl AllMediated {
    /// Adds a function of another node.
    pub async fn add(
        self: &Rc<Self>,
        cpu: &Cpu,
        host: &Rc<LocalHost>,
        of: Peer,
        memory: Rc<GuestMemory>,
        eventfd: u64,
    ) -> Result<Rc<Mediated>, Error> {
        let mediated = Mediated::new(cpu, (host, self), of, memory, eventfd).await?;
        self.all.borrow_mut().push(Rc::clone(&mediated));
        Ok(mediated)
    }

    /// The mediated device that has borrowed a function.
    pub fn of(&self, node: u8, function: Bdf) -> Option<Rc<Mediated>> {
        let is = |mediated: &&Rc<Mediated>| mediated.of == Peer { node, function } && mediated.is_borrowed();
        self.all.borrow().iter().find(is).cloned()
    }

    pub fn has(&self, node: u8, function: Bdf) -> bool {
        self.of(node, function).is_some()
    }

    /// Those that have borrowed functions of a node.
    pub fn from(&self, node: u8) -> Vec<Rc<Mediated>> {
        let is = |mediated: &&Rc<Mediated>| mediated.of.node == node && mediated.is_borrowed();
        self.all.borrow().iter().filter(is).cloned().collect()
    }

    /// All functions borrowed for guests, with their nodes.
    pub fn all(&self) -> Vec<(u8, Bdf)> {
        let all = self.all.borrow();
        all.iter().filter(|m| m.is_borrowed()).map(|m| (m.of.node, m.of.function)).collect()
    }

    fn forget(&self, gone: &Mediated) {
        self.all.borrow_mut().retain(|mediated| !std::ptr::eq(&**mediated, gone));
    }
}

/// A guest's memory, pinned and mapped contiguously in the adapter's domain. A separate domain would not work: a root
/// complex may read from a peer under its own requester ID. The lender's IOMMU restricts the function to this range.
#[derive(Default)]
struct Opened {
    held: Vec<(PhysAddr, u64)>,
    row: Option<(Iova, u64)>,
    admitted: Option<Bdf>,
}

/// A function borrowed for a guest.
struct BorrowedFunction {
    /// Its index in the lender's requester table, the largest payload that it sends, and its requester ID on this
    /// host.
    place: u8,
    payload: u16,
    alias: Bdf,
    bars: [Option<Mapping>; 6],
    opened: Option<Opened>,
    /// Doorbell bits.
    bits: Option<(u8, u8)>,
    /// Guest addresses of its BARs.
    seen: Vec<(u8, u64, u64)>,
    /// Other functions that it can access, with the addresses.
    reaches: BTreeMap<Peer, Vec<(u8, u64, u64)>>,
}

/// A function of another node that a guest has or may have.
pub struct Mediated {
    me: Weak<Self>,
    host: Weak<LocalHost>,
    /// All of this host.
    all: Weak<AllMediated>,
    of: Peer,
    identity: Identity,
    bars: Bars,
    capabilities: Vec<(u8, u16)>,
    memory: Rc<GuestMemory>,
    /// Cycles of a handler that signals the hypervisor.
    eventfd: u64,
    borrowed: RefCell<Option<BorrowedFunction>>,
    /// The lender has revoked it.
    is_lost: Cell<bool>,
    /// Callbacks for that.
    told: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl Mediated {
    async fn new(
        cpu: &Cpu,
        (host, all): (&Rc<LocalHost>, &Rc<AllMediated>),
        of: Peer,
        memory: Rc<GuestMemory>,
        eventfd: u64,
    ) -> Result<Rc<Self>, Error> {
        let read = async |register| match host.ask(cpu, of.node, inspect(of, register)).await? {
            Reply::Value(value) => Ok(value),
            _ => Err(Error::Io),
        };
        let Reply::Bars(bars) = host.ask(cpu, of.node, Request::Describe { function: of.function }).await?
        else {
            return Err(Error::Io);
        };
        let (ids, class, subsystem) = (read(0).await?, read(8).await?, read(0x2c).await?);
        let identity = Identity::from_registers(ids, class, subsystem);
        let (mut capabilities, mut walk) = (Vec::new(), Walk::standard());
        while let Some(register) = walk.wants() {
            capabilities.extend(walk.take(read(register).await?).map(|found| (found.id as u8, found.offset)));
        }
        Ok(Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            host: Rc::downgrade(host),
            all: Rc::downgrade(all),
            of,
            identity,
            bars,
            capabilities,
            memory,
            eventfd,
            borrowed: RefCell::default(),
            is_lost: Cell::new(false),
            told: RefCell::default(),
        }))
    }

    fn is_borrowed(&self) -> bool {
        self.borrowed.borrow().is_some() && !self.is_lost.get()
    }

    async fn ask(&self, cpu: &Cpu, request: Request) -> Result<Reply, Error> {
        let host = self.host.upgrade().ok_or(Error::NoDevice)?;
        match self.is_lost.get() {
            true => Err(Error::NoDevice),
            false => host.ask(cpu, self.of.node, request).await,
        }
    }

    /// Borrows it for the guest.
    async fn borrow(&self, cpu: &Cpu) -> Result<(), Error> {
        let host = self.host.upgrade().ok_or(Error::NoDevice)?;
        let function = self.of.function;
        let payload = host.payload();
        let asked = host.ask(cpu, self.of.node, Request::BorrowForGuest { function, payload }).await;
        // The hypervisor takes this error as "cannot be reset on its own".
        let asked =
            asked.map_err(|error| if error == Error::NotSupported { Error::NotPermitted } else { error })?;
        let Reply::Lent(terms) = asked else { return Err(Error::Io) };
        let mapped = self.map_bars(cpu, &host, &terms);
        match mapped {
            Ok(borrowed) => {
                *self.borrowed.borrow_mut() = Some(borrowed);
                self.is_lost.set(false);
                host.leased();
                Ok(())
            }
            Err(error) => {
                let _ = host.ask(cpu, self.of.node, Request::Return { function }).await;
                Err(error)
            }
        }
    }

    fn map_bars(&self, cpu: &Cpu, host: &LocalHost, terms: &Terms) -> Result<BorrowedFunction, Error> {
        let adapter = &host.adapter;
        let alias = adapter.add_remote(cpu, self.of.node, terms.place)?;
        let mut borrowed = BorrowedFunction {
            place: terms.place,
            payload: terms.payload,
            alias,
            bars: [None; 6],
            opened: None,
            bits: None,
            seen: Vec::new(),
            reaches: BTreeMap::new(),
        };
        for (own, &(at, length)) in borrowed.bars.iter_mut().zip(&terms.bars) {
            if length == 0 {
                continue;
            }
            match adapter.map(cpu, self.of.node, at, length) {
                Ok(mapping) => *own = Some(mapping),
                Err(error) => {
                    self.release(cpu, host, borrowed);
                    return Err(error);
                }
            }
        }
        Ok(borrowed)
    }

    /// Pins the guest's memory and opens it to the function.
    async fn open(&self, cpu: &Cpu) -> Result<(), Error> {
        let host = self.host.upgrade().ok_or(Error::NoDevice)?;
        let alias = match &*self.borrowed.borrow() {
            Some(borrowed) if borrowed.opened.is_none() => borrowed.alias,
            Some(_) => return Ok(()),
            None => return Err(Error::NoDevice),
        };
        let kernel = host.kernel().ok_or(Error::NoDevice)?;
        let mut opened = Opened::default();
        let filled = opened.fill(cpu, &host, &kernel, &self.memory, alias);
        let (at, low, high) = match filled {
            Ok(found) => found,
            Err(error) => {
                opened.close(cpu, &host, &self.memory);
                return Err(error);
            }
        };
        let request = Request::Open { function: self.of.function, at, low, high };
        let asked = self.ask(cpu, request).await;
        let unused = match (&mut *self.borrowed.borrow_mut(), asked.is_ok()) {
            (Some(borrowed), true) => borrowed.opened.replace(opened),
            _ => Some(opened),
        };
        if let Some(unused) = unused {
            unused.close(cpu, &host, &self.memory);
        }
        asked.map(drop)
    }

    /// Stops its interrupts on this host.
    fn silence(&self) {
        let bits = self.borrowed.borrow_mut().as_mut().and_then(|borrowed| borrowed.bits.take());
        if let (Some(bits), Some(host)) = (bits, self.host.upgrade()) {
            host.doorbell.give(bits);
        }
    }

    /// Frees all resources on this host.
    fn release(&self, cpu: &Cpu, host: &LocalHost, borrowed: BorrowedFunction) {
        if let Some(opened) = borrowed.opened {
            opened.close(cpu, host, &self.memory);
        }
        borrowed.bits.into_iter().for_each(|bits| host.doorbell.give(bits));
        for mapping in borrowed.bars.into_iter().flatten() {
            host.adapter.unmap(cpu, mapping);
        }
        host.adapter.remove_remote(cpu, borrowed.alias);
    }

    /// The lender has revoked it or is gone: ends access in both directions. Its windows stay allocated until the
    /// guest detaches, so that they are not reused.
    pub(crate) fn lost(&self, cpu: &Cpu) {
        if !self.is_borrowed() {
            return;
        }
        self.is_lost.set(true);
        self.silence();
        self.told.take().into_iter().for_each(|told| told());
        let Some(host) = self.host.upgrade() else { return };
        let mut borrowed = self.borrowed.borrow_mut();
        let Some(borrowed) = borrowed.as_mut() else { return };
        if let Some(opened) = borrowed.opened.take() {
            opened.close(cpu, &host, &self.memory);
        }
        borrowed.bars.iter().flatten().for_each(|mapping| host.adapter.sever(cpu, *mapping));
        host.log(format!("{} of node {} was revoked from its guest", self.of.function, self.of.node));
    }

    /// Returns it to the lender.
    async fn give_back(&self, cpu: &Cpu) {
        let Some(host) = self.host.upgrade() else { return };
        if self.is_borrowed() {
            // The lender first, so that the function stops its requests before its windows are removed.
            let _ = self.ask(cpu, Request::Return { function: self.of.function }).await;
        }
        let borrowed = self.borrowed.borrow_mut().take();
        if let Some(borrowed) = borrowed {
            self.release(cpu, &host, borrowed);
        }
        self.is_lost.set(false);
    }

    /// Other mediated functions of the same guest.
    fn others(&self, all: &AllMediated) -> Vec<Rc<Self>> {
        let all = all.all.borrow();
        let is_other = |other: &&Rc<Self>| {
            Rc::ptr_eq(&other.memory, &self.memory) && other.of != self.of && other.is_borrowed()
        };
        all.iter().filter(is_other).cloned().collect()
    }

    /// Lets functions of the guest access each other's BARs at guest addresses, in a task of its own.
    fn join_others(&self) {
        let (Some(host), Some(me), Some(all)) = (self.host.upgrade(), self.me.upgrade(), self.all.upgrade())
        else {
            return;
        };
        let own = Rc::clone(&host);
        drop(host.start(async move |cpu: &Cpu| {
            let host = &*own;
            all.joining.0.acquire().await;
            for other in me.others(&all) {
                for (source, target) in [(&me, &other), (&other, &me)] {
                    if let Err(error) = source.join(cpu, host, target).await {
                        host.log(format!("{:?} cannot access {:?}: {error}", source.of, target.of));
                    }
                }
            }
            all.joining.0.release();
            Ok(())
        }));
    }

    /// Lets it access another function's BARs at their current guest addresses.
    async fn join(&self, cpu: &Cpu, host: &LocalHost, target: &Self) -> Result<(), Error> {
        let seen = target.borrowed.borrow().as_ref().map(|there| there.seen.clone()).unwrap_or_default();
        let (place, payload, before) = match &*self.borrowed.borrow() {
            Some(own) if own.opened.is_some() => {
                (own.place, own.payload, own.reaches.get(&target.of).cloned())
            }
            _ => return Ok(()),
        };
        if before.as_ref().is_some_and(|before| *before == seen) {
            return Ok(());
        }
        if before.is_some() {
            self.ask(cpu, Request::Part { function: self.of.function, peer: target.of }).await?;
            if self.of.node != target.of.node {
                target.ask(cpu, Request::Part { function: target.of.function, peer: self.of }).await?;
            }
        }
        if let Some(own) = self.borrowed.borrow_mut().as_mut() {
            own.reaches.insert(target.of, Vec::new());
        }
        let mut there = Bars::default();
        if self.of.node != target.of.node && !seen.is_empty() {
            let function = target.of.function;
            let admit = Request::Admit { function, peer: self.of, place, payload };
            let Reply::Bars(bars) = host.ask(cpu, target.of.node, admit).await? else {
                return Err(Error::Io);
            };
            there = bars;
        }
        for &(bar, at, length) in &seen {
            let mapping = BarMapping { bar, target: there[usize::from(bar)].0, length, guest_address: at };
            let (function, peer) = (self.of.function, target.of);
            self.ask(cpu, Request::JoinGuest { function, peer, mapping }).await?;
        }
        if let Some(own) = self.borrowed.borrow_mut().as_mut() {
            own.reaches.insert(target.of, seen);
        }
        Ok(())
    }

    /// Reports `count` interrupts, or its legacy one, to `signal`; stops if `count` is 0.
    async fn listen(&self, cpu: &Cpu, count: usize, legacy: bool, signal: Signal) -> Result<(), Error> {
        let function = self.of.function;
        let host = self.host.upgrade().ok_or(Error::NoDevice)?;
        let had = self.borrowed.borrow().as_ref().is_some_and(|borrowed| borrowed.bits.is_some());
        if had {
            let wanted = Forwarding { first: 0, count: 0, legacy };
            self.ask(cpu, Request::Interrupts { function, wanted }).await?;
            self.silence();
        }
        if count == 0 {
            return Ok(());
        }
        if !self.is_borrowed() {
            return Err(Error::NoDevice);
        }
        let eventfd = self.eventfd;
        let listener = |n: usize| -> Heard {
            let signal = Rc::clone(&signal);
            Rc::new(move |cpu: &Cpu| {
                cpu.work(eventfd);
                signal(cpu, n as u16);
            })
        };
        let (first, taken) = host.doorbell.take((0..count).map(listener).collect())?;
        let wanted = Forwarding { first, count: taken, legacy };
        let asked = self.ask(cpu, Request::Interrupts { function, wanted }).await;
        let granted = match asked {
            Ok(Reply::Value(granted)) => Ok(granted as usize),
            Ok(_) => Err(Error::Io),
            Err(error) => Err(error),
        };
        match self.borrowed.borrow_mut().as_mut() {
            Some(borrowed) if granted.is_ok() => borrowed.bits = Some((first, taken)),
            _ => host.doorbell.give((first, taken)),
        }
        if granted? < count { Err(Error::NoSpace) } else { Ok(()) }
    }
}

fn inspect(of: Peer, register: u16) -> Request {
    Request::Inspect { function: of.function, register: register & !3 }
}

impl Opened {
    /// Pins all memory at the PC's low and high addresses and maps it contiguously. Returns the start, and the bytes
    /// of both parts.
    fn fill(
        &mut self,
        cpu: &Cpu,
        host: &LocalHost,
        kernel: &Kernel,
        memory: &GuestMemory,
        alias: Bdf,
    ) -> Result<(u64, u64, u64), Error> {
        let (mut found, mut blocks) = ([0; 2], Vec::new());
        for (found, begin) in found.iter_mut().zip([LOW_MEMORY, HIGH_MEMORY]) {
            loop {
                let at = PhysAddr(begin + *found);
                match memory.pin(at, PIECE) {
                    Ok(pinned) => blocks.extend(pinned.into_iter().map(|block| (block.host, block.length))),
                    // End of memory.
                    Err(Error::Invalid) => break,
                    Err(error) => return Err(error),
                }
                self.held.push((at, PIECE));
                *found += PIECE;
            }
        }
        let row = kernel.iommu().map_row(cpu, host.adapter.address(), &blocks)?;
        self.row = Some((row, found[0] + found[1]));
        host.adapter.admit(cpu, alias)?;
        self.admitted = Some(alias);
        Ok((row.get(), found[0], found[1]))
    }

    fn close(self, cpu: &Cpu, host: &LocalHost, memory: &GuestMemory) {
        if let Some(alias) = self.admitted {
            host.adapter.dismiss(cpu, alias);
        }
        if let (Some((row, length)), Some(kernel)) = (self.row, host.kernel()) {
            kernel.iommu().unmap_row(cpu, host.adapter.address(), row, length);
        }
        self.held.into_iter().for_each(|(at, length)| memory.unpin(at, length));
    }
}

impl VfioDevice for Mediated {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32> {
        Box::pin(async move {
            match self.ask(cpu, inspect(self.of, register)).await {
                Ok(Reply::Value(value)) => value,
                _ => u32::MAX,
            }
        })
    }

    fn capability(&self, id: u8) -> Option<u16> {
        self.capabilities.iter().find(|(known, _)| *known == id).map(|(_, at)| *at)
    }

    fn bar(&self, bar: u8) -> Option<BarRange> {
        let &(at, length) = self.bars.get(usize::from(bar)).filter(|(_, length)| *length > 0)?;
        Some(BarRange { start: PhysAddr(at), length, prefetchable: length > 1 << 20 })
    }

    fn registers(&self, bar: u8) -> Option<PhysAddr> {
        let borrowed = self.borrowed.borrow();
        Some(borrowed.as_ref().filter(|_| !self.is_lost.get())?.bars.get(usize::from(bar))?.as_ref()?.at)
    }

    fn set_master<'a>(&'a self, cpu: &'a Cpu, on: bool) -> Async<'a, ()> {
        Box::pin(async move {
            if on && let Err(error) = self.open(cpu).await {
                if let Some(host) = self.host.upgrade() {
                    let (function, node) = (self.of.function, self.of.node);
                    host.log(format!(
                        "a guest's memory cannot be opened to {function} of node {node}: {error}"
                    ));
                }
                return;
            }
            let command = header::COMMAND_MEMORY | if on { header::COMMAND_BUS_MASTER } else { 0 };
            let (function, register) = (self.of.function, header::COMMAND);
            // The interrupt-disable bit, in the other byte, belongs to the lender.
            let write = Request::ConfigWrite { function, register, value: command.into(), enables: 1 };
            let _ = self.ask(cpu, write).await;
            if on {
                self.join_others();
            }
        })
    }

    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            if !self.is_borrowed() {
                self.give_back(cpu).await;
                return self.borrow(cpu).await;
            }
            self.set_interrupts(cpu, Vec::new(), Rc::new(|_, _| {})).await?;
            let function = self.of.function;
            let at = self.capability(id::PCI_EXPRESS).ok_or(Error::NotSupported)?;
            let register = at + pcie_cap::DEVICE_CONTROL;
            let value = u32::from(pcie_cap::CONTROL_FLR);
            self.ask(cpu, Request::ConfigWrite { function, register, value, enables: 3 }).await?;
            self.set_master(cpu, false).await;
            Ok(())
        })
    }

    fn set_interrupts<'a>(
        &'a self,
        cpu: &'a Cpu,
        cores: Vec<CpuId>,
        signal: Signal,
    ) -> Async<'a, Result<(), Error>> {
        Box::pin(async move { self.listen(cpu, cores.len(), false, signal).await })
    }

    fn set_line<'a>(&'a self, cpu: &'a Cpu, _: CpuId, signal: Signal) -> Async<'a, Result<(), Error>> {
        Box::pin(async move { self.listen(cpu, 1, true, signal).await })
    }

    fn unmask_line<'a>(&'a self, _: &'a Cpu) -> Async<'a, ()> {
        // The guest does not wait for the lender.
        let of = self.of;
        if let Some(host) = self.host.upgrade() {
            let own = Rc::clone(&host);
            drop(host.start(async move |cpu: &Cpu| {
                own.ask(cpu, of.node, Request::Unmask { function: of.function }).await.map(drop)
            }));
        }
        Box::pin(async {})
    }

    fn bars_moved(&self, _: &Cpu, parts: &[BarPart]) {
        {
            let mut borrowed = self.borrowed.borrow_mut();
            let Some(borrowed) = borrowed.as_mut() else { return };
            let bar_of = |host: PhysAddr| {
                let of = |own: &Mapping| host.0 >= own.at.0 && host.0 < own.at.0 + own.length;
                borrowed.bars.iter().position(|own| own.as_ref().is_some_and(of))
            };
            // A BAR with holes can be accessed up to its first hole.
            let mut seen: Vec<(u8, u64, u64)> = Vec::new();
            for part in parts {
                let Behind::Host(host) = part.behind else { continue };
                let Some(bar) = bar_of(host) else { continue };
                if borrowed.bars[bar].is_some_and(|own| own.at == host) {
                    seen.push((bar as u8, part.guest.0, part.length));
                }
            }
            if borrowed.seen == seen {
                return;
            }
            borrowed.seen = seen;
        }
        self.join_others();
    }

    fn on_loss(&self, told: Box<dyn FnOnce()>) {
        self.told.borrow_mut().push(told);
    }

    fn close<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.told.borrow_mut().clear();
            self.give_back(cpu).await;
            if let Some(all) = self.all.upgrade() {
                all.forget(self);
            }
        })
    }
}
