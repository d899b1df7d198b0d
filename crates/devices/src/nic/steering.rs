//! Steering of received frames: address rules, flow rules, RSS.
//!
//! **Order.** A new or changed rule moves its flow to another queue while earlier frames may still be in the device,
//! waiting for buffers, or their completions for a batch. The new queue takes over at the first frame for which none of
//! these wait, and the old queue's pending completions are written first ([`FlowTable::find`] and [`Placement`]). As
//! posted writes stay ordered, a driver that sees a completion of the new queue can see all of the old one's. Rules are
//! only removed for flows that are idle.

use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::Range;

use platform::net::FlowKey;
use units::Time;
use wire::ethernet::MacAddr;
use wire::ip::{Flow, protocol};
use wire::nic::Toeplitz;
use wire::nic::registers::{flow, rss};
use wire::nic::toeplitz::KEY_LEN;

/// What a rule matches of a packet, all of it exactly, if rules can match it: IPv4 with ports.
fn key_of(flow: &Flow) -> Option<FlowKey> {
    match (flow.source, flow.destination, flow.ports) {
        (IpAddr::V4(source), IpAddr::V4(destination), Some(ports)) => Some(FlowKey {
            protocol: flow.protocol,
            source: source.octets(),
            destination: destination.octets(),
            ports,
        }),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug)]
struct Rule<K> {
    key: K,
    target: u16,
    used: Time,
    hits: u32,
    /// Where the flow's last frame went; `None` if the rule is new.
    last: Option<Placement>,
}

/// A frame's place in a queue: function, queue, and the queue's frame count including this frame.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub function: u8,
    pub queue: u16,
    pub count: u32,
}

/// What a frame has to stay behind.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// What the function itself knows of the flow.
    Any,
    /// The flow's last frame, at the same function, which may have forgotten it.
    Behind(Placement),
    /// Frames of its flow that wait at this queue, whatever the function's rules say.
    InQueue(u16),
    /// All earlier writes of another function's queue.
    Fenced(Placement),
}

/// A rule that matches.
#[derive(Debug)]
pub struct Match<'a> {
    pub number: u16,
    pub target: u16,
    pub last: &'a mut Option<Placement>,
}

/// A table of rules with limited size, numbered by the driver.
pub struct RuleTable<K> {
    /// Rule numbers are below this.
    size: u16,
    /// Allocated up to the highest number used so far.
    rules: Vec<Option<Rule<K>>>,
    /// Only used for lookup, never iterated, so the hash order has no effect.
    by_key: FxHashMap<K, u16>,
}

/// Flow rules.
pub type FlowTable = RuleTable<FlowKey>;

/// Rules for Ethernet addresses.
pub type AddressTable = RuleTable<MacAddr>;

impl<K: Copy + Eq + Hash> RuleTable<K> {
    pub fn new(size: u16) -> Self {
        Self { size, rules: Vec::new(), by_key: FxHashMap::default() }
    }

    /// Adds rule `number`, replacing any rule with the same number or key. Returns the result code for the register.
    pub fn add(&mut self, now: Time, number: u32, key: K, target: u16) -> u32 {
        if number >= self.size.into() {
            return flow::RESULT_RANGE;
        }
        if number as usize >= self.rules.len() {
            self.rules.resize(number as usize + 1, None);
        }
        let last = self.by_key.get(&key).and_then(|&old| self.rules[usize::from(old)].as_ref()?.last);
        self.remove(number);
        if let Some(old) = self.by_key.insert(key, number as u16) {
            self.rules[usize::from(old)] = None;
        }
        self.rules[number as usize] = Some(Rule { key, target, used: now, hits: 0, last });
        flow::RESULT_OK
    }

    /// Removes rule `number`.
    pub fn remove(&mut self, number: u32) -> u32 {
        if number >= self.size.into() {
            return flow::RESULT_RANGE;
        }
        match self.rules.get_mut(number as usize).and_then(Option::take) {
            None => flow::RESULT_NONE,
            Some(rule) => {
                self.by_key.remove(&rule.key);
                flow::RESULT_OK
            }
        }
    }

