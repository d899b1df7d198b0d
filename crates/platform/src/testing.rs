//! A back-end for tests: a device with plain memory and no timing.
//!
//! DMA completes at once, timers run in order with the clock jumping from one to the next, and interrupts and frames
//! are collected. The device sees the same interface as on the fabric, [`Device`].

use std::collections::BTreeMap;

use units::{BarOffset, Duration, Time};
use wire::pcie::config::{ConfigEffect, ConfigSpace, ResetKind};

use crate::device::{
    BarAccess, Device, DeviceBus, Dma, DmaError, FunctionIndex, Reset, Token, VirtualFunction,
};
use crate::ethernet::{EthernetBus, EthernetPort};

/// A pending event.
enum Event {
    Read(Dma),
    Written(Token),
    Timer(Token),
}

/// Memory, clock and configuration space: everything except the device.
pub struct World {
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    /// Host memory, from address 0.
    pub memory: Vec<u8>,
    /// Interrupts raised and not yet taken: function and vector.
    pub interrupts: Vec<(FunctionIndex, u16)>,
    /// DMA requests outside of memory.
    pub faults: u64,
    /// Frames sent and not yet taken, with their port. They are sent without delay.
    pub sent: Vec<(EthernetPort, Vec<u8>)>,
    /// Whether the Ethernet links are up; see [`Bench::set_carrier`].
    pub carrier: bool,
    configs: Vec<ConfigSpace>,
}

/// A device under test.
pub struct Bench<D> {
    /// The device model.
    pub device: D,
    /// Everything else.
    pub world: World,
    /// Virtual functions, with their physical functions.
    virtual_functions: Vec<(u8, FunctionIndex)>,
}

impl World {
    /// Number of reads that the device waits for.
    pub fn reads_in_flight(&self) -> usize {
        self.events.values().filter(|event| matches!(event, Event::Read(_))).count()
    }

    fn at(&mut self, when: Time, event: Event) {
        self.number += 1;
        self.events.insert((when.max(self.now), self.number), event);
    }

    fn place(&self, request: &Dma) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(request.address.get()).ok()?;
        let end = start.checked_add(request.length as usize)?;
        let allowed = self.configs.get(usize::from(request.function.0))?.bus_master_enabled();
        (allowed && end <= self.memory.len()).then_some(start..end)
    }
}

impl DeviceBus for World {
    fn now(&self) -> Time {
        self.now
    }

    fn read(&mut self, request: Dma) {
        self.at(self.now, Event::Read(request));
    }

    fn write(&mut self, request: Dma, data: &[u8]) {
        match self.place(&request) {
            Some(place) => self.memory[place].copy_from_slice(data),
            None => self.faults += 1,
        }
        self.at(self.now, Event::Written(request.token));
    }

    fn interrupt(&mut self, function: FunctionIndex, vector: u16) {
        self.interrupts.push((function, vector));
    }

    fn wake_at(&mut self, when: Time, token: Token) {
        self.at(when, Event::Timer(token));
    }

    fn config(&self, function: FunctionIndex) -> &ConfigSpace {
        &self.configs[usize::from(function.0)]
    }

    fn ethernet(&mut self) -> Option<&mut dyn EthernetBus> {
        Some(self)
    }
}

impl EthernetBus for World {
    fn send(&mut self, port: EthernetPort, ready: Time, frame: &[u8]) -> Option<Time> {
        if !self.carrier {
            return None;
        }
        self.sent.push((port, frame.to_vec()));
        Some(ready.max(self.now))
    }

    fn has_carrier(&self, _: EthernetPort) -> bool {
        self.carrier
    }
}

