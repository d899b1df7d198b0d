//! The internal switch (MPFS): which functions behind a port a frame is for, whether it came from the wire or one of them.

use std::collections::VecDeque;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::Time;
use wire::ethernet::{EthernetHeader, FCS_LEN, MacAddr};
use wire::ip::{Dissection, Flow};
use wire::nic::registers::{counter, feature};

use super::Nic;
use super::token::{Kind, Note};

/// Marks timers of frames between functions.
pub(super) const INSIDE: u16 = 1;

/// Frames between functions: when they arrive, and from which.
pub(super) type Inside = VecDeque<(Time, u8, Vec<u8>)>;

impl Nic {
    /// The function behind a port to which a frame is addressed.
    fn owner_of(
        &mut self,
        bus: &dyn DeviceBus,
        port: EthernetPort,
        to: MacAddr,
        flow: Option<&Flow>,
    ) -> Option<usize> {
        if to.is_multicast() {
            return None;
        }
        let ours = |f: &super::NicFunction| f.port() == port && f.mac == to && f.is_known();
        let by_rule = flow.and_then(|flow| self.switch_rules.find(bus.now(), flow));
        by_rule
            .map(|found| usize::from(found.target))
            .filter(|&f| self.functions.get(f).is_some_and(ours))
            .or_else(|| self.functions.iter().position(ours))
    }

    /// Whether a function wants a frame that came to a port, or was sent behind it by `from`.
    fn wants(
        &self,
        function: usize,
        port: EthernetPort,
        to: MacAddr,
        owner: Option<usize>,
        from: Option<u8>,
    ) -> bool {
        let state = &self.functions[function];
        let wants = owner == Some(function)
            || to.is_broadcast()
            || (to.is_multicast() && state.has(feature::ALL_GROUPS))
            || state.has(feature::PROMISCUOUS);
        state.port() == port && state.enabled && wants && from != Some(function as u8)
    }

    /// Gives a frame, without check sequence, to the functions behind a port that it is for.
    pub(super) fn distribute(
        &mut self,
        bus: &mut dyn DeviceBus,
        port: EthernetPort,
        frame: &[u8],
        from: Option<u8>,
    ) {
        let Ok((header, _)) = EthernetHeader::parse(frame) else { return };
        let parts = Dissection::of(frame);
        let to = header.destination;
        let owner = self.owner_of(bus, port, to, parts.as_ref().map(|parts| &parts.flow));
        let mut found = false;
        for function in 0..self.functions.len() {
            if self.wants(function, port, to, owner, from) {
                found = true;
                self.deliver(bus, function as u8, frame, parts);
            }
        }
        if !found && from.is_none() {
            let first = self.functions.iter().position(|f| f.port() == port).unwrap_or(0);
            self.handle.add(first as u8, counter::RX_FILTERED, 1);
        }
    }

    /// Whether a virtual function sends in another's name.
    pub(super) fn is_spoofed(&self, from: u8, frame: &[u8]) -> bool {
        let state = &self.functions[usize::from(from)];
        state.physical.is_some()
            && EthernetHeader::parse(frame).is_ok_and(|(header, _)| header.source != state.mac)
    }

    /// Lets a frame that a function sends, check sequence included, go to others behind the same port that want it. Gives
    /// whether it has to go to the wire as well.
    pub(super) fn send_inside(&mut self, bus: &mut dyn DeviceBus, from: u8, frame: &[u8]) -> bool {
        let port = self.functions[usize::from(from)].port();
        let frame = &frame[..frame.len() - FCS_LEN];
        let behind =
            |(n, f): (usize, &super::NicFunction)| n != usize::from(from) && f.port() == port && f.is_known();
        let Ok((header, _)) = EthernetHeader::parse(frame) else { return true };
        if !self.functions.iter().enumerate().any(behind) {
            return true;
        }
        let (to, parts) = (header.destination, Dissection::of(frame));
        let owner = self.owner_of(bus, port, to, parts.as_ref().map(|parts| &parts.flow));
        if (0..self.functions.len()).any(|function| self.wants(function, port, to, owner, Some(from))) {
            self.pass_inside(bus, from, frame);
        }
        owner.is_none_or(|owner| from == owner as u8)
    }

    /// Lets a frame from a function pass the internal switch, from the sending half to the receiving one: it takes what both
    /// take of a frame on the wire.
    pub(super) fn pass_inside(&mut self, bus: &mut dyn DeviceBus, from: u8, frame: &[u8]) {
        let arrives = bus.now() + self.params.tx.latency + self.params.rx.latency;
        let mut bytes = self.sender.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        self.inside.push_back((arrives, from, bytes));
        bus.wake_at(arrives, Note::new(Kind::Loopback, 0, 0, 0).with(0, INSIDE).token());
    }

    /// It has passed.
    pub(super) fn come_inside(&mut self, bus: &mut dyn DeviceBus) {
        if self.inside.front().is_some_and(|(at, ..)| *at <= bus.now())
            && let Some((_, from, frame)) = self.inside.pop_front()
        {
            let port = self.functions[usize::from(from)].port();
            self.distribute(bus, port, &frame, Some(from));
            self.sender.spare.push(frame);
        }
    }
}