    /// Microseconds since rule `number` was last used, and its use count.
    pub fn query(&self, now: Time, number: u32) -> Option<(u32, u32)> {
        let rule = self.rules.get(number as usize)?.as_ref()?;
        let age = now.since(rule.used).as_ps() / 1_000_000;
        Some((u32::try_from(age).unwrap_or(u32::MAX), rule.hits))
    }

    /// Whether there is a rule for a key.
    pub fn has(&self, key: K) -> bool {
        !self.by_key.is_empty() && self.by_key.contains_key(&key)
    }

    /// Looks up a key and counts the use.
    #[inline]
    fn find_key(&mut self, now: Time, key: impl FnOnce() -> Option<K>) -> Option<Match<'_>> {
        if self.by_key.is_empty() {
            return None;
        }
        let number = *self.by_key.get(&key()?)?;
        let rule = self.rules[usize::from(number)].as_mut()?;
        rule.used = now;
        rule.hits = rule.hits.saturating_add(1);
        Some(Match { number, target: rule.target, last: &mut rule.last })
    }

    /// Removes all rules in a range of numbers.
    pub fn remove_range(&mut self, numbers: std::ops::Range<u32>) {
        for number in numbers.start..numbers.end.min(self.rules.len() as u32) {
            self.remove(number);
        }
    }
}

impl AddressTable {
    /// The rule that matches a frame's destination.
    #[inline]
    pub fn find(&mut self, now: Time, frame: &[u8]) -> Option<Match<'_>> {
        self.find_key(now, || frame.first_chunk().copied().map(MacAddr))
    }
}

impl FlowTable {
    /// The target of the rule for a packet. Does not count as a use.
    pub fn target_of(&self, packet: &Flow) -> Option<u16> {
        let number = *self.by_key.get(&key_of(packet)?)?;
        self.rules[usize::from(number)].as_ref().map(|rule| rule.target)
    }

    /// Records where the last frame of a flow went, if there is a rule for it.
    pub fn went(&mut self, packet: &Flow, to: Placement) {
        let number = key_of(packet).and_then(|key| self.by_key.get(&key));
        if let Some(rule) = number.and_then(|&number| self.rules[usize::from(number)].as_mut()) {
            rule.last = Some(to);
        }
    }

    /// The rule that matches a packet.
    #[inline]
    pub fn find(&mut self, now: Time, packet: &Flow) -> Option<Match<'_>> {
        self.find_key(now, || key_of(packet))
    }
}

/// Receive side scaling.
pub struct Rss {
    pub types: u32,
    pub key: [u8; KEY_LEN],
    hash: Toeplitz,
    pub table: Vec<u16>,
}

impl Rss {
    pub fn new(entries: u16) -> Self {
        let key = [0; KEY_LEN];
        let table = vec![0; usize::from(entries.max(1).next_power_of_two())];
        Self { types: 0, key, hash: Toeplitz::new(&key), table }
    }

    pub fn set_key(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.key.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
            self.hash = Toeplitz::new(&self.key);
        }
    }

    /// A packet's hash, and whether it covers ports; `None` if its packet type is not hashed.
    #[inline]
    pub fn hash(&self, packet: &Flow) -> Option<(u32, bool)> {
        let with_ports = packet.ports.is_some()
            && match packet.protocol {
                protocol::TCP => self.types & rss::TCP != 0,
                protocol::UDP => self.types & rss::UDP != 0,
                _ => false,
            };
        if !with_ports && self.types & rss::ADDRESSES == 0 {
            return None;
        }
        Some((self.hash.hash_flow(packet, with_ports), with_ports))
    }

    /// The queue for a hash.
    pub fn queue(&self, hash: u32) -> u16 {
        self.table[hash as usize & (self.table.len() - 1)]
    }
}

