//! PCI functions, nested below their bridges.

use std::rc::Rc;

use platform::cpu::Cpu;
use wire::pcie::config::BarKind;

use super::{SysNode, cpu_list, devices};
use crate::kernel::Inner;
use crate::pci::Function;

/// Link speed in GT/s, by its code (base spec 7.5.3.6 and 7.5.3.18).
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

/// All functions.
pub(super) async fn tree(kernel: &Inner, cpu: &Cpu) -> SysNode {
    let mut root = SysNode::new("pci0000:00");
    for function in
        kernel.pci.topology.all().iter().filter(|function| kernel.pci.info(function).parent.is_none())
    {
        root.children.push(node(kernel, cpu, function).await);
    }
    root
}

async fn node(kernel: &Inner, cpu: &Cpu, function: &Rc<Function>) -> SysNode {
    let info = kernel.pci.info(function);
    let id = info.identity;
    let near = kernel.cores.all.iter().filter(|core| core.node.0 == info.node).map(|core| core.id);
    let mut node = SysNode::new(info.address().to_string())
        .with("vendor", format!("{:#06x}", id.vendor))
        .with("device", format!("{:#06x}", id.device))
        .with("subsystem_vendor", format!("{:#06x}", id.subsystem_vendor))
        .with("subsystem_device", format!("{:#06x}", id.subsystem))
        .with("class", format!("{:#08x}", id.class))
        .with("revision", format!("{:#04x}", id.revision))
        .with("numa_node", info.node)
        .with("local_cpulist", cpu_list(near));
    if let Some(driver) = info.driver {
        node = node.with("driver", driver);
    }
    if let Some(physical) = info.physical {
        node = node.with("physfn", function.beside(physical));
    }
    for (n, bar) in &info.bars {
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
    for (n, sizes) in function.resizable_bars() {
        node = node.with(format!("resource{n}_resize"), format!("{sizes:016x}"));
    }
    if let Some((secondary, subordinate)) = info.buses {
        node = node.with("secondary_bus_number", secondary).with("subordinate_bus_number", subordinate);
        for (name, window) in ["memory_window", "prefetchable_window"].iter().zip(info.windows) {
            if let Some((start, length)) = window {
                node = node.with(*name, format!("{start:#x} {:#x}", start + length - 1));
            }
        }
    }
    if let Some((most, status)) = function.link(cpu).await {
        node = node
            .with("max_link_speed", speed(most))
            .with("max_link_width", most >> 4 & 0x3f)
            .with("current_link_speed", speed(status))
            .with("current_link_width", status >> 4 & 0x3f)
            .with("max_payload_bytes", kernel.pci.info(function).max_payload);
    }
    if let Some(most) = function.latency_maximum(cpu).await {
        node = node.with("ltr_enabled", u8::from(function.latency_path.get())).with("ltr_max_snoop_ns", most);
    }
    if let Some(errors) = function.errors() {
        node = node
            .with("aer_dev_correctable", errors.correctable)
            .with("aer_dev_nonfatal", errors.non_fatal)
            .with("aer_dev_fatal", errors.fatal);
    }
    node = with_uses(kernel, function, node);
    for child in kernel.pci.topology.all().iter().filter(|child| child.is_below(function)) {
        node.children.push(Box::pin(self::node(kernel, cpu, child)).await);
    }
    node
}

/// A function with its interrupts and devices.
fn with_uses(kernel: &Inner, function: &Function, node: SysNode) -> SysNode {
    let lines = kernel.pci.interrupts.of(function).into_iter().filter_map(|irq| kernel.irqs.line(irq));
    let irqs = lines.map(|line| line.state()).map(|line| {
        SysNode::new(line.irq.0.to_string())
            .with("name", line.name)
            .with("smp_affinity_list", line.cpu.0)
            .with("count", line.count)
    });
    let mut node = node.with_folder("msi_irqs", irqs.collect());
    if let Some(pages) = function.mapped_pages() {
        node = node.with("iommu_mapped_pages", pages);
    }
    let at = function.at();
    node.with_folder("net", devices::net(kernel, at)).with_folder("block", devices::block(kernel, at))
}
