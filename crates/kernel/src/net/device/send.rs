//! Sending: the choice of a queue, the way to the driver, doorbells put off, and what waits.

use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::net::Packet;

use super::NetDevice;

impl NetDevice {
    /// Sends a packet. With `more`, others follow at once and the doorbell can wait.
    ///
    /// The queue is the one at home on this core, but for packets of a [flow](Packet::flow) of which some are still under
    /// way: they go where those went, so that none passes another when the sender moves.
    ///
    /// # Errors
    /// If the packet was dropped: there is no link, or no room. It has been released.
    pub fn transmit(&self, cpu: &Cpu, packet: Packet, more: bool) -> Result<(), Error> {
        let _part = cpu.book(Part::Net);
        let costs = self.base.costs();
        cpu.work(costs.net_transmit);
        if !self.can_send() {
            self.count(|c| c.tx_no_link += 1);
            packet.release(cpu);
            return Err(if self.driver.borrow().is_some() { Error::Io } else { Error::NoDevice });
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
            self.count(|c| c.tx_limited += 1);
            self.stuck.wake_all();
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
    pub(super) fn give(&self, cpu: &Cpu, number: u16, packet: Packet, more: bool) -> Result<(), Packet> {
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
    pub(super) fn run_queue(&self, cpu: &Cpu, number: u16) {
        let queue = &self.queues[usize::from(number)];
        if queue.busy.get() {
            return;
        }
        queue.busy.set(true);
        while queue.is_open(cpu.now())
            && let Some(packet) = queue.take()
        {
            cpu.work(self.base.costs().net_queue);
            if let Err(packet) = self.give(cpu, number, packet, !queue.is_empty()) {
                queue.put_back(packet);
            }
        }
        self.ring(cpu, number);
        queue.busy.set(false);
    }

    /// Drops what waits before the driver.
    pub(super) fn drop_waiting(&self, cpu: &Cpu) {
        for queue in &self.queues {
            while let Some(packet) = queue.take() {
                self.count(|c| c.tx_no_link += 1);
                packet.release(cpu);
            }
            queue.reset();
        }
    }
}
