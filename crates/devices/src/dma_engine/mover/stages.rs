//! The stages inside the card that data passes: bus, memory, transmit path.

use engine::Busy;
use units::{Duration, Time, steps};

use platform::mover::Outgoing;

use super::params::{BusParams, DrainParams, LocalMemoryParams, TransmitParams};

/// Direction of data on the card's bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BusDirection {
    /// Completions to the card's memory.
    In,
    /// Write data to the core.
    Out,
}

/// The bus between the core and the card's memory, shared by both directions.
///
/// It serves a single direction without interruption. If data came in before a write's data is fetched, that fetch is
/// interrupted by further incoming data, and pays for two turnarounds per burst.
#[derive(Debug)]
pub struct Bus {
    params: BusParams,
    free: Time,
    last: BusDirection,
    /// Busy time.
    pub busy: Busy,
}

impl Bus {
    /// An idle bus.
    pub fn new(params: BusParams) -> Self {
        Self { params, free: Time::ZERO, last: BusDirection::Out, busy: Busy::default() }
    }

    /// Moves `bytes`: an incoming completion, or the data of a whole write. Returns when the transfer ends.
    pub fn pass(&mut self, now: Time, direction: BusDirection, bytes: u64) -> Time {
        let mut time = Duration::from_ps(bytes * u64::from(self.params.ps_per_byte));
        if direction == BusDirection::Out && self.last == BusDirection::In {
            let both_ways = self.params.turn.as_ps() * 2;
            let burst = u64::from(self.params.burst.max(1));
            let is_interrupted = bytes > burst && bytes <= u64::from(self.params.longest_interrupted);
            // The last burst of a transfer shares its turnaround with the next one, so on average a partial burst pays
            // in proportion.
            time += Duration::from_ps(if is_interrupted { both_ways * bytes / burst } else { both_ways });
        }
        self.last = direction;
        self.busy.add(now, time);
        self.free = self.free.max(now) + time;
        self.free
    }
}

/// Drains completions from the receive buffer, one after the other.
#[derive(Debug)]
pub struct Drain {
    params: DrainParams,
    free: Time,
    /// Time of draining or of giving way to writes.
    pub busy: Busy,
}

impl Drain {
    /// An idle drain.
    pub fn new(params: DrainParams) -> Self {
        Self { params, free: Time::ZERO, busy: Busy::default() }
    }

    /// Drains a completion of `wire_bytes`. Returns when it is done.
    pub fn take(&mut self, now: Time, wire_bytes: u64, first: bool) -> Time {
        let time = self.params.time_for(wire_bytes, first);
        self.busy.add(now, time);
        self.free = self.free.max(now) + time;
        self.free
    }

    /// Accounts for the drain time lost while a write of `bytes` is fetched.
    pub fn give_way(&mut self, now: Time, bytes: u64) {
        let taken = Duration::from_ps(bytes * u64::from(self.params.ps_per_written_byte));
        if !taken.is_zero() {
            self.busy.add(now, taken);
            self.free = self.free.max(now) + taken;
        }
    }
}

impl DrainParams {
    /// Time to drain a completion of `bytes` (header and framing included).
    fn time_for(&self, bytes: u64, first: bool) -> Duration {
        let moved = steps::up(bytes, self.granule.max(1).into());
        let per_request = if first { self.per_request } else { Duration::ZERO };
        per_request + self.per_completion + Duration::from_ps(moved * u64::from(self.ps_per_byte))
    }
}

/// The card's memory as a server of operations, with one read port and one write port.
#[derive(Debug, Default)]
pub struct Memory {
    read_free: Time,
    write_free: Time,
    /// Busy time of the read and the write port.
    pub busy: [Busy; 2],
}

impl Memory {
    /// Reads the data of a write. Returns when it has been read.
    pub fn read(&mut self, now: Time, params: &LocalMemoryParams, local: u64, length: u64) -> Time {
        let operations = params.per_operation * params.read_chunks(local, length);
        let time = params.per_transfer + operations;
        self.busy[0].add(now, time);
        self.read_free = self.read_free.max(now) + time;
        self.read_free
    }

