//! A card with a DMA engine and the firmware of pcie-bench.
//!
//! The firmware runs one test at a time, configured by its registers in BAR 0 ([`wire::dma_engine`]). In a latency
//! test, one thread does transfers one after the other and measures each. In a bandwidth test, many threads share a
//! transaction counter; each starts the next transaction when its own is complete. The card's [mover](mod@mover) moves
//! the data.

mod addresses;
mod journal;
mod mover;

use std::cell::RefCell;
use std::rc::Rc;

use engine::Rng;
use platform::device::{
    BarAccess, Device, DeviceBus, Dma, DmaAttributes, DmaError, Function, FunctionIndex, PortIndex, Reset,
    Token,
};
use platform::mover::DataMover;
use units::{Duration, Iova, Time};
use wire::dma_engine::{self as regs, Test};
use wire::pcie::config::{ConfigError, ConfigSpace, PcieParams};

pub use addresses::Addresses;
pub use journal::{Journal, TestProgress};
pub use mover::{
    BusParams, DrainParams, EngineParams, Linear, LocalMemoryParams, MoverParams, TransmitParams,
    WriteOutParams,
};
use mover::{Mover, Transfer};

/// Timing of the card's firmware and data mover, and the card's identity.
#[derive(Clone, Debug)]
pub struct DmaEngineParams {
    /// Resolution of the timestamps.
    pub tick: Duration,
    /// Threads of a bandwidth test.
    pub workers: u32,
    /// From the end of one sample of a latency test to the start of the next.
    pub sample_gap: Duration,
    /// From a write of the command interface to the read that follows it.
    pub command_write_then_read: Duration,
    /// Largest transfer of the command interface in bytes.
    pub command_largest: u32,
    /// The command interface rounds addresses down to multiples of this.
    pub command_granule: u32,
    /// *Quirk*: number of address bits of the command interface that reach the bus.
    pub command_address_bits: u32,
    /// Extra time between two commands to different chunks of the buffer, for moving the firmware's window.
    pub command_window_change: Duration,
    /// Latency of a register access in the card.
    pub register_latency: Duration,
    /// The data mover.
    pub mover: MoverParams,
    /// PCIe capabilities of the card.
    pub pcie: PcieParams,
    /// PCI vendor and device ID.
    pub ids: (u16, u16),
}

/// Minimum number of batches per test, to detect steady state.
const BATCHES: u64 = 64;
/// Maximum transactions per batch, so that a long test has many batches even before it is over.
const LONGEST_BATCH: u64 = 31;
/// Token of the timer that starts the next sample.
const NEXT_SAMPLE: Token = Token(0);
/// Token of the timer that starts a sample whose address has been drawn.
const WINDOW_MOVED: Token = Token(1);
/// Token of the timer that ends the pause between a command's write and its read.
const PAUSED: Token = Token(2);

/// A running test.
struct Run {
    test: Test,
    length: u32,
    transfer: Transfer,
    addresses: Addresses,
    chunks: [u64; regs::CHUNKS],
    /// Transactions not yet started.
    left: u64,
    /// Transactions not yet completed.
    open: u64,
    sample_began: Time,
    /// Address of the current sample.
    sample_at: Iova,
    /// Chunk in the command interface's window.
    shown: u64,
    sample: u64,
}

/// A card with a DMA engine.
pub struct DmaEngine {
    params: DmaEngineParams,
    config: ConfigSpace,
    registers: Vec<u8>,
    run: Option<Run>,
    journal: Rc<RefCell<Journal>>,
    rng: Rng,
    pattern: Vec<u8>,
}

impl DmaEngine {
    /// A card after power-on, and its journal.
    ///
    /// # Errors
    /// If the capabilities do not fit together.
    pub fn new(params: DmaEngineParams, rng: Rng) -> Result<(Self, Rc<RefCell<Journal>>), ConfigError> {
        let (vendor, device) = params.ids;
        let config = ConfigSpace::endpoint(vendor, device, NETWORK_CONTROLLER)
            .bar64(0, regs::BAR_BYTES, false)
            .power_management()
            .pcie(params.pcie)
            .aer()
            .ecrc()
            .build()?;
        let journal = Rc::new(RefCell::new(Journal::default()));
        let card = Self {
            params,
            config,
            registers: vec![0; regs::BAR_BYTES as usize],
            run: None,
            journal: journal.clone(),
            rng,
            pattern: Vec::new(),
        };
        Ok((card, journal))
    }

    fn register(&self, at: u64) -> u32 {
        let at = at as usize;
        u32::from_le_bytes([
            self.registers[at],
            self.registers[at + 1],
            self.registers[at + 2],
            self.registers[at + 3],
        ])
    }

