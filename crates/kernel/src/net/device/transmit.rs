//! The transmit path of a device: queue selection, hand-over to the driver, delayed doorbells, packets that wait, and
//! the watchdog for queues that stay full or at their byte limit.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::TaskParams;
use platform::net::Packet;
use platform::sync::WaitQueue;
use units::{Duration, Time};

use super::below::Below;
use super::queue::TxQueue;

/// Time until the driver is told about a queue without progress (Linux: 5 s, `watchdog_timeo`'s default).
const STUCK_AFTER: Duration = Duration::from_ms(5_000);

pub(super) struct TxQueues {
    below: Rc<Below>,
    queues: Vec<TxQueue>,
    /// The watchdog waits here while no queue is full.
    stuck: WaitQueue,
}

impl TxQueues {
    pub fn new(below: Rc<Below>, queues: u16) -> Self {
        let queues = (0..queues.max(1)).map(|_| TxQueue::default()).collect();
        Self { below, queues, stuck: WaitQueue::new() }
    }

    /// The TX queue of a core (XPS).
    pub fn queue_for(&self, cpu: CpuId) -> u16 {
        let last = self.queues.len() as u16 - 1;
        self.below.driver().map_or(0, |driver| driver.tx_queue_for(cpu).min(last))
    }

    /// How long each queue's ring has been full, up to `now`.
    pub fn full(&self, now: Time) -> Vec<Duration> {
        self.queues.iter().map(|queue| queue.stopped_until(now)).collect()
    }

    /// Sends a packet. With `more`, others follow at once and the doorbell may be delayed.
    ///
    /// Packets use the core's TX queue. If earlier packets of the same [flow](Packet::flow) are still in another
    /// queue, they use that one, so that packets stay in order when the sender moves.
    ///
    /// # Errors
    /// If the packet was dropped, for lack of a link or of room. It has been released.
    pub fn transmit(&self, cpu: &Cpu, packet: Packet, more: bool) -> Result<(), Error> {
        let _part = cpu.book(Part::Net);
        let costs = self.below.base.costs();
        cpu.work(costs.net_transmit);
        if !self.below.can_send() {
            self.below.count(|c| c.tx_no_link += 1);
            packet.release(cpu);
            return Err(if self.below.driver().is_some() { Error::Io } else { Error::NoDevice });
        }
        let number = self.choose_queue(cpu, &packet);
        let queue = &self.queues[usize::from(number)];
        if queue.is_empty() && !queue.busy.get() && queue.is_open(cpu.now()) {
            if let Err(packet) = self.give(cpu, number, packet, more) {
                queue.put_back(packet);
            }
            return Ok(());
        }
        cpu.work(costs.net_queue);
        if queue.is_empty() {
            self.below.count(|c| c.tx_limited += 1);
            self.stuck.wake_all();
        }
        if let Err(packet) = queue.put(packet) {
            self.below.count(|c| c.tx_dropped += 1);
            packet.release(cpu);
            return Err(Error::NoSpace);
        }
        self.ring(cpu, number);
        Ok(())
    }

    fn choose_queue(&self, cpu: &Cpu, packet: &Packet) -> u16 {
        let Some(flow) = &packet.flow else { return self.queue_for(cpu.id()) };
        match flow.queue.get().filter(|_| !packet.may_reorder) {
            Some(queue) if usize::from(queue) < self.queues.len() => queue,
            _ => {
                let queue = self.queue_for(cpu.id());
                flow.queue.set(Some(queue));
                queue
            }
        }
    }

    /// Passes a packet to the driver. If the ring is full, the packet comes back and the queue is stopped.
    fn give(&self, cpu: &Cpu, number: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        let queue = &self.queues[usize::from(number)];
        let Some(driver) = self.below.driver() else { return Err(packet) };
        let bytes = u64::from(packet.length());
        // The driver may report completions before it returns.
        queue.given(bytes);
        let lock = queue.lock.lock(cpu);
        let began = cpu.now();
        let taken = driver.transmit(cpu, number, packet, more);
        let took = cpu.now().since(began);
        self.below.count(|c| c.tx_driver += took);
        drop(lock);
        match taken {
            Ok(()) => {
                queue.unrung.set(more);
                self.below.count(|c| {
                    c.tx_packets += 1;
                    c.tx_bytes += bytes;
                });
                Ok(())
            }
            Err(packet) => {
                queue.done(1, bytes);
                queue.stop(cpu.now());
                self.below.count(|c| c.tx_stopped += 1);
                self.stuck.wake_all();
                self.ring(cpu, number);
                Err(packet)
            }
        }
    }

