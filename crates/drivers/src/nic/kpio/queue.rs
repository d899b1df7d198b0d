//! The driver's side of a kPIO queue: a packet's frames, room for them, their order, and the lines that they become.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node};
use platform::dma::{Coherent, DmaOps};
use platform::mmio::Mmio;
use platform::net::{NetCore, Packet};
use wire::ip::Dissection;
use wire::kpio::signature;
use wire::nic::registers::{self as regs, kpio};

use super::count::LineCount;
use super::frames::{Frames, Sink};
use super::lines::Lines;
use super::order::Order;
use super::params::{Flow, KpioParams, Stores};
use super::waiters::Waiters;
use crate::nic::limits::Windows;
use crate::nic::path::TxPath;

/// Result of a register read that nothing answers.
const ABSENT: u32 = u32::MAX;
/// Alignment (bytes) that keeps the word written by the device and the word shared by writers in separate cache
/// lines.
const APART: u64 = 64;

/// A running queue.
pub struct KpioQueue {
    params: KpioParams,
    registers: KpioRegisters,
    dma: Rc<dyn DmaOps>,
    /// Memory to which the device writes the count of free lines, followed by the lock.
    shared: Coherent,
    frames: Frames,
    count: LineCount,
    waiters: Waiters,
    order: Order,
    lines: Lines,
}

/// The device's registers of one queue.
struct KpioRegisters {
    all: Mmio,
    base: u64,
}

impl KpioRegisters {
    fn write(&self, cpu: &Cpu, register: u64, value: u32) {
        self.all.write_u32(cpu, self.base + register, value);
    }

    fn write_u64(&self, cpu: &Cpu, register: u64, value: u64) {
        self.all.write_u64(cpu, self.base + register, value);
    }

    async fn read(&self, cpu: &Cpu, register: u64) -> u32 {
        self.all.read_u32(cpu, self.base + register).await
    }
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
        let base = regs::KPIO_QUEUES + u64::from(number) * regs::KPIO_STRIDE;
        Ok(Rc::new(Self {
            params,
            registers: KpioRegisters { all: registers.clone(), base },
            dma: Rc::clone(dma),
            shared,
            frames: Frames::default(),
            count: LineCount::new(shared.cpu, params.flow == Flow::Counted),
            waiters: Waiters::default(),
            order: Order::new(shared.cpu + APART),
            lines: Lines::new(window, number, windows, params),
        }))
    }

    /// Frees the memory. The device must have stopped.
    pub fn free(&self, cpu: &Cpu) {
        self.dma.free_coherent(cpu, self.shared);
    }

    /// Configures and starts the queue, which interrupts by `vector`.
    pub fn start(&self, cpu: &Cpu, vector: u16) {
        cpu.store_u32(self.shared.cpu, 0);
        let write = |register, value| self.registers.write(cpu, register, value);
        self.registers.write_u64(cpu, kpio::REPORT, self.shared.bus.get());
        self.registers.write_u64(cpu, kpio::SIGNATURE, signature::EOP);
        write(kpio::REPORT_EVERY, self.params.report_every.into());
        write(kpio::VECTOR, vector.into());
        let framed = if self.params.framed { kpio::FRAMED } else { 0 };
        let short = if self.lines.are_short() { kpio::SHORT_LINES } else { 0 };
        let hold = if self.params.flow == Flow::Link { kpio::HOLD } else { 0 };
        write(kpio::CONTROL, kpio::ENABLE | framed | short | hold);
    }

    pub fn stop(&self, cpu: &Cpu) {
        self.registers.write(cpu, kpio::CONTROL, 0);
    }

    /// Longest frame (bytes) that the queue takes.
    pub fn longest(&self) -> u32 {
        self.lines.longest()
    }

    /// Reads the device's position and continues there.
    async fn find_place(&self, cpu: &Cpu) {
        self.count.lose();
        // Queue the read behind all lines of this core: an uncached access drains the buffers, and a read does not
        // pass writes.
        self.registers.write(cpu, kpio::NEXT, 0);
        let next = self.registers.read(cpu, kpio::NEXT).await;
        let freed = self.registers.read(cpu, kpio::FREED).await;
        let position = (next != ABSENT).then_some((next, freed));
        self.count.found(position);
        if position.is_some() {
            self.order.set_fenced(next);
        }
    }

    /// Wakes a channel when the packet with this mark has left.
    pub fn wait_past(&self, cpu: &Cpu, channel: u16, mark: u32) {
        self.wait(cpu, channel, self.count.within_written(mark));
    }

    /// Wakes a channel when all packets have left, unless they have.
    pub fn wait_until_empty(&self, cpu: &Cpu, channel: u16) {
        if !self.is_empty(cpu) {
            self.wait(cpu, channel, self.count.written());
        }
    }

    /// Registers a channel to be woken when lines up to a count are free.
    fn wait(&self, cpu: &Cpu, channel: u16, line: u32) {
        // The device takes the awaited lines as written. They may come from another core whose clock is ahead.
        self.order.observe(cpu);
        self.waiters.add(cpu, channel, line);
        self.arm(cpu);
    }

    /// Whether any channel waits.
    pub fn is_waited_for(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Requests an interrupt at the lowest count that a channel waits for.
    pub fn arm(&self, cpu: &Cpu) {
        if let Some(line) = self.waiters.lowest(cpu, self.count.freed()) {
            self.registers.write(cpu, kpio::ARM_AT, line);
        }
    }

    /// Wakes channels that have room now. Returns whether the driver had lost its position in the device.
    pub async fn poll(&self, cpu: &Cpu, core: &dyn NetCore) -> bool {
        if self.waiters.is_empty() {
            return false;
        }
        self.count.load_freed(cpu);
        let was_lost = self.count.is_lost();
        let woken = if was_lost {
            self.find_place(cpu).await;
            self.waiters.take(|_| true)
        } else {
            let woken = self.waiters.take(|line| self.count.are_known_free(line));
            self.arm(cpu);
            woken
        };
        woken.into_iter().for_each(|channel| core.wake_queue(cpu, channel));
        was_lost
    }

    /// Whether a channel waits although it has room: an interrupt was lost.
    pub fn has_news(&self, cpu: &Cpu) -> bool {
        self.waiters.first().is_some_and(|line| self.count.are_free(cpu, line))
    }

    /// Whether a channel's packet has been sent in part.
    pub fn is_cutting(&self, channel: u16) -> bool {
        self.frames.is_cutting(channel)
    }

    /// Writes a packet for a channel and frees it.
    ///
    /// # Errors
    /// Returns the packet if it, or the rest of it, has no room. The channel is woken when there is room.
    pub fn send(&self, cpu: &Cpu, channel: u16, packet: Packet) -> Result<u64, Packet> {
        let length = packet.length();
        if !self.frames.send(cpu, channel, &packet, self) {
            return Err(packet);
        }
        // Releasing the packet may wake its sender, which may then send here at once.
        packet.release(cpu);
        Ok(length.into())
    }

    /// Fences before `end` if needed, so that a line for which the device has no room yet cannot block earlier lines
    /// that would make room: lines leave a core in any order. The device always has room for all lines since the last
    /// fence or since the last free one.
    fn keep_apart(&self, cpu: &Cpu, end: u32) {
        let fits = |from: u32| end.wrapping_sub(from) <= self.lines.depth();
        let orders = self.params.stores == Stores::Uncached;
        if orders || fits(self.order.fenced()) || fits(self.count.freed()) {
            return;
        }
        // After the device gave up lines its count may not match, so it proves nothing here.
        if !fits(self.count.load_freed(cpu)) {
            self.order.fence(cpu, self.count.written());
        }
    }
}

