//! A passed-through function on the guest's bus.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu};
use wire::pcie::config::caps::id;
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{ConfigEffect, ConfigSpace, PcieParams, ResetKind, header, msi, pcie_cap};
use wire::pcie::{Generation, IntxLine, Width};

use super::VfioDevice;
use crate::bus::{BarPart, Behind, GuestDevice};
use crate::function::GuestFunction;
use crate::interrupts::{self, InterruptSupport};
use crate::machine::Machine;

/// A passed-through function. Accesses to its registers go to the hardware. Configuration space and the MSI-X table
/// are emulated, and the device is configured accordingly.
pub struct Assigned {
    me: Weak<Self>,
    device: Rc<dyn VfioDevice>,
    guest: GuestFunction,
    machine: Weak<Machine>,
    /// Interrupts allocated from the device.
    used: Cell<Used>,
    slot: Cell<Option<u8>>,
}

/// Kind of interrupts in use.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Used {
    #[default]
    None,
    /// Legacy interrupt.
    Line,
    Messages(u16),
}

impl Assigned {
    /// Creates the guest's view of a function.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if its registers are inconsistent.
    pub(crate) async fn new(
        cpu: &Cpu,
        machine: &Rc<Machine>,
        device: Rc<dyn VfioDevice>,
    ) -> Result<Rc<Self>, Error> {
        let guest = GuestFunction::new(shown(cpu, &*device).await?);
        let machine = Rc::downgrade(machine);
        let (used, slot) = Default::default();
        Ok(Rc::new_cyclic(|me| Self { me: Weak::clone(me), device, guest, machine, used, slot }))
    }

    /// Interrupt `number` has arrived on core `cpu`.
    fn signal(&self, cpu: &Cpu, number: u16) {
        if self.used.get() == Used::Line {
            return self.set_interrupt_status(cpu, true);
        }
        if let Some((machine, message)) = self.machine.upgrade().zip(self.guest.message(number)) {
            machine.send(cpu, message);
        }
    }

    /// Updates the guest's interrupt line from the function's cause and the guest's settings.
    fn set_interrupt_status(&self, cpu: &Cpu, pending: bool) {
        let line = self.guest.set_interrupt_status(pending);
        if let Some((machine, slot)) = self.machine.upgrade().zip(self.slot.get()) {
            machine.set_line(cpu, slot, line);
        }
    }

    /// Allocates as many interrupts as the guest has enabled.
    async fn set_interrupts(&self, cpu: &Cpu) {
        let Some(machine) = self.machine.upgrade() else { return };
        let wanted = self.guest.vectors();
        let used = match self.guest.line() {
            Some(_) if wanted == 0 => Used::Line,
            _ if wanted == 0 => Used::None,
            _ => Used::Messages(wanted),
        };
        if self.used.replace(used) != used {
            let me = Weak::clone(&self.me);
            let signal = Rc::new(move |cpu: &Cpu, number| {
                if let Some(me) = me.upgrade() {
                    me.signal(cpu, number);
                }
            });
            self.set_interrupt_status(cpu, false);
            if used == Used::Line {
                // Functions without a legacy interrupt never signal.
                let _ = self.device.set_line(cpu, machine.vcpus[0].home(), signal).await;
                return;
            }
            let target = |n| self.guest.target(n).map_or(0, |message| machine.core_of(message));
            let cores = (0..wanted).map(|n| machine.vcpus[target(n)].home()).collect();
            // With fewer interrupts than wanted, the guest lacks the last ones.
            let _ = self.device.set_interrupts(cpu, cores, signal).await;
        }
        (0..wanted).for_each(|number| self.post(cpu, &machine, number));
        while let Some(number) = self.guest.take_waiting() {
            self.signal(cpu, number);
        }
    }

    /// Posts an interrupt to the guest's core if possible, unless the guest has masked it.
    fn post(&self, cpu: &Cpu, machine: &Machine, number: u16) {
        if machine.support != InterruptSupport::Posted {
            return;
        }
        let message = self.guest.target(number).filter(|_| !self.guest.is_held(number));
        let to = message.map(|message| {
            (machine.vcpus[machine.core_of(message)].postbox.at(), interrupts::vector_of(message))
        });
        // Interrupts that cannot be posted are signalled through the host.
        let _ = self.device.post(cpu, number, to);
    }

    /// Resets the function for the guest.
    async fn reset_function(&self, cpu: &Cpu) {
        self.used.take();
        let _ = self.device.reset(cpu).await;
        self.guest.reset(ResetKind::Function);
        self.set_interrupt_status(cpu, false);
        self.device.bars_moved(cpu, &[]);
    }
}

impl GuestDevice for Assigned {
    fn config_read<'a>(&'a self, _: &'a Cpu, register: u16) -> Async<'a, u32> {
        Box::pin(async move { self.guest.config_read(register) })
    }

    fn config_write<'a>(&'a self, cpu: &'a Cpu, register: u16, value: u32, enables: u8) -> Async<'a, ()> {
        Box::pin(async move {
            for effect in self.guest.config_write(register, value, enables) {
                match effect {
                    ConfigEffect::BusMaster(on) => {
                        self.device.set_master(cpu, on).await;
                        self.set_interrupts(cpu).await;
                    }
                    ConfigEffect::FunctionLevelReset => self.reset_function(cpu).await,
                    ConfigEffect::Msi | ConfigEffect::Msix { .. } | ConfigEffect::IntxDisable(_) => {
                        self.set_interrupts(cpu).await;
                    }
                    ConfigEffect::MemoryEnable(_) | ConfigEffect::BarMoved { .. } => {
                        self.device.bars_moved(cpu, &self.bars());
                    }
                    _ => {}
                }
            }
        })
    }

