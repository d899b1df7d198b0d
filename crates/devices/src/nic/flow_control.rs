//! Flow control at the Ethernet ports (IEEE 802.3, annex 31B): a NIC whose packet memory fills asks the other end of the
//! cable to send nothing, and sends nothing while it is asked.

use platform::device::DeviceBus;
use units::{BitRate, Time};
use wire::ethernet::{EtherType, EthernetHeader, Pause};
use wire::nic::registers::counter;

use super::function::NicFunction;
use super::params::{FlowControl, NicParams};

/// Whether a frame is for the port itself: it goes to no function.
pub fn is_control(frame: &[u8]) -> bool {
    EthernetHeader::parse(frame).is_ok_and(|(header, _)| header.ether_type == EtherType::CONTROL)
}

/// What the ports have asked for, and understand of what they are asked.
pub struct Pauses {
    limits: Option<FlowControl>,
    rate: BitRate,
    /// By port, until when the other end of its cable is asked to send nothing.
    asked_until: Vec<Time>,
}

impl Pauses {
    pub fn new(nic: &NicParams) -> Self {
        let asked_until = vec![Time::ZERO; usize::from(nic.ports)];
        Self { limits: nic.flow_control, rate: nic.rate, asked_until }
    }

    /// Until when a control frame asks that nothing be sent.
    pub fn asked(&self, now: Time, frame: &[u8]) -> Option<Time> {
        self.limits.and_then(|_| Pause::parse(frame)).map(|pause| now + pause.time(self.rate))
    }

    /// A frame has come by the port of `first`, its first function, and `held` bytes are in the device: if it gets full, the
    /// other end is asked to stop.
    pub fn ask_to_stop(&mut self, bus: &mut dyn DeviceBus, first: &NicFunction, held: u32) {
        let Some(limits) = self.limits else { return };
        // Before all else, as nearly every frame ends here.
        if held < limits.stop {
            return;
        }
        let asked_until = &mut self.asked_until[usize::from(first.port().0)];
        let now = bus.now();
        let longest = Pause::LONGEST.time(self.rate);
        // Asked again in time, before what was asked is over.
        if *asked_until > now + longest / 2 {
            return;
        }
        *asked_until = now + longest;
        send(bus, first, Pause::LONGEST);
    }

    /// Packets have left the device for memory: who was asked to stop may go on.
    pub fn let_go_on(&mut self, bus: &mut dyn DeviceBus, functions: &[NicFunction], held: u32) {
        if self.limits.is_none_or(|limits| held > limits.go_on) {
            return;
        }
        for (port, asked_until) in self.asked_until.iter_mut().enumerate() {
            if *asked_until > bus.now() {
                *asked_until = bus.now();
                if let Some(first) = functions.iter().find(|f| usize::from(f.port().0) == port) {
                    send(bus, first, Pause::GO_ON);
                }
            }
        }
    }
}

fn send(bus: &mut dyn DeviceBus, of: &NicFunction, pause: Pause) {
    let (now, frame) = (bus.now(), pause.frame(of.params.mac));
    if bus.ethernet().and_then(|ethernet| ethernet.send(of.port(), now, &frame)).is_some() {
        of.count(counter::TX_PAUSES, 1);
    }
}
