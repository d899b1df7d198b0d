//! Flow control at the Ethernet ports (IEEE 802.3, annex 31B): a NIC whose packet memory fills asks the other end of the
//! cable to send nothing, and sends nothing while it is asked.

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use wire::ethernet::{EtherType, EthernetHeader, Pause};
use wire::nic::registers::counter;

use super::Nic;

/// When a NIC asks for a pause, and when it takes that back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowControl {
    /// Received bytes in the device from which on the other end is asked to stop.
    pub stop: u32,
    /// Bytes at which it may go on.
    pub go_on: u32,
}

impl Nic {
    /// Takes a frame that is for the port itself: it goes to no function.
    pub(super) fn take_control_frame(
        &mut self,
        bus: &mut dyn DeviceBus,
        port: EthernetPort,
        function: u8,
        frame: &[u8],
    ) -> bool {
        if !EthernetHeader::parse(frame).is_ok_and(|(header, _)| header.ether_type == EtherType::CONTROL) {
            return false;
        }
        if self.params.flow_control.is_some()
            && let Some(pause) = Pause::parse(frame)
        {
            self.handle.add(function, counter::RX_PAUSES, 1);
            let until = bus.now() + pause.time(self.params.rate);
            self.mux_pause(bus, port, until);
        }
        true
    }

    /// A frame has come by a port: if the device gets full, the other end is asked to stop.
    pub(super) fn ask_to_stop(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, function: u8) {
        let Some(limits) = self.params.flow_control else { return };
        // Before all else, as nearly every frame ends here.
        if self.receiver.held() < limits.stop {
            return;
        }
        let asked_until = &mut self.asked_until[usize::from(port.0)];
        let now = bus.now();
        let longest = Pause::LONGEST.time(self.params.rate);
        // Asked again in time, before what was asked is over.
        if *asked_until > now + longest / 2 {
            return;
        }
        *asked_until = now + longest;
        self.send_pause(bus, port, function, Pause::LONGEST);
    }

    /// Packets have left the device for memory: who was asked to stop may go on.
    pub(super) fn let_go_on(&mut self, bus: &mut dyn DeviceBus) {
        let Some(limits) = self.params.flow_control else { return };
        if self.receiver.held() > limits.go_on {
            return;
        }
        for port in 0..self.asked_until.len() {
            let asked_until = &mut self.asked_until[port];
            if *asked_until > bus.now() {
                *asked_until = bus.now();
                let port = EthernetPort(port as u8);
                if let Some(function) = self.function_of(port) {
                    self.send_pause(bus, port, function, Pause::GO_ON);
                }
            }
        }
    }

    fn send_pause(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, function: u8, pause: Pause) {
        let frame = pause.frame(self.functions[usize::from(function)].params.mac);
        let now = bus.now();
        if bus.ethernet().and_then(|ethernet| ethernet.send(port, now, &frame)).is_some() {
            self.handle.add(function, counter::TX_PAUSES, 1);
        }
    }
}
