//! Reads and writes of BAR 0.

use platform::device::{DeviceBus, FunctionIndex};
use wire::nic::registers::{
    self as regs, HELD_BYTES, address, control, counter, feature, flow, queue, status,
};
use wire::nic::toeplitz::KEY_LEN;

use super::Nic;
use super::fields::{block, le};

impl Nic {
    /// Reads the 4 bytes at `at`.
    pub(super) fn register(&mut self, bus: &mut dyn DeviceBus, function: u8, at: u64) -> u32 {
        let functions = self.functions.len() as u32;
        let params = &self.params;
        let state = &mut self.functions[usize::from(function)];
        let features = state.features();
        if let Some(value) = self.ports.register(function, at) {
            return value;
        }
        if let Some((queue, register)) = block(at, regs::TX_QUEUES, regs::QUEUE_STRIDE, state.tx.len()) {
            return state.tx[queue].ring.register(register);
        }
        if let Some((queue, register)) = block(at, regs::RX_QUEUES, regs::QUEUE_STRIDE, state.rx.len()) {
            return state.rx[queue].ring.register(register);
        }
        if let Some((number, register)) =
            block(at, regs::VECTORS, regs::VECTOR_STRIDE, state.interrupts.vectors())
        {
            return state.interrupts.register(number, register);
        }
        if let Some((counter, half)) = block(at, regs::COUNTERS, 8, counter::COUNT) {
            return (state.counted(bus.now(), counter) >> (8 * half)) as u32;
        }
        if let Some((entry, 0)) = block(at, regs::RSS_TABLE, 4, state.rss.table.len()) {
            return state.rss.table[entry].into();
        }
        if let Some((word, _)) = block(at, regs::RSS_KEY, 4, KEY_LEN / 4) {
            return le(&state.rss.key[4 * word..]);
        }
        let mac = state.mac.0;
        match at {
            regs::IDENTITY => regs::IDENTITY_VALUE,
            regs::CONTROL => {
                let set = |on, bit| if on { bit } else { 0 };
                set(state.enabled, control::ENABLE) | set(state.loops, control::LOOPBACK)
            }
            regs::STATUS => {
                let port = state.port();
                let up = params.loopback.is_some()
                    || bus.ethernet().is_some_and(|ethernet| ethernet.has_carrier(port));
                status::READY | if up { status::LINK_UP } else { 0 }
            }
            regs::SPEED => (params.rate.bits_per_s() / 1_000_000) as u32,
            regs::QUEUES => state.tx.len() as u32 | (state.rx.len() as u32) << 16,
            regs::LIMITS => {
                state.interrupts.vectors() as u32
                    | u32::from(params.log2_ring) << 16
                    | u32::from(params.max_fragments) << 24
            }
            regs::TABLES => {
                let has_card_table = features & feature::GLOBAL_RULES != 0 && state.physical.is_none();
                let rules = if has_card_table { params.switch_rules } else { params.flow_rules };
                u32::from(rules) | (state.rss.table.len() as u32) << 16
            }
            regs::FEATURES => features,
            regs::ENABLED => state.features,
            regs::MAX_FRAME => state.max_frame.into(),
            regs::MAC => le(&mac),
            0x2c => u32::from(mac[4]) | u32::from(mac[5]) << 8,
            regs::EVENTS => state.interrupts.take_events(bus),
            regs::EVENT_VECTOR => state.interrupts.event_vector(),
            regs::FUNCTION => {
                let same = params.functions.iter().filter(|other| state.params.is_same_station(other));
                u32::from(function) | functions << 8 | (same.count() as u32) << 16
            }
            regs::TSO_MAX => params.tso_max,
            regs::RX_HELD => state.longest_held.into(),
            regs::RSS_TYPES => state.rss.types,
            regs::ADDRESSES if state.physical.is_none() => params.addresses.into(),
            _ => state.rules.register(at),
        }
    }

