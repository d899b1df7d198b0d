//! Bridge registers whose effects root ports and switch ports share.

use units::Time;
use wire::pcie::config::header::{self, Window};
use wire::pcie::config::{ConfigSpace, acs, pcie_cap, slot};
use wire::pcie::tlp::AddressType;
use wire::pcie::{Generation, Tlp, Width};

use crate::containment;
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
/// disabled (7.5.3.7), nor contained (6.2.11).
pub(crate) fn lets_train(config: &ConfigSpace) -> bool {
    let disable = u32::from(pcie_cap::LINK_CONTROL_DISABLE);
    let is_disabled =
        config.pcie_offset().is_some_and(|at| config.dword(at + pcie_cap::LINK_CONTROL) & disable != 0);
    !is_disabled && !holds_reset(config) && !containment::is_triggered(config)
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

/// Changes a port's registers. Also returns whether the port has to send its MSI: when its slot [has an event](has_slot_event)
/// or it contains what is below, and did not before (base spec 6.2.11.1, 6.7.3.4).
pub fn change<T>(config: &mut ConfigSpace, change: impl FnOnce(&mut ConfigSpace) -> T) -> (T, bool) {
    let causes = |config: &ConfigSpace| [has_slot_event(config), containment::demands_interrupt(config)];
    let before = causes(config);
    let changed = change(config);
    let is_new = causes(config).into_iter().zip(before).any(|(now, before)| now && !before);
    (changed, is_new)
}

/// Updates the slot status.
pub fn change_slot_status(config: &mut ConfigSpace, clear: u16, set: u16) {
    if let Some(pcie) = config.pcie_offset() {
        config.update(pcie + slot::CONTROL, u32::from(clear) << 16, u32::from(set) << 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::pcie::config::{PcieParams, PortType, SlotParams};
    use wire::pcie::tlp::Common;
    use wire::pcie::{Bdf, MemoryRequest, TlpKind};

    fn port() -> ConfigSpace {
        ConfigSpace::bridge(1, 2)
            .pcie(PcieParams {
                slot: Some(SlotParams {
                    number: 1,
                    power_controller: true,
                    attention_button: true,
                    surprise: true,
                    power_limit_w: 25,
                }),
                access_control: Some(acs::USUAL),
                ..PcieParams::port(PortType::DownstreamPort, Generation::Gen3, Width::X8)
            })
            .build()
            .unwrap()
    }

    /// Base spec 7.5.1.3.8 to 7.5.1.3.10: windows of 32 and of 64 bits, which Memory Space Enable opens.
    #[test]
    fn windows_are_what_the_registers_say() {
        let mut port = port();
        let found = |port: &ConfigSpace| windows(port).map(|w| (w.base, w.limit)).collect::<Vec<_>>();
        port.write(0x20, 0xd010_d000, 0xf);
        port.write(0x24, 0xe000_e000, 0xf);
        port.write(0x28, 0x12, 0xf);
        port.write(0x2c, 0x34, 0xf);
        assert_eq!(found(&port), []);
        port.write(0x04, 0b010, 1);
        let narrow = (0xd000_0000, 0xd01f_ffff);
        assert_eq!(found(&port), [narrow, (0x12_e000_0000, 0x34_e00f_ffff)]);
        // Closed: the limit below the base.
        port.write(0x2c, 0x11, 0xf);
        assert_eq!(found(&port), [narrow]);
        port.write(0x20, 0xd000_d010, 0xf);
        assert_eq!(found(&port), []);
    }

    /// Base spec 7.5.3.16, bit 5.
    #[test]
    fn ari_is_forwarded_where_that_is_enabled() {
        let mut port = port();
        let control = port.pcie_offset().unwrap() + 0x28;
        assert!(!forwards_ari(&port));
        port.write(control, 0x30f & !(1 << 5), 3);
        assert!(!forwards_ari(&port));
        port.write(control, 1 << 5, 3);
        assert!(forwards_ari(&port));
        assert!(!forwards_ari(&ConfigSpace::bridge(1, 2).build().unwrap()));
    }

    /// Base spec 7.7.8.3: source validation is bit 0, translation blocking bit 1.
    #[test]
    fn access_control_blocks_what_it_is_told_to() {
        let request = |address_type| {
            let memory = MemoryRequest::for_bytes(Bdf::default(), 0, 0x1000, 4);
            let plain = Tlp::new(TlpKind::MemoryRead(memory));
            Tlp { common: Common { address_type, ..Common::DEFAULT }, ..plain }
        };
        let (plain, translated) = (request(AddressType::Untranslated), request(AddressType::Translated));
        for (services, expected) in [
            (0b00, [false, false, false, false]),
            (0b01, [false, true, false, true]),
            (0b10, [false, false, true, true]),
            (0b11, [false, true, true, true]),
            (acs::USUAL & !0b11, [false; 4]),
        ] {
            let mut port = port();
            let at = 0x100 + acs::CAPABILITY;
            port.write(at, u32::from(services) << 16, 0xf);
            let said = [(true, &plain), (false, &plain), (true, &translated), (false, &translated)]
                .map(|(is_from_below, tlp)| forbids(&port, || is_from_below, tlp));
            assert_eq!(said, expected, "{services:#b}");
        }
    }

    /// Base spec 7.5.3.7 and 7.5.3.8, bits 29 and 27 with both registers.
    #[test]
    fn the_link_shows_whether_it_is_up_and_trains() {
        let mut port = port();
        let at = port.pcie_offset().unwrap() + 0x10;
        let before = port.dword(at);
        show_link(&mut port, true);
        assert_eq!(port.dword(at), before | 1 << 29);
        show_training(&mut port, true);
        assert_eq!(port.dword(at), before | 1 << 29 | 1 << 27);
        show_link(&mut port, false);
        show_training(&mut port, false);
        assert_eq!(port.dword(at), before);
        assert!(lets_train(&port) && !holds_reset(&port));
        port.write(at, 1 << 4, 1);
        assert!(!lets_train(&port));
        port.write(at, 0, 1);
        port.write(0x3c, 1 << 22, 0b0100);
        assert!(!lets_train(&port) && holds_reset(&port));
    }

    /// Base spec 7.5.3.10 and 7.5.3.11: an event interrupts if its enable (bits 4:0, for the link's state bit 12) and that of
    /// all interrupts (bit 5) are set.
    #[test]
    fn a_slot_interrupts_for_what_is_enabled() {
        let (presence, link) = (1 << 3, 1 << 8);
        for (control, set, interrupts) in [
            (1 << 5 | 1 << 3, presence, true),
            (1 << 5 | 1 << 3, link, false),
            (1 << 5 | 1 << 12, link, true),
            (1 << 5 | 1 << 12, presence, false),
            (1 << 5 | 1 << 12 | 1 << 3, presence | link, true),
            (1 << 3 | 1 << 12, presence | link, false),
            (1 << 5 | 1 << 2, presence, false),
            // Presence itself is no event.
            (1 << 5 | 0x1f, 1 << 6, false),
            (1 << 5 | 0x1f, 0, false),
        ] {
            let mut port = port();
            let at = port.pcie_offset().unwrap() + 0x18;
            port.write(at, control, 3);
            let ((), sends) = change(&mut port, |port| change_slot_status(port, 0, set));
            assert_eq!(sends, interrupts, "{control:#x} {set:#x}");
            assert_eq!(port.dword(at), control | u32::from(set) << 16);
            let ((), again) = change(&mut port, |port| change_slot_status(port, 0, set));
            assert!(!again, "it is told once");
            let ((), sends) = change(&mut port, |port| change_slot_status(port, set, 0));
            assert!(!sends);
            assert_eq!(port.dword(at), control);
        }
    }
}
