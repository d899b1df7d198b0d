//! Which figures of each file are in use, by what was counted.

use machine::{ComputerSetup, DmaMode, HostSetup, SlotSetup, slot_of};
use results::pciebench::Cache;

use super::Origins;
use crate::bench::{Bench, Outcome};
use crate::computer::{Counted, device_names};
use crate::counters::HostCounters;

/// What of a host was used.
#[derive(Debug, Default)]
struct Uses {
    /// Its cores ran something, or warmed caches.
    cores: bool,
    /// Something crossed between its sockets.
    interconnect: bool,
    /// Its IOMMUs translated.
    iommu: bool,
    /// Slots of root ports with traffic.
    slots: Vec<String>,
    /// Several devices had traffic, so that they may have reached each other.
    peers: bool,
}

impl Uses {
    /// Whether a figure of the machine's file is in use.
    fn machine(&self, path: &str) -> bool {
        let mut keys = path.split('.').skip(1);
        match (keys.next().unwrap_or_default(), keys.next().unwrap_or_default()) {
            ("core" | "l1" | "l2" | "prefetch", _) => self.cores,
            ("interconnect", _) => self.interconnect,
            ("iommu", _) => self.iommu,
            ("root_complex", key) if key.starts_with("peer_") || key == "reflects_peers" => self.peers,
            ("root_complex", _) => !self.slots.is_empty(),
            ("port", slot) => self.slots.iter().any(|used| used == slot),
            _ => true,
        }
    }
}

/// Whether anything crossed between sockets: counters `socket0-socket1/bytes/CAUSE`.
pub(super) fn crossed(host: &HostCounters) -> bool {
    let is_link = |place: &str| place.starts_with("socket") && place.contains("-socket");
    host.counters.iter().any(|counter| counter.value > 0 && is_link(counter.place()))
}

/// Whether an IOMMU translated, rather than passed requests as they came.
fn translated(host: &HostCounters) -> bool {
    host.counters.iter().any(|counter| {
        let (place, what) = counter.name.split_once('/').unwrap_or_default();
        place.starts_with("iommu") && matches!(what, "lookups/hit" | "lookups/merged" | "lookups/miss")
    })
}

/// Whether TLPs passed the link of a device, or one of its links.
pub(super) fn had_traffic(host: &HostCounters, device: &str) -> bool {
    host.counters.iter().any(|counter| {
        let rest = counter.name.strip_prefix(device);
        let rest = rest.map(|rest| rest.split_once('/').unwrap_or(("", "")));
        rest.is_some_and(|(port, what)| {
            (port.is_empty() || port.starts_with(':')) && what.starts_with("link-") && what.contains("-tlps/")
        })
    })
}

pub(super) fn by_bench<'a>(
    bench: &Bench,
    outcomes: impl IntoIterator<Item = &'a Outcome>,
    origins: &mut Origins,
) {
    let mut uses = Uses {
        slots: slot_of(&bench.machine, bench.sockets.device).into_iter().collect(),
        ..Uses::default()
    };
    let (mut commands, mut dma) = (false, false);
    for outcome in outcomes {
        let (run, hosts) = (outcome.row.run(), &outcome.window.hosts);
        uses.cores |= run.cache == Cache::HostWarm;
        uses.interconnect |= hosts.iter().any(crossed);
        uses.iommu |= hosts.iter().any(translated);
        commands |= run.test.is_command();
        dma |= !run.test.is_command();
    }
    if commands || dma {
        origins.add(&bench.machine.name, &bench.machine, |path| uses.machine(path));
        origins.add(&bench.card.name, &bench.card, |path| match path.split('.').nth(1) {
            Some("command") => commands,
            Some("dma") => dma,
            _ => true,
        });
    }
}

pub(super) fn by_computers(setup: &ComputerSetup, counted: &[Counted], origins: &mut Origins) {
    for one in counted {
        for (number, host) in setup.hosts.iter().enumerate() {
            let Some(counters) = one.window.host(&host.name) else { continue };
            let runs = setup.programs.get(one.program).is_some_and(|program| program.host == number);
            by_host(setup, host, counters, runs, origins);
        }
    }
}

/// A host of the program itself, or one whose devices had traffic.
fn by_host(
    setup: &ComputerSetup,
    host: &HostSetup,
    counters: &HostCounters,
    runs: bool,
    origins: &mut Origins,
) {
    let names = device_names(host);
    let active: Vec<_> = names
        .iter()
        .zip(&host.devices)
        .filter(|(name, _)| had_traffic(counters, name))
        .map(|(_, device)| device)
        .collect();
    if !runs && active.is_empty() {
        return;
    }
    let mut uses = Uses {
        cores: true,
        interconnect: crossed(counters),
        iommu: translated(counters),
        slots: Vec::new(),
        peers: active.len() > 1,
    };
    for link in active.iter().flat_map(|device| &device.links) {
        let mut slot = &link.slot;
        let owner = &setup.hosts[link.host];
        // Up to the root; a switch may be below another one.
        while let SlotSetup::Switch(switch, _) = slot {
            let switch = &owner.switches[*switch];
            origins.add(&switch.file.name, &switch.file, |_| true);
            match switch.links.first() {
                Some(link) => slot = &link.slot,
                None => break,
            }
        }
        if let SlotSetup::Root(name) = slot {
            uses.slots.push(name.clone());
        }
    }
    origins.add(&host.machine.name, &host.machine, |path| uses.machine(path));
    let is = |kind: &str| active.iter().any(|device| device.kind.kind() == kind);
    let (network, drives) = (counters.sum("kernel/tcp") > 0 || is("nic"), is("drive"));
    let (guests, remaps) = (!host.vms.is_empty(), host.iommu != DmaMode::Off);
    let teams = !host.teams.is_empty();
    let kpio = active.iter().any(|device| device.kind.nic().is_some_and(|nic| nic.kpio.is_some()));
    origins.add(&host.kernel.name, &host.kernel, |path| {
        let (table, key) = path.split_once('.').unwrap_or((path, ""));
        let begins = |with: &[&str]| with.iter().any(|with| key.starts_with(with));
        match table {
            "cost" if begins(&["block_", "cache_page"]) => drives,
            "cost" if begins(&["iova_", "invalidation", "flush_queue", "page_table_edit", "line_flush"]) => {
                remaps
            }
            "cost" if begins(&["gro", "icmp", "ip_", "napi", "net_", "socket", "tcp_", "udp_"]) => network,
            "cost" if begins(&["migrate_page", "tlb_shootdown"]) => guests,
            "nic_cost" | "inet" | "steering" => network,
            "kpio_cost" => kpio,
            "team_cost" => teams,
            "nvme_cost" | "block" => drives,
            "virtio_net_cost" | "virtio_blk_cost" | "virt_cost" | "vhost_cost" => guests,
            "dma" => remaps,
            // Room for devices to come.
            "pci" => false,
            _ => true,
        }
    });
    for device in active {
        let has_functions = |path: &str| !path.starts_with("virtual_functions.") || device.vfs > 0;
        origins.add_device(device.kind.model(), has_functions);
        if device.kind.ntb().is_some() {
            for (_, switch) in &setup.cluster.switches {
                origins.add(&switch.name, switch, |_| true);
            }
        }
    }
}
