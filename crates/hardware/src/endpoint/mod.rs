//! A device on the fabric: its PCIe core, and the model of its registers and firmware.

mod mover;
mod params;
mod registers;
mod requester;

use engine::Scheduler;
use platform::device::{BarAccess, Device, DeviceBus, Dma, FunctionIndex, PortIndex, Reset, Token};
use platform::ethernet::{EthernetBus, EthernetPort};
use units::{BarOffset, Duration, Time};
use wire::pcie::config::{ConfigEffect, ConfigSpace};
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, MemoryRequest, Message};
use wire::pcie::{Bdf, Tlp, TlpKind};

pub use params::{
    BusParams, DrainParams, EndpointParams, EngineParams, Linear, LocalMemoryParams, TransmitParams,
    WriteOutParams,
};
pub use registers::{Allowance, Registers};
pub use requester::{Life, Requester, RequesterCounters};

use crate::detected::Detected;
use crate::enables::enabled_runs;
use crate::event::Event;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Wires;

/// A device of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(pub u16);

/// Read completion boundary of every completer but a root complex, in bytes (base spec 2.3.1.1).
const COMPLETION_BOUNDARY: u32 = 128;

/// What can happen inside an endpoint. Events of before a reset carry an older epoch and are dropped.
#[derive(Clone, Copy, Debug)]
pub enum EndpointEvent {
    /// The core gets to send a TLP.
    Transmit {
        /// Through which port.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
        /// Life of the device.
        epoch: u16,
    },
    /// The oldest read that waits may be able to go on.
    IssueReads {
        /// Life of the device.
        epoch: u16,
    },
    /// The oldest write that waits may be able to go on.
    StartWrites {
        /// Life of the device.
        epoch: u16,
    },
    /// The data of a write has been fetched.
    WriteFetched {
        /// Life of the device.
        epoch: u16,
    },
    /// The data of a tag has been dealt with.
    TagFree {
        /// The tag.
        tag: u16,
        /// Life of the device.
        epoch: u16,
    },
    /// The device learns that a read has ended.
    ReadDone {
        /// Which.
        read: u32,
        /// Life of the device.
        epoch: u16,
    },
    /// The device learns that a write has left.
    WriteDone {
        /// The device's number for it.
        token: Token,
        /// Life of the device.
        epoch: u16,
        /// Which life of the function it was asked for in.
        life: Life,
    },
    /// A timer of the device ran out.
    Timer {
        /// The device's number for it.
        token: Token,
        /// Life of the device.
        epoch: u16,
    },
    /// An answer of the device to the host is ready.
    Answer {
        /// Through which port.
        end: LinkEnd,
        /// The completion.
        packet: PacketId,
        /// Life of the device.
        epoch: u16,
    },
    /// Requests may have waited too long.
    CheckTimeouts {
        /// Life of the device.
        epoch: u16,
    },
}

/// The PCIe core of a device: everything but the model of its insides.
pub struct Core {
    id: EndpointId,
    ends: Vec<LinkEnd>,
    params: EndpointParams,
    /// Configuration spaces, BARs, interrupt tables.
    pub registers: Registers,
    /// DMA.
    pub requester: Requester,
    /// Requests of the host that were malformed or met nothing.
    pub unsupported_requests: u64,
}

/// A device on the fabric.
pub struct Endpoint {
    /// Its PCIe core.
    pub core: Core,
    device: Box<dyn Device>,
}

/// A device's view of the fabric while it reacts to something.
struct Bus<'a> {
    core: &'a mut Core,
    wires: &'a mut Wires,
    scheduler: &'a mut Scheduler<Event>,
}

