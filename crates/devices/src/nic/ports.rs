//! The transmit path from complete frames onwards: frames from DMA or programmed I/O go to the wire, into the loopback,
//! or to another function.
//!
//! A frame from DMA occupies packet memory until it has left.

use std::collections::VecDeque;
use std::rc::Rc;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::{Duration, Time};
use wire::ethernet::FCS_LEN;
use wire::nic::registers::counter;

use super::NicHandle;
use super::around::Around;
use super::function::{NicFunction, Sent};
use super::kpio::{Due, Kpio};
use super::mux::{FromDma, Mux, Turn};
use super::params::NicParams;
use super::spare::Spare;
use super::switch::Switch;
use super::token::{Kind, Note};

/// Transmit packet memory in use.
#[derive(Default)]
pub struct PacketMemory {
    held: u32,
    /// Frames queued for the wire: when each will have left, and its bytes.
    leaving: VecDeque<(Time, u32)>,
}

impl PacketMemory {
    /// Frees the memory of frames that have left by now.
    pub fn pass(&mut self, now: Time) {
        while let Some(&(_, bytes)) = self.leaving.front().filter(|(at, _)| *at <= now) {
            self.held -= bytes;
            self.leaving.pop_front();
        }
    }

    /// Whether a packet fits into a memory of `size` bytes. A single packet always does.
    pub fn has_room(&self, bytes: u32, size: u32) -> bool {
        self.held == 0 || self.held + bytes <= size
    }

    /// When the next frame will have left.
    pub fn next_leaves(&self) -> Option<Time> {
        self.leaving.front().map(|&(at, _)| at)
    }

    pub fn take(&mut self, bytes: u32) {
        self.held += bytes;
    }

    pub fn free(&mut self, bytes: u32) {
        self.held -= bytes;
    }

    fn free_at(&mut self, at: Time, bytes: u32) {
        self.leaving.push_back((at, bytes));
    }
}

/// The device side of the Ethernet ports.
pub struct Ports {
    nic: Rc<NicParams>,
    pub memory: PacketMemory,
    pub switch: Switch,
    /// Queues for programmed I/O.
    pub kpio: Option<Kpio>,
    /// Multiplexers, by port.
    muxes: Vec<Mux>,
    /// Loopback that replaces the wire.
    pub around: Option<Around>,
    spare: Spare,
}

impl Ports {
    pub fn new(nic: &Rc<NicParams>, handle: &NicHandle, functions: usize) -> Self {
        Self {
            nic: Rc::clone(nic),
            memory: PacketMemory::default(),
            switch: Switch::new(nic, functions),
            // Virtual functions have higher numbers and no kPIO queues.
            kpio: nic.kpio.map(|kpio| Kpio::new(kpio, nic.functions.len(), nic.max_frame, handle.clone())),
            muxes: (0..nic.ports).map(|_| Mux::default()).collect(),
            around: Around::new(nic),
            spare: Spare::default(),
        }
    }

    /// Drops all frames and keeps the functions' settings.
    pub fn forget(&mut self) {
        self.memory = PacketMemory::default();
        self.switch.forget_frames();
        self.muxes.fill_with(Mux::default);
        self.around = Around::new(&self.nic);
    }

    /// Resets a function.
    pub fn reset_function(&mut self, functions: &[NicFunction], function: u8) {
        if let Some(kpio) = &mut self.kpio {
            kpio.reset(function);
            self.count_queues(functions);
        }
        let is_virtual = functions[usize::from(function)].physical.is_some();
        self.switch.rules.forget(function, is_virtual);
    }

    fn mux(&mut self, port: EthernetPort) -> &mut Mux {
        &mut self.muxes[usize::from(port.0)]
    }

    /// Whether a port's frames go through its multiplexer.
    fn is_muxed(&self, port: EthernetPort) -> bool {
        self.nic.flow_control.is_some() || self.muxes[usize::from(port.0)].is_needed()
    }

    /// Sends a complete frame that occupies `held` bytes of packet memory, at once or through the multiplexer.
    pub fn send(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        function: u8,
        frame: &[u8],
        held: u32,
    ) {
        let port = functions[usize::from(function)].port();
        if self.is_muxed(port) {
            let bytes = self.spare.copy(frame);
            self.mux(port).list_dma(FromDma::Frame { function, bytes, held });
            self.pump(bus, functions, port);
        } else {
            let now = bus.now();
            self.hand_on(bus, functions, function, frame, now, held);
        }
    }