/// The internal switch's table, which assigns flows to functions or, if it is the card's only one, to queues. Each physical
/// function owns a range of rule numbers.
pub struct SwitchRules {
    pub table: FlowTable,
    /// Function and own number of the queues that rules name, by the number that they have there; empty if rules name functions.
    queues: Vec<Option<(u8, u16)>>,
    /// Rules per physical function.
    each: u32,
    /// Number of functions, including virtual ones.
    pub functions: u32,
}

impl SwitchRules {
    /// Creates a table with `each` rules per physical function, which name one of `queues` queues unless there are none.
    pub fn new(each: u16, physical: usize, functions: usize, queues: usize) -> Self {
        let table = FlowTable::new(each.saturating_mul(physical as u16));
        Self { table, queues: vec![None; queues], each: each.into(), functions: functions as u32 }
    }

    /// Gives a function's queue the number by which rules name it, unless another function's queue has it.
    pub fn set_number(&mut self, number: u32, function: u8, queue: u8) {
        let place = self.queues.get_mut(number as usize);
        if let Some(place) = place.filter(|place| place.is_none_or(|(of, _)| of == function)) {
            *place = Some((function, queue.into()));
        }
    }

    /// Whether a rule can have this target.
    pub fn has_target(&self, target: u32) -> bool {
        match self.queues.is_empty() {
            true => target < self.functions,
            false => self.queues.get(target as usize).is_some_and(Option::is_some),
        }
    }

    /// The function that a rule's target names, and the queue if it names one.
    pub fn place_of(&self, target: u16) -> Option<(usize, Option<u16>)> {
        match self.queues.is_empty() {
            true => Some((target.into(), None)),
            false => {
                let (function, queue) = (*self.queues.get(usize::from(target))?)?;
                Some((function.into(), Some(queue)))
            }
        }
    }

    /// The rule numbers that belong to a function; empty for a virtual one.
    pub fn part_of(&self, function: u8, is_virtual: bool) -> Range<u32> {
        let begin = u32::from(function) * self.each;
        begin..if is_virtual { begin } else { begin + self.each }
    }

    /// Removes a function's rules and the numbers of its queues.
    pub fn forget(&mut self, function: u8, is_virtual: bool) {
        self.table.remove_range(self.part_of(function, is_virtual));
        self.queues.iter_mut().for_each(|place| *place = place.filter(|&(of, _)| of != function));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use units::Duration;

    fn key(port: u16) -> FlowKey {
        FlowKey { protocol: 6, source: [127, 0, 0, 1], destination: [127, 0, 0, 1], ports: (port, 80) }
    }

    fn packet(port: u16) -> Flow {
        let address = Ipv4Addr::LOCALHOST.into();
        Flow { protocol: 6, source: address, destination: address, ports: Some((port, 80)) }
    }

    #[test]
    fn rules_are_found_replaced_aged_and_bounded() {
        let mut table = FlowTable::new(2);
        let at = |us| Time::ZERO + Duration::from_us(us);
        assert_eq!(table.add(at(0), 0, key(1), 5), flow::RESULT_OK);
        assert_eq!(table.add(at(0), 2, key(2), 5), flow::RESULT_RANGE);
        let find = |table: &mut FlowTable, us, port| {
            table.find(at(us), &packet(port)).map(|found| (found.number, found.target))
        };
        assert_eq!(find(&mut table, 10, 1), Some((0, 5)));
        assert_eq!(find(&mut table, 10, 2), None);
        assert_eq!(table.query(at(13), 0), Some((3, 1)));
        // Adding the same flow under another number removes the old rule.
        assert_eq!(table.add(at(20), 1, key(1), 6), flow::RESULT_OK);
        assert_eq!((table.query(at(20), 0), find(&mut table, 20, 1)), (None, Some((1, 6))));
        assert_eq!(table.remove(1), flow::RESULT_OK);
        assert_eq!((table.remove(1), find(&mut table, 20, 1)), (flow::RESULT_NONE, None));
    }
}