impl DeviceBus for Bus<'_> {
    fn now(&self) -> Time {
        self.scheduler.now()
    }

    fn read(&mut self, request: Dma) {
        let Some((end, requester)) = self.core.master(request.function) else {
            self.core.requester.refuse_read(self.scheduler, request);
            return;
        };
        self.core.requester.read(self.wires, self.scheduler, end, requester, request);
    }

    fn write(&mut self, request: Dma, data: &[u8]) {
        let Some((end, requester)) = self.core.master(request.function) else {
            // A function that may not master the bus sends nothing, and its write is lost.
            let event = EndpointEvent::WriteDone {
                token: request.token,
                epoch: self.core.requester.epoch(),
                life: self.core.requester.life(request.function),
            };
            self.scheduler.at(self.scheduler.now(), Event::Endpoint(self.core.id, event));
            return;
        };
        self.core.requester.write(self.wires, self.scheduler, end, requester, request, data);
    }

    fn interrupt(&mut self, function: FunctionIndex, vector: u16) {
        if let Some(message) = self.core.registers.message(function, vector) {
            self.core.send_interrupt(self.wires, self.scheduler, function, message);
        }
    }

    fn wake_at(&mut self, when: Time, token: Token) {
        let event = EndpointEvent::Timer { token, epoch: self.core.requester.epoch() };
        self.scheduler.at(when, Event::Endpoint(self.core.id, event));
    }

    fn config(&self, function: FunctionIndex) -> &ConfigSpace {
        self.core.registers.config(function)
    }

    fn ethernet(&mut self) -> Option<&mut dyn EthernetBus> {
        Some(self)
    }
}

impl EthernetBus for Bus<'_> {
    fn send(&mut self, port: EthernetPort, ready: Time, frame: &[u8]) -> Option<Time> {
        self.wires.ethernet.send_from_device(self.scheduler, self.core.id, port, ready, frame)
    }

    fn has_carrier(&self, port: EthernetPort) -> bool {
        self.wires.ethernet.has_carrier(self.core.id, port)
    }
}

impl Core {
    /// Where and in whose name a function sends requests, if the host lets it.
    fn master(&self, function: FunctionIndex) -> Option<(LinkEnd, Bdf)> {
        let (port, id) = self.registers.master(function)?;
        Some((*self.ends.get(usize::from(port.0))?, id))
    }
}

impl Core {
    /// Lets requests be what the registers say.
    pub fn heed_registers(&mut self) {
        self.requester.allow(self.registers.allowance());
        self.requester.set_timeouts(self.registers.completion_timeouts());
    }

    fn send_interrupt(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        function: FunctionIndex,
        message: registers::InterruptMessage,
    ) {
        let Some((end, requester)) = self.master(function) else { return };
        self.requester.send_message(wires, scheduler, end, requester, message.address, message.data);
    }

    /// Notes an error in a function's registers and tells the root complex if the function is to.
    fn report(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        function: FunctionIndex,
        error: Detected,
        packet: Option<PacketId>,
    ) {
        let tlp = packet.map(|packet| wires.packets.bytes(packet));
        let function = self.registers.reporter(function);
        let Some(code) = error.record(self.registers.config_mut(function), tlp) else { return };
        let (port, id) = self.registers.port_and_id(function);
        let message = Tlp::new(TlpKind::Message(Message::error(id, code)));
        // Nobody hears one that is in no slot.
        let Some(&end) = self.ends.get(usize::from(port.0)) else { return };
        let packet = wires.packets.encode(&message, &[]);
        wires.send(scheduler, end, packet);
    }

    /// The port whose link ends at `end`.
    fn port_at(&self, end: LinkEnd) -> PortIndex {
        PortIndex(self.ends.iter().position(|&own| own == end).unwrap_or(0) as u8)
    }
}

impl Endpoint {
    /// A device with its upstream ports at `ends`.
    pub fn new(id: EndpointId, params: EndpointParams, ends: Vec<LinkEnd>, device: Box<dyn Device>) -> Self {
        let registers = Registers::new(&*device);
        let requester = Requester::new(id, params.clone());
        Self { core: Core { id, ends, params, registers, requester, unsupported_requests: 0 }, device }
    }

    /// Whether each port that a function names has a link.
    pub(crate) fn has_its_links(&self) -> bool {
        self.core.registers.ports() <= self.core.ends.len()
    }

    /// Takes it off its links.
    pub(crate) fn take_links(&mut self) -> Vec<LinkEnd> {
        std::mem::take(&mut self.core.ends)
    }

    /// Puts it, which has none, at the ends of links.
    pub(crate) fn give_links(&mut self, ends: Vec<LinkEnd>) {
        assert!(self.core.ends.is_empty(), "a device is in one slot");
        self.core.ends = ends;
        assert!(self.has_its_links(), "a function of the device names a port without a link");
    }