    /// All frames of a packet have been handed over: completes its descriptors, in order.
    pub fn sent(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], sent: Sent) {
        let of = &mut functions[usize::from(sent.function)];
        let port = of.port();
        if self.is_muxed(port) {
            self.mux(port).list_dma(FromDma::Sent(sent));
            self.pump(bus, functions, port);
        } else {
            of.sent(bus, sent);
        }
    }

    /// Hands a frame, not before `ready`, to the wire or to another function behind the same port. Returns when it will
    /// have left on the wire.
    fn hand_on(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &[NicFunction],
        function: u8,
        frame: &[u8],
        ready: Time,
        held: u32,
    ) -> Option<Time> {
        let of = &functions[usize::from(function)];
        if of.is_spoofed(frame) {
            self.memory.free(held);
            of.count(counter::TX_SPOOFED, 1);
            return None;
        }
        let goes_out = functions.len() == 1 || self.switch.send(bus, functions, function, frame);
        let ready = ready.max(bus.now() + self.nic.tx.latency);
        let left = match &mut self.around {
            _ if !goes_out => None,
            Some(around) => Some(around.send(bus, of.port(), ready, frame)),
            None => bus.ethernet().and_then(|ethernet| ethernet.send(of.port(), ready, frame)),
        };
        match left {
            Some(left) => self.memory.free_at(left, held),
            None => self.memory.free(held),
        }
        if left.is_none() && goes_out {
            of.count(counter::TX_NO_CARRIER, 1);
        } else {
            of.count(counter::TX_FRAMES, 1);
            of.count(counter::TX_BYTES, (frame.len() - FCS_LEN) as u64);
        }
        left
    }

    /// A port's link partner requested a pause until then.
    pub fn pause(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        port: EthernetPort,
        until: Time,
    ) {
        self.mux(port).pause(until);
        self.pump(bus, functions, port);
    }

    /// A port's multiplexer asked to be woken now.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], port: EthernetPort) {
        self.mux(port).woken();
        self.pump(bus, functions, port);
    }

    /// Hands on the frames at a port's multiplexer that can leave now.
    fn pump(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], port: EthernetPort) {
        let now = bus.now();
        while let Some(turn) = self.mux(port).next(now) {
            match turn {
                Turn::Dma(FromDma::Sent(sent)) => functions[usize::from(sent.function)].sent(bus, sent),
                Turn::Dma(FromDma::Frame { function, bytes, held }) => {
                    let left = self.hand_on(bus, functions, function, &bytes, now, held);
                    self.taken(port, now, left);
                    self.spare.put(bytes);
                }
                Turn::Kpio { function, queue } => {
                    let frame = self.kpio.as_mut().and_then(|kpio| kpio.take_frame(function, queue));
                    let Some(frame) = frame else { continue };
                    let left = self.hand_on(bus, functions, function, &frame.bytes, frame.at, 0);
                    functions[usize::from(function)].count(counter::KPIO_FRAMES, left.is_some().into());
                    self.taken(port, now, left);
                    if let Some(kpio) = &mut self.kpio {
                        kpio.frame_left(function, queue, frame);
                    }
                    // Makes room for writes that wait in the port, and may end the wait for a missing line.
                    self.drain(bus, functions, function, queue);
                }
                Turn::Wake(at) => {
                    let note = Note::new(Kind::Mux, 0, 0, 0).with(port.0.into(), 0);
                    return bus.wake_at(at, note.token());
                }
            }
        }
    }

    fn taken(&mut self, port: EthernetPort, now: Time, left: Option<Time>) {
        let latency = self.nic.tx.latency;
        if let Some(left) = left {
            self.mux(port).taken(now, left, latency);
        }
    }

    /// Takes a write to a function's programmed I/O windows.
    pub fn write(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        function: u8,
        at: u64,
        data: &[u8],
    ) {
        if let Some(queue) = self.kpio.as_mut().and_then(|kpio| kpio.write(function, at, data)) {
            self.drain(bus, functions, function, queue);
        }
    }

    /// How long a write to the windows waits in the PCIe port.
    pub fn holds(&mut self, now: Time, of: &NicFunction, at: u64) -> Duration {
        let (free, rate) = (self.mux(of.port()).free(), self.nic.rate);
        self.kpio.as_mut().map_or(Duration::ZERO, |kpio| kpio.holds(of.number, at, now, free, rate))
    }

    /// Writes a register if it belongs to programmed I/O. Returns whether it did.
    pub fn set_register(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        function: u8,
        at: u64,
        value: u32,
    ) -> bool {
        let Some(due) = self.kpio.as_mut().and_then(|kpio| kpio.set_register(function, at, value)) else {
            return false;
        };
        match due {
            Due::Count => self.count_queues(functions),
            Due::Drain(queue) => self.drain(bus, functions, function, queue),
            Due::Nothing => {}
        }
        true
    }

    /// A timer of a programmed I/O queue expired.
    pub fn kpio_due(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], note: Note) {
        if self.kpio.as_mut().is_some_and(|kpio| kpio.due(bus, note)) {
            self.drain(bus, functions, note.function, note.queue);
        }
    }

    /// Decodes a programmed I/O queue's lines and passes complete frames to the multiplexer.
    fn drain(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], function: u8, queue: u8) {
        let frames = self.kpio.as_mut().map_or(0, |kpio| kpio.drain(bus, function, queue));
        if frames > 0 {
            let port = functions[usize::from(function)].port();
            (0..frames).for_each(|_| self.mux(port).list_kpio(function, queue));
            self.pump(bus, functions, port);
        }
        if let Some(vector) = self.kpio.as_mut().and_then(|kpio| kpio.report(bus, function, queue)) {
            functions[usize::from(function)].interrupts.raise(bus, vector);
        }
    }

    /// Updates the number of running programmed I/O queues at each port.
    fn count_queues(&mut self, functions: &[NicFunction]) {
        let Some(kpio) = &self.kpio else { return };
        for (port, mux) in self.muxes.iter_mut().enumerate() {
            let here = functions.iter().filter(|function| usize::from(function.port().0) == port);
            mux.set_queues(here.map(|function| kpio.running(function.number)).sum());
        }
    }
}
