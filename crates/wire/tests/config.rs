//! What software may do to configuration spaces, register by register.

use units::Duration;
use wire::pcie::config::caps::{self, Walk};
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{
    BarKind, CompletionTimeout, ConfigEffect as Effect, ConfigSpace, PcieParams, PortType, PowerState,
    ResetKind, SriovParams, acs, bars, examples, header, pcie_cap,
};
use wire::pcie::intx::IntxLine;
use wire::pcie::{Generation, Width};

/// A register: its offset; value after reset, bits that software writes, that ones clear, that a hot reset keeps.
type Register = (u16, [u32; 4]);

fn registers(space: &ConfigSpace) -> Vec<Register> {
    let mut found = Vec::new();
    for at in (0..0x1000).step_by(4) {
        let value = space.dword(at);
        let written = |value| {
            let mut space = space.clone();
            space.write(at, value, 0xf);
            space.dword(at)
        };
        let writable = written(u32::MAX) ^ written(0);
        let mut set = space.clone();
        set.update(at, 0, u32::MAX);
        let mut cleared = set.clone();
        cleared.write(at, u32::MAX, 0xf);
        set.reset(ResetKind::Hot);
        let row = [value, writable, !cleared.dword(at), set.dword(at) & !value];
        if row != [0; 4] {
            found.push((at, row));
        }
    }
    found
}

/// Sections of PCIe Base 5.0; `at` is where [`examples`] have the capability.
const AER: [Register; 11] = [
    (0x100, [0x1382_0001, 0, 0, 0]),
    (0x104, [0, 0, 0x007f_f030, u32::MAX]),
    (0x108, [0x0040_0000, 0x007f_f030, 0, 0xffbf_ffff]),
    (0x10c, [0x0046_2030, 0x007f_f030, 0, 0xffb9_dfcf]),
    (0x110, [0, 0, 0xf1c1, u32::MAX]),
    (0x114, [0xe000, 0xf1c1, 0, 0xffff_1fff]),
    (0x118, [0, 0, 0, u32::MAX]),
    (0x11c, [0, 0, 0, u32::MAX]),
    (0x120, [0, 0, 0, u32::MAX]),
    (0x124, [0, 0, 0, u32::MAX]),
    (0x128, [0, 0, 0, u32::MAX]),
];

