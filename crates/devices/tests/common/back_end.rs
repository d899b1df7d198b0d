//! Back-ends for tests: the platform's trivial one, without timing, or the complete fabric.

use platform::device::{Device, FunctionIndex, Reset};
use platform::ethernet::EthernetPort;
use platform::testing::Bench;
use units::Duration;

use super::machines::Machines;

/// Hosts with one device each, whose registers are in BAR 0.
pub trait BackEnd {
    fn memory_read(&mut self, host: usize, at: u64, into: &mut [u8]);
    fn memory_write(&mut self, host: usize, at: u64, from: &[u8]);
    fn register_read(&mut self, host: usize, function: u8, at: u64) -> u32;
    fn register_write(&mut self, host: usize, function: u8, at: u64, data: &[u8]);
    fn pass(&mut self, time: Duration);
    /// Interrupts since the last call, as host and vector.
    fn take_interrupts(&mut self) -> Vec<(usize, u16)>;
    /// A fundamental reset, followed by the host's setup.
    fn restart(&mut self, host: usize);
}

/// Memory per host in bytes.
const MEMORY: usize = 16 << 20;
/// Interval at which frames pass from one device to the other.
const TURN: Duration = Duration::from_ns(100);

/// The platform's back-end, one per device. Each device receives what the other sends.
pub struct Trivial(Vec<Bench<Box<dyn Device>>>);

impl Trivial {
    pub fn new(devices: Vec<Box<dyn Device>>) -> Self {
        Self(devices.into_iter().map(|device| Bench::new(device, MEMORY)).collect())
    }

    fn turn(&mut self, time: Duration) {
        self.0.iter_mut().for_each(|bench| bench.run_for(time));
        let sent: Vec<_> = self.0.iter_mut().map(|bench| std::mem::take(&mut bench.world.sent)).collect();
        for (from, frames) in sent.into_iter().enumerate() {
            let others = self.0.len();
            for (_, frame) in frames {
                self.0[(from + 1) % others].receive(EthernetPort(0), &frame);
            }
        }
    }
}

impl BackEnd for Trivial {
    fn memory_read(&mut self, host: usize, at: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.0[host].world.memory[at as usize..at as usize + into.len()]);
    }
    fn memory_write(&mut self, host: usize, at: u64, from: &[u8]) {
        self.0[host].world.memory[at as usize..at as usize + from.len()].copy_from_slice(from);
    }
    fn register_read(&mut self, host: usize, function: u8, at: u64) -> u32 {
        let mut data = [0; 4];
        self.0[host].bar_read(FunctionIndex(function), 0, at, &mut data);
        u32::from_le_bytes(data)
    }
    fn register_write(&mut self, host: usize, function: u8, at: u64, data: &[u8]) {
        self.0[host].bar_write(FunctionIndex(function), 0, at, data);
    }
    fn pass(&mut self, time: Duration) {
        let mut left = time;
        while left > Duration::ZERO {
            let turn = left.min(TURN);
            self.turn(turn);
            left -= turn;
        }
    }
    fn take_interrupts(&mut self) -> Vec<(usize, u16)> {
        let mut all = Vec::new();
        for (host, bench) in self.0.iter_mut().enumerate() {
            all.extend(bench.world.interrupts.drain(..).map(|(_, vector)| (host, vector)));
        }
        all
    }
    fn restart(&mut self, host: usize) {
        self.0[host].reset(Reset::Fundamental);
    }
}

impl BackEnd for Machines {
    fn memory_read(&mut self, host: usize, at: u64, into: &mut [u8]) {
        self.read(host, at, into);
    }
    fn memory_write(&mut self, host: usize, at: u64, from: &[u8]) {
        self.write(host, at, from);
    }
    fn register_read(&mut self, host: usize, function: u8, at: u64) -> u32 {
        assert_eq!(function, 0, "the others have no place on these hosts");
        self.bar_read(host, 0, at)
    }
    fn register_write(&mut self, host: usize, function: u8, at: u64, data: &[u8]) {
        assert_eq!(function, 0, "the others have no place on these hosts");
        self.bar_write(host, 0, at, data);
    }
    fn pass(&mut self, time: Duration) {
        self.run_for(time);
    }
    fn take_interrupts(&mut self) -> Vec<(usize, u16)> {
        self.interrupts()
    }
    fn restart(&mut self, host: usize) {
        self.reset(host);
    }
}
