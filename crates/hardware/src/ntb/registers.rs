//! Configuration space and registers of an adapter.

use std::cell::RefCell;
use std::rc::Rc;

use platform::device::{BarAccess, Device, DeviceBus, Function, FunctionIndex, PortIndex, Reset};
use units::Duration;
use wire::ntb::{self as regs, WindowSegment};
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{ConfigError, ConfigSpace};

use super::{NtbParams, Reach, Tables};

/// Class of a bridge of another type (PCI code and ID assignment specification: 06h, 80h).
const OTHER_BRIDGE: u32 = 0x06_8000;

/// Registers of an adapter.
pub struct NtbDevice {
    node: u8,
    segment_bytes: u64,
    register_latency: Duration,
    config: ConfigSpace,
    tables: Rc<RefCell<Tables>>,
    reach: Rc<RefCell<Reach>>,
    doorbell: u32,
    scratchpads: [u32; regs::SCRATCHPAD_COUNT],
    /// First words of segments whose second word has not been written yet.
    targets: Vec<u64>,
}

impl NtbDevice {
    pub(super) fn new(
        params: &NtbParams,
        tables: Rc<RefCell<Tables>>,
        reach: Rc<RefCell<Reach>>,
    ) -> Result<Self, ConfigError> {
        let msix = MsixLayout {
            vectors: 1,
            table_bar: regs::REGISTER_BAR,
            table_offset: regs::MSIX_TABLE,
            pending_bar: regs::REGISTER_BAR,
            pending_offset: regs::MSIX_PENDING,
        };
        let (vendor, device) = params.ids;
        let config = ConfigSpace::endpoint(vendor, device, OTHER_BRIDGE)
            .bar64(regs::REGISTER_BAR, regs::REGISTER_BYTES, false)
            .bar64(regs::WINDOW_BAR, params.window, true)
            .power_management()
            .msix(msix)
            .pcie(params.pcie)
            .aer()
            .build()?;
        Ok(Self {
            node: params.node,
            segment_bytes: params.segment_bytes(),
            register_latency: params.register_latency,
            config,
            tables,
            reach,
            doorbell: 0,
            scratchpads: [0; regs::SCRATCHPAD_COUNT],
            targets: vec![0; params.segments as usize],
        })
    }

    /// Sets doorbell bits; interrupts the host if one of them was clear.
    fn ring(&mut self, bus: &mut dyn DeviceBus, bits: u32) {
        if bits & !self.doorbell != 0 {
            bus.interrupt(FunctionIndex(0), 0);
        }
        self.doorbell |= bits;
    }

    fn read(&self, at: u64) -> u32 {
        let tables = self.tables.borrow();
        let half = |value: u64| (value >> (at % 8 * 8)) as u32;
        match at {
            regs::NODE => self.node.into(),
            regs::SEGMENTS => tables.segments.len() as u32,
            _ if at & !7 == regs::SEGMENT_BYTES => half(self.segment_bytes),
            regs::REQUESTERS => tables.local.len() as u32,
            _ if at & !7 == regs::REACHABLE => half(self.reach.borrow().open()),
            regs::DOORBELL => self.doorbell,
            _ => {
                if let Some((index, offset)) = place(at, regs::SEGMENT_TABLE, 16, tables.segments.len()) {
                    let target = self.targets[index];
                    let words = tables.segments[index].map_or([target, 0], WindowSegment::words);
                    return half(words[(offset / 8) as usize]);
                }
                if let Some((index, _)) = place(at, regs::LOCAL_TABLE, 4, tables.local.len()) {
                    return regs::local_entry(tables.local.get(index as u8));
                }
                if let Some((index, _)) = place(at, regs::REMOTE_TABLE, 4, tables.remote.len()) {
                    return regs::remote_entry(tables.remote.get(index as u8));
                }
                let pad = place(at, regs::SCRATCHPADS, 4, self.scratchpads.len());
                pad.map_or(0, |(index, _)| self.scratchpads[index])
            }
        }
    }

    fn write(&mut self, bus: &mut dyn DeviceBus, at: u64, value: u32) {
        match at {
            regs::DOORBELL => self.ring(bus, value),
            regs::DOORBELL_CLEAR => self.doorbell &= !value,
            _ if at & !7 == regs::REACHABLE => {
                let before = *self.reach.borrow();
                self.reach.borrow_mut().admit(u64::from(value) << (at % 8 * 8));
                if self.reach.borrow().open() != before.open() {
                    self.ring(bus, regs::LINK_CHANGED);
                }
            }
            _ => {
                let tables = Rc::clone(&self.tables);
                let mut tables = tables.borrow_mut();
                if let Some((index, offset)) = place(at, regs::SEGMENT_TABLE, 16, self.targets.len()) {
                    self.write_segment(&mut tables, index, offset, value);
                } else if let Some((index, _)) = place(at, regs::LOCAL_TABLE, 4, tables.local.len()) {
                    tables.local.set(index, regs::local_requester(value));
                } else if let Some((index, _)) = place(at, regs::REMOTE_TABLE, 4, tables.remote.len()) {
                    tables.remote.set(index, regs::remote_requester(value));
                } else if let Some((index, _)) = place(at, regs::SCRATCHPADS, 4, self.scratchpads.len()) {
                    self.scratchpads[index] = value;
                }
            }
        }
    }

    /// The first word takes effect when the second is written.
    fn write_segment(&mut self, tables: &mut Tables, index: usize, offset: u64, value: u32) {
        let target = &mut self.targets[index];
        match offset {
            0 => *target = *target & !0xffff_ffff | u64::from(value),
            4 => *target = *target & 0xffff_ffff | u64::from(value) << 32,
            8 => {
                let segment = WindowSegment::from_words([*target, value.into()]);
                // A segment's target is a multiple of its size.
                tables.segments[index] = segment.map(|segment| WindowSegment {
                    target: segment.target & !(self.segment_bytes - 1),
                    ..segment
                });
            }
            _ => {}
        }
    }
}

/// Entry of a table at `start` that contains an address, and the offset in it.
fn place(at: u64, start: u64, bytes: u64, count: usize) -> Option<(usize, u64)> {
    let offset = at.checked_sub(start)?;
    let index = (offset / bytes) as usize;
    (index < count).then_some((index, offset % bytes))
}

impl Device for NtbDevice {
    fn functions(&self) -> Vec<Function> {
        vec![Function { port: PortIndex(0), config: self.config.clone() }]
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {
        let mut tables = self.tables.borrow_mut();
        tables.segments.fill(None);
        tables.local.clear();
        tables.remote.clear();
        self.targets.fill(0);
        self.reach.borrow_mut().admit(u64::MAX);
        self.doorbell = 0;
        self.scratchpads.fill(0);
    }

    fn bar_read(&mut self, _: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        for (n, byte) in (0u64..).zip(data.iter_mut()) {
            let at = at.offset.get() + n;
            *byte = (self.read(at & !3) >> (at % 4 * 8)) as u8;
        }
        self.register_latency
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        // Registers are written in whole words.
        for (n, word) in (0u64..).zip(data.chunks_exact(4)) {
            let value = u32::from_le_bytes(word.try_into().expect("four bytes"));
            let at = at.offset.get() + 4 * n;
            if at % 4 == 0 {
                self.write(bus, at, value);
            }
        }
    }
}