    fn bars(&self) -> Vec<BarPart> {
        let mut parts = Vec::new();
        for bar in 0..6 {
            let Some((guest, length)) = self.guest.bar(bar) else { continue };
            let table = self.guest.table_pages().filter(|(of, _)| *of == bar).map(|(_, pages)| pages);
            let registers = self.device.registers(bar);
            let mut add = |from: u64, to: u64, is_table: bool| {
                let behind = match registers {
                    Some(host) if !is_table => Behind::Host(host + from),
                    _ => Behind::Hypervisor(bar, from),
                };
                if from < to {
                    parts.push(BarPart { guest: guest + from, length: to - from, behind });
                }
            };
            match table {
                None => add(0, length, false),
                Some(pages) => {
                    add(0, pages.start, false);
                    add(pages.start, pages.end.min(length), true);
                    add(pages.end, length, false);
                }
            }
        }
        parts
    }

    fn read<'a>(&'a self, _: &'a Cpu, bar: u8, offset: u64, into: &'a mut [u8]) -> Async<'a, ()> {
        Box::pin(async move {
            match self.guest.table_pages() {
                Some((of, pages)) if of == bar && pages.contains(&offset) => {
                    self.guest.table_read(offset, into);
                }
                _ => into.fill(0xff),
            }
        })
    }

    fn write<'a>(&'a self, cpu: &'a Cpu, bar: u8, offset: u64, from: &'a [u8]) -> Async<'a, ()> {
        Box::pin(async move {
            let is_table =
                self.guest.table_pages().is_some_and(|(of, pages)| of == bar && pages.contains(&offset));
            if is_table && self.guest.table_write(offset, from).is_some() && self.guest.uses_table() {
                self.set_interrupts(cpu).await;
            }
        })
    }

    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.reset_function(cpu).await;
            self.guest.reset(ResetKind::Fundamental);
        })
    }

    fn close<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.used.take();
            self.device.close(cpu).await;
        })
    }

    fn end_of_interrupt<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.set_interrupt_status(cpu, false);
            self.device.unmask_line(cpu).await;
        })
    }

    fn plugged(&self, slot: u8) {
        self.slot.set(Some(slot));
    }
}

/// The configuration space shown to the guest: identity, BARs and interrupts, and nothing that could harm others.
async fn shown(cpu: &Cpu, device: &dyn VfioDevice) -> Result<ConfigSpace, Error> {
    let identity = device.identity();
    let mut config = ConfigSpace::endpoint(identity.vendor, identity.device, identity.class)
        .revision(identity.revision)
        .subsystem(identity.subsystem_vendor, identity.subsystem);
    for n in 0..6u8 {
        let Some(range) = device.bar(n) else { continue };
        let register = device.config_read(cpu, header::BAR0 + 4 * u16::from(n)).await;
        // BARs of virtual functions have no registers; a 64-bit one needs a free one behind it.
        let is_free = n < 5 && device.bar(n + 1).is_none();
        config = match register >> 1 & 3 {
            2 => config.bar64(n, range.length, range.prefetchable),
            _ if register == 0 && is_free => config.bar64(n, range.length, range.prefetchable),
            _ => config.bar32(n, range.length, range.prefetchable),
        };
    }
    config = config.power_management().pcie(link(cpu, device).await);
    let pin = (device.config_read(cpu, header::INTERRUPT_LINE).await >> 8) as u8;
    if IntxLine::from_pin(pin).is_some() {
        // INTA, since it is alone below its port (as in QEMU).
        config = config.interrupt_pin(1);
    }
    if let Some(at) = device.capability(id::MSIX) {
        let mut words = [0; 3];
        for (n, word) in (0..).zip(&mut words) {
            *word = device.config_read(cpu, at + 4 * n).await;
        }
        config = config.msix(MsixLayout::read(&|offset| words[usize::from((offset - at) / 4) % 3], at));
    } else if let Some(at) = device.capability(id::MSI) {
        let control = device.config_read(cpu, at).await >> (8 * u32::from(msi::CONTROL));
        config = config.msi(1 << (control >> 1 & 7).min(5));
    }
    config.build().map_err(|_| Error::NotSupported)
}

/// Link and function-reset capability shown to the guest.
async fn link(cpu: &Cpu, device: &dyn VfioDevice) -> PcieParams {
    let any = PcieParams::endpoint(Generation::Gen3, Width::X4);
    let Some(at) = device.capability(id::PCI_EXPRESS) else { return any };
    let capabilities = device.config_read(cpu, at + pcie_cap::DEVICE_CAPABILITIES).await;
    let link = device.config_read(cpu, at + pcie_cap::LINK_CAPABILITIES).await;
    let known = Generation::from_number(link as u8 & 0xf).zip(Width::from_lanes((link >> 4) as u8 & 0x3f));
    PcieParams {
        function_level_reset: capabilities & pcie_cap::CAPABLE_OF_FLR != 0,
        ..known.map_or(any, |(generation, width)| PcieParams::endpoint(generation, width))
    }
}
