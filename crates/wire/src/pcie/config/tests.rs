//! Enumeration by software, and properties of register writes.

use super::examples::{endpoint as nic, root_port};
use super::msix::MsixLayout;
use super::*;
use crate::pcie::Bdf;
use crate::pcie::link::{Generation, Width};
use proptest::prelude::*;

/// Sizes a BAR as a host does.
fn size(space: &mut ConfigSpace, index: u8) -> Option<Bar> {
    let at = header::BAR0 + 4 * u16::from(index);
    let (low, high) = (space.dword(at), space.dword(at + 4));
    space.write(at, u32::MAX, 0xf);
    space.write(at + 4, u32::MAX, 0xf);
    let sized = (space.dword(at), space.dword(at + 4));
    space.write(at, low, 0xf);
    space.write(at + 4, high, 0xf);
    bars::from_sizing(low, high, sized.0, sized.1)
}

#[test]
fn bars_are_sized_by_writing_all_ones() {
    let mut space = nic();
    let bar = |kind, size| Some(Bar { kind, size, address: 0 });
    assert_eq!(size(&mut space, 0), bar(BarKind::Memory64 { prefetchable: true }, 1 << 20));
    assert_eq!(size(&mut space, 2), bar(BarKind::Memory32 { prefetchable: false }, 4096));
    assert_eq!(size(&mut space, 3), bar(BarKind::Io, 32));
    assert_eq!(size(&mut space, 4), bar(BarKind::Memory64 { prefetchable: true }, 1 << 34));
    assert_eq!(size(&mut root_port(), 0), None);
}

#[test]
fn bars_decode_once_memory_is_enabled() {
    let mut space = nic();
    assert_eq!(space.write(0x10, 0x0020_0000, 0xf), [ConfigEffect::BarMoved { bar: 0 }]);
    assert_eq!(space.write(0x14, 0x12, 0xf), [ConfigEffect::BarMoved { bar: 0 }]);
    assert_eq!(space.find_bar(0x12_0020_0010, 4), None);
    assert_eq!(space.write(4, 6, 0b0001), [ConfigEffect::MemoryEnable(true), ConfigEffect::BusMaster(true)]);
    assert_eq!(space.find_bar(0x12_0020_0010, 4), Some((0, 0x10)));
    assert_eq!(space.find_bar(0x12_002f_fffc, 4), Some((0, 0xf_fffc)));
    assert_eq!(space.find_bar(0x12_002f_fffc, 8), None);
    assert_eq!(space.find_bar(0x12_001f_ffff, 1), None);
    assert!(space.write(4, 6, 0b0011).is_empty(), "nothing new, nothing to report");
}

#[test]
fn capabilities_are_found_by_reading() {
    let space = nic();
    let read = |at| space.dword(at);
    let mut ids = Vec::new();
    for mut walk in [caps::Walk::standard(), caps::Walk::extended()] {
        while let Some(register) = walk.wants() {
            ids.extend(walk.take(read(register)).map(|f| f.id));
        }
    }
    assert_eq!(ids, [0x01, 0x05, 0x11, 0x10, 0x0001, 0x0003, 0x000e, 0x0010, 0x000d, 0x000f]);
    let pcie = caps::find(&read, caps::id::PCI_EXPRESS).unwrap();
    assert_eq!(read(pcie + pcie_cap::LINK_CAPABILITIES) & 0x3ff, 8 << 4 | 3);
    let msix = caps::find(&read, caps::id::MSIX).unwrap();
    assert_eq!(MsixLayout::read(&read, msix).vectors, 64);
    assert_eq!(caps::find_extended(&read, 0x1b), None);
    assert_eq!(caps::find(&|_| u32::MAX, caps::id::MSIX), None, "nobody there");
    assert_eq!(
        caps::find(&|at| if at == 4 { 0x10_0000 } else { 0x4040 }, 0x77),
        None,
        "a list in a loop ends"
    );
}

