//! Flow and address rules as the driver sets them: registers that describe a rule, and commands.

use platform::device::FunctionIndex;
use platform::net::FlowKey;
use units::Time;
use wire::ethernet::MacAddr;
use wire::ip::Flow;
use wire::nic::registers::{address, feature, flow};

use super::fields::le;
use super::params::NicParams;
use super::steering::{AddressTable, FlowTable, Match, SwitchRules};

/// The upper bytes of an address rule's MAC address.
const MAC_REST: u64 = address::MAC + 4;

/// Registers that describe a flow rule, and the result of the last command.
#[derive(Clone, Copy, Debug, Default)]
struct FlowRegisters {
    source: [u8; 4],
    destination: [u8; 4],
    ports: u32,
    protocol: u32,
    rule: u32,
    target: u32,
    result: u32,
    age_us: u32,
    hits: u32,
}

impl FlowRegisters {
    fn key(&self) -> FlowKey {
        FlowKey {
            protocol: self.protocol as u8,
            source: self.source,
            destination: self.destination,
            ports: (self.ports as u16, (self.ports >> 16) as u16),
        }
    }
}

/// Registers that describe an address rule, and the result of the last command.
#[derive(Clone, Copy, Debug, Default)]
struct AddressRegisters {
    mac: [u8; 6],
    rule: u32,
    target: u32,
    result: u32,
}

/// A function's rules: flows to queues, and additional MAC addresses.
pub struct Rules {
    /// What the device can do.
    features: u32,
    most_flows: u32,
    is_virtual: bool,
    flows: FlowTable,
    flow: FlowRegisters,
    addresses: AddressTable,
    address: AddressRegisters,
}

impl Rules {
    pub fn new(params: &NicParams, is_virtual: bool) -> Self {
        Self {
            features: params.features,
            most_flows: params.flow_rules.into(),
            is_virtual,
            flows: FlowTable::new(params.flow_rules),
            flow: FlowRegisters::default(),
            addresses: AddressTable::new(if is_virtual { 0 } else { params.addresses }),
            address: AddressRegisters::default(),
        }
    }

    /// Whether there is a rule for an address.
    pub fn has_address(&self, to: MacAddr) -> bool {
        self.addresses.has(to)
    }

    /// The queue of a flow's rule. Does not count as a use of the rule.
    pub fn target_of(&self, packet: &Flow) -> Option<u16> {
        self.flows.target_of(packet)
    }

    /// The rule for a frame: first by its address, then by its flow, if one is given.
    #[inline]
    pub fn find(&mut self, now: Time, frame: &[u8], packet: Option<&Flow>) -> Option<Match<'_>> {
        match self.addresses.find(now, frame) {
            None => packet.and_then(|packet| self.flows.find(now, packet)),
            found => found,
        }
    }

    /// Reads a register.
    pub fn register(&self, at: u64) -> u32 {
        let (flow, address) = (&self.flow, &self.address);
        match at {
            flow::SOURCE => le(&flow.source),
            flow::DESTINATION => le(&flow.destination),
            flow::PORTS => flow.ports,
            flow::PROTOCOL => flow.protocol,
            flow::RULE => flow.rule,
            flow::TARGET => flow.target,
            flow::RESULT => flow.result,
            flow::AGE_US => flow.age_us,
            flow::HITS => flow.hits,
            address::MAC => le(&address.mac),
            MAC_REST => u32::from(address.mac[4]) | u32::from(address.mac[5]) << 8,
            address::RULE => address.rule,
            address::TARGET => address.target,
            address::RESULT => address.result,
            _ => 0,
        }
    }

    /// Writes a register other than a command.
    pub fn set_register(&mut self, at: u64, value: u32) {
        let (flow, address, bytes) = (&mut self.flow, &mut self.address, value.to_le_bytes());
        match at {
            flow::SOURCE => flow.source = bytes,
            flow::DESTINATION => flow.destination = bytes,
            flow::PORTS => flow.ports = value,
            flow::PROTOCOL => flow.protocol = value,
            flow::RULE => flow.rule = value,
            flow::TARGET => flow.target = value,
            address::MAC => address.mac[..4].copy_from_slice(&bytes),
            MAC_REST => address.mac[4..].copy_from_slice(&bytes[..2]),
            address::RULE => address.rule = value,
            address::TARGET => address.target = value,
            _ => {}
        }
    }

    /// Executes an address command of a function with `queues` queues.
    pub fn address_command(&mut self, now: Time, command: u32, queues: usize) {
        let asked = self.address;
        self.address.result = match command {
            flow::ADD if asked.target >= queues as u32 => flow::RESULT_RANGE,
            flow::ADD => self.addresses.add(now, asked.rule, MacAddr(asked.mac), asked.target as u16),
            flow::REMOVE => self.addresses.remove(asked.rule),
            _ => flow::RESULT_UNKNOWN,
        };
    }

    /// Executes a flow command: to the function's own `queues`, or, for the internal switch's table, to functions or to the
    /// card's queues.
    pub fn flow_command(
        &mut self,
        now: Time,
        command: u32,
        FunctionIndex(function): FunctionIndex,
        queues: usize,
        switch: &mut SwitchRules,
    ) {
        let asks_switch = command & flow::SWITCH != 0;
        let has_card_table = self.features & feature::GLOBAL_RULES != 0 && !self.is_virtual;
        let is_ours = if asks_switch {
            !self.is_virtual && !has_card_table
        } else {
            self.features & feature::FLOW_RULES != 0
        };
        if !is_ours {
            self.flow.result = flow::RESULT_UNKNOWN;
            return;
        }
        let fields = &mut self.flow;
        // A function sees only its own part of the internal switch's table.
        let (table, part, is_target) = match asks_switch || has_card_table {
            true => {
                let is_target = switch.has_target(fields.target);
                let part = switch.part_of(function, self.is_virtual);
                (&mut switch.table, part, is_target)
            }
            false => (&mut self.flows, 0..self.most_flows, fields.target < queues as u32),
        };
        let rule = part.start.checked_add(fields.rule).filter(|rule| part.contains(rule));
        let rule = rule.unwrap_or(u32::MAX);
        fields.result = match command & !flow::SWITCH {
            flow::ADD if !is_target => flow::RESULT_RANGE,
            flow::ADD => table.add(now, rule, fields.key(), fields.target as u16),
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
    }
}