#[test]
fn each_register_of_an_endpoint_is_as_the_specification_has_it() {
    let before_aer = [
        // Header (7.5.1.2): a BAR of 1 MiB, one of 4 KiB, 32 ports, 16 GiB; a ROM of 64 KiB.
        (0x000, [0x4000_19ee, 0, 0, 0]),
        (0x004, [0x0010_0000, 0x0547, 0xf900_0000, 0]),
        (0x008, [0x0200_0005, 0, 0, 0]),
        (0x00c, [0, 0xff, 0, 0]),
        (0x010, [0xc, 0xfff0_0000, 0, 0]),
        (0x014, [0, u32::MAX, 0, 0]),
        (0x018, [0, 0xffff_f000, 0, 0]),
        (0x01c, [1, 0xffff_ffe0, 0, 0]),
        (0x020, [0xc, 0, 0, 0]),
        (0x024, [0, 0xffff_fffc, 0, 0]),
        (0x02c, [0x4001_19ee, 0, 0, 0]),
        (0x030, [0, 0xffff_0001, 0, 0]),
        (0x034, [0x40, 0, 0, 0]),
        (0x03c, [0x0100, 0xff, 0, 0]),
        // Power management (7.5.2).
        (0x040, [0x4803_4801, 0, 0, 0]),
        (0x044, [0x0008, 0x0103, 0x8000, 0]),
        // MSI (7.7.1).
        (0x048, [0x0186_6005, 0x0071_0000, 0, 0]),
        (0x04c, [0, 0xffff_fffc, 0, 0]),
        (0x050, [0, u32::MAX, 0, 0]),
        (0x054, [0, 0xffff, 0, 0]),
        (0x058, [0, 0xff, 0, 0]),
        // MSI-X (7.7.2).
        (0x060, [0x003f_6c11, 0xc000_0000, 0, 0]),
        (0x064, [0x0002, 0, 0, 0]),
        (0x068, [0x0802, 0, 0, 0]),
        // PCI Express (7.5.3): device, link, device 2, link 2.
        (0x06c, [0x0002_0010, 0, 0, 0]),
        (0x070, [0x1000_8021, 0, 0, 0]),
        (0x074, [0x2810, 0x79ff, 0x000f_0000, 0]),
        (0x078, [0x0040_0083, 0, 0, 0]),
        (0x07c, [0x1083_0000, 0x03cb, 0, 0]),
        (0x090, [0x0003_001f, 0, 0, 0]),
        (0x094, [0, 0x131f, 0, 0]),
        (0x098, [0xe, 0, 0, 0]),
        (0x09c, [0x3, 0xffbf, 0, 0xfffc]),
    ];
    let behind_aer = [
        // Serial number (7.9.3), ARI (7.8.7).
        (0x138, [0x1441_0003, 0, 0, 0]),
        (0x13c, [0x4455_6677, 0, 0, 0]),
        (0x140, [0x0011_2233, 0, 0, 0]),
        (0x144, [0x14c1_000e, 0, 0, 0]),
        (0x148, [0x0100, 0, 0, 0]),
        // SR-IOV (9.3.3).
        (0x14c, [0x18c1_0010, 0, 0, 0]),
        (0x154, [0, 0x0019, 0, 0]),
        (0x158, [0x0010_0010, 0, 0, 0]),
        (0x15c, [0, 0xffff, 0, 0]),
        (0x160, [0x0001_0008, 0, 0, 0]),
        (0x164, [0x6003_0000, 0, 0, 0]),
        (0x168, [0x0553, 0, 0, 0]),
        (0x16c, [0x0001, 0x0553, 0, 0]),
        (0x170, [0xc, 0xffff_0000, 0, 0]),
        (0x174, [0, u32::MAX, 0, 0]),
        // ACS (7.7.8), ATS (10.5.1).
        (0x18c, [0x1941_000d, 0, 0, 0]),
        (0x190, [0x005f, 0x005f_0000, 0, 0]),
        (0x194, [0x0001_000f, 0, 0, 0]),
        (0x198, [0x0020, 0x801f_0000, 0, 0]),
    ];
    let expected: Vec<Register> = before_aer.into_iter().chain(AER).chain(behind_aer).collect();
    let found = registers(&examples::endpoint());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "{:#x} {:#x?}", found.0, found.1);
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn each_register_of_a_root_port_is_as_the_specification_has_it() {
    let before_aer = [
        // Header (7.5.1.3): bus numbers, windows, bridge control.
        (0x000, [0x2f04_8086, 0, 0, 0]),
        (0x004, [0x0010_0000, 0x0547, 0xf900_0000, 0]),
        (0x008, [0x0604_0000, 0, 0, 0]),
        (0x00c, [0x0001_0000, 0xff, 0, 0]),
        (0x018, [0, 0x00ff_ffff, 0, 0]),
        (0x01c, [0x01f1, 0xf0f0, 0xf900_0000, 0]),
        (0x020, [0, 0xfff0_fff0, 0, 0]),
        (0x024, [0x0001_0001, 0xfff0_fff0, 0, 0]),
        (0x028, [0, u32::MAX, 0, 0]),
        (0x02c, [0, u32::MAX, 0, 0]),
        (0x030, [0, u32::MAX, 0, 0]),
        (0x034, [0x40, 0, 0, 0]),
        (0x03c, [0, 0x005f_00ff, 0, 0]),
        (0x040, [0x4803_4801, 0, 0, 0]),
        (0x044, [0x0008, 0x0103, 0x8000, 0]),
        // PCI Express, with slot and root registers.
        (0x048, [0x0142_0010, 0, 0, 0]),
        (0x04c, [0x0000_8021, 0, 0, 0]),
        (0x050, [0x2810, 0x79ff, 0x000f_0000, 0]),
        (0x054, [0x0350_0104, 0, 0, 0]),
        (0x058, [0x1104_0000, 0x0fd3, 0xc000_0000, 0]),
        (0x05c, [0x0038_25fb, 0, 0, 0]),
        (0x060, [0x03c0, 0x17ff, 0x011f_0000, 0]),
        (0x064, [0x0001_0000, 0x001f, 0, 0]),
        (0x068, [0, 0, 0x0001_0000, 0]),
        (0x06c, [0x0001_003f, 0, 0, 0]),
        (0x070, [0, 0x033f, 0, 0]),
        (0x074, [0x1e, 0, 0, 0]),
        (0x078, [0x4, 0xffbf, 0, 0xfffb]),
    ];
    let behind_aer = [
        (0x12c, [0, 0x7, 0, 0]),
        (0x130, [0, 0, 0x7f, u32::MAX]),
        (0x134, [0, 0, 0, u32::MAX]),
        (0x138, [0x0001_000d, 0, 0, 0]),
        (0x13c, [0x005f, 0x005f_0000, 0, 0]),
    ];
    let expected: Vec<Register> = before_aer.into_iter().chain(AER).chain(behind_aer).collect();
    let found = registers(&examples::root_port());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "{:#x} {:#x?}", found.0, found.1);
    }
    assert_eq!(found.len(), expected.len());
}

