//! Configures a card through registers, as firmware, kernel and the benchmark's driver do.

use engine::Simulation;
use hardware::endpoint::EndpointId;
use hardware::root::HostId;
use hardware::{Fabric, HostFirmware};
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

/// Configures a card in a slot described by `port` as firmware, kernel and the benchmark's driver would, and starts the
/// test.
#[allow(clippy::too_many_arguments)]
pub(super) fn start(
    simulation: &Simulation<Fabric>,
    host: HostId,
    (card, place): (EndpointId, CardPlace),
    port: &machine::RootPort,
    buffer: &Buffer,
    run: &Run,
    effort: Effort,
    seed: u64,
) -> Result<(), BenchError> {
    let handle = simulation.handle();
    let bar0 = HostPhysical::new(place.bar0);
    // The driver runs on the card's socket.
    let (core, settings) = simulation.with(|fabric, _| {
        let settings = settings(fabric, host, card, port, place);
        let host = fabric.host_mut(host);
        host.add_window(bar0, regs::BAR_BYTES, place.port);
        (host.core_near(place.port), settings)
    });
    let registers = registers(buffer, run, effort, seed);
    simulation.block_on(async move {
        let firmware = HostFirmware::new(handle.clone(), host, core);
        firmware.enable(place.card, &[(0, bar0)]).await;
        for (register, value) in settings {
            firmware.write(place.card, register, value).await;
        }
        for (register, value) in registers {
            let sent = handle.with(|fabric, scheduler| {
                let (host, mut cx) = fabric.host_in(host, scheduler);
                host.mmio_write(&mut cx, core, bar0 + register, &value.to_le_bytes())
            });
            debug_assert!(sent.is_ok(), "the BAR's window was added");
            // One at a time: the writes are posted and must not be reordered.
            handle.sleep(REGISTER_INTERVAL).await;
        }
    })?;
    Ok(())
}

/// Configuration writes: payload and read request sizes, tags.
fn settings(
    fabric: &Fabric,
    host: HostId,
    card: EndpointId,
    port: &machine::RootPort,
    place: CardPlace,
) -> Vec<(u16, u32)> {
    let own = fabric.endpoint(card).core.registers.config(FunctionIndex(0));
    let root = fabric.host(host).port(place.port).config();
    let read = |config: &ConfigSpace, which| config.pcie_offset().map_or(0, |at| config.dword(at + which));
    let capabilities = read(own, pcie_cap::DEVICE_CAPABILITIES);
    let payload = port.mps_bytes.value.get().min(pcie_cap::size_bytes(capabilities as u16));
    let size = |bytes| pcie_cap::size_code(bytes).unwrap_or(0);
    let mut control = size(payload) << 5 | size(port.mrrs_bytes.value.get()) << 12;
    if capabilities & pcie_cap::CAPABILITIES_EXTENDED_TAGS != 0 {
        control |= pcie_cap::CONTROL_EXTENDED_TAGS;
    }
    let capability = own.pcie_offset().unwrap_or(0);
    let mut writes = vec![(capability + pcie_cap::DEVICE_CONTROL, control.into())];
    let requester = read(own, pcie_cap::DEVICE_CAPABILITIES_2);
    let completer = read(root, pcie_cap::DEVICE_CAPABILITIES_2);
    // Both must support 10-bit tags.
    if requester & pcie_cap::CAPABILITIES_2_TEN_BIT_REQUESTER != 0
        && completer & pcie_cap::CAPABILITIES_2_TEN_BIT_COMPLETER != 0
    {
        let register = capability + pcie_cap::DEVICE_CONTROL_2;
        writes.push((register, pcie_cap::CONTROL_2_TEN_BIT_TAGS.into()));
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