    fn register64(&self, at: u64) -> u64 {
        u64::from(self.register(at)) | u64::from(self.register(at + 4)) << 32
    }

    fn set_status(&mut self, status: u32) {
        let at = regs::STATUS as usize;
        self.registers[at..at + 4].copy_from_slice(&status.to_le_bytes());
    }

    /// Starts the test described by the registers. An invalid one ends at once without results.
    fn start(&mut self, bus: &mut dyn DeviceBus) {
        let transfer = self.register(regs::TRANSFER);
        let window = u64::from(self.register(regs::WINDOW));
        let host_offset = u64::from(self.register(regs::HOST_OFFSET));
        let transactions = u64::from(self.register(regs::TRANSACTIONS));
        let is_command = self.register(regs::INTERFACE) == 1;
        let test = Test::from_number(self.register(regs::TEST));
        let batch = (transactions / BATCHES).clamp(1, LONGEST_BATCH);
        self.journal.borrow_mut().begin(bus.now(), batch);
        let most = if is_command { self.params.command_largest } else { 4096 };
        let fits = (1..=most).contains(&transfer) && u64::from(transfer) + host_offset <= window;
        let (Some(test), true, true) = (test, fits, transactions > 0) else {
            self.journal.borrow_mut().end(Time::ZERO);
            self.set_status(regs::DONE);
            return;
        };
        let random = (self.register(regs::RANDOM) == 1).then(|| self.register64(regs::SEED));
        let mut chunks = [0; regs::CHUNKS];
        for (index, chunk) in chunks.iter_mut().enumerate() {
            *chunk = self.register64(regs::CHUNK_ADDRESSES + 8 * index as u64);
        }
        self.pattern = (0..transfer as usize).map(|i| i as u8).collect();
        self.run = Some(Run {
            test,
            length: transfer,
            transfer: Transfer { is_command, local: self.register(regs::DEVICE_OFFSET) },
            addresses: Addresses::new(window, u64::from(transfer), host_offset, random),
            chunks,
            left: transactions,
            open: 0,
            sample_began: Time::ZERO,
            sample_at: Iova::new(0),
            shown: 0,
            sample: 0,
        });
        self.set_status(1);
        if test.is_latency() {
            self.next_sample(bus);
        } else {
            for _ in 0..self.params.workers {
                self.next_transaction(bus);
            }
        }
    }

    fn finish(&mut self, now: Time) {
        self.run = None;
        self.journal.borrow_mut().end(now);
        self.set_status(regs::DONE);
    }

    /// Draws the address of the next sample of a latency test, and starts it once the window covers it.
    fn next_sample(&mut self, bus: &mut dyn DeviceBus) {
        let granule = u64::from(self.params.command_granule.max(1));
        let Some(run) = &mut self.run else { return };
        if run.left == 0 {
            self.finish(bus.now());
            return;
        }
        run.left -= 1;
        run.sample += 1;
        run.sample_at = run.next_address();
        if run.transfer.is_command {
            let chunk = run.sample_at.get() / regs::CHUNK_BYTES;
            let is_shown = std::mem::replace(&mut run.shown, chunk) == chunk;
            let reach = u64::MAX >> (64 - self.params.command_address_bits.clamp(1, 64));
            run.sample_at = Iova::new((run.sample_at.get() - run.sample_at.get() % granule) & reach);
            if !is_shown {
                bus.wake_at(bus.now() + self.params.command_window_change, WINDOW_MOVED);
                return;
            }
        }
        self.begin_sample(bus);
    }

    /// Starts a sample whose address has been drawn.
    fn begin_sample(&mut self, bus: &mut dyn DeviceBus) {
        let Some(run) = &mut self.run else { return };
        run.sample_began = bus.now();
        let at = run.sample_at;
        match run.test {
            Test::LatencyWriteRead => {
                let (write, sample) = (run.dma(at), run.sample);
                let is_command = run.transfer.is_command;
                for (byte, value) in self.pattern.iter_mut().zip(sample.to_le_bytes()) {
                    *byte = value;
                }
                bus.write(write, &self.pattern);
                if is_command {
                    // Both commands are issued at once; the card's ordering keeps the read behind the write.
                    bus.wake_at(bus.now() + self.params.command_write_then_read, PAUSED);
                }
            }
            _ => bus.read(run.dma(at)),
        }
    }

    /// Reads back what the current sample has written.
    fn read_back(&mut self, bus: &mut dyn DeviceBus) {
        if let Some(run) = &self.run {
            bus.read(run.dma(run.sample_at));
        }
    }

