//! Ways that had traffic and that no file limits: there, a simulation is only as slow as what lies before and behind.

use std::collections::BTreeSet;

use machine::{ComputerSetup, Figure, HostSetup, Kind, SlotSetup};
use units::Duration;

use super::Origins;
use super::used::{crossed, had_traffic};
use crate::computer::{Counted, device_names};
use crate::counters::HostCounters;

pub(super) fn of_computers(setup: &ComputerSetup, counted: &[Counted], origins: &mut Origins) {
    for one in counted {
        for (number, host) in setup.hosts.iter().enumerate() {
            if let Some(counters) = one.window.host(&host.name) {
                packets(host, counters, origins);
                peers(number, host, counters, origins);
            }
        }
    }
}

/// An interval of zero that nobody measured.
fn is_guess(interval: &Figure<Duration>) -> bool {
    interval.value.is_zero() && matches!(interval.provenance.kind, Kind::Assumed | Kind::Relative)
}

/// Packets of NICs whose own rate is not known.
fn packets(host: &HostSetup, counters: &HostCounters, origins: &mut Origins) {
    for (name, device) in device_names(host).iter().zip(&host.devices) {
        let Some(nic) = device.kind.nic() else { continue };
        for (way, path) in [("tx", &nic.tx), ("rx", &nic.rx)] {
            if is_guess(&path.packet_interval) && counters.of(&format!("{name}/{way}-frames")) > 0 {
                let verb = if way == "tx" { "sends" } else { "receives" };
                origins.unlimited.insert(format!("packets that {} {verb}", nic.name));
            }
        }
    }
}

/// Traffic of devices to each other through a root complex.
fn peers(number: usize, host: &HostSetup, counters: &HostCounters, origins: &mut Origins) {
    let active = device_names(host);
    let active = active.iter().zip(&host.devices).filter(|(name, _)| had_traffic(counters, name));
    let (mut own, mut ports, mut sockets) = (0, BTreeSet::new(), BTreeSet::new());
    for (name, device) in active {
        own += ["dma-read", "dma-written"]
            .map(|what| counters.of(&format!("{name}/{what}")))
            .iter()
            .sum::<u64>();
        for link in device.links.iter().filter(|link| link.host == number) {
            let mut slot = &link.slot;
            while let SlotSetup::Switch(switch, _) = slot {
                match host.switches.get(*switch).and_then(|switch| switch.links.first()) {
                    Some(link) => slot = &link.slot,
                    None => break,
                }
            }
            if let SlotSetup::Root(port) = slot {
                ports.insert(link.name.clone());
                sockets.extend(host.machine.host.port.get(port).map(|port| port.socket.value));
            }
        }
    }
    // What devices moved beyond what memory saw went to other devices.
    let to_memory = counters.of("root/bytes-read") + counters.of("root/bytes-written");
    if own <= to_memory + to_memory / 100 || ports.len() < 2 {
        return;
    }
    let (root, name) = (&host.machine.host.root_complex, &host.machine.name);
    if sockets.len() > 1 && crossed(counters) {
        origins.unlimited.insert(format!(
            "traffic of devices to each other between the sockets of {name}, but for the interconnect's bandwidth"
        ));
    } else if root.peer_write_interval.is_none() {
        origins
            .unlimited
            .insert(format!("traffic of devices to each other through the root complex of {name}"));
    }
}
