//! Helpers for test devices: a single function, its registers and its DMA.

// No test uses all of it.
#![allow(dead_code)]

use hardware::endpoint::Registers;
use platform::device::{Dma, Function, FunctionIndex, PortIndex, Token};
use units::Iova;
use wire::pcie::config::{Builder, ConfigSpace, PcieParams};
use wire::pcie::tlp::{ConfigRequest, ConfigType};
use wire::pcie::{Bdf, Generation, Width};

/// The only function of a device.
pub const F0: FunctionIndex = FunctionIndex(0);

/// Builder for the configuration space of a Gen3 x8 device with this maximum payload.
pub fn config(max_payload: u32) -> Builder {
    let params = PcieParams { max_payload, ..PcieParams::endpoint(Generation::Gen3, Width::X8) };
    ConfigSpace::endpoint(0x1af4, 0x00c1, 0x08_8000).pcie(params)
}

/// Functions of a device with only one.
pub fn function(config: Builder) -> Vec<Function> {
    vec![Function { port: PortIndex(0), config: config.build().expect("a possible configuration space") }]
}

/// A DMA transfer of the function.
pub fn dma(address: u64, length: u32, token: u64) -> Dma {
    Dma {
        function: F0,
        address: Iova::new(address),
        length,
        token: Token(token),
        attributes: Default::default(),
    }
}

/// Writes configuration registers of the device on bus 1 directly, without TLPs.
pub fn write_registers(registers: &mut Registers, writes: &[(u16, u32)]) {
    for &(register, value) in writes {
        let request = ConfigRequest {
            requester: Bdf::new(0, 0, 0),
            tag: 0,
            target: Bdf::new(1, 0, 0),
            register,
            first_be: 0xf,
            config_type: ConfigType::Type0,
        };
        registers.write(PortIndex(0), &request, value).unwrap();
    }
}
