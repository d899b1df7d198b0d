//! I/O stacks: groups of lanes whose root ports share the places for lines that devices write.

use engine::WaitTime;
use units::{Duration, Time};

use crate::memory::NodeId;

/// A root port's share of an I/O stack.
#[derive(Clone, Copy, Debug)]
pub struct StackParams {
    /// Lanes of the whole stack, which its ports share.
    pub lanes: u32,
    /// Lanes of the stack that belong to the port.
    pub own_lanes: u32,
    /// Lines of devices' writes that a stack can have in flight.
    pub write_places: usize,
}

/// A stack. Ports are added until its lanes are used up.
pub(super) struct Stack {
    node: NodeId,
    free_lanes: u32,
    pub writes: WritePlaces,
}

impl Stack {
    /// Assigns a stack to a new port of `node`: the last one if it has lanes left, or a new one.
    pub fn join(stacks: &mut Vec<Self>, node: NodeId, port: &StackParams) -> usize {
        let fits = |stack: &Self| stack.node == node && stack.free_lanes >= port.own_lanes;
        let number = stacks.iter().rposition(fits).unwrap_or_else(|| {
            let writes = WritePlaces::new(port.write_places);
            stacks.push(Self { node, free_lanes: port.lanes.max(port.own_lanes), writes });
            stacks.len() - 1
        });
        stacks[number].free_lanes -= port.own_lanes;
        number
    }
}

/// Places of lines being written, held from a request's arrival until a cache or memory has accepted the line. Released
/// in the order of allocation, since posted writes complete in order.
pub(super) struct WritePlaces {
    /// When each place becomes free.
    free: Box<[Time]>,
    oldest: usize,
    waited: WaitTime,
}

impl WritePlaces {
    pub fn new(places: usize) -> Self {
        Self { free: vec![Time::ZERO; places.max(1)].into(), oldest: 0, waited: WaitTime::default() }
    }

    /// When a place is free for a line that arrives at `at` and waits for it.
    pub fn free_at(&mut self, at: Time) -> Time {
        let free = at.max(self.free[self.oldest]);
        self.waited.pass(at, free);
        free
    }

    /// How long lines have waited for places until `now`.
    pub fn waited(&self, now: Time) -> Duration {
        self.waited.until(now)
    }

    /// Holds the oldest place until the line has been accepted at `taken`.
    pub fn occupy(&mut self, taken: Time) {
        self.free[self.oldest] = taken;
        self.oldest = (self.oldest + 1) % self.free.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: StackParams = StackParams { lanes: 16, own_lanes: 4, write_places: 2 };

    #[test]
    fn four_ports_of_four_lanes_share_a_stack_of_their_socket() {
        let mut stacks = Vec::new();
        let mut join =
            |node, own_lanes| Stack::join(&mut stacks, NodeId(node), &StackParams { own_lanes, ..PORT });
        assert_eq!([0, 0, 0, 0, 0].map(|node| join(node, 4)), [0, 0, 0, 0, 1]);
        assert_eq!((join(1, 4), join(0, 16), join(0, 8), join(0, 4)), (2, 3, 1, 1));
    }

    #[test]
    fn without_a_place_a_line_waits_for_the_oldest() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let mut places = WritePlaces::new(2);
        places.occupy(at(100));
        assert_eq!(places.free_at(at(10)), at(10));
        places.occupy(at(90));
        assert_eq!((places.free_at(at(20)), places.free_at(at(120))), (at(100), at(120)));
        places.occupy(at(200));
        assert_eq!(places.free_at(at(20)), at(90));
    }
}
