//! Reads and writes of BAR 0.

use platform::device::{DeviceBus, FunctionIndex};
use units::Duration;
use wire::nic::registers::{
    self as regs, HELD_BYTES, WIDE_STRIDE, address, control, counter, feature, flow, queue, status, vector,
};
use wire::nic::toeplitz::KEY_LEN;

use wire::ethernet::MacAddr;

use super::Nic;
use super::kpio::{Changed, Kpio};
use super::steering::FlowTable;

/// The rest of an address rule's address.
const MAC_REST: u64 = address::MAC + 4;

/// A place in a block of registers that repeats: which one, and where in it.
fn block(at: u64, base: u64, stride: u64, number: usize) -> Option<(usize, u64)> {
    let offset = at.checked_sub(base)?;
    let index = (offset / stride) as usize;
    (index < number).then_some((index, offset % stride))
}

impl Nic {
    /// Reads the 4 bytes at `at`.
    pub(super) fn register(&mut self, bus: &mut dyn DeviceBus, function: u8, at: u64) -> u32 {
        let functions = self.functions.len() as u32;
        let kpio = self.kpio.as_ref().filter(|kpio| kpio.queues(function) > 0);
        let params = &self.params;
        let state = &mut self.functions[usize::from(function)];
        let features = state.features(params);
        if let Some(kpio) = kpio
            && let Some((queue, register)) =
                block(at, regs::KPIO_QUEUES, regs::KPIO_STRIDE, kpio.queues(function))
        {
            return kpio.register(function, queue, register);
        }
        if let Some((queue, register)) = block(at, regs::TX_QUEUES, regs::QUEUE_STRIDE, state.tx.len()) {
            return queue_register(&state.tx[queue].ring, register);
        }
        if let Some((queue, register)) = block(at, regs::RX_QUEUES, regs::QUEUE_STRIDE, state.rx.len()) {
            return queue_register(&state.rx[queue].ring, register);
        }
        if let Some((number, register)) = block(at, regs::VECTORS, regs::VECTOR_STRIDE, state.vectors.len()) {
            let vector = &state.vectors[number];
            return match register {
                vector::DELAY_NS => (vector.delay.as_ps() / 1000) as u32,
                vector::PACKETS => vector.packets,
                vector::ADAPTIVE => vector.adaptive.into(),
                _ => 0,
            };
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
                state.vectors.len() as u32
                    | u32::from(params.log2_ring) << 16
                    | u32::from(params.max_fragments) << 24
            }
            regs::TABLES => u32::from(params.flow_rules) | (state.rss.table.len() as u32) << 16,
            regs::FEATURES => features,
            regs::ENABLED => state.features,
            regs::MAX_FRAME => state.max_frame.into(),
            regs::MAC => le(&mac),
            0x2c => u32::from(mac[4]) | u32::from(mac[5]) << 8,
            regs::EVENTS => std::mem::take(&mut state.events),
            regs::EVENT_VECTOR => state.event_vector,
            regs::FUNCTION => u32::from(function) | functions << 8,
            regs::TSO_MAX => params.tso_max,
            regs::KPIO => kpio.map_or(0, Kpio::limits),
            regs::RX_HELD => state.longest_held.into(),
            regs::RSS_TYPES => state.rss.types,
            flow::SOURCE => le(&state.flow.source),
            flow::DESTINATION => le(&state.flow.destination),
            flow::PORTS => state.flow.ports,
            flow::PROTOCOL => state.flow.protocol,
            flow::RULE => state.flow.rule,
            flow::TARGET => state.flow.target,
            flow::RESULT => state.flow.result,
            flow::AGE_US => state.flow.age_us,
            flow::HITS => state.flow.hits,
            regs::ADDRESSES if state.physical.is_none() => params.addresses.into(),
            address::MAC => le(&state.address.mac),
            MAC_REST => u32::from(state.address.mac[4]) | u32::from(state.address.mac[5]) << 8,
            address::RULE => state.address.rule,
            address::TARGET => state.address.target,
            address::RESULT => state.address.result,
            _ => 0,
        }
    }

    /// Writes the 4 bytes at `at`.
    pub(super) fn set_register(&mut self, bus: &mut dyn DeviceBus, function: u8, at: u64, value: u32) {
        if let Some(kpio) = &mut self.kpio
            && let Some((queue, register)) =
                block(at, regs::KPIO_QUEUES, regs::KPIO_STRIDE, kpio.queues(function))
        {
            match kpio.set_register(function, queue, register, value) {
                Changed::Running => self.count_kpio(),
                Changed::Armed => self.kpio_goes_on(bus, function, queue as u8),
                Changed::Setting => {}
            }
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
        if let Some((number, register)) = block(at, regs::VECTORS, regs::VECTOR_STRIDE, state.vectors.len()) {
            let vector = &mut state.vectors[number];
            match register {
                vector::DELAY_NS => {
                    vector.delay = Duration::from_ns(value.into());
                    vector.current = vector.delay;
                }
                vector::PACKETS => vector.packets = value,
                vector::ADAPTIVE => vector.adaptive = value & 1 != 0,
                _ => {}
            }
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
            regs::CONTROL => state.enabled = value & control::ENABLE != 0,
            regs::ENABLED => state.features = value & state.features(&self.params),
            regs::MAX_FRAME => state.max_frame = (value as u16).min(self.params.max_frame),
            regs::MAC if state.physical.is_none() => state.mac.0[..4].copy_from_slice(&bytes),
            0x2c if state.physical.is_none() => state.mac.0[4..].copy_from_slice(&bytes[..2]),
            regs::EVENT_VECTOR => state.event_vector = value,
            regs::RX_HELD => state.longest_held = value.min(HELD_BYTES as u32) as u16,
            regs::RSS_TYPES => state.rss.types = value,
            flow::SOURCE => state.flow.source = bytes,
            flow::DESTINATION => state.flow.destination = bytes,
            flow::PORTS => state.flow.ports = value,
            flow::PROTOCOL => state.flow.protocol = value,
            flow::RULE => state.flow.rule = value,
            flow::TARGET => state.flow.target = value,
            flow::COMMAND => self.flow_command(bus, function, value),
            address::MAC => state.address.mac[..4].copy_from_slice(&bytes),
            MAC_REST => state.address.mac[4..].copy_from_slice(&bytes[..2]),
            address::RULE => state.address.rule = value,
            address::TARGET => state.address.target = value,
            address::COMMAND => self.address_command(bus, function, value),
            _ => {}
        }
    }

    fn address_command(&mut self, bus: &mut dyn DeviceBus, function: u8, command: u32) {
        let state = &mut self.functions[usize::from(function)];
        let asked = state.address;
        state.address.result = match command {
            flow::ADD if asked.target >= state.rx.len() as u32 => flow::RESULT_RANGE,
            flow::ADD => state.addresses.add(bus.now(), asked.rule, MacAddr(asked.mac), asked.target as u16),
            flow::REMOVE => state.addresses.remove(asked.rule),
            _ => flow::RESULT_UNKNOWN,
        };
    }

    fn flow_command(&mut self, bus: &mut dyn DeviceBus, function: u8, command: u32) {
        let now = bus.now();
        let functions = self.functions.len() as u32;
        let switch_part = self.switch_part(function);
        let state = &mut self.functions[usize::from(function)];
        let is_switch = command & flow::SWITCH != 0;
        let targets = if is_switch { functions } else { state.rx.len() as u32 };
        let is_virtual = state.physical.is_some();
        if is_switch && is_virtual || !is_switch && self.params.features & feature::FLOW_RULES == 0 {
            state.flow.result = flow::RESULT_UNKNOWN;
            return;
        }
        let target = state.flow.target;
        let fields = &mut state.flow;
        let table: &mut FlowTable = if is_switch { &mut self.switch_rules } else { &mut state.rules };
        // Of the internal switch's table a function sees its own part.
        let part = if is_switch { switch_part.clone() } else { 0..u32::from(self.params.flow_rules) };
        let rule = part.start.checked_add(fields.rule).filter(|rule| part.contains(rule));
        let rule = rule.unwrap_or(u32::MAX);
        fields.result = match command & !flow::SWITCH {
            flow::ADD if target >= targets => flow::RESULT_RANGE,
            flow::ADD => table.add(now, rule, fields.key(), target as u16),
            flow::REMOVE => table.remove(rule),
            flow::CLEAR => {
                table.remove_range(part);
                flow::RESULT_OK
            }
            flow::QUERY => match table.query(now, rule) {
                Some((age_us, hits)) => {
                    (fields.age_us, fields.hits) = (age_us, hits);
                    flow::RESULT_OK
                }
                None => flow::RESULT_NONE,
            },
            _ => flow::RESULT_UNKNOWN,
        };
        let (key, rule, went) = (state.flow.key(), state.flow.rule, state.flow.result == flow::RESULT_OK);
        if went && !is_switch && !is_virtual && self.params.features & feature::GLOBAL_RULES != 0 {
            // Which queue is known: which function's it is follows.
            let rule = switch_part.start + rule;
            match command {
                flow::ADD => _ = self.switch_rules.add(now, rule, key, function.into()),
                flow::REMOVE => _ = self.switch_rules.remove(rule),
                flow::CLEAR => self.switch_rules.remove_range(switch_part),
                _ => {}
            }
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
        let ring = self.functions[usize::from(function)].ring(number, is_tx);
        let setup = &mut ring.setup;
        // Where a ring is does not change under a queue that runs.
        let is_open = !ring.running;
        match register {
            queue::TAIL if is_tx => self.doorbell(bus, function, number, value as u16),
            queue::TAIL => self.rx_doorbell(bus, function, number, value as u16),
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
            queue::BATCH => setup.batch = value as u16,
            queue::DELAY_NS => setup.delay_ns = value,
            queue::ARM_AT if value & queue::ARM != 0 => self.arm(bus, function, number, is_tx, value as u16),
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
        self.functions[usize::from(function)].ring(queue, is_tx).restart(false);
        if is_tx {
            self.abandon_jobs(function, queue);
        } else {
            self.abandon_frames(function, queue);
        }
    }

    /// The driver resets the function.
    pub(super) fn reset_function(&mut self, bus: &mut dyn DeviceBus, function: u8) {
        let state = &self.functions[usize::from(function)];
        let (tx, rx) = (state.tx.len(), state.rx.len());
        for queue in 0..tx {
            self.stop_queue(function, queue as u8, true);
        }
        for queue in 0..rx {
            self.stop_queue(function, queue as u8, false);
        }
        if let Some(kpio) = &mut self.kpio {
            kpio.reset(function);
            self.count_kpio();
        }
        let state = &mut self.functions[usize::from(function)];
        state.reset(&self.params);
        self.watch_rings(usize::from(function));
        let rules = self.switch_part(function);
        self.switch_rules.remove_range(rules);
        self.handle.clear(function);
        self.release_fences(bus, function);
    }

    /// The numbers in the internal switch's table of the rules that a physical function makes; none for a virtual one.
    fn switch_part(&self, function: u8) -> std::ops::Range<u32> {
        let each = u32::from(self.params.switch_rules);
        let begin = u32::from(function) * each;
        begin..if self.functions[usize::from(function)].physical.is_none() { begin + each } else { begin }
    }
}

fn queue_register(ring: &super::ring::Ring, register: u64) -> u32 {
    let setup = &ring.setup;
    match register {
        queue::TAIL => ring.tail.into(),
        queue::HEAD => ring.done.into(),
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

/// The first four bytes as a number.
fn le(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn with_low(old: u64, value: u32) -> u64 {
    old & !0xffff_ffff | u64::from(value)
}

fn with_high(old: u64, value: u32) -> u64 {
    old & 0xffff_ffff | u64::from(value) << 32
}