/// What writing ones to each register of a new function, and zeros after that, does.
fn effects(space: &ConfigSpace) -> Vec<(u16, Vec<Effect>, Vec<Effect>)> {
    let mut found = Vec::new();
    for at in (0..0x1000).step_by(4) {
        let mut space = space.clone();
        let (ones, zeros) = (space.write(at, u32::MAX, 0xf), space.write(at, 0, 0xf));
        assert!(space.write(at, 0, 0xf).is_empty(), "{at:#x}: nothing new");
        if !ones.is_empty() || !zeros.is_empty() {
            found.push((at, ones, zeros));
        }
    }
    found
}

#[test]
fn what_software_writes_to_an_endpoint_reaches_hardware() {
    let command = |on| {
        vec![Effect::IoEnable(on), Effect::MemoryEnable(on), Effect::BusMaster(on), Effect::IntxDisable(on)]
    };
    let both = |at, effect: Effect| (at, vec![effect], vec![effect]);
    let device = |at| both(at, Effect::DeviceControl);
    let bar = |at, bar| both(at, Effect::BarMoved { bar });
    let msix = |on| vec![Effect::Msix { enabled: on, masked: on }];
    let virtual_functions = |on, functions| vec![Effect::Sriov { enabled: on, memory: on, functions }];
    let ats = |enabled, smallest_unit| vec![Effect::Ats { enabled, smallest_unit }];
    let mut expected = vec![
        (0x004, command(true), command(false)),
        bar(0x10, 0),
        bar(0x14, 0),
        bar(0x18, 2),
        bar(0x1c, 3),
        bar(0x24, 4),
        both(0x30, Effect::RomMoved),
        (0x044, vec![Effect::PowerState(PowerState::D3Hot)], vec![Effect::PowerState(PowerState::D0)]),
    ];
    expected.extend((0x048..=0x058).step_by(4).map(|at| both(at, Effect::Msi)));
    expected.extend([
        (0x060, msix(true), msix(false)),
        (0x074, vec![Effect::DeviceControl, Effect::FunctionLevelReset], vec![Effect::DeviceControl]),
        both(0x07c, Effect::LinkControl),
        device(0x094),
        both(0x09c, Effect::LinkControl),
    ]);
    expected.extend([0x108, 0x10c, 0x114].map(|at| both(at, Effect::ErrorReporting)));
    expected.extend([
        (0x154, virtual_functions(true, 0), virtual_functions(false, 0)),
        (0x15c, virtual_functions(false, 0xffff), virtual_functions(false, 0)),
        both(0x170, Effect::VfBarMoved { bar: 0 }),
        both(0x174, Effect::VfBarMoved { bar: 0 }),
        (0x190, vec![Effect::Acs { control: 0x5f }], vec![Effect::Acs { control: 0 }]),
        (0x198, ats(true, 0x1f), ats(false, 0)),
    ]);
    assert_eq!(effects(&examples::endpoint()), expected);
}

