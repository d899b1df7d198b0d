//! Builds root ports and their links from a machine file.

use hardware::core::StoreParams;
use hardware::link::{CreditLimits, Credits, LinkParams, ReceiverParams};
use hardware::memory::NodeId;
use hardware::root::{CompletionSplit, PeerReads, QuadrantParams, RootPortParams, StackParams};
use machine::{CompletionOrder, Figure, Host, LinkCapability, RootPort};
use units::{Bytes, Duration};
use wire::pcie::{Generation, Width};

use crate::plain::{Plain, given, narrow, plain};

/// Data path width of a root port's transmitter, for ports that state none; completions occupy whole beats (fitted: 288 wire bytes
/// for 256).
const ROOT_PORT_BEAT: u32 = 16;

/// Lanes of one stack of the I/O controller, whose root ports share its write buffer (Intel Xeon Processor Scalable Family uncore
/// performance monitoring guide: three stacks of 16 PCIe lanes).
const STACK_LANES: u32 = 16;

/// Completion timeout of ports without a setting in registers or file (assumed: the maximum of base spec 7.5.3.16).
pub const COMPLETION_TIMEOUT: Duration = Duration::from_ms(50);

/// Retraining time of links whose slot does not state it.
pub(super) const RETRAIN_TIME: Duration = Duration::from_us(10);

/// Parameters of a root port from the files of its host.
pub fn root_port_params(host: &Host, port: &RootPort, max_payload: u32) -> RootPortParams {
    let root = &host.root_complex;
    plain!(root => RootPortParams {
        node: NodeId(narrow(port.socket.value)),
        intake_per_request, intake_per_line, request_latency, completion_latency,
        split: completion_split(&root.completion_split, port.rcb_bytes.value.get()),
        translation_unit: host.iommu.as_ref().map_or(4096, |iommu| iommu.read_unit.plain()),
        partial_line, same_line_wait,
        completions_in_order: root.completion_order.value == CompletionOrder::InOrder,
        max_payload: max_payload,
        stack: root.stack_writes.as_ref().map(|writes| StackParams {
            lanes: STACK_LANES,
            own_lanes: port.width.value.get(),
            write_places: writes.plain(),
        }),
        ordered_writes: root.ordered_writes.plain(),
        ordered_peer_writes: root.ordered_peer_writes.plain(),
        quadrant: port.quadrant.as_ref().zip(root.quadrant_rate.as_ref()).map(|(number, rate)| {
            QuadrantParams { number: narrow(number.value), rate: rate.value }
        }),
        posted_release_latency, outbound_latency, posted_places, inbound_completion_latency,
        access_control: given(&root.access_control, false),
        ari_forwarding: given(&root.ari_forwarding, true),
        containment: given(&root.containment, false),
        latency_reports: given(&root.latency_reports, false),
        reflects_peers: given(&root.reflects_peers, false),
        peer_reads: piece(&root.peer_read).map(|largest| PeerReads {
            largest,
            places: given(&root.peer_reads, 32),
        }),
        peer_latency: given(&root.peer_latency, root.outbound_latency.value),
        peer_write_interval: given(&root.peer_write_interval, Duration::ZERO),
        peer_writes: piece(&root.peer_write),
        peer_link: host.interconnect.as_ref().and_then(|all| Some(all.peer_link.as_ref()?.value)),
        completion_timeout: given(&root.completion_timeout, COMPLETION_TIMEOUT)
    })
}

/// Size of the pieces into which requests are split, if they are.
fn piece(largest: &Option<Figure<Bytes>>) -> Option<u32> {
    largest.as_ref().map(Plain::plain).filter(|&largest| largest > 0)
}

/// Store parameters of `host`'s cores.
pub fn store_params(host: &Host) -> StoreParams {
    let core = &host.core;
    StoreParams {
        fill_buffers: core.line_fill_buffers.plain(),
        combining_buffers: core.write_combining_buffers.plain(),
        partial_chunk: core.combining_chunk.plain(),
        eviction_order: core.combining_order.value,
        accept_latency: host.root_complex.outbound_accept.value,
        uncached_latency: host.root_complex.uncached_accept.value,
        evict_interval: core.frequency.value.time_for(core.eviction_interval.value),
    }
}

fn completion_split(split: &machine::CompletionSplit, boundary: u32) -> CompletionSplit {
    plain!(split => CompletionSplit {
        boundary: boundary,
        tiny, small, small_up_to, large,
        largest_from: given(&split.largest_from, u32::MAX),
        largest: given(&split.largest, split.large.plain()),
        odd_multiple_as_largest: given(&split.odd_multiple_as_largest, 0),
        combine_window, busy_hold, splits_last, splits_partial, granule
    })
}

/// Parameters of the link between a root port and a device.
pub fn link_params(
    port: &RootPort,
    device: &LinkCapability,
    generation: Generation,
    width: Width,
) -> LinkParams {
    let receiver =
        |credits, ack_delay: &Figure<Duration>, credit_update_delay: &Figure<Duration>| ReceiverParams {
            credits: credit_limits(credits),
            ack_delay: ack_delay.value,
            credit_update_delay: credit_update_delay.value,
            replay_tlps: port.replay_tlps.plain(),
            cut_through: false,
        };
    let device_acks = device.ack_delay.as_ref().unwrap_or(&port.ack_delay);
    let device_updates = device.credit_update_delay.as_ref().unwrap_or(&port.credit_update_delay);
    LinkParams {
        generation,
        width,
        latency: given(&device.latency, port.link_latency.value),
        // The card's own transmitter is part of its core.
        beats: [port.transmit_width.as_ref().map_or(ROOT_PORT_BEAT, Plain::plain), 1],
        receivers: [
            receiver(&port.credits, &port.ack_delay, &port.credit_update_delay),
            receiver(&device.credits, device_acks, device_updates),
        ],
        retrain_time: given(&port.retrain_time, RETRAIN_TIME),
    }
}

pub(super) fn credit_limits(credits: &machine::Credits) -> CreditLimits {
    let pair = |header: u32, data: u32| Some(Credits { header, data });
    CreditLimits {
        posted: pair(credits.ph.value, credits.pd.value),
        non_posted: pair(credits.nph.value, credits.npd.value),
        // Completion credits are infinite: a requester reserves room before it asks.
        completion: match (credits.cplh.value, credits.cpld.value) {
            (0, _) | (_, 0) => None,
            (header, data) => pair(header, data),
        },
    }
}
