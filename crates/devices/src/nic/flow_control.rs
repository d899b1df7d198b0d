//! Flow control at the Ethernet ports (IEEE 802.3, annex 31B): a NIC whose packet memory fills up asks its link partner
//! to pause, and pauses when asked itself.

use platform::device::DeviceBus;
use units::{BitRate, Time};
use wire::ethernet::{EtherType, EthernetHeader, Pause};
use wire::nic::registers::counter;

use super::function::NicFunction;
use super::params::{FlowControl, NicParams};

/// Whether a frame is a MAC control frame, which ends at the port and reaches no function.
pub fn is_control(frame: &[u8]) -> bool {
    EthernetHeader::parse(frame).is_ok_and(|(header, _)| header.ether_type == EtherType::CONTROL)
}

/// Pauses that the ports have requested, and the limits for requesting them.
pub struct Pauses {
    limits: Option<FlowControl>,
    rate: BitRate,
    /// By port: until when the link partner is asked to pause.
    asked_until: Vec<Time>,
}

impl Pauses {
    pub fn new(nic: &NicParams) -> Self {
        let asked_until = vec![Time::ZERO; usize::from(nic.ports)];
        Self { limits: nic.flow_control, rate: nic.rate, asked_until }
    }

    /// Until when a control frame asks this port to pause.
    pub fn asked(&self, now: Time, frame: &[u8]) -> Option<Time> {
        self.limits.and_then(|_| Pause::parse(frame)).map(|pause| now + pause.time(self.rate))
    }

    /// Called for each received frame; `first` is the first function of its port. Asks the link partner to pause if the
    /// `held` bytes of packet memory exceed the limit.
    pub fn ask_to_stop(&mut self, bus: &mut dyn DeviceBus, first: &NicFunction, held: u32) {
        let Some(limits) = self.limits else { return };
        // Checked first, as nearly every frame ends here.
        if held < limits.stop {
            return;
        }
        let asked_until = &mut self.asked_until[usize::from(first.port().0)];
        let now = bus.now();
        let longest = Pause::LONGEST.time(self.rate);
        // The pause is renewed after half of its time, before it expires.
        if *asked_until > now + longest / 2 {
            return;
        }
        *asked_until = now + longest;
        send(bus, first, Pause::LONGEST);
    }

    /// Lets paused link partners continue once enough packets have moved from the device to memory.
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
