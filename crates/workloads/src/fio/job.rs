//! A process of a job: keeps requests in flight, direct or through the page cache.

use std::cell::Cell;
use std::rc::Rc;

use platform::block::Segment;
use platform::cpu::{Cpu, Part};
use platform::kernel::Kernel;
use platform::memory::Policy;
use platform::storage::{BlockFile, IoCompletions, IoDone, IoRequest};
use units::{Duration, Time};

use super::options::JobOptions;
use super::pace::RateLimit;
use super::pattern::{Chooser, NextRequest, RequestKind};
use super::tally::RequestTally;
use crate::program::{Environment, Failure};
use crate::random::Random;
use crate::scattered::Scattered;

/// CPU time of fio itself per request, in cycles (assumed: about 0.2 µs to choose, prepare and account for it).
const WORK: u64 = 500;

/// Buffers of `bs` bytes, one per request in flight.
pub(super) struct RequestBuffers {
    buffers: Vec<Scattered>,
    bs: u64,
}

impl RequestBuffers {
    pub fn new(kernel: &dyn Kernel, cpu: &Cpu, count: u32, bs: u64) -> Result<Self, Failure> {
        let mut own = Self { buffers: Vec::new(), bs };
        for _ in 0..count {
            match Scattered::take(kernel, cpu, bs, Policy::Task) {
                Ok(buffer) => own.buffers.push(buffer),
                Err(error) => {
                    own.free(kernel, cpu);
                    return Err(Failure::about("fio: buffers", error));
                }
            }
        }
        Ok(own)
    }

    /// The first `length` bytes of buffer `number`.
    pub fn memory(&self, number: usize, length: u64) -> Vec<Segment> {
        let mut left = length.min(self.bs);
        let mut memory = Vec::new();
        for pages in self.buffers[number].pieces() {
            let length = pages.len().min(left);
            if length == 0 {
                break;
            }
            memory.push(Segment { at: pages.start, length: length as u32 });
            left -= length;
        }
        memory
    }

    pub fn free(&self, kernel: &dyn Kernel, cpu: &Cpu) {
        self.buffers.iter().for_each(|buffer| buffer.free(kernel, cpu));
    }
}

/// Where a process of a job works.
pub(super) struct ProcessPlace {
    /// Its number within the job.
    pub process: u32,
    /// Its number within the program.
    pub number: u32,
    /// The devices.
    pub files: Vec<Rc<dyn BlockFile>>,
    /// Whether all that run with it are to end.
    pub stopped: Rc<Cell<bool>>,
}

/// A process: what it has left to do, and what it has measured.
pub(super) struct Job {
    options: JobOptions,
    kernel: Rc<dyn Kernel>,
    files: Vec<Rc<dyn BlockFile>>,
    stopped: Rc<Cell<bool>>,
    chooser: Chooser,
    /// Bytes that it transfers, and those not yet requested; measured ones only.
    total: u64,
    left: u64,
    requests_left: u64,
    began: Time,
    is_ramping: bool,
    /// Writes since the last flush.
    unflushed: u32,
    tally: RequestTally,
}

/// What comes next.
enum Next {
    /// A request, now.
    Submit(NextRequest),
    /// Nothing before this time.
    Wait(Time),
    /// The end.
    Over,
}

/// How long no request is submitted, once none is in flight.
#[derive(Clone, Copy)]
enum SubmitPause {
    Until(Time),
    For(Duration),
}

impl Job {
    pub fn new(
        options: &JobOptions,
        environment: &Environment,
        place: ProcessPlace,
    ) -> Result<Self, Failure> {
        let range =
            |file: &Rc<dyn BlockFile>| options.range(place.process, file.bytes(), file.block_bytes().into());
        let ranges: Vec<_> = place.files.iter().map(range).collect::<Result<_, _>>()?;
        let size = ranges.iter().map(|range| range.end - range.start).fold(0, u64::saturating_add);
        // Each block is discarded and written.
        let ways = if options.rw.trims() && options.rw.writes() { 2 } else { 1 };
        let total = options.total(size).saturating_mul(ways);
        let random = Random::new(environment.seed, place.number.into());
        Ok(Self {
            kernel: Rc::clone(&environment.kernel),
            files: place.files,
            stopped: place.stopped,
            chooser: Chooser::new(options, ranges, random),
            total,
            left: total,
            requests_left: options.number_ios.map_or(u64::MAX, |count| count.saturating_mul(ways)),
            began: Time::ZERO,
            is_ramping: options.ramp_time > Duration::ZERO,
            unflushed: 0,
            tally: RequestTally::default(),
            options: options.clone(),
        })
    }

