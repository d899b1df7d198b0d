//! Any sequence of accesses to a configuration space: identity stays, no write reaches another register.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use wire::pcie::config::msix::MsixLayout;
use wire::pcie::config::{
    BarKind, ConfigSpace, PcieParams, PortType, ResetKind, SlotParams, SriovParams, acs, bars, caps,
};
use wire::pcie::{Generation, Width};

fn endpoint() -> ConfigSpace {
    ConfigSpace::endpoint(0x19ee, 0x4000, 0x02_0000)
        .bar64(0, 1 << 20, true)
        .bar32(2, 4096, false)
        .bar_io(3, 32)
        .rom(1 << 16)
        .power_management()
        .msi(8)
        .msix(MsixLayout {
            vectors: 64,
            table_bar: 2,
            table_offset: 0,
            pending_bar: 2,
            pending_offset: 0x800,
        })
        .pcie(PcieParams { ten_bit_tags: true, ..PcieParams::endpoint(Generation::Gen3, Width::X8) })
        .aer()
        .ats(32)
        .acs(acs::USUAL)
        .sriov(SriovParams {
            total: 16,
            first_offset: 8,
            stride: 1,
            device: 0x6003,
            bars: [Some((BarKind::Memory64 { prefetchable: true }, 1 << 16)), None, None, None, None, None],
        })
        .build()
        .expect("a valid layout")
}

fn root_port() -> ConfigSpace {
    let slot = SlotParams {
        number: 7,
        power_controller: true,
        attention_button: true,
        surprise: true,
        power_limit_w: 75,
    };
    ConfigSpace::bridge(0x8086, 0x2f04)
        .power_management()
        .pcie(PcieParams {
            slot: Some(slot),
            ..PcieParams::port(PortType::RootPort, Generation::Gen4, Width::X16)
        })
        .aer()
        .acs(acs::USUAL)
        .build()
        .expect("a valid layout")
}

/// Laid out once: copies are cheap.
static SPACES: LazyLock<[ConfigSpace; 2]> = LazyLock::new(|| [endpoint(), root_port()]);

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, operations)) = bytes.split_first() else { return };
    let mut space = SPACES[usize::from(first & 1)].clone();
    let identity = (space.dword(0), space.dword(8));
    for operation in operations.chunks_exact(8) {
        let [kind, enables, at_low, at_high, a, b, c, d] = *operation else {
            unreachable!("chunks of eight")
        };
        let (at, value) = (u16::from_le_bytes([at_low, at_high]), u32::from_le_bytes([a, b, c, d]));
        match kind % 8 {
            0 => space.update(at.max(0x40), 0, value),
            1 => space.reset(ResetKind::Hot),
            2 => space.reset(ResetKind::Function),
            3 => drop(space.read(at, enables)),
            _ => drop(space.write(at & 0x0fff, value, enables)),
        }
        assert_eq!((space.dword(0), space.dword(8)), identity);
    }
    let read = |at| space.dword(at);
    let _ = (caps::find(&read, caps::id::MSIX), caps::find_extended(&read, caps::extended_id::AER));
    for i in 0..6 {
        let at = 0x10 + 4 * u16::from(i);
        let _ = (space.bar(i), bars::from_sizing(read(at), read(at + 4), u32::MAX, u32::MAX));
    }
    let _ =
        (space.find_bar(0x1000, 64), space.msi(), space.msix_layout(), space.msix_enabled(), space.tags());
    let _ = (space.max_payload(), space.max_read_request(), space.power_state());
});
