//! A back-end for tests: memory, reads that may overtake each other, a cable with wire time, no PCIe.

use std::collections::BTreeMap;

use engine::{Rng, Seed};
use platform::device::{BarAccess, Device, DeviceBus, Dma, DmaError, FunctionIndex, Reset, Token};
use platform::ethernet::{EthernetBus, EthernetPort};
use units::{BarOffset, BitRate, Bytes, Duration, Time};
use wire::pcie::config::caps::{self, id};
use wire::pcie::config::{ConfigSpace, msix};

use crate::common::back_end::BackEnd;

/// Bytes of memory per device, from address 0.
pub const MEMORY: usize = 16 << 20;

enum Event {
    Read(usize, Dma),
    Written(usize, Token),
    Timer(usize, Token),
    Frame(usize, EthernetPort, Vec<u8>),
}

/// A request of a device: type, function, number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Read(usize, u8, u32),
    Answered(usize, u8, u32),
    Write(usize, u8, u32),
}

/// Everything but the devices.
pub struct World {
    pub now: Time,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    pub memories: Vec<Vec<u8>>,
    /// Interrupts raised: device, function, vector.
    pub interrupts: Vec<(usize, u8, u16)>,
    /// Frames that were sent: device, port, bytes.
    pub sent: Vec<(usize, u8, Vec<u8>)>,
    peers: BTreeMap<(usize, u8), (usize, u8)>,
    free: BTreeMap<(usize, u8), Time>,
    pub carrier: bool,
    pub rate: BitRate,
    rng: Rng,
    /// Maximum additional latency of a read, random for each.
    pub jitter: Duration,
    /// A function whose reads take so much longer.
    pub slow: Option<(u8, Duration)>,
    /// Time per byte of a write.
    pub write_ps_per_byte: u64,
    write_free: Vec<Time>,
    /// Requests of the devices in order of issue; reads are logged again on completion.
    pub log: Vec<Asked>,
    configs: Vec<Vec<ConfigSpace>>,
}

/// Devices and their world.
pub struct Bench {
    pub world: World,
    devices: Vec<Option<Box<dyn Device>>>,
}

struct Bus<'a> {
    world: &'a mut World,
    device: usize,
}

impl World {
    fn at(&mut self, when: Time, event: Event) {
        self.number += 1;
        self.events.insert((when.max(self.now), self.number), event);
    }

    pub fn bytes(&mut self, host: usize, at: u64, length: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(at).ok()?;
        self.memories[host].get_mut(at..at.checked_add(length)?)
    }
}

impl DeviceBus for Bus<'_> {
    fn now(&self) -> Time {
        self.world.now
    }

    fn read(&mut self, request: Dma) {
        let jitter = self.world.rng.below(self.world.jitter.as_ps() + 1);
        let longer = self.world.slow.filter(|&(function, _)| function == request.function.0);
        let longer = longer.map_or(Duration::ZERO, |(_, longer)| longer);
        let when = self.world.now + Duration::from_ns(500) + Duration::from_ps(jitter) + longer;
        self.world.log.push(Asked::Read(self.device, request.function.0, request.length));
        self.world.at(when, Event::Read(self.device, request));
    }

    fn write(&mut self, request: Dma, data: &[u8]) {
        assert_eq!(request.length as usize, data.len());
        self.world.log.push(Asked::Write(self.device, request.function.0, request.length));
        if let Some(place) = self.world.bytes(self.device, request.address.get(), data.len()) {
            place.copy_from_slice(data);
        }
        let took = Duration::from_ps(self.world.write_ps_per_byte * data.len() as u64);
        let free = self.world.write_free[self.device].max(self.world.now) + took;
        self.world.write_free[self.device] = free;
        self.world.at(free, Event::Written(self.device, request.token));
    }

    fn interrupt(&mut self, function: FunctionIndex, vector: u16) {
        self.world.interrupts.push((self.device, function.0, vector));
    }

    fn wake_at(&mut self, when: Time, token: Token) {
        self.world.at(when, Event::Timer(self.device, token));
    }

    fn config(&self, function: FunctionIndex) -> &ConfigSpace {
        &self.world.configs[self.device][usize::from(function.0)]
    }

    fn ethernet(&mut self) -> Option<&mut dyn EthernetBus> {
        Some(self)
    }
}

impl EthernetBus for Bus<'_> {
    fn send(&mut self, port: EthernetPort, ready: Time, frame: &[u8]) -> Option<Time> {
        let world = &mut *self.world;
        if !world.carrier {
            return None;
        }
        let wire = world.rate.time_for(Bytes::new(frame.len() as u64 + 20));
        let free = world.free.entry((self.device, port.0)).or_default();
        *free = (*free).max(ready).max(world.now) + wire;
        let left = *free;
        world.sent.push((self.device, port.0, frame.to_vec()));
        if let Some(&(device, port)) = world.peers.get(&(self.device, port.0)) {
            world.at(left, Event::Frame(device, EthernetPort(port), frame.to_vec()));
        }
        Some(left)
    }

    fn has_carrier(&self, _port: EthernetPort) -> bool {
        self.world.carrier
    }
}

/// State as set by a driver that uses MSI-X.
fn with_messages(mut config: ConfigSpace) -> ConfigSpace {
    let found = caps::find(&|at| config.read(at, 4), id::MSIX);
    if let Some(at) = found {
        config.write(at, u32::from(msix::ENABLE) << 16, 0b1000);
    }
    config
}

