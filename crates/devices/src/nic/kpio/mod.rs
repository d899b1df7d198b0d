//! Transmit by programmed I/O (kPIO+WC, Figure 2: queue and EOP filter), the second source of frames beside the rings.
//!
//! A [`queue`] takes lines from write-combining buffers, which are put in order ([`lines`]), decoded ([`wire::kpio`])
//! and kept as [`frames`] until the port takes them. Writes without room wait in the PCIe port ([`backlog`]). The
//! driver hears of free lines by [`reports`].
//!
//! A missing line is given up some time after later lines have arrived ([`patience`]). In the format with length and
//! checksum, its frame is dropped and the queue resumes at the next first line; in the paper's format, which cannot
//! detect loss, the queue continues without the line. A driver announces that it waits only after writing its lines, so
//! these are given up in the same way: a driver that lost lines does not wait forever.

mod backlog;
mod frames;
mod lines;
mod params;
mod patience;
mod queue;
mod reports;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::{BitRate, Duration, Time};
use wire::kpio::{LINE, framed};
use wire::nic::registers as regs;

use super::NicHandle;
use super::fields::block;
use super::params::{NicParams, QueueWindow, Windows};
use super::spare::Spare;
use super::token::Note;
use frames::Ready;
pub use params::KpioParams;
use queue::Queue;

/// All queues for programmed I/O of a NIC, which may have none. A queue that has work to do is named by the functions
/// below; the NIC then has to call [`drain`](Self::drain), pass the frames on, and call [`report`](Self::report).
pub struct Kpio {
    windows: Windows,
    /// What the NIC's `WINDOWS` register reads.
    limits: u32,
    /// Queues by physical function. Virtual functions have higher numbers and no queues.
    functions: Vec<Vec<Queue>>,
    /// The Ethernet port of each function.
    ports: Vec<EthernetPort>,
    /// Number of running queues by Ethernet port.
    running: Vec<usize>,
    spare: Spare,
}

impl Kpio {
    /// The stopped queues of a NIC.
    pub fn new(nic: &NicParams, handle: &NicHandle) -> Self {
        let (mut limits, mut functions) = (0, Vec::new());
        if let Some(params) = nic.kpio {
            let [lines, positions] = [params.log2_lines, params.log2_positions].map(u32::from);
            limits = u32::from(params.queues) | lines << 8 | positions << 16;
            let most = ((LINE << params.log2_lines) - LINE).min(framed::LONGEST);
            let longest = usize::from(nic.max_frame).min(most);
            let queue =
                |function, queue| Queue::new(QueueWindow { function, queue }, handle, params, longest);
            let queues = |function| (0..params.queues).map(|n| queue(function, n as u8)).collect();
            functions = (0..nic.functions.len() as u8).map(queues).collect();
        }
        Self {
            windows: nic.windows(),
            limits,
            functions,
            ports: nic.functions.iter().map(|function| function.port).collect(),
            running: vec![0; usize::from(nic.ports)],
            spare: Spare::default(),
        }
    }

    /// Stops all queues of a function and clears the driver's settings.
    pub fn reset(&mut self, function: u8) {
        self.functions.get_mut(usize::from(function)).into_iter().flatten().for_each(Queue::reset);
        self.count_running();
    }

    fn count_running(&mut self) {
        self.running.fill(0);
        for (port, queues) in self.ports.iter().zip(&self.functions) {
            self.running[usize::from(port.0)] += queues.iter().filter(|queue| queue.is_running()).count();
        }
    }

    /// Whether a queue runs whose frames leave by a port.
    pub fn runs_at(&self, port: EthernetPort) -> bool {
        self.running[usize::from(port.0)] > 0
    }

    fn queue(&mut self, of: QueueWindow) -> &mut Queue {
        &mut self.functions[usize::from(of.function)][usize::from(of.queue)]
    }

    /// Reads a function's register if it belongs to a queue, or tells of them.
    pub fn register(&self, function: u8, at: u64) -> Option<u32> {
        let queues = self.functions.get(usize::from(function))?;
        if at == regs::WINDOWS {
            return Some(self.limits);
        }
        let (queue, at) = block(at, regs::KPIO_QUEUES, regs::KPIO_STRIDE, queues.len())?;
        Some(queues[queue].register(at))
    }

    /// Writes a function's register if it belongs to a queue. Returns that queue, and whether it has work to do.
    pub fn set_register(&mut self, function: u8, at: u64, value: u32) -> Option<(QueueWindow, bool)> {
        let queues = self.functions.get_mut(usize::from(function))?;
        let (number, at) = block(at, regs::KPIO_QUEUES, regs::KPIO_STRIDE, queues.len())?;
        let queue = &mut queues[number];
        let was_running = queue.is_running();
        let has_work = queue.set_register(at, value);
        if queue.is_running() != was_running {
            self.count_running();
        }
        Some((QueueWindow { function, queue: number as u8 }, has_work))
    }

    /// The running queue to whose window a function's access goes, and the offset in the window.
    fn at(&mut self, function: u8, at: u64) -> Option<(QueueWindow, u64)> {
        let (number, at) = self.windows.split(at);
        let queue = self.functions.get(usize::from(function))?.get(number)?;
        queue.is_running().then_some((QueueWindow { function, queue: number as u8 }, at))
    }

    /// Takes a write to a function's windows. Returns the queue that now has work to do.
    pub fn write(&mut self, function: u8, at: u64, data: &[u8]) -> Option<QueueWindow> {
        let (of, at) = self.at(function, at)?;
        self.functions[usize::from(function)][usize::from(of.queue)].write(at, data, &mut self.spare);
        Some(of)
    }

    /// How long a write to a function's windows arriving at `now` waits in the PCIe port, if the wire is free at `free`
    /// with `rate`.
    pub fn holds(&mut self, function: u8, at: u64, now: Time, free: Time, rate: BitRate) -> Duration {
        let of = self.at(function, at);
        of.map_or(Duration::ZERO, |(of, at)| self.queue(of).holds(at, now, free, rate))
    }

    /// A timer of a queue expired. Returns the queue if it has work to do.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, note: Note) -> Option<QueueWindow> {
        let of = QueueWindow { function: note.function, queue: note.queue };
        self.queue(of).due(bus, note).then_some(of)
    }

    /// Decodes a queue's lines. Returns how many frames are now complete that were not.
    pub fn drain(&mut self, bus: &mut dyn DeviceBus, of: QueueWindow) -> u64 {
        self.functions[usize::from(of.function)][usize::from(of.queue)].drain(bus, &mut self.spare)
    }

    /// Takes a queue's oldest frame; `None` if the queue was stopped in the meantime.
    pub fn take(&mut self, of: QueueWindow) -> Option<Ready> {
        self.queue(of).take()
    }

    /// That frame has been handed to the wire, which took it or not. The queue has work to do, as its lines are free.
    pub fn left(&mut self, of: QueueWindow, frame: Ready, was_sent: bool) {
        self.queue(of).left(&frame, was_sent);
        self.spare.put(frame.bytes);
    }

    /// Reports a queue's freed lines to the driver. Returns the vector of the interrupt if one is due, which must
    /// follow.
    pub fn report(&mut self, bus: &mut dyn DeviceBus, of: QueueWindow) -> Option<u32> {
        self.queue(of).report(bus)
    }
}
