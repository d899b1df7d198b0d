//! A job: keeps requests in flight, direct or through the page cache.

use std::rc::Rc;

use platform::block::{BlockOp, Segment};
use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{PAGE, Pages, Policy};
use platform::storage::{BlockFile, IoCompletions, IoRequest};
use units::Time;

use super::tally::Tally;
use super::{Fio, Pattern};
use crate::program::{Environment, Failure};
use crate::random::Random;

/// CPU time of fio itself per request, in cycles (assumed: about 0.2 µs to choose, prepare and account for it).
const WORK: u64 = 500;

/// Buffers of `bs` bytes, one per request.
pub(super) struct RequestBuffers {
    pages: Vec<Vec<Pages>>,
    bs: u64,
}

/// Order of the largest contiguous piece of a buffer (2 MiB; what Linux's `posix_memalign` gets varies).
const ORDER: u8 = 9;

impl RequestBuffers {
    pub fn new(kernel: &dyn Kernel, cpu: &Cpu, count: u32, bs: u64) -> Result<Self, Failure> {
        let mut buffers = Self { pages: Vec::new(), bs };
        for _ in 0..count {
            let mut pieces = Vec::new();
            let mut left = bs.next_multiple_of(PAGE);
            while left > 0 {
                let order = Pages::order_for(left).min(ORDER);
                match kernel.alloc_pages(cpu, order, Policy::Task) {
                    Ok(pages) => pieces.push(pages),
                    Err(error) => {
                        buffers.pages.push(pieces);
                        buffers.free(kernel, cpu);
                        return Err(Failure::about("fio: buffers", error));
                    }
                }
                left = left.saturating_sub(PAGE << order);
            }
            buffers.pages.push(pieces);
        }
        Ok(buffers)
    }

    /// The memory of buffer `number`.
    pub fn memory(&self, number: usize) -> Vec<Segment> {
        let mut left = self.bs;
        let mut memory = Vec::new();
        for pages in &self.pages[number] {
            let length = pages.len().min(left);
            memory.push(Segment { at: pages.start, length: length as u32 });
            left -= length;
        }
        memory
    }

    pub fn free(&self, kernel: &dyn Kernel, cpu: &Cpu) {
        self.pages.iter().flatten().for_each(|pages| kernel.free_pages(cpu, *pages));
    }
}

/// A request in flight.
#[derive(Clone, Copy)]
struct UnderWay {
    write: bool,
    at: u64,
    since: Time,
}

/// A job: its file and range, what it has left to do, and what it has measured.
pub(super) struct Job {
    options: Fio,
    kernel: Rc<dyn Kernel>,
    file: Rc<dyn BlockFile>,
    range: core::ops::Range<u64>,
    next: u64,
    /// Bytes not yet requested, if the size is limited.
    left: u64,
    random: Random,
    began: Time,
    tally: Tally,
}

impl Job {
    pub fn new(
        options: &Fio,
        environment: &Environment,
        number: u32,
        file: Rc<dyn BlockFile>,
        range: core::ops::Range<u64>,
        began: Time,
    ) -> Self {
        let limited = options.runtime.is_none();
        Self {
            kernel: Rc::clone(&environment.kernel),
            options: options.clone(),
            file,
            next: range.start,
            left: if limited { range.end - range.start } else { u64::MAX },
            random: Random::new(environment.seed, number.into()),
            range,
            began,
            tally: Tally::new(),
        }
    }

    /// Chooses the next request: whether it is a write, and its offset. `None` when the job is over.
    fn choose(&mut self, now: Time) -> Option<(bool, u64)> {
        let options = &self.options;
        let over = options.runtime.is_some_and(|runtime| now >= self.began + options.ramp_time + runtime);
        if over || self.left < options.bs {
            return None;
        }
        if self.left != u64::MAX {
            self.left -= options.bs;
        }
        let at = if options.rw.is_random() {
            let blocks = (self.range.end - self.range.start) / options.bs;
            self.range.start + self.random.below(blocks) * options.bs
        } else {
            let at = self.next;
            self.next += options.bs;
            if self.next >= self.range.end {
                self.next = self.range.start;
            }
            at
        };
        let write = match options.rw {
            Pattern::Rw | Pattern::RandRw => {
                self.random.below(100) >= u64::from(options.rwmixread.unwrap_or(50))
            }
            pattern => !pattern.reads(),
        };
        Some((write, at))
    }

    fn failure(&self, write: bool, at: u64, error: platform::Error) -> Failure {
        let what = if write { "write" } else { "read" };
        Failure::about(format!("fio: {}: {what} at {at}", self.options.filename), error)
    }

