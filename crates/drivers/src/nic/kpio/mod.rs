//! Sending by programmed I/O (kPIO+WC, section III) beside the rings: which packets take that path, and how none
//! passes another of its connection.
//!
//! A packet by descriptors is done with when its completion says so, one by lines when the device has told that its
//! lines are free. When the choice for all packets changes, the next ones wait until both paths are empty. Where the
//! choice is by size, or packets come that are too long for lines, those of one connection may want different paths:
//! they keep to the last one's until that has let go of the connection.
//!
//! Lines carry frames: segments that are larger are cut by the driver on the way.

mod flows;
pub(super) mod params;
mod queue;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node};
use platform::dma::DmaOps;
use platform::kernel::Kernel;
use platform::mmio::{MemoryType, Mmio};
use platform::net::{NetCore, Packet};
use platform::pci::PciDevice;
use units::Duration;
use wire::ip::{Flow as Connection, protocol};
use wire::nic::registers::{KPIO_BAR, counter};

use params::KpioLimits;
pub use params::{Ending, Flow, KpioCosts, KpioParams, Select, Stores};

use super::Counters;
use super::channel::Channel;
use super::tx::TxQueue;
use flows::{FlowCache, Last, Path};
use queue::KpioQueue;

/// Bytes of headers that are looked at: Ethernet, IPv6, TCP's ports.
const HEADERS: usize = 64;
/// After that, a device that has been asked again whether lines have left has given up those that were lost, and told of it
/// (assumed: many times what devices wait for a line).
const TO_GIVE_UP: Duration = Duration::from_ms(1);

/// A function's path by programmed I/O.
pub struct Kpio {
    params: KpioParams,
    limits: KpioLimits,
    kernel: Rc<dyn Kernel>,
    dma: Rc<dyn DmaOps>,
    registers: Mmio,
    window: Mmio,
    select: Cell<Select>,
    /// What was chosen has changed: packets wait until both paths are empty.
    holds: Cell<bool>,
    /// Packets have come that are too long for lines: from then on it is noted where each connection's went last.
    mixes: Cell<bool>,
    flows: RefCell<Option<FlowCache>>,
    /// By channel, which may all share one; the last channels have none where the device has too few.
    queues: RefCell<Vec<Rc<KpioQueue>>>,
    /// Channels whose packets wait for others to leave by the rings.
    waiting: RefCell<Vec<u16>>,
}

/// What became of a packet that might go by lines.
pub enum ByLines {
    /// It has gone: so many bytes.
    Sent(u64),
    /// It is to go by the ring.
    Not(Packet),
    /// Its channel is woken when it can go.
    NotYet(Packet),
}

/// The path that a packet takes; none before the other path has let go of what went before it.
type Way = Option<Path>;

/// Counters of the device that are zero as long as nothing is sent with these settings.
pub fn silent_counters(params: Option<&KpioParams>) -> &'static [usize] {
    match params {
        None => &[counter::KPIO_DROPPED, counter::KPIO_WAITS, counter::KPIO_MISSING],
        // Frames of the other format have no numbers.
        Some(params) if !params.framed => &[counter::KPIO_MISSING],
        Some(_) => &[],
    }
}

impl Kpio {
    /// The path of a function that has one.
    ///
    /// # Errors
    /// If the windows cannot be mapped.
    pub fn new(
        device: &PciDevice,
        registers: &Mmio,
        params: KpioParams,
        limits: KpioLimits,
    ) -> Result<Self, Error> {
        let kind = match params.stores {
            Stores::Uncached => MemoryType::Uncached,
            Stores::Combining | Stores::Direct => MemoryType::WriteCombining,
        };
        Ok(Self {
            select: Cell::new(params.select),
            params,
            limits,
            kernel: device.kernel(),
            dma: device.dma(),
            registers: registers.clone(),
            window: device.ioremap_bar(KPIO_BAR, kind)?,
            holds: Cell::new(false),
            mixes: Cell::new(false),
            flows: RefCell::new(None),
            queues: RefCell::default(),
            waiting: RefCell::default(),
        })
    }

    fn queue(&self, channel: u16) -> Option<Rc<KpioQueue>> {
        self.queues.borrow().get(usize::from(channel)).cloned()
    }

    /// Changes which packets go by programmed I/O. What is under way leaves first.
    pub fn set_select(&self, cpu: &Cpu, channels: &[Rc<Channel>], select: Select) {
        if self.select.replace(select) != select {
            self.holds.set(true);
            self.mixes.set(false);
            self.end_hold(cpu, channels);
        }
    }