#[test]
fn what_a_host_sets_reaches_the_hardware() {
    let mut space = nic();
    let pcie = space.pcie_offset().unwrap();
    assert_eq!((space.max_payload(), space.max_read_request(), space.tags()), (128, 512, 0..32));
    let control = 1 << 5 | 5 << 12 | u32::from(pcie_cap::CONTROL_EXTENDED_TAGS);
    assert_eq!(space.write(pcie + pcie_cap::DEVICE_CONTROL, control, 0b0011), [ConfigEffect::DeviceControl]);
    assert_eq!((space.max_payload(), space.max_read_request(), space.tags()), (256, 4096, 0..256));
    space.write(pcie + pcie_cap::DEVICE_CONTROL_2, 1 << 12, 0b0011);
    assert_eq!(space.tags(), 256..1024);

    // Function-level reset keeps the payload size.
    let flr = control | u32::from(pcie_cap::CONTROL_FLR);
    assert_eq!(space.write(pcie + pcie_cap::DEVICE_CONTROL, flr, 0b0011), [ConfigEffect::FunctionLevelReset]);
    assert_eq!(space.device_control() & pcie_cap::CONTROL_FLR, 0, "reads as 0");
    space.reset(ResetKind::Function);
    assert_eq!((space.max_payload(), space.max_read_request(), space.tags()), (256, 512, 0..32));

    let pm = caps::find(&|at| space.dword(at), caps::id::POWER_MANAGEMENT).unwrap();
    assert_eq!(space.write(pm + 4, 3, 1), [ConfigEffect::PowerState(PowerState::D3Hot)]);
    assert!(space.write(pm + 4, 1, 1).is_empty(), "D1 is not supported");
    assert_eq!(space.power_state(), PowerState::D3Hot);

    let msix = caps::find(&|at| space.dword(at), caps::id::MSIX).unwrap();
    let enabled = ConfigEffect::Msix { enabled: true, masked: false };
    assert_eq!(space.write(msix, 0x8000_0000, 0b1100), [enabled]);
    assert_eq!(space.msix_enabled(), (true, true));
}

#[test]
fn numvfs_is_fixed_while_vfs_are_enabled() {
    let mut space = nic();
    let at = caps::find_extended(&|at| space.dword(at), caps::extended_id::SRIOV).unwrap();
    let sriov = |enabled, functions| ConfigEffect::Sriov { enabled, memory: enabled, functions };
    assert_eq!(space.write(at + sriov::NUMBER, 4, 0b0011), [sriov(false, 4)]);
    assert_eq!(space.write(at + sriov::CONTROL, 9, 0b0011), [sriov(true, 4)]);
    assert!(space.write(at + sriov::NUMBER, 8, 0b0011).is_empty());
    assert_eq!(space.write(at + sriov::BAR0 + 4, 1, 0xf), [ConfigEffect::VfBarMoved { bar: 0 }]);
}

#[test]
fn errors_are_cleared_by_writing_ones_and_survive_a_hot_reset() {
    let mut space = nic();
    let at = space.aer_offset().unwrap() + aer::UNCORRECTABLE_STATUS;
    let bits = aer::uncorrectable::POISONED | aer::uncorrectable::ECRC;
    space.update(at, 0, bits);
    space.reset(ResetKind::Hot);
    assert_eq!(space.dword(at), bits);
    assert_eq!(aer::uncorrectable::words(bits), "poisoned TLP, ECRC");
    let cleared = ConfigEffect::StatusCleared { offset: at, bits: aer::uncorrectable::ECRC };
    assert_eq!(space.write(at, aer::uncorrectable::ECRC, 0xf), [cleared]);
    assert_eq!(space.dword(at), aer::uncorrectable::POISONED);
    space.reset(ResetKind::Fundamental);
    assert_eq!(space.dword(at), 0);
}

