//! Selection of the RX queue: RSS table, rules for single flows, and addresses with a queue of their own.

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

/// Where received frames go, as programmed into the device.
pub(super) struct Steering {
    registers: Mmio,
    /// RSS indirection table: queue by hash value.
    table: RefCell<Vec<u16>>,
    rules: RefCell<Rules>,
    addresses: RefCell<Addresses>,
    /// Held while a rule is written, which takes several registers.
    lock: SpinLock,
}

impl Steering {
    /// Creates an empty rule table. `station` is the function's number if it shares its address with others.
    pub fn new(registers: Mmio, limits: &Limits, station: Option<u8>) -> Self {
        Self {
            registers,
            table: RefCell::default(),
            rules: RefCell::new(Rules::new(limits.rules, limits.first_queue(), station)),
            addresses: RefCell::new(Addresses::new(limits.addresses)),
            lock: SpinLock::default(),
        }
    }

    /// Writes everything to the device again after a reset.
    pub fn restore(&self, cpu: &Cpu) {
        write_rss(cpu, &self.registers, &self.table.borrow());
        self.rules.borrow().restore(cpu, &self.registers);
        self.addresses.borrow().restore(cpu, &self.registers);
    }

    /// RSS indirection table.
    pub fn table(&self) -> Vec<u16> {
        self.table.borrow().clone()
    }

    /// Fills the RSS table with these queues in turn. [`Steering::write_table`] passes it to the device.
    pub fn set_table(&self, length: usize, queues: &[u16]) {
        *self.table.borrow_mut() = queues.iter().copied().cycle().take(length).collect();
    }

    /// Writes the RSS table to the device.
    pub fn write_table(&self, cpu: &Cpu) {
        write_table(cpu, &self.registers, &self.table.borrow());
    }

    /// Creates or changes the rule of a flow.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the table is full.
    pub fn steer(&self, cpu: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        let _lock = self.lock.lock(cpu);
        self.rules.borrow_mut().add(cpu, &self.registers, flow, queue)
    }

    /// Removes a rule if it exists. A device that is down has already lost it.
    pub fn unsteer(&self, cpu: &Cpu, is_up: bool, rule: RuleId) {
        let _lock = self.lock.lock(cpu);
        self.rules.borrow_mut().remove(cpu, is_up.then_some(&self.registers), rule);
    }

    /// Adds an address, changes its queue, or removes it.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the device has no address table, [`Error::NoSpace`] if it is full.
    pub fn set_address(&self, cpu: &Cpu, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        let _lock = self.lock.lock(cpu);
        self.addresses.borrow_mut().set(cpu, &self.registers, mac, queue)
    }
}

/// The flow rules in the device.
#[derive(Default)]
struct Rules {
    size: u32,
    /// Number by which rules name the function's first queue.
    first: u16,
    /// This function's number if it shares its address: the card has to steer flows to it first.
    station: Option<u8>,
    next: u32,
    free: Vec<u32>,
    /// Used only for lookups: iteration order is not deterministic.
    by_flow: FxHashMap<FlowKey, u32>,
    flows: Vec<Option<(FlowKey, u16)>>,
}

impl Rules {
    fn new(size: u16, first: u16, station: Option<u8>) -> Self {
        Self { size: size.into(), first, station, ..Self::default() }
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

    /// Writes a rule: the RX queue and, if several functions share the address, the function.
    fn write(&self, cpu: &Cpu, registers: &Mmio, number: u32, key: FlowKey, queue: u16) {
        write_rule(cpu, registers, number, key, self.first + queue);
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

/// Additional addresses that the device accepts.
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

/// Enables RSS and writes its table.
pub(super) fn write_rss(cpu: &Cpu, registers: &Mmio, table: &[u16]) {
    for (n, word) in (0u64..).zip(EXAMPLE_KEY.chunks_exact(4)) {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        registers.write_u32(cpu, regs::RSS_KEY + 4 * n, word);
    }
    registers.write_u32(cpu, regs::RSS_TYPES, rss::ADDRESSES | rss::TCP | rss::UDP);
    write_table(cpu, registers, table);
}

/// Writes the RSS table.
fn write_table(cpu: &Cpu, registers: &Mmio, table: &[u16]) {
    for (n, &queue) in (0u64..).zip(table) {
        registers.write_u32(cpu, regs::RSS_TABLE + 4 * n, queue.into());
    }
}