    /// The links that it is at the downstream ends of, port 0 first.
    pub fn links(&self) -> impl Iterator<Item = crate::link::LinkId> + '_ {
        self.core.ends.iter().map(|end| end.link)
    }

    /// The device model, to look at.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Lets `act` work on the device model as if from inside: it may start DMA.
    pub fn with_device<R>(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        act: impl FnOnce(&mut dyn Device, &mut dyn DeviceBus) -> R,
    ) -> R {
        let Self { core, device } = self;
        act(&mut **device, &mut Bus { core, wires, scheduler })
    }

    /// A TLP arrived at one of the device's ports.
    pub fn deliver(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        packet: PacketId,
    ) {
        let now = scheduler.now();
        let Ok((tlp, payload)) = wires.packets.decode(packet) else {
            self.core.unsupported_requests += 1;
            self.core.report(wires, scheduler, FunctionIndex(0), Detected::Malformed, Some(packet));
            wires.consume(scheduler, packet, now);
            return;
        };
        match &tlp.kind {
            TlpKind::CompletionData(header) | TlpKind::Completion(header) => {
                let poisoned = tlp.common.poisoned;
                let padding = wires.packets.hop(packet).padding;
                let at =
                    self.core.requester.completion(wires, scheduler, end, header, poisoned, padding, payload);
                if let Some((function, error)) = self.core.requester.detected.take() {
                    self.core.report(wires, scheduler, function, error, Some(packet));
                }
                wires.consume(scheduler, packet, at);
            }
            _ => {
                let held = self.host_request(wires, scheduler, end, packet, &tlp);
                wires.consume(scheduler, packet, now + held);
            }
        }
    }

    /// The host reads or writes the device. Returns for how long the request keeps its receive buffer.
    fn host_request(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        packet: PacketId,
        tlp: &Tlp,
    ) -> Duration {
        match &tlp.kind {
            TlpKind::ConfigRead(request) => {
                let value = self.core.registers.read(self.core.port_at(end), request);
                let id = request.target;
                let answer = match value {
                    Some(_) => CompletionHeader::for_register(
                        id,
                        request.requester,
                        request.tag,
                        CompletionStatus::Successful,
                        1,
                    ),
                    None => CompletionHeader::for_register(
                        id,
                        request.requester,
                        request.tag,
                        CompletionStatus::UnsupportedRequest,
                        0,
                    ),
                };
                let latency = self.core.params.config_latency;
                self.answer(wires, scheduler, end, answer, &value.unwrap_or(0).to_le_bytes(), latency);
            }
            TlpKind::ConfigWrite(request) => {
                let value = wires
                    .packets
                    .decode(packet)
                    .ok()
                    .and_then(|(_, payload)| payload.first_chunk::<4>().copied());
                let port = self.core.port_at(end);
                let effects =
                    self.core.registers.write(port, request, u32::from_le_bytes(value.unwrap_or_default()));
                let status = match &effects {
                    Some(_) => CompletionStatus::Successful,
                    None => CompletionStatus::UnsupportedRequest,
                };
                let answer =
                    CompletionHeader::for_register(request.target, request.requester, request.tag, status, 0);
                let latency = self.core.params.config_latency;
                self.answer(wires, scheduler, end, answer, &[], latency);
                self.config_effects(wires, scheduler, effects);
            }
            TlpKind::MemoryRead(request) => self.bar_read(wires, scheduler, end, packet, request),
            TlpKind::MemoryWrite(request) => {
                return self.bar_write(wires, scheduler, end, packet, request, tlp.common.poisoned);
            }
            TlpKind::Message(_) => {}
            // No device has I/O space.
            TlpKind::IoRead(request) | TlpKind::IoWrite(request) => {
                let id = self.core.registers.id(FunctionIndex(0));
                let status = CompletionStatus::UnsupportedRequest;
                let answer = CompletionHeader::for_register(id, request.requester, request.tag, status, 0);
                self.refuse(wires, scheduler, end, packet, answer);
            }
            TlpKind::Completion(_) | TlpKind::CompletionData(_) => {
                unreachable!("completions are no requests")
            }
        }
        Duration::ZERO
    }

    /// The link layer at one of the device's ports noticed an error that it corrects.
    pub fn link_error(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        error: Detected,
    ) {
        let function = self.core.registers.first_below(self.core.port_at(end));
        self.core.report(wires, scheduler, function, error, None);
    }

    fn config_effects(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        effects: Option<(FunctionIndex, Vec<ConfigEffect>)>,
    ) {
        let Some((function, effects)) = effects else { return };
        self.core.heed_registers();
        for effect in effects {
            match effect {
                ConfigEffect::FunctionLevelReset => self.reset(wires, scheduler, Reset::Function(function)),
                ConfigEffect::Sriov { enabled: false, .. } => {
                    self.reset_virtual_functions(wires, scheduler, function);
                }
                ConfigEffect::Msix { .. } => self.send_unmasked(wires, scheduler, function),
                _ => {}
            }
            self.with_device(wires, scheduler, |device, bus| device.config_changed(bus, function, &effect));
        }
    }

    fn bar_read(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        packet: PacketId,
        request: &MemoryRequest,
    ) {
        let (address, length) = request.byte_range();
        let port = self.core.port_at(end);
        let Some((function, bar, offset)) = self.core.registers.decode(port, address, length) else {
            let id = self.core.registers.id(FunctionIndex(0));
            let answer = CompletionHeader::for_read_error(id, request, CompletionStatus::UnsupportedRequest);
            self.refuse(wires, scheduler, end, packet, answer);
            return;
        };
        let mut data = [0u8; 4096];
        let data = &mut data[..length as usize];
        let at = BarAccess { function, bar, offset: BarOffset::new(offset) };
        let took = if self.core.registers.interrupt_table_read(at, data) {
            self.core.params.config_latency
        } else {
            self.with_device(wires, scheduler, |device, bus| device.bar_read(bus, at, data))
        };
        let id = self.core.registers.id(function);
        let max_payload = self.core.requester.allowance().max_payload;
        let mut done = 0u32;
        for (piece, piece_length) in
            wire::pcie::split::split_completion(address, u64::from(length), COMPLETION_BOUNDARY, max_payload)
        {
            let answer = CompletionHeader::with_data(id, request, piece, piece_length, length - done);
            let mut padded = [0u8; 4096];
            let lead = (piece & 3) as usize;
            let bytes = &data[done as usize..(done + piece_length) as usize];
            padded[lead..lead + bytes.len()].copy_from_slice(bytes);
            self.answer(wires, scheduler, end, answer, &padded[..lead + bytes.len()], took);
            done += piece_length;
        }
    }

    fn bar_write(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        packet: PacketId,
        request: &MemoryRequest,
        poisoned: bool,
    ) -> Duration {
        let (address, length) = request.byte_range();
        let port = self.core.port_at(end);
        let (Some((function, bar, offset)), false) =
            (self.core.registers.decode(port, address, length), poisoned)
        else {
            self.core.unsupported_requests += 1;
            let error = if poisoned { Detected::Poisoned } else { Detected::UnsupportedPosted };
            self.core.report(wires, scheduler, FunctionIndex(0), error, Some(packet));
            return Duration::ZERO;
        };
        let at = BarAccess { function, bar, offset: BarOffset::new(offset) };
        let held = self.with_device(wires, scheduler, |device, bus| device.bar_write_holds(bus, at, length));
        let mut data = [0u8; 4096];
        let lead = (address & 3) as usize;
        if let Ok((_, payload)) = wires.packets.decode(packet)
            && let Some(bytes) = payload.get(lead..lead + length as usize)
        {
            data[..bytes.len()].copy_from_slice(bytes);
        }
        for run in enabled_runs(request) {
            let (start, end) = (run.start - lead, run.end - lead);
            let at = BarAccess { function, bar, offset: BarOffset::new(offset + start as u64) };
            let bytes = &data[start..end];
            if self.core.registers.interrupt_table_write(at, bytes) {
                self.send_unmasked(wires, scheduler, function);
            } else {
                self.with_device(wires, scheduler, |device, bus| device.bar_write(bus, at, bytes));
            }
        }
        held
    }

    /// Sends the interrupts that were pending behind a mask.
    fn send_unmasked(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        function: FunctionIndex,
    ) {
        for message in self.core.registers.unmasked(function) {
            self.core.send_interrupt(wires, scheduler, function, message);
        }
    }

    /// Reports a request that no function takes, and completes it so (base spec 2.3.1).
    fn refuse(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        packet: PacketId,
        answer: CompletionHeader,
    ) {
        self.core.unsupported_requests += 1;
        let error = Detected::UnsupportedNonPosted;
        self.core.report(wires, scheduler, FunctionIndex(0), error, Some(packet));
        self.answer(wires, scheduler, end, answer, &[], self.core.params.config_latency);
    }

    fn answer(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        header: CompletionHeader,
        payload: &[u8],
        after: Duration,
    ) {
        let kind =
            if header.length_dw > 0 { TlpKind::CompletionData(header) } else { TlpKind::Completion(header) };
        let payload = if header.length_dw > 0 { payload } else { &[] };
        let packet = wires.packets.encode(&Tlp::new(kind), payload);
        let event = EndpointEvent::Answer { end, packet, epoch: self.core.requester.epoch() };
        scheduler.after(after, Event::Endpoint(self.core.id, event));
    }

    /// Resets the device.
    pub fn reset(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>, reset: Reset) {
        match reset {
            // The device's other functions go on, but those that go with it.
            Reset::Function(function) => {
                self.reset_virtual_functions(wires, scheduler, function);
                self.core.requester.reset_function(function);
            }
            Reset::Fundamental | Reset::Hot => {
                self.core.ends.iter().for_each(|&end| wires.recall(scheduler, end));
                self.core.requester.reset();
            }
        }
        self.core.registers.reset(reset);
        self.core.heed_registers();
        self.with_device(wires, scheduler, |device, bus| device.reset(bus, reset));
    }

    /// The link at a port went down or its reset was asked for: the functions below it are reset, and all of the device if it
    /// has no other port.
    pub fn reset_port(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>, end: LinkEnd) {
        let Some(functions) = self.core.registers.alone_below(self.core.port_at(end)) else {
            return self.reset(wires, scheduler, Reset::Hot);
        };
        wires.recall(scheduler, end);
        for function in functions {
            self.reset(wires, scheduler, Reset::Function(function));
        }
    }

    /// Resets the virtual functions of a physical one: it is reset, or they are disabled.
    fn reset_virtual_functions(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        of: FunctionIndex,
    ) {
        for function in self.core.registers.virtual_functions(of) {
            self.reset(wires, scheduler, Reset::Function(function));
        }
    }

    /// The link at one of the device's ports has sent something that waited.
    pub fn link_drained(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>) {
        self.core.requester.start_writes(wires, scheduler);
    }

    /// Something inside the endpoint is due.
    pub fn handle(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>, event: EndpointEvent) {
        let epoch = self.core.requester.epoch();
        match event {
            EndpointEvent::Transmit { end, packet, epoch: sent }
            | EndpointEvent::Answer { end, packet, epoch: sent }
                if sent == epoch =>
            {
                wires.send(scheduler, end, packet);
            }
            EndpointEvent::Transmit { packet, .. } | EndpointEvent::Answer { packet, .. } => {
                wires.packets.free(packet);
            }
            EndpointEvent::IssueReads { epoch: sent } if sent == epoch => {
                self.core.requester.issue_reads(wires, scheduler);
            }
            EndpointEvent::StartWrites { epoch: sent } if sent == epoch => {
                self.core.requester.start_writes(wires, scheduler);
            }
            EndpointEvent::WriteFetched { epoch: sent } if sent == epoch => {
                self.core.requester.write_fetched(wires, scheduler);
            }
            EndpointEvent::TagFree { tag, epoch: sent } if sent == epoch => {
                self.core.requester.tag_free(wires, scheduler, tag);
            }
            EndpointEvent::ReadDone { read, epoch: sent } if sent == epoch => {
                if let Some(read) = self.core.requester.take_finished(read) {
                    let outcome = read.failed.map_or(Ok(&read.data[..]), Err);
                    self.with_device(wires, scheduler, |device, bus| {
                        device.read_done(bus, read.token, outcome)
                    });
                    self.core.requester.recycle(read);
                }
            }
            EndpointEvent::WriteDone { token, epoch: sent, life }
                if sent == epoch && life == self.core.requester.life(life.function) =>
            {
                self.with_device(wires, scheduler, |device, bus| device.write_done(bus, token));
            }
            EndpointEvent::Timer { token, epoch: sent } if sent == epoch => {
                self.with_device(wires, scheduler, |device, bus| device.timer(bus, token));
            }
            EndpointEvent::CheckTimeouts { epoch: sent } if sent == epoch => {
                for function in self.core.requester.check_timeouts(scheduler) {
                    self.core.report(wires, scheduler, function, Detected::CompletionTimeout, None);
                }
            }
            // What was under way before a reset is forgotten.
            _ => {}
        }
    }
}
