//! Channels, and the engines that serve them.
//!
//! An engine has one channel loaded at a time and executes its commands one after the other. An entry's commands are
//! fetched when those of the last entry are done. The resulting round trip to host memory per copy is visible in
//! bandwidthTest (Device Lending, Figure 10: copies of 64 KiB take 0.6 us more in both directions, 1.1 us through the
//! root). A channel that waits for a semaphore not yet released leaves the engine: its prefetched entries and commands
//! are dropped, and the semaphore is polled. Once released, the channel is loaded again and refetches.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use engine::{JoinHandle, Notify, oneshot};
use platform::device::FunctionIndex;
use wire::gpu::{self as regs, Entry, Fault, GpuCommand, Place, SEMAPHORE_BYTES};

use super::copy::{CopyEngines, Side};
use super::program::{BoardClock, Processors};
use super::space::Space;
use super::{GpuCounters, GpuParams};
use crate::firmware::Port;

/// State of a channel.
#[derive(Default)]
struct Channel {
    enabled: bool,
    ring: u64,
    entries: u32,
    engine: u8,
    context: u16,
    notifier: u64,
    /// Total of entries put into the ring, from the doorbell.
    put: u64,
    /// The entry whose commands come next, and how many of them are done.
    done: (u64, usize),
    /// Entries fetched since the channel was loaded.
    fetched: u64,
    /// Fetched entries whose commands have not been fetched.
    ahead: VecDeque<(u64, Entry)>,
    /// Fetched commands, with their entry.
    ready: VecDeque<(u64, GpuCommand)>,
    fetching: bool,
    /// Waits for a semaphore.
    waits: bool,
    /// Has to be loaded before it continues.
    left: bool,
    fault: Option<Fault>,
    /// It has stopped, and its driver has not acknowledged that.
    unseen: bool,
    /// Load count: data fetched for an earlier load is dropped.
    load: u32,
}

impl Channel {
    fn can_run(&self, engine: u8) -> bool {
        self.enabled && self.fault.is_none() && self.engine == engine && !self.waits && self.done.0 < self.put
    }

    /// Starts with an empty ring.
    fn begin(&mut self) {
        (self.put, self.done, self.fetched) = (0, (0, 0), 0);
        self.ready.clear();
        self.ahead.clear();
        (self.waits, self.left, self.fault, self.unseen, self.enabled) = (false, true, None, false, true);
        self.load += 1;
    }

    /// Stops the channel and drops its ring.
    fn end(&mut self) {
        (self.enabled, self.unseen) = (false, false);
        self.ready.clear();
        self.ahead.clear();
        self.load += 1;
    }
}

/// What registers say of a channel.
pub(super) struct ChannelSetup {
    pub ring: u64,
    pub entries: u32,
    pub engine: u32,
    pub context: u32,
    pub notifier: u64,
}

/// The channels and the engines that serve them.
pub(super) struct Channels {
    params: Rc<GpuParams>,
    port: Port,
    space: Rc<Space>,
    copies: Rc<CopyEngines>,
    processors: Processors,
    channels: RefCell<Vec<Channel>>,
    /// By engine: notified when there may be work.
    work: Vec<Notify>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
    counters: RefCell<GpuCounters>,
}

impl Channels {
    /// Channels whose engines start with a [reset](Self::reset).
    pub fn new(params: Rc<GpuParams>, port: Port, space: &Rc<Space>, copies: &Rc<CopyEngines>) -> Self {
        let copied = vec![0; params.copy_engines.into()];
        Self {
            processors: Processors {
                params: Rc::clone(&params),
                port: port.clone(),
                space: Rc::clone(space),
                clock: BoardClock::default(),
            },
            port,
            space: Rc::clone(space),
            copies: Rc::clone(copies),
            channels: RefCell::new((0..regs::CHANNELS).map(|_| Channel::default()).collect()),
            work: (0..=params.copy_engines).map(|_| Notify::new()).collect(),
            tasks: RefCell::default(),
            counters: RefCell::new(GpuCounters { copied, ..GpuCounters::default() }),
            params,
        }
    }

