//! Ethernet between devices: cables, switches, captures.
//!
//! A frame costs one event for each hop: a sender reserves its cable from the moment the frame is ready, so that a
//! queue is the time by which a cable is ahead of the clock. What a frame takes of a cable is preamble, frame
//! and inter-frame gap (IEEE 802.3, clause 4). Receivers store and forward: a frame arrives with its last bit.
//!
//! Flow control (PAUSE) is the stations' business; switches have none. Without it, who sends faster than the receiver takes loses
//! frames, counted there.

mod cable;
mod capture;
mod faults;
mod frames;
mod switch;

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Scheduler, Seed, Trace};
use platform::ethernet::EthernetPort;
use units::{Duration, Time};
use wire::pcap::Direction;

pub use cable::{CableCounters, CableParams, PassedFrame};
pub use capture::Capture;
pub use faults::FaultParams;
pub use switch::{EthernetSwitchCounters, EthernetSwitchParams};

use crate::endpoint::EndpointId;
use crate::event::Event;
use cable::Cable;
pub use frames::FrameId;
use frames::FramePool;
use switch::EthernetSwitch;

/// A cable between two ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CableId(pub u16);

/// An end of a cable: 0 or 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CableEnd {
    /// The cable, in the order in which cables were laid.
    pub cable: CableId,
    /// 0 or 1, in the order in which the cable's ends were named.
    pub end: u8,
}

impl CableEnd {
    /// The other end of its cable.
    pub const fn other(self) -> Self {
        Self { end: 1 - self.end, ..self }
    }
}

/// An Ethernet switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EthernetSwitchId(pub u16);

/// What a cable can be plugged into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plug {
    /// A port of a device, and its constant receive latency.
    Device(EndpointId, EthernetPort, Duration),
    /// A port of a switch.
    Switch(EthernetSwitchId, u8),
}

/// What can happen on the Ethernet.
#[derive(Clone, Copy, Debug)]
pub enum EthernetEvent {
    /// The last bit of a frame arrives.
    Arrive {
        /// Where.
        at: CableEnd,
        /// The frame, in the arena of those in flight.
        frame: FrameId,
    },
}

/// A frame for a device.
pub struct ArrivedFrame {
    /// To whom.
    pub endpoint: EndpointId,
    /// At which port.
    pub port: EthernetPort,
    /// Its bytes, to be given back with [`Ethernet::recycle`].
    pub frame: Vec<u8>,
}

/// All cables and switches of a simulation.
#[derive(Default)]
pub struct Ethernet {
    frames: FramePool,
    cables: Vec<Cable>,
    switches: Vec<EthernetSwitch>,
    /// For each device, the cable at each of its ports.
    devices: Vec<Vec<Option<CableEnd>>>,
}

impl Ethernet {
    /// Adds a switch.
    pub fn add_switch(&mut self, params: EthernetSwitchParams) -> EthernetSwitchId {
        self.switches.push(EthernetSwitch::new(params));
        EthernetSwitchId(self.switches.len() as u16 - 1)
    }

    /// Connects two ports.
    ///
    /// # Panics
    /// If one of the ports has a cable already, or is beyond those of its switch.
    pub fn connect(&mut self, ends: [Plug; 2], params: CableParams) -> CableId {
        let id = CableId(self.cables.len() as u16);
        for (number, plug) in ends.into_iter().enumerate() {
            let end = CableEnd { cable: id, end: number as u8 };
            let place = match plug {
                Plug::Device(device, port, _) => self.device_port(device, port),
                Plug::Switch(switch, port) => self.switches[usize::from(switch.0)].plug_mut(port),
            };
            assert!(place.is_none(), "a port has one cable");
            *place = Some(end);
        }
        self.cables.push(Cable::new(ends, params));
        id
    }

    fn device_port(&mut self, device: EndpointId, port: EthernetPort) -> &mut Option<CableEnd> {
        let (device, port) = (usize::from(device.0), usize::from(port.0));
        self.devices.resize_with(self.devices.len().max(device + 1), Vec::new);
        let ports = &mut self.devices[device];
        ports.resize(ports.len().max(port + 1), None);
        &mut ports[port]
    }

    /// The cable at a device's port.
    pub fn cable_at(&self, device: EndpointId, port: EthernetPort) -> Option<CableEnd> {
        *self.devices.get(usize::from(device.0))?.get(usize::from(port.0))?
    }

    /// Whether a device's port has a cable that is up.
    pub fn has_carrier(&self, device: EndpointId, port: EthernetPort) -> bool {
        self.cable_at(device, port).is_some_and(|end| self.cable(end.cable).is_up)
    }

