//! Quadrants of an I/O die: groups of root ports that share one way to memory.

use units::{ByteRate, Bytes, Duration, Time};

use crate::memory::{LINE, NodeId, Server};

/// A root port's quadrant.
#[derive(Clone, Copy, Debug)]
pub struct QuadrantParams {
    /// Its number on the die.
    pub number: u8,
    /// What its ports can read from memory together, and write to it at the same time.
    pub rate: ByteRate,
}

/// A quadrant's way to memory.
pub(super) struct Quadrant {
    node: NodeId,
    number: u8,
    /// How long a line takes it.
    line: Duration,
    reads: Server,
    writes: Server,
}

impl Quadrant {
    /// Assigns a port of `node` to its quadrant.
    pub fn join(quadrants: &mut Vec<Self>, node: NodeId, port: &QuadrantParams) -> usize {
        let is_own = |quadrant: &Self| quadrant.node == node && quadrant.number == port.number;
        quadrants.iter().position(is_own).unwrap_or_else(|| {
            let line = port.rate.time_for(Bytes::new(LINE));
            let (reads, writes) = (Server::default(), Server::default());
            quadrants.push(Self { node, number: port.number, line, reads, writes });
            quadrants.len() - 1
        })
    }

    /// When a line that memory gives at `at` is at the port.
    pub fn read(&mut self, at: Time) -> Time {
        self.reads.reserve(at, self.line) + self.line
    }

    /// When a line that leaves the port at `at` is at memory.
    pub fn write(&mut self, at: Time) -> Time {
        self.writes.reserve(at, self.line) + self.line
    }

    /// A port's quadrant, if it has one, for a request that is handled at `now`: no line arrives before.
    pub fn of(quadrants: &mut [Self], number: Option<usize>, now: Time) -> Option<&mut Self> {
        let quadrant = &mut quadrants[number?];
        quadrant.reads.pass(now);
        quadrant.writes.pass(now);
        Some(quadrant)
    }

    /// How long reads and writes have used it until `now`.
    pub fn busy(&self, now: Time) -> [Duration; 2] {
        [self.reads.busy(now), self.writes.busy(now)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_quadrant_share_its_rate_in_each_direction() {
        let port = |number| QuadrantParams { number, rate: ByteRate::gb_per_s(64) };
        let mut quadrants = Vec::new();
        let mut join = |node, number| Quadrant::join(&mut quadrants, NodeId(node), &port(number));
        assert_eq!((join(0, 0), join(0, 1), join(0, 0), join(1, 0)), (0, 1, 0, 2));
        let at = |ns: u64| Time::from_ps(ns * 1000);
        assert_eq!((quadrants[0].read(at(10)), quadrants[0].read(at(10))), (at(11), at(12)));
        assert_eq!((quadrants[0].write(at(10)), quadrants[1].read(at(10))), (at(11), at(11)));
        assert_eq!(quadrants[0].busy(at(20)), [Duration::from_ns(2), Duration::from_ns(1)]);
    }
}
