//! A queue that takes frames by programmed I/O, as its driver writes it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Barrier, Cpu, Node};
use platform::dma::{Coherent, DmaOps};
use platform::mmio::Mmio;
use platform::net::{Checksum, NetCore, Packet};
use units::Time;
use wire::ip::Dissection;
use wire::kpio::{Format, LINE, framed, signature};
use wire::nic::registers::{self as regs, kpio};

use super::params::{Ending, Flow, KpioParams, Stores};

/// Bytes of a cache line: what the device writes and what writers share lie apart.
const APART: u64 = 64;

/// What the device says of its queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KpioLimits {
    pub queues: u16,
    /// Log2 of the lines that a queue has memory for.
    pub log2_lines: u8,
    /// Log2 of the positions in a queue's window.
    pub log2_positions: u8,
}

impl KpioLimits {
    /// Reads the register; `None` if there are no queues, or what it says cannot be.
    pub fn of(register: u32) -> Option<Self> {
        let [queues, log2_lines, log2_positions, _] = register.to_le_bytes();
        let is_sane = queues > 0 && (1..=log2_positions).contains(&log2_lines) && log2_positions <= 16;
        is_sane.then_some(Self { queues: queues.into(), log2_lines, log2_positions })
    }
}

/// A queue that runs.
pub struct KpioQueue {
    pub number: u16,
    params: KpioParams,
    limits: KpioLimits,
    format: Format,
    registers: Mmio,
    window: Mmio,
    dma: Rc<dyn DmaOps>,
    /// Where the device writes how many lines are free; behind it, the lock.
    shared: Coherent,
    /// Lines written, and free again as far as is known: counts.
    line: Cell<u32>,
    freed: Cell<u32>,
    frames: Cell<u16>,
    /// Until when another core has the lock.
    locked: Cell<Time>,
    /// Channels whose packets found no room, or wait for the queue to be empty: until so many lines are free.
    waiting: RefCell<Vec<(u16, u32)>>,
    frame: RefCell<Vec<u8>>,
    lines: RefCell<Vec<u8>>,
}

