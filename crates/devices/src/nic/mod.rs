//! A multi-queue NIC.
//!
//! Its programming interface is [`wire::nic`]. A frame's way out: doorbell, descriptors fetched in batches ([`ring`]),
//! data read, segments cut and checksums filled in ([`tx`], [`segment`]), Ethernet. A frame's way in: check
//! sequence, internal switch, flow rules or receive hash ([`steering`]), buffers ([`rx`]). Completions are written
//! in batches and told of by coalesced interrupts ([`function`]).
//!
//! Beside the rings there may be queues that take frames by programmed I/O ([`kpio`]); a multiplexer ([`mux`]) joins
//! both ways in front of the wire, or of a loop inside the device ([`around`]). Received frames may stay in the device for
//! programmed I/O ([`held`]).
//!
//! The functions, physical and virtual ones, share the Ethernet ports; the internal switch (MPFS) gives a frame to the function whose
//! address it bears, or, where functions share an address, to the one that a rule names. What a function sends to
//! another behind the same port does not reach the wire.
//!
//! Constant latencies are told to the wire (`ready`, `receive_latency`) rather than waited for, so that in steady
//! state a packet costs the events of its DMA requests and of its arrival, and no allocation.

mod around;
mod config;
mod flow_control;
mod function;
mod handle;
mod held;
mod inline;
mod kpio;
mod mux;
mod params;
mod registers;
mod ring;
mod rx;
mod segment;
mod steering;
mod subnets;
mod switch;
mod token;
mod tx;

use std::rc::Rc;

use platform::device::{
    BarAccess, Device, DeviceBus, DmaError, Function, FunctionIndex, PortIndex, Reset, Token, VirtualFunction,
};
use platform::ethernet::{EthernetPort, EthernetPortInfo};
use platform::mover::{DataMover, Direct};
use units::{Duration, Time};
use wire::nic::registers::{INLINE_BAR, KPIO_BAR, event, feature};
use wire::pcie::config::ConfigError;

pub use flow_control::FlowControl;
pub use handle::NicHandle;
pub use params::{KpioParams, NicFunctionParams, NicParams, PathParams, VirtualParams};

use around::Around;
use config::{physical, virtual_function, virtual_mac};
use function::NicFunction;
use kpio::Kpio;
use mux::Mux;
use rx::Receiver;
use switch::SwitchRules;
use token::{Kind, Note};
use tx::Sender;

/// The NIC.
pub struct Nic {
    params: Rc<NicParams>,
    functions: Vec<NicFunction>,
    switch_rules: SwitchRules,
    sender: Sender,
    receiver: Receiver,
    /// Queues that take frames by programmed I/O.
    kpio: Option<Kpio>,
    /// In front of each Ethernet port.
    muxes: Vec<Mux>,
    /// Until when the other end of each port's cable is asked to send nothing.
    asked_until: Vec<Time>,
    around: Around,
    inside: switch::Inside,
    handle: NicHandle,
    /// Kept so that segments do not allocate.
    frame: Vec<u8>,
}

impl Nic {
    /// A NIC after power-on, and its handle.
    ///
    /// # Errors
    /// If the capabilities do not fit together.
    pub fn new(mut params: NicParams) -> Result<(Self, NicHandle), ConfigError> {
        if params.kpio.is_some() {
            params.features |= feature::KPIO;
        }
        let shares = |one: &NicFunctionParams, other: &NicFunctionParams| {
            one.port == other.port && one.mac == other.mac && one.pcie_port != other.pcie_port
        };
        let functions_share = |one| params.functions.iter().any(|other| shares(one, other));
        if params.flow_rules > 0 && params.functions.iter().any(functions_share) {
            params.features |= feature::STATION;
        }
        // What each function is, and the physical function of a virtual one.
        let mut wanted = Vec::new();
        for (number, &function) in (0..).zip(&params.functions) {
            wanted.push((function, None, physical(&params, number)?));
        }
        for (of, &owner) in (0..).zip(&params.functions) {
            let Some(virtuals) = params.virtual_functions else { break };
            for number in 0..virtuals.count {
                let function = NicFunctionParams { mac: virtual_mac(owner.mac, number), ..owner };
                wanted.push((function, Some(of), virtual_function(&params)?));
            }
        }
        let (params, handle) = (Rc::new(params), NicHandle::new(wanted.len()));
        let functions = (0..).zip(wanted).map(|(number, (function, physical, config))| {
            NicFunction::new(number, (&params, &handle), function, physical, config)
        });
        let functions: Vec<_> = functions.collect();
        functions.iter().for_each(NicFunction::show_rings);
        // Virtual functions come behind and have none.
        let kpio = params.kpio.map(|kpio| Kpio::new(kpio, params.functions.len(), params.max_frame));
        let nic = Self {
            kpio,
            switch_rules: SwitchRules::new(&params, functions.len()),
            functions,
            sender: Sender::default(),
            receiver: Receiver::new(Rc::clone(&params)),
            muxes: (0..params.ports).map(|_| Mux::default()).collect(),
            asked_until: vec![Time::ZERO; usize::from(params.ports)],
            around: Around::default(),
            inside: switch::Inside::default(),
            handle: handle.clone(),
            frame: Vec::new(),
            params,
        };
        Ok((nic, handle))
    }

