//! Transmit by programmed I/O (kPIO+WC, section III) beside the rings: which packets take that path, and how the
//! packets of a connection stay in order.
//!
//! A packet sent by descriptors is done when its completion arrives; one sent by lines is done when the device
//! reports its lines free. When the path changes for all packets, new packets wait until both paths are empty. When
//! the path depends on the packet's size, packets of one connection may want different paths. They stay on the path
//! of the previous packet until that packet is done.
//!
//! Lines carry frames, so the driver segments larger packets itself.
//!
//! | file | subject |
//! |---|---|
//! | `flows` | which path a connection's packets take |
//! | `queue` | a queue: from packets to lines in its window |
//! | `frames`, `lines` | packets as frames, frames as lines |
//! | `count` | free lines |
//! | `order` | keeps lines of several cores apart |
//! | `waiters` | channels without room |
//! | `params` | parameters |

mod count;
mod flows;
mod frames;
mod lines;
mod order;
pub(super) mod params;
mod queue;
mod waiters;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, Node};
use platform::dma::DmaOps;
use platform::kernel::Kernel;
use platform::mmio::{MemoryType, Mmio};
use platform::net::{NetCore, OwnCounters, Packet};
use platform::pci::PciDevice;
use units::Duration;
use wire::ip::{Flow as Connection, protocol};
use wire::nic::registers::{WINDOW_BAR, counter};

pub use params::{Ending, Flow, KpioCosts, KpioParams, PacketSelect, Stores};

use super::beside::{Offered, TxBeside};
use super::channel::Channel;
use super::channels::Channels;
use super::counted::Counted;
use super::counters::Counters;
use super::limits::{Limits, Windows};
use super::params::NicDriverParams;
use super::path::TxPath;
use flows::{FlowCache, Last, Path};
use queue::KpioQueue;

/// Bytes of headers that are read: Ethernet, IPv6 and the TCP ports.
const HEADERS: usize = 64;
/// Once this time has passed since the device was last asked, it has given up on lost lines and reported so (assumed:
/// many times what devices wait for a line).
const TO_GIVE_UP: Duration = Duration::from_ms(1);

/// A function's programmed I/O path.
struct Kpio {
    params: KpioParams,
    windows: Windows,
    counters: Rc<Counters>,
    kernel: Rc<dyn Kernel>,
    dma: Rc<dyn DmaOps>,
    registers: Mmio,
    window: Mmio,
    select: Cell<PacketSelect>,
    /// The setting has changed: packets wait until both paths are empty.
    holds: Cell<bool>,
    /// Set once a packet was too long for lines. From then on, the last path of each connection is recorded.
    mixes: Cell<bool>,
    flows: RefCell<Option<FlowCache>>,
    /// Queue by channel. All channels may share one; the last channels have none if the device has too few.
    queues: RefCell<Vec<Rc<KpioQueue>>>,
    /// Channels with packets that wait until earlier ones have left through the rings.
    waiting: RefCell<Vec<u16>>,
}

/// The path that a packet takes; `None` while it has to wait for earlier packets on the other path.
type Way = Option<Path>;

/// The device's counters of the outcome of each transmit by this path.
const SENDING: [usize; 2] = [counter::KPIO_DROPPED, counter::KPIO_MISSING];
/// Other counters of the device that are reported.
const OTHERS: [usize; 1] = [counter::KPIO_WAITS];

/// The path of a function, if the driver is loaded with it and the function has queues for it. `select` is what was set
/// since then.
///
/// # Errors
/// If the windows cannot be mapped.
pub fn probe(
    device: &PciDevice,
    registers: &Mmio,
    driver: &NicDriverParams,
    select: Option<PacketSelect>,
    limits: &Limits,
    counters: &Rc<Counters>,
) -> Result<Option<Box<dyn TxBeside>>, Error> {
    let (Some(params), Some(windows)) = (driver.kpio, limits.windows) else { return Ok(None) };
    let params = KpioParams { select: select.unwrap_or(params.select), ..params };
    Ok(Some(Box::new(Kpio::new(device, registers, params, windows, counters)?)))
}