    /// Rings a delayed doorbell.
    fn ring(&self, cpu: &Cpu, number: u16) {
        if self.queues[usize::from(number)].unrung.replace(false)
            && let Some(driver) = self.below.driver()
        {
            let _lock = self.queues[usize::from(number)].lock.lock(cpu);
            let began = cpu.now();
            driver.flush(cpu, number);
            let took = cpu.now().since(began);
            self.below.count(|c| c.tx_driver += took);
        }
    }

    /// Passes waiting packets to the driver while it has room.
    pub fn run_queue(&self, cpu: &Cpu, number: u16) {
        let queue = &self.queues[usize::from(number)];
        if queue.busy.get() {
            return;
        }
        queue.busy.set(true);
        while queue.is_open(cpu.now())
            && let Some(packet) = queue.take()
        {
            cpu.work(self.below.base.costs().net_queue);
            if let Err(packet) = self.give(cpu, number, packet, !queue.is_empty()) {
                queue.put_back(packet);
            }
        }
        self.ring(cpu, number);
        queue.busy.set(false);
    }

    /// Passes a packet to a queue's ring without waiting. Returns it if there is no room.
    pub fn send_directly(&self, cpu: &Cpu, number: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        match self.queues.get(usize::from(number)) {
            Some(queue) if self.below.can_send() && !queue.is_stopped() => {
                self.give(cpu, number, packet, more)
            }
            _ => Err(packet),
        }
    }

    /// Waits until a queue's ring has room. Returns whether packets can be sent.
    pub async fn room(&self, number: u16) -> bool {
        let Some(queue) = self.queues.get(usize::from(number)) else { return false };
        let ready = || (!self.below.can_send() || !queue.is_stopped()).then_some(());
        queue.room.wait_for(ready).await;
        self.below.can_send()
    }

    /// The driver has sent packets.
    pub fn sent(&self, number: u16, packets: u32, bytes: u64) {
        if let Some(queue) = self.queues.get(usize::from(number)) {
            self.below.count(|c| c.tx_done += u64::from(packets));
            queue.done(packets, bytes);
        }
    }

    /// Passes waiting packets to the driver if its ring is not known to be full.
    pub fn go_on(&self, cpu: &Cpu, number: u16) {
        if self.queues.get(usize::from(number)).is_some_and(|queue| !queue.is_stopped() && !queue.is_empty())
        {
            let _part = cpu.book(Part::Net);
            self.run_queue(cpu, number);
        }
    }

    /// A ring has room again. Returns whether it was known to be full.
    pub fn start(&self, cpu: &Cpu, number: u16) -> bool {
        let stopped = self.queues.get(usize::from(number)).filter(|queue| queue.is_stopped());
        stopped.inspect(|queue| queue.start(cpu.now())).is_some()
    }

    /// Forgets which rings are full.
    pub fn start_all(&self, cpu: &Cpu) {
        self.queues.iter().for_each(|queue| queue.start(cpu.now()));
    }

    /// The link has come up or gone down.
    pub fn carrier_changed(&self) {
        self.queues.iter().for_each(|queue| queue.room.wake_all());
    }

    /// Drops waiting packets.
    pub fn drop_waiting(&self, cpu: &Cpu) {
        for queue in &self.queues {
            while let Some(packet) = queue.take() {
                self.below.count(|c| c.tx_no_link += 1);
                packet.release(cpu);
            }
            queue.reset();
        }
    }

    /// Starts the watchdog task, until the device is closed. It sleeps without a timer while no queue is full.
    pub fn start_watchdog(self: &Rc<Self>) {
        let me = Rc::downgrade(self);
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let Some(me) = me.upgrade() else { return };
                while me.below.up.get() {
                    let oldest = || me.queues.iter().filter_map(TxQueue::stuck_since).min();
                    let since = me
                        .stuck
                        .wait_for(|| Some(oldest()).filter(|o| o.is_some() || !me.below.up.get()))
                        .await;
                    let Some(since) = since else { return };
                    cpu.sleep_until(since + STUCK_AFTER).await;
                    me.tell_stuck(&cpu).await;
                }
            })
        };
        self.below
            .base
            .tasks
            .spawn(TaskParams::named(format!("watchdog/{}", self.below.name)), Box::new(program));
    }

    /// Tells the driver about queues that have been stuck for too long.
    async fn tell_stuck(&self, cpu: &Cpu) {
        for (number, queue) in (0u16..).zip(&self.queues) {
            let is_stuck = queue.stuck_since().is_some_and(|since| cpu.now() >= since + STUCK_AFTER);
            let Some(driver) = self.below.driver().filter(|_| is_stuck && self.below.up.get()) else {
                continue;
            };
            self.below.count(|c| c.tx_timeouts += 1);
            self.below.base.log.warn(format!("{}: TX queue {number} is stuck", self.below.name));
            queue.allow_again(cpu.now());
            driver.timed_out(cpu, number).await;
        }
    }

    /// The device was closed.
    pub fn stop_watchdog(&self) {
        self.stuck.wake_all();
    }
}
