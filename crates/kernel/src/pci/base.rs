//! What all parts of the PCI core use.

use std::rc::Rc;

use platform::costs::linux;
use platform::cpu::Node;
use wire::pcie::config::dpc::TriggerEnable;

use super::backend::Backend;
use crate::cpu::Cores;
use crate::dma::Dma;
use crate::irq::Irqs;
use crate::log::Log;

/// Parameters of the PCI core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciParams {
    /// Max read request size to set (bytes; `pci=pcie_bus_perf` and firmware use 512 to 4096).
    pub max_read_request: u32,
    /// Bus numbers kept free behind a hot-plug slot (Linux: `pci=hpbussize`).
    pub spare_buses: u8,
    /// Address space kept free behind a hot-plug slot below 4 GiB (bytes; Linux: `pci=hpmmiosize`, 2 MiB).
    pub spare_memory: u64,
    /// The same above 4 GiB (Linux: `pci=hpmmioprefsize`, 2 MiB).
    pub spare_prefetchable: u64,
    /// Address space above 4 GiB for BARs (bytes); as much as there is if `None`.
    pub high_space: Option<u64>,
    /// Size to which BARs that can be resized are set (bytes, a power of two); they keep theirs if `None`.
    pub resizable_bars: Option<u64>,
    /// Errors for which ports that can contain what is below them (DPC) do so.
    pub containment: TriggerEnable,
}

impl Default for PciParams {
    fn default() -> Self {
        Self {
            max_read_request: const { linux("", "max_read_request") } as u32,
            spare_buses: const { linux("pci", "hpbussize") } as u8,
            spare_memory: const { linux("pci", "hpmmiosize") },
            spare_prefetchable: const { linux("pci", "hpmmioprefsize") },
            high_space: None,
            resizable_bars: None,
            // drivers/pci/pcie/dpc.c: PCI_EXP_DPC_CTL_EN_FATAL.
            containment: TriggerEnable::Fatal,
        }
    }
}

/// The parts of the kernel that the PCI core uses.
#[derive(Clone)]
pub(super) struct PciBase {
    pub params: PciParams,
    pub cores: Rc<Cores>,
    pub log: Rc<Log>,
    pub irqs: Rc<Irqs>,
    pub dma: Rc<Dma>,
}

impl PciBase {
    /// NUMA node of a function.
    pub fn node_of(&self, way: &dyn Backend) -> Node {
        self.cores.ground.node_of_port(way.root_port()).unwrap_or(Node(0))
    }
}