    /// Sets up a channel with an empty ring, or stops it without `setup` or with an impossible one.
    pub fn set(&self, number: u32, setup: Option<ChannelSetup>) {
        let mut channels = self.channels.borrow_mut();
        let Some(channel) = channels.get_mut(number as usize) else { return };
        let is_possible = |s: &ChannelSetup| {
            s.entries.is_power_of_two()
                && s.engine <= self.params.copy_engines.into()
                && s.context < regs::CONTEXTS.into()
        };
        let Some(setup) = setup.filter(is_possible) else {
            channel.end();
            drop(channels);
            return self.drive_line();
        };
        (channel.ring, channel.entries, channel.notifier) = (setup.ring, setup.entries, setup.notifier);
        (channel.engine, channel.context) = (setup.engine as u8, setup.context as u16);
        channel.begin();
    }

    /// Handles a doorbell: the total of entries put into a ring, modulo 2 to the 32.
    pub fn ring(&self, number: usize, count: u32) {
        let mut channels = self.channels.borrow_mut();
        let Some(channel) = channels.get_mut(number).filter(|channel| channel.enabled) else { return };
        let more = count.wrapping_sub(channel.put as u32);
        // A count beyond the ring's size, or going backwards, is invalid.
        if more <= channel.entries {
            channel.put += u64::from(more);
            self.work[usize::from(channel.engine)].notify_one();
        }
    }

    /// The driver has acknowledged that a channel stopped.
    pub fn acknowledge(&self, number: u32) {
        if let Some(channel) = self.channels.borrow_mut().get_mut(number as usize) {
            channel.unseen = false;
        }
        self.drive_line();
    }

    pub fn counters(&self) -> GpuCounters {
        self.counters.borrow().clone()
    }

    /// Drives the legacy interrupt: asserted while a stopped channel is not acknowledged by its driver.
    pub fn drive_line(&self) {
        let is_due = self.channels.borrow().iter().any(|channel| channel.unseen);
        self.port.set_interrupt_status(FunctionIndex(0), is_due);
    }

    /// Stops all channels and restarts the engines.
    pub fn reset(self: &Rc<Self>) {
        for task in self.tasks.take() {
            task.abort();
        }
        self.copies.reset(self.port.now());
        self.channels.borrow_mut().iter_mut().for_each(Channel::end);
        for engine in 0..=self.params.copy_engines {
            self.spawn(Rc::clone(self).serve(engine));
        }
    }

    /// Starts a task that lasts until a reset at most.
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let task = self.port.spawn(task);
        let mut tasks = self.tasks.borrow_mut();
        if tasks.len() > 4 * usize::from(regs::CHANNELS) {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(task);
    }

    /// Task of an engine.
    async fn serve(self: Rc<Self>, engine: u8) {
        let mut last = 0;
        let mut loaded = None;
        loop {
            let next = {
                let channels = self.channels.borrow();
                // Round-robin; a channel that is still loaded need not be loaded again.
                (1..=channels.len())
                    .map(|n| (last + n) % channels.len())
                    .find(|&n| channels[n].can_run(engine))
            };
            let Some(next) = next else {
                self.work[usize::from(engine)].notified().await;
                continue;
            };
            if loaded != Some(next) || self.channels.borrow()[next].left {
                self.space.pause(self.params.channel_load).await;
                loaded = Some(next);
                let mut channels = self.channels.borrow_mut();
                let channel = &mut channels[next];
                channel.left = false;
                channel.load += 1;
                channel.ready.clear();
                channel.ahead.clear();
                channel.fetched = channel.done.0;
                channel.fetching = false;
            }
            last = next;
            if let Err(fault) = self.run(next, engine).await {
                self.stop(next, fault);
            }
        }
    }

