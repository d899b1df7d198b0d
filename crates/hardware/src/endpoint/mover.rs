//! The servers inside a device that data passes: bus, memory, transmit path.

use units::{Duration, Time};

use super::params::{BusParams, DrainParams, LocalMemoryParams, TransmitParams};

/// Direction of data on the device's bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    /// Completions on their way to the device's memory.
    In,
    /// Data of writes on its way to the core.
    Out,
}

/// The path between the core and the device's memory: one direction at a time.
#[derive(Debug)]
pub struct Bus {
    params: BusParams,
    free: Time,
    last: Option<(Direction, u64)>,
}

impl Bus {
    /// A bus that is idle.
    pub fn new(params: BusParams) -> Self {
        Self { params, free: Time::ZERO, last: None }
    }

    /// Waits for the bus and turns it round if it last went the other way.
    fn take(&mut self, now: Time, direction: Direction, transfer: u64) -> Time {
        let turn = match self.last {
            Some((last, bytes)) if last != direction => {
                let beyond = bytes.saturating_sub(256) * u64::from(self.params.turn_ps_per_byte);
                (self.params.turn + Duration::from_ps(beyond)).min(self.params.longest_turn)
            }
            _ => Duration::ZERO,
        };
        self.last = Some((direction, transfer));
        self.free.max(now) + turn
    }

    /// Takes one completion of a read of `transfer` bytes in. Returns when it is through.
    pub fn take_in(&mut self, now: Time, time: Duration, transfer: u64) -> Time {
        self.free = self.take(now, Direction::In, transfer) + time;
        self.free
    }

    /// Fetches the `transfer` bytes of a write. Returns when they are at the core.
    pub fn fetch(&mut self, now: Time, transfer: u64) -> Time {
        let bytes = Duration::from_ps(transfer * u64::from(self.params.ps_per_write_byte));
        self.free = self.take(now, Direction::Out, transfer) + self.params.per_write + bytes;
        self.free
    }
}

impl DrainParams {
    /// Time to take a completion of `bytes` (header and framing included) out of the receive buffer.
    pub fn time_for(&self, bytes: u64, first: bool) -> Duration {
        let moved = bytes.next_multiple_of(u64::from(self.granule.max(1)));
        let per_request = if first { self.per_request } else { Duration::ZERO };
        per_request + self.per_completion + Duration::from_ps(moved * u64::from(self.ps_per_byte))
    }
}

/// The device's memory as a server of operations.
#[derive(Debug, Default)]
pub struct Memory {
    free: Time,
}

impl Memory {
    /// Reads the data of a write. Returns when it has been read.
    pub fn read(&mut self, now: Time, params: &LocalMemoryParams, local: u64, length: u64) -> Time {
        let operations = params.per_operation * params.read_chunks(local, length);
        self.free = self.free.max(now) + params.per_transfer + operations;
        self.free
    }

    /// Writes the data of a read whose last completion is through at `now`. Returns when it has been written.
    ///
    /// The last operation overlaps the arrival of the data: what is written first came first.
    pub fn write(
        &mut self,
        now: Time,
        params: &LocalMemoryParams,
        local: u64,
        length: u64,
        ragged: bool,
    ) -> Time {
        let (operations, chunks) = params.write_operations(local, length);
        let mut time = params.per_transfer + params.per_operation * operations.saturating_sub(1);
        if ragged && operations > chunks {
            time += params.per_ragged_chunk * chunks;
        }
        let start = Time::from_ps(now.as_ps().saturating_sub(params.per_operation.as_ps()));
        self.free = self.free.max(start) + time;
        self.free
    }
}

/// The path on which posted requests leave the core.
#[derive(Debug)]
pub struct Transmit {
    params: TransmitParams,
    free: Time,
    /// Whether the TLP before shares its last beat with the next one of its request.
    paired: bool,
}

impl Transmit {
    /// A path that is idle.
    pub fn new(params: TransmitParams) -> Self {
        Self { params, free: Time::ZERO, paired: false }
    }

    /// Sends one of a request's TLPs. Returns when it begins to leave and when the path is free again.
    pub fn send(
        &mut self,
        ready: Time,
        is_long: bool,
        payload: u64,
        first: bool,
        last: bool,
    ) -> (Time, Time) {
        let pair = !first && !self.paired;
        self.paired = pair;
        let overhead = if is_long { self.params.long_overhead } else { self.params.overhead };
        let mut bytes = payload + u64::from(overhead);
        if last && !pair {
            bytes = bytes.next_multiple_of(u64::from(self.params.beat.max(1)));
        }
        let start = self.free.max(ready);
        self.free = start + Duration::from_ps(bytes * u64::from(self.params.ps_per_byte));
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
        let mut path = Transmit::new(params);
        assert_eq!(path.send(Time::ZERO, true, 256, true, true).1.as_ps(), 320);
        let mut path = Transmit::new(params);
        path.send(Time::ZERO, true, 256, true, false);
        assert_eq!(path.send(Time::ZERO, true, 256, false, true).1.as_ps(), 608);
        let mut path = Transmit::new(params);
        path.send(Time::ZERO, true, 256, true, false);
        path.send(Time::ZERO, true, 256, false, false);
        assert_eq!(path.send(Time::ZERO, true, 256, false, true).1.as_ps(), 928);
    }

    #[test]
    fn turning_the_bus_costs_once_per_change() {
        let params = BusParams {
            per_write: Duration::from_ns(5),
            turn: Duration::from_ns(8),
            longest_turn: Duration::from_ns(46),
            ..BusParams::default()
        };
        let mut bus = Bus::new(params);
        assert_eq!(bus.take_in(Time::ZERO, Duration::from_ns(10), 64), Time::from_ps(10_000));
        assert_eq!(bus.take_in(Time::ZERO, Duration::from_ns(10), 64), Time::from_ps(20_000));
        assert_eq!(bus.fetch(Time::ZERO, 64), Time::from_ps(33_000));
        assert_eq!(bus.fetch(Time::ZERO, 64), Time::from_ps(38_000));
    }
}