    /// Makes the next channel's queue at a node and starts it.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn start(&self, cpu: &Cpu, channel: u16, node: Node) -> Result<(), Error> {
        if self.flows.borrow().is_none() {
            *self.flows.borrow_mut() = Some(FlowCache::new(cpu, &self.kernel)?);
        }
        let shared = self.queue(0).filter(|_| self.params.shared);
        if shared.is_none() && channel >= self.limits.queues {
            return Ok(());
        }
        let queue = match shared {
            Some(shared) => shared,
            None => {
                let places = (&self.registers, &self.window);
                let queue =
                    KpioQueue::new(cpu, &self.dma, places, (channel, self.limits), self.params, node)?;
                queue.start(cpu, channel);
                queue
            }
        };
        self.queues.borrow_mut().push(queue);
        Ok(())
    }

    /// For how many channels the device has a queue.
    pub fn reach(&self) -> usize {
        self.queues.borrow().len()
    }

    /// Stops a channel's queue.
    pub fn stop(&self, cpu: &Cpu, channel: u16) {
        if let Some(queue) = self.queue(channel) {
            queue.stop(cpu);
        }
    }

    /// Lets go of the queues; the device has stopped.
    pub fn free(&self, cpu: &Cpu) {
        let mut queues = self.queues.take();
        queues.dedup_by(|one, other| Rc::ptr_eq(one, other));
        queues.iter().for_each(|queue| queue.free(cpu));
        if let Some(flows) = self.flows.take() {
            flows.free(cpu);
        }
        self.holds.set(false);
        self.mixes.set(false);
    }

    /// Sends a packet of a channel by lines if that is its path.
    pub fn send(
        &self,
        cpu: &Cpu,
        channels: &[Rc<Channel>],
        channel: u16,
        packet: Packet,
        counters: &Counters,
    ) -> ByLines {
        let Some(queue) = self.queue(channel) else {
            counters.tx_no_queue.add(u64::from(self.select.get() != Select::None));
            return ByLines::Not(packet);
        };
        // The rest of a packet takes the way of its beginning.
        let way = match queue.is_cutting(channel) {
            true => Some(Path::Lines),
            false if self.holds.get() && !self.end_hold(cpu, channels) => {
                self.wait_for_paths(cpu, channel);
                None
            }
            false => self.way(cpu, channels, (channel, &queue), &packet, counters),
        };
        match way {
            None => ByLines::NotYet(packet),
            Some(Path::Ring) => ByLines::Not(packet),
            Some(Path::Lines) => match queue.send(cpu, channel, packet) {
                Ok(bytes) => ByLines::Sent(bytes),
                Err(packet) => ByLines::NotYet(packet),
            },
        }
    }

    fn way(
        &self,
        cpu: &Cpu,
        channels: &[Rc<Channel>],
        (channel, queue): (u16, &KpioQueue),
        packet: &Packet,
        counters: &Counters,
    ) -> Way {
        let select = self.select.get();
        let frame = u32::from(packet.headers) + u32::from(packet.segment);
        let fits = match select {
            // What is to be cut is large.
            Select::UpTo(_) => packet.segment == 0 && packet.length() <= queue.longest(),
            _ if packet.segment > 0 => frame <= queue.longest(),
            _ => packet.length() <= queue.longest(),
        };
        if let Select::None = select {
            return Some(Path::Ring);
        }
        let by_size = matches!(select, Select::UpTo(_));
        if !fits && !by_size && !self.mixes.replace(true) {
            // Nothing was noted of what is under way: it leaves first.
            self.holds.set(true);
            if !self.end_hold(cpu, channels) {
                self.wait_for_paths(cpu, channel);
                return None;
            }
        }
        if matches!(select, Select::All) && !self.mixes.get() {
            return Some(Path::Lines);
        }
        cpu.work(self.params.costs.select);
        let mut bytes = [0; HEADERS];
        let length = packet.load(cpu, &mut bytes);
        let flow = Connection::of_headers(&bytes[..length]);
        let wanted = match select {
            Select::TcpPorts { first, last } => flow.is_some_and(|flow| {
                let ours = |port| (first..=last).contains(&port);
                let is_tcp = flow.protocol == protocol::TCP;
                is_tcp && flow.ports.is_some_and(|(from, to)| ours(from) || ours(to))
            }),
            Select::UpTo(most) => packet.length() <= most,
            Select::All => true,
            Select::None => false,
        };
        if let Select::TcpPorts { .. } = select
            && !(wanted && self.mixes.get())
        {
            // All packets of a connection take one path.
            return Some(if wanted { Path::Lines } else { Path::Ring });
        }
        let flows = self.flows.borrow();
        let Some(flows) = &*flows else { return Some(Path::Ring) };
        let place = FlowCache::place(flow.as_ref());
        counters.tx_too_long.add(u64::from(wanted && !fits && !by_size));
        let wanted = if wanted && fits { Path::Lines } else { Path::Ring };
        let last = flows.get(cpu, place);
        let (path, stays) = match last {
            Some(last) if last.path != wanted && !self.has_left(cpu, channels, last) => {
                let can_stay = last.path == Path::Ring || fits;
                if !can_stay || last.stays >= self.params.most_stays {
                    self.wait_for(cpu, last, channel);
                    return None;
                }
                (last.path, last.stays + 1)
            }
            _ => (wanted, 0),
        };
        let mark = match path {
            Path::Lines => queue.written().wrapping_add(queue.lines_of(packet.length())),
            Path::Ring => ring_of(channels, channel).map_or(0, |tx| tx.mark_behind(packet)),
        };
        flows.set(cpu, place, Last { path, channel, mark, stays });
        Some(path)
    }

    /// Whether the packet that went last has left.
    fn has_left(&self, cpu: &Cpu, channels: &[Rc<Channel>], last: Last) -> bool {
        match last.path {
            Path::Ring => ring_of(channels, last.channel).is_none_or(|tx| tx.is_past(cpu, last.mark)),
            Path::Lines => self
                .queue(last.channel)
                .is_none_or(|queue| queue.is_past(cpu, queue.within_written(last.mark))),
        }
    }

    /// Wakes a channel when a packet has left.
    fn wait_for(&self, cpu: &Cpu, last: Last, channel: u16) {
        match last.path {
            Path::Ring => self.waiting.borrow_mut().push(channel),
            Path::Lines => {
                if let Some(queue) = self.queue(last.channel) {
                    queue.wait(cpu, channel, queue.within_written(last.mark));
                }
            }
        }
    }

    /// Whether nothing is under way by either path, so that packets need not wait any more.
    fn end_hold(&self, cpu: &Cpu, channels: &[Rc<Channel>]) -> bool {
        if !self.holds.get() {
            return true;
        }
        let is_empty = (0..).zip(channels).all(|(number, channel)| {
            channel.tx.borrow().as_ref().is_none_or(|tx| tx.outstanding() == 0)
                && self.queue(number).is_none_or(|queue| queue.is_past(cpu, queue.written()))
        });
        if is_empty {
            self.holds.set(false);
            if let Some(flows) = &*self.flows.borrow() {
                flows.clear();
            }
        }
        is_empty
    }

    /// Wakes a channel when something has left by any path.
    fn wait_for_paths(&self, cpu: &Cpu, channel: u16) {
        self.waiting.borrow_mut().push(channel);
        for queue in &*self.queues.borrow() {
            if !queue.is_past(cpu, queue.written()) {
                queue.wait(cpu, channel, queue.written());
            }
        }
    }

    /// Lets channels look again whose packets can go now: a channel has looked at its ring, and looks at its queue.
    pub async fn poll(
        &self,
        cpu: &Cpu,
        channels: &RefCell<Vec<Rc<Channel>>>,
        channel: u16,
        core: &dyn NetCore,
        counters: &Counters,
    ) {
        if let Some(queue) = self.queue(channel) {
            let was_lost = queue.poll(cpu, core).await;
            counters.tx_places_lost.add(was_lost.into());
        }
        if !self.waiting.borrow().is_empty() {
            self.end_hold(cpu, &channels.borrow());
            let waiting = self.waiting.take();
            waiting.into_iter().for_each(|channel| core.wake_queue(cpu, channel));
        }
    }

    /// Asks once more for lines for which a channel waits. Whether it need not wait any longer: an interrupt was lost, or the
    /// request for it.
    pub async fn ask_again(&self, cpu: &Cpu, channel: u16) -> bool {
        let Some(queue) = self.queue(channel) else { return false };
        if !queue.is_waited_for() {
            return false;
        }
        queue.arm(cpu);
        cpu.sleep(TO_GIVE_UP).await;
        !queue.is_waited_for() || queue.has_news(cpu)
    }
}

fn ring_of(channels: &[Rc<Channel>], channel: u16) -> Option<Rc<TxQueue>> {
    channels.get(usize::from(channel))?.tx.borrow().clone()
}
