//! The device's interface for its driver.

use std::rc::Rc;

use platform::cpu::{Async, Cpu, Part};
use platform::irq::NapiHandle;
use platform::net::{NetCore, Packet, PacketQueue};
use wire::ethernet::HEADER_LEN;

use super::NetDevice;

impl NetCore for NetDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet) {
        let Some(me) = self.me.upgrade() else { return };
        let _part = cpu.book(Part::Net);
        if let Some(upper) = self.upper() {
            self.count(|c| {
                c.rx_packets += 1;
                c.rx_bytes += u64::from(packet.length());
            });
            return upper.receive(cpu, napi, queue, packet);
        }
        cpu.work(self.base.costs().net_receive);
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
        if let Some(upper) = self.upper() {
            upper.poll_end(cpu, queue, emptied);
        } else if let Some(protocols) = self.protocols() {
            let _part = cpu.book(Part::Net);
            protocols.poll_end(cpu, &me, queue, emptied);
        }
    }

    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64) {
        let Some(state) = self.queues.get(usize::from(queue)) else { return };
        self.count(|c| c.tx_done += u64::from(packets));
        state.done(packets, bytes);
        if let Some(upper) = self.upper() {
            return upper.sent(cpu, queue, packets, bytes);
        }
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
        state.start(cpu.now());
        if let Some(upper) = self.upper() {
            return upper.queue_woken(cpu, queue);
        }
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
        self.base.log.write(format!("{}: link is {}", self.name, if up { "up" } else { "down" }));
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
            self.forget_driver();
            self.queues.iter().for_each(|queue| queue.start(cpu.now()));
            if let Some(net) = self.net.upgrade() {
                net.remove(&self);
            }
            if let Some(upper) = self.upper() {
                upper.changed();
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
        listeners.iter().filter_map(std::rc::Weak::upgrade).find(|listener| listener.wants(ether_type))
    }
}
