//! Parameters of the queues.

use units::Duration;

/// Queues for transmit by programmed I/O (kPIO+WC, Figure 2: queue, EOP filter).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KpioParams {
    /// Queues per function, at most 64.
    pub queues: u16,
    /// Log2 of the lines of memory per queue.
    pub log2_lines: u8,
    /// Log2 of the positions in a queue's window for the second format, at least `log2_lines`. If equal, late lines
    /// cannot be detected. The paper's format uses `log2_lines`.
    pub log2_positions: u8,
    /// From a line's arrival to when the frame that it ends can leave.
    pub latency: Duration,
    /// How long to wait for a missing line after later ones have arrived.
    pub patience: Duration,
    /// How long freed lines wait for others before the driver is told.
    pub report_delay: Duration,
}

impl KpioParams {
    /// The paper's 4 KB (section III.A) in a window of eight times as many positions, one queue for each of 16 cores.
    /// Patience and delay are assumed: patience is well above the time that a line stays in a core or that a link takes
    /// to retrain; the delay is that of the 82599's write-backs. The latency is assumed: a few cycles of 250 MHz.
    pub const fn example() -> Self {
        Self {
            queues: 16,
            log2_lines: 6,
            log2_positions: 9,
            latency: Duration::from_ns(20),
            patience: Duration::from_us(20),
            report_delay: Duration::from_us(2),
        }
    }
}