#[test]
fn what_software_writes_to_a_root_port_reaches_hardware() {
    let both = |at, effect: Effect| (at, vec![effect], vec![effect]);
    let found = effects(&examples::root_port());
    let buses = |n| vec![Effect::BusNumbers { primary: n, secondary: n, subordinate: n }];
    let link = |on| vec![Effect::LinkDisable(on), Effect::LinkControl];
    let expected = [
        (0x018, buses(0xff), buses(0)),
        both(0x01c, Effect::WindowMoved),
        both(0x020, Effect::WindowMoved),
        both(0x024, Effect::WindowMoved),
        both(0x028, Effect::WindowMoved),
        both(0x02c, Effect::WindowMoved),
        both(0x030, Effect::WindowMoved),
        (0x03c, vec![Effect::SecondaryBusReset(true)], vec![Effect::SecondaryBusReset(false)]),
        (0x044, vec![Effect::PowerState(PowerState::D3Hot)], vec![Effect::PowerState(PowerState::D0)]),
        both(0x050, Effect::DeviceControl),
        (0x058, link(true).into_iter().chain([Effect::RetrainLink]).collect(), link(false)),
        (0x060, vec![Effect::SlotCommand { control: 0x17ff }], vec![Effect::SlotCommand { control: 0 }]),
        both(0x070, Effect::DeviceControl),
        both(0x078, Effect::LinkControl),
        both(0x108, Effect::ErrorReporting),
        both(0x10c, Effect::ErrorReporting),
        both(0x114, Effect::ErrorReporting),
        both(0x12c, Effect::ErrorReporting),
        (0x13c, vec![Effect::Acs { control: 0x5f }], vec![Effect::Acs { control: 0 }]),
    ];
    assert_eq!(found[1..], expected);
    // Nothing of what else a register has is reported as that.
    let mut port = examples::root_port();
    assert_eq!(port.write(0x03c, 0x0001_0000, 0b0100), []);
    assert_eq!(port.write(0x058, 1 << 4, 1), [Effect::LinkDisable(true)]);
    assert_eq!(port.write(0x058, 1 << 4 | 1 << 3, 1), []);
    assert_eq!(port.write(0x058, 1 << 4 | 1 << 6, 1), [Effect::LinkControl]);
    assert_eq!(port.write(0x044, 1 << 8, 0b0010), []);
    assert_eq!((port.dword(0x1000), port.dword(0xffff)), (u32::MAX, u32::MAX));
}

/// Section 7.5.3.16.
#[test]
fn completions_are_waited_for_as_long_as_software_says() {
    let mut space = examples::endpoint();
    let control = space.pcie_offset().expect("it has one") + 0x28;
    let mut timeout = |value| {
        space.write(control, value, 0b0011);
        assert_eq!(space.device_control_2(), value as u16);
        space.completion_timeout()
    };
    let (us, ms, default) = (Duration::from_us, Duration::from_ms, Duration::from_ms(1));
    for (value, least, most) in [
        (0x1, us(50), us(100)),
        (0x2, ms(1), ms(10)),
        (0x5, ms(16), ms(55)),
        (0x6, ms(65), ms(210)),
        (0x9, ms(260), ms(900)),
        (0xa, ms(1_000), ms(3_500)),
        (0xd, ms(4_000), ms(13_000)),
        (0x100e, ms(17_000), ms(64_000)),
    ] {
        assert_eq!(timeout(value), CompletionTimeout::Within(least, most), "{value:#x}");
        assert_eq!(timeout(value).longest(default), Some(most));
        assert_eq!(timeout(value | 1 << 4).longest(default), None);
    }
    assert_eq!([0, 3].map(|value| timeout(value).longest(default)), [Some(default); 2]);
    let codes = [0, 1, 2, 3, 4, 5].map(pcie_cap::size_bytes);
    assert_eq!(codes, [128, 256, 512, 1024, 2048, 4096]);
    assert_eq!(codes.map(pcie_cap::size_code), [0, 1, 2, 3, 4, 5].map(Some));
    assert_eq!([6, 7, 8].map(pcie_cap::size_bytes), [4096, 4096, 128]);
    // Bit 3 of link control.
    assert_eq!(space.read_completion_boundary(), 64);
    space.write(control - 0x18, 1 << 3, 1);
    assert_eq!(space.read_completion_boundary(), 128);
}

