//! A device's view of the fabric.

use platform::device::{DeviceBus, Dma, FunctionIndex, Token};
use platform::ethernet::{EthernetBus, EthernetPort};
use units::Time;
use wire::pcie::config::ConfigSpace;

use super::{Core, EndpointEvent};
use crate::wires::Context;

/// A device's view of the fabric while it handles an event.
pub(super) struct Bus<'a, 'b> {
    pub(super) core: &'a mut Core,
    pub(super) cx: &'a mut Context<'b>,
}

impl DeviceBus for Bus<'_, '_> {
    fn now(&self) -> Time {
        self.cx.scheduler.now()
    }

    fn read(&mut self, request: Dma) {
        match self.core.master(request.function) {
            Some((port, end, requester)) => port.read(self.cx, end, requester, request),
            None => self.core.requester_of(request.function).refuse_read(self.cx, request),
        }
    }

    fn write(&mut self, request: Dma, data: &[u8]) {
        let Some((port, end, requester)) = self.core.master(request.function) else {
            // A function without bus master enable sends nothing, and its write is lost.
            let port = self.core.requester_of(request.function);
            let event = EndpointEvent::WriteDone {
                token: request.token,
                port: port.life().port,
                of: port.function_life(request.function),
            };
            self.cx.scheduler.at(self.cx.scheduler.now(), self.core.event(event));
            return;
        };
        port.write(self.cx, end, requester, request, data);
    }

    fn interrupt(&mut self, function: FunctionIndex, vector: u16) {
        if let Some(message) = self.core.registers.message(function, vector) {
            self.core.send_interrupt(self.cx, function, message);
        }
    }

    fn set_interrupt_status(&mut self, function: FunctionIndex, pending: bool) {
        self.core.registers.config_mut(function).set_interrupt_status(pending);
        self.core.drive_lines(self.cx);
    }

    fn wake_at(&mut self, when: Time, token: Token) {
        let event = EndpointEvent::Timer { token, epoch: self.core.epoch() };
        self.cx.scheduler.at(when, self.core.event(event));
    }

    fn config(&self, function: FunctionIndex) -> &ConfigSpace {
        self.core.registers.config(function)
    }

    fn ethernet(&mut self) -> Option<&mut dyn EthernetBus> {
        Some(self)
    }
}

impl EthernetBus for Bus<'_, '_> {
    fn send(&mut self, port: EthernetPort, ready: Time, frame: &[u8]) -> Option<Time> {
        self.cx.wires.ethernet.send_from_device(self.cx.scheduler, self.core.id(), port, ready, frame)
    }

    fn has_carrier(&self, port: EthernetPort) -> bool {
        self.cx.wires.ethernet.has_carrier(self.core.id(), port)
    }
}
