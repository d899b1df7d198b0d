//! A function that ignores its driver: it reads, writes and interrupts where it likes.
//!
//! [`Rogue`] is a wrapper around any device model, which goes on working and does not hear of these requests. A [`Rogue`]
//! obeys what it cannot escape: the PCIe core below it, which sends nothing without bus master enable.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use engine::Rng;
use platform::device::{
    BarAccess, Device, DeviceBus, Dma, DmaAttributes, DmaError, Function, FunctionIndex, PortIndex, Reset,
    Stage, Token, VirtualFunction,
};
use platform::ethernet::{EthernetPort, EthernetPortInfo};
use platform::mover::DataMover;
use units::{Duration, Iova, Time};
use wire::pcie::config::ConfigEffect;

/// Bytes that a rogue function writes: nothing else does.
pub const LINE: [u8; 64] = *b"a rogue function wrote this line, which nobody has asked it for.";

/// Addresses in which writes are interrupt messages (Intel SDM volume 3, message signalled interrupts).
const MESSAGES: Range<u64> = 0xfee0_0000..0xfef0_0000;

/// What a rogue function tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RogueRequest {
    /// Read a line.
    Read,
    /// Write a line.
    Write,
    /// Send an interrupt message with this data.
    Message(u32),
}

/// A try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RogueTry {
    /// What it is.
    pub what: RogueRequest,
    /// Bus address.
    pub address: u64,
    /// Whether the address is said to be translated (AT = 10).
    pub translated: bool,
}

impl RogueTry {
    /// Bytes that it reads or writes.
    pub const fn bytes(self) -> u64 {
        match self.what {
            RogueRequest::Message(_) => 4,
            RogueRequest::Read | RogueRequest::Write => LINE.len() as u64,
        }
    }
}

/// What the function itself hears of a try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RogueHeard {
    /// These bytes were read.
    Data(Vec<u8>),
    /// A read was answered by an error.
    Refused(DmaError),
    /// A write has left, or was lost because bus mastering is off.
    Sent,
}

/// Random tries: reads, writes and messages, a quarter of them with translated addresses. Their addresses are in
/// ranges worth attacking, among interrupt messages, or anywhere.
#[derive(Debug)]
pub struct RogueTries {
    rng: Rng,
    worth: Vec<Range<u64>>,
}

impl RogueTries {
    /// RogueTries against `worth`, ranges of bus addresses, and everything else.
    pub fn new(rng: Rng, worth: Vec<Range<u64>>) -> Self {
        let worth = worth.into_iter().filter(|range| !range.is_empty()).collect();
        Self { rng, worth }
    }
}

impl Iterator for RogueTries {
    type Item = RogueTry;

    fn next(&mut self) -> Option<RogueTry> {
        let rng = &mut self.rng;
        let address = match (rng.below(8), &self.worth[..]) {
            (0, _) => MESSAGES.start + rng.below(MESSAGES.end - MESSAGES.start),
            // Bus addresses have 64 bits; memory and windows lie within 46.
            (1, _) | (_, []) => rng.u64() >> (rng.below(3) * 9),
            (_, worth) => {
                let range = &worth[rng.below(worth.len() as u64) as usize];
                range.start + rng.below(range.end - range.start)
            }
        };
        let what = match rng.below(4) {
            0 => RogueRequest::Read,
            1 if MESSAGES.contains(&address) => RogueRequest::Read,
            _ if MESSAGES.contains(&address) => {
                RogueRequest::Message(rng.u64() as u32 >> (rng.below(2) * 16))
            }
            _ if rng.bool() => RogueRequest::Read,
            _ => RogueRequest::Write,
        };
        let one = RogueTry { what, address, translated: rng.below(4) == 0 };
        Some(RogueTry { address: address / one.bytes() * one.bytes(), ..one })
    }
}

/// What a [`Rogue`] and its [`RogueHandle`] share.
#[derive(Clone)]
struct RogueAnswer {
    heard: Rc<RefCell<Option<RogueHeard>>>,
    /// Marks its own requests.
    mark: Token,
}

/// Tells a [`Rogue`] what to try.
#[derive(Clone)]
pub struct RogueHandle(RogueAnswer);

impl RogueHandle {
    /// Lets a function send one try, once it has heard of the one before.
    pub fn send(&self, bus: &mut dyn DeviceBus, function: FunctionIndex, one: RogueTry) {
        self.0.heard.replace(None);
        let attributes = DmaAttributes { translated: one.translated, ..DmaAttributes::default() };
        let request = |length: usize| Dma {
            function,
            address: Iova::new(one.address),
            length: length as u32,
            token: self.0.mark,
            attributes,
        };
        match one.what {
            RogueRequest::Read => bus.read(request(LINE.len())),
            RogueRequest::Write => bus.write(request(LINE.len()), &LINE),
            RogueRequest::Message(data) => bus.write(request(4), &data.to_le_bytes()),
        }
    }

    /// What the function has heard of the last try, if it has.
    pub fn heard(&self) -> Option<RogueHeard> {
        self.0.heard.borrow().clone()
    }
}

/// A device one of whose functions may go rogue.
pub struct Rogue {
    device: Box<dyn Device>,
    shared: RogueAnswer,
}

impl Rogue {
    /// Wraps a device, which may be one already: a random `mark` tells its own requests from all others.
    pub fn new(device: Box<dyn Device>, mark: u64) -> (Self, RogueHandle) {
        let shared = RogueAnswer { heard: Rc::default(), mark: Token(mark | 1 << 63) };
        (Self { device, shared: shared.clone() }, RogueHandle(shared))
    }

    /// Notes what was heard of its own request. Returns whether it is one.
    fn hears(&self, token: Token, heard: impl FnOnce() -> RogueHeard) -> bool {
        let is_own = token == self.shared.mark;
        if is_own {
            self.shared.heard.replace(Some(heard()));
        }
        is_own
    }
}

impl Device for Rogue {
    fn functions(&self) -> Vec<Function> {
        self.device.functions()
    }
    fn virtual_functions(&self) -> Vec<VirtualFunction> {
        self.device.virtual_functions()
    }
    fn data_mover(&self, port: PortIndex) -> Box<dyn DataMover> {
        self.device.data_mover(port)
    }
    fn stages(&self, now: Time) -> Vec<Stage> {
        self.device.stages(now)
    }
    fn reset(&mut self, bus: &mut dyn DeviceBus, reset: Reset) {
        self.device.reset(bus, reset);
    }
    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        self.device.bar_read(bus, at, data)
    }
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        self.device.bar_write(bus, at, data);
    }
    fn bar_write_holds(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, length: u32) -> Duration {
        self.device.bar_write_holds(bus, at, length)
    }
    fn config_changed(&mut self, bus: &mut dyn DeviceBus, function: FunctionIndex, effect: &ConfigEffect) {
        self.device.config_changed(bus, function, effect);
    }
    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        let heard = || outcome.map_or_else(RogueHeard::Refused, |data| RogueHeard::Data(data.to_vec()));
        if !self.hears(token, heard) {
            self.device.read_done(bus, token, outcome);
        }
    }
    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        if !self.hears(token, || RogueHeard::Sent) {
            self.device.write_done(bus, token);
        }
    }
    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        self.device.timer(bus, token);
    }
    fn ethernet_ports(&self) -> Vec<EthernetPortInfo> {
        self.device.ethernet_ports()
    }
    fn frame_received(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, frame: &[u8]) {
        self.device.frame_received(bus, port, frame);
    }
    fn carrier_changed(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, up: bool) {
        self.device.carrier_changed(bus, port, up);
    }
}
