//! One NIC function: how the driver starts and stops it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::dma::DmaOps;
use platform::irq::{Affinity, Irq, IrqReturn};
use platform::kernel::{Kernel, Priority, TaskParams};
use platform::memory::PAGE;
use platform::mmio::Mmio;
use platform::net::NetCore;
use platform::pci::PciDevice;
use platform::sync::Semaphore;
use units::Duration;
use wire::kpio::LINE;
use wire::nic::completion::LEN;
use wire::nic::registers::{self as regs, HELD_BYTES, control, feature, queue, status, vector};

use super::Counters;
use super::channel::{Channel, Owner};
use super::counted::{Counted, OTHERS, SENDING};
use super::events::EventQueue;
use super::inline::Inline;
use super::kpio::{Kpio, silent_counters};
use super::limits::Limits;
use super::params::NicDriverParams;
use super::pool::Pool;
use super::ring::Ring;
use super::rx::{Fetch, RxQueue};
use super::service::Service;
use super::state::{AdapterState, Shown};
use super::station::{Hand, Station};
use super::steering::Steering;
use super::tx::TxQueue;

/// How long to wait, before a queue is taken down, for transmits that other cores have already started (Linux:
/// `synchronize_net`, which takes longer).
const GRACE: Duration = Duration::from_us(20);

/// One function of a NIC, physical or virtual.
pub(super) struct Adapter {
    pub me: Weak<Self>,
    pub device: PciDevice,
    pub kernel: Rc<dyn Kernel>,
    pub dma: Rc<dyn DmaOps>,
    pub registers: Mmio,
    /// Doorbell pages that take inline packets.
    pages: Option<Mmio>,
    /// Window onto the frames that stay in the device (receive by programmed I/O).
    held: Option<Mmio>,
    pub params: NicDriverParams,
    pub limits: Limits,
    pub counters: Rc<Counters>,
    pub channels: RefCell<Vec<Rc<Channel>>>,
    /// Interrupt for events other than packets, with its vector.
    pub event_irq: Cell<Option<(Irq, u16)>>,
    core: RefCell<Option<Rc<dyn NetCore>>>,
    pub state: Shown,
    pub steering: Steering,
    /// Transmit by programmed I/O, beside the rings.
    pub kpio: Option<Kpio>,
    /// Functions that share this one's Ethernet address.
    pub station: Rc<Station>,
    /// Feature bits that are on.
    pub features: Cell<u32>,
    pub counted: Counted,
    pub recovering: Cell<bool>,
    /// Serialises start and stop.
    pub change: Semaphore,
    pub service: Service,
}