impl Bench {
    /// Devices with memory of their own, not connected.
    pub fn new(devices: Vec<Box<dyn Device>>) -> Self {
        let config = |d: &dyn Device| {
            let physical = d.functions().into_iter().map(|f| f.config);
            let all = physical.chain(d.virtual_functions().into_iter().map(|f| f.config));
            all.map(with_messages).collect()
        };
        let world = World {
            now: Time::ZERO,
            events: BTreeMap::new(),
            number: 0,
            memories: vec![vec![0; MEMORY]; devices.len()],
            interrupts: Vec::new(),
            sent: Vec::new(),
            peers: BTreeMap::new(),
            free: BTreeMap::new(),
            carrier: true,
            rate: BitRate::gbit_per_s(40),
            rng: Seed::new(1).component("bench"),
            jitter: Duration::ZERO,
            slow: None,
            write_ps_per_byte: 0,
            write_free: vec![Time::ZERO; devices.len()],
            log: Vec::new(),
            configs: devices.iter().map(|d| config(&**d)).collect(),
        };
        Self { world, devices: devices.into_iter().map(Some).collect() }
    }

    /// Connects port 0 of two devices.
    pub fn connect(&mut self, a: usize, b: usize) {
        self.world.peers.insert((a, 0), (b, 0));
        self.world.peers.insert((b, 0), (a, 0));
    }

    pub fn seed(&mut self, seed: u64) {
        self.world.rng = Seed::new(seed).component("bench");
    }

    pub fn with<R>(
        &mut self,
        device: usize,
        act: impl FnOnce(&mut dyn Device, &mut dyn DeviceBus) -> R,
    ) -> R {
        let mut taken = self.devices[device].take().expect("a device does not call itself");
        let result = act(&mut *taken, &mut Bus { world: &mut self.world, device });
        self.devices[device] = Some(taken);
        result
    }

    pub fn write(&mut self, device: usize, function: u8, at: u64, data: &[u8]) {
        self.write_bar(device, function, 0, at, data);
    }

    pub fn write_bar(&mut self, device: usize, function: u8, bar: u8, at: u64, data: &[u8]) {
        let access = BarAccess { function: FunctionIndex(function), bar, offset: BarOffset::new(at) };
        self.with(device, |device, bus| device.bar_write(bus, access, data));
    }

    pub fn write32(&mut self, device: usize, function: u8, at: u64, value: u32) {
        self.write(device, function, at, &value.to_le_bytes());
    }

    pub fn read32(&mut self, device: usize, function: u8, at: u64) -> u32 {
        let access = BarAccess { function: FunctionIndex(function), bar: 0, offset: BarOffset::new(at) };
        let mut data = [0; 4];
        self.with(device, |device, bus| device.bar_read(bus, access, &mut data));
        u32::from_le_bytes(data)
    }

    pub fn reset(&mut self, device: usize, reset: Reset) {
        // Requests in flight never complete.
        self.world.events.retain(|_, event| match event {
            Event::Read(d, _) | Event::Written(d, _) | Event::Timer(d, _) => *d != device,
            Event::Frame(..) => true,
        });
        self.with(device, |device, bus| device.reset(bus, reset));
    }

    pub fn set_carrier(&mut self, up: bool) {
        self.world.carrier = up;
        for device in 0..self.devices.len() {
            self.with(device, |device, bus| device.carrier_changed(bus, EthernetPort(0), up));
        }
    }

    /// Injects a frame now.
    pub fn inject(&mut self, device: usize, port: u8, frame: &[u8]) {
        self.with(device, |device, bus| device.frame_received(bus, EthernetPort(port), frame));
    }

    /// Runs until `end`, or until no events are left.
    pub fn run_until(&mut self, end: Time) {
        while let Some((&(when, _), _)) = self.world.events.first_key_value() {
            if when > end {
                break;
            }
            let Some(((when, _), event)) = self.world.events.pop_first() else { break };
            self.world.now = when;
            match event {
                Event::Read(device, dma) => {
                    self.world.log.push(Asked::Answered(device, dma.function.0, dma.length));
                    let data = self
                        .world
                        .bytes(device, dma.address.get(), dma.length as usize)
                        .map(|bytes| bytes.to_vec())
                        .ok_or(DmaError::UnsupportedRequest);
                    self.with(device, |device, bus| {
                        device.read_done(bus, dma.token, data.as_deref().map_err(|&error| error));
                    });
                }
                Event::Written(device, token) => {
                    self.with(device, |device, bus| device.write_done(bus, token))
                }
                Event::Timer(device, token) => self.with(device, |device, bus| device.timer(bus, token)),
                Event::Frame(device, port, frame) => {
                    self.with(device, |device, bus| device.frame_received(bus, port, &frame));
                }
            }
        }
        self.world.now = self.world.now.max(end);
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.world.now + time);
    }
}

impl BackEnd for Bench {
    fn memory_read(&mut self, host: usize, at: u64, into: &mut [u8]) {
        into.copy_from_slice(self.world.bytes(host, at, into.len()).unwrap());
    }
    fn memory_write(&mut self, host: usize, at: u64, from: &[u8]) {
        self.world.bytes(host, at, from.len()).unwrap().copy_from_slice(from);
    }
    fn register_read(&mut self, host: usize, function: u8, at: u64) -> u32 {
        self.read32(host, function, at)
    }
    fn register_write(&mut self, host: usize, function: u8, at: u64, data: &[u8]) {
        self.write(host, function, at, data);
    }
    fn pass(&mut self, time: Duration) {
        self.run_for(time);
    }
    fn take_interrupts(&mut self) -> Vec<(usize, u16)> {
        self.world.interrupts.drain(..).map(|(host, _, vector)| (host, vector)).collect()
    }
    fn restart(&mut self, host: usize) {
        self.reset(host, Reset::Fundamental);
    }
}