impl KpioQueue {
    /// Allocates what the device writes to on `node`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(
        cpu: &Cpu,
        dma: &Rc<dyn DmaOps>,
        (registers, window): (&Mmio, &Mmio),
        (number, limits): (u16, KpioLimits),
        params: KpioParams,
        node: Node,
    ) -> Result<Rc<Self>, Error> {
        let shared = dma.alloc_coherent(cpu, 2 * APART, Some(node))?;
        Ok(Rc::new(Self {
            number,
            params,
            limits,
            format: if params.framed { Format::Framed } else { Format::Signature(signature::EOP) },
            registers: registers.clone(),
            window: window.clone(),
            dma: Rc::clone(dma),
            shared,
            line: Cell::new(0),
            freed: Cell::new(0),
            frames: Cell::new(0),
            locked: Cell::new(Time::ZERO),
            waiting: RefCell::default(),
            frame: RefCell::default(),
            lines: RefCell::default(),
        }))
    }

    /// Gives the memory back. The device must have stopped.
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

    /// Tells the device and starts it; it interrupts by `vector`.
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

    /// Longest frame that it takes.
    pub fn longest(&self) -> u32 {
        ((LINE << self.limits.log2_lines) - LINE).min(framed::LONGEST) as u32
    }

    /// Lines that a packet of so many bytes takes.
    pub fn lines_of(&self, length: u32) -> u32 {
        self.format.lines(length as usize) as u32
    }

    /// Count of lines written.
    pub fn written(&self) -> u32 {
        self.line.get()
    }

    /// Whether as many lines are free again, so that their frames have left.
    pub fn is_past(&self, cpu: &Cpu, line: u32) -> bool {
        is_past(self.freed.get(), line) || {
            self.freed.set(cpu.load_u32(self.shared.cpu));
            is_past(self.freed.get(), line)
        }
    }

    /// A count at which something was to have left: the packet that it was noted for may have found no room.
    pub fn within_written(&self, line: u32) -> u32 {
        if is_past(self.line.get(), line) { line } else { self.line.get() }
    }

    /// Lets a channel be woken when so many lines are free again.
    pub fn wait(&self, cpu: &Cpu, channel: u16, line: u32) {
        self.waiting.borrow_mut().push((channel, line));
        self.arm(cpu);
    }

    fn arm(&self, cpu: &Cpu) {
        let next = self.waiting.borrow().iter().map(|w| w.1).min_by_key(|l| l.wrapping_sub(self.freed.get()));
        if let Some(line) = next {
            self.registers.write_u32(cpu, self.register(kpio::ARM_AT), line);
        }
    }

    /// Wakes the channels for which there is room now.
    pub fn poll(&self, cpu: &Cpu, core: &dyn NetCore) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        self.freed.set(cpu.load_u32(self.shared.cpu));
        let mut woken = Vec::new();
        self.waiting.borrow_mut().retain(|&(channel, line)| {
            let is_due = is_past(self.freed.get(), line);
            if is_due {
                woken.push(channel);
            }
            !is_due
        });
        self.arm(cpu);
        woken.into_iter().for_each(|channel| core.wake_queue(cpu, channel));
    }

    /// Whether a channel waits although there is room: an interrupt was lost.
    pub fn has_news(&self, cpu: &Cpu) -> bool {
        let first = self.waiting.borrow().first().copied();
        first.is_some_and(|(_, line)| self.is_past(cpu, line))
    }

    /// Writes a packet for a channel, and lets go of it.
    ///
    /// # Errors
    /// Gives it back if there is no room; the channel is woken when there is.
    pub fn send(&self, cpu: &Cpu, channel: u16, packet: Packet) -> Result<u64, Packet> {
        let length = packet.length() as usize;
        let end = self.line.get().wrapping_add(self.format.lines(length) as u32);
        let needs = end.wrapping_sub(1 << self.limits.log2_lines);
        if self.params.flow == Flow::Counted && !self.is_past(cpu, needs) {
            self.wait(cpu, channel, needs);
            return Err(packet);
        }
        cpu.work(self.params.costs.send);
        let mut frame = self.frame.borrow_mut();
        frame.clear();
        frame.resize(length, 0);
        packet.load(cpu, &mut frame);
        let mut header =
            framed::Header { length: length as u16, number: self.frames.get(), ..Default::default() };
        let words = length.div_ceil(8) as u64;
        if let Checksum::Offload { .. } = packet.checksum {
            header.transport_checksum = true;
            if !self.params.framed {
                cpu.work(words * self.params.costs.sum_word);
                if let Some(parts) = Dissection::of(&frame) {
                    parts.fill_transport_checksum(&mut frame);
                }
            }
        }
        if self.params.framed {
            cpu.work(words * self.params.costs.crc_word);
        }
        if self.params.shared {
            self.lock(cpu);
        }
        self.write(cpu, header, &frame);
        self.line.set(end);
        self.frames.set(self.frames.get().wrapping_add(1));
        if self.params.shared {
            self.locked.set(cpu.now());
        }
        packet.release(cpu);
        Ok(length as u64)
    }

    /// Takes the lock: its line comes from whoever had it, and whoever has it is waited for.
    fn lock(&self, cpu: &Cpu) {
        // A locked instruction empties the write-combining buffers.
        cpu.barrier(Barrier::Locked);
        cpu.store_u32(self.shared.cpu + APART, 1);
        cpu.stall(self.locked.get().since(cpu.now()));
    }

    /// Writes a frame's lines.
    fn write(&self, cpu: &Cpu, header: framed::Header, frame: &[u8]) {
        let mut lines = self.lines.borrow_mut();
        lines.clear();
        self.format.encode(header, frame, &mut lines);
        let used = if self.is_short() { frame.len() + framed::OVERHEAD } else { lines.len() };
        let mask = (1u64 << self.limits.log2_positions) - 1;
        let window = u64::from(self.number) * 2 * (mask + 1);
        for (n, line) in lines[..used].chunks(LINE).enumerate() {
            let position = u64::from(self.line.get().wrapping_add(n as u32)) & mask;
            let half = if n == 0 && self.params.framed { mask + 1 } else { 0 };
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
        if self.params.ending == Ending::Fenced && self.params.stores == Stores::Combining {
            cpu.sfence();
        }
    }
}

/// Whether a count has reached another: the nearer half of the range lies ahead.
fn is_past(count: u32, line: u32) -> bool {
    count.wrapping_sub(line) < 1 << 31
}
