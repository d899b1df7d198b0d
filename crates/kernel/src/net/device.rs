//! A network device: what the stack sees of a driver, and the driver of the stack.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::NapiHandle;
use platform::kernel::TaskParams;
use platform::net::{
    Coalescing, FlowKey, NetCore, NetCounters, NetDriver, NetFeatures, NetLimits, Packet, PacketDevice,
    PacketQueue, RuleId, TxStatistics,
};
use platform::sync::WaitQueue;
use units::Duration;
use wire::ethernet::{HEADER_LEN, MacAddr};

use super::Protocols;
use super::queue::TxQueue;
use crate::kernel::Inner;

/// How long a sending queue may be full before the driver is told (Linux: 5 s, `watchdog_timeo`'s default).
const STUCK_AFTER: Duration = Duration::from_ms(5_000);
/// The payload of an Ethernet frame without jumbo frames (IEEE 802.3).
const USUAL_MTU: u16 = 1500;

/// A network device.
pub struct NetDevice {
    kernel: Weak<Inner>,
    me: Weak<Self>,
    name: String,
    number: u32,
    limits: NetLimits,
    driver: RefCell<Option<Rc<dyn NetDriver>>>,
    features: RefCell<NetFeatures>,
    mtu: Cell<u16>,
    up: Cell<bool>,
    carrier: Cell<bool>,
    queues: Vec<TxQueue>,
    /// Who polls each receiving queue, as far as packets have come.
    polls: RefCell<Vec<Option<NapiHandle>>>,
    listeners: RefCell<Vec<Weak<PacketQueue>>>,
    counters: Cell<NetCounters>,
    /// Where the watchdog sleeps while no queue is stopped.
    stuck: WaitQueue,
    /// The namespace that it has been moved to.
    namespace: RefCell<Option<Weak<dyn Protocols>>>,
}

impl NetDevice {
    pub(super) fn new(kernel: Weak<Inner>, number: u32, driver: Rc<dyn NetDriver>) -> Rc<Self> {
        let limits = driver.limits();
        Rc::new_cyclic(|me| Self {
            kernel,
            me: me.clone(),
            name: format!("{}{number}", limits.kind),
            number,
            features: RefCell::new(limits.features.clone()),
            mtu: Cell::new(limits.max_mtu.min(USUAL_MTU)),
            up: Cell::new(false),
            carrier: Cell::new(false),
            queues: (0..limits.tx_queues.max(1)).map(|_| TxQueue::default()).collect(),
            polls: RefCell::new(vec![None; usize::from(limits.rx_queues)]),
            limits,
            driver: RefCell::new(Some(driver)),
            listeners: RefCell::default(),
            counters: Cell::default(),
            stuck: WaitQueue::new(),
            namespace: RefCell::new(None),
        })
    }

    /// The protocols above it.
    pub(super) fn protocols(&self) -> Option<Rc<dyn Protocols>> {
        let namespace = self.namespace.borrow().as_ref().and_then(Weak::upgrade);
        namespace.or_else(|| self.kernel.upgrade()?.net.protocols())
    }

    /// Puts other protocols above it. Those that it had forget it.
    pub(super) fn move_to(&self, to: &Rc<dyn Protocols>) {
        let Some(me) = self.me.upgrade() else { return };
        let from = self.protocols();
        if from.as_ref().is_some_and(|from| Rc::ptr_eq(from, to)) {
            return;
        }
        *self.namespace.borrow_mut() = Some(Rc::downgrade(to));
        if let Some(from) = from {
            from.device_removed(&me);
        }
        to.device_added(&me);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number, which no other device of the kernel ever had.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// What it is.
    pub const fn limits(&self) -> &NetLimits {
        &self.limits
    }

    /// Its address.
    pub const fn mac(&self) -> MacAddr {
        self.limits.mac
    }

    /// What it does of what it can.
    pub fn features(&self) -> NetFeatures {
        self.features.borrow().clone()
    }

    /// Turns features on or off; gives what is on afterwards.
    pub fn set_features(&self, cpu: &Cpu, wanted: &NetFeatures) -> NetFeatures {
        if let Some(driver) = self.driver() {
            *self.features.borrow_mut() = driver.set_features(cpu, wanted);
        }
        self.features()
    }

    /// Largest packet without its Ethernet header.
    pub fn mtu(&self) -> u16 {
        self.mtu.get()
    }

    /// Sets the largest packet.
    ///
    /// # Errors
    /// If it is less than IPv4 asks for (68, RFC 791) or more than the device takes.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), Error> {
        if !(68..=self.limits.max_mtu).contains(&mtu) {
            return Err(Error::Invalid);
        }
        self.mtu.set(mtu);
        Ok(())
    }

