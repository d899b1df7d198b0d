//! The function as a network device of the kernel.

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::irq::{Irq, NapiHandle};
use platform::net::{
    Coalescing, DeviceStatistics, FlowKey, MacAddr, NetDriver, NetFeatures, NetLimits, Packet, Rings, RuleId,
    TxStatistics,
};
use units::BitRate;
use wire::ethernet::HEADER_LEN;
use wire::nic::registers::feature;
use wire::pcie::FunctionAddress;

use super::adapter::Adapter;
use super::beside::Offered;
use super::counted::{OTHERS, SENDING};
use super::tx::Put;

impl NetDriver for Adapter {
    fn limits(&self) -> NetLimits {
        let channels = self.channels.number();
        NetLimits {
            name: "eth%d".into(),
            mac: self.limits.mac,
            tx_queues: channels,
            rx_queues: channels,
            max_mtu: self.limits.max_frame - HEADER_LEN as u16,
            speed: BitRate::from_bits_per_s(u64::from(self.limits.mbit) * 1_000_000),
            features: self.features.all(),
            shares_packets: true,
        }
    }

    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.bring_up(cpu).await
        })
    }

    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.take_down(cpu).await;
        })
    }

    fn transmit(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        let _part = cpu.book(Part::Driver);
        let Some(channel) = self.channels.get(queue) else { return Err(packet) };
        let tx = channel.tx.borrow().clone();
        // During a reset, report the queue as full.
        let Some(tx) = tx.filter(|_| self.is_up()) else { return Err(packet) };
        self.service.notice_activity();
        let offered = match &self.beside {
            Some(beside) => beside.offer(cpu, &self.channels.all(), queue, packet),
            None => Offered::Declined(packet),
        };
        let gone = match offered {
            Offered::Sent(bytes) => {
                if !more {
                    // Earlier packets may be in the ring unannounced, as they were sent with `more`.
                    tx.flush(cpu);
                }
                bytes
            }
            Offered::NotYet(packet) => {
                tx.flush(cpu);
                return Err(packet);
            }
            Offered::Declined(packet) => match tx.send(cpu, packet, more, &self.counters) {
                Put::InRing => return Ok(()),
                Put::Refused(bytes) => bytes,
                Put::Full(packet) => return Err(packet),
            },
        };
        if let Some(core) = self.core() {
            core.sent(cpu, queue, 1, gone);
        }
        Ok(())
    }

    fn flush(&self, cpu: &Cpu, queue: u16) {
        let tx = self.channels.get(queue).and_then(|channel| channel.tx.borrow().clone());
        if let Some(tx) = tx {
            let _part = cpu.book(Part::Driver);
            tx.flush(cpu);
        }
    }

    fn timed_out<'a>(&'a self, cpu: &'a Cpu, queue: u16) -> Async<'a, ()> {
        Box::pin(async move {
            let Some(tx) = self.channels.get(queue).and_then(|channel| channel.tx.borrow().clone()) else {
                return;
            };
            // Perhaps only the interrupt, or the request for it, was lost.
            let can_go_on = match &self.beside {
                Some(beside) => beside.ask_again(cpu, queue).await,
                None => false,
            };
            if tx.has_news(cpu) || can_go_on {
                self.counters.lost_interrupts.add(1);
                if let Some(channel) = self.channels.get(queue) {
                    channel.kick(cpu);
                }
                return;
            }
            self.recover("the device has stopped sending");
        })
    }

    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let (is_up, driver) = (self.is_up(), &self.counters);
            let [frames, failed, no_carrier] = self.counted.sums(cpu, is_up, SENDING).await;
            let (dropped, own) = match &self.beside {
                Some(beside) => beside.tx_statistics(cpu, &self.counted, is_up).await,
                None => Default::default(),
            };
            TxStatistics {
                frames,
                failed,
                no_carrier,
                lost: driver.tx_lost.get(),
                refused: driver.tx_refused.get() + driver.tx_map_errors.get(),
                resets: driver.resets.get(),
                dropped,
                own,
            }
        })
    }

    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let is_up = self.is_up();
            let [rx_no_buffer, rx_overflow, rx_damaged, rx_length_errors, rx_filtered, rx_no_queue] =
                self.counted.sums(cpu, is_up, OTHERS).await;
            let own = match &self.beside {
                Some(beside) => beside.statistics(cpu, &self.counted, is_up).await,
                None => Default::default(),
            };
            DeviceStatistics {
                rx_no_buffer,
                rx_overflow,
                rx_damaged,
                rx_length_errors,
                rx_filtered,
                rx_no_queue,
                own,
            }
        })
    }

    fn tx_queue_for(&self, cpu: CpuId) -> u16 {
        self.channels.of(cpu)
    }

    fn set_features(&self, cpu: &Cpu, wanted: &NetFeatures) -> NetFeatures {
        let on = self.features.set(wanted);
        self.write_features(cpu);
        on
    }

    fn node_of(&self, queue: u16) -> Option<Node> {
        self.channels.get(queue).map(|_| self.device.node())
    }

    fn rx_outstanding(&self, queue: u16) -> Option<u32> {
        Some(self.channels.get(queue)?.rx.borrow().as_ref()?.given().into())
    }

    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error> {
        let channels = self.channels.number();
        if table.is_empty() || table.iter().any(|&queue| queue >= channels) {
            return Err(Error::Invalid);
        }
        self.steering.set_table(self.table_entries(), table);
        if self.is_up() {
            self.steering.write_table(cpu);
        }
        Ok(())
    }

    fn set_promiscuous(&self, cpu: &Cpu, on: bool) {
        self.features.set_bit(feature::PROMISCUOUS, on);
        self.write_features(cpu);
    }

    fn steer(&self, cpu: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        let _part = cpu.book(Part::Driver);
        if !self.features.has(feature::FLOW_RULES) {
            return Err(Error::NotSupported);
        }
        if !self.is_up() {
            return Err(Error::Busy);
        }
        if queue >= self.channels.number() {
            return Err(Error::Invalid);
        }
        self.steering.steer(cpu, flow, queue)
    }

    fn unsteer(&self, cpu: &Cpu, rule: RuleId) {
        let _part = cpu.book(Part::Driver);
        self.steering.unsteer(cpu, self.is_up(), rule);
    }

    fn set_address(&self, cpu: &Cpu, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        let _part = cpu.book(Part::Driver);
        if !self.is_up() {
            return Err(Error::Busy);
        }
        if queue.is_some_and(|queue| self.channels.get(queue).is_none()) {
            return Err(Error::Invalid);
        }
        self.steering.set_address(cpu, mac, queue)
    }

    fn poll_of(&self, queue: u16) -> Option<NapiHandle> {
        self.channels.get(queue)?.napi()
    }

    fn interrupt_of(&self, queue: u16) -> Option<Irq> {
        Some(self.channels.get(queue)?.irq)
    }

    fn indirection(&self) -> Vec<u16> {
        self.steering.table()
    }

    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error> {
        let channel = self.channels.get(queue).ok_or(Error::Invalid)?;
        channel.coalescing.set(wanted);
        if self.is_up() {
            self.write_coalescing(cpu, &channel);
        }
        Ok(())
    }

    fn coalescing(&self, queue: u16) -> Option<Coalescing> {
        Some(self.channels.get(queue)?.coalescing.get())
    }

    fn set_rings<'a>(&'a self, cpu: &'a Cpu, wanted: Rings) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.set_rings(cpu, wanted).await
        })
    }

    fn rings(&self) -> Option<Rings> {
        Some(self.rings())
    }

    fn function(&self) -> Option<FunctionAddress> {
        Some(self.device.address())
    }
}
