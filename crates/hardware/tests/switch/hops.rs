//! What a protocol analyser on each link of a tree sees: credits kept on every link, order and completeness in every
//! switch.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use engine::Trace;
use hardware::link::{LinkEnd, LinkId, Packet, Passed, Side};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use units::Time;
use wire::pcie::{Dllp, FlowClass, Passing, Tlp, may_pass};

use super::tree::Tree;

/// Sizes of the counters of headers and data (base spec 2.6.1).
const COUNTERS: [u32; 2] = [1 << 8, 1 << 12];

/// Analysers on all links of a tree.
pub struct Analysers {
    /// By link.
    passed: Vec<Rc<RefCell<Vec<Passed>>>>,
}

/// A TLP on a link.
struct Seen {
    tlp: Tlp,
    bytes: Box<[u8]>,
}

impl Analysers {
    /// Connects them, while nothing is in flight.
    pub fn connect(tree: &Tree) -> Self {
        let passed = tree.simulation.with(|fabric, _| {
            let links = (0..fabric.wires.len() as u16).map(LinkId);
            let connect = |link| {
                let (trace, passed) = Trace::collect();
                fabric.wires.tap(link, trace);
                passed
            };
            links.map(connect).collect()
        });
        Self { passed }
    }

    /// All TLPs that left `end`, in order.
    fn sent(&self, end: LinkEnd) -> Vec<Seen> {
        let passed = self.passed[usize::from(end.link.0)].borrow();
        let tlps = passed.iter().filter(|passed| passed.from == end.side).filter_map(|passed| match &passed
            .packet
        {
            Packet::Tlp { bytes, .. } => {
                Some(Seen { tlp: Tlp::parse(bytes).expect("links carry TLPs").0, bytes: bytes.clone() })
            }
            Packet::Dllp(_) => None,
        });
        tlps.collect()
    }

    /// Checks that no TLP left an end without credits that the other end had granted and that had arrived.
    pub fn check_credits(&self, tree: &Tree) -> Result<(), TestCaseError> {
        for (number, passed) in (0..).zip(&self.passed) {
            let params = tree.simulation.with(|fabric, _| fabric.wires.link(LinkId(number)).params().clone());
            for from in Side::BOTH {
                let receiver = &params.receivers[from.opposite() as usize];
                for class in FlowClass::ALL {
                    let Some(first) = receiver.credits.of(class) else { continue };
                    let mut limit = [first.header, first.data];
                    let mut used = [0; 2];
                    let passed = passed.borrow();
                    let mut granted: Vec<(Time, [u32; 2])> =
                        passed.iter().filter_map(|passed| grant(passed, from.opposite(), class)).collect();
                    granted.iter_mut().for_each(|(at, _)| *at += params.latency);
                    granted.sort_by_key(|&(at, _)| at);
                    let mut granted = granted.into_iter().peekable();
                    for sent in passed.iter().filter(|sent| sent.from == from) {
                        let Packet::Tlp { bytes, .. } = &sent.packet else { continue };
                        let (of, headers, data) = Tlp::parse(bytes).expect("links carry TLPs").0.credits();
                        if of != class {
                            continue;
                        }
                        while let Some((_, now)) = granted.next_if(|&(at, _)| at <= sent.at) {
                            limit = now;
                        }
                        used = [used[0] + u32::from(headers), used[1] + u32::from(data)];
                        for ((limit, used), size) in limit.into_iter().zip(used).zip(COUNTERS) {
                            // A transmitter's test: base spec 2.6.1.2.
                            let is_covered = limit.wrapping_sub(used) % size <= size / 2;
                            prop_assert!(
                                is_covered,
                                "link {number}, {class:?}: {used} of {limit} at {}",
                                sent.at
                            );
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that each TLP that entered a switch left it once and unchanged, unless it was for the switch itself, and
    /// that none passed another that it must not pass.
    pub fn check_switches(&self, tree: &Tree) -> Result<(), TestCaseError> {
        for &switch in &tree.switches {
            let ends: Vec<LinkEnd> = tree
                .simulation
                .with(|fabric, _| fabric.switch(switch).ports().iter().map(|port| port.end()).collect());
            let left: Vec<Vec<Seen>> = ends.iter().map(|&end| self.sent(end)).collect();
            // Where each TLP left, the first of equal ones first.
            let mut exits: HashMap<&[u8], Vec<(usize, usize)>> = HashMap::new();
            for (port, left) in left.iter().enumerate() {
                for (place, seen) in left.iter().enumerate().rev() {
                    exits.entry(&seen.bytes).or_default().push((port, place));
                }
            }
            for end in &ends {
                let came = self.sent(end.opposite());
                let mut before: Vec<Vec<(usize, &Tlp)>> = ends.iter().map(|_| Vec::new()).collect();
                for seen in &came {
                    let Some((port, place)) = exits.get_mut(&*seen.bytes).and_then(Vec::pop) else {
                        prop_assert!(false, "{:?} entered at {:?} and did not leave", seen.tlp, end);
                        unreachable!();
                    };
                    let passed = before[port].iter().find(|&&(other, earlier)| {
                        other > place && may_pass(&seen.tlp, earlier) == Passing::MustNot
                    });
                    prop_assert!(passed.is_none(), "{:?} passed {:?}", seen.tlp, passed);
                    before[port].push((place, &seen.tlp));
                }
            }
            let rest: usize = exits.values().map(Vec::len).sum();
            prop_assert_eq!(rest, 0, "nothing leaves that did not enter");
        }
        Ok(())
    }
}

/// When the wire had carried a grant of `class` from `receiver`, and the total that it granted.
fn grant(passed: &Passed, receiver: Side, class: FlowClass) -> Option<(Time, [u32; 2])> {
    let Packet::Dllp(bytes) = &passed.packet else { return None };
    match Dllp::parse(bytes) {
        Ok(Dllp::FlowControl(grant)) if passed.from == receiver && grant.class == class => {
            Some((passed.until, [grant.header_credits(), grant.data_credits()]))
        }
        _ => None,
    }
}