    /// Whether it is open.
    pub fn is_up(&self) -> bool {
        self.up.get()
    }

    /// Whether something is at the other end of its cable.
    pub fn has_carrier(&self) -> bool {
        self.carrier.get()
    }

    fn can_send(&self) -> bool {
        self.up.get() && self.carrier.get()
    }

    /// What has passed it.
    pub fn counters(&self) -> NetCounters {
        self.counters.get()
    }

    /// The driver, unless the device has gone.
    pub fn driver(&self) -> Option<Rc<dyn NetDriver>> {
        self.driver.borrow().clone()
    }

    /// Steers a flow to a receiving queue.
    ///
    /// # Errors
    /// The driver's; [`Error::NoDevice`] if the device has gone.
    pub fn steer(&self, cpu: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        self.driver().ok_or(Error::NoDevice)?.steer(cpu, flow, queue)
    }

    /// Forgets a rule.
    pub fn unsteer(&self, cpu: &Cpu, rule: RuleId) {
        if let Some(driver) = self.driver() {
            driver.unsteer(cpu, rule);
        }
    }

    /// The sending queue at home on a core (XPS).
    pub fn tx_queue_for(&self, cpu: CpuId) -> u16 {
        let last = self.queues.len() as u16 - 1;
        self.driver().map_or(0, |driver| driver.tx_queue_for(cpu).min(last))
    }

    /// The receiving queue that is polled on a core, or near it.
    pub fn rx_queue_for(&self, cpu: CpuId) -> u16 {
        let last = self.limits.rx_queues.saturating_sub(1);
        self.driver().map_or(0, |driver| driver.rx_queue_for(cpu).min(last))
    }

    /// Looks at a receiving queue, on this core, whether an interrupt came or not.
    pub(super) fn poll_queue(&self, cpu: &Cpu, queue: u16) {
        let poll = self.polls.borrow().get(usize::from(queue)).cloned().flatten();
        if let Some(poll) = poll {
            poll.schedule(cpu);
        }
    }

    /// Sends a packet. With `more`, others follow at once and the doorbell can wait.
    ///
    /// The queue is the one at home on this core, but for packets of a [flow](Packet::flow) of which some are still under
    /// way: they go where those went, so that none passes another when the sender moves.
    ///
    /// # Errors
    /// If the packet was dropped: there is no link, or no room. It has been released.
    pub fn transmit(&self, cpu: &Cpu, packet: Packet, more: bool) -> Result<(), Error> {
        let _part = cpu.book(Part::Net);
        let Some(kernel) = self.kernel.upgrade() else { return Err(Error::NoDevice) };
        let costs = kernel.cores.costs;
        cpu.work(costs.net_transmit);
        if !self.can_send() {
            self.count(|c| c.tx_no_link += 1);
            packet.release(cpu);
            return Err(if self.driver.borrow().is_some() { Error::Io } else { Error::NoDevice });
        }
        let number = self.choose_queue(cpu, &packet);
        let queue = &self.queues[usize::from(number)];
        if queue.is_empty() && !queue.busy.get() && queue.is_open() {
            if let Err(packet) = self.give(cpu, number, packet, more) {
                queue.put_back(packet);
            }
            return Ok(());
        }
        cpu.work(costs.net_queue);
        if queue.is_empty() {
            self.count(|c| c.tx_limited += 1);
        }
        if let Err(packet) = queue.put(packet) {
            self.count(|c| c.tx_dropped += 1);
            packet.release(cpu);
            return Err(Error::NoSpace);
        }
        self.ring(cpu, number);
        Ok(())
    }

