//! Builds switches and their links from files.

use hardware::Fabric;
use hardware::link::{LinkId, LinkParams, ReceiverParams};
use hardware::switch::{SwitchId, SwitchParams};
use machine::{Figure, LinkCapability, PcieSwitch};
use units::Duration;
use wire::pcie::config::acs;
use wire::pcie::{Generation, Width};

use super::root::{RETRAIN_TIME, credit_limits};
use crate::plain::{Plain, given, pci_id, plain, required};

/// Parameters of a switch from its file.
pub fn switch_params(switch: &PcieSwitch) -> SwitchParams {
    plain!(switch => SwitchParams {
        ids: pci_id(&switch.pci_id),
        latency, cut_through, config_latency,
        input_queued: given(&switch.input_queued, false),
        max_payload: switch.link.mps_bytes.plain(),
        acs: if switch.access_control.value { acs::USUAL } else { 0 },
        containment: given(&switch.containment, false),
        latency_reports: given(&switch.latency_reports, false)
    })
}

/// Adds the link below port `number` of a switch, with at most `lanes` lanes, for a device of capability `device`.
pub fn add_switch_slot(
    fabric: &mut Fabric,
    id: SwitchId,
    switch: &PcieSwitch,
    (number, lanes): (u8, u32),
    device: &LinkCapability,
) -> (LinkId, Generation, Width) {
    let port = &switch.link;
    let (generation, width) = super::card::agree(device, (port.generation.value, port.width.value), lanes);
    let time = |device: &Option<Figure<Duration>>, switch: &Option<Figure<Duration>>| {
        given(device, required(switch))
    };
    let receiver = |capability: &LinkCapability| ReceiverParams {
        credits: credit_limits(&capability.credits),
        ack_delay: time(&capability.ack_delay, &port.ack_delay),
        credit_update_delay: time(&capability.credit_update_delay, &port.credit_update_delay),
        replay_tlps: switch.replay_tlps.plain(),
        // Set by the switch.
        cut_through: false,
    };
    let link = LinkParams {
        generation,
        width,
        latency: time(&device.latency, &port.latency),
        beats: [1, 1],
        receivers: [receiver(port), receiver(device)],
        retrain_time: RETRAIN_TIME,
    };
    (fabric.add_switch_slot(id, number, link), generation, width)
}
