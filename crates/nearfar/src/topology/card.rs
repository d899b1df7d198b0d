//! Builds a card from a part file: PCIe core and firmware.

use std::cell::RefCell;
use std::rc::Rc;

use devices::dma_engine::{
    BusParams, DmaEngine, DmaEngineParams, DrainParams, EngineParams, Journal, Linear, LocalMemoryParams,
    MoverParams, TransmitParams, WriteOutParams,
};
use engine::Rng;
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::LinkId;
use machine::{
    DeviceMemory, Figure, InterfaceTiming, LinkCapability, LinkGeneration, LinkWidth, Part, RootPort,
};
use platform::device::DmaAttributes;
use units::Duration;
use wire::pcie::config::PcieParams;
use wire::pcie::{Generation, Width};

use super::TopologyError;
use super::root::COMPLETION_TIMEOUT;
use crate::plain::{Plain, given, narrow, plain};

/// Vendor and device ID of the NFP-6000; every card presents itself as one.
pub const CARD_IDS: (u16, u16) = (0x19ee, 0x6000);

/// Time to answer a configuration request, for cards whose file does not state it.
const CONFIG_LATENCY: Duration = Duration::from_ns(100);

/// Picoseconds per byte.
fn per_byte(figure: &Figure<Duration>) -> u32 {
    narrow(figure.value.as_ps())
}

/// The card's completion timeout for reads.
pub fn completion_timeout(part: &Part) -> Duration {
    given(&part.dma_engine.completion_timeout, COMPLETION_TIMEOUT)
}

/// Attaches a card to the lower end of a trained link. Returns the journal of its measurements.
///
/// `long_header_penalty` is the number of additional bytes that a write with a four-doubleword header costs on this
/// machine, compared with the shorter header.
///
/// # Errors
/// If its capabilities do not fit into configuration space.
pub fn plug(
    fabric: &mut Fabric,
    part: &Part,
    (link, generation, width): (LinkId, Generation, Width),
    long_header_penalty: u64,
    rng: Rng,
) -> Result<(EndpointId, Rc<RefCell<Journal>>), TopologyError> {
    let ps_per_wire_byte = fabric.wires.link(link).wire_time_per_byte_ps();
    let (core, params) = card_params(part, (generation, width), ps_per_wire_byte, long_header_penalty);
    let (device, journal) =
        DmaEngine::new(params, rng).map_err(|error| TopologyError::Card(error.to_string()))?;
    Ok((fabric.add_endpoint(core, &[link], Box::new(device)), journal))
}

/// Parameters of a card, as for [`plug`].
pub fn card_params(
    part: &Part,
    (generation, width): (Generation, Width),
    ps_per_wire_byte: f64,
    long_header_penalty: u64,
) -> (EndpointParams, DmaEngineParams) {
    let mover = mover_params(part, ps_per_wire_byte, long_header_penalty);
    (endpoint_params(part), firmware_params(part, mover, generation, width))
}

/// Parameters of a card's PCIe core.
pub fn endpoint_params(part: &Part) -> EndpointParams {
    let engine = &part.dma_engine;
    plain!(engine => EndpointParams {
        tags, read_buffer, max_read_request, issue_interval, tag_release, writes_in_hand,
        completion_timeout: completion_timeout(part),
        config_latency: given(&engine.config_latency, CONFIG_LATENCY),
        attributes: attributes(&part.link)
    })
}

/// Whether what the card's transmit path does is the time of its link.
pub fn sends_at_wire_speed(part: &Part) -> bool {
    part.dma_engine.transmit.per_byte.value.is_zero()
}

/// Parameters of the card's data mover, on a link that takes `ps_per_wire_byte` per byte.
fn mover_params(part: &Part, ps_per_wire_byte: f64, long_header_penalty: u64) -> MoverParams {
    let engine = &part.dma_engine;
    let (drain, transmit, bus) = (&engine.drain, &engine.transmit, &engine.bus);
    let overhead: u32 = transmit.overhead.plain();
    MoverParams {
        drain: plain!(drain => DrainParams {
            per_request, per_completion,
            ps_per_byte: per_byte(&drain.per_byte),
            ps_per_written_byte: per_byte(&drain.per_written_byte),
            granule
        }),
        transmit: plain!(transmit => TransmitParams {
            ps_per_byte: match sends_at_wire_speed(part) {
                true => ps_per_wire_byte.round() as u32,
                false => per_byte(&transmit.per_byte),
            },
            overhead,
            long_overhead: overhead + narrow::<u32>(long_header_penalty),
            beat
        }),
        bus: plain!(bus => BusParams { ps_per_byte: per_byte(&bus.per_byte), turn, burst, longest_interrupted }),
        dma: interface(&engine.dma, Some(local_memory(&engine.memory))),
        command: engine.command.as_ref().map_or(EngineParams::default(), |c| interface(&c.timing, None)),
    }
}

