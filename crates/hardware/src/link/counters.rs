//! Traffic counters of one direction of a link.

use units::{Bytes, Duration};
use wire::pcie::FlowClass;

use super::on_wire::DLLP_BYTES;

/// Credits that a TLP can lack (base spec 2.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacked {
    /// Header credits of a class.
    Header(FlowClass),
    /// Data credits of a class.
    Data(FlowClass),
}

impl Lacked {
    /// All, in the order of [`DirectionCounters::lacked`].
    pub const ALL: [Self; 6] = [
        Self::Header(FlowClass::Posted),
        Self::Data(FlowClass::Posted),
        Self::Header(FlowClass::NonPosted),
        Self::Data(FlowClass::NonPosted),
        Self::Header(FlowClass::Completion),
        Self::Data(FlowClass::Completion),
    ];

    /// Spelling in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header(FlowClass::Posted) => "posted-header",
            Self::Data(FlowClass::Posted) => "posted-data",
            Self::Header(FlowClass::NonPosted) => "non-posted-header",
            Self::Data(FlowClass::NonPosted) => "non-posted-data",
            Self::Header(FlowClass::Completion) => "completion-header",
            Self::Data(FlowClass::Completion) => "completion-data",
        }
    }
}

/// Counters of one direction, at the transmitter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// TLPs by class: posted, non-posted, completions. Excludes replays.
    pub tlps: [u64; 3],
    /// Bytes of those TLPs on the wire, framing and LCRC included.
    pub tlp_bytes: [Bytes; 3],
    /// DLLPs: Acks, Naks, credit updates.
    pub dllps: u64,
    /// Bytes of those DLLPs on the wire.
    pub dllp_bytes: Bytes,
    /// Time during which the wire carried TLPs or DLLPs, up to when it was asked for.
    pub busy: Duration,
    /// Time until then during which a TLP waited for credits, replay space or an older TLP.
    pub stalled: Duration,
    /// The part of it during which the oldest of them lacked credits, in the order of [`Lacked`].
    pub lacked: [Duration; Lacked::ALL.len()],
    /// Time from when a TLP that had to be sent again had been sent first until it was acknowledged.
    pub repairing: Duration,
    /// Naks sent by this side's receiver.
    pub naks: u64,
    /// Replays of the replay buffer.
    pub replays: u64,
    /// Replays due to the replay timer.
    pub replay_timeouts: u64,
    /// Retrainings initiated by this side.
    pub retrains: u64,
    /// Duplicate TLPs dropped by the receiver.
    pub duplicates: u64,
    /// TLPs dropped by the receiver as corrupted or out of sequence.
    pub rejected: u64,
    /// DLLPs lost by error injection.
    pub dllps_lost: u64,
}

impl DirectionCounters {
    /// Counts a TLP of `bytes`, framing included.
    #[inline(always)]
    pub(super) fn count_tlp(&mut self, class: FlowClass, bytes: u64) {
        self.tlps[class as usize] += 1;
        self.tlp_bytes[class as usize] += Bytes::new(bytes);
    }

    /// Counts a DLLP.
    pub(super) fn count_dllp(&mut self) {
        self.dllps += 1;
        self.dllp_bytes += Bytes::new(DLLP_BYTES);
    }
}

impl std::ops::AddAssign<&Self> for DirectionCounters {
    fn add_assign(&mut self, other: &Self) {
        let Self {
            tlps,
            tlp_bytes,
            dllps,
            dllp_bytes,
            busy,
            stalled,
            lacked,
            repairing,
            naks,
            replays,
            replay_timeouts,
            retrains,
            duplicates,
            rejected,
            dllps_lost,
        } = other;
        self.tlps.iter_mut().zip(tlps).for_each(|(own, other)| *own += other);
        self.tlp_bytes.iter_mut().zip(tlp_bytes).for_each(|(own, &other)| *own += other);
        self.dllps += dllps;
        self.dllp_bytes += *dllp_bytes;
        self.busy += *busy;
        self.stalled += *stalled;
        self.lacked.iter_mut().zip(lacked).for_each(|(own, &other)| *own += other);
        self.repairing += *repairing;
        self.naks += naks;
        self.replays += replays;
        self.replay_timeouts += replay_timeouts;
        self.retrains += retrains;
        self.duplicates += duplicates;
        self.rejected += rejected;
        self.dllps_lost += dllps_lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_directions_carried_adds_up() {
        let mut counters = DirectionCounters::default();
        for (class, bytes) in
            [(FlowClass::Posted, 10), (FlowClass::Completion, 20), (FlowClass::Completion, 30)]
        {
            counters.count_tlp(class, bytes);
        }
        (0..2).for_each(|_| counters.count_dllp());
        assert_eq!((counters.tlps, counters.tlp_bytes), ([1, 0, 2], [10, 0, 50].map(Bytes::new)));
        assert_eq!((counters.dllps, counters.dllp_bytes), (2, Bytes::new(16)));
        let times = |n: u64| DirectionCounters {
            tlps: [2, 3, 4].map(|m| m * n),
            tlp_bytes: [5, 6, 7].map(|m| Bytes::new(m * n)),
            dllps: 8 * n,
            dllp_bytes: Bytes::new(9 * n),
            busy: Duration::from_ns(10 * n),
            stalled: Duration::from_ns(11 * n),
            lacked: [20, 21, 22, 23, 24, 25].map(|m| Duration::from_ns(m * n)),
            repairing: Duration::from_ns(19 * n),
            naks: 12 * n,
            replays: 13 * n,
            replay_timeouts: 14 * n,
            retrains: 15 * n,
            duplicates: 16 * n,
            rejected: 17 * n,
            dllps_lost: 18 * n,
        };
        let mut sum = times(1);
        sum += &times(2);
        assert_eq!(sum, times(3));
    }
}