    /// Executes a channel's commands until there are none, or it has to wait.
    async fn run(self: &Rc<Self>, number: usize, engine: u8) -> Result<(), Fault> {
        loop {
            self.fetch_ahead(number);
            let (next, context, nothing) = {
                let channels = self.channels.borrow();
                let channel = &channels[number];
                (channel.ready.front().copied(), channel.context, !channel.can_run(engine))
            };
            if nothing {
                return Ok(());
            }
            let Some((entry, command)) = next else {
                self.work[usize::from(engine)].notified().await;
                continue;
            };
            self.space.pause(self.params.command).await;
            let load = self.channels.borrow()[number].load;
            if !self.execute(number, context, engine, command).await? {
                return Ok(());
            }
            let mut channels = self.channels.borrow_mut();
            let channel = &mut channels[number];
            // The channel may have been freed in the meantime.
            if channel.load == load {
                channel.ready.pop_front();
                channel.done = match channel.ready.front() {
                    Some((next, _)) if *next == entry => (entry, channel.done.1 + 1),
                    _ => (entry + 1, 0),
                };
            }
        }
    }

    /// Fetches the next entry's commands once those of the last are done, and prefetches entries.
    fn fetch_ahead(self: &Rc<Self>, number: usize) {
        let mut channels = self.channels.borrow_mut();
        let channel = &mut channels[number];
        let next = match channel.ready.is_empty() && !channel.fetching {
            true => channel.ahead.pop_front(),
            false => None,
        };
        let has_entries = next.is_some() || !channel.ahead.is_empty();
        if channel.fetching || next.is_none() && (has_entries || channel.fetched >= channel.put) {
            return;
        }
        channel.fetching = true;
        let (me, load) = (Rc::clone(self), channel.load);
        self.spawn(async move {
            let fetched = match next {
                Some(next) => me.fetch_commands(number, load, next).await,
                None => me.fetch_entries(number, load).await,
            };
            if let Err(fault) = fetched {
                me.stop(number, fault);
            }
        });
    }

    /// Fetches the entries that have been put into the ring.
    async fn fetch_entries(&self, number: usize, load: u32) -> Result<(), Fault> {
        let (first, count, at) = {
            let channels = self.channels.borrow();
            let channel = &channels[number];
            let entries = u64::from(channel.entries);
            let place = channel.fetched % entries;
            let count =
                (channel.put - channel.fetched).min(entries - place).min(self.params.fetch_entries.into());
            (channel.fetched, count, channel.ring + place * Entry::BYTES as u64)
        };
        let bytes = self.space.read(at, (count * Entry::BYTES as u64) as u32).await?;
        let entries = bytes.chunks_exact(Entry::BYTES).filter_map(|entry| entry.first_chunk().copied());
        self.fetched(number, load, |channel| {
            channel.ahead.extend((first..).zip(entries.map(Entry::parse)));
            channel.fetched = first + count;
        });
        Ok(())
    }

    /// Fetches an entry's commands.
    async fn fetch_commands(&self, number: usize, load: u32, (n, entry): (u64, Entry)) -> Result<(), Fault> {
        let context = self.channels.borrow()[number].context;
        let length = u64::from(entry.count) * GpuCommand::BYTES as u64;
        let place = Place { window: entry.window, offset: entry.offset.into() };
        if entry.count == 0 {
            return Err(Fault::Malformed);
        }
        let bytes = match self.space.resolve(context, place, length)? {
            Side::Bus(at) => self.space.read(at, length as u32).await?,
            Side::Local(at) => {
                let mut bytes = vec![0; length as usize];
                self.space.memory().borrow().read(at, &mut bytes);
                bytes
            }
        };
        let commands = bytes.chunks_exact(GpuCommand::BYTES);
        let commands = commands.map(|command| command.first_chunk().and_then(GpuCommand::parse));
        let commands: Vec<GpuCommand> = commands.collect::<Option<_>>().ok_or(Fault::Malformed)?;
        self.fetched(number, load, |channel| {
            let skip = if channel.done.0 == n { channel.done.1 } else { 0 };
            channel.ready.extend(commands.into_iter().skip(skip).map(|command| (n, command)));
        });
        Ok(())
    }

