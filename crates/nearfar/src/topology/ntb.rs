//! Builds NTB adapters, cluster switches and cables from files.

use hardware::endpoint::EndpointParams;
use hardware::link::{LinkParams, ReceiverParams};
use hardware::ntb::{ClusterSwitchParams, NtbParams};
use machine::{ClusterSwitch, Figure, Ntb};
use units::Duration;
use wire::pcie::{Generation, Width};

use super::card::endpoint_port;
use super::narrow;
use super::root::{RETRAIN_TIME, credit_limits};

/// Parameters of an adapter with cluster node number `node`, on a link of `generation` and `width`.
pub fn ntb_params(ntb: &Ntb, node: u8, (generation, width): (Generation, Width)) -> NtbParams {
    // Validated by the file's reader.
    let id = |text: &str| u16::from_str_radix(text, 16).unwrap_or(u16::MAX);
    let (vendor, device) = ntb.pci_id.value.split_once(':').unwrap_or_default();
    NtbParams {
        ids: (id(vendor), id(device)),
        node,
        window: ntb.window.value.get(),
        segments: ntb.segments.value.get(),
        requesters: ntb.requesters.value.get(),
        latency: ntb.latency.value,
        cut_through: ntb.cut_through.value,
        register_latency: ntb.register_read.value,
        pcie: endpoint_port(&ntb.link, generation, width),
    }
}

/// The PCIe core of an adapter, whose only requests are interrupts.
pub fn ntb_core(ntb: &Ntb) -> EndpointParams {
    EndpointParams { config_latency: ntb.config_latency.value, ..EndpointParams::ideal(32) }
}

/// Parameters of a switch between cables.
pub fn cluster_switch_params(switch: &ClusterSwitch) -> ClusterSwitchParams {
    ClusterSwitchParams { latency: switch.latency.value, cut_through: switch.cut_through.value }
}

/// Parameters of a cable between two adapters, or an adapter and a cluster switch, whose ports equal the adapter's.
pub fn ntb_cable_params(ends: [&Ntb; 2], lanes: u32, propagation: Duration) -> LinkParams {
    let [first, second] = ends.map(|ntb| &ntb.cable);
    let number = first.generation.value.get().min(second.generation.value.get());
    let lanes = lanes.min(first.width.value.get()).min(second.width.value.get());
    let given = |figure: &Option<Figure<Duration>>| figure.as_ref().map_or(Duration::ZERO, |f| f.value);
    let receiver = |ntb: &Ntb| ReceiverParams {
        credits: credit_limits(&ntb.cable.credits),
        ack_delay: given(&ntb.cable.ack_delay),
        credit_update_delay: given(&ntb.cable.credit_update_delay),
        replay_tlps: narrow(ntb.replay_tlps.value.get()),
        // Set by the adapter.
        cut_through: false,
    };
    LinkParams {
        generation: Generation::from_number(number as u8)
            .expect("a generation that the file's reader allows"),
        width: Width::from_lanes(lanes as u8).expect("a width that the file's reader allows"),
        latency: given(&first.latency).max(given(&second.latency)) + propagation,
        beats: [1, 1],
        receivers: ends.map(receiver),
        retrain_time: RETRAIN_TIME,
    }
}