    fn choose_queue(&self, cpu: &Cpu, packet: &Packet) -> u16 {
        let Some(flow) = &packet.flow else { return self.tx_queue_for(cpu.id()) };
        match flow.queue.get().filter(|_| !packet.may_reorder) {
            Some(queue) if usize::from(queue) < self.queues.len() => queue,
            _ => {
                let queue = self.tx_queue_for(cpu.id());
                flow.queue.set(Some(queue));
                queue
            }
        }
    }

    /// Gives a packet to the driver. It comes back if the driver's ring is full; the queue is stopped then.
    fn give(&self, cpu: &Cpu, number: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        let queue = &self.queues[usize::from(number)];
        let Some(driver) = self.driver() else { return Err(packet) };
        let bytes = u64::from(packet.length());
        // The driver may report what it has done before it returns.
        queue.given(bytes);
        let lock = queue.lock.lock(cpu);
        let began = cpu.now();
        let taken = driver.transmit(cpu, number, packet, more);
        let took = cpu.now().since(began);
        self.count(|c| c.tx_driver += took);
        drop(lock);
        match taken {
            Ok(()) => {
                queue.unrung.set(more);
                self.count(|c| {
                    c.tx_packets += 1;
                    c.tx_bytes += bytes;
                });
                Ok(())
            }
            Err(packet) => {
                queue.done(1, bytes);
                queue.stop(cpu.now());
                self.count(|c| c.tx_stopped += 1);
                self.stuck.wake_all();
                self.ring(cpu, number);
                Err(packet)
            }
        }
    }

    /// Rings the doorbell if that was put off.
    fn ring(&self, cpu: &Cpu, number: u16) {
        if self.queues[usize::from(number)].unrung.replace(false)
            && let Some(driver) = self.driver()
        {
            let _lock = self.queues[usize::from(number)].lock.lock(cpu);
            let began = cpu.now();
            driver.flush(cpu, number);
            let took = cpu.now().since(began);
            self.count(|c| c.tx_driver += took);
        }
    }

    /// Gives the driver what waits, as far as it goes.
    fn run_queue(&self, cpu: &Cpu, number: u16) {
        let queue = &self.queues[usize::from(number)];
        let Some(kernel) = self.kernel.upgrade().filter(|_| !queue.busy.get()) else { return };
        queue.busy.set(true);
        while queue.is_open()
            && let Some(packet) = queue.take()
        {
            cpu.work(kernel.cores.costs.net_queue);
            if let Err(packet) = self.give(cpu, number, packet, !queue.is_empty()) {
                queue.put_back(packet);
            }
        }
        self.ring(cpu, number);
        queue.busy.set(false);
    }

