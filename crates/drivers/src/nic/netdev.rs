//! The function as a network device.

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::{Irq, NapiHandle};
use platform::net::{
    Coalescing, DeviceStatistics, FlowKey, MacAddr, NetDriver, NetFeatures, NetLimits, Packet, RuleId,
    TxStatistics,
};
use units::{BitRate, Duration};
use wire::ethernet::HEADER_LEN;
use wire::nic::registers::{self as regs, feature};
use wire::pcie::FunctionAddress;

use super::adapter::{Adapter, State};
use super::counted::{OTHERS, SENDING};
use super::steering::write_table;

/// Where the kernel keeps a feature.
type Field = fn(&mut NetFeatures) -> &mut bool;

/// After that, a device that has been asked again whether lines have left has given up those that were lost, and told of it
/// (assumed: many times what devices wait for a line).
const TO_GIVE_UP: Duration = Duration::from_ms(1);

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
        if self.state.get() == State::Up {
            self.registers.write_u32(cpu, regs::ENABLED, self.features.get());
        }
    }
}

impl NetDriver for Adapter {
    fn limits(&self) -> NetLimits {
        let channels = self.channels.borrow().len() as u16;
        NetLimits {
            kind: "eth",
            mac: self.limits.mac,
            tx_queues: channels,
            rx_queues: channels,
            max_mtu: self.limits.max_frame - HEADER_LEN as u16,
            speed: BitRate::from_bits_per_s(u64::from(self.limits.mbit) * 1_000_000),
            features: self.features_of(self.limits.features),
            node: Some(self.device.node()),
        }
    }

    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.change.acquire().await;
            let started = match self.state.get() {
                State::Up => Ok(()),
                State::Gone => Err(Error::NoDevice),
                State::Down | State::Broken => self.start(cpu).await,
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
            self.end_service();
            if let Some(core) = self.core() {
                core.set_carrier(false);
            }
        })
    }

    fn transmit(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        let _part = cpu.book(Part::Driver);
        let Some(channel) = self.channel(queue) else { return Err(packet) };
        let tx = channel.tx.borrow().clone();
        // While it is being reset, the queue is full.
        let Some(tx) = tx.filter(|_| self.state.get() == State::Up) else { return Err(packet) };
        self.notice_activity();
        let packet = match self.send_by_lines(cpu, &channel, packet) {
            Ok(Ok(bytes)) => {
                self.counters.tx_lines.add(1);
                if !more {
                    // Others before it may have been put into the ring with more to follow.
                    tx.flush(cpu);
                }
                if let Some(core) = self.core() {
                    core.sent(cpu, queue, 1, bytes);
                }
                return Ok(());
            }
            Ok(Err(packet)) => packet,
            Err(packet) => {
                self.counters.tx_held.add(1);
                tx.flush(cpu);
                return Err(packet);
            }
        };
        if let Some(bytes) = tx.send(cpu, packet, more, &self.counters)?
            && let Some(core) = self.core()
        {
            core.sent(cpu, queue, 1, bytes);
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
            // Perhaps only the interrupt was lost, or the request for it.
            let lines = self.channel(queue).and_then(|channel| channel.kpio.borrow().clone());
            if let Some(lines) = lines.as_ref().filter(|lines| lines.is_waited_for()) {
                lines.arm(cpu);
                cpu.sleep(TO_GIVE_UP).await;
            }
            if tx.has_news(cpu) || lines.is_some_and(|lines| !lines.is_waited_for() || lines.has_news(cpu)) {
                self.counters.lost_interrupts.add(1);
                if let Some(channel) = self.channel(queue) {
                    channel.kick(cpu);
                }
                return;
            }
            self.recover(cpu, "the device does not send");
        })
    }

    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let [frames, failed, no_carrier, lines_dropped, lines_missing] = self.counted(cpu, SENDING).await;
            let driver = &self.counters;
            TxStatistics {
                frames,
                failed,
                no_carrier,
                lost: driver.tx_lost.get(),
                refused: driver.tx_refused.get() + driver.tx_map_errors.get(),
                resets: driver.resets.get(),
                lines: driver.tx_lines.get(),
                no_lines: driver.tx_no_queue.get(),
                too_long: driver.tx_too_long.get(),
                lines_dropped,
                lines_missing,
            }
        })
    }

    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let [
                rx_no_buffer,
                rx_overflow,
                rx_damaged,
                rx_length_errors,
                rx_filtered,
                rx_no_queue,
                line_waits,
            ] = self.counted(cpu, OTHERS).await;
            DeviceStatistics {
                rx_no_buffer,
                rx_overflow,
                rx_damaged,
                rx_length_errors,
                rx_filtered,
                rx_no_queue,
                line_waits,
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

    fn rx_outstanding(&self, queue: u16) -> Option<u32> {
        let channels = self.channels.borrow();
        let rx = channels.get(usize::from(queue))?.rx.borrow();
        Some(rx.as_ref()?.given().into())
    }

    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error> {
        let channels = self.channels.borrow().len() as u16;
        let mut own = self.table.borrow_mut();
        if table.is_empty() || table.iter().any(|&queue| queue >= channels) {
            return Err(Error::Invalid);
        }
        let length = own.len();
        *own = table.iter().copied().cycle().take(length).collect();
        if self.state.get() == State::Up {
            write_table(cpu, &self.registers, &own);
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
        if self.state.get() != State::Up {
            return Err(Error::Busy);
        }
        if usize::from(queue) >= self.channels.borrow().len() {
            return Err(Error::Invalid);
        }
        let _lock = self.rules_lock.lock(cpu);
        self.rules.borrow_mut().add(cpu, &self.registers, flow, queue)
    }

    fn unsteer(&self, cpu: &Cpu, rule: RuleId) {
        let _part = cpu.book(Part::Driver);
        let _lock = self.rules_lock.lock(cpu);
        let registers = (self.state.get() == State::Up).then_some(&self.registers);
        self.rules.borrow_mut().remove(cpu, registers, rule);
    }

    fn set_address(&self, cpu: &Cpu, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        let _part = cpu.book(Part::Driver);
        if self.state.get() != State::Up {
            return Err(Error::Busy);
        }
        if queue.is_some_and(|queue| self.channel(queue).is_none()) {
            return Err(Error::Invalid);
        }
        let _lock = self.rules_lock.lock(cpu);
        self.addresses.borrow_mut().set(cpu, &self.registers, mac, queue)
    }

    fn poll_of(&self, queue: u16) -> Option<NapiHandle> {
        self.channel(queue)?.napi()
    }

    fn interrupt_of(&self, queue: u16) -> Option<Irq> {
        Some(self.channel(queue)?.irq)
    }

    fn indirection(&self) -> Vec<u16> {
        self.table.borrow().clone()
    }

    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error> {
        let channel = self.channel(queue).ok_or(Error::Invalid)?;
        channel.coalescing.set(wanted);
        if self.state.get() == State::Up {
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