/// Section 7.5.1.1: Interrupt Disable in Command, Interrupt Status in Status; MSI and MSI-X take the line's place.
#[test]
fn a_line_is_active_while_nothing_forbids_it() {
    let lines = |space: &ConfigSpace| (space.interrupts_by_line(), space.enabled_line(), space.active_line());
    let mut space = examples::endpoint();
    let line = Some(IntxLine::A);
    assert_eq!(lines(&space), (true, line, None));
    space.set_interrupt_status(true);
    assert_eq!((space.dword(4), lines(&space)), (0x0018_0000, (true, line, line)));
    space.write(4, 1 << 10, 0b0010);
    assert_eq!(lines(&space), (true, None, None));
    space.write(4, 0, 0b0010);
    for (at, enable) in [(0x48, 1 << 16), (0x60, 1 << 31)] {
        space.write(at, enable, 0xf);
        assert_eq!(lines(&space), (false, None, None), "{at:#x}");
        space.write(at, 0, 0xf);
        assert_eq!(lines(&space), (true, line, line));
    }
    space.set_interrupt_status(false);
    assert_eq!((space.dword(4), lines(&space)), (0x0010_0000, (true, line, None)));
    let mut port = examples::root_port();
    port.set_interrupt_status(true);
    assert_eq!(lines(&port), (false, None, None), "it has no line");
}

/// What hardware reads of registers is what they say, and nothing of those beside them.
#[test]
fn settings_are_those_of_their_registers() {
    let mut space = examples::endpoint();
    assert_eq!((space.port_type(), space.is_bridge()), (Some(PortType::Endpoint), false));
    let port = examples::root_port();
    assert_eq!((port.port_type(), port.is_bridge()), (Some(PortType::RootPort), true));
    assert_eq!(
        format!("{port:?} {space:?}"),
        "ConfigSpace(8086:2f04 class 060400) ConfigSpace(19ee:4000 class 020000)"
    );
    space.write(0x18, 0x1234_5000, 0xf);
    assert_eq!(space.bar(2).map(|bar| bar.address), Some(0x1234_5000));
    assert!(!space.bus_master_enabled());
    space.write(4, 1 << 2, 1);
    assert!(space.bus_master_enabled() && !space.memory_enabled());
    let layout =
        MsixLayout { vectors: 64, table_bar: 2, table_offset: 0, pending_bar: 2, pending_offset: 0x800 };
    assert_eq!((space.msix_layout(), port.msix_layout()), (Some(layout), None));
    assert_eq!((layout.table_len(), layout.pending_len()), (1024, 8));
    let large = MsixLayout { vectors: 65, ..layout };
    assert_eq!((large.table_len(), large.pending_len()), (1040, 16));
    assert_eq!((space.msix_enabled(), port.msix_enabled()), ((false, true), (false, false)));
    space.write(0x60, 1 << 30, 0b1000);
    assert_eq!(space.msix_enabled(), (false, false));
    space.write(0x48, 3 << 20, 0b0100);
    assert!(!space.msi().expect("it has MSI").enabled);
    assert_eq!(space.acs_control(), 0);
    space.write(0x190, 0x0014_0000, 0xf);
    assert_eq!((space.acs_control(), port.acs_control()), (0x14, 0));
    space.write(0x198, 0x8000_0000, 0xf);
    assert_eq!(space.write(0x198, 0x0003_0000, 0xf), [Effect::Ats { enabled: false, smallest_unit: 3 }]);
    assert!(!space.generates_ecrc() && !space.checks_ecrc(), "it has no ECRC");
    for (at, states) in
        [(1u32, PowerState::D0), (2, PowerState::D0), (3, PowerState::D3Hot), (0, PowerState::D0)]
    {
        space.write(0x44, at, 1);
        assert_eq!(space.power_state(), states);
    }
}