    fn count(&self, change: impl FnOnce(&mut NetCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Drops what waits before the driver.
    fn drop_waiting(&self, cpu: &Cpu) {
        for queue in &self.queues {
            while let Some(packet) = queue.take() {
                self.count(|c| c.tx_no_link += 1);
                packet.release(cpu);
            }
            queue.reset();
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// If the driver cannot; [`Error::NoDevice`] if it is gone.
    pub async fn open(&self, cpu: &Cpu) -> Result<(), Error> {
        let driver = self.driver().ok_or(Error::NoDevice)?;
        if self.up.get() {
            return Ok(());
        }
        driver.open(cpu).await?;
        self.up.set(true);
        self.start_watchdog();
        Ok(())
    }

    /// Stops it.
    pub async fn stop(&self, cpu: &Cpu) {
        if !self.up.replace(false) {
            return;
        }
        self.stuck.wake_all();
        if let Some(driver) = self.driver() {
            driver.stop(cpu).await;
        }
        if let (Some(protocols), Some(me)) = (self.protocols(), self.me.upgrade()) {
            protocols.device_stopped(cpu, &me);
        }
        self.drop_waiting(cpu);
    }

    /// The task that looks after full queues. It sleeps without a timer while none is.
    fn start_watchdog(&self) {
        let (Some(kernel), me) = (self.kernel.upgrade(), self.me.clone()) else { return };
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let Some(me) = me.upgrade() else { return };
                while me.up.get() {
                    let oldest = || me.queues.iter().filter_map(TxQueue::stopped_since).min();
                    let since =
                        me.stuck.wait_for(|| Some(oldest()).filter(|o| o.is_some() || !me.up.get())).await;
                    let Some(since) = since else { return };
                    cpu.sleep_until(since + STUCK_AFTER).await;
                    me.tell_stuck(&cpu).await;
                }
            })
        };
        kernel.spawn_program(TaskParams::named(format!("watchdog/{}", self.name)), Box::new(program));
    }

    /// Tells the driver of queues that have been full for too long.
    async fn tell_stuck(&self, cpu: &Cpu) {
        for (number, queue) in (0u16..).zip(&self.queues) {
            let is_stuck = queue.stopped_since().is_some_and(|since| cpu.now() >= since + STUCK_AFTER);
            let Some(driver) = self.driver().filter(|_| is_stuck && self.up.get()) else { continue };
            self.count(|c| c.tx_timeouts += 1);
            if let Some(kernel) = self.kernel.upgrade() {
                kernel.log(format!("{}: sending queue {number} is stuck", self.name));
            }
            // It gets as long again.
            queue.start();
            queue.stop(cpu.now());
            driver.timed_out(cpu, number).await;
        }
    }

    pub(super) fn forget_driver(&self) {
        self.up.set(false);
        self.polls.borrow_mut().fill(None);
        self.driver.borrow_mut().take();
    }
}

impl NetCore for NetDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet) {
        let (Some(kernel), Some(me)) = (self.kernel.upgrade(), self.me.upgrade()) else { return };
        let _part = cpu.book(Part::Net);
        cpu.work(kernel.cores.costs.net_receive);
        if let Some(place) = self.polls.borrow_mut().get_mut(usize::from(queue))
            && place.is_none()
        {
            *place = Some(Rc::clone(napi));
        }
        self.count(|c| {
            c.rx_packets += 1;
            c.rx_bytes += u64::from(packet.length());
        });
        if let Some(listener) = self.listener_for(cpu, &packet) {
            listener.put(cpu, packet);
            return;
        }
        match self.protocols() {
            Some(protocols) => protocols.receive(cpu, &me, queue, packet),
            None => {
                self.count(|c| c.rx_unwanted += 1);
                packet.release(cpu);
            }
        }
    }

    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool) {
        let Some(me) = self.me.upgrade() else { return };
        if let Some(protocols) = self.protocols() {
            let _part = cpu.book(Part::Net);
            protocols.poll_end(cpu, &me, queue, emptied);
        }
    }

    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64) {
        let Some(state) = self.queues.get(usize::from(queue)) else { return };
        self.count(|c| c.tx_done += u64::from(packets));
        state.done(packets, bytes);
        if !state.is_stopped() && !state.is_empty() {
            let _part = cpu.book(Part::Net);
            self.run_queue(cpu, queue);
        }
    }

    fn wake_queue(&self, cpu: &Cpu, queue: u16) {
        let Some(state) = self.queues.get(usize::from(queue)) else { return };
        if !state.is_stopped() {
            return;
        }
        let _part = cpu.book(Part::Net);
        state.start();
        self.run_queue(cpu, queue);
        if let (Some(protocols), Some(me)) = (self.protocols(), self.me.upgrade()) {
            protocols.queue_woken(cpu, &me, queue);
        }
    }

    fn set_carrier(&self, up: bool) {
        if self.carrier.replace(up) == up {
            return;
        }
        self.queues.iter().for_each(|queue| queue.room.wake_all());
        let Some(kernel) = self.kernel.upgrade() else { return };
        kernel.log(format!("{}: link is {}", self.name, if up { "up" } else { "down" }));
        if let (Some(protocols), Some(me)) = (self.protocols(), self.me.upgrade()) {
            protocols.carrier_changed(&me, up);
        }
    }

    fn unregister<'a>(self: Rc<Self>, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.stop(cpu).await;
            self.forget_driver();
            self.queues.iter().for_each(TxQueue::start);
            if let Some(kernel) = self.kernel.upgrade() {
                kernel.net.remove(&self);
            }
        })
    }
}

