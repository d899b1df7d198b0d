//! NICs.

use devices::nic::{
    FlowControl, LoopbackParams, NicFunctionParams, NicHandle, NicParams, PathParams, VirtualParams,
};
use drivers::nic::{HeldParams, InlineParams, NicDriverParams};
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::root::HostId;
use machine::{
    Count, Figure, Nic, NicDefaults, NicDriverEntry, NicPath, NicVirtual, Placed, PortAddress, RingPlace,
};
use platform::device::PortIndex;
use platform::ethernet::EthernetPort;
use units::Duration;
use wire::ethernet::MacAddr;
use wire::nic::registers::feature;
use wire::pcie::{Generation, Width};

use super::{Slot, kpio};
use crate::counters::Kind;
use crate::plain::{Plain, given, pci_id, plain};
use crate::tenth::{more, shorter};
use crate::topology::{TopologyError, attributes, endpoint_port};

pub fn plug(
    mut slot: Slot<'_>,
    nic: &Nic,
    ports: &[PortAddress],
) -> Result<(EndpointId, NicHandle), TopologyError> {
    let (links, generation, width) = slot.links(&nic.link);
    let (host, number) = (slot.host, slot.number);
    let shared = given(&nic.controller.shared_address, false);
    let of_link = nic.controller.ports.value.get();
    // Functions that share an address use that of the first link.
    let whose = |function| if shared { (function - 1) % of_link + 1 } else { function };
    let address = |function| mac_of(host, number, whose(function), ports);
    let params = nic_params(nic, links.len() as u8, generation, width, address);
    let (device, handle) =
        devices::nic::Nic::new(params).map_err(|error| TopologyError::Card(error.to_string()))?;
    let tags = nic.controller.tags.value.get() as u16;
    let core = EndpointParams { attributes: attributes(&nic.link), ..EndpointParams::ideal(tags) };
    Ok((slot.fabric.add_endpoint(core, &links, Box::new(device)), handle))
}

/// Raises what stands for a stage, tags or a buffer by a tenth.
pub fn raise(nic: &mut Nic, kind: Kind, part: &str) -> Option<()> {
    match (kind, part) {
        (Kind::Tags, "") => more(&mut nic.controller.tags.value),
        (_, "packets") => shorter(&mut nic.tx.packet_interval.value),
        (_, "received-packets") => shorter(&mut nic.rx.packet_interval.value),
        _ => return None,
    }
    Some(())
}

/// Ethernet address of a function of a host's device, counted from 1: the given one, or a generated one.
pub fn mac_of(host: HostId, number: usize, port: u32, ports: &[PortAddress]) -> MacAddr {
    let given = port.checked_sub(1).and_then(|port| ports.get(port as usize)?.mac.as_ref());
    let own = || MacAddr::local(u32::from(host.0) << 16 | (number as u32) << 8 | port);
    given.map_or_else(own, |mac| MacAddr(mac.value))
}