/// Section 7.5.1.3.8: both ends of a window belong to it; 7.5.1.3.9: the upper halves of a prefetchable one.
#[test]
fn a_window_reaches_from_its_base_to_its_limit() {
    let window = header::Window::prefetchable(0xe001_d001, 0x12, 0x34);
    assert_eq!((window.base, window.limit), (0x12_d000_0000, 0x34_e00f_ffff));
    let inside = [window.base - 1, window.base, window.limit, window.limit + 1].map(|at| window.contains(at));
    assert_eq!(inside, [false, true, true, false]);
    assert_eq!(examples::endpoint().dword(0x08), 0x0200_0005, "class and revision");
    // Class code of an NVMe controller: its programming interface is in the byte above the revision.
    let nvme = ConfigSpace::endpoint(1, 2, 0x01_0802).revision(3).build().expect("it fits");
    assert_eq!(nvme.dword(0x08), 0x0108_0203);
}

/// Section 6.6.2: what a function-level reset leaves.
#[test]
fn a_function_level_reset_leaves_the_link_alone() {
    let mut space = examples::endpoint();
    let at = space.pcie_offset().expect("it has one");
    space.write(at + 0x08, 0x2800 | 1 << 5 | 3, 0b0011);
    space.write(at + 0x10, 1 << 3 | 1 << 6, 0b0001);
    space.write(at + 0x28, 1, 0b0001);
    let link = space.dword(at + 0x10);
    space.reset(ResetKind::Function);
    let kept = [0x08, 0x10, 0x28].map(|offset| space.dword(at + offset));
    assert_eq!(kept, [0x2830, link, 0]);
    assert_eq!(link & 0xffff, 1 << 3 | 1 << 6);
}

/// Section 7.5.1.2.1, implementation note: the register before and after ones are written.
#[test]
fn a_bar_is_what_its_ones_say() {
    let bar = |kind, size, address| Some(bars::Bar { kind, size, address });
    let (io, narrow) = (BarKind::Io, BarKind::Memory32 { prefetchable: true });
    let wide = BarKind::Memory64 { prefetchable: false };
    for (registers, sized, expected) in [
        ([0xe001, 7], [0xffff_ffe1, 0], bar(io, 32, 0xe000)),
        // Sixteen bits of address.
        ([0xe001, 7], [0xffe1, 0], bar(io, 32, 0xe000)),
        ([0x0001, 7], [0x0001, 0], None),
        ([0x8000_0008, 7], [0x8000_0008, 0], bar(narrow, 1 << 31, 0x8000_0000)),
        ([0x0008, 7], [0x0008, u32::MAX], None),
        ([0x1230_0004, 0x56], [0xfff0_0004, u32::MAX], bar(wide, 1 << 20, 0x56_1230_0000)),
        ([0x0004, 0x50], [0x0004, 0xffff_fff0], bar(wide, 1 << 36, 0x50_0000_0000)),
        ([0x0004, 0], [0x0004, 0], None),
        ([0x0002, 0], [0xffff_fff2, 0], None),
    ] {
        assert_eq!(bars::from_sizing(registers[0], registers[1], sized[0], sized[1]), expected, "{sized:x?}");
    }
    let bar = bars::Bar { kind: narrow, size: 4096, address: 0x10_0000 };
    let offset = |address, len| bar.offset_of(address, len);
    assert_eq!(
        [offset(0x10_0000, 4096), offset(0x10_0fff, 1), offset(0x10_0ffc, 4)],
        [0, 0xfff, 0xffc].map(Some)
    );
    assert_eq!([offset(0x10_0000, 4097), offset(0x10_1000, 0), offset(0x0f_ffff, 1)], [None; 3]);
}