    /// When measurement starts.
    fn start(&self) -> Time {
        self.began + self.options.ramp_time
    }

    /// When the run time is over.
    fn end(&self) -> Time {
        self.options.limit().map_or(Time::NEVER, |limit| self.start() + limit)
    }

    /// Chooses the next request, or takes the one that was held back.
    fn choose(&mut self, held: &mut Option<NextRequest>, pace: &RateLimit, now: Time) -> Next {
        if self.is_ramping && now >= self.start() {
            // What was transferred before does not count.
            (self.is_ramping, self.left) = (false, self.total);
        }
        if now >= self.end() || self.stopped.get() {
            return Next::Over;
        }
        let left = if self.options.is_time_based() { u64::MAX } else { self.left };
        let next = held.take().or_else(|| match self.requests_left {
            0 => None,
            _ => self.chooser.next(&self.options, left, (pace, now)),
        });
        let Some(chosen) = next else { return Next::Over };
        if let Some(due) = pace.wait(&chosen, now) {
            *held = Some(chosen);
            return Next::Wait(due.min(self.end()));
        }
        self.left = self.left.saturating_sub(chosen.length);
        self.requests_left -= 1;
        Next::Submit(chosen)
    }

    fn failure(&self, request: &NextRequest, error: platform::Error) -> Failure {
        let (name, what, at) = (self.files[request.file].name(), request.way.name(), request.at);
        Failure::about(format!("fio: /dev/{name}: {what} at {at}"), error)
    }

    /// Takes account of a completed request.
    fn ended(
        &mut self,
        pace: &mut RateLimit,
        request: &NextRequest,
        since: Time,
        now: Time,
    ) -> Result<(), Failure> {
        let most =
            self.options.max_latency.as_ref().map_or(Duration::ZERO, |each| each.0[request.way as usize]);
        let took = now.since(since);
        if most > Duration::ZERO && took > most {
            let name = &self.options.name;
            return Err(Failure(format!("fio: {name}: a latency of {took} is above max_latency={most}")));
        }
        if now >= self.start() {
            self.tally.ended(request.way, request.length, since, now);
        }
        pace.ended(&self.options, (request.way, request.length), now)
    }

    pub async fn run(mut self, cpu: &Cpu) -> Result<RequestTally, Failure> {
        if self.options.startdelay > Duration::ZERO {
            cpu.sleep(self.options.startdelay).await;
        }
        self.began = cpu.now();
        if !self.options.is_direct() && self.options.invalidate == 1 {
            for file in &self.files {
                file.drop_cache(cpu).await.map_err(|error| Failure::about("fio: invalidate", error))?;
            }
        }
        let buffers = RequestBuffers::new(&*self.kernel, cpu, self.options.depth(), self.options.most())?;
        let mut done = match self.options.is_direct() {
            true => self.direct(cpu, &buffers).await,
            false => self.buffered(cpu, &buffers).await,
        };
        if done.is_ok() && self.options.end_fsync == 1 {
            done = self.flush(cpu).await;
        }
        if self.options.exitall == 1 {
            self.stopped.set(true);
        }
        buffers.free(&*self.kernel, cpu);
        self.tally.took(&RequestKind::ALL, self.start(), cpu.now());
        done.map(|()| self.tally)
    }

    /// Takes account of a request that has failed, unless the job goes on.
    fn failed(&mut self, request: &NextRequest, error: platform::Error) -> Result<(), Failure> {
        if !self.options.continue_on_error.covers(request.way) {
            return Err(self.failure(request, error));
        }
        self.tally.errors += 1;
        Ok(())
    }

