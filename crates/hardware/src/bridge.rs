//! Bridge registers whose effects root ports and switch ports share.

use units::Time;
use wire::pcie::config::header::{self, Window};
use wire::pcie::config::{ConfigSpace, acs, pcie_cap, slot};
use wire::pcie::tlp::AddressType;
use wire::pcie::{Generation, Tlp, Width};

use crate::link::{LinkId, LinkState, Side};
use crate::wires::Context;

/// Windows opened by a bridge's registers.
pub(crate) fn windows(config: &ConfigSpace) -> impl Iterator<Item = Window> + use<> {
    let read = |at| config.dword(at);
    let prefetchable = header::PREFETCHABLE_WINDOW;
    let windows = [
        Window::memory(read(header::MEMORY_WINDOW)),
        Window::prefetchable(read(prefetchable), read(prefetchable + 4), read(prefetchable + 8)),
    ];
    let open = config.memory_enabled();
    // After reset base and limit are 0, which would be a window over the first MiB; nobody configures that one.
    windows.into_iter().filter(move |w| open && w.base <= w.limit && w.base != 0)
}

/// Whether ARI forwarding is on: the device number bits are then part of the function number (base spec 6.13).
pub(crate) fn forwards_ari(config: &ConfigSpace) -> bool {
    config.pcie_offset().is_some_and(|at| {
        config.dword(at + pcie_cap::DEVICE_CONTROL_2) as u16 & pcie_cap::CONTROL_2_ARI_FORWARDING != 0
    })
}

/// Whether a port's access control blocks a request from below (base spec 6.12.1.1). `is_from_below` says whether the
/// requester's bus is below the port.
pub(crate) fn forbids(config: &ConfigSpace, is_from_below: impl Fn() -> bool, tlp: &Tlp) -> bool {
    let services = config.acs_control();
    services & acs::SOURCE_VALIDATION != 0 && !is_from_below()
        || services & acs::TRANSLATION_BLOCKING != 0 && tlp.common.address_type != AddressType::Untranslated
}

/// Whether the port lets its link train: its secondary bus is not held in reset (base spec 7.5.1.3.13), nor its link
/// disabled (7.5.3.7).
pub(crate) fn lets_train(config: &ConfigSpace) -> bool {
    let disable = u32::from(pcie_cap::LINK_CONTROL_DISABLE);
    let is_disabled =
        config.pcie_offset().is_some_and(|at| config.dword(at + pcie_cap::LINK_CONTROL) & disable != 0);
    !is_disabled && !holds_reset(config)
}

/// Whether the port holds everything below it in reset.
pub(crate) fn holds_reset(config: &ConfigSpace) -> bool {
    config.dword(header::INTERRUPT_LINE) & u32::from(header::BRIDGE_SECONDARY_RESET) << 16 != 0
}

/// Updates the link active bit of the port.
pub fn show_link(config: &mut ConfigSpace, active: bool) {
    let Some(pcie) = config.pcie_offset() else { return };
    let bit = u32::from(pcie_cap::LINK_STATUS_ACTIVE) << 16;
    config.update(pcie + pcie_cap::LINK_CONTROL, bit, if active { bit } else { 0 });
}

/// Updates the link training bit of the port.
pub(crate) fn show_training(config: &mut ConfigSpace, on: bool) {
    let Some(pcie) = config.pcie_offset() else { return };
    let bit = u32::from(pcie_cap::LINK_STATUS_TRAINING) << 16;
    config.update(pcie + pcie_cap::LINK_CONTROL, bit, if on { bit } else { 0 });
}

/// Retrains the link below a port at the target speed of Link Control 2, limited to what both ends support (base spec
/// 7.5.3.7, 7.5.3.19). Returns when it carries TLPs again, which ends the [training](show_training) that the port
/// shows; `None` if the link is down.
pub(crate) fn retrain(
    config: &mut ConfigSpace,
    cx: &mut Context<'_>,
    link: LinkId,
    (fastest, width): (Generation, Width),
) -> Option<Time> {
    let pcie = config.pcie_offset()?;
    if cx.wires.link(link).state() != LinkState::Up {
        return None;
    }
    let target = config.dword(pcie + pcie_cap::LINK_CONTROL_2) as u8 & 0xf;
    let generation = Generation::from_number(target).unwrap_or(fastest).min(fastest);
    show_training(config, true);
    cx.with(link, |link, cx| link.retrain_to(cx, generation, width));
    let speed = u32::from(generation.number()) | u32::from(width.lanes()) << 4;
    config.update(pcie + pcie_cap::LINK_CONTROL, 0x3ff << 16, speed << 16);
    let link = cx.wires.link(link);
    Some(link.wire_free(Side::Upstream).max(link.wire_free(Side::Downstream)))
}

/// Whether a slot has an event whose interrupt is enabled.
pub(crate) fn has_slot_event(config: &ConfigSpace) -> bool {
    let Some(pcie) = config.pcie_offset() else { return false };
    let registers = config.dword(pcie + slot::CONTROL);
    let (control, status) = (registers as u16, (registers >> 16) as u16);
    let link = status & slot::STATUS_LINK_CHANGED != 0 && control & slot::CONTROL_LINK_CHANGED != 0;
    control & slot::CONTROL_INTERRUPTS != 0 && (link || status & control & slot::STATUS_ENABLED_IN_PLACE != 0)
}

/// Changes a port's registers. Also returns whether the slot has to send its MSI: when it [has an event](has_slot_event)
/// and had none before (base spec 6.7.3.4).
pub fn change<T>(config: &mut ConfigSpace, change: impl FnOnce(&mut ConfigSpace) -> T) -> (T, bool) {
    let before = has_slot_event(config);
    let changed = change(config);
    (changed, !before && has_slot_event(config))
}

/// Updates the slot status.
pub fn change_slot_status(config: &mut ConfigSpace, clear: u16, set: u16) {
    if let Some(pcie) = config.pcie_offset() {
        config.update(pcie + slot::CONTROL, u32::from(clear) << 16, u32::from(set) << 16);
    }
}