    /// The function that a note is about.
    fn of(&mut self, note: Note) -> &mut NicFunction {
        &mut self.functions[usize::from(note.function)]
    }
}

impl Device for Nic {
    fn functions(&self) -> Vec<Function> {
        let function = |f: &NicFunction| Function { port: f.params.pcie_port, config: f.config.clone() };
        self.functions.iter().filter(|f| f.physical.is_none()).map(function).collect()
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
                self.forget_sending();
                self.receiver.forget(&mut self.functions);
                self.muxes.iter_mut().for_each(|mux| *mux = Mux::default());
                self.asked_until.fill(Time::ZERO);
                self.around = Around::default();
                self.inside.clear();
            }
            Reset::Function(FunctionIndex(function)) if usize::from(function) < self.functions.len() => {
                self.reset_function(bus, function);
                self.lose_reads(bus, function);
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
        if at.bar == KPIO_BAR && usize::from(at.function.0) < self.functions.len() {
            self.functions[usize::from(at.function.0)].read_held(offset, data);
        }
        self.params.register_latency
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let offset = at.offset.get();
        let is_whole = offset % 4 == 0 && data.len() % 4 == 0;
        let is_ours = usize::from(at.function.0) < self.functions.len() && !self.handle.is_hung();
        if at.bar == KPIO_BAR && is_ours {
            self.kpio_write(bus, at.function.0, offset, data);
            return;
        }
        if at.bar == INLINE_BAR && is_ours {
            self.inline_write(bus, at.function.0, offset, data);
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
        if at.bar == KPIO_BAR && usize::from(at.function.0) < self.functions.len() && !self.handle.is_hung() {
            self.kpio_holds(bus, at.function.0, at.offset.get())
        } else {
            Duration::ZERO
        }
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        let Some(note) = Note::of(token) else { return };
        match note.kind {
            Kind::TxFetch => self.tx_fetched(bus, note, outcome),
            Kind::RxFetch => self.receiver.fetched(bus, &mut self.functions, note, outcome),
            Kind::TxData => self.tx_data(bus, note, outcome),
            _ => {}
        }
    }

    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let Some(note) = Note::of(token) else { return };
        match note.kind {
            Kind::RxData => {
                self.receiver.written(note);
                self.let_go_on(bus);
            }
            Kind::TxCompletion => self.of(note).completion_written(bus, note, true),
            Kind::RxCompletion => self.of(note).completion_written(bus, note, false),
            _ => {}
        }
    }

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let Some(note) = Note::of(token) else { return };
        match note.kind {
            Kind::TxFlush => self.of(note).flush_due(bus, note, true),
            Kind::RxFlush => self.of(note).flush_due(bus, note, false),
            Kind::Doorbell => self.tx_fetch(bus, note.function, note.queue),
            Kind::TxPump => self.pump(bus),
            Kind::RxPump => self.receiver.pump(bus, &mut self.functions),
            Kind::Vector => self.of(note).vector_due(bus, note.first.into()),
            Kind::KpioPatience | Kind::KpioReport => self.kpio_due(bus, note),
            Kind::Mux => self.mux_due(bus, note.first),
            Kind::Loopback if note.second == switch::INSIDE => self.come_inside(bus),
            Kind::Loopback => self.come_round(bus, note.first),
            _ => {}
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
            function.event(bus, event::LINK);
        }
    }
}