    /// Waits between requests: the first part spinning, the rest asleep.
    async fn think(&self, cpu: &Cpu, time: Duration) {
        let spun = self.options.thinktime_spin.min(time);
        if spun > Duration::ZERO {
            let _part = cpu.book(Part::Poll);
            cpu.stall(spun);
            cpu.sync().await;
        }
        if time > spun {
            cpu.sleep(time.saturating_sub(spun)).await;
        }
    }

    /// Makes all writes durable.
    async fn flush(&mut self, cpu: &Cpu) -> Result<(), Failure> {
        for file in &self.files {
            let since = cpu.now();
            file.sync(cpu).await.map_err(|error| Failure::about("fio: fsync", error))?;
            if since >= self.start() {
                self.tally.flushed(since, cpu.now());
            }
        }
        Ok(())
    }

    /// Whether a flush follows a request.
    fn flushes(&mut self, request: &NextRequest) -> bool {
        let each = self.options.flushes();
        self.unflushed += u32::from(each > 0 && request.way == RequestKind::Write);
        let is_due = each > 0 && self.unflushed == each;
        if is_due {
            self.unflushed = 0;
        }
        is_due
    }

    /// Discards blocks, which no engine does without waiting.
    async fn trim(&mut self, cpu: &Cpu, pace: &mut RateLimit, request: &NextRequest) -> Result<(), Failure> {
        let (since, completions) = (cpu.now(), IoCompletions::new());
        let (op, offset, length) = (request.way.op(false), request.at, request.length);
        let discard = IoRequest { op, offset, length, memory: Vec::new(), token: 0 };
        self.files[request.file].submit(cpu, vec![discard], &completions);
        cpu.sync().await;
        match completions.next().await.result {
            Ok(()) => self.ended(pace, request, since, cpu.now()),
            Err(error) => self.failed(request, error),
        }
    }

