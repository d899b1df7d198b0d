//! A guest's PCI bus: its functions, and the targets of accesses to device addresses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::memory::PhysAddr;
use wire::pcie::{Bdf, IntxLine, IntxLines};

use crate::function::GuestMessage;
use crate::port::Port;

/// Device number of the guest's first root port; lower ones belong to the PC chipset.
const FIRST_PORT: u8 = 3;
/// Devices on a bus.
const DEVICES: u8 = 32;

/// Target of accesses to a part of a BAR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// A host-physical address, accessed without an exit.
    Host(PhysAddr),
    /// The hypervisor, which emulates this BAR from an offset on.
    Hypervisor(u8, u64),
}

/// A part of a BAR as mapped in the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarPart {
    /// Guest-physical address.
    pub guest: PhysAddr,
    /// Bytes.
    pub length: u64,
    /// Target of accesses.
    pub behind: Behind,
}

/// A function on a guest's bus. Its methods run in the task of the vCPU that made the access, or of any other caller.
pub trait GuestDevice {
    /// Reads a doubleword of configuration space.
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32>;

    /// Writes the bytes of a doubleword selected by `enables`.
    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()>;

    /// Current location of its BARs. Read again after each configuration write.
    fn bars(&self) -> Vec<BarPart>;

    /// Whether the host kernel handles writes to this offset without going to user space (Linux: `ioeventfd`).
    fn is_kernels(&self, bar: u8, offset: u64) -> bool {
        let _ = (bar, offset);
        false
    }

    /// Emulates a read of a BAR.
    fn read<'a>(&'a self, cpu: &'a Cpu, bar: u8, offset: u64, into: &'a mut [u8]) -> Async<'a, ()>;

    /// Emulates a write to a BAR.
    fn write<'a>(&'a self, cpu: &'a Cpu, bar: u8, offset: u64, from: &'a [u8]) -> Async<'a, ()>;

    /// The guest has handled the function's legacy interrupt.
    fn end_of_interrupt<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        let _ = cpu;
        Box::pin(async {})
    }

    /// The function was plugged into this slot of the guest.
    fn plugged(&self, slot: u8) {
        let _ = slot;
    }

    /// Resets the function, as the guest or its bus is reset.
    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// Detaches the function: the guest has ended, or it was unplugged. It may not access the guest any more.
    fn close<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
}

/// Target of an access to a device address.
pub enum Target {
    /// A host-physical address.
    Host(PhysAddr),
    /// The hypervisor: device, BAR and offset.
    Hypervisor(Rc<dyn GuestDevice>, u8, u64),
}

/// Target of a guest's configuration access.
pub enum Found {
    /// The root port of a slot.
    Port(u8, Rc<Port>),
    /// The function in a slot.
    Device(u8, Rc<dyn GuestDevice>),
}

/// A guest's PCI bus: root ports with a slot for one function each.
pub struct Bus {
    ports: RefCell<Vec<Rc<Port>>>,
    /// Mapped BAR parts with their slots, by guest address.
    parts: RefCell<Vec<(BarPart, u8)>>,
    /// Index of the last part accessed, as most accesses go to the same one.
    last: Cell<usize>,
}

impl Bus {
    /// Creates a bus with empty slots.
    pub fn new(slots: u8) -> Self {
        let ports = (0..slots).map(|slot| Rc::new(Port::new(slot))).collect();
        Self { ports: RefCell::new(ports), parts: RefCell::default(), last: Cell::new(0) }
    }

    /// Finds the target of a configuration access.
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

    /// Plugs a function into the first empty slot, or into a new one, which the guest finds at its next boot. Returns
    /// the slot, and the hot-plug interrupt to send, if any.
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

    /// Unplugs the function in a slot. Returns it, and the hot-plug interrupt to send, if any.
    pub fn unplug(&self, slot: u8) -> Option<(Rc<dyn GuestDevice>, Option<GuestMessage>)> {
        let port = self.ports.borrow().get(usize::from(slot)).cloned()?;
        let taken = port.unplug();
        self.remap(slot);
        taken
    }

    /// Sets the legacy interrupt line that the function in a slot asserts, if any.
    pub fn set_line(&self, slot: u8, line: Option<IntxLine>) {
        if let Some(port) = self.ports.borrow().get(usize::from(slot)) {
            port.set_line(line);
        }
    }

    /// Asserted legacy interrupt lines at the interrupt controller.
    pub fn lines(&self) -> IntxLines {
        let ports = self.ports.borrow();
        IntxLines::above((FIRST_PORT..).zip(ports.iter().map(|port| port.lines())))
    }

    /// Functions that assert a line of the interrupt controller.
    pub fn on_line(&self, line: IntxLine) -> Vec<Rc<dyn GuestDevice>> {
        let ports = self.ports.borrow();
        let is_on = |(number, port): &(u8, &Rc<Port>)| {
            IntxLines::above([(*number, port.lines())].into_iter()).has(line)
        };
        (FIRST_PORT..).zip(ports.iter()).filter(is_on).filter_map(|(_, port)| port.device()).collect()
    }

    /// Resets the root ports.
    pub fn reset(&self) {
        self.ports.borrow().iter().for_each(|port| port.reset());
        self.parts.borrow_mut().clear();
    }

    /// Updates the location of the BARs of a slot's function.
    pub fn remap(&self, slot: u8) {
        let mut parts = self.parts.borrow_mut();
        parts.retain(|(_, of)| *of != slot);
        if let Some(device) = self.device(slot) {
            parts.extend(device.bars().into_iter().map(|part| (part, slot)));
        }
        parts.sort_by_key(|(part, _)| part.guest);
        self.last.set(0);
    }

    /// Target of an access; `None` if nothing is mapped.
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

    /// Whether a range is registers of passed-through functions, which other functions of the guest can access, too.
    pub fn is_registers(&self, at: PhysAddr, length: u64) -> bool {
        matches!(self.target(at, length), Some(Target::Host(_)))
    }
}
