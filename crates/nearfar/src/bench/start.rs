//! Configures a card through registers, as firmware, kernel and the benchmark's driver do.

use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::root::HostId;
use platform::device::FunctionIndex;
use results::pciebench::{Pattern, Run, Test};
use units::{Duration, HostPhysical};
use wire::dma_engine as regs;
use wire::pcie::Bdf;
use wire::pcie::config::{ConfigSpace, pcie_cap};

use super::buffer::Buffer;
use super::{BenchError, CARD, Effort};

/// BAR 0 of the card, as firmware assigns it.
pub(super) const BAR0: u64 = 0xe000_0000;
/// Settings in the card's configuration space.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// Offset of the card's PCI Express capability.
    pub capability: u16,
    /// Max payload size (bytes).
    pub payload: u32,
    /// Max read request size (bytes).
    pub read_request: u32,
    /// Whether the card may use 8-bit tags.
    pub extended_tags: bool,
    /// Whether it may use 10-bit tags, which it and the root port support.
    pub ten_bit_tags: bool,
}

impl Setup {
    /// Settings of `card` in a slot described by `port`, below root port `place.port`.
    pub fn of(
        fabric: &Fabric,
        host: HostId,
        card: EndpointId,
        port: &machine::RootPort,
        place: CardPlace,
    ) -> Self {
        let own = fabric.endpoint(card).core.registers.config(FunctionIndex(0));
        let root = fabric.host(host).port(place.port).config();
        let capabilities =
            |config: &ConfigSpace, which| config.pcie_offset().map_or(0, |at| config.dword(at + which));
        let requester = capabilities(own, pcie_cap::DEVICE_CAPABILITIES_2);
        let completer = capabilities(root, pcie_cap::DEVICE_CAPABILITIES_2);
        Self {
            capability: own.pcie_offset().unwrap_or(0),
            // The smaller of both limits. The lowest three bits of Device Capabilities are log2 of the size in 128 B.
            payload: port
                .mps_bytes
                .value
                .get()
                .min(128 << (capabilities(own, pcie_cap::DEVICE_CAPABILITIES) & 0b111)),
            read_request: port.mrrs_bytes.value.get(),
            extended_tags: capabilities(own, pcie_cap::DEVICE_CAPABILITIES)
                & pcie_cap::CAPABILITIES_EXTENDED_TAGS
                != 0,
            ten_bit_tags: requester & pcie_cap::CAPABILITIES_2_TEN_BIT_REQUESTER != 0
                && completer & pcie_cap::CAPABILITIES_2_TEN_BIT_COMPLETER != 0,
        }
    }
}

/// Location of a card.
#[derive(Clone, Copy)]
pub(super) struct CardPlace {
    /// Its address.
    pub card: Bdf,
    /// Address of its BAR 0.
    pub bar0: u64,
    /// The root port above it.
    pub port: u8,
}

/// Location of the card under test.
pub(super) const FIRST_SLOT: CardPlace = CardPlace { card: CARD, bar0: BAR0, port: 0 };

/// Interval between two register writes of the driver.
pub(super) const REGISTER_INTERVAL: Duration = Duration::from_ns(20);

