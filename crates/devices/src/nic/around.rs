//! Frames that go round inside the device: from one of two ports to the other, at the ports' rate, without a wire.

use std::collections::VecDeque;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::{Bytes, Duration, Time};

use super::token::{Kind, Note};
use super::{Nic, subnets};

/// Frames on their way, by the port that will have them.
#[derive(Default)]
pub struct Around {
    ports: [Round; 2],
}

#[derive(Default)]
struct Round {
    frames: VecDeque<(Time, Vec<u8>)>,
    /// When the last one's last byte has left.
    free: Time,
}

impl Nic {
    /// Sends a frame round, not before `ready`. Gives when it has left.
    pub(super) fn send_around(
        &mut self,
        bus: &mut dyn DeviceBus,
        from: EthernetPort,
        ready: Time,
        latency: Duration,
        frame: &[u8],
    ) -> Time {
        let to = usize::from(from.0 & 1 ^ 1);
        let way = &mut self.around.ports[to];
        let left = ready.max(way.free) + self.params.rate.time_for(Bytes::new(frame.len() as u64));
        way.free = left;
        let arrives = left + latency;
        let mut bytes = self.sender.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        if self.params.loop_subnets {
            subnets::swap(&mut bytes);
        }
        way.frames.push_back((arrives, bytes));
        bus.wake_at(arrives, Note::new(Kind::Loopback, 0, 0, 0).with(to as u16, 0).token());
        left
    }

    /// A frame has gone round.
    pub(super) fn come_round(&mut self, bus: &mut dyn DeviceBus, to: u16) {
        let Some(way) = self.around.ports.get_mut(usize::from(to)) else { return };
        if way.frames.front().is_some_and(|(at, _)| *at <= bus.now())
            && let Some((_, frame)) = way.frames.pop_front()
        {
            self.receive(bus, EthernetPort(to as u8), &frame);
            self.sender.spare.push(frame);
        }
    }
}