impl Sink for KpioQueue {
    fn has_room(&self, cpu: &Cpu, channel: u16, length: usize) -> bool {
        let (needs, has_room) = match self.params.flow {
            Flow::Counted => {
                let end = self.lines.behind(self.count.written(), length);
                let needs = end.wrapping_sub(self.lines.depth());
                (needs, self.count.are_free(cpu, needs))
            }
            // This core's lines must not overtake lines that another core still holds. They would block the port
            // until the device has room, which it only gets once those lines have arrived.
            Flow::Link => {
                let is_mine = self.params.shared || self.order.is_mine(cpu);
                (self.count.written(), is_mine || self.is_empty(cpu))
            }
        };
        let has_room = has_room && !self.count.is_lost();
        if !has_room {
            self.wait(cpu, channel, needs);
        }
        has_room
    }

    fn send(&self, cpu: &Cpu, frame: &mut [u8], checksums: (bool, bool)) {
        cpu.work(self.params.costs.send);
        let words = frame.len().div_ceil(8) as u64;
        if self.params.framed {
            cpu.work(words * self.params.costs.crc_word);
        } else if let (network, true) = checksums {
            // The format cannot ask the device for it.
            cpu.work(words * self.params.costs.sum_word);
            if let Some(parts) = Dissection::of(frame) {
                if network {
                    parts.fill_network_checksum(frame);
                }
                parts.fill_transport_checksum(frame);
            }
        }
        let _held = self.params.shared.then(|| self.order.lock(cpu));
        let begin = self.count.written();
        let end = self.lines.behind(begin, frame.len());
        if self.params.flow == Flow::Link {
            self.keep_apart(cpu, end);
        }
        self.lines.write(cpu, begin, frame, checksums);
        self.order.wrote(cpu);
        self.count.set_written(end);
        if self.params.shared && self.params.flow == Flow::Link {
            // Stores in combining buffers are not ordered by a lock's release, so the next core's lines could
            // overtake them.
            self.order.fence(cpu, end);
        }
    }
}

/// Marks are counts of lines.
impl TxPath for KpioQueue {
    fn mark_behind(&self, packet: &Packet) -> u32 {
        self.lines.behind(self.count.written(), packet.length() as usize)
    }

    fn is_past(&self, cpu: &Cpu, mark: u32) -> bool {
        self.count.are_free(cpu, self.count.within_written(mark))
    }

    fn is_empty(&self, cpu: &Cpu) -> bool {
        self.count.are_free(cpu, self.count.written())
    }
}
