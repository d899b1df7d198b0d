//! Loopback inside the device: frames go from one of two ports to the other at the ports' rate, without a wire.

use std::collections::VecDeque;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::{BitRate, Bytes, Duration, Time};

use super::params::NicParams;
use super::spare::Spare;
use super::subnets;
use super::token::{Kind, Note};

/// Parameters of the loopback: frames go from port 0 to port 1 and back inside the device instead of to the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopbackParams {
    /// From a frame's last byte to its arrival at the other port.
    pub latency: Duration,
    /// Frames arrive in the other of two subnets, see `subnets`.
    pub between_subnets: bool,
}

/// Loopback between the ports of a NIC.
pub struct Around {
    rate: BitRate,
    params: LoopbackParams,
    /// Frames in flight, by destination port.
    ways: [PortQueue; 2],
    spare: Spare,
}

#[derive(Default)]
struct PortQueue {
    frames: VecDeque<(Time, Vec<u8>)>,
    /// When the last byte of the last frame has left.
    free: Time,
}

impl Around {
    /// The loopback of a NIC, if it has one.
    pub fn new(nic: &NicParams) -> Option<Self> {
        let (ways, spare) = Default::default();
        nic.loopback.map(|params| Self { rate: nic.rate, params, ways, spare })
    }

    /// Sends a frame through the loopback, not before `ready`. Returns when it has left.
    pub fn send(&mut self, bus: &mut dyn DeviceBus, from: EthernetPort, ready: Time, frame: &[u8]) -> Time {
        let to = from.0 & 1 ^ 1;
        let way = &mut self.ways[usize::from(to)];
        let left = ready.max(way.free) + self.rate.time_for(Bytes::new(frame.len() as u64));
        way.free = left;
        let arrives = left + self.params.latency;
        let mut bytes = self.spare.copy(frame);
        if self.params.between_subnets {
            subnets::swap(&mut bytes);
        }
        way.frames.push_back((arrives, bytes));
        bus.wake_at(arrives, Note::of_device(Kind::Loopback).with(to.into(), 0).token());
        left
    }

    /// Takes the frame that has arrived at a port.
    pub fn arrived(&mut self, now: Time, to: EthernetPort) -> Option<Vec<u8>> {
        let frames = &mut self.ways.get_mut(usize::from(to.0))?.frames;
        let is_here = frames.front().is_some_and(|(at, _)| *at <= now);
        if is_here { frames.pop_front().map(|(_, frame)| frame) } else { None }
    }

    /// Recycles the buffer of a frame that arrived.
    pub fn put_back(&mut self, frame: Vec<u8>) {
        self.spare.put(frame);
    }
}
