//! Traffic counters of one direction of a link.

use units::{Bytes, Duration};
use wire::pcie::FlowClass;

use super::on_wire::DLLP_BYTES;

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
    /// Time during which the wire carried TLPs or DLLPs.
    pub busy: Duration,
    /// Time during which a TLP waited for credits, replay space or an older TLP.
    pub stalled: Duration,
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

    /// Counts a DLLP that takes `time` on the wire.
    pub(super) fn count_dllp(&mut self, time: Duration) {
        self.dllps += 1;
        self.dllp_bytes += Bytes::new(DLLP_BYTES);
        self.busy += time;
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
        self.naks += naks;
        self.replays += replays;
        self.replay_timeouts += replay_timeouts;
        self.retrains += retrains;
        self.duplicates += duplicates;
        self.rejected += rejected;
        self.dllps_lost += dllps_lost;
    }
}
