//! Congestion control: limits the data in flight.

mod cubic;
mod reno;

use units::{Duration, Time};

pub use cubic::Cubic;
pub use reno::Reno;

/// An acknowledgement of new data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// Arrival time.
    pub now: Time,
    /// Bytes acknowledged.
    pub bytes: u64,
    /// The smoothed round-trip time, if known.
    pub rtt: Option<Duration>,
    /// Whether the window limited the sender (RFC 7661); it grows only then.
    pub limited: bool,
}

/// A congestion control algorithm. All sizes are in bytes.
pub trait CongestionControl {
    /// The congestion window: most bytes in flight.
    fn window(&self) -> u64;
    /// The slow-start threshold: up to this window, it grows with each acknowledgement.
    fn threshold(&self) -> u64;
    /// New data was acknowledged outside loss recovery.
    fn acked(&mut self, ack: Acked);
    /// Duplicates indicated loss, with `in_flight` bytes in flight: fast recovery starts.
    fn lost(&mut self, now: Time, in_flight: u64);
    /// The retransmission timer expired.
    fn timed_out(&mut self, now: Time, in_flight: u64);
    /// Fast recovery is over.
    fn recovered(&mut self);
    /// Nothing was lost after all: window and threshold return at least to their values before the last reduction.
    fn undo(&mut self);
    /// The connection was idle for longer than its timeout, so the window is no longer validated (RFC 2861).
    fn idle(&mut self);
}

/// Which algorithm a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    Reno,
    /// RFC 9438; Linux's default.
    #[default]
    Cubic,
}

impl Algorithm {
    /// Creates the control of a connection with segments of `mss` bytes and an initial window of `initial` bytes.
    pub fn start(self, mss: u64, initial: u64) -> Box<dyn CongestionControl> {
        match self {
            Self::Reno => Box::new(Reno::new(mss, initial)),
            Self::Cubic => Box::new(Cubic::new(mss, initial)),
        }
    }
}
