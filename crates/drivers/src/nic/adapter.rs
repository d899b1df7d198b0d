//! One NIC function: how the driver starts, stops and restarts it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::dma::DmaOps;
use platform::kernel::{Kernel, Priority, TaskParams};
use platform::memory::PAGE;
use platform::mmio::Mmio;
use platform::net::{NetCore, Rings};
use platform::pci::PciDevice;
use platform::sync::Semaphore;
use units::Duration;
use wire::nic::completion::LEN;
use wire::nic::registers::{self as regs, HELD_BYTES, control, event, feature, queue, status, vector};

use super::beside::TxBeside;
use super::channel::{Channel, Owner};
use super::channels::Channels;
use super::counted::{Counted, OTHERS, SENDING};
use super::counters::Counters;
use super::events::EventQueue;
use super::features::Features;
use super::inline::Inline;
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
    me: Weak<Self>,
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
    rings: Cell<Rings>,
    pub counters: Rc<Counters>,
    pub channels: Channels,
    core: RefCell<Option<Rc<dyn NetCore>>>,
    state: Shown,
    pub steering: Steering,
    /// The transmit path beside the rings.
    pub beside: Option<Box<dyn TxBeside>>,
    /// Functions that share this one's Ethernet address.
    pub station: Rc<Station>,
    pub features: Features,
    pub counted: Counted,
    recovering: Cell<bool>,
    /// Serialises start and stop.
    change: Semaphore,
    pub service: Service,
}