/// Section 7.6.3: lists, some of which no function ought to have.
#[test]
fn a_walk_sees_each_capability_once() {
    let ids = |mut walk: Walk, read: &dyn Fn(u16) -> u32| {
        let mut found = Vec::new();
        while let Some(register) = walk.wants() {
            found.extend(walk.take(read(register)).map(|found| (found.id, found.version, found.offset)));
        }
        found
    };
    let space = examples::endpoint();
    let read = |at| space.dword(at);
    assert_eq!(ids(Walk::extended(), &read)[..2], [(1, 2, 0x100), (3, 1, 0x138)]);
    assert_eq!(ids(Walk::standard(), &read)[..2], [(1, 0, 0x40), (5, 0, 0x48)]);
    // As many as fit, all behind one another: 48 of 4 bytes, 480 of 8.
    let full = |at: u16| match at {
        4 => 0x10_0000,
        0x34 => 0x40,
        0x40..0x100 => u32::from(at + 4) << 8 | 1,
        _ => u32::from(at + 8) << 20 | 0xf_0002,
    };
    assert_eq!(ids(Walk::standard(), &full).len(), 48);
    let extended = ids(Walk::extended(), &full);
    assert_eq!((extended.len(), extended[1]), (480, (2, 0xf, 0x108)));
    // No more from lists that have no end.
    let endless = |at| if at == 4 { 0x10_0000 } else { 0x1000_4040 };
    assert_eq!((ids(Walk::standard(), &endless).len(), ids(Walk::extended(), &endless).len()), (48, 480));
    assert_eq!(ids(Walk::standard(), &|_| 0), [], "no list");
    assert_eq!(ids(Walk::standard(), &|at| if at == 4 { !0x10_0000 } else { 0x40 }), [], "no list");
    assert_eq!(ids(Walk::extended(), &|_| u32::MAX), [], "nobody");
    assert_eq!(caps::find_extended(&|_| 0, 0), None);
}

#[test]
fn a_builder_takes_what_fits() {
    let new = || ConfigSpace::endpoint(1, 2, 0x02_0000);
    let of = |built: wire::pcie::config::Builder| built.build().map_err(|error| error.to_string());
    // A list to the last byte: 9 of 8 bytes, one of 24, 4 of 24.
    let power = |n| (0..n).fold(new(), |builder, _| builder.power_management());
    assert!(of(power(24)).is_ok());
    assert!(of(power(25)).is_err_and(|told| told.contains("capabilities is 0x108,")));
    let serials = |n| (0..n).fold(new(), |builder, _| builder.serial(7));
    assert!(of(serials(320)).is_ok());
    assert!(of(serials(321)).is_err_and(|told| told.contains("capabilities is 0x100c,")));
    assert_eq!([31u8, 32, 33, 64].map(|n| of(new().msi(n)).is_ok()), [false, true, false, false]);
    let roms = [1 << 10, 1 << 11, 3 << 11, 1 << 24, 1 << 25].map(|size| of(new().rom(size)).is_ok());
    assert_eq!(roms, [false, true, false, true, false]);
    let msix = |table_offset, pending_offset| {
        let layout = MsixLayout { vectors: 8, table_bar: 0, table_offset, pending_bar: 0, pending_offset };
        of(new().bar32(0, 4096, false).msix(layout))
    };
    assert_eq!([(0, 128), (4096 - 128, 0), (0, 4096 - 8)].map(|(t, p)| msix(t, p).is_ok()), [true; 3]);
    assert!(msix(4096, 0).is_err_and(|told| told.contains("is 0x1080,")));
    assert!(msix(4, 128).is_err() && msix(0, 4096).is_err_and(|told| told.contains("is 0x1008,")));
    let layout = msix(0xf00, 0x108).expect("it fits").msix_layout().expect("it has one");
    assert_eq!((layout.table_offset, layout.pending_offset), (0xf00, 0x108));
    let bars = |index| of(new().bar64(0, 4096, false).bar64(index, 4096, false)).is_ok();
    assert_eq!([1, 2, 4, 5].map(bars), [false, true, true, false]);
    assert!(of(new().bar32(1, 4096, false).bar64(0, 4096, false)).is_err());
    let flags = |prefetchable| of(new().bar32(0, 4096, prefetchable)).map(|space| space.dword(0x10));
    assert_eq!([flags(false), flags(true)], [Ok(0), Ok(8)]);
    let kind = |builder: wire::pcie::config::Builder| of(builder).map(|space| space.dword(0xc) >> 16);
    assert_eq!(kind(new().multi_function()), Ok(0x80));
    assert_eq!(kind(ConfigSpace::bridge(1, 2).multi_function()), Ok(0x81));
    // Only links of generation 3 are equalised: 12 bytes and 2 for each lane.
    let secondary =
        |generation, width| of(new().secondary_pcie(generation, width).serial(7)).expect("it fits");
    let gen2 = secondary(Generation::Gen2, Width::X8);
    assert_eq!(gen2.dword(0x100), 0x0001_0003);
    for (width, next) in [(Width::X1, 0x110), (Width::X8, 0x11c)] {
        let mut space = secondary(Generation::Gen3, width);
        assert_eq!((space.dword(0x100), space.dword(next)), (u32::from(next) << 20 | 0x1_0019, 0x0001_0003));
        space.write(0x104, u32::MAX, 0xf);
        assert_eq!((space.dword(0x104), space.dword(0x108)), (3, 0));
    }
    let answers = |generation| {
        let params = PcieParams::port(PortType::UpstreamPort, generation, Width::X8);
        let space = of(ConfigSpace::bridge(1, 2).pcie(params)).expect("it fits");
        space.dword(0x40 + 0x24)
    };
    // What runs at 16 GT/s completes ten-bit tags; only ports with a link below forward ARI.
    assert_eq!([answers(Generation::Gen3), answers(Generation::Gen4)], [0x1f, 0x1_001f]);
}