    /// Starts the next transaction of a bandwidth test.
    #[inline(always)]
    fn next_transaction(&mut self, bus: &mut dyn DeviceBus) {
        let Some(run) = &mut self.run else { return };
        if run.left == 0 {
            return;
        }
        let number = run.left;
        run.left -= 1;
        run.open += 1;
        let at = run.next_address();
        // Reads and writes alternate by transaction number.
        let is_read = match run.test {
            Test::BandwidthRead => true,
            Test::BandwidthWrite => false,
            _ => number % 2 == 1,
        };
        if is_read {
            bus.read(run.dma(at));
        } else {
            bus.write(run.dma(at), &self.pattern);
        }
    }

    #[inline(always)]
    fn transaction_done(&mut self, bus: &mut dyn DeviceBus) {
        let Some(run) = &mut self.run else { return };
        run.open -= 1;
        let over = run.left == 0 && run.open == 0;
        self.journal.borrow_mut().record_transaction(|| bus.now());
        if over {
            self.finish(bus.now());
        } else {
            self.next_transaction(bus);
        }
    }

    fn sample_done(&mut self, bus: &mut dyn DeviceBus) {
        let Some(run) = &self.run else { return };
        let tick = self.params.tick;
        // The clock is free-running, so a sample starts anywhere between two ticks.
        let latency = bus.now().truncated_to(tick).since(run.sample_began.truncated_to(tick));
        self.journal.borrow_mut().record_latency(latency);
        let phase = Duration::from_ps(self.rng.below(tick.as_ps().max(1)));
        bus.wake_at(bus.now() + self.params.sample_gap + phase, NEXT_SAMPLE);
    }
}

/// Class code: Ethernet controller, as used by pcie-bench's cards.
const NETWORK_CONTROLLER: u32 = 0x02_0000;

impl Run {
    #[inline]
    fn next_address(&mut self) -> Iova {
        let offset = self.addresses.next_offset();
        let chunk = (offset / regs::CHUNK_BYTES) as usize % regs::CHUNKS;
        Iova::new(self.chunks[chunk] + offset % regs::CHUNK_BYTES)
    }

    fn dma(&self, address: Iova) -> Dma {
        Dma {
            function: FunctionIndex(0),
            address,
            length: self.length,
            token: self.transfer.token(),
            attributes: DmaAttributes::PAYLOAD,
        }
    }
}

impl Device for DmaEngine {
    fn functions(&self) -> Vec<Function> {
        vec![Function { port: PortIndex(0), config: self.config.clone() }]
    }

    fn data_mover(&self, _port: PortIndex) -> Box<dyn DataMover> {
        Box::new(Mover::new(self.params.mover.clone()))
    }

    fn reset(&mut self, _bus: &mut dyn DeviceBus, _reset: Reset) {
        self.run = None;
        self.registers.fill(0);
    }

    fn bar_read(&mut self, _bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        let start = at.offset.get() as usize;
        if let Some(bytes) = self.registers.get(start..start + data.len()) {
            data.copy_from_slice(bytes);
        }
        self.params.register_latency
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let start = at.offset.get() as usize;
        if let Some(bytes) = self.registers.get_mut(start..start + data.len()) {
            bytes.copy_from_slice(data);
        }
        let starts = start as u64 == regs::CONTROL && self.register(regs::CONTROL) == regs::START;
        if starts && self.run.is_none() {
            self.start(bus);
        }
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, _token: Token, outcome: Result<&[u8], DmaError>) {
        let Some(run) = &self.run else { return };
        let is_latency = run.test.is_latency();
        match outcome {
            Err(error) => self.journal.borrow_mut().record_failure(error),
            Ok(bytes) if run.test == Test::LatencyWriteRead && bytes != self.pattern => {
                self.journal.borrow_mut().corrupt += 1;
            }
            Ok(_) => {}
        }
        if is_latency {
            self.sample_done(bus);
        } else {
            self.transaction_done(bus);
        }
    }

    fn write_done(&mut self, bus: &mut dyn DeviceBus, _token: Token) {
        let Some(run) = &self.run else { return };
        match (run.test.is_latency(), run.transfer.is_command) {
            (false, _) => self.transaction_done(bus),
            (true, false) => self.read_back(bus),
            // The command interface does not wait for its write.
            (true, true) => {}
        }
    }

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        match token {
            NEXT_SAMPLE => self.next_sample(bus),
            WINDOW_MOVED => self.begin_sample(bus),
            PAUSED => self.read_back(bus),
            Token(other) => unreachable!("no timer is set with token {other}"),
        }
    }
}
