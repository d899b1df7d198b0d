//! Reads and writes of BAR 0.

use platform::device::{DeviceBus, FunctionIndex};
use wire::nic::registers::{
    self as regs, HELD_BYTES, WIDE_STRIDE, address, control, counter, feature, flow, queue, status,
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
        if let Some(value) = self.ports.kpio.as_ref().and_then(|kpio| kpio.register(function, at)) {
            return value;
        }
        if let Some((queue, register)) = block(at, regs::TX_QUEUES, regs::QUEUE_STRIDE, state.tx.len()) {
            return queue_register(&state.tx[queue].ring, register);
        }
        if let Some((queue, register)) = block(at, regs::RX_QUEUES, regs::QUEUE_STRIDE, state.rx.len()) {
            return queue_register(&state.rx[queue].ring, register);
        }
        if let Some((number, register)) =
            block(at, regs::VECTORS, regs::VECTOR_STRIDE, state.interrupts.vectors())
        {
            return state.interrupts.register(number, register);
        }
        if let Some((counter, half)) = block(at, regs::COUNTERS, 8, counter::COUNT) {
            return (self.handle.counter(FunctionIndex(function), counter) >> (8 * half)) as u32;
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
            regs::CONTROL if state.enabled => control::ENABLE,
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
            regs::EVENTS => state.take_events(bus),
            regs::EVENT_VECTOR => state.interrupts.event_vector,
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
            regs::CONTROL => state.enable(bus.now(), value & control::ENABLE != 0),
            regs::ENABLED => state.features = value & state.features(),
            regs::MAX_FRAME => state.max_frame = (value as u16).min(self.params.max_frame),
            regs::MAC if state.physical.is_none() => state.mac.0[..4].copy_from_slice(&bytes),
            0x2c if state.physical.is_none() => state.mac.0[4..].copy_from_slice(&bytes[..2]),
            regs::EVENT_VECTOR => state.interrupts.event_vector = value,
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
        let most = self.params.log2_ring;
        let takes_inline = self.params.features & feature::INLINE != 0;
        let are_wide = self.params.features & feature::WIDE_COMPLETIONS != 0;
        let of = &mut self.functions[usize::from(function)];
        let is_physical = of.physical.is_none();
        let ring = of.ring(number, is_tx);
        let setup = &mut ring.setup;
        // The location of a ring cannot change while its queue runs.
        let is_open = !ring.running;
        match register {
            queue::TAIL if is_tx => {
                self.sender.doorbell(bus, of, &mut self.ports.memory, number, value as u16)
            }
            queue::TAIL => self.receiver.doorbell(bus, of, number, value as u16),
            queue::RING if is_open => setup.ring = with_low(setup.ring, value),
            0x0c if is_open => setup.ring = with_high(setup.ring, value),
            queue::SIZE if is_open => setup.log2 = (value & 0xff) as u8,
            queue::VECTOR => setup.vector = value,
            queue::STRIDE if is_open => {
                let slots = !is_tx && takes_inline && (5..=8).contains(&value);
                let is_wide = are_wide && value == u32::from(WIDE_STRIDE);
                setup.stride = (slots || is_wide).then_some(value as u8);
            }
            queue::COMPLETIONS if is_open => setup.completions = with_low(setup.completions, value),
            0x1c if is_open => setup.completions = with_high(setup.completions, value),
            queue::NUMBER if !is_tx && is_physical => {
                self.ports.switch.rules.set_number(value, function, number)
            }
            queue::BATCH => setup.batch = value as u16,
            queue::DELAY_NS => setup.delay_ns = value,
            queue::ARM_AT if value & queue::ARM != 0 => of.arm(bus, number, is_tx, value as u16),
            queue::CONTROL => {
                let (was, is) = (ring.running || ring.failed, value & queue::ENABLE != 0);
                setup.control = value;
                if was && !is {
                    self.stop_queue(function, number, is_tx);
                } else if is && !was {
                    let fits = setup.log2 <= most;
                    ring.restart(fits);
                    ring.failed = !fits;
                }
            }
            _ => {}
        }
    }

    pub(super) fn stop_queue(&mut self, function: u8, queue: u8, is_tx: bool) {
        let of = &mut self.functions[usize::from(function)];
        of.ring(queue, is_tx).restart(false);
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
        state.drive_line(bus);
        state.show_rings();
        self.handle.clear(function);
        self.receiver.release_fences(bus, &mut self.functions, function);
    }
}

fn queue_register(ring: &super::ring::Ring, register: u64) -> u32 {
    let setup = &ring.setup;
    match register {
        queue::TAIL => ring.tail.into(),
        queue::HEAD => ring.head().into(),
        queue::RING => setup.ring as u32,
        0x0c => (setup.ring >> 32) as u32,
        queue::SIZE => setup.log2.into(),
        queue::VECTOR => setup.vector,
        queue::COMPLETIONS => setup.completions as u32,
        0x1c => (setup.completions >> 32) as u32,
        queue::CONTROL => setup.control,
        queue::STRIDE => setup.stride.unwrap_or(4).into(),
        queue::BATCH => setup.batch.into(),
        queue::DELAY_NS => setup.delay_ns,
        queue::STATUS => {
            (if ring.running { queue::RUNNING } else { 0 }) | if ring.failed { queue::ERROR } else { 0 }
        }
        queue::DROPPED => ring.dropped,
        _ => 0,
    }
}

pub(super) fn with_low(old: u64, value: u32) -> u64 {
    old & !0xffff_ffff | u64::from(value)
}

pub(super) fn with_high(old: u64, value: u32) -> u64 {
    old & 0xffff_ffff | u64::from(value) << 32
}
