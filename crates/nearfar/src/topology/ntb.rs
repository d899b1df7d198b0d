//! Builds NTB adapters, cluster switches and cables from files.

use hardware::endpoint::EndpointParams;
use hardware::link::{LinkParams, ReceiverParams};
use hardware::ntb::{ClusterSwitchParams, NtbParams};
use machine::{ClusterSwitch, Ntb};
use units::Duration;
use wire::pcie::{Generation, Width};

use super::card::endpoint_port;
use super::root::{RETRAIN_TIME, credit_limits};
use crate::plain::{Plain, pci_id, plain, required};

/// Parameters of an adapter with cluster node number `node`, on a link of `generation` and `width`.
pub fn ntb_params(ntb: &Ntb, node: u8, (generation, width): (Generation, Width)) -> NtbParams {
    plain!(ntb => NtbParams {
        ids: pci_id(&ntb.pci_id),
        node: node,
        window, segments, requesters, latency, cut_through,
        register_latency: ntb.register_read.value,
        pcie: endpoint_port(&ntb.link, generation, width)
    })
}

/// The PCIe core of an adapter, whose only requests are interrupts.
pub fn ntb_core(ntb: &Ntb) -> EndpointParams {
    EndpointParams { config_latency: ntb.config_latency.value, ..EndpointParams::ideal(32) }
}

/// Parameters of a switch between cables.
pub fn cluster_switch_params(switch: &ClusterSwitch) -> ClusterSwitchParams {
    plain!(switch => ClusterSwitchParams { latency, cut_through })
}

/// Parameters of a cable between two adapters, or an adapter and a cluster switch, whose ports equal the adapter's.
pub fn ntb_cable_params(ends: [&Ntb; 2], lanes: u32, propagation: Duration) -> LinkParams {
    let [first, second] = ends.map(|ntb| &ntb.cable);
    let number = first.generation.value.get().min(second.generation.value.get());
    let lanes = lanes.min(first.width.value.get()).min(second.width.value.get());
    let receiver = |ntb: &Ntb| ReceiverParams {
        credits: credit_limits(&ntb.cable.credits),
        ack_delay: required(&ntb.cable.ack_delay),
        credit_update_delay: required(&ntb.cable.credit_update_delay),
        replay_tlps: ntb.replay_tlps.plain(),
        // Set by the adapter.
        cut_through: false,
    };
    LinkParams {
        generation: Generation::from_number(number as u8)
            .expect("a generation that the file's reader allows"),
        width: Width::from_lanes(lanes as u8).expect("a width that the file's reader allows"),
        latency: required::<_, Duration>(&first.latency).max(required(&second.latency)) + propagation,
        beats: [1, 1],
        receivers: ends.map(receiver),
        retrain_time: RETRAIN_TIME,
    }
}
