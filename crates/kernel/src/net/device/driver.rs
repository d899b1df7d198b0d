//! The device's interface for its driver.

use std::rc::Rc;

use platform::cpu::{Async, Cpu, Part};
use platform::irq::NapiHandle;
use platform::net::{NetCore, Packet};

use super::NetDevice;

impl NetCore for NetDevice {
    fn name(&self) -> String {
        self.below.name.clone()
    }

    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet) {
        let Some(me) = self.me.upgrade() else { return };
        let _part = cpu.book(Part::Net);
        if let Some(upper) = self.upper() {
            self.below.count(|c| {
                c.rx_packets += 1;
                c.rx_bytes += u64::from(packet.length());
            });
            return upper.receive(cpu, napi, queue, packet);
        }
        cpu.work(self.below.base.costs().net_receive);
        self.below.count(|c| {
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
                self.below.count(|c| c.rx_unwanted += 1);
                packet.release(cpu);
            }
        }
    }

    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool) {
        let Some(me) = self.me.upgrade() else { return };
        if let Some(upper) = self.upper() {
            upper.poll_end(cpu, queue, emptied);
        } else if let Some(protocols) = self.protocols() {
            let _part = cpu.book(Part::Net);
            protocols.poll_end(cpu, &me, queue, emptied);
        }
    }

    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64) {
        self.tx.sent(queue, packets, bytes);
        match self.upper() {
            Some(upper) => upper.sent(cpu, queue, packets, bytes),
            None => self.tx.go_on(cpu, queue),
        }
    }

    fn wake_queue(&self, cpu: &Cpu, queue: u16) {
        if !self.tx.start(cpu, queue) {
            return;
        }
        let _part = cpu.book(Part::Net);
        if let Some(upper) = self.upper() {
            return upper.queue_woken(cpu, queue);
        }
        self.tx.run_queue(cpu, queue);
        if let (Some(protocols), Some(me)) = (self.protocols(), self.me.upgrade()) {
            protocols.queue_woken(cpu, &me, queue);
        }
    }

    fn set_carrier(&self, up: bool) {
        if self.below.carrier.replace(up) == up {
            return;
        }
        self.tx.carrier_changed();
        self.below.base.log.write(format!("{}: link is {}", self.below.name, if up { "up" } else { "down" }));
        if let Some(upper) = self.upper() {
            return upper.changed();
        }
        if let (Some(protocols), Some(me)) = (self.protocols(), self.me.upgrade()) {
            protocols.carrier_changed(&me, up);
        }
    }

    fn unregister<'a>(self: Rc<Self>, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.stop(cpu).await;
            if let Some(driver) = self.driver() {
                let last = (driver.statistics(cpu).await, driver.device_statistics(cpu).await);
                self.below.last.replace(last);
            }
            self.forget_driver();
            self.tx.start_all(cpu);
            if let Some(net) = self.net.upgrade() {
                net.remove(&self, cpu.now());
            }
            if let Some(upper) = self.upper() {
                upper.changed();
            }
        })
    }
}
