//! The file of a PCIe switch.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::Duration;

record! {
    /// A transparent PCIe switch.
    pub struct PcieSwitch {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The switch file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// Vendor and device ID of its ports, such as `10b5:8733`.
        pci_id: Figure<String>,
        /// Number of ports, including the upstream port.
        ports: Figure<Count>,
        /// Total number of lanes.
        lanes: Figure<Count>,
        /// Capability of each port. Its `latency` is that of a link without the port itself, whose share is in the
        /// switch's.
        link: LinkCapability,
        /// Capacity of the replay buffer of each end of a link below, in TLPs.
        replay_tlps: Figure<Count>,
        /// Time from the arrival of a TLP's header at one port until it leaves another.
        latency: Figure<Duration>,
        /// Whether a TLP is forwarded before it is complete, if the outgoing link is no faster than the incoming one.
        cut_through: Figure<bool>,
        /// Whether packets of a kind leave the port at which they arrived in the order of their arrival there, whatever port they
        /// go to, so that one whose port is busy blocks those behind it; false if not given: they wait by their targets.
        input_queued: Option<Figure<bool>>,
        /// Time for a port to answer a configuration request.
        config_latency: Figure<Duration>,
        /// Whether downstream ports have access control services.
        access_control: Figure<bool>,
        /// Whether downstream ports can take their link down after an error below (downstream port containment); false if not given.
        containment: Option<Figure<bool>>,
        /// Whether it passes on reports of the latency that devices tolerate (LTR); false if not given.
        latency_reports: Option<Figure<bool>>,
    }
    check |switch: &PcieSwitch, check: &mut Check<'_>| {
        check.require_within("ports", switch.ports.value.get().into(), (2, 32), "ports are not possible");
        check.require_within("lanes", switch.lanes.value.get().into(), (2, 256), "lanes are not possible");
        check.require_within("replay_tlps", switch.replay_tlps.value.get().into(), (1, 2048), "TLPs cannot be told apart");
        check.require_pci_id(&switch.pci_id.value);
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
            ("latency_tolerance", switch.link.latency_tolerance.is_some()),
            ("relaxed_ordering", switch.link.relaxed_ordering.is_some()),
            ("id_based_ordering", switch.link.id_based_ordering.is_some()),
            ("no_snoop", switch.link.no_snoop.is_some()),
        ] {
            let help = "`access_control` and `latency_reports` of the switch are for its ports";
            check.at("link").require(!given, key, "that is for endpoints", help);
        }
    }
}

impl Kindred for PcieSwitch {
    const WORD: &'static str = "switch";
    const FOLDER: &'static str = "machines/switches";
    const ABOUT: &'static str = "A PCIe switch.";
    const TEMPLATE: Option<[&'static str; 2]> =
        Some(["pex8733", "link.width = { value = 8, source = \"datasheet: ...\" }"]);

    fn summary(&self) -> &str {
        &self.summary
    }
}
