//! Requests that nobody takes are completed as unsupported, not left to time out (base spec 2.3.1).

mod common;

use common::{config, function};
use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointParams;
use hardware::link::{LinkEnd, LinkId, LinkParams, Side};
use hardware::memory::{MemoryParams, MemorySystem};
use hardware::root::RootPortParams;
use platform::device::{Device, DeviceBus, Function, Reset};
use wire::pcie::tlp::{ConfigRequest, ConfigType, IoRequest};
use wire::pcie::{Bdf, FlowClass, Generation, Tlp, TlpKind, Width};

/// A device without registers.
struct Mute;

impl Device for Mute {
    fn functions(&self) -> Vec<Function> {
        function(config(256).aer())
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
}

/// Sends one request from one side of a link. Returns completions on their way back, requests that the device found
/// unsupported and those that the root complex did.
fn ask(side: Side, kind: TlpKind, data: &[u8]) -> (u64, u64, u64) {
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let params = LinkParams::example(Generation::Gen3, Width::X8);
    let link = fabric.add_root_port(host, RootPortParams::ideal(), params, 1..=1);
    let device = fabric.add_endpoint(EndpointParams::ideal(8), &[link], Box::new(Mute));
    let simulation = Simulation::new(fabric);
    simulation.with(|fabric, scheduler| {
        let packet = fabric.wires.packets.encode(&Tlp::new(kind), data);
        fabric.context(scheduler).send(LinkEnd { link: LinkId(0), side }, packet);
    });
    simulation.run();
    simulation.with(|fabric, _| {
        let answers = fabric.wires.link(LinkId(0)).counters(side.opposite());
        let completions = answers.tlps[FlowClass::Completion.index()];
        let device = fabric.endpoint(device).core.unsupported_requests;
        (completions, device, fabric.host(host).counters().unsupported_requests)
    })
}

fn io() -> IoRequest {
    IoRequest { requester: Bdf::new(0, 0, 0), tag: 3, address: 0x1f0, first_be: 0xf }
}

#[test]
fn a_device_completes_io_requests_as_unsupported() {
    assert_eq!(ask(Side::Upstream, TlpKind::IoRead(io()), &[]), (1, 1, 0));
    assert_eq!(ask(Side::Upstream, TlpKind::IoWrite(io()), &[1, 2, 3, 4]), (1, 1, 0));
}

#[test]
fn a_root_port_completes_io_and_configuration_requests_as_unsupported() {
    assert_eq!(ask(Side::Downstream, TlpKind::IoRead(io()), &[]), (1, 0, 1));
    let config = ConfigRequest {
        requester: Bdf::new(1, 0, 0),
        tag: 4,
        target: Bdf::new(0, 0, 0),
        register: 0,
        first_be: 0xf,
        config_type: ConfigType::Type0,
    };
    assert_eq!(ask(Side::Downstream, TlpKind::ConfigRead(config), &[]), (1, 0, 1));
}
