//! Which queue a ring belongs to, and how the driver has configured it.

use std::rc::Rc;

use engine::Epoch;
use units::Duration;
use wire::nic::registers::queue::{self, COMPLETION_MODE, IN_PLACE, TO_RING, TO_WORD};
use wire::nic::registers::{NO_VECTOR, WIDE_STRIDE, feature};

use crate::nic::NicHandle;
use crate::nic::fields::{with_high, with_low};
use crate::nic::params::{NicParams, PathParams};
use crate::nic::token::{Kind, Note};

/// The upper halves of [`queue::RING`] and [`queue::COMPLETIONS`].
const RING_HIGH: u64 = queue::RING + 4;
const COMPLETIONS_HIGH: u64 = queue::COMPLETIONS + 4;

/// One of a function's queues.
#[derive(Clone, Copy)]
pub struct QueueId {
    pub function: u8,
    pub number: u8,
    pub is_tx: bool,
}

/// Where completions are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionMode {
    Register,
    InPlace,
    Word,
    Ring,
}

/// Configuration registers.
#[derive(Clone, Copy, Default)]
pub(super) struct RingRegisters {
    pub ring: u64,
    pub log2: u8,
    pub vector: u32,
    pub completions: u64,
    pub control: u32,
    batch: u16,
    delay_ns: u32,
    /// Log2 of the distance of completions in bytes, if their entries have room for frames.
    stride: Option<u8>,
}

/// Identity, registers and state of a queue. The ring reads them; they change by methods only.
#[derive(Clone)]
pub(super) struct Setup {
    pub id: QueueId,
    pub nic: Rc<NicParams>,
    pub handle: NicHandle,
    pub registers: RingRegisters,
    /// Ends whenever the queue starts or stops.
    pub life: Epoch,
    pub is_running: bool,
    pub has_failed: bool,
}

impl Setup {
    pub fn new(id: QueueId, nic: &Rc<NicParams>, handle: &NicHandle, life: Epoch) -> Self {
        let registers = RingRegisters { vector: NO_VECTOR, ..RingRegisters::default() };
        let (nic, handle) = (Rc::clone(nic), handle.clone());
        Self { id, nic, handle, registers, life, is_running: false, has_failed: false }
    }

    /// The same queue after a reset.
    pub fn after_reset(&self) -> Self {
        let mut life = self.life;
        life.end();
        Self::new(self.id, &self.nic, &self.handle, life)
    }

    /// Starts or stops the queue, or stops it because of invalid input. Notes from before are ignored afterwards.
    pub fn change(&mut self, is_running: bool, has_failed: bool) {
        (self.is_running, self.has_failed) = (is_running, has_failed);
        self.life.end();
    }

    #[inline]
    pub fn path(&self) -> &PathParams {
        if self.id.is_tx { &self.nic.tx } else { &self.nic.rx }
    }

    /// Adds to a counter of the function.
    #[inline]
    pub fn count(&self, which: usize, amount: u64) {
        self.handle.add(self.id.function, which, amount);
    }

    /// A note of one of two kinds, for TX or RX.
    #[inline]
    pub fn note(&self, tx: Kind, rx: Kind) -> Note {
        let kind = if self.id.is_tx { tx } else { rx };
        Note::new(kind, self.life, self.id.function, self.id.number)
    }

    pub const fn entries(&self) -> u32 {
        1 << self.registers.log2
    }

    pub const fn mode(&self) -> CompletionMode {
        match self.registers.control & COMPLETION_MODE {
            IN_PLACE => CompletionMode::InPlace,
            TO_WORD => CompletionMode::Word,
            TO_RING => CompletionMode::Ring,
            _ => CompletionMode::Register,
        }
    }

    /// Distance of completions in bytes, if their entries have room for frames.
    #[inline]
    pub fn slot(&self) -> Option<u64> {
        self.registers.stride.filter(|_| self.mode() == CompletionMode::Ring).map(|log2| 1 << log2)
    }

    /// Number of completions per write.
    #[inline]
    pub fn batch(&self) -> u16 {
        if self.registers.batch == 0 { self.path().write_back.max(1) } else { self.registers.batch }
    }

    /// How long a completion waits for others.
    #[inline]
    pub fn delay(&self) -> Duration {
        match self.registers.delay_ns {
            0 => self.path().write_back_delay,
            set => Duration::from_ns(set.into()),
        }
    }

    /// Reads a register.
    pub fn register(&self, at: u64) -> u32 {
        let registers = &self.registers;
        match at {
            queue::RING => registers.ring as u32,
            RING_HIGH => (registers.ring >> 32) as u32,
            queue::SIZE => registers.log2.into(),
            queue::VECTOR => registers.vector,
            queue::COMPLETIONS => registers.completions as u32,
            COMPLETIONS_HIGH => (registers.completions >> 32) as u32,
            queue::CONTROL => registers.control,
            queue::STRIDE => registers.stride.unwrap_or(4).into(),
            queue::BATCH => registers.batch.into(),
            queue::DELAY_NS => registers.delay_ns,
            queue::STATUS => {
                let running = if self.is_running { queue::RUNNING } else { 0 };
                running | if self.has_failed { queue::ERROR } else { 0 }
            }
            _ => 0,
        }
    }

    /// Writes a register. The location of a ring cannot change while its queue runs.
    pub fn set_register(&mut self, at: u64, value: u32) {
        let (is_open, registers) = (!self.is_running, &mut self.registers);
        match at {
            queue::RING if is_open => registers.ring = with_low(registers.ring, value),
            RING_HIGH if is_open => registers.ring = with_high(registers.ring, value),
            queue::SIZE if is_open => registers.log2 = (value & 0xff) as u8,
            queue::VECTOR => registers.vector = value,
            queue::STRIDE if is_open => {
                let features = self.nic.features;
                let slots = !self.id.is_tx && features & feature::INLINE != 0 && (5..=8).contains(&value);
                let is_wide = features & feature::WIDE_COMPLETIONS != 0 && value == u32::from(WIDE_STRIDE);
                registers.stride = (slots || is_wide).then_some(value as u8);
            }
            queue::COMPLETIONS if is_open => registers.completions = with_low(registers.completions, value),
            COMPLETIONS_HIGH if is_open => registers.completions = with_high(registers.completions, value),
            queue::BATCH => registers.batch = value as u16,
            queue::DELAY_NS => registers.delay_ns = value,
            queue::CONTROL => registers.control = value,
            _ => {}
        }
    }
}
