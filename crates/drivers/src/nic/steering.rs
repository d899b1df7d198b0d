//! Which receiving queue a frame goes to: the hash's table, rules for single flows, addresses with queues of their own.

use std::cell::RefCell;

use platform::Error;
use platform::cpu::Cpu;
use platform::lock::SpinLock;
use platform::mmio::Mmio;
use platform::net::{FlowKey, MacAddr, RuleId};
use rustc_hash::FxHashMap;
use wire::nic::registers::{self as regs, address, flow, rss};
use wire::nic::toeplitz::EXAMPLE_KEY;

use super::limits::Limits;

/// Where received frames go, as the device has been told.
pub(super) struct Steering {
    registers: Mmio,
    /// The queues that values of the hash go to.
    table: RefCell<Vec<u16>>,
    rules: RefCell<Rules>,
    addresses: RefCell<Addresses>,
    /// Held by the core that writes a rule, which takes several registers.
    lock: SpinLock,
}

impl Steering {
    /// Of a device without rules; `station` is the function's number if others share its address.
    pub fn new(registers: Mmio, limits: &Limits, station: Option<u8>) -> Self {
        Self {
            registers,
            table: RefCell::default(),
            rules: RefCell::new(Rules::new(limits.rules, station)),
            addresses: RefCell::new(Addresses::new(limits.addresses)),
            lock: SpinLock::default(),
        }
    }

    /// Tells the device again, which has forgotten all.
    pub fn restore(&self, cpu: &Cpu) {
        write_rss(cpu, &self.registers, &self.table.borrow());
        self.rules.borrow().restore(cpu, &self.registers);
        self.addresses.borrow().restore(cpu, &self.registers);
    }

    /// The queues that values of the hash go to.
    pub fn table(&self) -> Vec<u16> {
        self.table.borrow().clone()
    }

    /// Lets values of the hash go to so many queues in turn. The device is to be told by [`Steering::write_table`].
    pub fn set_table(&self, length: usize, queues: &[u16]) {
        *self.table.borrow_mut() = queues.iter().copied().cycle().take(length).collect();
    }

    /// Tells the device which queue each value of the hash goes to.
    pub fn write_table(&self, cpu: &Cpu) {
        write_table(cpu, &self.registers, &self.table.borrow());
    }

    /// Makes a flow's rule, or changes it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the table is full.
    pub fn steer(&self, cpu: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        let _lock = self.lock.lock(cpu);
        self.rules.borrow_mut().add(cpu, &self.registers, flow, queue)
    }

    /// Removes a rule, if there is one of that number. A device that is not up has forgotten it.
    pub fn unsteer(&self, cpu: &Cpu, is_up: bool, rule: RuleId) {
        let _lock = self.lock.lock(cpu);
        self.rules.borrow_mut().remove(cpu, is_up.then_some(&self.registers), rule);
    }

    /// Takes an address, lets its frames go to another queue, or forgets it.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if there is no table, [`Error::NoSpace`] if it is full.
    pub fn set_address(&self, cpu: &Cpu, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        let _lock = self.lock.lock(cpu);
        self.addresses.borrow_mut().set(cpu, &self.registers, mac, queue)
    }
}

/// The rules that the device has.
#[derive(Default)]
struct Rules {
    size: u32,
    /// The function, if others share its address: flows are to come to this one first.
    station: Option<u8>,
    next: u32,
    free: Vec<u32>,
    /// Only looked up, never walked.
    by_flow: FxHashMap<FlowKey, u32>,
    flows: Vec<Option<(FlowKey, u16)>>,
}

impl Rules {
    fn new(size: u16, station: Option<u8>) -> Self {
        Self { size: size.into(), station, ..Self::default() }
    }

    fn add(&mut self, cpu: &Cpu, registers: &Mmio, key: FlowKey, queue: u16) -> Result<RuleId, Error> {
        let number = match self.by_flow.get(&key) {
            Some(&number) => number,
            None => self.allocate(key)?,
        };
        self.flows[number as usize] = Some((key, queue));
        self.write(cpu, registers, number, key, queue);
        Ok(RuleId(number))
    }

