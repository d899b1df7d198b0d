//! Inter-socket links and routes.

use super::access::NodeId;
use super::counters::{ByCause, Cause, LinkCounters};
use super::params::InterconnectParams;
use super::turns::Turns;
use units::{ByteRate, Bytes, Duration, Time};

/// One direction of a link.
#[derive(Clone, Debug)]
struct LinkDirection {
    from: u8,
    to: u8,
    bandwidth: ByteRate,
    latency: Duration,
    /// Link occupancy of a message without data, and of one with a line.
    header_time: Duration,
    line_time: Duration,
    server: Turns,
    /// Bytes sent, headers included.
    bytes: ByCause,
}

/// Inter-socket network of a host.
#[derive(Clone, Debug)]
pub(super) struct Interconnect {
    nodes: usize,
    header: u64,
    data_header: u64,
    directions: Vec<LinkDirection>,
    /// First hop, indexed by source times number of nodes plus destination.
    next: Vec<u8>,
    /// Bytes sent, times the number of links crossed.
    sent: ByCause,
}

impl Interconnect {
    pub(super) fn new(params: &InterconnectParams, nodes: usize) -> Self {
        let header = params.header;
        let mut directions = Vec::new();
        for link in &params.links {
            for (a, b) in [link.between, (link.between.1, link.between.0)] {
                directions.push(LinkDirection {
                    from: a,
                    to: b,
                    bandwidth: link.bandwidth,
                    latency: link.latency,
                    header_time: link.bandwidth.time_for(header),
                    line_time: link.bandwidth.time_for(params.data_header + Bytes::new(super::LINE)),
                    server: Turns::default(),
                    bytes: ByCause::default(),
                });
            }
        }
        let next = routes(nodes, &directions);
        let (header, data_header) = (header.get(), params.data_header.get());
        Self { nodes, header, data_header, directions, next, sent: ByCause::default() }
    }

    /// Discards state that only matters before `now`.
    pub(super) fn pass(&mut self, now: Time) {
        self.directions.iter_mut().for_each(|direction| direction.server.pass(now));
    }

    /// Bytes sent in each direction of each link.
    pub(super) fn links(&self) -> Vec<LinkCounters> {
        let counters =
            |d: &LinkDirection| LinkCounters { from: NodeId(d.from), to: NodeId(d.to), bytes: d.bytes };
        self.directions.iter().map(counters).collect()
    }

    /// How long each direction was busy up to `now`, as in [`links`](Self::links).
    pub(super) fn busy(&self, now: Time) -> impl Iterator<Item = Duration> {
        self.directions.iter().map(move |direction| direction.server.busy(now))
    }

    /// Bytes sent, times the number of links crossed.
    pub(super) fn sent(&self) -> ByCause {
        self.sent
    }

    /// Sends a message without data. Returns when it arrives, which is at once if it stays.
    #[inline]
    pub(super) fn message(&mut self, at: Time, way: (NodeId, NodeId), cause: Cause) -> Time {
        let header = self.header;
        self.send(at, way, cause, header, |d| d.header_time)
    }

    /// Sends a line. Returns when it arrives.
    #[inline]
    pub(super) fn line(&mut self, at: Time, way: (NodeId, NodeId), cause: Cause) -> Time {
        let bytes = self.data_header + super::LINE;
        self.send(at, way, cause, bytes, |d| d.line_time)
    }

    /// Sends any number of bytes and a header. Returns when the last one arrives.
    pub(super) fn bytes(&mut self, at: Time, way: (NodeId, NodeId), cause: Cause, bytes: Bytes) -> Time {
        let all = bytes.get() + self.header;
        self.send(at, way, cause, all, |d| d.bandwidth.time_for(Bytes::new(all)))
    }

    /// Latency of a message without data over idle links.
    pub(super) fn latency(&self, from: NodeId, to: NodeId) -> Duration {
        let (mut here, mut sum) = (from.index(), Duration::ZERO);
        while here != to.index() {
            let direction = &self.directions[usize::from(self.next[here * self.nodes + to.index()])];
            sum += direction.header_time + direction.latency;
            here = usize::from(direction.to);
        }
        sum
    }

