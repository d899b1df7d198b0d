//! A guest's bus: the functions that it finds there, and where accesses to device addresses lead.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::memory::PhysAddr;
use wire::pcie::{Bdf, IntxLine, IntxLines};

use crate::function::GuestMessage;
use crate::port::Port;

/// The guest's first root port: what is below is a PC's own.
const FIRST_PORT: u8 = 3;
/// Devices on a bus.
const DEVICES: u8 = 32;

/// Where accesses to a part of a BAR lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// To the host's address: the guest is not left.
    Host(PhysAddr),
    /// To the hypervisor, which answers for a BAR from an offset on.
    Hypervisor(u8, u64),
}

/// A part of a BAR as the guest sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarPart {
    /// Where the guest sees it.
    pub guest: PhysAddr,
    /// Bytes.
    pub length: u64,
    /// Where accesses lead.
    pub behind: Behind,
}

/// A function on a guest's bus. What it does takes place in the task of the vCPU that made the access, or of whoever else asks.
pub trait GuestDevice {
    /// Reads a doubleword of its configuration space.
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32>;

    /// Writes the bytes of a doubleword that `enables` names.
    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()>;

    /// Where its BARs are now; asked again after each write to its configuration space.
    fn bars(&self) -> Vec<BarPart>;

    /// Whether the host's kernel answers for a place of a BAR that leads to the hypervisor, without going to user space (Linux:
    /// `ioeventfd`).
    fn is_kernels(&self, bar: u8, offset: u64) -> bool {
        let _ = (bar, offset);
        false
    }

    /// Answers a read of a part of a BAR that leads to the hypervisor.
    fn read<'a>(&'a self, cpu: &'a Cpu, bar: u8, offset: u64, into: &'a mut [u8]) -> Async<'a, ()>;

    /// Takes a write to such a part.
    fn write<'a>(&'a self, cpu: &'a Cpu, bar: u8, offset: u64, from: &'a [u8]) -> Async<'a, ()>;

    /// The guest has dealt with the legacy interrupt of the line that the function makes active.
    fn end_of_interrupt<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        let _ = cpu;
        Box::pin(async {})
    }

    /// It is in a slot of the guest's from now on.
    fn plugged(&self, slot: u8) {
        let _ = slot;
    }

    /// The guest is reset, or the bus where the function is, and with it the function.
    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// The guest has ended, or the function is taken from it: nothing of the guest is reached any more.
    fn close<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
}

/// Where an access to a device's address leads.
pub enum Target {
    /// To the host's address.
    Host(PhysAddr),
    /// To the hypervisor: the device, its BAR, the offset.
    Hypervisor(Rc<dyn GuestDevice>, u8, u64),
}

/// What a configuration access of a guest leads to.
pub enum Found {
    /// The root port of a slot.
    Port(u8, Rc<Port>),
    /// The function in a slot.
    Device(u8, Rc<dyn GuestDevice>),
}

/// A guest's bus: root ports, each with a slot for one function.
pub struct Bus {
    ports: RefCell<Vec<Rc<Port>>>,
    /// By the guest's address, with the slot.
    parts: RefCell<Vec<(BarPart, u8)>>,
    /// The part that was found last: most accesses go where the one before went.
    last: Cell<usize>,
}

impl Bus {
    /// One with so many slots, all empty.
    pub fn new(slots: u8) -> Self {
        let ports = (0..slots).map(|slot| Rc::new(Port::new(slot))).collect();
        Self { ports: RefCell::new(ports), parts: RefCell::default(), last: Cell::new(0) }
    }

    /// What is found at an address.
    pub fn find(&self, at: Bdf) -> Option<Found> {
        let ports = self.ports.borrow();
        if at.bus() == 0 {
            let slot = at.device().checked_sub(FIRST_PORT).filter(|_| at.function() == 0)?;
            return ports.get(usize::from(slot)).map(|port| Found::Port(slot, Rc::clone(port)));
        }
        let slot = ports.iter().position(|port| port.bus() == at.bus())?;
        let device = ports[slot].device().filter(|_| (at.device(), at.function()) == (0, 0));
        device.map(|device| Found::Device(slot as u8, device))
    }

