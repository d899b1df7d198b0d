//! Parameters of a connection.

use units::Duration;
use wire::ip::TcpHeader;

use super::congestion::Algorithm;
use settings::EcnMode;

use super::ecn;

/// Keep-alive settings (RFC 1122, 4.2.3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Interval between probes.
    pub interval: Duration,
    /// Number of unanswered probes after which the connection fails.
    pub probes: u8,
}

/// Parameters of a connection. [`TcpParams::linux`] gives Linux's values with their sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpParams {
    /// Maximum bytes after the 20 bytes of TCP header, options included: MTU minus 40.
    pub mss: u16,
    /// Initial receive buffer, bytes.
    pub receive_buffer: u32,
    /// Maximum receive buffer, bytes.
    pub receive_buffer_max: u32,
    /// Offer timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offer window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Initial congestion window in segments.
    pub initial_window: u16,
    /// The congestion control.
    pub congestion: Algorithm,
    /// Disable Nagle's algorithm.
    pub no_delay: bool,
    /// Timeout before any round trip was measured.
    pub rto_initial: Duration,
    /// Minimum timeout; more exactly, minimum of the variation's share.
    pub rto_min: Duration,
    /// Longest timeout.
    pub rto_max: Duration,
    /// Send tail loss probes (RFC 8985, section 7).
    pub tail_probes: bool,
    /// Added to two round trips before a probe, because of timer granularity.
    pub tail_slack: Duration,
    /// How long the peer may delay the acknowledgement of a single segment.
    pub peer_delayed_ack: Duration,
    /// How long an acknowledgement may wait for data to carry it.
    pub delayed_ack: Duration,
    /// Number of initial acknowledgements without delay.
    pub quick_acks: u8,
    /// Retransmissions of a SYN.
    pub syn_retries: u8,
    /// Retransmissions of data.
    pub retries: u8,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: EcnMode,
    /// Keep-alive settings, if enabled.
    pub keep_alive: Option<KeepAlive>,
    /// How long a connection stays in TIME-WAIT, for late segments of the peer (Linux: `TCP_TIMEWAIT_LEN`).
    pub time_wait: Duration,
    /// How long the peer may take to close after we have closed both directions.
    pub fin_timeout: Duration,
}

impl TcpParams {
    /// Linux's defaults for an interface with this MTU.
    pub const fn linux(mtu: u16) -> Self {
        Self {
            mss: mtu.saturating_sub(40),
            // net.ipv4.tcp_rmem, 131072 and 6291456, half of which is window (tcp_adv_win_scale = 1).
            receive_buffer: 65_536,
            receive_buffer_max: 3 << 20,
            timestamps: true,
            sack: true,
            window_scaling: true,
            initial_window: 10, // TCP_INIT_CWND, RFC 6928
            congestion: Algorithm::Cubic,
            no_delay: false,
            rto_initial: Duration::from_ms(1000),     // TCP_TIMEOUT_INIT
            rto_min: Duration::from_ms(200),          // TCP_RTO_MIN
            rto_max: Duration::from_ms(120_000),      // TCP_RTO_MAX
            tail_probes: true,                        // net.ipv4.tcp_early_retrans = 3
            tail_slack: Duration::from_ms(2), // TCP_TIMEOUT_MIN: 2 ticks, at the 1000 Hz of servers' kernels
            peer_delayed_ack: Duration::from_ms(200), // tcp_schedule_loss_probe: TCP_RTO_MIN
            delayed_ack: Duration::from_ms(40), // TCP_DELACK_MIN
            quick_acks: 16,                   // TCP_MAX_QUICKACKS
            syn_retries: 6,                   // net.ipv4.tcp_syn_retries
            retries: 15,                      // net.ipv4.tcp_retries2
            ecn: EcnMode::Accept,             // net.ipv4.tcp_ecn = 2
            keep_alive: None,                 // SO_KEEPALIVE is off
            time_wait: Duration::from_ms(60_000), // TCP_TIMEWAIT_LEN
            fin_timeout: Duration::from_ms(60_000), // net.ipv4.tcp_fin_timeout
        }
    }

    /// The window scale that makes the largest buffer fit into 16 bits.
    pub(super) fn window_shift(&self) -> u8 {
        let most = self.receive_buffer_max.max(self.receive_buffer);
        (0..14).find(|&shift| most >> shift <= u32::from(u16::MAX)).unwrap_or(14)
    }
}

/// Options negotiated by the SYNs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agreed {
    pub sack: bool,
    pub timestamps: bool,
    pub scaling: bool,
    /// Window scales of the own window and of the peer's.
    pub shift: u8,
    pub peer_shift: u8,
    pub ecn: bool,
}

impl Agreed {
    /// Options that follow from the peer's SYN.
    pub fn with(params: &TcpParams, syn: &TcpHeader) -> Self {
        let options = &syn.options;
        let scaling = options.window_scale.filter(|_| params.window_scaling);
        Self {
            sack: params.sack && options.sack_permitted,
            timestamps: params.timestamps && options.timestamps.is_some(),
            scaling: scaling.is_some(),
            shift: scaling.map_or(0, |_| params.window_shift()),
            peer_shift: scaling.map_or(0, |shift| shift.min(14)),
            ecn: ecn::agrees(params.ecn, syn.flags),
        }
    }
}
