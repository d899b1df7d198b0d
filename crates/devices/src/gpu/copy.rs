//! Copy engines: each moves one range of bytes at a time, with a limited number of reads in flight, and writes in
//! order.
//!
//! Several that write at once share the link: whose data come from memory next, nobody orders, so that their TLPs are mixed at
//! random.
//!
//! They are not tasks, so that the requests of a copy cost no allocation.

use std::cell::RefCell;

use engine::{Completer, Epoch, Rng, Seed, WaitTime};
use platform::device::{DeviceBus, Dma, DmaAttributes, DmaError, FunctionIndex, Stage, StageKind, Token};
use units::{Iova, Time};

use super::memory::GpuMemory;
use super::params::GpuParams;

/// Marks tokens of copies; never set in the firmware's own.
const COPY: u64 = 1 << 63;
/// Marks a write of a copy; otherwise a read.
const WRITE: u64 = 1 << 62;
/// Bytes per write of an engine that writes alone; the bus splits it as the link requires.
const PIECE: u64 = 4096;

/// Source or destination of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// In the GPU's memory.
    Local(u64),
    /// At a bus address.
    Bus(u64),
}

/// A copy in progress.
struct CopyJob {
    from: Side,
    to: Side,
    bytes: u64,
    /// Bytes requested or sent.
    begun: u64,
    /// Requests in flight.
    open: u32,
    failed: bool,
    done: Completer<Result<(), DmaError>>,
}

impl CopyJob {
    /// Reads in flight.
    fn reads(&self) -> u32 {
        if matches!(self.from, Side::Bus(_)) { self.open } else { 0 }
    }

    /// Whether it has more to write.
    fn can_write(&self) -> bool {
        !self.failed
            && self.begun < self.bytes
            && matches!((self.from, self.to), (Side::Local(_), Side::Bus(_)))
    }
}

#[derive(Default)]
struct Engine {
    job: Option<CopyJob>,
    /// Ends with each copy: results for earlier ones are dropped.
    epoch: Epoch,
    /// Time during which its copies could have read on but lacked a tag.
    waited: WaitTime,
}

pub(super) struct CopyEngines {
    engines: RefCell<Vec<Engine>>,
    tags: u32,
    all_tags: u32,
    writes: u32,
    read_request: u64,
    scratch: RefCell<Vec<u8>>,
    /// Which of several engines writes next.
    random: RefCell<Rng>,
    /// Engines that have more to write; reused.
    writers: RefCell<Vec<usize>>,
}

/// Whether a completion belongs to a copy.
pub(super) fn is_copy(token: Token) -> bool {
    token.0 & COPY != 0
}

impl CopyEngines {
    pub fn new(params: &GpuParams) -> Self {
        Self {
            engines: RefCell::new((0..params.copy_engines).map(|_| Engine::default()).collect()),
            tags: params.tags.into(),
            all_tags: params.all_tags.into(),
            writes: params.writes.into(),
            read_request: params.read_request.into(),
            scratch: RefCell::default(),
            random: RefCell::new(Seed::new(params.seed).component("copy engines")),
            writers: RefCell::default(),
        }
    }

    /// Drops all copies at `now`. Tasks that wait for one are told that it was cancelled.
    pub fn reset(&self, now: Time) {
        let mut engines = self.engines.borrow_mut();
        engines.iter_mut().for_each(|engine| engine.waited.end(now));
        let dropped: Vec<_> = engines.iter_mut().map(|engine| engine.job.take()).collect();
        drop(engines);
        drop(dropped);
    }

    /// How long each engine has waited for tags up to `now`.
    pub fn stages(&self, now: Time) -> Vec<Stage> {
        let stage = |(number, engine): (usize, &Engine)| Stage {
            name: format!("copy{number}-tags"),
            kind: StageKind::Tags,
            of: 1,
            busy: engine.waited.until(now),
        };
        self.engines.borrow().iter().enumerate().map(stage).collect()
    }