    /// Writes the data of a read whose last completion arrived at `now`. Returns when it has been written.
    ///
    /// Earlier data was written while the rest arrived, so only the last operation remains.
    pub fn write(
        &mut self,
        now: Time,
        params: &LocalMemoryParams,
        local: u64,
        length: u64,
        ragged: bool,
    ) -> Time {
        let (operations, chunks) = params.write_operations(local, length);
        let mut time = params.per_operation * operations.saturating_sub(1);
        if ragged && operations > chunks {
            time += params.per_ragged_chunk * chunks;
        }
        self.write_for(now, params, time)
    }

    /// [`write`](Self::write) for data that one operation writes.
    #[inline]
    pub fn write_once(&mut self, now: Time, params: &LocalMemoryParams) -> Time {
        self.write_for(now, params, Duration::ZERO)
    }

    /// Writes data for `time` beyond what every transfer takes.
    #[inline]
    fn write_for(&mut self, now: Time, params: &LocalMemoryParams, time: Duration) -> Time {
        let time = params.per_transfer + time;
        let start = Time::from_ps(now.as_ps().saturating_sub(params.per_operation.as_ps()));
        self.busy[1].add(now, time);
        self.write_free = self.write_free.max(start) + time;
        self.write_free
    }
}

/// Transmit path for posted requests from the core.
#[derive(Debug)]
pub struct Transmit {
    params: TransmitParams,
    free: Time,
    /// Whether the previous TLP shares its last beat with the next one of its request.
    paired: bool,
    /// Busy time.
    pub busy: Busy,
}

impl Transmit {
    /// An idle path.
    pub fn new(params: TransmitParams) -> Self {
        Self { params, free: Time::ZERO, paired: false, busy: Busy::default() }
    }

    /// Sends one TLP of a request, none larger than `max_payload`. Returns when it begins to leave, and when the path
    /// is free again.
    pub fn send(&mut self, now: Time, ready: Time, tlp: &Outgoing) -> (Time, Time) {
        let &Outgoing { is_long, payload, max_payload, first, last } = tlp;
        let is_second = !first && !self.paired;
        self.paired = is_second;
        let overhead = if is_long { self.params.long_overhead } else { self.params.overhead };
        let mut bytes = payload + u64::from(overhead);
        // A full second TLP follows the first directly; any other TLP ends its beat.
        if last && !(is_second && payload >= max_payload) {
            bytes = steps::up(bytes, self.params.beat.max(1).into());
        }
        let start = self.free.max(ready);
        let time = Duration::from_ps(bytes * u64::from(self.params.ps_per_byte));
        self.busy.add(now, time);
        self.free = start + time;
        (start, self.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_tlp_is_padded_to_a_beat() {
        // The NFP-6000's 256-byte writes with a four-doubleword header: 320 bytes alone, 608 for two.
        let params = TransmitParams { ps_per_byte: 1, overhead: 40, long_overhead: 48, beat: 32 };
        let tlp = |first, last| Outgoing { is_long: true, payload: 256, max_payload: 256, first, last };
        let mut path = Transmit::new(params);
        assert_eq!(path.send(Time::ZERO, Time::ZERO, &tlp(true, true)).1.as_ps(), 320);
        let mut path = Transmit::new(params);
        path.send(Time::ZERO, Time::ZERO, &tlp(true, false));
        assert_eq!(path.send(Time::ZERO, Time::ZERO, &tlp(false, true)).1.as_ps(), 608);
        let mut path = Transmit::new(params);
        path.send(Time::ZERO, Time::ZERO, &tlp(true, false));
        path.send(Time::ZERO, Time::ZERO, &tlp(false, false));
        assert_eq!(path.send(Time::ZERO, Time::ZERO, &tlp(false, true)).1.as_ps(), 928);
    }

    #[test]
    fn changing_the_direction_costs_once_per_burst() {
        let params =
            BusParams { ps_per_byte: 100, turn: Duration::from_ns(5), burst: 256, longest_interrupted: 1024 };
        let mut bus = Bus::new(params);
        assert_eq!(bus.pass(Time::ZERO, BusDirection::Out, 256), Time::from_ps(25_600));
        assert_eq!(bus.pass(Time::ZERO, BusDirection::In, 256), Time::from_ps(51_200));
        assert_eq!(bus.pass(Time::ZERO, BusDirection::Out, 512), Time::from_ps(51_200 + 51_200 + 20_000));
        let done = bus.pass(Time::ZERO, BusDirection::In, 256);
        assert_eq!(bus.pass(Time::ZERO, BusDirection::Out, 2048).since(done).as_ps(), 204_800 + 10_000);
    }
}
