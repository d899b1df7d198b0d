//! What the files of adapters with a non-transparent bridge, and of switches between their cables, say.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::part::LinkCapability;
use crate::read::{Check, record};
use crate::scalar::Count;
use units::{Bytes, Duration};

record! {
    /// An adapter with a non-transparent bridge as its file describes it.
    pub struct Ntb {
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The adapter file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the adapter is, in a line.
        summary: String,
        /// Vendor and device ID, such as `10b5:87b0`.
        pci_id: Figure<String>,
        /// Bytes of its window, by which cores and devices of its host reach others: a power of two.
        window: Figure<Bytes>,
        /// Segments of the window, each of which leads to a place of another host: a power of two.
        segments: Figure<Count>,
        /// Requesters that it can tell apart: entries of each of its two tables.
        requesters: Figure<Count>,
        /// What its port to its host can do.
        link: LinkCapability,
        /// What its ports for cables can do: `width` is that of all of them together. Its `latency` is what a cable takes beside its
        /// length and the adapters' own share.
        cable: LinkCapability,
        /// Lanes that a cable has where a scenario does not say it.
        cable_lanes: Figure<Count>,
        /// TLPs that each end of a cable may keep for replay.
        replay_tlps: Figure<Count>,
        /// From a TLP's header coming to one side of the bridge until it leaves the other.
        latency: Figure<Duration>,
        /// Whether a TLP goes on before its end has come, where the link on which it goes is no faster than the one by which
        /// it comes.
        cut_through: Figure<bool>,
        /// How long it takes to read one of its registers.
        register_read: Figure<Duration>,
        /// How long it takes to answer a configuration request.
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
        let text = &ntb.pci_id.value;
        let is_hex = |part: &str| part.len() == 4 && u16::from_str_radix(part, 16).is_ok();
        check.require(
            text.split_once(':').is_some_and(|(vendor, device)| is_hex(vendor) && is_hex(device)),
            "pci_id",
            format!("`{text}` is no ID"),
            "vendor and device, such as `10b5:87b0`",
        );
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
    const WHAT: &'static str = "NTB adapter";
    const FOLDER: &'static str = "machines/ntbs";
}

record! {
    /// A switch between the cables of adapters as its file describes it.
    pub struct ClusterSwitch {
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the switch is, in a line.
        summary: String,
        /// Ports for cables.
        ports: Figure<Count>,
        /// From a TLP's header coming to one port until it leaves another.
        latency: Figure<Duration>,
        /// Whether a TLP goes on before its end has come.
        cut_through: Figure<bool>,
    }
    check |switch: &ClusterSwitch, check: &mut Check<'_>| {
        check.require_within("ports", switch.ports.value.get().into(), (2, 64), "ports are not possible");
    }
}

impl Kindred for ClusterSwitch {
    const WHAT: &'static str = "cluster switch";
    const FOLDER: &'static str = "machines/clusters";
}
