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
use super::kpio::Kpio;
use super::mux::{FromDma, Mux, Turn};
use super::params::{NicParams, QueueWindow};
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
    /// Frames from programmed I/O.
    written: Kpio,
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
            written: Kpio::new(nic, handle),
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

    /// Forgets what a function had sent and asked for.
    pub fn reset_function(&mut self, functions: &[NicFunction], function: u8) {
        self.written.reset(function);
        let is_virtual = functions[usize::from(function)].physical.is_some();
        self.switch.rules.forget(function, is_virtual);
    }

    fn mux(&mut self, port: EthernetPort) -> &mut Mux {
        &mut self.muxes[usize::from(port.0)]
    }

    /// Whether a port's frames go through its multiplexer.
    fn is_muxed(&self, port: EthernetPort) -> bool {
        self.nic.flow_control.is_some()
            || self.written.runs_at(port)
            || self.muxes[usize::from(port.0)].holds_dma()
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
        functions: &mut [NicFunction],
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
        let goes_out = match of.loops {
            true => {
                self.switch.send_inside(bus, function, frame);
                false
            }
            false => functions.len() == 1 || self.switch.send(bus, functions, function, frame),
        };
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
        let of = &mut functions[usize::from(function)];
        if left.is_none() && goes_out {
            of.count(counter::TX_NO_CARRIER, 1);
        } else {
            of.count_frame(bus.now(), left, (frame.len() - FCS_LEN) as u64);
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
                Turn::Written(of) => {
                    let Some(frame) = self.written.take(of) else { continue };
                    let left = self.hand_on(bus, functions, of.function, &frame.bytes, frame.at, 0);
                    self.taken(port, now, left);
                    self.written.left(of, frame, left.is_some());
                    // Makes room for writes that wait in the port, and may end the wait for a missing line.
                    self.drain(bus, functions, of);
                }
                Turn::Wake(at) => {
                    let note = Note::of_device(Kind::Mux).with(port.0.into(), 0);
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
        if let Some(of) = self.written.write(function, at, data) {
            self.drain(bus, functions, of);
        }
    }

    /// How long a write to the windows waits in the PCIe port.
    pub fn holds(&mut self, now: Time, of: &NicFunction, at: u64) -> Duration {
        let (free, rate) = (self.mux(of.port()).free(), self.nic.rate);
        self.written.holds(of.number, at, now, free, rate)
    }

    /// Reads a register if it belongs to programmed I/O.
    pub fn register(&self, function: u8, at: u64) -> Option<u32> {
        self.written.register(function, at)
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
        let Some((of, has_work)) = self.written.set_register(function, at, value) else { return false };
        if has_work {
            self.drain(bus, functions, of);
        }
        true
    }

    /// A timer of programmed I/O expired.
    pub fn line_due(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], note: Note) {
        if let Some(of) = self.written.due(bus, note) {
            self.drain(bus, functions, of);
        }
    }

    /// Passes the frames that are complete in a window to the multiplexer, and tells the driver of lines that are free.
    fn drain(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], of: QueueWindow) {
        let frames = self.written.drain(bus, of);
        let function = usize::from(of.function);
        if frames > 0 {
            let port = functions[function].port();
            self.mux(port).list_written(of, frames);
            self.pump(bus, functions, port);
        }
        if let Some(vector) = self.written.report(bus, of) {
            functions[function].interrupts.raise(bus, vector);
        }
    }
}
