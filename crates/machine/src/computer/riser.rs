//! Risers: which links a card gets is a property of the riser that it is in, not of the card.

use std::collections::BTreeSet;

use super::device::DeviceEntry;
use super::place::LinkEntry;
use crate::diagnostic::Diagnostic;
use crate::placed::Placed;
use crate::read::{Check, record};

record! {
    /// A riser or an extender: passive wires from slots of the host to one card. It splits the lanes of its connector
    /// over slots of several sockets, or adds a second connector to the card, or only moves a slot. Its wires add no
    /// delay.
    pub struct RiserEntry {
        /// Name; the `slot` of the card in it.
        name: Placed<String>,
        /// The links of its card, as in a device's `links`.
        links: Placed<Vec<LinkEntry>>,
    }
    check |riser: &RiserEntry, check: &mut Check<'_>| {
        let many = riser.links.value.len();
        check.require(many > 0, "links", "a riser to nowhere", "an entry such as `{ slot = \"slot\", lanes = 8 }`");
    }
}

/// Gives each device of a host whose `slot` is a riser the riser's links.
pub(super) fn resolve(risers: &[RiserEntry], devices: &mut [DeviceEntry], wrong: &mut Vec<Diagnostic>) {
    let mut taken = BTreeSet::new();
    for device in devices {
        let Some(slot) = &device.slot else { continue };
        let Some(riser) = risers.iter().find(|riser| riser.name.value == slot.value) else { continue };
        if !taken.insert(&riser.name.value) {
            let message = format!("riser `{}` is taken", slot.value);
            wrong.push(Diagnostic::new(&slot.place, message).help("a riser holds one card: another slot"));
        }
        (device.links, device.slot) = (Some(riser.links.clone()), None);
    }
}