    /// Gives an engine a copy, which begins at the next [`go`](Self::go).
    pub fn start(
        &self,
        engine: usize,
        (from, to): (Side, Side),
        bytes: u64,
        done: Completer<Result<(), DmaError>>,
    ) {
        let engine = &mut self.engines.borrow_mut()[engine];
        engine.epoch.end();
        engine.job = Some(CopyJob { from, to, bytes, begun: 0, open: 0, failed: false, done });
    }

    /// Runs engines that have work. Returns whether any copy has ended.
    pub fn go(&self, bus: &mut dyn DeviceBus, memory: &RefCell<GpuMemory>) -> bool {
        let count = self.engines.borrow().len();
        (0..count).fold(false, |ended, engine| self.go_on(bus, memory, engine) | ended)
    }

    /// Issues as many requests as an engine may have in flight; ends its copy if there are none left.
    fn go_on(&self, bus: &mut dyn DeviceBus, memory: &RefCell<GpuMemory>, index: usize) -> bool {
        let mut engines = self.engines.borrow_mut();
        let shares =
            engines.iter().filter(|engine| engine.job.as_ref().is_some_and(CopyJob::can_write)).count() > 1;
        let of_others = engines.iter().enumerate().filter(|&(other, _)| other != index);
        let taken: u32 = of_others.filter_map(|(_, engine)| engine.job.as_ref()).map(CopyJob::reads).sum();
        let tags = self.tags.min(self.all_tags.saturating_sub(taken));
        let engine = &mut engines[index];
        let token = token_of(index, engine);
        let Some(job) = &mut engine.job else { return false };
        engine.waited.end(bus.now());
        while !job.failed && job.begun < job.bytes {
            let left = job.bytes - job.begun;
            match (job.from, job.to) {
                (Side::Bus(from), _) if job.open < tags => {
                    let at = from + job.begun;
                    let length = left.min(self.read_request - at % self.read_request);
                    // The token holds the index of the piece: pieces begin at multiples of the request size.
                    let piece = (at / self.read_request - from / self.read_request) as u32;
                    bus.read(dma(at, length as u32, Token(token & !0xffff_ffff | u64::from(piece))));
                    job.begun += length;
                }
                (Side::Local(_), Side::Bus(_)) if job.open < self.writes => {
                    self.write(bus, memory, job, token, shares);
                    continue;
                }
                (Side::Local(from), Side::Local(to)) => {
                    memory.borrow_mut().copy(to, from, job.bytes);
                    job.begun = job.bytes;
                    continue;
                }
                (Side::Bus(_), _) => {
                    engine.waited.begin(bus.now());
                    break;
                }
                _ => break,
            }
            job.open += 1;
        }
        drop(engines);
        self.finish(index)
    }

    /// Writes the next piece of a copy: of a page, or of one payload if others write as well.
    fn write(
        &self,
        bus: &mut dyn DeviceBus,
        memory: &RefCell<GpuMemory>,
        job: &mut CopyJob,
        token: u64,
        shares: bool,
    ) {
        let (Side::Local(from), Side::Bus(to)) = (job.from, job.to) else { return };
        let at = to + job.begun;
        let piece = if shares { u64::from(bus.config(FunctionIndex(0)).max_payload()) } else { PIECE };
        let length = (job.bytes - job.begun).min(piece - at % piece);
        let mut bytes = self.scratch.borrow_mut();
        bytes.resize(length as usize, 0);
        memory.borrow().read(from + job.begun, &mut bytes);
        bus.write(dma(at, length as u32, Token(token | WRITE)), &bytes);
        job.begun += length;
        job.open += 1;
    }

