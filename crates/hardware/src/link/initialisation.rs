//! Flow control initialisation (base spec 3.4.1): both ends advertise their credits after training.
//!
//! Simplified: each end sends InitFC1 and InitFC2 once for each class, whereas real ports repeat them until they are
//! received; none is lost or corrupted.

use units::{Bytes, Time};
use wire::pcie::dllp::FlowControlKind;
use wire::pcie::{Dllp, FlowClass};

use super::{DLLP_BYTES, Link, Side};

impl Link {
    /// Exchanges the credits of both ends of a link that has trained at `trained`. Returns when both know them.
    pub(super) fn initialise_flow_control(&mut self, trained: Time) -> Time {
        let on_wire = self.wire(Side::Upstream).time_for(DLLP_BYTES);
        if let Some(tap) = &mut self.tap {
            tap.begin_again();
        }
        let mut at = trained;
        // An end sends InitFC2 after it has received InitFC1 of every class.
        for kind in [FlowControlKind::Init1, FlowControlKind::Init2] {
            for side in [Side::Upstream, Side::Downstream] {
                let mut begin = at;
                for class in FlowClass::ALL {
                    if let Some(tap) = &mut self.tap {
                        let init = tap.init(side, kind, class);
                        tap.dllp(side, (begin, begin + on_wire), Dllp::FlowControl(init));
                    }
                    begin += on_wire;
                    let counters = &mut self.counters[side as usize];
                    counters.dllps += 1;
                    counters.dllp_bytes += Bytes::new(DLLP_BYTES);
                    counters.busy += on_wire;
                }
            }
            at += on_wire * FlowClass::ALL.len() as u64 + self.params.latency;
        }
        at
    }
}