    /// Takes a cable down or up. Gives the device ports that notice.
    ///
    /// Frames that are on the cable when it goes down are lost.
    pub fn set_up(&mut self, cable: CableId, up: bool) -> Vec<(EndpointId, EthernetPort)> {
        let cable = &mut self.cables[usize::from(cable.0)];
        if cable.is_up == up {
            return Vec::new();
        }
        cable.is_up = up;
        cable.life += 1;
        let device = |plug: &Plug| match *plug {
            Plug::Device(device, port, _) => Some((device, port)),
            Plug::Switch(..) => None,
        };
        cable.ends.iter().filter_map(device).collect()
    }

    /// Lets bits of a cable flip with a probability from now on, drawn from `seed`.
    pub fn set_bit_error_rate(&mut self, cable: CableId, rate: f64, seed: Seed) {
        self.cables[usize::from(cable.0)].set_bit_error_rate(rate, seed);
    }

    /// Records everything that passes an end of a cable.
    pub fn capture(&mut self, at: CableEnd, name: &str, into: Rc<RefCell<Capture>>) {
        let cable = &mut self.cables[usize::from(at.cable.0)];
        cable.taps[usize::from(at.end)] = Some(capture::CaptureTap::new(name, cable.params.rate, into));
    }

    /// Records every frame that a cable carries from now on.
    pub fn trace(&mut self, cable: CableId, trace: Trace<PassedFrame>) {
        self.cables[usize::from(cable.0)].trace = trace;
    }

    /// The cables.
    pub fn cables(&self) -> impl Iterator<Item = CableId> + use<> {
        (0..self.cables.len() as u16).map(CableId)
    }

    /// What a cable has carried from one of its ends.
    pub fn sent(&self, from: CableEnd) -> &CableCounters {
        self.cable(from.cable).counters(from.end)
    }

    /// What a switch has done.
    pub fn switch_counters(&self, switch: EthernetSwitchId) -> &EthernetSwitchCounters {
        self.switches[usize::from(switch.0)].counters()
    }

    fn cable(&self, id: CableId) -> &Cable {
        &self.cables[usize::from(id.0)]
    }

    /// A device sends a frame. Returns when its last bit has left; `None` without a carrier.
    pub fn send_from_device(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        device: EndpointId,
        port: EthernetPort,
        ready: Time,
        frame: &[u8],
    ) -> Option<Time> {
        let end = self.cable_at(device, port)?;
        self.send(scheduler, end, ready, frame)
    }

    /// Sends a frame from an end of a cable, behind those that were sent before and not before `ready`.
    pub fn send(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        from: CableEnd,
        ready: Time,
        frame: &[u8],
    ) -> Option<Time> {
        self.cables[usize::from(from.cable.0)].send(scheduler, &mut self.frames, from, ready, frame)
    }

    /// Something is due. Gives the frame that arrived, if it is for a device.
    pub fn handle(&mut self, scheduler: &mut Scheduler<Event>, event: EthernetEvent) -> Option<ArrivedFrame> {
        let EthernetEvent::Arrive { at, frame } = event;
        let (mut bytes, life) = self.frames.take(frame);
        let cable = &self.cables[usize::from(at.cable.0)];
        if !cable.is_up || cable.life != life {
            self.frames.recycle(bytes);
            return None;
        }
        let plug = cable.ends[usize::from(at.end)];
        if let Some(tap) = &cable.taps[usize::from(at.end)] {
            let latency = if let Plug::Device(_, _, latency) = plug { latency } else { Duration::ZERO };
            tap.record(scheduler.now() - latency, scheduler.now() - latency, Direction::In, &bytes);
        }
        match plug {
            Plug::Device(endpoint, port, _) => Some(ArrivedFrame { endpoint, port, frame: bytes }),
            Plug::Switch(switch, port) => {
                let Self { frames, cables, switches, .. } = self;
                switches[usize::from(switch.0)].forward(
                    scheduler.now(),
                    port,
                    &mut bytes,
                    |end, ready, bytes| {
                        cables[usize::from(end.cable.0)].send(scheduler, frames, end, ready, bytes)
                    },
                );
                self.frames.recycle(bytes);
                None
            }
        }
    }

    /// Takes the bytes of a delivered frame back for the next one.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.frames.recycle(bytes);
    }

    /// Frames that are on cables.
    pub fn in_flight(&self) -> usize {
        self.frames.in_flight()
    }
}
