//! Reads what a function is from its configuration space.

use std::rc::Rc;

use platform::cpu::{Cpu, Node};
use platform::pci::Identity;
use wire::pcie::config::{Bar, bars, header};
use wire::pcie::{Bdf, FunctionAddress};

use super::backend::Backend;
use super::capabilities::CapabilityLists;
use super::function::{Function, Probed};
use super::resize::Resizable;

/// Reads the identity, capabilities and BARs of a function, if there is one.
pub(super) async fn probe(
    cpu: &Cpu,
    at: FunctionAddress,
    way: Rc<dyn Backend>,
    parent: Option<Bdf>,
    node: Node,
) -> Option<Rc<Function>> {
    let ids = way.config_read(cpu, header::VENDOR).await;
    if ids == u32::MAX || ids as u16 == 0 {
        return None;
    }
    let class = way.config_read(cpu, header::REVISION).await;
    let kind = (way.config_read(cpu, header::CACHE_LINE).await >> 16) as u8;
    let is_bridge = kind & 0x7f == 1;
    let subsystem = match is_bridge {
        true => 0,
        false => way.config_read(cpu, header::SUBSYSTEM).await,
    };
    let identity = Identity::from_registers(ids, class, subsystem);
    let bars = if is_bridge { 2 } else { 6 };
    let capabilities = CapabilityLists::read(cpu, &*way).await;
    let bars = size_bars(cpu, &*way, bars).await;
    let resizable = Resizable::read(cpu, &*way, &capabilities).await;
    let probed = Probed { identity, header_type: kind, capabilities, bars, resizable };
    Some(Rc::new(Function::new(at, way, (parent, None), node, probed)))
}

/// Sizes the BARs with decoding disabled.
async fn size_bars(cpu: &Cpu, way: &dyn Backend, count: u8) -> [Option<Bar>; 6] {
    let command = way.read_u16(cpu, header::COMMAND).await;
    let decoding = header::COMMAND_MEMORY | header::COMMAND_IO;
    way.write_u16(cpu, header::COMMAND, command & !decoding).await;
    size_bars_at(cpu, way, header::BAR0, count).await
}

/// Sizes the BARs whose registers start at `first`.
pub(super) async fn size_bars_at(cpu: &Cpu, way: &dyn Backend, first: u16, count: u8) -> [Option<Bar>; 6] {
    let mut found = [None; 6];
    let mut index = 0;
    while index < count {
        let at = first + 4 * u16::from(index);
        let (low, sized_low) = probe_bar(cpu, way, at).await;
        let wide = bars::BarKind::from_register(low).is_some_and(bars::BarKind::is_64) && index + 1 < count;
        let (high, sized_high) = if wide { probe_bar(cpu, way, at + 4).await } else { (0, 0) };
        found[usize::from(index)] = bars::from_sizing(low, high, sized_low, sized_high);
        index += if wide { 2 } else { 1 };
    }
    found
}

async fn probe_bar(cpu: &Cpu, way: &dyn Backend, at: u16) -> (u32, u32) {
    let before = way.config_read(cpu, at).await;
    way.config_write(cpu, at, u32::MAX, 0xf).await;
    let sized = way.config_read(cpu, at).await;
    way.config_write(cpu, at, before, 0xf).await;
    (before, sized)
}