/// Section 9.3.5: what a virtual function has not, its physical function has.
#[test]
fn a_virtual_function_leaves_its_link_alone() {
    let params =
        PcieParams { access_control: Some(acs::USUAL), ..PcieParams::endpoint(Generation::Gen3, Width::X8) };
    let space = ConfigSpace::virtual_function(0x02_0000).pcie(params).build().expect("it fits");
    let writable: Vec<(u16, u32)> =
        registers(&space).iter().map(|&(at, row)| (at, row[1])).filter(|&(_, bits)| bits != 0).collect();
    assert_eq!(writable, [(0x04, 1 << 2)]);
    assert_eq!(space.acs_control(), 0);
}

/// Section 9.2.1.1.1: each BAR of the virtual functions is one range, of which each has a part.
#[test]
fn bars_of_virtual_functions_are_where_software_put_them() {
    let narrow = Some((BarKind::Memory32 { prefetchable: false }, 128));
    let wide = Some((BarKind::Memory64 { prefetchable: true }, 1 << 16));
    let sriov = SriovParams {
        total: 4,
        first_offset: 1,
        stride: 1,
        device: 7,
        bars: [None, narrow, wide, None, narrow, None],
    };
    let mut space = ConfigSpace::endpoint(1, 2, 0x02_0000).sriov(sriov).build().expect("it fits");
    let mut moved = |offset: u16, value| space.write(0x100 + offset, value, 0xf);
    let bar = |bar| [Effect::VfBarMoved { bar }];
    assert_eq!(moved(0x28, 0x1000_0000), bar(1));
    assert_eq!(moved(0x2c, 0x2000_0000), bar(2));
    assert_eq!(moved(0x30, 0x1), bar(2));
    assert_eq!(moved(0x34, 0x3000_0000), bar(4));
    moved(0x10, 4);
    moved(0x08, 9);
    let functions = space.virtual_functions().expect("it has some");
    let found = [0x1000_1004, 0x1_2003_fffc, 0x3000_3ffc, 0x3000_4000, 0x2000_0000]
        .map(|at| functions.find_bar(at, 4));
    assert_eq!(found, [Some((1, 1, 4)), Some((3, 2, 0xfffc)), Some((3, 4, 0xffc)), None, None]);
}
