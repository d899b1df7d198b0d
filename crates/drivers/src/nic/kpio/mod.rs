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
mod params;
mod queue;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::mmio::Mmio;
use platform::net::Packet;
use wire::ip::{Flow as Connection, protocol};

pub use params::{Ending, Flow, KpioCosts, KpioParams, Select, Stores};

use super::adapter::Adapter;
use super::channel::Channel;
use flows::{Flows, Last, Path};
pub use queue::{KpioLimits, KpioQueue};

/// Bytes of headers that are looked at: Ethernet, IPv6, TCP's ports.
const HEADERS: usize = 64;

/// A function's path by programmed I/O.
pub struct Kpio {
    pub params: KpioParams,
    pub limits: KpioLimits,
    pub window: Mmio,
    select: Cell<Select>,
    /// What was chosen has changed: packets wait until both paths are empty.
    holds: Cell<bool>,
    /// Packets have come that are too long for lines: from then on it is noted where each connection's went last.
    mixes: Cell<bool>,
    flows: RefCell<Option<Flows>>,
    /// The queue that all channels share.
    pub shared: RefCell<Option<Rc<KpioQueue>>>,
}

/// What becomes of a packet.
enum Way {
    Take(Path),
    /// Not before the other path has let go of what went before it.
    Wait,
}

impl Kpio {
    pub fn new(params: KpioParams, limits: KpioLimits, window: Mmio) -> Self {
        Self {
            select: Cell::new(params.select),
            params,
            limits,
            window,
            holds: Cell::new(false),
            mixes: Cell::new(false),
            flows: RefCell::new(None),
            shared: RefCell::new(None),
        }
    }
}

impl Adapter {
    /// Changes which packets go by programmed I/O. What is under way leaves first.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device or the settings have no such path.
    pub fn set_select(&self, cpu: &Cpu, select: Select) -> Result<(), Error> {
        let kpio = self.kpio.as_ref().ok_or(Error::NotSupported)?;
        if kpio.select.replace(select) != select {
            kpio.holds.set(true);
            kpio.mixes.set(false);
            self.end_hold(cpu);
        }
        Ok(())
    }

