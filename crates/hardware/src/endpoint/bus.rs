//! What a device sees of the fabric.

use engine::Scheduler;
use platform::device::{DeviceBus, Dma, FunctionIndex, Token};
use platform::ethernet::{EthernetBus, EthernetPort};
use units::Time;
use wire::pcie::config::ConfigSpace;

use super::{Core, EndpointEvent};
use crate::event::Event;
use crate::wires::Wires;

/// A device's view of the fabric while it reacts to something.
pub(super) struct Bus<'a> {
    pub(super) core: &'a mut Core,
    pub(super) wires: &'a mut Wires,
    pub(super) scheduler: &'a mut Scheduler<Event>,
}

impl DeviceBus for Bus<'_> {
    fn now(&self) -> Time {
        self.scheduler.now()
    }

    fn read(&mut self, request: Dma) {
        let Some((end, requester)) = self.core.master(request.function) else {
            self.core.requester_of(request.function).refuse_read(self.scheduler, request);
            return;
        };
        let port = self.core.requester_of(request.function);
        port.read(self.wires, self.scheduler, end, requester, request);
    }

    fn write(&mut self, request: Dma, data: &[u8]) {
        let Some((end, requester)) = self.core.master(request.function) else {
            // A function that may not master the bus sends nothing, and its write is lost.
            let port = self.core.requester_of(request.function);
            let event = EndpointEvent::WriteDone {
                token: request.token,
                of: port.life(),
                function: port.function_life(request.function),
            };
            self.scheduler.at(self.scheduler.now(), Event::Endpoint(self.core.id, event));
            return;
        };
        let port = self.core.requester_of(request.function);
        port.write(self.wires, self.scheduler, end, requester, request, data);
    }

    fn interrupt(&mut self, function: FunctionIndex, vector: u16) {
        if let Some(message) = self.core.registers.message(function, vector) {
            self.core.send_interrupt(self.wires, self.scheduler, function, message);
        }
    }

    fn set_interrupt_status(&mut self, function: FunctionIndex, pending: bool) {
        self.core.registers.config_mut(function).set_interrupt_status(pending);
        self.core.drive_lines(self.wires, self.scheduler);
    }

    fn wake_at(&mut self, when: Time, token: Token) {
        let event = EndpointEvent::Timer { token, epoch: self.core.epoch };
        self.scheduler.at(when, Event::Endpoint(self.core.id, event));
    }

    fn config(&self, function: FunctionIndex) -> &ConfigSpace {
        self.core.registers.config(function)
    }

    fn ethernet(&mut self) -> Option<&mut dyn EthernetBus> {
        Some(self)
    }
}

impl EthernetBus for Bus<'_> {
    fn send(&mut self, port: EthernetPort, ready: Time, frame: &[u8]) -> Option<Time> {
        self.wires.ethernet.send_from_device(self.scheduler, self.core.id, port, ready, frame)
    }

    fn has_carrier(&self, port: EthernetPort) -> bool {
        self.wires.ethernet.has_carrier(self.core.id, port)
    }
}