/// Configures a card as firmware, kernel and the benchmark's driver would, and starts the test.
#[allow(clippy::too_many_arguments)]
pub(super) fn start(
    simulation: &Simulation<Fabric>,
    host: HostId,
    place: CardPlace,
    setup: Setup,
    buffer: &Buffer,
    run: &Run,
    effort: Effort,
    seed: u64,
) -> Result<(), BenchError> {
    let handle = simulation.handle();
    // The driver runs on the card's socket.
    let core = simulation.with(|fabric, _| {
        let host = fabric.host_mut(host);
        host.add_window(HostPhysical::new(place.bar0), regs::BAR_BYTES, place.port);
        host.core_near(place.port)
    });
    let config = configuration(place, setup);
    let registers = registers(buffer, run, effort, seed);
    simulation.block_on(async move {
        for (register, value) in config {
            let written = handle.with(|fabric, scheduler| {
                let (host, mut cx) = fabric.host_in(host, scheduler);
                host.config_write(&mut cx, core, place.card, register, value, 0xf)
            });
            let _ = written.data.await;
        }
        for (register, value) in registers {
            let sent = handle.with(|fabric, scheduler| {
                let (host, mut cx) = fabric.host_in(host, scheduler);
                let at = HostPhysical::new(place.bar0 + register);
                host.mmio_write(&mut cx, core, at, &value.to_le_bytes())
            });
            debug_assert!(sent.is_ok(), "the BAR's window was added");
            // One at a time: the writes are posted and must not be reordered.
            handle.sleep(REGISTER_INTERVAL).await;
        }
    })?;
    Ok(())
}

/// Configuration writes: BAR 0, memory decoding and bus mastering, payload and read request sizes, tags.
fn configuration(place: CardPlace, setup: Setup) -> Vec<(u16, u32)> {
    const COMMAND: u16 = 0x04;
    const BASE_ADDRESS_0: u16 = 0x10;
    const BASE_ADDRESS_1: u16 = 0x14;
    const MEMORY_SPACE_AND_BUS_MASTER: u32 = 0b110;
    let size = |bytes: u32| bytes.max(128).ilog2() - 7;
    let bit = |on: bool, bit: u16| if on { u32::from(bit) } else { 0 };
    let device_control = size(setup.payload) << 5
        | size(setup.read_request) << 12
        | bit(setup.extended_tags, pcie_cap::CONTROL_EXTENDED_TAGS);
    let mut writes = vec![
        (BASE_ADDRESS_0, place.bar0 as u32),
        (BASE_ADDRESS_1, (place.bar0 >> 32) as u32),
        (setup.capability + pcie_cap::DEVICE_CONTROL, device_control),
        (COMMAND, MEMORY_SPACE_AND_BUS_MASTER),
    ];
    if setup.ten_bit_tags {
        let place = setup.capability + pcie_cap::DEVICE_CONTROL_2;
        writes.push((place, pcie_cap::CONTROL_2_TEN_BIT_TAGS.into()));
    }
    writes
}

/// Register writes that describe and start the test.
fn registers(buffer: &Buffer, run: &Run, effort: Effort, seed: u64) -> Vec<(u64, u32)> {
    let test = match run.test {
        Test::LatCmdRd | Test::LatDmaRd => regs::Test::LatencyRead,
        Test::LatCmdWrRd | Test::LatDmaWrRd => regs::Test::LatencyWriteRead,
        Test::BwDmaRd => regs::Test::BandwidthRead,
        Test::BwDmaWr => regs::Test::BandwidthWrite,
        Test::BwDmaRw => regs::Test::BandwidthReadWrite,
    };
    let transactions = if run.test.is_latency() { effort.samples } else { effort.transactions };
    let mut writes = vec![
        (regs::TEST, test as u32),
        (regs::INTERFACE, u32::from(run.test.is_command())),
        (regs::RANDOM, u32::from(run.pattern == Pattern::Random)),
        (regs::TRANSFER, run.transfer.get() as u32),
        (regs::WINDOW, run.window.get() as u32),
        (regs::HOST_OFFSET, run.host_offset as u32),
        (regs::DEVICE_OFFSET, run.device_offset as u32),
        (regs::TRANSACTIONS, transactions as u32),
        (regs::SEED, seed as u32),
        (regs::SEED + 4, (seed >> 32) as u32),
    ];
    for (index, address) in buffer.addresses.iter().enumerate() {
        let at = regs::CHUNK_ADDRESSES + 8 * index as u64;
        writes.push((at, address.get() as u32));
        writes.push((at + 4, (address.get() >> 32) as u32));
    }
    writes.push((regs::CONTROL, regs::START));
    writes
}