    /// The measured time window.
    fn window(&self) -> Option<(Time, Time)> {
        let start = self.began + self.options.ramp_time;
        self.options.runtime.map(|runtime| (start, start + runtime))
    }

    fn ended(&mut self, write: bool, since: Time, now: Time) {
        if self.window().is_none_or(|(start, end)| (start..end).contains(&now)) {
            self.tally.ended(write, self.options.bs, since, now);
        }
    }

    pub async fn run(mut self, cpu: &Cpu) -> Result<Tally, Failure> {
        let depth = if self.options.direct == 1 { self.options.iodepth } else { 1 };
        let buffers = RequestBuffers::new(&*self.kernel, cpu, depth, self.options.bs)?;
        let done = match self.options.direct {
            1 => self.direct(cpu, &buffers).await,
            _ => self.buffered(cpu, &buffers).await,
        };
        buffers.free(&*self.kernel, cpu);
        if let Some((start, end)) = self.window() {
            self.tally.took(start, end);
        }
        done.map(|()| self.tally)
    }

    async fn direct(&mut self, cpu: &Cpu, buffers: &RequestBuffers) -> Result<(), Failure> {
        let depth = self.options.iodepth as usize;
        let completions = IoCompletions::new();
        let memory: Vec<Vec<Segment>> = (0..depth).map(|n| buffers.memory(n)).collect();
        let mut free: Vec<usize> = (0..depth).rev().collect();
        let mut under_way: Vec<Option<UnderWay>> = vec![None; depth];
        let (mut writes, mut failed, mut over) = (0u32, None, false);
        loop {
            let mut batch = Vec::new();
            while failed.is_none() && !over {
                let Some(slot) = free.pop() else { break };
                cpu.work(WORK);
                let Some((write, offset)) = self.choose(cpu.now()) else {
                    free.push(slot);
                    over = true;
                    break;
                };
                under_way[slot] = Some(UnderWay { write, at: offset, since: cpu.now() });
                let op = if write { BlockOp::Write { fua: false } } else { BlockOp::Read };
                let memory = memory[slot].clone();
                batch.push(IoRequest { op, offset, length: self.options.bs, memory, token: slot as u64 });
                writes += u32::from(write);
                if batch.len() >= self.options.batch as usize {
                    self.file.submit(cpu, std::mem::take(&mut batch), &completions);
                    cpu.sync().await;
                }
                if write && self.options.fsync > 0 && writes % self.options.fsync == 0 {
                    self.file.submit(cpu, std::mem::take(&mut batch), &completions);
                    self.file.sync(cpu).await.map_err(|error| Failure::about("fio: fsync", error))?;
                }
            }
            if !batch.is_empty() {
                self.file.submit(cpu, batch, &completions);
            }
            if free.len() == depth {
                break;
            }
            cpu.sync().await;
            // Waits for one completion, then takes all that are available.
            let mut next = Some(self.wait(cpu, &completions).await);
            while let Some(done) = next {
                let slot = done.token as usize;
                let now = cpu.now();
                if let Some(io) = under_way[slot].take() {
                    match done.result {
                        Ok(()) => self.ended(io.write, io.since, now),
                        Err(error) => failed = failed.or(Some(self.failure(io.write, io.at, error))),
                    }
                }
                free.push(slot);
                next = completions.try_next();
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn wait(&self, cpu: &Cpu, completions: &IoCompletions) -> platform::storage::IoDone {
        if !self.options.hipri {
            return completions.next().await;
        }
        loop {
            if let Some(done) = completions.try_next() {
                return done;
            }
            self.file.poll(cpu);
            cpu.sync().await;
        }
    }

    async fn buffered(&mut self, cpu: &Cpu, buffers: &RequestBuffers) -> Result<(), Failure> {
        let (memory, file) = (buffers.memory(0), Rc::clone(&self.file));
        let mut writes = 0u32;
        while let Some((write, at)) = self.choose(cpu.now()) {
            cpu.work(WORK);
            let since = cpu.now();
            let result = match write {
                true => file.write(cpu, at, &memory).await,
                false => file.read(cpu, at, &memory).await,
            };
            cpu.sync().await;
            result.map_err(|error| self.failure(write, at, error))?;
            self.ended(write, since, cpu.now());
            writes += u32::from(write);
            if write && self.options.fsync > 0 && writes % self.options.fsync == 0 {
                file.sync(cpu).await.map_err(|error| Failure::about("fio: fsync", error))?;
            }
        }
        Ok(())
    }
}