    #[inline]
    fn send(
        &mut self,
        mut at: Time,
        (from, to): (NodeId, NodeId),
        cause: Cause,
        bytes: u64,
        time: impl Fn(&LinkDirection) -> Duration,
    ) -> Time {
        let mut here = from.index();
        while here != to.index() {
            let taken = self.next[here * self.nodes + to.index()];
            let direction = &mut self.directions[usize::from(taken)];
            let service = time(direction);
            at = direction.server.reserve(at, service) + service + direction.latency;
            here = usize::from(direction.to);
            direction.bytes.add(cause, bytes);
            self.sent.add(cause, bytes);
        }
        at
    }
}

/// Routes with the fewest links, of these the fastest; ties go to the link listed first.
fn routes(nodes: usize, directions: &[LinkDirection]) -> Vec<u8> {
    let mut next = vec![u8::MAX; nodes * nodes];
    for to in 0..nodes {
        let mut reached = vec![false; nodes];
        let mut latency = vec![Duration::ZERO; nodes];
        reached[to] = true;
        loop {
            // All nodes one link further away than those reached so far.
            let found: Vec<(usize, usize, Duration)> = (0..nodes)
                .filter(|&n| !reached[n])
                .filter_map(|n| {
                    let leads = |(_, d): &(usize, &LinkDirection)| {
                        usize::from(d.from) == n && reached[usize::from(d.to)]
                    };
                    let all = directions.iter().enumerate().filter(leads);
                    let took = all.map(|(number, d)| (number, d.latency + latency[usize::from(d.to)]));
                    took.min_by_key(|&(_, took)| took).map(|(number, took)| (n, number, took))
                })
                .collect();
            if found.is_empty() {
                break;
            }
            for (n, d, took) in found {
                reached[n] = true;
                latency[n] = took;
                next[n * nodes + to] = d as u8;
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::super::params::InterconnectLink;
    use super::*;

    fn ring_of_four() -> Interconnect {
        Interconnect::new(&params(), 4)
    }

    fn params() -> InterconnectParams {
        let link = |a, b| InterconnectLink {
            between: (a, b),
            bandwidth: ByteRate::gb_per_s(8),
            latency: Duration::from_ns(30),
        };
        InterconnectParams {
            links: vec![link(0, 1), link(1, 2), link(2, 3), link(3, 0)],
            header: Bytes::new(8),
            data_header: Bytes::new(16),
            home_agent: Duration::ZERO,
            snoop: super::super::params::SnoopMode::Directory,
            io_directory_cache: 64,
        }
    }

    #[test]
    fn messages_take_the_shortest_way_and_are_counted_on_each_link() {
        let mut net = ring_of_four();
        let arrives = net.line(Time::ZERO, (NodeId(0), NodeId(2)), Cause::Dma);
        assert_eq!(arrives, Time::from_ps(2 * (10_000 + 30_000)));
        let used: Vec<_> = net.links().iter().map(|l| l.bytes.of(Cause::Dma).get()).collect();
        assert_eq!(used, [80, 0, 80, 0, 0, 0, 0, 0]);
        assert_eq!(net.sent().of(Cause::Dma), Bytes::new(160));
    }

    #[test]
    fn of_ways_with_as_many_links_the_fastest_is_taken() {
        let mut params = params();
        // From 0 to 2 by 3 or by 1.
        params.links[0].latency = Duration::from_ns(40);
        params.links[1].latency = Duration::from_ns(30);
        params.links[2].latency = Duration::from_ns(10);
        let mut net = Interconnect::new(&params, 4);
        net.line(Time::ZERO, (NodeId(0), NodeId(2)), Cause::Dma);
        let used: Vec<_> = net.links().iter().map(|l| l.bytes.of(Cause::Dma).get()).collect();
        assert_eq!(used, [0, 0, 0, 0, 0, 80, 0, 80]);
    }

    #[test]
    fn directions_do_not_disturb_each_other_and_one_direction_queues() {
        let mut net = ring_of_four();
        let (there, back) = ((NodeId(0), NodeId(1)), (NodeId(1), NodeId(0)));
        let mut line = |way| net.line(Time::ZERO, way, Cause::Core).as_ps();
        assert_eq!(line(there), 40_000);
        assert_eq!(line(back), 40_000);
        assert_eq!(line(there), 50_000);
    }
}