    /// Data has been fetched for a channel. Ignored if the channel was reloaded in the meantime.
    fn fetched(&self, number: usize, load: u32, then: impl FnOnce(&mut Channel)) {
        let mut channels = self.channels.borrow_mut();
        let channel = &mut channels[number];
        if channel.load == load {
            channel.fetching = false;
            then(channel);
            self.work[usize::from(channel.engine)].notify_one();
        }
    }

    /// Executes one command. Returns `false` if the channel has to wait.
    async fn execute(
        self: &Rc<Self>,
        number: usize,
        context: u16,
        engine: u8,
        command: GpuCommand,
    ) -> Result<bool, Fault> {
        match command {
            GpuCommand::Copy { from, to, bytes } => {
                let sides =
                    (self.space.resolve(context, from, bytes)?, self.space.resolve(context, to, bytes)?);
                let engine = engine.checked_sub(1).ok_or(Fault::Malformed)?;
                self.space.pause(self.params.copy_start).await;
                if let (Side::Local(_), Side::Local(_)) = sides {
                    self.space.pause(self.params.memory_rate.time_for(units::Bytes::new(bytes))).await;
                }
                let (done, ended) = oneshot();
                self.copies.start(usize::from(engine), sides, bytes, done);
                ended.await.ok().and_then(Result::ok).ok_or(Fault::Bus)?;
                self.counters.borrow_mut().copied[usize::from(engine)] += bytes;
            }
            GpuCommand::Acquire { at, value } => {
                let at = self.space.resolve(context, at, 8)?;
                if self.space.load(at).await? < value {
                    self.wait_for(number, at, value);
                    return Ok(false);
                }
            }
            GpuCommand::Release { at, value } => {
                let at = self.space.resolve(context, at, SEMAPHORE_BYTES)?;
                let mut bytes = [0; SEMAPHORE_BYTES as usize];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                bytes[8..].copy_from_slice(&(self.port.now().as_ps() / 1_000).to_le_bytes());
                self.space.store(at, &bytes);
            }
            GpuCommand::Launch(launch) => {
                if engine != 0 {
                    return Err(Fault::Malformed);
                }
                self.processors.run(context, launch).await?;
            }
        }
        Ok(true)
    }

    /// Takes a channel off its engine until a semaphore is released.
    fn wait_for(self: &Rc<Self>, number: usize, at: Side, value: u64) {
        let engine = {
            let mut channels = self.channels.borrow_mut();
            let channel = &mut channels[number];
            (channel.waits, channel.left) = (true, true);
            channel.load += 1;
            channel.ready.clear();
            channel.ahead.clear();
            channel.engine
        };
        self.counters.borrow_mut().waits += 1;
        let me = Rc::clone(self);
        self.spawn(async move {
            loop {
                me.space.pause(me.params.acquire_interval).await;
                match me.space.load(at).await {
                    Ok(now) if now < value => {}
                    Ok(_) => break,
                    Err(fault) => return me.stop(number, fault),
                }
            }
            me.channels.borrow_mut()[number].waits = false;
            me.work[usize::from(engine)].notify_one();
        });
    }

    /// Stops a channel for good, and notifies its driver.
    fn stop(&self, number: usize, fault: Fault) {
        let (notifier, engine) = {
            let mut channels = self.channels.borrow_mut();
            let channel = &mut channels[number];
            if !channel.enabled || channel.fault.is_some() {
                return;
            }
            (channel.fault, channel.unseen) = (Some(fault), true);
            (channel.notifier, channel.engine)
        };
        self.counters.borrow_mut().faults += 1;
        self.space.store(Side::Bus(notifier), &(fault as u64).to_le_bytes());
        self.drive_line();
        self.port.interrupt(FunctionIndex(0), 0);
        self.work[usize::from(engine)].notify_one();
    }
}