    fn allocate(&mut self, key: FlowKey) -> Result<u32, Error> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.next < self.size => {
                self.next += 1;
                self.flows.push(None);
                self.next - 1
            }
            None => return Err(Error::NoSpace),
        };
        self.by_flow.insert(key, number);
        Ok(number)
    }

    fn remove(&mut self, cpu: &Cpu, registers: Option<&Mmio>, RuleId(number): RuleId) {
        let Some((key, _)) = self.flows.get_mut(number as usize).and_then(Option::take) else { return };
        self.by_flow.remove(&key);
        self.free.push(number);
        if let Some(registers) = registers {
            registers.write_u32(cpu, flow::RULE, number);
            registers.write_u32(cpu, flow::COMMAND, flow::REMOVE);
            if self.station.is_some() {
                registers.write_u32(cpu, flow::COMMAND, flow::REMOVE | flow::SWITCH);
            }
        }
    }

    /// Writes a rule: which queue, and, before the flow comes here at all, which function.
    fn write(&self, cpu: &Cpu, registers: &Mmio, number: u32, key: FlowKey, queue: u16) {
        write_rule(cpu, registers, number, key, queue);
        if let Some(function) = self.station {
            registers.write_u32(cpu, flow::TARGET, function.into());
            registers.write_u32(cpu, flow::COMMAND, flow::ADD | flow::SWITCH);
        }
    }

    fn restore(&self, cpu: &Cpu, registers: &Mmio) {
        for (number, rule) in (0..).zip(&self.flows) {
            if let Some((key, queue)) = *rule {
                self.write(cpu, registers, number, key, queue);
            }
        }
    }
}

/// Further addresses that the device takes frames for.
struct Addresses(Vec<Option<(MacAddr, u16)>>);

impl Addresses {
    fn new(size: u16) -> Self {
        Self(vec![None; size.into()])
    }

    fn set(&mut self, cpu: &Cpu, registers: &Mmio, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        if self.0.is_empty() {
            return Err(Error::NotSupported);
        }
        let own = self.0.iter().position(|entry| entry.is_some_and(|(has, _)| has == mac));
        let Some(place) = own.or_else(|| self.0.iter().position(Option::is_none)) else {
            return Err(Error::NoSpace);
        };
        self.0[place] = queue.map(|queue| (mac, queue));
        match queue {
            Some(queue) => write_address(cpu, registers, place as u32, mac, queue),
            None if own.is_some() => {
                registers.write_u32(cpu, address::RULE, place as u32);
                registers.write_u32(cpu, address::COMMAND, flow::REMOVE);
            }
            None => {}
        }
        Ok(())
    }

    fn restore(&self, cpu: &Cpu, registers: &Mmio) {
        for (number, entry) in (0..).zip(&self.0) {
            if let Some((mac, queue)) = *entry {
                write_address(cpu, registers, number, mac, queue);
            }
        }
    }
}

fn write_address(cpu: &Cpu, registers: &Mmio, number: u32, mac: MacAddr, queue: u16) {
    let MacAddr([a, b, c, d, e, f]) = mac;
    registers.write_u32(cpu, address::MAC, u32::from_le_bytes([a, b, c, d]));
    registers.write_u32(cpu, address::MAC + 4, u32::from_le_bytes([e, f, 0, 0]));
    registers.write_u32(cpu, address::RULE, number);
    registers.write_u32(cpu, address::TARGET, queue.into());
    registers.write_u32(cpu, address::COMMAND, flow::ADD);
}

fn write_rule(cpu: &Cpu, registers: &Mmio, number: u32, key: FlowKey, queue: u16) {
    registers.write_u32(cpu, flow::SOURCE, u32::from_le_bytes(key.source));
    registers.write_u32(cpu, flow::DESTINATION, u32::from_le_bytes(key.destination));
    registers.write_u32(cpu, flow::PORTS, u32::from(key.ports.0) | u32::from(key.ports.1) << 16);
    registers.write_u32(cpu, flow::PROTOCOL, key.protocol.into());
    registers.write_u32(cpu, flow::RULE, number);
    registers.write_u32(cpu, flow::TARGET, queue.into());
    registers.write_u32(cpu, flow::COMMAND, flow::ADD);
}

/// Tells the device how to hash, and which queue each value goes to.
fn write_rss(cpu: &Cpu, registers: &Mmio, table: &[u16]) {
    for (n, word) in (0u64..).zip(EXAMPLE_KEY.chunks_exact(4)) {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        registers.write_u32(cpu, regs::RSS_KEY + 4 * n, word);
    }
    registers.write_u32(cpu, regs::RSS_TYPES, rss::ADDRESSES | rss::TCP | rss::UDP);
    write_table(cpu, registers, table);
}

/// Tells the device which queue each value of the hash goes to.
fn write_table(cpu: &Cpu, registers: &Mmio, table: &[u16]) {
    for (n, &queue) in (0u64..).zip(table) {
        registers.write_u32(cpu, regs::RSS_TABLE + 4 * n, queue.into());
    }
}
