//! Interrupt remapping: entries of the IOMMU's table, and the messages that refer to them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node, Part};
use platform::irq::Irq;
use platform::memory::{Pages, PhysAddr};
use wire::pcie::Bdf;

use super::numbers::Numbers;
use super::unit::{ENTRY, Unit, Units};
use crate::ground::convert;
use crate::irq::Line;
use wire::vtd::{
    Delivery, DeliveryMode, Interrupt, InterruptEntry, InvalidationDescriptor, MsiMessage, PostedInterrupt,
    SourceCheck,
};

/// The remapping table of an IOMMU, with its free entries.
pub(super) struct InterruptEntries {
    table: Pages,
    taken: Numbers,
}

impl InterruptEntries {
    /// A table of `2^(order + 1)` entries.
    pub fn new(table: Pages, order: u8) -> Self {
        Self { table, taken: Numbers::new(0..=u16::MAX >> (15 - order)) }
    }

    fn write(&self, cpu: &Cpu, unit: &Unit, index: u16, [low, high]: [u64; 2]) {
        let at = self.table.start + u64::from(index) * ENTRY;
        cpu.store_u64(at + 8, high);
        cpu.store_u64(at, low);
        let flush = InvalidationDescriptor::InterruptEntry { index: Some((index, 0)) };
        unit.invalidate(cpu, &[flush]);
    }
}

/// The sender of a function's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageSource {
    /// Node of the root port that the messages arrive at.
    pub node: Node,
    /// Requester ID of the messages.
    pub requester: Bdf,
}

/// The remapping entry of an interrupt.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Index of its IOMMU.
    unit: usize,
    index: u16,
    /// Where it is posted in a guest: the core's descriptor and the vector.
    posted: Option<(PhysAddr, u8)>,
}

/// Interrupt remapping by all IOMMUs.
pub(crate) struct Remapping {
    units: Rc<Units>,
    entries: RefCell<BTreeMap<Irq, Entry>>,
}

impl Remapping {
    pub(super) fn new(units: Rc<Units>) -> Self {
        Self { units, entries: RefCell::default() }
    }

    fn entry(&self, line: &Line) -> Option<Entry> {
        self.entries.borrow().get(&line.irq).copied()
    }

    /// Whether a line has a remapping entry: then its message stays the same, wherever it goes.
    pub fn has_entry(&self, line: &Line) -> bool {
        self.entry(line).is_some()
    }

    /// Points a line's remapping entry at its core and vector, if interrupts are remapped.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the line has no entry yet and the table is full.
    pub fn remap_line(&self, cpu: &Cpu, line: &Line, from: MessageSource) -> Result<(), Error> {
        let Some(unit) = self.units.of(from.node) else { return Ok(()) };
        let Some(entries) = &unit.interrupts else { return Ok(()) };
        let _part = cpu.book(Part::Irq);
        let own = match self.entry(line) {
            Some(known) => known,
            None => Entry { unit: unit.index, index: entries.taken.take()?, posted: None },
        };
        self.entries.borrow_mut().insert(line.irq, own);
        let delivery = match own.posted {
            Some((descriptor, vector)) => Delivery::Posted(PostedInterrupt {
                descriptor: convert::physical(descriptor),
                vector,
                urgent: false,
            }),
            None => {
                let (core, vector) = line.arrives_at();
                Delivery::Core(Interrupt {
                    destination: core.0.into(),
                    delivery: DeliveryMode::Fixed,
                    vector,
                    ..Interrupt::default()
                })
            }
        };
        let entry = InterruptEntry {
            delivery,
            source: SourceCheck::Function { source: from.requester, ignored: 0 },
            fault_processing_disabled: false,
        };
        entries.write(cpu, &unit, own.index, entry.encode(true));
        Ok(())
    }

    /// Posts a line's interrupt to a guest's core: the IOMMU records the vector in the core's descriptor. With
    /// `None`, the interrupt goes to the host again.
    ///
    /// # Errors
    /// [`Error::NotSupported`] unless an IOMMU with interrupt posting remaps it.
    pub fn post_line(
        &self,
        cpu: &Cpu,
        line: &Line,
        from: MessageSource,
        to: Option<(PhysAddr, u8)>,
    ) -> Result<(), Error> {
        let posts = self.units.of(from.node).is_some_and(|unit| unit.features.posts_interrupts);
        match self.entries.borrow_mut().get_mut(&line.irq).filter(|_| posts) {
            None => return Err(Error::NotSupported),
            Some(entry) if entry.posted == to => return Ok(()),
            Some(entry) => entry.posted = to,
        }
        self.remap_line(cpu, line, from)
    }

    /// Frees a line's remapping entry.
    pub fn unmap_line(&self, cpu: &Cpu, line: &Line) {
        let Some(Entry { unit, index, .. }) = self.entries.borrow_mut().remove(&line.irq) else { return };
        let unit = self.units.get(unit);
        if let Some(unit) = unit
            && let Some(entries) = &unit.interrupts
        {
            entries.write(cpu, &unit, index, InterruptEntry::ABSENT);
            entries.taken.give(index);
        }
    }

    /// Message that a function has to send for a line: address and data.
    pub fn message_for(&self, line: &Line) -> (u64, u32) {
        match self.entry(line) {
            Some(Entry { index, .. }) => {
                let message = MsiMessage::remappable(index, false);
                (message.address, message.data)
            }
            None => {
                let (core, vector) = line.arrives_at();
                (0xfee0_0000 | u64::from(core.0) << 12, vector.into())
            }
        }
    }
}
