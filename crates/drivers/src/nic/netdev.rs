//! The function as a network device of the kernel.

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::irq::{Irq, NapiHandle};
use platform::net::{
    Coalescing, DeviceStatistics, FlowKey, MacAddr, NetDriver, NetFeatures, NetLimits, Packet, RuleId,
    TxStatistics,
};
use units::BitRate;
use wire::ethernet::HEADER_LEN;
use wire::nic::registers::{self as regs, feature};
use wire::pcie::FunctionAddress;

use super::adapter::Adapter;
use super::counted::{OTHERS, SENDING};
use super::kpio::ByLines;
use super::state::AdapterState;
use super::tx::Put;

/// Selects the kernel's flag for a feature.
type Field = fn(&mut NetFeatures) -> &mut bool;

const PAIRS: [(u32, Field); 5] = [
    (feature::TX_CHECKSUM, |f| &mut f.tx_checksum),
    (feature::RX_CHECKSUM, |f| &mut f.rx_checksum),
    (feature::TSO, |f| &mut f.tso),
    (feature::RSS, |f| &mut f.rss),
    (feature::FLOW_RULES, |f| &mut f.flow_steering),
];

impl Adapter {
    fn features_of(&self, bits: u32) -> NetFeatures {
        let mut features = NetFeatures {
            tso_max: self.limits.tso_max,
            max_fragments: self.limits.max_fragments,
            ..NetFeatures::default()
        };
        for (bit, field) in PAIRS {
            *field(&mut features) = bits & bit != 0;
        }
        features
    }

    fn set_bits(&self, cpu: &Cpu, bits: u32) {
        self.features.set(bits & self.limits.features);
        if self.is_up() {
            self.registers.write_u32(cpu, regs::ENABLED, self.features.get());
        }
    }
}