    async fn direct(&mut self, cpu: &Cpu, buffers: &RequestBuffers) -> Result<(), Failure> {
        let depth = self.options.depth() as usize;
        let low = self.options.low.map_or(depth - 1, |low| (low as usize).min(depth - 1));
        let completions = IoCompletions::new();
        let mut pace = RateLimit::new(&self.options, self.began);
        let mut free: Vec<usize> = (0..depth).rev().collect();
        let mut under_way: Vec<Option<(NextRequest, Time)>> = vec![None; depth];
        let (mut held, mut failed, mut over) = (None, None, false);
        let mut pause = None;
        loop {
            let mut batch = Batch::default();
            if free.len() == depth && failed.is_none() {
                match pause.take() {
                    None => {}
                    Some(SubmitPause::Until(time)) => cpu.sleep_until(time).await,
                    Some(SubmitPause::For(time)) => self.think(cpu, time).await,
                }
            }
            while failed.is_none() && !over && pause.is_none() {
                let Some(slot) = free.pop() else { break };
                cpu.work(WORK);
                let request = match self.choose(&mut held, &pace, cpu.now()) {
                    Next::Submit(request) => request,
                    Next::Wait(until) => {
                        pause = Some(SubmitPause::Until(until));
                        free.push(slot);
                        break;
                    }
                    Next::Over => {
                        over = true;
                        free.push(slot);
                        break;
                    }
                };
                let thinks = pace.submitted(&self.options, &request, &mut self.chooser);
                self.tally.submitted(depth - free.len());
                if request.way == RequestKind::Trim {
                    free.push(slot);
                    batch.submit(cpu, &self.files, &completions);
                    failed = self.trim(cpu, &mut pace, &request).await.err();
                } else {
                    under_way[slot] = Some((request, cpu.now()));
                    batch.add(&request, self.options.sync.0, buffers.memory(slot, request.length), slot);
                    if batch.len() >= self.options.batch as usize {
                        batch.submit(cpu, &self.files, &completions);
                        cpu.sync().await;
                    }
                }
                if self.flushes(&request) {
                    batch.submit(cpu, &self.files, &completions);
                    failed = failed.or(self.flush(cpu).await.err());
                }
                pause = thinks.map(SubmitPause::For);
            }
            batch.submit(cpu, &self.files, &completions);
            if free.len() == depth {
                if failed.is_some() || pause.is_none() {
                    break;
                }
                continue;
            }
            cpu.sync().await;
            // Before a pause, none is left in flight.
            let stays = if pause.is_some() || over || failed.is_some() { 0 } else { low };
            let least = (self.options.complete as usize).min(depth - free.len());
            let mut taken = 0;
            loop {
                let done = match completions.try_next() {
                    Some(done) => done,
                    None if taken < least || depth - free.len() > stays => {
                        let file = under_way.iter().flatten().next().map_or(0, |(request, _)| request.file);
                        self.wait(cpu, file, &completions).await
                    }
                    None => break,
                };
                taken += 1;
                let (slot, now) = (done.token as usize, cpu.now());
                if let Some((request, since)) = under_way[slot].take() {
                    let result = match done.result {
                        Ok(()) => self.ended(&mut pace, &request, since, now),
                        Err(error) => self.failed(&request, error),
                    };
                    failed = failed.or(result.err());
                }
                free.push(slot);
                if free.len() == depth {
                    break;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn wait(&self, cpu: &Cpu, file: usize, completions: &IoCompletions) -> IoDone {
        if self.options.hipri == 0 {
            return completions.next().await;
        }
        loop {
            if let Some(done) = completions.try_next() {
                return done;
            }
            self.files[file].poll(cpu);
            cpu.sync().await;
        }
    }

    async fn buffered(&mut self, cpu: &Cpu, buffers: &RequestBuffers) -> Result<(), Failure> {
        let mut pace = RateLimit::new(&self.options, self.began);
        let mut held = None;
        loop {
            let request = match self.choose(&mut held, &pace, cpu.now()) {
                Next::Submit(request) => request,
                Next::Wait(until) => {
                    cpu.sleep_until(until).await;
                    continue;
                }
                Next::Over => return Ok(()),
            };
            let thinks = pace.submitted(&self.options, &request, &mut self.chooser);
            self.tally.submitted(1);
            cpu.work(WORK);
            let since = cpu.now();
            if request.way == RequestKind::Trim {
                self.trim(cpu, &mut pace, &request).await?;
            } else {
                let memory = buffers.memory(0, request.length);
                let file = &self.files[request.file];
                let result = match request.way {
                    RequestKind::Write if self.options.sync.0 => {
                        match file.write(cpu, request.at, &memory).await {
                            Ok(()) => file.sync(cpu).await,
                            failed => failed,
                        }
                    }
                    RequestKind::Write => file.write(cpu, request.at, &memory).await,
                    _ => file.read(cpu, request.at, &memory).await,
                };
                cpu.sync().await;
                match result {
                    Ok(()) => self.ended(&mut pace, &request, since, cpu.now())?,
                    Err(error) => self.failed(&request, error)?,
                }
            }
            if self.flushes(&request) {
                self.flush(cpu).await?;
            }
            if let Some(time) = thinks {
                self.think(cpu, time).await;
            }
        }
    }
}

/// Requests that are submitted together, to each device its own.
#[derive(Default)]
struct Batch(Vec<(usize, IoRequest)>);

impl Batch {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn add(&mut self, request: &NextRequest, durable: bool, memory: Vec<Segment>, slot: usize) {
        let (op, offset, length) = (request.way.op(durable), request.at, request.length);
        self.0.push((request.file, IoRequest { op, offset, length, memory, token: slot as u64 }));
    }

    fn submit(&mut self, cpu: &Cpu, files: &[Rc<dyn BlockFile>], completions: &Rc<IoCompletions>) {
        let all = std::mem::take(&mut self.0);
        for (number, file) in files.iter().enumerate() {
            let own = all.iter().filter(|(file, _)| *file == number).map(|(_, request)| request.clone());
            let own: Vec<IoRequest> = own.collect();
            if !own.is_empty() {
                file.submit(cpu, own, completions);
            }
        }
    }
}