#[test]
fn a_bridge_learns_its_buses_windows_and_slot() {
    let mut port = root_port();
    let buses = ConfigEffect::BusNumbers { primary: 0, secondary: 3, subordinate: 5 };
    assert_eq!(port.write(0x18, 0x0005_0300, 0xf), [buses]);
    assert_eq!(port.write(0x20, 0xdff0_d000, 0xf), [ConfigEffect::WindowMoved]);
    let window = header::Window::memory(port.dword(0x20));
    assert_eq!(window, header::Window { base: 0xd000_0000, limit: 0xdfff_ffff });
    assert_eq!(window.to_memory(), 0xdff0_d000);
    assert_eq!(port.write(0x3c, 0x0040_0000, 0b1100), [ConfigEffect::SecondaryBusReset(true)]);
    let pcie = port.pcie_offset().unwrap();
    assert_eq!(port.write(pcie + 0x10, 1 << 5, 0b0011), [ConfigEffect::RetrainLink]);
    assert_eq!(port.write(pcie + 0x10, 1 << 4, 0b0011), [ConfigEffect::LinkDisable(true)]);
    let control = slot::CONTROL_POWER_OFF | 0x3c0;
    assert_eq!(
        port.write(pcie + slot::CONTROL, control.into(), 0b0011),
        [ConfigEffect::SlotCommand { control }]
    );
    port.update(
        pcie + slot::CONTROL,
        0,
        u32::from(slot::STATUS_PRESENCE_CHANGED | slot::STATUS_PRESENT) << 16,
    );
    port.write(pcie + slot::CONTROL, u32::MAX, 0b1100);
    assert_eq!((port.dword(pcie + slot::CONTROL) >> 16) as u16, slot::STATUS_PRESENT);
}

/// A physical function with up to four virtual functions.
fn physical() -> ConfigSpace {
    let sriov = super::SriovParams {
        total: 4,
        first_offset: 8,
        stride: 2,
        device: 7,
        bars: [Some((BarKind::Memory64 { prefetchable: true }, 1 << 16)), None, None, None, None, None],
    };
    ConfigSpace::endpoint(1, 2, 3).sriov(sriov).build().unwrap()
}

#[test]
fn virtual_functions_are_where_the_capability_says() {
    let mut function = physical();
    let at = EXTENDED;
    assert_eq!(function.virtual_functions().map(|v| (v.enabled, v.count)), Some((false, 0)));
    function.write(at + sriov::BAR0, 0x4000_0000, 0xf);
    function.write(at + sriov::BAR0 + 4, 0x12, 0xf);
    function.write(at + sriov::NUMBER, 3, 0b0011);
    function.write(at + sriov::CONTROL, u32::from(sriov::ENABLE), 0b0011);
    let enabled = function.virtual_functions().unwrap();
    assert_eq!(enabled.find_bar(0x12_4000_0000, 4), None, "VF MSE is off");
    function.write(at + sriov::CONTROL, u32::from(sriov::ENABLE | sriov::MEMORY), 0b0011);
    let enabled = function.virtual_functions().unwrap();
    assert_eq!([0, 1, 2, 3].map(|n| enabled.has(n)), [true, true, true, false]);
    assert_eq!(enabled.id(Bdf::new(5, 0, 1), 2), Bdf::new_ari(5, 1 + 8 + 4));
    assert_eq!(enabled.find_bar(0x12_4002_fffc, 4), Some((2, 0, 0xfffc)));
    assert_eq!(enabled.find_bar(0x12_4002_fffc, 8), None, "across two functions");
    assert_eq!(enabled.find_bar(0x12_4003_0000, 4), None, "the fourth is not enabled");
    assert_eq!(enabled.find_bar(0x12_3fff_fffc, 4), None);
    // NumVFs is read-only while they are enabled; values above TotalVFs are clamped.
    function.write(at + sriov::NUMBER, 1, 0b0011);
    assert_eq!(function.virtual_functions().unwrap().count, 3);
    function.write(at + sriov::CONTROL, 0, 0b0011);
    function.write(at + sriov::NUMBER, 9, 0b0011);
    assert_eq!(function.virtual_functions().unwrap().count, 4);
}

#[test]
fn a_virtual_function_has_bus_mastering_and_its_reset() {
    let msix = MsixLayout { vectors: 4, table_bar: 0, table_offset: 0, pending_bar: 0, pending_offset: 2048 };
    let mut function = ConfigSpace::virtual_function(0x02_0000)
        .bar64(0, 4096, false)
        .msix(msix)
        .pcie(PcieParams::endpoint(Generation::Gen3, Width::X8))
        .build()
        .unwrap();
    assert_eq!((function.dword(0), function.dword(header::BAR0)), (u32::MAX, 0));
    for register in (0..0x40).step_by(4) {
        function.write(register, u32::MAX, 0xf);
    }
    assert_eq!(function.dword(header::COMMAND) as u16, header::COMMAND_BUS_MASTER);
    assert_eq!((function.dword(header::BAR0), function.find_bar(0, 4)), (0, None));
    let pcie = function.pcie_offset().unwrap();
    let effects = function.write(pcie + pcie_cap::DEVICE_CONTROL, u32::MAX, 0b0011);
    assert_eq!(effects, [ConfigEffect::FunctionLevelReset]);
    assert_eq!(function.device_control(), 0);
    // What the link can do is told, what it does is not.
    assert_eq!(function.dword(pcie + pcie_cap::LINK_CAPABILITIES) & 0x3ff, 0x83);
    assert_eq!(function.read(pcie + pcie_cap::LINK_STATUS, 2), 0);
}