    fn device(&self, slot: u8) -> Option<Rc<dyn GuestDevice>> {
        self.ports.borrow().get(usize::from(slot))?.device()
    }

    /// All functions.
    pub fn devices(&self) -> Vec<Rc<dyn GuestDevice>> {
        self.ports.borrow().iter().filter_map(|port| port.device()).collect()
    }

    /// Puts a function into the first slot that is empty, or into a new one, which is found when the guest boots: gives its number,
    /// and the interrupt that follows.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn plug(&self, device: Rc<dyn GuestDevice>) -> Result<(u8, Option<GuestMessage>), Error> {
        let mut ports = self.ports.borrow_mut();
        let empty = ports.iter().position(|port| port.device().is_none()).unwrap_or(ports.len());
        let slot = u8::try_from(empty).ok().filter(|&slot| slot < DEVICES - FIRST_PORT);
        let slot = slot.ok_or(Error::NoSpace)?;
        if empty == ports.len() {
            ports.push(Rc::new(Port::new(slot)));
        }
        let port = Rc::clone(&ports[empty]);
        drop(ports);
        device.plugged(slot);
        Ok((slot, port.plug(device)?))
    }

    /// Takes the function out of a slot: gives it, and the interrupt that follows.
    pub fn unplug(&self, slot: u8) -> Option<(Rc<dyn GuestDevice>, Option<GuestMessage>)> {
        let port = self.ports.borrow().get(usize::from(slot)).cloned()?;
        let taken = port.unplug();
        self.remap(slot);
        taken
    }

    /// The function in a slot makes this line active, or none.
    pub fn set_line(&self, slot: u8, line: Option<IntxLine>) {
        if let Some(port) = self.ports.borrow().get(usize::from(slot)) {
            port.set_line(line);
        }
    }

    /// Legacy interrupt lines that are active, as the interrupt controller sees them.
    pub fn lines(&self) -> IntxLines {
        let ports = self.ports.borrow();
        IntxLines::above((FIRST_PORT..).zip(ports.iter().map(|port| port.lines())))
    }

    /// Functions that make a line of the interrupt controller active.
    pub fn on_line(&self, line: IntxLine) -> Vec<Rc<dyn GuestDevice>> {
        let ports = self.ports.borrow();
        let is_on = |(number, port): &(u8, &Rc<Port>)| {
            IntxLines::above([(*number, port.lines())].into_iter()).has(line)
        };
        (FIRST_PORT..).zip(ports.iter()).filter(is_on).filter_map(|(_, port)| port.device()).collect()
    }

    /// The guest is reset, and its ports with it.
    pub fn reset(&self) {
        self.ports.borrow().iter().for_each(|port| port.reset());
        self.parts.borrow_mut().clear();
    }

    /// The BARs of the function in a slot may be elsewhere now.
    pub fn remap(&self, slot: u8) {
        let mut parts = self.parts.borrow_mut();
        parts.retain(|(_, of)| *of != slot);
        if let Some(device) = self.device(slot) {
            parts.extend(device.bars().into_iter().map(|part| (part, slot)));
        }
        parts.sort_by_key(|(part, _)| part.guest);
        self.last.set(0);
    }

    /// Where an access leads; `None` where nothing is.
    pub fn target(&self, at: PhysAddr, length: u64) -> Option<Target> {
        let parts = self.parts.borrow();
        let holds = |part: &BarPart| {
            at.0.checked_sub(part.guest.0).is_some_and(|offset| offset + length <= part.length)
        };
        let last = self.last.get();
        let number = match parts.get(last) {
            Some((part, _)) if holds(part) => last,
            _ => parts.partition_point(|(part, _)| part.guest <= at).checked_sub(1)?,
        };
        let (part, of) = parts[number];
        if !holds(&part) {
            return None;
        }
        self.last.set(number);
        let offset = at.0 - part.guest.0;
        Some(match part.behind {
            Behind::Host(host) => Target::Host(host + offset),
            Behind::Hypervisor(bar, begin) => Target::Hypervisor(self.device(of)?, bar, begin + offset),
        })
    }

    /// Whether a range is registers of the host's functions, which other functions of the guest reach, too.
    pub fn is_registers(&self, at: PhysAddr, length: u64) -> bool {
        matches!(self.target(at, length), Some(Target::Host(_)))
    }
}
