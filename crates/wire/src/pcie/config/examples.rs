//! Example functions with nearly every capability, for the builder and for tests of code that reads configuration
//! spaces.

use super::msix::MsixLayout;
use super::{BarKind, ConfigSpace, PcieParams, PortType, SlotParams, SriovParams, acs};
use crate::pcie::{Generation, Width};

/// The first function of a device: BARs of all kinds, all endpoint capabilities, 16 virtual functions.
pub fn endpoint() -> ConfigSpace {
    ConfigSpace::endpoint(0x19ee, 0x4000, 0x02_0000)
        .revision(5)
        .subsystem(0x19ee, 0x4001)
        .interrupt_pin(1)
        .bar64(0, 1 << 20, true)
        .bar32(2, 4096, false)
        .bar_io(3, 32)
        .bar64(4, 1 << 34, true)
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
        .pcie(PcieParams {
            ten_bit_tags: true,
            access_control: Some(acs::USUAL),
            translation_queue: Some(32),
            ..PcieParams::endpoint(Generation::Gen3, Width::X8)
        })
        .aer()
        .serial(0x0011_2233_4455_6677)
        .ari(1)
        .sriov(SriovParams {
            total: 16,
            first_offset: 8,
            stride: 1,
            device: 0x6003,
            bars: [Some((BarKind::Memory64 { prefetchable: true }, 1 << 16)), None, None, None, None, None],
        })
        .build()
        .expect("everything has its place")
}

/// A root port with a hot-plug slot.
pub fn root_port() -> ConfigSpace {
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
            port_number: 3,
            access_control: Some(acs::USUAL),
            ..PcieParams::port(PortType::RootPort, Generation::Gen4, Width::X16)
        })
        .aer()
        .build()
        .expect("everything has its place")
}
