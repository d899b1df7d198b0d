//! The PCI tree for inspection, as data and as text.

use std::fmt;

use platform::dma::DmaCounters;
use platform::irq::Irq;
use platform::pci::Identity;
use wire::pcie::config::Bar;
use wire::pcie::{Bdf, FunctionAddress, Segment};

/// Description of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionInfo {
    /// Segment: 0 for the host's own fabric.
    pub segment: Segment,
    /// Address within the segment.
    pub bdf: Bdf,
    /// Bridge above it.
    pub parent: Option<Bdf>,
    /// Physical function of a virtual one.
    pub physical: Option<Bdf>,
    /// Vendor, device and class.
    pub identity: Identity,
    /// Bus range behind a bridge.
    pub buses: Option<(u8, u8)>,
    /// Start and length of a bridge's windows: below 4 GiB, and prefetchable.
    pub windows: [Option<(u64, u64)>; 2],
    /// BARs by number.
    pub bars: Vec<(u8, Bar)>,
    /// NUMA node.
    pub node: u8,
    /// Max payload size in use (bytes).
    pub max_payload: u32,
    /// Bound driver.
    pub driver: Option<&'static str>,
    /// Interrupts.
    pub irqs: Vec<Irq>,
    /// Pages mapped in the IOMMU.
    pub mapped_pages: u64,
    /// IOMMU domain ID, if it has a domain.
    pub domain: Option<u16>,
    /// The driver's use of the DMA API.
    pub dma: DmaCounters,
    /// Whether it is present.
    pub present: bool,
}

impl FunctionInfo {
    /// Segment and BDF.
    pub const fn address(&self) -> FunctionAddress {
        FunctionAddress { segment: self.segment, bdf: self.bdf }
    }

    /// Whether it is directly below `bridge`.
    pub fn is_below(&self, bridge: &Self) -> bool {
        self.segment == bridge.segment && self.parent == Some(bridge.bdf)
    }
}

/// The tree as text: one function per line, indented below its bridge.
pub struct TreeText<'a>(pub &'a [FunctionInfo]);

impl fmt::Display for TreeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for function in self.0.iter().filter(|function| function.parent.is_none()) {
            self.write(f, function, 0)?;
        }
        Ok(())
    }
}

impl TreeText<'_> {
    fn write(&self, f: &mut fmt::Formatter<'_>, function: &FunctionInfo, depth: usize) -> fmt::Result {
        let id = function.identity;
        write!(f, "{:1$}", "", depth * 2)?;
        if function.segment.0 != 0 {
            write!(f, "{:04x}:", function.segment.0)?;
        }
        write!(f, "{} ", function.bdf)?;
        write!(f, "{:04x}:{:04x} class {:06x}", id.vendor, id.device, id.class)?;
        if let Some(physical) = function.physical {
            write!(f, " virtual of {physical}")?;
        }
        if let Some((first, last)) = function.buses {
            write!(f, " buses {first:02x}-{last:02x}")?;
        }
        for (start, length) in function.windows.iter().flatten() {
            write!(f, " window {start:#x}+{length:#x}")?;
        }
        for (n, bar) in &function.bars {
            write!(f, " bar{n} {:#x}+{:#x}", bar.address, bar.size)?;
        }
        write!(f, " node {} mps {}", function.node, function.max_payload)?;
        if !function.irqs.is_empty() {
            write!(f, " irqs {}", function.irqs.len())?;
        }
        if let Some(driver) = function.driver {
            write!(f, " driver {driver}")?;
        }
        writeln!(f)?;
        for child in self.0.iter().filter(|child| child.is_below(function)) {
            self.write(f, child, depth + 1)?;
        }
        Ok(())
    }
}
