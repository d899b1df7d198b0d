//! Plain transfers between device and host memory.

use crate::Link;
use units::{BitRate, Bytes};

/// Direction of the device's transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Writes to host memory.
    Write,
    /// Reads from host memory.
    Read,
    /// One write for every read; rates are per direction.
    Both,
}

/// Wire bytes in the two directions of a link, for some unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct WireBytes {
    /// From the device to the host.
    pub(crate) up: f64,
    /// From the host to the device.
    pub(crate) down: f64,
}

impl WireBytes {
    /// A write of `size` bytes by the device.
    pub(crate) fn device_write(link: &Link, size: u64) -> Self {
        Self { up: (size.div_ceil(link.mps()) * link.request_overhead() + size) as f64, down: 0.0 }
    }

    /// A read of `size` bytes by the device, answered in completions of up to the MPS.
    pub(crate) fn device_read(link: &Link, size: u64) -> Self {
        Self {
            up: (size.div_ceil(link.mrrs()) * link.request_overhead()) as f64,
            down: (size.div_ceil(link.mps()) * link.completion_overhead() + size) as f64,
        }
    }

    /// A write of a register by the host.
    pub(crate) fn host_write(link: &Link, size: u64) -> Self {
        Self { up: 0.0, down: (link.request_overhead() + size) as f64 }
    }

    /// A read of a register by the host.
    pub(crate) fn host_read(link: &Link, size: u64) -> Self {
        Self { up: (link.completion_overhead() + size) as f64, down: link.request_overhead() as f64 }
    }

    /// One `n`th: the share per packet of an action that happens every `n` packets.
    pub(crate) fn every(self, n: u32) -> Self {
        Self { up: self.up / f64::from(n), down: self.down / f64::from(n) }
    }

    /// Rate of `payload` bytes that cost these wire bytes each, limited by the fuller direction.
    pub(crate) fn goodput(self, link: &Link, payload: u64) -> BitRate {
        let wire = self.up.max(self.down);
        BitRate::from_bits_per_s((link.tlp_bits_per_s() * payload as f64 / wire).round() as u64)
    }
}

impl core::ops::Add for WireBytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { up: self.up + other.up, down: self.down + other.down }
    }
}

impl Link {
    /// The effective bandwidth of back-to-back transfers of `size`, aligned.
    ///
    /// # Panics
    /// If `size` is zero.
    pub fn goodput(&self, direction: Direction, size: Bytes) -> BitRate {
        let size = size.get();
        assert!(size > 0, "a transfer has bytes");
        let write = WireBytes::device_write(self, size);
        let read = WireBytes::device_read(self, size);
        match direction {
            Direction::Write => write,
            Direction::Read => read,
            Direction::Both => write + read,
        }
        .goodput(self, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;
    use proptest::prelude::*;

    fn gbit(direction: Direction, size: u64) -> f64 {
        Link::gen3_x8().goodput(direction, Bytes::new(size)).as_gbit_per_s_f64()
    }

    #[test]
    fn check_values_of_the_public_model() {
        let table =
            [(64, [42.10, 44.10, 33.08]), (256, [52.92, 53.69, 48.75]), (1024, [52.92, 53.69, 50.75])];
        for (size, values) in table {
            for (direction, value) in
                [Direction::Write, Direction::Read, Direction::Both].into_iter().zip(values)
            {
                let got = gbit(direction, size);
                assert!((got - value).abs() < 0.006, "{direction:?} {size}: {got}");
            }
        }
    }

    /// One byte more than the payload size costs a whole header.
    #[test]
    fn goodput_falls_past_each_boundary() {
        assert!(gbit(Direction::Write, 257) < gbit(Direction::Write, 256));
        assert!(gbit(Direction::Read, 257) < gbit(Direction::Read, 256));
    }

    fn links() -> impl Strategy<Value = Link> {
        let lanes = prop::sample::select(vec![1u32, 2, 4, 8, 12, 16, 32]);
        (0usize..5, lanes, 7u32..13, 7u32..13).prop_map(|(generation, lanes, mps, mrrs)| {
            let size = |shift: u32| Bytes::new(1 << shift);
            Link::new(Generation::ALL[generation], lanes, size(mps), size(mrrs)).unwrap()
        })
    }

    proptest! {
        #[test]
        fn nothing_exceeds_the_link(link in links(), size in 1u64..9000) {
            let size = Bytes::new(size);
            for direction in [Direction::Write, Direction::Read, Direction::Both] {
                prop_assert!(link.goodput(direction, size) < link.tlp_rate());
                prop_assert!(link.tlp_rate() < link.raw_rate());
            }
            prop_assert!(link.goodput(Direction::Both, size) <= link.goodput(Direction::Write, size));
            prop_assert!(link.goodput(Direction::Both, size) <= link.goodput(Direction::Read, size));
        }
    }
}