impl Kpio {
    /// Maps the windows of a function that has kPIO queues.
    ///
    /// # Errors
    /// If the windows cannot be mapped.
    fn new(
        device: &PciDevice,
        registers: &Mmio,
        params: KpioParams,
        windows: Windows,
        counters: &Rc<Counters>,
    ) -> Result<Self, Error> {
        let kind = match params.stores {
            Stores::Uncached => MemoryType::Uncached,
            Stores::Combining | Stores::Direct => MemoryType::WriteCombining,
        };
        Ok(Self {
            select: Cell::new(params.select),
            params,
            windows,
            counters: Rc::clone(counters),
            kernel: device.kernel(),
            dma: device.dma(),
            registers: registers.clone(),
            window: device.ioremap_bar(WINDOW_BAR, kind)?,
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

    fn way(
        &self,
        cpu: &Cpu,
        channels: &[Rc<Channel>],
        (channel, queue): (u16, &KpioQueue),
        packet: &Packet,
    ) -> Way {
        let select = self.select.get();
        let frame = u32::from(packet.headers) + u32::from(packet.segment);
        let fits = match select {
            // Packets that need segmentation are large.
            PacketSelect::UpTo(_) => packet.segment == 0 && packet.length() <= queue.longest(),
            _ if packet.segment > 0 => frame <= queue.longest(),
            _ => packet.length() <= queue.longest(),
        };
        if let PacketSelect::None = select {
            return Some(Path::Ring);
        }
        let by_size = matches!(select, PacketSelect::UpTo(_));
        if !fits && !by_size && !self.mixes.replace(true) {
            // Paths were not recorded so far, so let everything in flight leave first.
            self.holds.set(true);
            if !self.end_hold(cpu, channels) {
                self.wait_for_paths(cpu, channel);
                return None;
            }
        }
        if matches!(select, PacketSelect::All) && !self.mixes.get() {
            return Some(Path::Lines);
        }
        cpu.work(self.params.costs.select);
        let mut bytes = [0; HEADERS];
        let length = packet.load(cpu, &mut bytes);
        let flow = Connection::of_headers(&bytes[..length]);
        let wanted = match select {
            PacketSelect::TcpPorts { first, last } => flow.is_some_and(|flow| {
                let ours = |port| (first..=last).contains(&port);
                let is_tcp = flow.protocol == protocol::TCP;
                is_tcp && flow.ports.is_some_and(|(from, to)| ours(from) || ours(to))
            }),
            PacketSelect::UpTo(most) => packet.length() <= most,
            PacketSelect::All => true,
            PacketSelect::None => false,
        };
        if let PacketSelect::TcpPorts { .. } = select
            && !(wanted && self.mixes.get())
        {
            // With this setting, all packets of a connection take the same path.
            return Some(if wanted { Path::Lines } else { Path::Ring });
        }
        let flows = self.flows.borrow();
        let Some(flows) = &*flows else { return Some(Path::Ring) };
        let place = FlowCache::place(flow.as_ref());
        self.counters.tx_too_long.add(u64::from(wanted && !fits && !by_size));
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
        let mark = self.path(channels, path, channel).map_or(0, |path| path.mark_behind(packet));
        flows.set(cpu, place, Last { path, channel, mark, stays });
        Some(path)
    }

    /// A channel's queue of a path.
    fn path(&self, channels: &[Rc<Channel>], path: Path, channel: u16) -> Option<Rc<dyn TxPath>> {
        match path {
            Path::Ring => Some(channels.get(usize::from(channel))?.tx.borrow().clone()?),
            Path::Lines => Some(self.queue(channel)?),
        }
    }

    /// Whether the connection's last packet has left.
    fn has_left(&self, cpu: &Cpu, channels: &[Rc<Channel>], last: Last) -> bool {
        self.path(channels, last.path, last.channel).is_none_or(|path| path.is_past(cpu, last.mark))
    }

    /// Wakes a channel when that packet has left.
    fn wait_for(&self, cpu: &Cpu, last: Last, channel: u16) {
        match last.path {
            Path::Ring => self.waiting.borrow_mut().push(channel),
            Path::Lines => {
                if let Some(queue) = self.queue(last.channel) {
                    queue.wait_past(cpu, channel, last.mark);
                }
            }
        }
    }

    /// Ends the hold if nothing is in flight on either path. Returns whether it has ended.
    fn end_hold(&self, cpu: &Cpu, channels: &[Rc<Channel>]) -> bool {
        if !self.holds.get() {
            return true;
        }
        let is_empty = (0..channels.len() as u16).all(|channel| {
            let is_empty = |path| self.path(channels, path, channel).is_none_or(|path| path.is_empty(cpu));
            is_empty(Path::Ring) && is_empty(Path::Lines)
        });
        if is_empty {
            self.holds.set(false);
            if let Some(flows) = &*self.flows.borrow() {
                flows.clear();
            }
        }
        is_empty
    }

    /// Wakes a channel when a packet has left by either path.
    fn wait_for_paths(&self, cpu: &Cpu, channel: u16) {
        self.waiting.borrow_mut().push(channel);
        for queue in &*self.queues.borrow() {
            queue.wait_until_empty(cpu, channel);
        }
    }
}

impl TxBeside for Kpio {
    fn start(&self, cpu: &Cpu, channel: u16, node: Node) -> Result<(), Error> {
        if self.flows.borrow().is_none() {
            *self.flows.borrow_mut() = Some(FlowCache::new(cpu, &self.kernel)?);
        }
        let shared = self.queue(0).filter(|_| self.params.shared);
        if shared.is_none() && channel >= self.windows.count {
            return Ok(());
        }
        let queue = match shared {
            Some(shared) => shared,
            None => {
                let places = (&self.registers, &self.window);
                let queue =
                    KpioQueue::new(cpu, &self.dma, places, (channel, self.windows), self.params, node)?;
                queue.start(cpu, channel);
                queue
            }
        };
        self.queues.borrow_mut().push(queue);
        Ok(())
    }

    /// Tells the user if the device has no queue for some of the channels.
    fn started(&self, name: &str, channels: usize) {
        let without = channels - self.queues.borrow().len();
        if without > 0 {
            self.kernel.log(format!(
                "{name}: {without} of {channels} queues send by descriptors alone: no kPIO queue is left"
            ));
        }
    }

    fn stop(&self, cpu: &Cpu, channel: u16) {
        if let Some(queue) = self.queue(channel) {
            queue.stop(cpu);
        }
    }

    fn free(&self, cpu: &Cpu) {
        let mut queues = self.queues.take();
        queues.dedup_by(|one, other| Rc::ptr_eq(one, other));
        queues.iter().for_each(|queue| queue.free(cpu));
        if let Some(flows) = self.flows.take() {
            flows.free(cpu);
        }
        self.holds.set(false);
        self.mixes.set(false);
    }

    fn set_select(&self, cpu: &Cpu, channels: &[Rc<Channel>], select: PacketSelect) {
        if self.select.replace(select) != select {
            self.holds.set(true);
            self.mixes.set(false);
            self.end_hold(cpu, channels);
        }
    }

    fn offer(&self, cpu: &Cpu, channels: &[Rc<Channel>], channel: u16, packet: Packet) -> Offered {
        let Some(queue) = self.queue(channel) else {
            self.counters.tx_no_queue.add(u64::from(self.select.get() != PacketSelect::None));
            return Offered::Declined(packet);
        };
        // The rest of a packet takes the same path as its beginning.
        let way = match queue.is_cutting(channel) {
            true => Some(Path::Lines),
            false if self.holds.get() && !self.end_hold(cpu, channels) => {
                self.wait_for_paths(cpu, channel);
                None
            }
            false => self.way(cpu, channels, (channel, &queue), &packet),
        };
        let sent = match way {
            None => Err(packet),
            Some(Path::Ring) => return Offered::Declined(packet),
            Some(Path::Lines) => queue.send(cpu, channel, packet),
        };
        match sent {
            Ok(bytes) => {
                self.counters.tx_lines.add(1);
                Offered::Sent(bytes)
            }
            Err(packet) => {
                self.counters.tx_held.add(1);
                Offered::NotYet(packet)
            }
        }
    }

    /// Polls its queue as well.
    fn poll<'a>(
        &'a self,
        cpu: &'a Cpu,
        channels: &'a Channels,
        channel: u16,
        core: &'a dyn NetCore,
    ) -> Async<'a, ()> {
        Box::pin(async move {
            if let Some(queue) = self.queue(channel) {
                let was_lost = queue.poll(cpu, core).await;
                self.counters.tx_places_lost.add(was_lost.into());
            }
            if !self.waiting.borrow().is_empty() {
                self.end_hold(cpu, &channels.all());
                let waiting = self.waiting.take();
                waiting.into_iter().for_each(|channel| core.wake_queue(cpu, channel));
            }
        })
    }

    fn ask_again<'a>(&'a self, cpu: &'a Cpu, channel: u16) -> Async<'a, bool> {
        Box::pin(async move {
            let Some(queue) = self.queue(channel) else { return false };
            if !queue.is_waited_for() {
                return false;
            }
            queue.arm(cpu);
            cpu.sleep(TO_GIVE_UP).await;
            !queue.is_waited_for() || queue.has_news(cpu)
        })
    }

    fn counters(&self) -> [&'static [usize]; 2] {
        // Frames of the paper's format carry no sequence numbers, and a read across the link takes long.
        [if self.params.framed { &SENDING } else { &SENDING[..1] }, &OTHERS]
    }

    fn tx_statistics<'a>(
        &'a self,
        cpu: &'a Cpu,
        counted: &'a Counted,
        is_up: bool,
    ) -> Async<'a, (u64, OwnCounters)> {
        Box::pin(async move {
            let [dropped, missing] = match self.params.framed {
                true => counted.sums(cpu, is_up, SENDING).await,
                false => [counted.sums(cpu, is_up, [counter::KPIO_DROPPED]).await[0], 0],
            };
            let named = vec![
                ("tx_kpio", self.counters.tx_lines.get()),
                ("tx_kpio_no_queue", self.counters.tx_no_queue.get()),
                ("tx_kpio_too_long", self.counters.tx_too_long.get()),
                ("tx_kpio_dropped", dropped),
                ("tx_kpio_missing", missing),
            ];
            // Most dropped packets also leave a gap in the sequence numbers.
            (dropped.max(missing), named)
        })
    }

    fn statistics<'a>(&'a self, cpu: &'a Cpu, counted: &'a Counted, is_up: bool) -> Async<'a, OwnCounters> {
        Box::pin(async move {
            let [waits] = counted.sums(cpu, is_up, OTHERS).await;
            vec![("tx_kpio_waits", waits)]
        })
    }
}
