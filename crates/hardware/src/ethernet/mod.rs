//! Ethernet between devices: cables, switches, captures.
//!
//! A frame costs one event per hop. A sender reserves its cable from the time at which the frame is ready, so a queue
//! is represented by how far the cable is ahead of the clock. A frame occupies the cable for preamble, frame and
//! inter-frame gap (IEEE 802.3, clause 4). Receivers store and forward: a frame arrives with its last bit.
//!
//! Flow control (PAUSE) is implemented by stations; switches have none. Without it, frames that exceed the receiver's
//! rate are dropped and counted there.

mod cable;
mod capture;
mod event;
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
pub use event::{CableEnd, CableId, EthernetEvent, EthernetSwitchId, Plug};
pub use faults::FaultParams;
pub use switch::{EthernetSwitchCounters, EthernetSwitchParams};

use crate::endpoint::EndpointId;
use crate::event::Event;
use cable::Cable;
pub use frames::FrameId;
use frames::FramePool;
use switch::EthernetSwitch;

/// A frame delivered to a device.
pub struct ArrivedFrame {
    /// The receiving device.
    pub endpoint: EndpointId,
    /// The receiving port.
    pub port: EthernetPort,
    /// Its bytes; return them with [`Ethernet::recycle`].
    pub frame: Vec<u8>,
}

/// All cables and switches of a simulation.
#[derive(Default)]
pub struct Ethernet {
    frames: FramePool,
    cables: Vec<Cable>,
    switches: Vec<EthernetSwitch>,
    /// By device: the cable at each of its ports.
    devices: Vec<Vec<Option<CableEnd>>>,
}

impl Ethernet {
    /// Adds a switch without cables. Switches are numbered in this order.
    pub fn add_switch(&mut self, params: EthernetSwitchParams) -> EthernetSwitchId {
        self.switches.push(EthernetSwitch::new(params));
        EthernetSwitchId(self.switches.len() as u16 - 1)
    }

    /// Connects two ports.
    ///
    /// # Panics
    /// If a port already has a cable, or its switch does not have it.
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

    /// Takes a cable down or up. Returns the device ports that notice.
    ///
    /// Frames in flight on a cable that goes down are lost.
    pub fn set_up(&mut self, cable: CableId, up: bool) -> Vec<(EndpointId, EthernetPort)> {
        let cable = &mut self.cables[usize::from(cable.0)];
        if cable.is_up == up {
            return Vec::new();
        }
        cable.is_up = up;
        cable.epoch.end();
        let device = |plug: &Plug| match *plug {
            Plug::Device(device, port, _) => Some((device, port)),
            Plug::Switch(..) => None,
        };
        cable.ends.iter().filter_map(device).collect()
    }

    /// Sets the bit error rate of a cable; errors are drawn from `seed`.
    pub fn set_bit_error_rate(&mut self, cable: CableId, rate: f64, seed: Seed) {
        self.cables[usize::from(cable.0)].set_bit_error_rate(rate, seed);
    }

    /// Captures everything that passes an end of a cable.
    pub fn capture(&mut self, at: CableEnd, name: &str, into: Rc<RefCell<Capture>>) {
        let cable = &mut self.cables[usize::from(at.cable.0)];
        cable.taps[usize::from(at.end)] = Some(capture::CaptureTap::new(name, cable.params.rate, into));
    }

    /// Records every frame that a cable carries from now on.
    pub fn trace(&mut self, cable: CableId, trace: Trace<PassedFrame>) {
        self.cables[usize::from(cable.0)].trace = trace;
    }

    /// All cables, in order of connection.
    pub fn cables(&self) -> impl Iterator<Item = CableId> + use<> {
        (0..self.cables.len() as u16).map(CableId)
    }

    /// Counters of a cable in the direction from one of its ends.
    pub fn sent(&self, from: CableEnd) -> &CableCounters {
        self.cable(from.cable).counters(from.end)
    }

    /// How long the wire from one of a cable's ends was busy up to `now`, preambles and gaps included.
    pub fn busy(&self, from: CableEnd, now: Time) -> Duration {
        self.cable(from.cable).busy(from.end, now)
    }

    /// What a switch has counted so far.
    pub fn switch_counters(&self, switch: EthernetSwitchId) -> &EthernetSwitchCounters {
        self.switches[usize::from(switch.0)].counters()
    }

    fn cable(&self, id: CableId) -> &Cable {
        &self.cables[usize::from(id.0)]
    }

    /// Sends a frame from a device. Returns when its last bit has left; `None` without a carrier.
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

    /// Sends a frame from an end of a cable, not before `ready` and behind earlier frames.
    pub fn send(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        from: CableEnd,
        ready: Time,
        frame: &[u8],
    ) -> Option<Time> {
        self.cables[usize::from(from.cable.0)].send(scheduler, &mut self.frames, from, ready, frame)
    }

    /// Handles an event. Returns the frame if it is for a device.
    pub fn handle(&mut self, scheduler: &mut Scheduler<Event>, event: EthernetEvent) -> Option<ArrivedFrame> {
        let EthernetEvent::Arrive { at, frame } = event;
        let (mut bytes, epoch) = self.frames.take(frame);
        let cable = &mut self.cables[usize::from(at.cable.0)];
        let arrives = cable.is_up && cable.epoch == epoch;
        cable.count_end(at.other().end, arrives);
        if !arrives {
            self.frames.recycle(bytes);
            return None;
        }
        let cable = &self.cables[usize::from(at.cable.0)];
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

    /// Takes the buffer of a delivered frame back for reuse.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.frames.recycle(bytes);
    }

    /// Frames that were sent or duplicated and have neither arrived nor been counted as lost, less those in flight: none, unless
    /// the simulator is wrong.
    pub fn unaccounted(&self) -> i64 {
        let directions = self.cables.iter().flat_map(|cable| [0, 1].map(|end| cable.counters(end)));
        let open = directions
            .map(|way| (way.frames + way.duplicated) as i64 - (way.arrived + way.cut + way.lost) as i64);
        open.sum::<i64>() - self.in_flight() as i64
    }

    /// Frames in flight on cables.
    pub fn in_flight(&self) -> usize {
        self.frames.in_flight()
    }
}
