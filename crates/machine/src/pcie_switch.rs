//! What the file of a PCIe switch says.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::Duration;

record! {
    /// A transparent PCIe switch as its file describes it.
    pub struct PcieSwitch {
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The switch file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the switch is, in a line.
        summary: String,
        /// Vendor and device ID of its ports, such as `10b5:8733`.
        pci_id: Figure<String>,
        /// Ports, the upstream one with them.
        ports: Figure<Count>,
        /// Lanes of all ports together.
        lanes: Figure<Count>,
        /// What each port can do. Its `latency` is what a link to it takes beside the port itself, whose share is in the
        /// switch's.
        link: LinkCapability,
        /// TLPs that each end of a link below may keep for replay.
        replay_tlps: Figure<Count>,
        /// From a TLP's header coming to one port until it leaves another.
        latency: Figure<Duration>,
        /// Whether a TLP goes on before its end has come, where the link on which it goes is no faster than the one by which
        /// it comes.
        cut_through: Figure<bool>,
        /// How long a port takes to answer a configuration request.
        config_latency: Figure<Duration>,
        /// Whether downstream ports have access control services.
        access_control: Figure<bool>,
    }
    check |switch: &PcieSwitch, check: &mut Check<'_>| {
        check.require_within("ports", switch.ports.value.get().into(), (2, 32), "ports are not possible");
        check.require_within("lanes", switch.lanes.value.get().into(), (2, 256), "lanes are not possible");
        check.require_within("replay_tlps", switch.replay_tlps.value.get().into(), (1, 2048), "TLPs cannot be told apart");
        let text = &switch.pci_id.value;
        let is_hex = |part: &str| part.len() == 4 && u16::from_str_radix(part, 16).is_ok();
        check.require(
            text.split_once(':').is_some_and(|(vendor, device)| is_hex(vendor) && is_hex(device)),
            "pci_id",
            format!("`{text}` is no ID"),
            "vendor and device, such as `10b5:8733`",
        );
        for (key, given) in [
            ("latency", switch.link.latency.is_some()),
            ("ack_delay", switch.link.ack_delay.is_some()),
            ("credit_update_delay", switch.link.credit_update_delay.is_some()),
        ] {
            check.at("link").require(given, key, "a switch has no slot to take it from", "give it");
        }
        for (key, given) in [
            ("access_control", switch.link.access_control.is_some()),
            ("translation_queue", switch.link.translation_queue.is_some()),
        ] {
            check.at("link").require(!given, key, "that is for endpoints", "`access_control` of the switch is for its ports");
        }
    }
}

impl Kindred for PcieSwitch {
    const WHAT: &'static str = "switch";
    const FOLDER: &'static str = "machines/switches";
}