impl<D: Device> Bench<D> {
    /// `device` after a fundamental reset, with `memory` bytes of host memory. Its functions have memory decoding and
    /// bus mastering enabled.
    pub fn new(device: D, memory: usize) -> Self {
        let physical = device.functions().len();
        let virtual_functions = device.virtual_functions();
        let configs = device
            .functions()
            .into_iter()
            .map(|function| function.config)
            .chain(virtual_functions.iter().map(|function| function.config.clone()))
            .map(|mut config| {
                config.write(4, 6, 0b0011);
                config
            })
            .collect();
        let world = World {
            now: Time::ZERO,
            events: BTreeMap::new(),
            number: 0,
            memory: vec![0; memory],
            interrupts: Vec::new(),
            faults: 0,
            sent: Vec::new(),
            carrier: true,
            configs,
        };
        let owner = |(n, function): (usize, VirtualFunction)| ((physical + n) as u8, function.physical);
        let virtual_functions = virtual_functions.into_iter().enumerate().map(owner).collect();
        Self { device, world, virtual_functions }
    }

    /// Current time; only the test advances it.
    pub fn now(&self) -> Time {
        self.world.now
    }

    /// Reads a BAR as the host does, without waiting for the register's latency.
    pub fn bar_read(&mut self, function: FunctionIndex, bar: u8, offset: u64, data: &mut [u8]) {
        let at = BarAccess { function, bar, offset: BarOffset::new(offset) };
        self.device.bar_read(&mut self.world, at, data);
    }

    /// Writes a BAR.
    pub fn bar_write(&mut self, function: FunctionIndex, bar: u8, offset: u64, data: &[u8]) {
        let at = BarAccess { function, bar, offset: BarOffset::new(offset) };
        self.device.bar_write(&mut self.world, at, data);
    }

    /// A frame arrives at an Ethernet port, including its check sequence.
    pub fn receive(&mut self, port: EthernetPort, frame: &[u8]) {
        self.device.frame_received(&mut self.world, port, frame);
    }

    /// Sets the link state of an Ethernet port.
    pub fn set_carrier(&mut self, port: EthernetPort, up: bool) {
        self.world.carrier = up;
        self.device.carrier_changed(&mut self.world, port, up);
    }

    /// Writes a doubleword of configuration space.
    pub fn config_write(&mut self, function: FunctionIndex, register: u16, value: u32) {
        let effects = self.world.configs[usize::from(function.0)].write(register, value, 0xf);
        for effect in effects {
            if effect == ConfigEffect::FunctionLevelReset {
                self.reset_function(function);
            }
            if matches!(effect, ConfigEffect::Sriov { enabled: false, .. }) {
                self.reset_virtual_functions(function);
            }
            self.device.config_changed(&mut self.world, function, &effect);
        }
    }

    fn reset_function(&mut self, function: FunctionIndex) {
        self.world.configs[usize::from(function.0)].reset(ResetKind::Function);
        self.reset_virtual_functions(function);
        self.device.reset(&mut self.world, Reset::Function(function));
    }

    fn reset_virtual_functions(&mut self, of: FunctionIndex) {
        for (function, _) in
            self.virtual_functions.clone().into_iter().filter(|(_, physical)| *physical == of)
        {
            self.reset_function(FunctionIndex(function));
        }
    }

    /// Resets the device; pending requests get no outcome.
    pub fn reset(&mut self, reset: Reset) {
        self.world.events.clear();
        self.device.reset(&mut self.world, reset);
    }

    /// Handles the next event; `false` if there is none.
    pub fn step(&mut self) -> bool {
        let Some(((when, _), event)) = self.world.events.pop_first() else { return false };
        self.world.now = when;
        match event {
            Event::Read(request) => match self.world.place(&request) {
                Some(place) => {
                    let data = self.world.memory[place].to_vec();
                    self.device.read_done(&mut self.world, request.token, Ok(&data));
                }
                None => {
                    self.world.faults += 1;
                    let error = Err(DmaError::UnsupportedRequest);
                    self.device.read_done(&mut self.world, request.token, error);
                }
            },
            Event::Written(token) => self.device.write_done(&mut self.world, token),
            Event::Timer(token) => self.device.timer(&mut self.world, token),
        }
        true
    }

    /// Handles all events within `time`, and advances the clock.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.world.now + time;
        while self.world.events.first_key_value().is_some_and(|((when, _), _)| *when <= end) {
            self.step();
        }
        self.world.now = end;
    }
}
