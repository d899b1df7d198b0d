//! The device's interface for programs that send and receive packets themselves.

use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::net::{
    Coalescing, DeviceStatistics, NetCounters, NetDriver, NetLimits, NetUpper, Offloads, Packet,
    PacketDevice, PacketQueue, TxStatistics,
};

use super::NetDevice;

impl PacketDevice for NetDevice {
    fn name(&self) -> String {
        self.below.name.clone()
    }

    fn limits(&self) -> NetLimits {
        self.limits.clone()
    }

    fn has_carrier(&self) -> bool {
        self.below.carrier.get()
    }

    fn counters(&self) -> NetCounters {
        self.below.counters()
    }

    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics> {
        Box::pin(async move {
            match self.driver() {
                Some(driver) => driver.statistics(cpu).await,
                None => self.below.last.borrow().0.clone(),
            }
        })
    }

    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics> {
        Box::pin(async move {
            match self.driver() {
                Some(driver) => driver.device_statistics(cpu).await,
                None => self.below.last.borrow().1.clone(),
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
        self.tx.send_directly(cpu, queue, packet, more)
    }

    fn room(&self, queue: u16) -> Async<'_, bool> {
        Box::pin(self.tx.room(queue))
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

    fn mtu(&self) -> u16 {
        self.mtu()
    }

    fn offloads(&self) -> Offloads {
        Offloads { device: self.features(), gro: self.coalesces_segments() }
    }

    fn set_offloads(&self, cpu: &Cpu, wanted: &Offloads) -> Offloads {
        self.set_features(cpu, &wanted.device);
        self.gro.set(wanted.gro);
        self.offloads()
    }

    fn set_promiscuous(&self, cpu: &Cpu, on: bool) {
        if let Some(driver) = self.driver() {
            driver.set_promiscuous(cpu, on);
        }
    }

    fn driver(&self) -> Option<Rc<dyn NetDriver>> {
        self.driver()
    }

    fn set_upper(&self, upper: Weak<dyn NetUpper>) -> Result<(), Error> {
        let mut own = self.upper.borrow_mut();
        if own.as_ref().is_some_and(|own| own.strong_count() > 0) {
            return Err(Error::Busy);
        }
        *own = Some(upper);
        Ok(())
    }
}
