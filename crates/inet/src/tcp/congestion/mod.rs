//! Congestion control: how much may be under way.

mod cubic;
mod reno;

use units::{Duration, Time};

pub use cubic::Cubic;
pub use reno::Reno;

/// An acknowledgement of new data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// When it came.
    pub now: Time,
    /// Bytes that it acknowledged.
    pub bytes: u64,
    /// The smoothed round-trip time, if one is known.
    pub rtt: Option<Duration>,
    /// The window was what limited the sender (RFC 7661): only then does it grow.
    pub limited: bool,
}

/// An algorithm. All sizes are bytes.
pub trait CongestionControl {
    /// What may be under way.
    fn window(&self) -> u64;
    /// The slow-start threshold.
    fn threshold(&self) -> u64;
    /// New data was acknowledged outside loss recovery.
    fn acked(&mut self, ack: Acked);
    /// Loss was seen by duplicates, with `in_flight` under way: fast recovery begins.
    fn lost(&mut self, now: Time, in_flight: u64);
    /// The retransmission timer went off.
    fn timed_out(&mut self, now: Time, in_flight: u64);
    /// Fast recovery is over.
    fn recovered(&mut self);
    /// Nothing had been lost: window and threshold are no smaller than before the last reduction.
    fn undo(&mut self);
    /// The connection was idle for longer than its timeout: the window is not proven any more (RFC 2861).
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
    /// A connection's control, with segments of `mss` bytes and an initial window of so many.
    pub fn start(self, mss: u64, initial: u64) -> Box<dyn CongestionControl> {
        match self {
            Self::Reno => Box::new(Reno::new(mss, initial)),
            Self::Cubic => Box::new(Cubic::new(mss, initial)),
        }
    }
}
