//! The files of NTB adapters and of switches between their cables.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{Bytes, Duration};

record! {
    /// An adapter with a non-transparent bridge.
    pub struct Ntb {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The adapter file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// Vendor and device ID, such as `10b5:87b0`.
        pci_id: Figure<String>,
        /// Size of its window, through which cores and devices of its host reach other hosts (bytes): a power of two.
        window: Figure<Bytes>,
        /// Segments of the window, each of which maps to an address on another host: a power of two.
        segments: Figure<Count>,
        /// Entries of each of its two requester tables.
        requesters: Figure<Count>,
        /// Capability of its port to its host.
        link: LinkCapability,
        /// Capability of its cable ports: `width` is the total of all. Its `latency` is that of a cable without its
        /// length and the adapters' share.
        cable: LinkCapability,
        /// Default number of lanes of a cable.
        cable_lanes: Figure<Count>,
        /// Capacity of the replay buffer of each cable end, in TLPs.
        replay_tlps: Figure<Count>,
        /// Time from the arrival of a TLP's header at one side of the bridge until it leaves the other.
        latency: Figure<Duration>,
        /// Whether a TLP is forwarded before it is complete, if the outgoing link is no faster than the incoming one.
        cut_through: Figure<bool>,
        /// Latency of a register read.
        register_read: Figure<Duration>,
        /// Time to answer a configuration request.
        config_latency: Figure<Duration>,
    }
    check |ntb: &Ntb, check: &mut Check<'_>| {
        let (window, segments) = (ntb.window.value.get(), ntb.segments.value.get());
        let message = format!("a window of {} is not possible", ntb.window.value);
        check.require(window.is_power_of_two() && window >= 1 << 20, "window", message, "a power of two, 1 MiB at least");
        check.require(segments.is_power_of_two(), "segments", format!("{segments} segments are not possible"), "a power of two");
        check.require_within("segments", segments.into(), (1, 1024), "segments are not possible");
        let bytes = window / u64::from(segments.max(1));
        check.require(bytes >= 1 << 20, "segments", format!("a segment would have {bytes} B"), "1 MiB at least: a window for interrupts has that much");
        check.require_within("requesters", ntb.requesters.value.get().into(), (2, 256), "requesters are not possible");
        check.require_within("replay_tlps", ntb.replay_tlps.value.get().into(), (1, 2048), "TLPs cannot be told apart");
        check.require_pci_id(&ntb.pci_id.value);
        for (key, given) in [
            ("latency", ntb.cable.latency.is_some()),
            ("ack_delay", ntb.cable.ack_delay.is_some()),
            ("credit_update_delay", ntb.cable.credit_update_delay.is_some()),
        ] {
            check.at("cable").require(given, key, "a cable has no slot to take it from", "give it");
        }
    }
}

impl Kindred for Ntb {
    const WORD: &'static str = "ntb";
    const WHAT: &'static str = "NTB adapter";
    const FOLDER: &'static str = "machines/ntbs";
    const ABOUT: &'static str = "An adapter with a non-transparent bridge.";

    fn summary(&self) -> &str {
        &self.summary
    }
}

record! {
    /// A switch between the cables of adapters.
    pub struct ClusterSwitch {
        /// Name for references: the file's name without `.toml`.
        name: String,
        /// The file that this one extends.
        extends: Option<String>,
        /// Description, in one line.
        summary: String,
        /// Number of cable ports.
        ports: Figure<Count>,
        /// Time from the arrival of a TLP's header at one port until it leaves another.
        latency: Figure<Duration>,
        /// Whether a TLP is forwarded before it is complete.
        cut_through: Figure<bool>,
    }
    check |switch: &ClusterSwitch, check: &mut Check<'_>| {
        check.require_within("ports", switch.ports.value.get().into(), (2, 64), "ports are not possible");
    }
}

impl Kindred for ClusterSwitch {
    const WORD: &'static str = "cluster-switch";
    const WHAT: &'static str = "cluster switch";
    const FOLDER: &'static str = "machines/clusters";
    const ABOUT: &'static str = "A switch between NTB adapters.";

    fn summary(&self) -> &str {
        &self.summary
    }
}