    /// Writes the 4 bytes at `at`.
    pub(super) fn set_register(&mut self, bus: &mut dyn DeviceBus, function: u8, at: u64, value: u32) {
        if self.ports.set_register(bus, &mut self.functions, function, at, value) {
            return;
        }
        let state = &mut self.functions[usize::from(function)];
        if let Some((queue, register)) = block(at, regs::TX_QUEUES, regs::QUEUE_STRIDE, state.tx.len()) {
            self.set_queue_register(bus, function, queue as u8, true, register, value);
            return;
        }
        if let Some((queue, register)) = block(at, regs::RX_QUEUES, regs::QUEUE_STRIDE, state.rx.len()) {
            self.set_queue_register(bus, function, queue as u8, false, register, value);
            return;
        }
        if let Some((number, register)) =
            block(at, regs::VECTORS, regs::VECTOR_STRIDE, state.interrupts.vectors())
        {
            state.interrupts.set_register(number, register, value);
            return;
        }
        if let Some((entry, 0)) = block(at, regs::RSS_TABLE, 4, state.rss.table.len()) {
            state.rss.table[entry] = value as u16;
            return;
        }
        if let Some((word, _)) = block(at, regs::RSS_KEY, 4, KEY_LEN / 4) {
            state.rss.set_key(4 * word, &value.to_le_bytes());
            return;
        }
        let bytes = value.to_le_bytes();
        match at {
            regs::CONTROL if value & control::RESET != 0 => self.reset_function(bus, function),
            regs::CONTROL => {
                state.enable(bus.now(), value & control::ENABLE != 0);
                state.loops = value & control::LOOPBACK != 0;
            }
            regs::ENABLED => state.features = value & state.features(),
            regs::MAX_FRAME => state.max_frame = (value as u16).min(self.params.max_frame),
            regs::MAC if state.physical.is_none() => state.mac.0[..4].copy_from_slice(&bytes),
            0x2c if state.physical.is_none() => state.mac.0[4..].copy_from_slice(&bytes[..2]),
            regs::EVENT_VECTOR => state.interrupts.set_event_vector(value),
            regs::RX_HELD => state.longest_held = value.min(HELD_BYTES as u32) as u16,
            regs::RSS_TYPES => state.rss.types = value,
            flow::COMMAND => {
                let queues = state.rx.len();
                let function = FunctionIndex(function);
                state.rules.flow_command(bus.now(), value, function, queues, &mut self.ports.switch.rules);
            }
            address::COMMAND => state.rules.address_command(bus.now(), value, state.rx.len()),
            _ => state.rules.set_register(at, value),
        }
    }

    fn set_queue_register(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        number: u8,
        is_tx: bool,
        register: u64,
        value: u32,
    ) {
        let of = &mut self.functions[usize::from(function)];
        match register {
            queue::TAIL if is_tx => {
                self.sender.doorbell(bus, of, &mut self.ports.memory, number, value as u16)
            }
            queue::TAIL => self.receiver.doorbell(bus, of, number, value as u16),
            queue::NUMBER if !is_tx && of.physical.is_none() => {
                self.ports.switch.rules.set_number(value, function, number)
            }
            queue::ARM_AT if value & queue::ARM != 0 => of.arm(bus, number, is_tx, value as u16),
            queue::CONTROL => {
                if of.ring(number, is_tx).control(value) {
                    self.stop_queue(function, number, is_tx);
                }
            }
            _ => of.ring(number, is_tx).set_register(register, value),
        }
    }

    pub(super) fn stop_queue(&mut self, function: u8, queue: u8, is_tx: bool) {
        let of = &mut self.functions[usize::from(function)];
        of.ring(queue, is_tx).stop();
        if is_tx {
            self.sender.abandon(of, &mut self.ports.memory, queue);
        } else {
            self.receiver.abandon(of, queue);
        }
    }

    /// Resets the function at the driver's request.
    pub(super) fn reset_function(&mut self, bus: &mut dyn DeviceBus, function: u8) {
        let state = &self.functions[usize::from(function)];
        let (tx, rx) = (state.tx.len(), state.rx.len());
        for queue in 0..tx {
            self.stop_queue(function, queue as u8, true);
        }
        for queue in 0..rx {
            self.stop_queue(function, queue as u8, false);
        }
        self.ports.reset_function(&self.functions, function);
        let state = &mut self.functions[usize::from(function)];
        state.reset();
        state.interrupts.drive_line(bus);
        state.show_rings();
        self.handle.clear(function);
        self.receiver.release_fences(bus, &mut self.functions, function);
    }
}