fn interface(timing: &InterfaceTiming, memory: Option<LocalMemoryParams>) -> EngineParams {
    let linear = |base: &Figure<Duration>, slope| Linear { base: base.value, ps_per_byte: per_byte(slope) };
    plain!(timing => EngineParams {
        start_latency, read_done_latency,
        hand_over_ps_per_byte: per_byte(&timing.hand_over_per_byte),
        hand_over_per_completion,
        write_done: [
            linear(&timing.write_done, &timing.write_done_per_byte),
            linear(&timing.write_drained, &timing.write_drained_per_byte),
        ],
        memory: memory
    })
}

fn local_memory(memory: &DeviceMemory) -> LocalMemoryParams {
    plain!(memory => LocalMemoryParams {
        chunk, word, per_transfer, per_operation, per_ragged_chunk,
        write_out: plain!(memory => WriteOutParams {
            ps_per_byte: per_byte(&memory.write_out_per_byte),
            per_completion: memory.write_out_per_completion.value,
            within_chunk: memory.write_out_within_chunk.value,
            short_chunk: memory.write_out_short_chunk.value,
            unaligned_head, unaligned_tail
        })
    })
}

/// Timing of the card's firmware, and its port's capabilities.
fn firmware_params(part: &Part, mover: MoverParams, generation: Generation, width: Width) -> DmaEngineParams {
    let engine = &part.dma_engine;
    let command = engine.command.as_ref();
    DmaEngineParams {
        tick: engine.timestamp_tick.value,
        workers: engine.firmware.workers.plain(),
        sample_gap: engine.firmware.sample_gap.value,
        command_write_then_read: command.map_or(Duration::ZERO, |c| c.timing.write_done.value),
        command_largest: command.map_or(0, |c| c.largest.plain()),
        command_granule: command.map_or(1, |c| c.address_granule.plain()),
        command_address_bits: command.map_or(64, |c| c.address_bits.plain()),
        command_window_change: command.map_or(Duration::ZERO, |c| c.window_change.value),
        register_latency: engine.firmware.register_latency.value,
        mover,
        pcie: endpoint_port(&part.link, generation, width),
        ids: CARD_IDS,
    }
}

/// Attributes that a part gives to requests for payload.
pub fn attributes(link: &LinkCapability) -> DmaAttributes {
    DmaAttributes {
        relaxed_ordering: given(&link.relaxed_ordering, false),
        no_snoop: given(&link.no_snoop, false),
        id_based_ordering: given(&link.id_based_ordering, false),
        translated: false,
    }
}

/// PCIe capability registers of an endpoint's port.
pub fn endpoint_port(link: &LinkCapability, generation: Generation, width: Width) -> PcieParams {
    PcieParams {
        max_payload: link.mps_bytes.plain(),
        extended_tags: link.tag_bits.value.get() >= 8,
        ten_bit_tags: link.tag_bits.value.get() == 10,
        access_control: given(&link.access_control, false).then_some(0),
        translation_queue: link.translation_queue.plain(),
        latency_tolerance: link.latency_tolerance.as_ref().map(|tolerance| tolerance.value),
        ..PcieParams::endpoint(generation, width)
    }
}

/// Generation and width negotiated between a device and a port with a number of lanes.
///
/// # Panics
/// If the link does not support a generation or width of the file; the file's reader checks this.
pub fn negotiate(device: &LinkCapability, port: &RootPort, lanes: u32) -> (Generation, Width) {
    agree(device, (port.generation.value, port.width.value), lanes)
}

/// As [`negotiate`], for any port.
pub(super) fn agree(
    device: &LinkCapability,
    port: (LinkGeneration, LinkWidth),
    lanes: u32,
) -> (Generation, Width) {
    let generation = device.generation.value.get().min(port.0.get());
    let lanes = device.width.value.get().min(port.1.get()).min(lanes);
    (
        Generation::from_number(generation as u8).expect("a generation that the file's reader allows"),
        Width::from_lanes(lanes as u8).expect("a width that the file's reader allows"),
    )
}