impl NetDevice {
    fn listener_for(&self, cpu: &Cpu, packet: &Packet) -> Option<Rc<PacketQueue>> {
        if self.listeners.borrow().is_empty() {
            return None;
        }
        self.listeners.borrow_mut().retain(|listener| listener.strong_count() > 0);
        let mut header = [0; HEADER_LEN];
        packet.load(cpu, &mut header);
        let ether_type = u16::from_be_bytes([header[12], header[13]]);
        let listeners = self.listeners.borrow();
        listeners.iter().filter_map(Weak::upgrade).find(|listener| listener.wants(ether_type))
    }
}

impl PacketDevice for NetDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn limits(&self) -> NetLimits {
        self.limits.clone()
    }

    fn has_carrier(&self) -> bool {
        self.carrier.get()
    }

    fn counters(&self) -> NetCounters {
        self.counters.get()
    }

    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics> {
        Box::pin(async move {
            match self.driver() {
                Some(driver) => driver.statistics(cpu).await,
                None => TxStatistics::default(),
            }
        })
    }

    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(self.open(cpu))
    }

    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(self.stop(cpu))
    }

    fn tx_queue_for(&self, cpu: &Cpu) -> u16 {
        self.tx_queue_for(cpu.id())
    }

    fn send(&self, cpu: &Cpu, packet: Packet, more: bool) -> Result<(), Error> {
        self.transmit(cpu, packet, more)
    }

    fn send_directly(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        match self.queues.get(usize::from(queue)) {
            Some(state) if self.can_send() && !state.is_stopped() => self.give(cpu, queue, packet, more),
            _ => Err(packet),
        }
    }

    fn room(&self, queue: u16) -> Async<'_, bool> {
        Box::pin(async move {
            let Some(state) = self.queues.get(usize::from(queue)) else { return false };
            let ready = || (!self.can_send() || !state.is_stopped()).then_some(());
            state.room.wait_for(ready).await;
            self.can_send()
        })
    }

    fn listen(&self, ether_type: Option<u16>, depth: usize) -> Rc<PacketQueue> {
        let queue = PacketQueue::new(ether_type, depth);
        self.listeners.borrow_mut().push(Rc::downgrade(&queue));
        queue
    }

    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error> {
        self.driver().ok_or(Error::NoDevice)?.set_indirection(cpu, table)
    }

    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error> {
        self.driver().ok_or(Error::NoDevice)?.set_coalescing(cpu, queue, wanted)
    }

    fn indirection(&self) -> Vec<u16> {
        self.driver().map(|driver| driver.indirection()).unwrap_or_default()
    }

    fn coalescing(&self, queue: u16) -> Option<Coalescing> {
        self.driver()?.coalescing(queue)
    }

    fn set_promiscuous(&self, cpu: &Cpu, on: bool) {
        if let Some(driver) = self.driver() {
            driver.set_promiscuous(cpu, on);
        }
    }
}
