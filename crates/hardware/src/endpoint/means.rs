//! What the parts of a device use while they handle a TLP or an event.

use platform::device::{Device, DeviceBus, FunctionIndex, Reset};

use super::Core;
use super::bus::Bus;
use crate::wires::Context;

/// Links, the device's PCIe core and its model.
pub(super) struct Means<'a, 'w> {
    pub cx: &'a mut Context<'w>,
    pub core: &'a mut Core,
    pub device: &'a mut dyn Device,
}

impl Means<'_, '_> {
    /// Runs `act` on the device model, as if from inside: it may start DMA.
    #[inline(always)]
    pub fn with_device<R>(&mut self, act: impl FnOnce(&mut dyn Device, &mut dyn DeviceBus) -> R) -> R {
        act(self.device, &mut Bus { core: self.core, cx: self.cx })
    }

    /// Resets the device, or a function and its virtual functions.
    pub fn reset(&mut self, reset: Reset) {
        if let Reset::Function(function) = reset {
            self.reset_virtual_functions(function);
        }
        self.core.reset(self.cx, reset);
        self.with_device(|device, bus| device.reset(bus, reset));
    }

    /// Resets the virtual functions of a physical one that is reset or has disabled them.
    pub fn reset_virtual_functions(&mut self, of: FunctionIndex) {
        for function in self.core.registers.virtual_functions(of) {
            self.reset(Reset::Function(function));
        }
    }

    /// Sends interrupts that were pending while masked.
    pub fn send_unmasked(&mut self, function: FunctionIndex) {
        for message in self.core.registers.unmasked(function) {
            self.core.send_interrupt(self.cx, function, message);
        }
    }
}
