//! A multi-queue NIC.
//!
//! Its programming interface is [`wire::nic`]. Transmit: doorbell, descriptor fetch in batches ([`ring`]), data reads,
//! segmentation and checksums ([`tx`], [`segment`]), Ethernet. Receive: check sequence, internal switch, flow rules or
//! RSS hash ([`steering`]), buffers ([`rx`]). Completions are written in batches and signalled by coalesced interrupts
//! ([`function`]). A [`ring`] owns a queue's registers, descriptors and completions, and says how many packets the driver can see
//! from now on.
//!
//! Besides the rings, there may be queues for transmit by programmed I/O ([`kpio`]). The [`ports`] merge both sources
//! with a multiplexer ([`mux`]) in front of the wire, or of a loopback inside the device ([`around`]). Received frames
//! may be held in the device for programmed I/O ([`held`]).
//!
//! The physical and virtual functions share the Ethernet ports. The internal switch (MPFS) delivers a frame to the
//! function with its destination address or, if functions share an address, to the one named by a rule. Frames between
//! functions behind the same port do not reach the wire.
//!
//! Constant latencies are passed to the wire (`ready`, `receive_latency`) instead of being simulated as events. In
//! steady state, a packet costs the events of its DMA requests and of its arrival, and no allocation.

mod around;
mod config;
mod fields;
mod flow_control;
mod function;
mod handle;
mod held;
mod inline;
mod interrupts;
mod kpio;
mod mux;
mod params;
mod ports;
mod registers;
mod ring;
mod rules;
mod rx;
mod segment;
mod spare;
mod steering;
mod subnets;
mod switch;
mod token;
mod tx;

use std::rc::Rc;

use platform::device::{
    BarAccess, Device, DeviceBus, DmaError, Function, FunctionIndex, PortIndex, Reset, Stage, StageKind,
    Token, VirtualFunction,
};
use platform::ethernet::{EthernetPort, EthernetPortInfo};
use platform::mover::{DataMover, Direct};
use units::{Duration, Time};
use wire::ethernet::{FCS_LEN, LEAST_FRAME, fcs_is_right};
use wire::nic::registers::{INLINE_BAR, WINDOW_BAR, counter, event};
use wire::pcie::config::{ConfigEffect, ConfigError};

pub use around::LoopbackParams;
pub use handle::NicHandle;
pub use kpio::KpioParams;
pub use params::{FlowControl, NicFunctionParams, NicParams, PathParams, VirtualParams};

use config::{physical, virtual_function, virtual_mac};
use flow_control::{Pauses, is_control};
use function::NicFunction;
use ports::Ports;
use rx::Receiver;
use token::{Kind, Note};
use tx::Sender;

/// A NIC: functions, which share what sends, what receives, and the Ethernet ports.
pub struct Nic {
    params: Rc<NicParams>,
    functions: Vec<NicFunction>,
    sender: Sender,
    ports: Ports,
    receiver: Receiver,
    pauses: Pauses,
    handle: NicHandle,
}

impl Nic {
    /// Creates a NIC in its power-on state, and its handle.
    ///
    /// # Errors
    /// If the capabilities do not fit together.
    pub fn new(mut params: NicParams) -> Result<(Self, NicHandle), ConfigError> {
        params.features = params.all_features();
        // Parameters of each function and, for virtual ones, the physical function.
        let mut wanted = Vec::new();
        for (number, &function) in (0..).zip(&params.functions) {
            wanted.push((function, None, physical(&params, number)?));
        }
        for (of, &owner) in (0..).zip(&params.functions) {
            let Some(virtuals) = params.virtual_functions else { break };
            let config = virtual_function(&params)?;
            for number in 0..virtuals.count {
                let function = NicFunctionParams { mac: virtual_mac(owner.mac, number), ..owner };
                wanted.push((function, Some(of), config.clone()));
            }
        }
        let (params, handle) = (Rc::new(params), NicHandle::new(wanted.len()));
        let functions = (0..).zip(wanted).map(|(number, (function, physical, config))| {
            NicFunction::new(number, (&params, &handle), function, physical, config)
        });
        let functions: Vec<_> = functions.collect();
        functions.iter().for_each(NicFunction::show_rings);
        let nic = Self {
            sender: Sender::new(&params),
            ports: Ports::new(&params, &handle, functions.len()),
            receiver: Receiver::new(Rc::clone(&params)),
            pauses: Pauses::new(&params),
            handle: handle.clone(),
            functions,
            params,
        };
        Ok((nic, handle))
    }