#[test]
fn impossible_layouts_are_told() {
    let error = |b: Builder| b.build().unwrap_err().to_string();
    let new = || ConfigSpace::endpoint(1, 2, 3);
    assert!(error(new().bar64(0, 5000, true)).contains("BAR size is 0x1388"));
    assert!(error(new().bar64(5, 4096, true)).contains("BAR number is 0x6"));
    assert!(error(new().bar64(0, 4096, true).bar32(1, 4096, true)).contains("no other BAR"));
    assert!(error(ConfigSpace::bridge(1, 2).bar32(2, 4096, true)).contains("BAR number"));
    assert!(error(new().msi(3)).contains("1, 2, 4, 8, 16, 32"));
    let msix = MsixLayout { vectors: 8, table_bar: 0, table_offset: 0, pending_bar: 0, pending_offset: 128 };
    assert!(error(new().bar32(0, 128, false).msix(msix)).contains("within a BAR"));
    let port = PcieParams::port(PortType::RootPort, Generation::Gen3, Width::X8);
    assert!(error(new().pcie(port)).contains("port type"));
    let odd = PcieParams { max_payload: 300, ..PcieParams::endpoint(Generation::Gen3, Width::X8) };
    assert!(error(new().pcie(odd)).contains("largest payload is 0x12c"));
    assert!(error((0..9).fold(new(), |b, _| b.msi(1))).contains("end of the capabilities"));
    assert!(error((0..100).fold(new(), |b, _| b.aer())).contains("end of the extended"));
}

proptest! {
    #[test]
    fn read_only_bits_never_change(
        bridge: bool,
        writes in proptest::collection::vec((prop_oneof![0u16..0x400, any::<u16>()], any::<u32>(), any::<u8>()), 1..200),
    ) {
        let mut space = if bridge { root_port() } else { nic() };
        let fresh = space.clone();
        let writable = |space: &ConfigSpace, at: u16| {
            // Determined from outside: bits that differ after writing all ones and all zeros.
            let (mut ones, mut zeros) = (space.clone(), space.clone());
            ones.write(at, u32::MAX, 0xf);
            zeros.write(at, 0, 0xf);
            ones.dword(at) ^ zeros.dword(at)
        };
        for &(at, value, enables) in &writes {
            let before = space.clone();
            space.write(at, value, enables);
            prop_assert_eq!(space.read(at, 4), if at & 3 == 0 { space.dword(at) } else { u32::MAX });
            for other in (0..SIZE as u16).step_by(4) {
                prop_assert!(other == at & !3 || before.dword(other) == space.dword(other));
            }
            if usize::from(at) < SIZE {
                prop_assert_eq!((space.dword(at) ^ fresh.dword(at)) & !writable(&fresh, at), 0);
            }
        }
        let _ = (space.bar(0), space.find_bar(0, 4), space.msi(), space.msix_layout(), space.tags());
        space.reset(ResetKind::Fundamental);
        prop_assert_eq!(space.to_string(), fresh.to_string());
    }

    #[test]
    fn walks_end_on_any_registers(seed: u64) {
        let read = |at: u16| (seed ^ u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at.into()) as u32;
        let _ = (caps::find(&read, 0x77), caps::find_extended(&read, 0x7777));
    }

    #[test]
    fn sizing_takes_any_registers(low: u32, high: u32, sized_low: u32, sized_high: u32) {
        if let Some(bar) = bars::from_sizing(low, high, sized_low, sized_high) {
            prop_assert!(bar.size.is_power_of_two());
        }
    }
}
