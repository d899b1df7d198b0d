//! The way out: whole frames, which DMA or programmed I/O brought, go to the wire, round inside, or to another function.
//!
//! A frame that DMA brought holds packet memory until it has left.

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

/// Bytes of packets to be sent that are in the device.
#[derive(Default)]
pub struct PacketMemory {
    held: u32,
    /// Frames that wait for the wire, and when they will have left.
    leaving: VecDeque<(Time, u32)>,
}

impl PacketMemory {
    /// Frees what has left by now.
    pub fn pass(&mut self, now: Time) {
        while let Some(&(_, bytes)) = self.leaving.front().filter(|(at, _)| *at <= now) {
            self.held -= bytes;
            self.leaving.pop_front();
        }
    }

    /// Whether a packet fits into a memory of `size` bytes. One alone always does.
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

/// The Ethernet ports, from inside.
pub struct Ports {
    nic: Rc<NicParams>,
    pub memory: PacketMemory,
    pub switch: Switch,
    /// Queues that take frames by programmed I/O.
    pub kpio: Option<Kpio>,
    /// In front of each port.
    muxes: Vec<Mux>,
    /// What there is instead of the wire.
    pub around: Option<Around>,
    spare: Spare,
}

impl Ports {
    pub fn new(nic: &Rc<NicParams>, handle: &NicHandle, functions: usize) -> Self {
        Self {
            nic: Rc::clone(nic),
            memory: PacketMemory::default(),
            switch: Switch::new(nic, functions),
            // Virtual functions come behind and have none.
            kpio: nic.kpio.map(|kpio| Kpio::new(kpio, nic.functions.len(), nic.max_frame, handle.clone())),
            muxes: (0..nic.ports).map(|_| Mux::default()).collect(),
            around: Around::new(nic),
            spare: Spare::default(),
        }
    }

    /// Forgets every frame; what the functions were told to do stays.
    pub fn forget(&mut self) {
        self.memory = PacketMemory::default();
        self.switch.forget_frames();
        self.muxes.fill_with(Mux::default);
        self.around = Around::new(&self.nic);
    }

    /// A function is reset.
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

    /// Whether frames of a port go through its multiplexer.
    fn is_muxed(&self, port: EthernetPort) -> bool {
        self.nic.flow_control.is_some() || self.muxes[usize::from(port.0)].is_needed()
    }

    /// A frame is whole, which holds so many bytes of packet memory: it goes to the wire, at once or in its turn.
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

    /// All frames of a packet have been given: its descriptors are done, in their turn.
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

    /// Hands a frame, not before `ready`, to the wire, or to another function behind the same port. Gives when it will
    /// have left by the wire.
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

    /// The other end of a port's cable wants no frame until then.
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

    /// A frame's turn at a multiplexer may have come.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], port: EthernetPort) {
        self.mux(port).woken();
        self.pump(bus, functions, port);
    }

    /// Hands on what can be of what waits at a port's multiplexer.
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
                    // Room for what waits in the port; and what was missing may not be any more.
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

    /// Takes a write to a function's windows of programmed I/O.
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

    /// For how long a write to the windows waits in the PCIe port.
    pub fn holds(&mut self, now: Time, of: &NicFunction, at: u64) -> Duration {
        let (free, rate) = (self.mux(of.port()).free(), self.nic.rate);
        self.kpio.as_mut().map_or(Duration::ZERO, |kpio| kpio.holds(of.number, at, now, free, rate))
    }

    /// Writes a register if it is one of programmed I/O: whether it was.
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

    /// A timer of a queue of programmed I/O ran out.
    pub fn kpio_due(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], note: Note) {
        if self.kpio.as_mut().is_some_and(|kpio| kpio.due(bus, note)) {
            self.drain(bus, functions, note.function, note.queue);
        }
    }

    /// A queue of programmed I/O does what it can, and its frames go to the multiplexer.
    fn drain(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], function: u8, queue: u8) {
        let frames = self.kpio.as_mut().map_or(0, |kpio| kpio.drain(bus, function, queue));
        if frames > 0 {
            let port = functions[usize::from(function)].port();
            (0..frames).for_each(|_| self.mux(port).list_kpio(function, queue));
            self.pump(bus, functions, port);
        }
        if let Some(vector) = self.kpio.as_mut().and_then(|kpio| kpio.report(bus, function, queue)) {
            functions[usize::from(function)].raise(bus, vector);
        }
    }

    /// Notes how many queues of programmed I/O run at each port.
    fn count_queues(&mut self, functions: &[NicFunction]) {
        let Some(kpio) = &self.kpio else { return };
        for (port, mux) in self.muxes.iter_mut().enumerate() {
            let here = functions.iter().filter(|function| usize::from(function.port().0) == port);
            mux.set_queues(here.map(|function| kpio.running(function.number)).sum());
        }
    }
}