impl Adapter {
    pub fn new(
        device: PciDevice,
        (registers, pages, held): (Mmio, Option<Mmio>, Option<Mmio>),
        limits: Limits,
        params: NicDriverParams,
        kpio: Option<Kpio>,
    ) -> Rc<Self> {
        let off = feature::PROMISCUOUS | feature::ALL_GROUPS;
        let station = limits.tells_switch().then_some(limits.function);
        let state = Shown::new(Cell::new(AdapterState::Down));
        let own = Hand { function: limits.function, dma: device.dma() };
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            station: Rc::new(Station::new(device.kernel(), device.node(), own, Rc::clone(&state))),
            kernel: device.kernel(),
            dma: device.dma(),
            device,
            steering: Steering::new(registers.clone(), &limits, station),
            counted: Counted::new(
                registers.clone(),
                silent_counters(kpio.as_ref().and(params.kpio.as_ref())),
            ),
            registers,
            pages,
            held,
            params,
            limits,
            counters: Rc::default(),
            channels: RefCell::default(),
            event_irq: Cell::new(None),
            core: RefCell::new(None),
            state,
            kpio,
            features: Cell::new(limits.features & !off | feature::ALL_GROUPS & limits.features),
            recovering: Cell::new(false),
            change: Semaphore::new(1),
            service: Service::new(),
        })
    }

    /// Requests one interrupt per channel and one for events. Falls back to one legacy interrupt if there are not
    /// even two messages.
    async fn interrupts(&self, cpu: &Cpu, cores: &[CpuId]) -> Result<Vec<Irq>, Error> {
        let mut places = cores.to_vec();
        places.push(cores[0]);
        let most = places.len() as u16;
        if !self.params.legacy_interrupt {
            match self.device.alloc_irqs(cpu, 2, most, Affinity::Cpus(places)).await {
                Err(Error::NoSpace) => {}
                given => return given,
            }
        }
        Ok(vec![self.device.alloc_intx(cpu, Affinity::Cpu(cores[0])).await?])
    }

    /// Creates the channels with their interrupts, and takes one more interrupt for events.
    pub async fn prepare_channels(self: &Rc<Self>, cpu: &Cpu) -> Result<(), Error> {
        let kernel = &self.kernel;
        let all = kernel.cpus();
        let wanted = self.params.channels.unwrap_or(all).min(all);
        let wanted = wanted.min(self.limits.queues).min(self.limits.vectors - 1).max(1);
        // Cores of the device's node come first.
        let home = self.device.node();
        let mut cores: Vec<CpuId> = (0..all).map(CpuId).collect();
        let is_far = |cpu: CpuId| kernel.node_of(cpu) != home;
        if self.params.over_nodes {
            let place =
                |cpu: CpuId| (0..cpu.0).filter(|&n| kernel.node_of(CpuId(n)) == kernel.node_of(cpu)).count();
            cores.sort_by_key(|&cpu| (place(cpu), is_far(cpu), cpu));
        } else {
            cores.sort_by_key(|&cpu| (is_far(cpu), cpu));
        }
        cores.truncate(usize::from(wanted));
        let irqs = self.interrupts(cpu, &cores).await?;
        let has_own = irqs.len() > 1;
        let number = if has_own { irqs.len() - 1 } else { 1 };
        for (n, (&cpu, &irq)) in (0u16..).zip(cores.iter().zip(&irqs[..number])) {
            let channel = Channel::new(n, cpu, irq, self.me.clone(), kernel, self.params.coalescing());
            let name = format!("nic-{}-{n}", self.device.address());
            if has_own {
                self.device.request_irq(irq, &name, channel.handler(self.params.costs), None)?;
            }
            let moved = Rc::downgrade(&channel);
            let moved =
                Rc::new(move |to| moved.upgrade().into_iter().for_each(|channel| channel.cpu.set(to)));
            self.device.on_irq_moved(irq, moved);
            self.channels.borrow_mut().push(channel);
        }
        // Map requested queues that do not exist onto those that do.
        let wanted = self.params.rss.iter().map(|&queue| queue % number as u16).collect::<Vec<_>>();
        let wanted = if wanted.is_empty() { self.channels_by_hash(&cores[..number]) } else { wanted };
        self.steering.set_table(self.table_entries(), &wanted);
        let vector = irqs.len() - 1;
        let event = irqs[vector];
        let me = Rc::downgrade(self);
        let thread = Rc::new(move |cpu: Cpu| -> Async<'static, ()> {
            let me = me.clone();
            Box::pin(async move {
                if let Some(me) = me.upgrade() {
                    me.events(&cpu).await;
                }
            })
        });
        let name = format!("nic-{}-events", self.device.address());
        self.device.request_irq(event, &name, Rc::new(|_| IrqReturn::WakeThread), Some(thread))?;
        self.event_irq.set(Some((event, vector as u16)));
        Ok(())
    }

    /// Channels for flows without a rule. Normally all of them; if functions share an address, each takes only the
    /// channels of its own node and leaves the rest to the others.
    fn channels_by_hash(&self, cores: &[CpuId]) -> Vec<u16> {
        let all = 0..cores.len() as u16;
        let is_near = |&n: &u16| self.kernel.node_of(cores[usize::from(n)]) == self.device.node();
        let near: Vec<u16> = all.clone().filter(is_near).collect();
        if self.limits.features & feature::STATION != 0 && !near.is_empty() { near } else { all.collect() }
    }

    /// Whether both functions have the same Ethernet address, so that one can read memory for the other.
    pub fn is_same_station(&self, other: &Self) -> bool {
        let both = self.limits.features & other.limits.features;
        both & feature::STATION != 0 && self.limits.mac == other.limits.mac
    }

    pub fn is_up(&self) -> bool {
        self.state.get() == AdapterState::Up
    }

    /// Entries of the RSS indirection table.
    pub fn table_entries(&self) -> usize {
        usize::from(self.limits.rss_entries.max(1))
    }

    pub fn core(&self) -> Option<Rc<dyn NetCore>> {
        self.core.borrow().clone()
    }

    pub fn set_core(&self, core: Option<Rc<dyn NetCore>>) {
        *self.core.borrow_mut() = core;
    }

    pub fn channel(&self, number: u16) -> Option<Rc<Channel>> {
        self.channels.borrow().get(usize::from(number)).cloned()
    }

    /// The channel of this core, or else one of the same node.
    pub fn channel_for(&self, cpu: CpuId) -> u16 {
        let channels = self.channels.borrow();
        if let Some(own) = channels.iter().find(|c| c.cpu.get() == cpu) {
            return own.number;
        }
        let node = self.kernel.node_of(cpu);
        let near: Vec<u16> =
            channels.iter().filter(|c| self.kernel.node_of(c.cpu.get()) == node).map(|c| c.number).collect();
        match near.len() {
            0 => cpu.0 % (channels.len().max(1) as u16),
            n => near[usize::from(cpu.0) % n],
        }
    }

    /// Reads a register to find out whether the function still answers.
    pub async fn answers(&self, cpu: &Cpu) -> bool {
        self.device.is_present() && self.registers.read_u32(cpu, regs::IDENTITY).await == regs::IDENTITY_VALUE
    }

    /// Allocates the rings, passes them to the device and enables receive.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::NoDevice`] or [`Error::Io`] if the device does not respond as it should.
    pub async fn start(&self, cpu: &Cpu) -> Result<(), Error> {
        if self.state.get() == AdapterState::Gone || !self.answers(cpu).await {
            return Err(Error::NoDevice);
        }
        self.device.set_master(cpu, true).await;
        self.registers.write_u32(cpu, regs::CONTROL, control::RESET);
        let channels = self.channels.borrow().clone();
        for channel in &channels {
            if let Err(error) = self.start_channel(cpu, channel) {
                self.halt(cpu).await;
                return Err(error);
            }
            cpu.sync().await;
        }
        // This read flushes the writes before it, so that no core can ring a doorbell before its ring is set.
        let first = channels.first().and_then(|c| c.tx.borrow().clone());
        let state = match first {
            Some(tx) => tx.ring.status(cpu).await,
            None => 0,
        };
        if state == u32::MAX || state & queue::RUNNING == 0 {
            self.halt(cpu).await;
            return Err(if state == u32::MAX { Error::NoDevice } else { Error::Io });
        }
        if let Err(error) = self.fill(&channels).await {
            self.halt(cpu).await;
            return Err(error);
        }
        self.write_settings(cpu);
        if let Some((_, vector)) = self.event_irq.get() {
            self.registers.write_u32(cpu, regs::EVENT_VECTOR, vector.into());
        }
        self.registers.write_u32(cpu, regs::CONTROL, control::ENABLE);
        self.state.set(AdapterState::Up);
        if let Some(without) = self.kpio.as_ref().map(|kpio| channels.len() - kpio.reach())
            && without > 0
        {
            let (name, all) = (self.name(), channels.len());
            self.kernel.log(format!(
                "{name}: {without} of {all} queues send by descriptors alone: no kPIO queue is left"
            ));
        }
        for channel in &channels {
            if let Some(napi) = channel.napi() {
                napi.enable();
            }
            channel.arm(cpu);
        }
        self.look_at_link(cpu).await;
        self.start_service();
        Ok(())
    }

    /// Starts the service task, which watches all queues for lost interrupts.
    fn start_service(&self) {
        let me = self.me.clone();
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let Some(me) = me.upgrade() else { return };
                let look = || me.channels.borrow().iter().for_each(|channel| channel.kick(&cpu));
                me.service.run(&cpu, &me.state, me.params.service, look).await;
            })
        };
        self.kernel.spawn(TaskParams::named(format!("nic/{}", self.name())), Box::new(program));
    }

    fn start_channel(&self, cpu: &Cpu, channel: &Channel) -> Result<(), Error> {
        let (p, most) = (&self.params, self.limits.log2_ring);
        let node = self.kernel.node_of(channel.cpu.get());
        let ring = |cpu: &Cpu, first, log2: u8, stride| {
            let sizes = (log2.min(most), stride);
            let nodes = [node, if p.completions_at_device { self.device.node() } else { node }];
            Ring::new(cpu, &self.dma, &self.registers, (first, channel.number), sizes, nodes)
        };
        let are_wide = self.limits.features & feature::WIDE_COMPLETIONS != 0;
        let plain = if are_wide { regs::WIDE_STRIDE } else { LEN.ilog2() as u8 };
        let has_slots = self.limits.features & feature::INLINE != 0;
        let slots = p.rx_slot.filter(|slot| has_slots && (5..=8).contains(slot)).unwrap_or(plain);
        let tx = ring(cpu, regs::TX_QUEUES, p.log2_tx, plain)?;
        let inline = p
            .inline
            .zip(self.pages.clone())
            .map(|(params, pages)| Inline::new(pages, u64::from(channel.number) * regs::INLINE_PAGE, params));
        let (reach, most) = ((Rc::clone(&self.dma), Rc::clone(&self.station)), self.limits.max_fragments);
        let tx = Rc::new(TxQueue::new(tx, reach, p.costs, p.report_every, most, inline));
        *channel.tx.borrow_mut() = Some(Rc::clone(&tx));
        let rx = ring(cpu, regs::RX_QUEUES, p.log2_rx, slots)?;
        let most_free = usize::from(rx.entries()) * usize::from(p.buffer) / PAGE as usize;
        let (kernel, dma) = (Rc::clone(&self.kernel), Rc::clone(&self.dma));
        let pool = Pool::new(kernel, dma, p.buffer.min(PAGE as u16), most_free, p.costs.pool);
        let fetch = self.fetch_of(channel.number);
        let rx = Rc::new(RxQueue::new(rx, pool, p.costs, p.refill, fetch));
        *channel.rx.borrow_mut() = Some(Rc::clone(&rx));
        self.write_coalescing(cpu, channel);
        if self.limits.features & feature::EVENT_QUEUES != 0 {
            let events = EventQueue::start(cpu, (&self.dma, &self.registers), channel.number, node)?;
            *channel.events.borrow_mut() = Some(events);
        }
        tx.ring.start(cpu, channel.number);
        rx.ring.start(cpu, channel.number);
        if self.limits.features & feature::GLOBAL_RULES != 0 {
            rx.ring.set_number(cpu, self.limits.first_queue() + channel.number);
        }
        if let Some(kpio) = &self.kpio {
            kpio.start(cpu, channel.number, node)?;
        }
        Ok(())
    }

    /// Posts each queue's first buffers on the queue's own core, as later refills do. If another core wrote them, the
    /// descriptors would stay in that core's cache until the device reads them (Linux: mlx5 lets the queue's own poll
    /// do it, which waits for no task; neither does this one).
    async fn fill(&self, channels: &[Rc<Channel>]) -> Result<(), Error> {
        let fill = |channel: &Rc<Channel>| {
            let (counters, own) = (Rc::clone(&self.counters), Rc::clone(channel));
            let name = format!("nic/{}-{}", self.name(), channel.number);
            let params = TaskParams { priority: Priority::RealTime(50), ..TaskParams::named(name) };
            self.kernel.run(params.on(channel.cpu.get()), async move |cpu| {
                let enough = own.fill(&cpu, &counters);
                cpu.sync().await;
                enough
            })
        };
        let filled: Vec<_> = channels.iter().map(fill).collect();
        let mut enough = true;
        for filled in filled {
            enough &= filled.wait().await;
        }
        if enough { Ok(()) } else { Err(Error::NoMemory) }
    }

    /// Where a queue's frames are while they stay in the device.
    fn fetch_of(&self, queue: u16) -> Option<Fetch> {
        let (window, params, limits) = (self.held.clone()?, self.params.held?, self.limits.kpio?);
        let length = 2 * LINE as u64 * (1 << limits.log2_positions);
        let fetch = || Fetch {
            window,
            begin: u64::from(queue) * length,
            places: length / HELD_BYTES,
            loads: params.loads,
        };
        (queue < limits.queues && length >= HELD_BYTES).then(fetch)
    }

    /// Writes the wanted interrupt moderation of a channel to the device.
    pub fn write_coalescing(&self, cpu: &Cpu, channel: &Channel) {
        let at = regs::VECTORS + u64::from(channel.number) * regs::VECTOR_STRIDE;
        let wanted = channel.coalescing.get();
        let delay = u32::try_from(wanted.time.as_ps() / 1000).unwrap_or(u32::MAX);
        self.registers.write_u32(cpu, at + vector::DELAY_NS, delay);
        self.registers.write_u32(cpu, at + vector::PACKETS, wanted.packets);
        self.registers.write_u32(cpu, at + vector::ADAPTIVE, wanted.adaptive.into());
    }

    /// Writes the wanted features and the RSS table to the device.
    pub fn write_settings(&self, cpu: &Cpu) {
        self.registers.write_u32(cpu, regs::MAX_FRAME, self.limits.max_frame.into());
        self.registers.write_u32(cpu, regs::ENABLED, self.features.get());
        if let (Some(held), Some(_)) = (self.params.held, &self.held) {
            self.registers.write_u32(cpu, regs::RX_HELD, held.up_to.into());
        }
        self.steering.restore(cpu);
    }

    /// Stops all queues and takes everything back from the device. Returns how many packets were not sent.
    pub async fn halt(&self, cpu: &Cpu) -> u32 {
        let channels = self.channels.borrow().clone();
        if self.state.get() == AdapterState::Up {
            self.state.set(AdapterState::Down);
        }
        cpu.sleep(GRACE).await;
        for channel in &channels {
            channel.quiet().await;
        }
        self.silence(cpu, &channels).await;
        let mut lost = 0;
        let core = self.core();
        for channel in &channels {
            if let Some(core) = &core {
                lost += channel.give_up_sending(cpu, &**core);
            }
            channel.give_up_receiving(cpu);
            if let Some(events) = channel.events.take() {
                events.free(cpu);
            }
            if let Some(core) = &core {
                // Nothing comes from this queue any more: what waits behind it can go on.
                core.poll_end(cpu, channel.number, true);
            }
        }
        if let Some(kpio) = &self.kpio {
            kpio.free(cpu);
        }
        lost
    }

    /// Makes sure that the device no longer accesses memory.
    async fn silence(&self, cpu: &Cpu, channels: &[Rc<Channel>]) {
        if self.state.get() == AdapterState::Gone || !self.device.is_present() {
            return;
        }
        self.registers.write_u32(cpu, regs::CONTROL, 0);
        for channel in channels {
            if let Some(tx) = &*channel.tx.borrow() {
                tx.ring.stop(cpu);
            }
            if let Some(rx) = &*channel.rx.borrow() {
                rx.ring.stop(cpu);
            }
            if let Some(kpio) = &self.kpio {
                kpio.stop(cpu, channel.number);
            }
            if let Some(events) = &*channel.events.borrow() {
                events.stop(cpu);
            }
        }
        // The read's completion arrives after all DMA that was in flight.
        let tx = channels.first().and_then(|c| c.tx.borrow().clone());
        let running = match tx {
            Some(tx) => tx.ring.status(cpu).await & queue::RUNNING != 0,
            None => false,
        };
        if running {
            self.state.set(AdapterState::Broken);
            self.device.set_master(cpu, false).await;
        }
        // Save the counters, as a reset clears them.
        self.counted.keep(cpu, SENDING).await;
        self.counted.keep(cpu, OTHERS).await;
    }

    pub fn name(&self) -> String {
        self.core().map_or_else(|| self.device.address().to_string(), |core| core.name())
    }

    /// Tells the kernel whether the device has a link. During a reset, it is told at the end.
    pub async fn look_at_link(&self, cpu: &Cpu) {
        let found = self.registers.read_u32(cpu, regs::STATUS).await;
        if let Some(core) = self.core().filter(|_| self.is_up()) {
            core.set_carrier(found != u32::MAX && found & status::LINK_UP != 0);
        }
    }
}

impl Owner for Adapter {
    fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    fn core(&self) -> Option<Rc<dyn NetCore>> {
        self.core()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn poll_cost(&self) -> u64 {
        self.params.costs.poll
    }

    fn poll_beside<'a>(&'a self, cpu: &'a Cpu, channel: u16, core: &'a dyn NetCore) -> Option<Async<'a, ()>> {
        let kpio = self.kpio.as_ref()?;
        Some(Box::pin(kpio.poll(cpu, &self.channels, channel, core, &self.counters)))
    }

    fn has_worked(&self) {
        self.service.notice_activity();
    }

    fn recover(&self, why: &str) {
        self.recover(why);
    }
}