/// Parameters of a NIC with so many links of this `generation` and `width`. `address` returns the address of each
/// function.
///
/// Each link has a function per Ethernet port, as on adapters shared by several sockets or hosts.
pub fn nic_params(
    nic: &Nic,
    links: u8,
    generation: Generation,
    width: Width,
    address: impl Fn(u32) -> MacAddr,
) -> NicParams {
    let controller = &nic.controller;
    let ports: u8 = controller.ports.plain();
    let function = |n: u8| NicFunctionParams {
        pcie_port: PortIndex(n / ports),
        port: EthernetPort(n % ports),
        mac: address(u32::from(n) + 1),
    };
    let rules = controller.flow_rules.plain();
    let has = |key: &Option<Figure<bool>>| given(key, false);
    let mut features = feature::RX_CHECKSUM
        | feature::TX_CHECKSUM
        | feature::TSO
        | feature::RSS
        | feature::PROMISCUOUS
        | feature::ALL_GROUPS;
    if has(&controller.inline) {
        features |= feature::INLINE;
    }
    if controller.completion.as_ref().is_some_and(|entry| entry.value.get() > 16) {
        features |= feature::WIDE_COMPLETIONS;
    }
    if has(&controller.event_queues) {
        features |= feature::EVENT_QUEUES;
    }
    if rules > 0 {
        features |= feature::FLOW_RULES;
        if has(&controller.global_rules) {
            features |= feature::GLOBAL_RULES;
        }
    }
    plain!(controller => NicParams {
        functions: (0..ports * links).map(function).collect(),
        ports, rate, tx_queues, rx_queues, vectors,
        messages: true,
        log2_ring: log2(controller.ring_entries.value),
        max_frame, max_fragments, tso_max,
        features: features,
        rss_entries,
        flow_rules: rules,
        switch_rules: rules,
        flow_control: nic.flow_control.as_ref().map(|own| plain!(own => FlowControl { stop, go_on })),
        addresses: given(&controller.addresses, 0),
        tx: path(&nic.tx),
        rx: path(&nic.rx),
        read_chunk,
        write_chunk: given(&controller.write_chunk, u32::MAX),
        read_use: given(&controller.read_use, Duration::ZERO),
        doorbell_latency: controller.doorbell.value,
        register_latency: controller.register_read.value,
        ids: pci_id(&controller.pci_id),
        pcie: endpoint_port(&nic.link, generation, width),
        kpio: nic.kpio.as_ref().map(kpio::queues),
        virtual_functions: nic.virtual_functions.as_ref().map(virtual_functions),
        loopback: controller.loopback.as_ref().filter(|_| nic.is_looped()).map(|latency| LoopbackParams {
            latency: latency.value,
            between_subnets: given(&controller.loop_subnets, false),
        })
    })
}

pub(super) fn log2(entries: Count) -> u8 {
    entries.get().ilog2() as u8
}

fn path(path: &NicPath) -> PathParams {
    plain!(path => PathParams {
        fetch, cache, write_back, write_back_delay,
        packet_time: path.packet_interval.value,
        memory, latency
    })
}

fn virtual_functions(own: &NicVirtual) -> VirtualParams {
    let (_, device) = pci_id(&own.pci_id);
    plain!(own => VirtualParams { count, queues: own.queue_pairs.plain(), vectors, device: device })
}

/// Driver settings: from the scenario, or else from the NIC's file.
pub fn driver_params(entry: Option<&NicDriverEntry>, of_nic: Option<&NicDefaults>) -> NicDriverParams {
    let ixgbe = NicDriverParams::default();
    let usual = of_nic.map_or(ixgbe.clone(), |own| NicDriverParams {
        log2_tx: log2(own.tx_ring.value),
        log2_rx: log2(own.rx_ring.value),
        coalescing: own.coalescing.value,
        coalescing_packets: own.coalescing_packets.value,
        ..ixgbe
    });
    let Some(entry) = entry else { return usual };
    let ring = |ring: &Option<Placed<Count>>, usual| ring.as_ref().map_or(usual, |ring| log2(ring.value));
    NicDriverParams {
        channels: entry.channels.as_ref().map(|channels| channels.value.get() as u16),
        legacy_interrupt: entry.legacy_interrupt.unwrap_or(false),
        multi_pf: entry.multi_pf.as_ref().is_some_and(|multi_pf| multi_pf.value),
        over_nodes: entry.over_nodes.unwrap_or(false),
        log2_tx: ring(&entry.tx_ring, usual.log2_tx),
        log2_rx: ring(&entry.rx_ring, usual.log2_rx),
        coalescing: entry.coalescing.unwrap_or(usual.coalescing),
        adaptive: entry.adaptive.unwrap_or(usual.adaptive),
        coalescing_packets: entry.coalescing_packets.unwrap_or(usual.coalescing_packets),
        rss: entry.rss.iter().flat_map(|rss| rss.value.iter()).map(|&queue| queue as u16).collect(),
        inline: entry.inline_up_to.as_ref().map(|bytes| InlineParams {
            up_to: bytes.value.get() as u32,
            direct: entry.inline_direct.unwrap_or(false),
        }),
        held: entry.held_up_to.as_ref().map(|bytes| HeldParams {
            up_to: bytes.value.get() as u16,
            loads: entry.held_loads.unwrap_or_default(),
        }),
        kpio: kpio::driver_params(entry),
        completions_at_device: entry.completions == Some(RingPlace::Device),
        ..usual
    }
}