impl NetDriver for Adapter {
    fn limits(&self) -> NetLimits {
        let channels = self.channels.borrow().len() as u16;
        NetLimits {
            name: "eth%d".into(),
            mac: self.limits.mac,
            tx_queues: channels,
            rx_queues: channels,
            max_mtu: self.limits.max_frame - HEADER_LEN as u16,
            speed: BitRate::from_bits_per_s(u64::from(self.limits.mbit) * 1_000_000),
            features: self.features_of(self.limits.features),
            shares_packets: true,
        }
    }

    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.change.acquire().await;
            let started = match self.state.get() {
                AdapterState::Up => Ok(()),
                AdapterState::Gone => Err(Error::NoDevice),
                AdapterState::Down | AdapterState::Broken => self.start(cpu).await,
            };
            self.change.release();
            started
        })
    }

    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.change.acquire().await;
            let lost = self.halt(cpu).await;
            self.counters.tx_lost.add(lost.into());
            self.change.release();
            self.service.end();
            if let Some(core) = self.core() {
                core.set_carrier(false);
            }
        })
    }

    fn transmit(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        let _part = cpu.book(Part::Driver);
        let Some(channel) = self.channel(queue) else { return Err(packet) };
        let tx = channel.tx.borrow().clone();
        // During a reset, report the queue as full.
        let Some(tx) = tx.filter(|_| self.is_up()) else { return Err(packet) };
        self.service.notice_activity();
        let counters = &self.counters;
        let by_lines = match &self.kpio {
            Some(kpio) => kpio.send(cpu, &self.channels.borrow(), queue, packet, counters),
            None => ByLines::Not(packet),
        };
        let gone = match by_lines {
            ByLines::Sent(bytes) => {
                counters.tx_lines.add(1);
                if !more {
                    // Earlier packets may be in the ring unannounced, as they were sent with `more`.
                    tx.flush(cpu);
                }
                bytes
            }
            ByLines::NotYet(packet) => {
                counters.tx_held.add(1);
                tx.flush(cpu);
                return Err(packet);
            }
            ByLines::Not(packet) => match tx.send(cpu, packet, more, counters) {
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
        let tx = self.channel(queue).and_then(|channel| channel.tx.borrow().clone());
        if let Some(tx) = tx {
            let _part = cpu.book(Part::Driver);
            tx.flush(cpu);
        }
    }

    fn timed_out<'a>(&'a self, cpu: &'a Cpu, queue: u16) -> Async<'a, ()> {
        Box::pin(async move {
            let Some(tx) = self.channel(queue).and_then(|channel| channel.tx.borrow().clone()) else {
                return;
            };
            // Perhaps only the interrupt, or the request for it, was lost.
            let lines_left = match &self.kpio {
                Some(kpio) => kpio.ask_again(cpu, queue).await,
                None => false,
            };
            if tx.has_news(cpu) || lines_left {
                self.counters.lost_interrupts.add(1);
                if let Some(channel) = self.channel(queue) {
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
            let [frames, failed, no_carrier, dropped, missing] =
                self.counted.sums(cpu, self.is_up(), SENDING).await;
            let driver = &self.counters;
            TxStatistics {
                frames,
                failed,
                no_carrier,
                lost: driver.tx_lost.get(),
                refused: driver.tx_refused.get() + driver.tx_map_errors.get(),
                resets: driver.resets.get(),
                // Most dropped packets also leave a gap in the sequence numbers.
                dropped: dropped.max(missing),
                own: vec![
                    ("tx_kpio", driver.tx_lines.get()),
                    ("tx_kpio_no_queue", driver.tx_no_queue.get()),
                    ("tx_kpio_too_long", driver.tx_too_long.get()),
                    ("tx_kpio_dropped", dropped),
                    ("tx_kpio_missing", missing),
                ],
            }
        })
    }

    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let [rx_no_buffer, rx_overflow, rx_damaged, rx_length_errors, rx_filtered, rx_no_queue, waits] =
                self.counted.sums(cpu, self.is_up(), OTHERS).await;
            DeviceStatistics {
                rx_no_buffer,
                rx_overflow,
                rx_damaged,
                rx_length_errors,
                rx_filtered,
                rx_no_queue,
                own: vec![("tx_kpio_waits", waits)],
            }
        })
    }

    fn tx_queue_for(&self, cpu: CpuId) -> u16 {
        self.channel_for(cpu)
    }

    fn set_features(&self, cpu: &Cpu, wanted: &NetFeatures) -> NetFeatures {
        let mut wanted = wanted.clone();
        let mut bits = self.features.get();
        for (bit, field) in PAIRS {
            bits = if *field(&mut wanted) { bits | bit } else { bits & !bit };
        }
        self.set_bits(cpu, bits);
        self.features_of(self.features.get())
    }

    fn node_of(&self, queue: u16) -> Option<Node> {
        self.channel(queue).map(|_| self.device.node())
    }

    fn rx_outstanding(&self, queue: u16) -> Option<u32> {
        let channels = self.channels.borrow();
        let rx = channels.get(usize::from(queue))?.rx.borrow();
        Some(rx.as_ref()?.given().into())
    }

    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error> {
        let channels = self.channels.borrow().len() as u16;
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
        let bits = self.features.get() & !feature::PROMISCUOUS;
        self.set_bits(cpu, bits | if on { feature::PROMISCUOUS } else { 0 });
    }

    fn steer(&self, cpu: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        let _part = cpu.book(Part::Driver);
        if self.features.get() & feature::FLOW_RULES == 0 {
            return Err(Error::NotSupported);
        }
        if !self.is_up() {
            return Err(Error::Busy);
        }
        if usize::from(queue) >= self.channels.borrow().len() {
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
        if queue.is_some_and(|queue| self.channel(queue).is_none()) {
            return Err(Error::Invalid);
        }
        self.steering.set_address(cpu, mac, queue)
    }

    fn poll_of(&self, queue: u16) -> Option<NapiHandle> {
        self.channel(queue)?.napi()
    }

    fn interrupt_of(&self, queue: u16) -> Option<Irq> {
        Some(self.channel(queue)?.irq)
    }

    fn indirection(&self) -> Vec<u16> {
        self.steering.table()
    }

    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error> {
        let channel = self.channel(queue).ok_or(Error::Invalid)?;
        channel.coalescing.set(wanted);
        if self.is_up() {
            self.write_coalescing(cpu, &channel);
        }
        Ok(())
    }

    fn coalescing(&self, queue: u16) -> Option<Coalescing> {
        Some(self.channel(queue)?.coalescing.get())
    }

    fn function(&self) -> Option<FunctionAddress> {
        Some(self.device.address())
    }
}
