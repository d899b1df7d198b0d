//! Configuration spaces of the physical and virtual functions.

use wire::ethernet::MacAddr;
use wire::nic::CLASS;
use wire::nic::registers::{
    BAR_BYTES, INLINE_BAR, INLINE_PAGE, MSIX_PENDING, MSIX_TABLE, WINDOW_BAR, feature,
};
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{BarKind, ConfigError, ConfigSpace, SriovParams};

use super::NicParams;

/// VF BARs are prefetchable, as in most NICs: space for many BARs is only available above 4 GiB.
const VIRTUAL_BAR: BarKind = BarKind::Memory64 { prefetchable: true };

fn interrupts(vectors: u16) -> MsixLayout {
    MsixLayout {
        vectors,
        table_bar: 0,
        table_offset: MSIX_TABLE,
        pending_bar: 0,
        pending_offset: MSIX_PENDING,
    }
}

/// Configuration space of physical function `number`.
pub fn physical(params: &NicParams, number: u8) -> Result<ConfigSpace, ConfigError> {
    let (vendor, device) = params.ids;
    let mut config = ConfigSpace::endpoint(vendor, device, CLASS);
    if params.functions.len() > 1 {
        config = config.multi_function();
    }
    config = config.bar64(0, BAR_BYTES, false);
    if let Some(bytes) = params.windows().bar() {
        config = config.bar64(WINDOW_BAR, bytes, true);
    }
    if params.features & feature::INLINE != 0 {
        let pages = u64::from(params.tx_queues) * INLINE_PAGE;
        config = config.bar64(INLINE_BAR, pages.next_power_of_two().max(4096), true);
    }
    config = config.interrupt_pin(1 + number % 4).power_management();
    if params.messages {
        config = config.msix(interrupts(params.vectors));
    }
    config = config.pcie(params.pcie).aer().ecrc();
    if let Some(own) = params.virtual_functions {
        // VFs follow all physical functions of the PCIe port; those of different PFs are interleaved.
        let port = params.functions[usize::from(number)].pcie_port;
        let place = |n: &usize| params.functions[*n].pcie_port == port;
        let siblings: Vec<usize> = (0..params.functions.len()).filter(place).collect();
        let next = siblings.iter().position(|&n| n > usize::from(number)).unwrap_or(0);
        let mut bars = [None; 6];
        bars[0] = Some((VIRTUAL_BAR, BAR_BYTES));
        config = config.ari(next as u8).sriov(SriovParams {
            total: own.count.into(),
            first_offset: siblings.len() as u16,
            stride: siblings.len() as u16,
            device: own.device,
            bars,
        });
    }
    config.build()
}

/// Configuration space of a virtual function.
pub fn virtual_function(params: &NicParams) -> Result<ConfigSpace, ConfigError> {
    let vectors = params.virtual_functions.map_or(1, |own| own.vectors);
    ConfigSpace::virtual_function(CLASS)
        .bar64(0, BAR_BYTES, true)
        .msix(interrupts(vectors))
        .pcie(params.pcie)
        .ari(0)
        .build()
}

/// MAC address of a virtual function: the physical function's, locally administered, with one byte per VF.
pub fn virtual_mac(owner: MacAddr, number: u8) -> MacAddr {
    let mut bytes = owner.0;
    bytes[0] |= 2;
    bytes[1] ^= number + 1;
    MacAddr(bytes)
}
