//! Flow control initialisation (base spec 3.4.1): both ends advertise their credits after training.
//!
//! Simplified: each end sends InitFC1 and InitFC2 once for each class, whereas real ports repeat them until they are
//! received; none is lost or corrupted.

use units::Time;
use wire::pcie::dllp::FlowControlKind;
use wire::pcie::{Dllp, FlowClass};

use super::Side;
use super::direction::Direction;
use super::tap::Tap;

/// Exchanges the credits of both ends of a link that has trained at `trained`. Returns when both know them.
pub fn exchange(directions: &mut [Direction; 2], mut tap: Option<&mut Tap>, trained: Time) -> Time {
    if let Some(tap) = &mut tap {
        tap.begin_again();
    }
    let mut at = trained;
    // An end sends InitFC2 after it has received InitFC1 of every class.
    for kind in [FlowControlKind::Init1, FlowControlKind::Init2] {
        let mut received = at;
        for side in Side::BOTH {
            let direction = &mut directions[side as usize];
            let mut begin = at;
            for class in FlowClass::ALL {
                let end = begin + direction.count_initialisation(begin);
                if let Some(tap) = &mut tap {
                    let init = tap.init(side, kind, class);
                    tap.dllp(side, (begin, end), Dllp::FlowControl(init));
                }
                begin = end;
            }
            received = begin + direction.wire().latency();
        }
        at = received;
    }
    at
}
