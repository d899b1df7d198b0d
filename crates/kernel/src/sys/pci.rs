//! PCI functions below the bridges above them.

use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::config::{BarKind, pcie_cap};

use super::{SysNode, cpu_list};
use crate::kernel::Inner;
use crate::pci::Function;

/// GT/s of a link, by its speed's code (base spec 7.5.3.6 and 7.5.3.18).
fn speed(code: u32) -> &'static str {
    match code & 0xf {
        1 => "2.5 GT/s PCIe",
        2 => "5.0 GT/s PCIe",
        3 => "8.0 GT/s PCIe",
        4 => "16.0 GT/s PCIe",
        5 => "32.0 GT/s PCIe",
        6 => "64.0 GT/s PCIe",
        _ => "Unknown",
    }
}

impl Inner {
    pub(super) async fn sys_pci(&self, cpu: &Cpu) -> SysNode {
        let mut root = SysNode::new("pci0000:00");
        for function in self.pci.all().iter().filter(|function| function.parent.is_none()) {
            root.children.push(self.sys_function(cpu, function).await);
        }
        root
    }

    async fn sys_function(&self, cpu: &Cpu, function: &Rc<Function>) -> SysNode {
        let id = function.identity;
        let mut node = SysNode::new(function.at().to_string())
            .with("vendor", format!("{:#06x}", id.vendor))
            .with("device", format!("{:#06x}", id.device))
            .with("subsystem_vendor", format!("{:#06x}", id.subsystem_vendor))
            .with("subsystem_device", format!("{:#06x}", id.subsystem))
            .with("class", format!("{:#08x}", id.class))
            .with("revision", format!("{:#04x}", id.revision))
            .with("numa_node", function.node.0);
        let near = self.cores.all.iter().filter(|core| core.node == function.node).map(|core| core.id);
        node = node.with("local_cpulist", cpu_list(near));
        if let Some(bound) = &*function.driver.borrow() {
            node = node.with("driver", bound.driver.name());
        }
        if let Some(physical) = function.physical {
            node = node.with("physfn", function.beside(physical));
        }
        for (n, bar) in function.bars.borrow().iter().enumerate() {
            let Some(bar) = bar else { continue };
            let kind = match bar.kind {
                BarKind::Io => "I/O",
                BarKind::Memory32 { prefetchable: false } => "32 bits",
                BarKind::Memory64 { prefetchable: false } => "64 bits",
                BarKind::Memory32 { prefetchable: true } => "32 bits, prefetchable",
                BarKind::Memory64 { prefetchable: true } => "64 bits, prefetchable",
            };
            let last = bar.address + bar.size.saturating_sub(1);
            node = node.with(format!("resource{n}"), format!("{:#x} {last:#x} {kind}", bar.address));
        }
        if function.is_bridge() {
            node = node
                .with("secondary_bus_number", function.secondary.get())
                .with("subordinate_bus_number", function.subordinate.get());
            for (name, window) in
                ["memory_window", "prefetchable_window"].iter().zip(*function.windows.borrow())
            {
                if let Some((start, length)) = window {
                    node = node.with(*name, format!("{start:#x} {:#x}", start + length - 1));
                }
            }
        }
        node = self.sys_link(cpu, function, node).await;
        if function.aer().is_some() {
            let errors = function.errors.get();
            node = node
                .with("aer_dev_correctable", errors.correctable)
                .with("aer_dev_nonfatal", errors.non_fatal)
                .with("aer_dev_fatal", errors.fatal);
        }
        node = self.sys_uses(function, node);
        let children: Vec<_> = self.pci.all().into_iter().filter(|f| f.is_below(function)).collect();
        for child in children {
            node.children.push(Box::pin(self.sys_function(cpu, &child)).await);
        }
        node
    }

    /// What the registers of a link say.
    async fn sys_link(&self, cpu: &Cpu, function: &Function, node: SysNode) -> SysNode {
        let Some(at) = function.pcie.filter(|_| function.physical.is_none()) else { return node };
        let most = function.backend.config_read(cpu, at + pcie_cap::LINK_CAPABILITIES).await;
        let status = function.backend.config_read(cpu, at + pcie_cap::LINK_CONTROL).await >> 16;
        node.with("max_link_speed", speed(most))
            .with("max_link_width", most >> 4 & 0x3f)
            .with("current_link_speed", speed(status))
            .with("current_link_width", status >> 4 & 0x3f)
            .with("max_payload_bytes", function.max_payload.get())
    }

    /// What a function's driver has and has made of it.
    fn sys_uses(&self, function: &Function, node: SysNode) -> SysNode {
        let irqs = function.irqs.borrow().clone();
        let irqs = irqs.into_iter().filter_map(|irq| self.irqs.line(irq)).map(|line| {
            SysNode::new(line.irq.0.to_string())
                .with("name", line.name.borrow())
                .with("smp_affinity_list", line.cpu.get().0)
                .with("count", line.count.get())
        });
        let mut node = node.with_folder("msi_irqs", irqs.collect());
        if let Some(dma) = &*function.dma.borrow() {
            node = node.with("iommu_mapped_pages", dma.mapped_pages());
        }
        let address = function.at();
        node.with_folder("net", self.sys_net(address)).with_folder("block", self.sys_block(address))
    }
}
