//! The driver's side of a kPIO queue.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Barrier, Cpu, Node, Published};
use platform::dma::{Coherent, DmaOps};
use platform::lock::{SpinLock, SpinLockGuard};
use platform::mmio::Mmio;
use platform::net::{Checksum, NetCore, Packet};
use units::Time;
use wire::ip::{Cutter, Dissection};
use wire::kpio::{Format, LINE, framed, signature};
use wire::nic::registers::{self as regs, kpio};

use super::params::{Ending, Flow, KpioParams, Stores};
use crate::nic::limits::Windows;
use crate::nic::path::TxPath;

/// Result of a register read that nothing answers.
const ABSENT: u32 = u32::MAX;
/// Alignment (bytes) that keeps the word written by the device and the word shared by writers in separate cache
/// lines.
const APART: u64 = 64;
/// Most bytes of headers that each segment repeats: Ethernet, IPv4 or IPv6, and TCP, with all options.
const HEADERS: usize = 14 + 60 + 60;

/// A running queue.
pub struct KpioQueue {
    pub number: u16,
    params: KpioParams,
    windows: Windows,
    format: Format,
    registers: Mmio,
    window: Mmio,
    dma: Rc<dyn DmaOps>,
    /// Memory to which the device writes the count of free lines, followed by the lock.
    shared: Coherent,
    /// Counts of lines written, and of lines known to be free again.
    line: Cell<u32>,
    freed: Cell<u32>,
    /// The device's count no longer matches: send nothing until it has been read.
    is_lost: Cell<bool>,
    /// All lines before this count left the core before any later one.
    fenced: Cell<u32>,
    frames: Cell<u16>,
    /// The core that wrote last, and when it finished.
    writer: Cell<Option<Published>>,
    /// Lock for cores that share the queue.
    spin: SpinLock,
    /// Channels that wait until enough lines are free, or until the queue is empty.
    waiting: RefCell<Vec<Waiter>>,
    /// By channel: the next segment of a packet that did not fit as a whole.
    cut: RefCell<BTreeMap<u16, usize>>,
    data: RefCell<Vec<u8>>,
    frame: RefCell<Vec<u8>>,
    lines: RefCell<Vec<u8>>,
}

/// A channel that waits until lines up to a count are free.
#[derive(Clone, Copy)]
struct Waiter {
    channel: u16,
    line: u32,
    /// Time on the clock of its core.
    since: Time,
}

