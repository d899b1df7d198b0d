//! Transmit: queue selection, hand-over to the driver, delayed doorbells, and packets that wait.

use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::net::Packet;

use super::NetDevice;

impl NetDevice {
    /// Sends a packet. With `more`, others follow at once and the doorbell may be delayed.
    ///
    /// Packets use the core's TX queue. If earlier packets of the same [flow](Packet::flow) are still in another
    /// queue, they use that one, so that packets stay in order when the sender moves.
    ///
    /// # Errors
    /// If the packet was dropped, for lack of a link or of room. It has been released.
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

    /// Passes a packet to the driver. If the ring is full, the packet comes back and the queue is stopped.
    pub(super) fn give(&self, cpu: &Cpu, number: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        let queue = &self.queues[usize::from(number)];
        let Some(driver) = self.driver() else { return Err(packet) };
        let bytes = u64::from(packet.length());
        // The driver may report completions before it returns.
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

    /// Rings a delayed doorbell.
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

    /// Passes waiting packets to the driver while it has room.
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

    /// Drops waiting packets.
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
