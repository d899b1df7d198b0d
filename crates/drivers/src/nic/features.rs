//! A function's features that can be switched.

use std::cell::Cell;

use platform::cpu::Cpu;
use platform::mmio::Mmio;
use platform::net::NetFeatures;
use wire::nic::registers::{self as regs, feature};

use super::limits::Limits;

/// Selects the kernel's flag for a feature.
type Field = fn(&mut NetFeatures) -> &mut bool;

const PAIRS: [(u32, Field); 5] = [
    (feature::TX_CHECKSUM, |f| &mut f.tx_checksum),
    (feature::RX_CHECKSUM, |f| &mut f.rx_checksum),
    (feature::TSO, |f| &mut f.tso),
    (feature::RSS, |f| &mut f.rss),
    (feature::FLOW_RULES, |f| &mut f.flow_steering),
];

/// The features that a function has, and those that are on.
pub(super) struct Features {
    registers: Mmio,
    limits: Limits,
    on: Cell<u32>,
}

impl Features {
    pub fn new(registers: Mmio, limits: Limits) -> Self {
        let on = Cell::new(limits.features & !feature::PROMISCUOUS);
        Self { registers, limits, on }
    }

    /// Whether a feature is on.
    pub fn has(&self, feature: u32) -> bool {
        self.on.get() & feature != 0
    }

    /// Features that the device has.
    pub fn all(&self) -> NetFeatures {
        self.named(self.limits.features)
    }

    fn named(&self, bits: u32) -> NetFeatures {
        let Limits { tso_max, max_fragments, .. } = self.limits;
        let mut features = NetFeatures { tso_max, max_fragments, ..NetFeatures::default() };
        for (bit, field) in PAIRS {
            *field(&mut features) = bits & bit != 0;
        }
        features
    }

    /// Switches features as far as the device has them. Returns those that are on.
    pub fn set(&self, wanted: &NetFeatures) -> NetFeatures {
        let mut wanted = wanted.clone();
        for (bit, field) in PAIRS {
            self.set_bit(bit, *field(&mut wanted));
        }
        self.named(self.on.get())
    }

    /// Switches a feature.
    pub fn set_bit(&self, bit: u32, on: bool) {
        let others = self.on.get() & !bit;
        self.on.set(others | if on { bit & self.limits.features } else { 0 });
    }

    /// Writes them to the device.
    pub fn write(&self, cpu: &Cpu) {
        self.registers.write_u32(cpu, regs::ENABLED, self.on.get());
    }
}