impl KpioQueue {
    /// Creates a queue; the memory that the device writes to is allocated on `node`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(
        cpu: &Cpu,
        dma: &Rc<dyn DmaOps>,
        (registers, window): (&Mmio, &Mmio),
        (number, windows): (u16, Windows),
        params: KpioParams,
        node: Node,
    ) -> Result<Rc<Self>, Error> {
        let shared = dma.alloc_coherent(cpu, 2 * APART, Some(node))?;
        Ok(Rc::new(Self {
            number,
            params,
            windows,
            format: if params.framed { Format::Framed } else { Format::Signature(signature::EOP) },
            registers: registers.clone(),
            window: window.clone(),
            dma: Rc::clone(dma),
            shared,
            line: Cell::new(0),
            freed: Cell::new(0),
            is_lost: Cell::new(false),
            fenced: Cell::new(0),
            frames: Cell::new(0),
            writer: Cell::new(None),
            spin: SpinLock::default(),
            waiting: RefCell::default(),
            cut: RefCell::default(),
            data: RefCell::default(),
            frame: RefCell::default(),
            lines: RefCell::default(),
        }))
    }

    /// Frees the memory. The device must have stopped.
    pub fn free(&self, cpu: &Cpu) {
        self.dma.free_coherent(cpu, self.shared);
    }

    fn register(&self, register: u64) -> u64 {
        regs::KPIO_QUEUES + u64::from(self.number) * regs::KPIO_STRIDE + register
    }

    fn is_short(&self) -> bool {
        let no_filling = self.params.stores == Stores::Uncached || self.params.ending == Ending::Fenced;
        self.params.framed && no_filling
    }

    /// Configures and starts the queue, which interrupts by `vector`.
    pub fn start(&self, cpu: &Cpu, vector: u16) {
        cpu.store_u32(self.shared.cpu, 0);
        let write = |at, value| self.registers.write_u32(cpu, self.register(at), value);
        self.registers.write_u64(cpu, self.register(kpio::REPORT), self.shared.bus.get());
        self.registers.write_u64(cpu, self.register(kpio::SIGNATURE), signature::EOP);
        write(kpio::REPORT_EVERY, self.params.report_every.into());
        write(kpio::VECTOR, vector.into());
        let framed = if self.params.framed { kpio::FRAMED } else { 0 };
        let short = if self.is_short() { kpio::SHORT_LINES } else { 0 };
        let hold = if self.params.flow == Flow::Link { kpio::HOLD } else { 0 };
        write(kpio::CONTROL, kpio::ENABLE | framed | short | hold);
    }

    pub fn stop(&self, cpu: &Cpu) {
        self.registers.write_u32(cpu, self.register(kpio::CONTROL), 0);
    }

    /// Longest frame (bytes) that the queue takes.
    pub fn longest(&self) -> u32 {
        (((1usize << self.windows.log2_lines) - 1) * LINE).min(framed::LONGEST) as u32
    }

    /// Whether all lines up to a count are free, so that their frames have left.
    fn are_free(&self, cpu: &Cpu, line: u32) -> bool {
        is_past(self.freed.get(), line) || is_past(self.load_freed(cpu), line)
    }

    /// Reads how many lines are free. If the count exceeds the lines written, the device has mistaken a late line for
    /// one of the next round.
    fn load_freed(&self, cpu: &Cpu) -> u32 {
        self.freed.set(cpu.load_u32(self.shared.cpu));
        // With flow control by credits, the port may still hold lines, so the device's position can be behind them.
        if self.params.flow == Flow::Counted && !is_past(self.line.get(), self.freed.get()) {
            self.is_lost.set(true);
        }
        self.freed.get()
    }

    /// Reads the device's position and continues there.
    pub async fn find_place(&self, cpu: &Cpu) {
        self.is_lost.set(true);
        // Queue the read behind all lines of this core: an uncached access drains the buffers, and a read does not
        // pass writes.
        self.registers.write_u32(cpu, self.register(kpio::NEXT), 0);
        let next = self.registers.read_u32(cpu, self.register(kpio::NEXT)).await;
        let freed = self.registers.read_u32(cpu, self.register(kpio::FREED)).await;
        if next != ABSENT {
            self.line.set(next);
            self.freed.set(freed);
            self.fenced.set(next);
        }
        self.is_lost.set(false);
    }

    /// Limits a mark to the lines written.
    fn within_written(&self, mark: u32) -> u32 {
        if is_past(self.line.get(), mark) { mark } else { self.line.get() }
    }

    /// Wakes a channel when the packet with this mark has left.
    pub fn wait_past(&self, cpu: &Cpu, channel: u16, mark: u32) {
        self.wait(cpu, channel, self.within_written(mark));
    }

    /// Wakes a channel when all packets have left, unless they have.
    pub fn wait_until_empty(&self, cpu: &Cpu, channel: u16) {
        if !self.is_empty(cpu) {
            self.wait(cpu, channel, self.line.get());
        }
    }

    /// Registers a channel to be woken when lines up to a count are free.
    fn wait(&self, cpu: &Cpu, channel: u16, line: u32) {
        // The device takes the awaited lines as written. They may come from another core whose clock is ahead.
        self.writer.get().iter().for_each(|last| cpu.observe(last));
        self.waiting.borrow_mut().push(Waiter { channel, line, since: cpu.now() });
        self.arm(cpu);
    }

    /// Whether any channel waits.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Requests an interrupt at the lowest count that a channel waits for.
    pub fn arm(&self, cpu: &Cpu) {
        let waiting = self.waiting.borrow();
        // A waiter whose core is ahead of the clock arms by itself when its time comes.
        let lines = waiting.iter().filter(|waiter| waiter.since <= cpu.now()).map(|waiter| waiter.line);
        if let Some(line) = lines.min_by_key(|line| line.wrapping_sub(self.freed.get())) {
            self.registers.write_u32(cpu, self.register(kpio::ARM_AT), line);
        }
    }

    /// Wakes channels that have room now. Returns whether the driver had lost its position in the device.
    pub async fn poll(&self, cpu: &Cpu, core: &dyn NetCore) -> bool {
        if self.waiting.borrow().is_empty() {
            return false;
        }
        self.load_freed(cpu);
        if self.is_lost.get() {
            self.find_place(cpu).await;
            let waiting = self.waiting.take();
            waiting.into_iter().for_each(|waiter| core.wake_queue(cpu, waiter.channel));
            return true;
        }
        let mut woken = Vec::new();
        self.waiting.borrow_mut().retain(|&Waiter { channel, line, .. }| {
            let is_due = is_past(self.freed.get(), line);
            if is_due {
                woken.push(channel);
            }
            !is_due
        });
        self.arm(cpu);
        woken.into_iter().for_each(|channel| core.wake_queue(cpu, channel));
        false
    }

    /// Whether a channel waits although it has room: an interrupt was lost.
    pub fn has_news(&self, cpu: &Cpu) -> bool {
        let first = self.waiting.borrow().first().copied();
        first.is_some_and(|waiter| self.are_free(cpu, waiter.line))
    }

    /// Whether a channel's packet has been sent in part.
    pub fn is_cutting(&self, channel: u16) -> bool {
        self.cut.borrow().contains_key(&channel)
    }

    /// Writes a packet for a channel and frees it. A packet larger than a frame is segmented here, since its bytes
    /// are loaded here anyway (Linux does so for NICs that cannot: net/core/tso.c).
    ///
    /// # Errors
    /// Returns the packet if it, or the rest of it, has no room. The channel is woken when there is room.
    pub fn send(&self, cpu: &Cpu, channel: u16, packet: Packet) -> Result<u64, Packet> {
        let length = packet.length();
        if !self.write_packet(cpu, channel, &packet) {
            return Err(packet);
        }
        // Releasing the packet may wake its sender, which may then send here at once.
        packet.release(cpu);
        Ok(length.into())
    }

    /// Writes as much of a packet as there is room for. Returns whether that was all.
    fn write_packet(&self, cpu: &Cpu, channel: u16, packet: &Packet) -> bool {
        let length = packet.length() as usize;
        let mut frame = self.frame.borrow_mut();
        if packet.segment > 0 {
            let mut headers = [0; HEADERS];
            let headers = &mut headers[..usize::from(packet.headers).min(HEADERS)];
            packet.load(cpu, headers);
            let cutter = Cutter::new(headers, packet.segment, length);
            let Ok(cutter) = cutter else { unreachable!("the stack cuts TCP alone: {headers:02x?}") };
            let mut next = self.cut.borrow_mut().remove(&channel).unwrap_or(0);
            let mut data = self.data.borrow_mut();
            while let Some((begin, end)) = cutter.place(next) {
                if !self.has_room(cpu, channel, headers.len() + end - begin) {
                    self.cut.borrow_mut().insert(channel, next);
                    return false;
                }
                data.resize(end - begin, 0);
                packet.load_from(cpu, begin, &mut data);
                cutter.cut(headers, &data, next, &mut frame);
                self.send_frame(cpu, &mut frame, (true, true));
                next += 1;
            }
        } else {
            if !self.has_room(cpu, channel, length) {
                return false;
            }
            frame.clear();
            frame.resize(length, 0);
            packet.load(cpu, &mut frame);
            let transport = matches!(packet.checksum, Checksum::Offload { .. });
            self.send_frame(cpu, &mut frame, (false, transport));
        }
        true
    }

    /// Whether a frame fits. If not, the channel is woken when it does.
    fn has_room(&self, cpu: &Cpu, channel: u16, length: usize) -> bool {
        let (needs, has_room) = match self.params.flow {
            Flow::Counted => {
                let end = self.line.get().wrapping_add(self.format.lines(length) as u32);
                let needs = end.wrapping_sub(1 << self.windows.log2_lines);
                (needs, self.are_free(cpu, needs))
            }
            // This core's lines must not overtake lines that another core still holds. They would block the port
            // until the device has room, which it only gets once those lines have arrived.
            Flow::Link => {
                let is_mine =
                    self.params.shared || self.writer.get().is_none_or(|last| last.core == cpu.id());
                (self.line.get(), is_mine || self.are_free(cpu, self.line.get()))
            }
        };
        let has_room = has_room && !self.is_lost.get();
        if !has_room {
            self.wait(cpu, channel, needs);
        }
        has_room
    }

    /// Writes a frame. The pair says which checksums to fill in; the device does it if the format can ask for it.
    fn send_frame(&self, cpu: &Cpu, frame: &mut [u8], (network, transport): (bool, bool)) {
        cpu.work(self.params.costs.send);
        let words = frame.len().div_ceil(8) as u64;
        if self.params.framed {
            cpu.work(words * self.params.costs.crc_word);
        } else if transport {
            cpu.work(words * self.params.costs.sum_word);
            if let Some(parts) = Dissection::of(frame) {
                if network {
                    parts.fill_network_checksum(frame);
                }
                parts.fill_transport_checksum(frame);
            }
        }
        let _held = self.params.shared.then(|| self.lock(cpu));
        let header = framed::Header {
            length: frame.len() as u16,
            number: self.frames.get(),
            network_checksum: network,
            transport_checksum: transport,
        };
        let end = self.line.get().wrapping_add(self.format.lines(frame.len()) as u32);
        if self.params.flow == Flow::Link {
            self.keep_apart(cpu, end);
        }
        self.write(cpu, header, frame);
        self.writer.set(Some(cpu.publish()));
        self.line.set(end);
        self.frames.set(self.frames.get().wrapping_add(1));
        if self.params.shared && self.params.flow == Flow::Link {
            // Stores in combining buffers are not ordered by a lock's release, so the next core's lines could
            // overtake them.
            self.fence(cpu);
        }
    }

    /// Fences before `end` if needed, so that a line for which the device has no room yet cannot block earlier lines
    /// that would make room: lines leave a core in any order. The device always has room for all lines since the last
    /// fence or since the last free one.
    fn keep_apart(&self, cpu: &Cpu, end: u32) {
        let depth = 1 << self.windows.log2_lines;
        let fits = |from: u32| end.wrapping_sub(from) <= depth;
        let orders = self.params.stores == Stores::Uncached;
        if orders || fits(self.fenced.get()) || fits(self.freed.get()) {
            return;
        }
        // After the device gave up lines its count may not match, so it proves nothing here.
        if !fits(self.load_freed(cpu)) {
            self.fence(cpu);
        }
    }

    /// Orders all lines so far before those written from now on.
    fn fence(&self, cpu: &Cpu) {
        cpu.sfence();
        self.fenced.set(self.line.get());
    }

    /// Takes the lock: waits for the holder and fetches its cache line.
    fn lock<'a>(&'a self, cpu: &'a Cpu) -> SpinLockGuard<'a> {
        // A locked instruction drains the write-combining buffers.
        cpu.barrier(Barrier::Locked);
        cpu.store_u32(self.shared.cpu + APART, 1);
        self.spin.lock(cpu)
    }

    /// Writes the lines of a frame.
    fn write(&self, cpu: &Cpu, header: framed::Header, frame: &[u8]) {
        let mut lines = self.lines.borrow_mut();
        lines.clear();
        self.format.encode(header, frame, &mut lines);
        let used = if self.is_short() { frame.len() + framed::OVERHEAD } else { lines.len() };
        let positions = 1u64 << self.windows.log2_positions;
        let window = u64::from(self.number) * 2 * positions;
        let mask = if self.params.framed { positions } else { 1 << self.windows.log2_lines } - 1;
        for (n, line) in lines[..used].chunks(LINE).enumerate() {
            let position = u64::from(self.line.get().wrapping_add(n as u32)) & mask;
            let half = if n == 0 && self.params.framed { positions } else { 0 };
            let at = (window + half + position) * LINE as u64;
            match (self.params.stores, line.first_chunk::<LINE>()) {
                (Stores::Direct, Some(line)) => self.window.write_direct(cpu, at, line),
                (Stores::Uncached, _) => self.window.write(cpu, at, line),
                _ => self.window.stream(cpu, at, line),
            }
            if self.params.fence_every > 0 && (n + 1) % usize::from(self.params.fence_every) == 0 {
                cpu.sfence();
            }
        }
        // A partly filled last line goes through a combining buffer, even after direct stores.
        if self.params.ending == Ending::Fenced && self.params.stores != Stores::Uncached {
            cpu.sfence();
        }
    }
}

/// Marks are counts of lines.
impl TxPath for KpioQueue {
    fn mark_behind(&self, packet: &Packet) -> u32 {
        self.line.get().wrapping_add(self.format.lines(packet.length() as usize) as u32)
    }

    fn is_past(&self, cpu: &Cpu, mark: u32) -> bool {
        self.are_free(cpu, self.within_written(mark))
    }

    fn is_empty(&self, cpu: &Cpu) -> bool {
        self.are_free(cpu, self.line.get())
    }
}

/// Whether a wrapping count has reached `line`.
fn is_past(count: u32, line: u32) -> bool {
    count.wrapping_sub(line) < 1 << 31
}