    /// The function that a note refers to.
    fn of(&mut self, note: Note) -> &mut NicFunction {
        &mut self.functions[usize::from(note.function)]
    }

    /// A frame, with check sequence, arrived at a port.
    fn receive(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, frame: &[u8]) {
        let Self { functions, sender, ports, receiver, pauses, params, .. } = self;
        let Some(first) = functions.iter().position(|f| f.port() == port) else { return };
        if !fcs_is_right(frame) {
            functions[first].count(counter::RX_FCS_ERRORS, 1);
        } else if frame.len() < LEAST_FRAME || frame.len() - FCS_LEN > usize::from(params.max_frame) {
            functions[first].count(counter::RX_LENGTH_ERRORS, 1);
        } else if is_control(frame) {
            if let Some(until) = pauses.asked(bus.now(), frame) {
                functions[first].count(counter::RX_PAUSES, 1);
                ports.pause(bus, functions, port, until);
                sender.pump(bus, functions, ports);
            }
        } else {
            ports.switch.distribute(bus, functions, receiver, port, &frame[..frame.len() - FCS_LEN], None);
            pauses.ask_to_stop(bus, &functions[first], receiver.held());
        }
    }
}

impl Device for Nic {
    fn functions(&self) -> Vec<Function> {
        let function = |f: &NicFunction| Function { port: f.params.pcie_port, config: f.config.clone() };
        self.functions.iter().filter(|f| f.physical.is_none()).map(function).collect()
    }

    fn stages(&self, now: Time) -> Vec<Stage> {
        let stages = [("packets", self.sender.busy(now)), ("received-packets", self.receiver.busy(now))];
        let stage =
            |(name, busy): (&str, _)| Stage { name: name.to_owned(), kind: StageKind::Server, of: 1, busy };
        stages.map(stage).into()
    }

    fn data_mover(&self, _port: PortIndex) -> Box<dyn DataMover> {
        Box::new(Direct { read_use: self.params.read_use })
    }

    fn virtual_functions(&self) -> Vec<VirtualFunction> {
        let part = |f: &NicFunction| {
            f.physical.map(|of| VirtualFunction { physical: FunctionIndex(of), config: f.config.clone() })
        };
        self.functions.iter().filter_map(part).collect()
    }