    /// Ends a copy of which nothing is left. Returns whether it has.
    fn finish(&self, index: usize) -> bool {
        let mut engines = self.engines.borrow_mut();
        let Some(job) = &engines[index].job else { return false };
        if job.open > 0 || !job.failed && job.begun < job.bytes {
            return false;
        }
        if let Some(job) = engines[index].job.take() {
            let outcome = if job.failed { Err(DmaError::UnsupportedRequest) } else { Ok(()) };
            drop(engines);
            job.done.complete(outcome);
        }
        true
    }

    /// A read of a copy has completed. Returns whether the copy has ended.
    pub fn read_done(
        &self,
        bus: &mut dyn DeviceBus,
        memory: &RefCell<GpuMemory>,
        token: Token,
        outcome: Result<&[u8], DmaError>,
    ) -> bool {
        let index = self.with_job(token, |job| match (outcome, job.from, job.to) {
            (Ok(bytes), Side::Bus(from), Side::Local(to)) => {
                memory.borrow_mut().write(to + self.place(from, token), bytes);
                job.open -= 1;
            }
            // The write takes over the read's place among the requests in flight.
            (Ok(bytes), Side::Bus(from), Side::Bus(to)) => {
                let at = to + self.place(from, token);
                let token = Token(token.0 | WRITE);
                bus.write(dma(at, bytes.len() as u32, token), bytes);
            }
            _ => {
                job.failed = true;
                job.open -= 1;
            }
        });
        // The next engine may have waited for the tag.
        let count = self.engines.borrow().len();
        index.is_some_and(|index| {
            (1..=count).fold(false, |ended, n| self.go_on(bus, memory, (index + n) % count) | ended)
        })
    }

    /// A write of a copy has left. Returns whether the copy has ended.
    pub fn write_done(&self, bus: &mut dyn DeviceBus, memory: &RefCell<GpuMemory>, token: Token) -> bool {
        let Some(index) = self.with_job(token, |job| job.open -= 1) else { return false };
        let next = {
            let (engines, mut writers) = (self.engines.borrow(), self.writers.borrow_mut());
            writers.clear();
            let can_write = |engine: &Engine| engine.job.as_ref().is_some_and(CopyJob::can_write);
            writers.extend((0..engines.len()).filter(|&n| can_write(&engines[n])));
            match writers[..] {
                [] => index,
                [only] => only,
                _ => writers[self.random.borrow_mut().below(writers.len() as u64) as usize],
            }
        };
        if self.writers.borrow().len() < 2 {
            return self.go_on(bus, memory, next) | (next != index && self.finish(index));
        }
        // It takes the place of the one that has left.
        let mut engines = self.engines.borrow_mut();
        let engine = &mut engines[next];
        let token = token_of(next, engine);
        if let Some(job) = &mut engine.job {
            self.write(bus, memory, job, token, true);
        }
        drop(engines);
        self.finish(index)
    }

    /// Offset of a read's bytes within its copy.
    fn place(&self, from: u64, token: Token) -> u64 {
        let piece = u64::from(token.0 as u32) * self.read_request;
        piece.saturating_sub(from % self.read_request)
    }

    /// The engine of a request, if its copy is still in progress.
    fn with_job(&self, token: Token, then: impl FnOnce(&mut CopyJob)) -> Option<usize> {
        let index = (token.0 >> 48) as usize & 0x3fff;
        let mut engines = self.engines.borrow_mut();
        let engine = engines.get_mut(index)?;
        let is_current = (token.0 >> 32) as u16 == engine.epoch.low(16);
        let job = engine.job.as_mut().filter(|_| is_current)?;
        then(job);
        Some(index)
    }
}

/// Token of the requests of an engine's copy.
fn token_of(index: usize, engine: &Engine) -> u64 {
    COPY | (index as u64) << 48 | u64::from(engine.epoch.low(16)) << 32
}

fn dma(address: u64, length: u32, token: Token) -> Dma {
    Dma {
        function: FunctionIndex(0),
        address: Iova::new(address),
        length,
        token,
        attributes: DmaAttributes::PAYLOAD,
    }
}
