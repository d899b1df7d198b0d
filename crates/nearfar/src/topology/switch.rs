//! Builds switches and their links from files.

use hardware::Fabric;
use hardware::link::{LinkId, LinkParams, ReceiverParams};
use hardware::switch::{SwitchId, SwitchParams};
use machine::{LinkCapability, PcieSwitch};
use units::Duration;
use wire::pcie::config::acs;
use wire::pcie::{Generation, Width};

use super::narrow;
use super::root::{RETRAIN_TIME, credit_limits};

/// Parameters of a switch from its file.
pub fn switch_params(switch: &PcieSwitch) -> SwitchParams {
    // Validated by the file's reader.
    let id = |text: &str| u16::from_str_radix(text, 16).unwrap_or(u16::MAX);
    let (vendor, device) = switch.pci_id.value.split_once(':').unwrap_or_default();
    SwitchParams {
        ids: (id(vendor), id(device)),
        latency: switch.latency.value,
        cut_through: switch.cut_through.value,
        config_latency: switch.config_latency.value,
        max_payload: switch.link.mps_bytes.value.get(),
        acs: if switch.access_control.value { acs::USUAL } else { 0 },
    }
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
    let receiver = |capability: &LinkCapability| ReceiverParams {
        credits: credit_limits(&capability.credits),
        ack_delay: time(&capability.ack_delay, &port.ack_delay),
        credit_update_delay: time(&capability.credit_update_delay, &port.credit_update_delay),
        replay_tlps: narrow(switch.replay_tlps.value.get()),
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

/// The device's value, or the switch's, whose file always states it.
fn time(device: &Option<machine::Figure<Duration>>, switch: &Option<machine::Figure<Duration>>) -> Duration {
    device.as_ref().or(switch.as_ref()).map_or(Duration::ZERO, |figure| figure.value)
}