    fn reset(&mut self, bus: &mut dyn DeviceBus, reset: Reset) {
        match reset {
            Reset::Fundamental | Reset::Hot => {
                for function in 0..self.functions.len() {
                    self.reset_function(bus, function as u8);
                }
                self.sender.forget(bus.now(), &mut self.functions);
                self.ports.forget();
                self.receiver.forget(bus.now(), &mut self.functions);
                self.pauses = Pauses::new(&self.params);
            }
            Reset::Function(FunctionIndex(function)) if usize::from(function) < self.functions.len() => {
                self.reset_function(bus, function);
                self.sender.lose_reads(bus, &mut self.functions, &mut self.ports, function);
                self.receiver.recount(&self.functions);
            }
            Reset::Function(_) => {}
        }
    }

    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        let offset = at.offset.get();
        let is_whole = offset % 4 == 0 && data.len() % 4 == 0;
        if at.bar == 0 && is_whole && usize::from(at.function.0) < self.functions.len() {
            for (n, word) in data.chunks_exact_mut(4).enumerate() {
                let value = self.register(bus, at.function.0, offset + 4 * n as u64);
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        if at.bar == WINDOW_BAR && usize::from(at.function.0) < self.functions.len() {
            self.functions[usize::from(at.function.0)].read_held(offset, data);
        }
        self.params.register_latency
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let offset = at.offset.get();
        let is_whole = offset % 4 == 0 && data.len() % 4 == 0;
        let is_ours = usize::from(at.function.0) < self.functions.len() && !self.handle.is_hung();
        if at.bar == WINDOW_BAR && is_ours {
            self.ports.write(bus, &mut self.functions, at.function.0, offset, data);
            return;
        }
        if at.bar == INLINE_BAR && is_ours {
            let Self { functions, sender, ports, .. } = self;
            sender.inline_write(bus, functions, ports, at.function.0, offset, data);
            return;
        }
        if at.bar != 0 || !is_whole || !is_ours {
            return;
        }
        for (n, word) in data.chunks_exact(4).enumerate() {
            let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            self.set_register(bus, at.function.0, offset + 4 * n as u64, value);
        }
    }

    fn bar_write_holds(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, _length: u32) -> Duration {
        if at.bar == WINDOW_BAR && usize::from(at.function.0) < self.functions.len() && !self.handle.is_hung()
        {
            self.ports.holds(bus.now(), &self.functions[usize::from(at.function.0)], at.offset.get())
        } else {
            Duration::ZERO
        }
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        let Some(note) = Note::of(token) else { return };
        let Self { functions, sender, ports, receiver, .. } = self;
        match note.kind {
            Kind::TxFetch => sender.fetched(bus, functions, ports, note, outcome),
            Kind::RxFetch => receiver.fetched(bus, functions, note, outcome),
            Kind::TxData => sender.arrived(bus, functions, ports, note, outcome),
            _ => {}
        }
    }

    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let Some(note) = Note::of(token) else { return };
        match note.kind {
            Kind::RxData => {
                self.receiver.written(note);
                self.pauses.let_go_on(bus, &self.functions, self.receiver.held());
            }
            Kind::TxCompletion => self.of(note).completions_due(bus, note, true),
            Kind::RxCompletion => self.of(note).completions_due(bus, note, false),
            Kind::Event => self.of(note).interrupts.event_written(bus, note.first),
            _ => {}
        }
    }

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let Some(note) = Note::of(token) else { return };
        let Self { functions, sender, ports, receiver, .. } = self;
        let of = &mut functions[usize::from(note.function)];
        match note.kind {
            Kind::TxFlush => of.completions_due(bus, note, true),
            Kind::RxFlush => of.completions_due(bus, note, false),
            Kind::Doorbell => of.tx[usize::from(note.queue)].fetch(bus),
            Kind::TxPump => sender.pump(bus, functions, ports),
            Kind::RxPump => receiver.pump(bus, functions),
            Kind::Vector => of.vector_due(bus, note.first.into()),
            Kind::MissingLine | Kind::FreedLines => ports.line_due(bus, functions, note),
            Kind::Mux => {
                ports.due(bus, functions, EthernetPort(note.first as u8));
                sender.pump(bus, functions, ports);
            }
            Kind::Loopback if note.second == switch::INSIDE => ports.switch.due(bus, functions, receiver),
            Kind::Loopback => {
                let (now, port) = (bus.now(), EthernetPort(note.first as u8));
                let Some(frame) = ports.around.as_mut().and_then(|around| around.arrived(now, port)) else {
                    return;
                };
                self.receive(bus, port, &frame);
                if let Some(around) = &mut self.ports.around {
                    around.put_back(frame);
                }
            }
            _ => {}
        }
    }

    fn config_changed(&mut self, bus: &mut dyn DeviceBus, function: FunctionIndex, effect: &ConfigEffect) {
        if let ConfigEffect::Msix { .. } = effect
            && let Some(function) = self.functions.get(usize::from(function.0))
        {
            function.interrupts.drive_line(bus);
        }
    }

    fn ethernet_ports(&self) -> Vec<EthernetPortInfo> {
        let port = EthernetPortInfo { rate: self.params.rate, receive_latency: self.params.rx.latency };
        vec![port; usize::from(self.params.ports)]
    }

    fn frame_received(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, frame: &[u8]) {
        if !self.handle.is_hung() {
            self.receive(bus, port, frame);
        }
    }

    fn carrier_changed(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, _up: bool) {
        for function in self.functions.iter_mut().filter(|function| function.port() == port) {
            function.interrupts.event(bus, event::LINK);
        }
    }
}