impl Adapter {
    pub fn new(
        device: PciDevice,
        (registers, pages, held): (Mmio, Option<Mmio>, Option<Mmio>),
        limits: Limits,
        params: NicDriverParams,
        counters: Rc<Counters>,
        beside: Option<Box<dyn TxBeside>>,
    ) -> Rc<Self> {
        let station = limits.tells_switch().then_some(limits.function);
        let state = Shown::new(Cell::new(AdapterState::Down));
        let own = Hand { function: limits.function, dma: device.dma() };
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            station: Rc::new(Station::new(device.kernel(), device.node(), own, Rc::clone(&state))),
            kernel: device.kernel(),
            dma: device.dma(),
            channels: Channels::new(device.clone()),
            device,
            features: Features::new(registers.clone(), limits),
            steering: Steering::new(registers.clone(), &limits, station),
            counted: Counted::new(registers.clone(), Rc::clone(&counters)),
            registers,
            pages,
            held,
            rings: Cell::new(params.rings(limits.log2_ring)),
            params,
            limits,
            counters,
            core: RefCell::new(None),
            state,
            beside,
            recovering: Cell::new(false),
            change: Semaphore::new(1),
            service: Service::new(),
        })
    }

    /// Creates the channels with their interrupts.
    pub async fn prepare_channels(&self, cpu: &Cpu) -> Result<(), Error> {
        let me: Weak<dyn Owner> = self.me.clone();
        self.channels.prepare(cpu, &self.params, &self.limits, &me).await?;
        // Map requested queues that do not exist onto those that do.
        let number = self.channels.number();
        let wanted: Vec<_> = self.params.rss.iter().map(|&queue| queue % number).collect();
        let by_hash = || self.channels.by_hash(self.limits.features);
        let wanted = if wanted.is_empty() { by_hash() } else { wanted };
        self.steering.set_table(self.table_entries(), &wanted);
        Ok(())
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

    /// Reads a register to find out whether the function still answers.
    pub async fn answers(&self, cpu: &Cpu) -> bool {
        self.device.is_present() && self.registers.read_u32(cpu, regs::IDENTITY).await == regs::IDENTITY_VALUE
    }

    /// Allocates the rings, passes them to the device and enables receive.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::NoDevice`] or [`Error::Io`] if the device does not respond as it should.
    async fn start(&self, cpu: &Cpu) -> Result<(), Error> {
        if self.state.get() == AdapterState::Gone || !self.answers(cpu).await {
            return Err(Error::NoDevice);
        }
        self.device.set_master(cpu, true).await;
        self.registers.write_u32(cpu, regs::CONTROL, control::RESET);
        let channels = self.channels.all().to_vec();
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
        if let Some(vector) = self.channels.event_vector() {
            self.registers.write_u32(cpu, regs::EVENT_VECTOR, vector.into());
        }
        self.registers.write_u32(cpu, regs::CONTROL, control::ENABLE);
        self.state.set(AdapterState::Up);
        if let Some(beside) = &self.beside {
            beside.started(&self.name(), channels.len());
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
                me.service.run(&cpu, &me.state, me.params.service, || me.channels.kick(&cpu)).await;
            })
        };
        self.kernel.spawn(TaskParams::named(format!("nic/{}", self.name())), Box::new(program));
    }

    fn start_channel(&self, cpu: &Cpu, channel: &Channel) -> Result<(), Error> {
        let (p, rings) = (&self.params, self.rings.get());
        let node = self.kernel.node_of(channel.cpu.get());
        let ring = |cpu: &Cpu, first, entries: u32, stride| {
            let sizes = (entries.ilog2() as u8, stride);
            let nodes = [node, if p.completions_at_device { self.device.node() } else { node }];
            Ring::new(cpu, &self.dma, &self.registers, (first, channel.number), sizes, nodes)
        };
        let are_wide = self.limits.features & feature::WIDE_COMPLETIONS != 0;
        let plain = if are_wide { regs::WIDE_STRIDE } else { LEN.ilog2() as u8 };
        let has_slots = self.limits.features & feature::INLINE != 0;
        let slots = p.rx_slot.filter(|slot| has_slots && (5..=8).contains(slot)).unwrap_or(plain);
        let tx = ring(cpu, regs::TX_QUEUES, rings.tx, plain)?;
        let inline = p
            .inline
            .zip(self.pages.clone())
            .map(|(params, pages)| Inline::new(pages, u64::from(channel.number) * regs::INLINE_PAGE, params));
        let (reach, most) = ((Rc::clone(&self.dma), Rc::clone(&self.station)), self.limits.max_fragments);
        let tx = Rc::new(TxQueue::new(tx, reach, p.costs, p.report_every, most, inline));
        *channel.tx.borrow_mut() = Some(Rc::clone(&tx));
        let rx = ring(cpu, regs::RX_QUEUES, rings.rx, slots)?;
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
        if let Some(beside) = &self.beside {
            beside.start(cpu, channel.number, node)?;
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
        let (window, params, windows) = (self.held.clone()?, self.params.held?, self.limits.windows?);
        let length = windows.length();
        let fetch = || Fetch {
            window,
            begin: u64::from(queue) * length,
            places: length / HELD_BYTES,
            loads: params.loads,
        };
        (queue < windows.count && length >= HELD_BYTES).then(fetch)
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

    /// Tells the device which features are on. If it is down, it is told when it starts.
    pub fn write_features(&self, cpu: &Cpu) {
        if self.is_up() {
            self.features.write(cpu);
        }
    }

    /// Writes the wanted features and the RSS table to the device.
    fn write_settings(&self, cpu: &Cpu) {
        self.registers.write_u32(cpu, regs::MAX_FRAME, self.limits.max_frame.into());
        self.features.write(cpu);
        if let (Some(held), Some(_)) = (self.params.held, &self.held) {
            self.registers.write_u32(cpu, regs::RX_HELD, held.up_to.into());
        }
        self.steering.restore(cpu);
    }

    /// Stops all queues and takes everything back from the device.
    async fn halt(&self, cpu: &Cpu) {
        let channels = self.channels.all().to_vec();
        if self.is_up() {
            self.state.set(AdapterState::Down);
        }
        cpu.sleep(GRACE).await;
        for channel in &channels {
            channel.quiet().await;
        }
        self.silence(cpu, &channels).await;
        let core = self.core();
        for channel in &channels {
            if let Some(core) = &core {
                let lost = channel.give_up_sending(cpu, &**core);
                self.counters.tx_lost.add(lost.into());
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
        if let Some(beside) = &self.beside {
            beside.free(cpu);
        }
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
            if let Some(beside) = &self.beside {
                beside.stop(cpu, channel.number);
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
        let [sending, others] =
            self.beside.as_ref().map_or_else(Default::default, |beside| beside.counters());
        self.counted.keep(cpu, &[&SENDING[..], sending].concat()).await;
        self.counted.keep(cpu, &[&OTHERS[..], others].concat()).await;
    }

    /// Starts the function if it is not running.
    pub async fn bring_up(&self, cpu: &Cpu) -> Result<(), Error> {
        self.change.acquire().await;
        let started = if self.is_up() { Ok(()) } else { self.start(cpu).await };
        self.change.release();
        started
    }

    /// Stops the function.
    pub async fn take_down(&self, cpu: &Cpu) {
        self.change.acquire().await;
        self.halt(cpu).await;
        self.change.release();
        self.service.end();
        if let Some(core) = self.core() {
            core.set_carrier(false);
        }
    }

    /// Takes the function out of service for good.
    pub async fn remove(&self, cpu: &Cpu) {
        if !self.answers(cpu).await {
            self.state.set(AdapterState::Gone);
        }
        if let Some(core) = self.core() {
            core.unregister(cpu).await;
        }
        self.change.acquire().await;
        self.halt(cpu).await;
        self.state.set(AdapterState::Gone);
        self.change.release();
        self.service.end();
        self.channels.free(cpu).await;
        self.set_core(None);
    }

    /// The device is gone.
    pub fn vanish(&self) {
        self.state.set(AdapterState::Gone);
        if let Some(core) = self.core() {
            core.set_carrier(false);
        }
    }

    /// Restarts the device in a task of its own.
    pub fn recover(&self, why: &str) {
        if !self.is_up() || self.recovering.replace(true) {
            return;
        }
        self.kernel.log(format!("{}: reset: {why}", self.name()));
        let me = self.me.clone();
        let work = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                if let Some(me) = me.upgrade() {
                    me.change.acquire().await;
                    if me.is_up() {
                        me.counters.resets.add(1);
                        me.restart(&cpu).await;
                    }
                    me.change.release();
                    me.recovering.set(false);
                }
            })
        };
        // Any core will do (Linux: mlx5's work queue is unbound): the one that noticed may be busy for long.
        self.kernel.spawn(TaskParams::named(format!("nic/{}-reset", self.name())), Box::new(work));
    }

    /// Sizes of its rings.
    pub fn rings(&self) -> Rings {
        self.rings.get()
    }

    /// Whether the device supports rings of these sizes.
    pub fn takes_rings(&self, wanted: Rings) -> bool {
        let fits =
            |entries: u32| entries.is_power_of_two() && entries.ilog2() <= self.limits.log2_ring.into();
        fits(wanted.tx) && fits(wanted.rx)
    }

    /// Changes the sizes of its rings. If it is up, it restarts.
    pub async fn set_rings(&self, cpu: &Cpu, wanted: Rings) -> Result<(), Error> {
        if !self.takes_rings(wanted) {
            return Err(Error::Invalid);
        }
        self.change.acquire().await;
        let restarts = self.rings.replace(wanted) != wanted && self.is_up();
        if restarts {
            self.restart(cpu).await;
        }
        self.change.release();
        if restarts && !self.is_up() { Err(Error::Io) } else { Ok(()) }
    }

    /// Takes the carrier down, so that another function with this one's address stands in (Linux: `netif_carrier_off`,
    /// as mlx5 does while it exchanges its channels). Without another, the carrier stays: packets wait for the rings,
    /// where they would be dropped otherwise.
    pub fn give_way(&self) {
        if self.station.has_stand_in()
            && let Some(core) = self.core()
        {
            core.set_carrier(false);
        }
    }

    async fn restart(&self, cpu: &Cpu) {
        self.give_way();
        self.halt(cpu).await;
        if self.state.get() == AdapterState::Broken && self.device.is_present() {
            // Its firmware does not respond, so reset the function over the bus.
            let reset = self.device.reset(cpu).await;
            self.state.set(if reset.is_ok() { AdapterState::Down } else { AdapterState::Broken });
        }
        if self.state.get() == AdapterState::Down
            && let Err(error) = self.start(cpu).await
        {
            self.kernel.log(format!("{}: restart failed: {error}", self.name()));
            self.state.set(if error == Error::NoDevice { AdapterState::Gone } else { AdapterState::Broken });
        }
        let Some(core) = self.core() else { return };
        if self.is_up() {
            (0..self.channels.number()).for_each(|n| core.wake_queue(cpu, n));
        } else {
            core.set_carrier(false);
        }
    }

    pub fn name(&self) -> String {
        self.core().map_or_else(|| self.device.address().to_string(), |core| core.name())
    }

    /// Tells the kernel whether the device has a link. During a reset, it is told at the end.
    async fn look_at_link(&self, cpu: &Cpu) {
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
        let beside = self.beside.as_ref()?;
        Some(beside.poll(cpu, &self.channels, channel, core))
    }

    fn has_worked(&self) {
        self.service.notice_activity();
    }

    fn recover(&self, why: &str) {
        self.recover(why);
    }

    fn events<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let events = self.registers.read_u32(cpu, regs::EVENTS).await;
            if events == u32::MAX {
                return;
            }
            if events & event::LINK != 0 {
                self.look_at_link(cpu).await;
            }
            if events & event::QUEUES != 0 {
                self.channels.kick(cpu);
            }
            if events & event::QUEUE_ERROR != 0 {
                self.recover("a queue stopped");
            }
        })
    }
}