    /// Makes a channel's queue and starts it.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn start_kpio(&self, cpu: &Cpu, channel: &Channel) -> Result<(), Error> {
        let Some(kpio) = &self.kpio else { return Ok(()) };
        if kpio.flows.borrow().is_none() {
            *kpio.flows.borrow_mut() = Some(Flows::new(cpu, &self.kernel)?);
        }
        if let Some(shared) = &*kpio.shared.borrow() {
            *channel.kpio.borrow_mut() = Some(Rc::clone(shared));
            return Ok(());
        }
        if channel.number >= kpio.limits.queues {
            return Ok(());
        }
        let (node, at) = (self.kernel.node_of(channel.cpu.get()), (channel.number, kpio.limits));
        let places = (&self.registers, &kpio.window);
        let queue = KpioQueue::new(cpu, &self.dma, places, at, kpio.params, node)?;
        queue.start(cpu, channel.number);
        if kpio.params.shared {
            *kpio.shared.borrow_mut() = Some(Rc::clone(&queue));
        }
        *channel.kpio.borrow_mut() = Some(queue);
        Ok(())
    }

    /// Says so if the device has fewer kPIO queues than there are channels.
    pub fn tell_of_channels_without_lines(&self, channels: &[Rc<Channel>]) {
        let without = channels.iter().filter(|channel| channel.kpio.borrow().is_none()).count();
        if self.kpio.is_some() && without > 0 {
            let (name, all) = (self.name(), channels.len());
            self.kernel.log(format!(
                "{name}: {without} of {all} queues send by descriptors alone: no kPIO queue is left"
            ));
        }
    }

    /// Lets go of the queues; the device has stopped.
    pub fn free_kpio(&self, cpu: &Cpu) {
        let Some(kpio) = &self.kpio else { return };
        let shared = kpio.shared.take();
        for channel in &*self.channels.borrow() {
            let queue = channel.kpio.take();
            if let Some(queue) = queue.filter(|_| shared.is_none()) {
                queue.free(cpu);
            }
        }
        if let Some(queue) = shared {
            queue.free(cpu);
        }
        if let Some(flows) = kpio.flows.take() {
            flows.free(cpu);
        }
        kpio.holds.set(false);
        kpio.mixes.set(false);
    }

    /// Sends a packet by lines if that is its path.
    ///
    /// # Errors
    /// Gives it back, for the other path in `Ok`, to wait in `Err`.
    pub fn send_by_lines(
        &self,
        cpu: &Cpu,
        channel: &Channel,
        packet: Packet,
    ) -> Result<Result<u64, Packet>, Packet> {
        let Some(kpio) = &self.kpio else { return Ok(Err(packet)) };
        let queue = channel.kpio.borrow().clone();
        let Some(queue) = queue else {
            self.counters.tx_no_queue.add(u64::from(kpio.select.get() != Select::None));
            return Ok(Err(packet));
        };
        if queue.is_cutting(channel.number) {
            // The rest of a packet takes the way of its beginning.
            return queue.send(cpu, channel.number, packet).map(Ok);
        }
        if kpio.holds.get() && !self.end_hold(cpu) {
            self.wait_for_paths(cpu, channel);
            return Err(packet);
        }
        match self.way(cpu, kpio, (channel, &queue), &packet) {
            Way::Take(Path::Ring) => Ok(Err(packet)),
            Way::Take(Path::Lines) => queue.send(cpu, channel.number, packet).map(Ok),
            Way::Wait => Err(packet),
        }
    }

    fn way(&self, cpu: &Cpu, kpio: &Kpio, (channel, queue): (&Channel, &KpioQueue), packet: &Packet) -> Way {
        let select = kpio.select.get();
        let frame = u32::from(packet.headers) + u32::from(packet.segment);
        let fits = match select {
            // What is to be cut is large.
            Select::UpTo(_) => packet.segment == 0 && packet.length() <= queue.longest(),
            _ if packet.segment > 0 => frame <= queue.longest(),
            _ => packet.length() <= queue.longest(),
        };
        if let Select::None = select {
            return Way::Take(Path::Ring);
        }
        let by_size = matches!(select, Select::UpTo(_));
        if !fits && !by_size && !kpio.mixes.replace(true) {
            // Nothing was noted of what is under way: it leaves first.
            kpio.holds.set(true);
            if !self.end_hold(cpu) {
                self.wait_for_paths(cpu, channel);
                return Way::Wait;
            }
        }
        if matches!(select, Select::All) && !kpio.mixes.get() {
            return Way::Take(Path::Lines);
        }
        cpu.work(kpio.params.costs.select);
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
            && !(wanted && kpio.mixes.get())
        {
            // All packets of a connection take one path.
            return Way::Take(if wanted { Path::Lines } else { Path::Ring });
        }
        let flows = kpio.flows.borrow();
        let Some(flows) = &*flows else { return Way::Take(Path::Ring) };
        let place = Flows::place(flow.as_ref());
        self.counters.tx_too_long.add(u64::from(wanted && !fits && !by_size));
        let wanted = if wanted && fits { Path::Lines } else { Path::Ring };
        let last = flows.get(cpu, place);
        let (path, stays) = match last {
            Some(last) if last.path != wanted && !self.has_left(cpu, last) => {
                let can_stay = last.path == Path::Ring || fits;
                if !can_stay || last.stays >= kpio.params.most_stays {
                    self.wait_for(cpu, last, channel);
                    return Way::Wait;
                }
                (last.path, last.stays + 1)
            }
            _ => (wanted, 0),
        };
        let mark = match path {
            Path::Lines => queue.written().wrapping_add(queue.lines_of(packet.length())),
            Path::Ring => channel.tx.borrow().as_ref().map_or(0, |tx| tx.mark_behind(packet)),
        };
        flows.set(cpu, place, Last { path, channel: channel.number, mark, stays });
        Way::Take(path)
    }

    /// Whether the packet that went last has left.
    fn has_left(&self, cpu: &Cpu, last: Last) -> bool {
        let Some(channel) = self.channel(last.channel) else { return true };
        match last.path {
            Path::Ring => channel.tx.borrow().as_ref().is_none_or(|tx| tx.is_past(cpu, last.mark)),
            Path::Lines => {
                let queue = channel.kpio.borrow();
                queue.as_ref().is_none_or(|queue| queue.is_past(cpu, queue.within_written(last.mark)))
            }
        }
    }

    /// Wakes a channel when a packet has left.
    fn wait_for(&self, cpu: &Cpu, last: Last, channel: &Channel) {
        let Some(other) = self.channel(last.channel) else { return };
        match last.path {
            Path::Ring => self.waiting.borrow_mut().push(channel.number),
            Path::Lines => {
                if let Some(queue) = &*other.kpio.borrow() {
                    queue.wait(cpu, channel.number, queue.within_written(last.mark));
                }
            }
        }
    }

    /// Whether nothing is under way by either path, so that packets need not wait any more.
    pub fn end_hold(&self, cpu: &Cpu) -> bool {
        let Some(kpio) = self.kpio.as_ref().filter(|kpio| kpio.holds.get()) else { return true };
        let is_empty = self.channels.borrow().iter().all(|channel| {
            channel.tx.borrow().as_ref().is_none_or(|tx| tx.outstanding() == 0)
                && channel.kpio.borrow().as_ref().is_none_or(|queue| queue.is_past(cpu, queue.written()))
        });
        if is_empty {
            kpio.holds.set(false);
            if let Some(flows) = &*kpio.flows.borrow() {
                flows.clear();
            }
        }
        is_empty
    }

    /// Wakes a channel when something has left by any path.
    fn wait_for_paths(&self, cpu: &Cpu, channel: &Channel) {
        self.waiting.borrow_mut().push(channel.number);
        for other in &*self.channels.borrow() {
            if let Some(queue) = &*other.kpio.borrow()
                && !queue.is_past(cpu, queue.written())
            {
                queue.wait(cpu, channel.number, queue.written());
            }
        }
    }
}
