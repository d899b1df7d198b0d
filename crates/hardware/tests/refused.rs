//! Requests without a completer are completed as unsupported instead of timing out (base spec 2.3.1).

use crate::common::{F0, config, function};
use engine::{Simulation, Trace};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{LinkEnd, LinkId, LinkParams, Packet, Passed, Side};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::{HostId, RootPortParams};
use platform::device::{Device, DeviceBus, Function, Reset};
use units::HostPhysical;
use wire::pcie::config::{acs, caps, header};
use wire::pcie::tlp::{CompletionStatus, ConfigRequest, ConfigType, IoRequest, MemoryRequest};
use wire::pcie::{Bdf, FlowClass, Generation, Tlp, TlpKind, Width};

/// A device without registers.
struct Mute;

impl Device for Mute {
    fn functions(&self) -> Vec<Function> {
        function(config(256).aer())
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
}

/// Sends one request from one side of a link. Returns the number of completions received, and of requests counted as
/// unsupported by the device and by the root complex.
fn ask(side: Side, kind: TlpKind, data: &[u8]) -> (u64, u64, u64) {
    let (simulation, device) = pair(RootPortParams::ideal());
    send(&simulation, side, kind, data);
    simulation.with(|fabric, _| {
        let answers = fabric.wires.link(LinkId(0)).counters(side.opposite());
        let completions = answers.tlps[FlowClass::Completion.index()];
        let device = fabric.endpoint(device).core.unsupported_requests;
        (completions, device, fabric.host(HostId(0)).counters().unsupported_requests)
    })
}

/// A host with the device at its only port.
fn pair(root: RootPortParams) -> (Simulation<Fabric>, EndpointId) {
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let params = LinkParams::example(Generation::Gen3, Width::X8);
    let link = fabric.add_root_port(host, root, params, 1..=1);
    let device = fabric.add_endpoint(EndpointParams::ideal(8), &[link], Box::new(Mute));
    (Simulation::new(fabric), device)
}

fn send(simulation: &Simulation<Fabric>, side: Side, kind: TlpKind, data: &[u8]) {
    simulation.with(|fabric, scheduler| {
        let packet = fabric.wires.packets.encode(&Tlp::new(kind), data);
        fabric.context(scheduler).send(LinkEnd { link: LinkId(0), side }, packet);
    });
    simulation.run();
}

fn io() -> IoRequest {
    IoRequest { requester: Bdf::new(0, 0, 0), tag: 3, address: 0x1f0, first_be: 0xf }
}

#[test]
fn a_device_completes_io_requests_as_unsupported() {
    assert_eq!(ask(Side::Upstream, TlpKind::IoRead(io()), &[]), (1, 1, 0));
    assert_eq!(ask(Side::Upstream, TlpKind::IoWrite(io()), &[1, 2, 3, 4]), (1, 1, 0));
}

/// A request of type 1 is for a bus below, which a device does not have (base spec 7.3.3). It neither reads nor changes a
/// register, nor does the device take its target for its own ID.
#[test]
fn a_device_completes_configuration_requests_for_a_bus_below_as_unsupported() {
    let target = Bdf::new(5, 0, 0);
    let request = |config_type| ConfigRequest {
        requester: Bdf::new(0, 1, 0),
        tag: 6,
        target,
        register: header::COMMAND,
        first_be: 0xf,
        config_type,
    };
    let memory = u32::from(header::COMMAND_MEMORY).to_le_bytes();
    let both = [
        (TlpKind::ConfigRead as fn(_) -> _, &[][..], Bdf::default()),
        (TlpKind::ConfigWrite, &memory[..], target),
    ];
    for (kind, data, captured) in both {
        let (simulation, device) = pair(RootPortParams::ideal());
        let (trace, passed) = Trace::collect();
        simulation.with(|fabric, _| fabric.wires.tap(LinkId(0), trace));
        let state = || {
            simulation.with(|fabric, _| {
                let registers = &fabric.endpoint(device).core.registers;
                (registers.config(F0).dword(header::COMMAND), registers.id(F0))
            })
        };
        let before = state();
        let ask = |config_type| {
            send(&simulation, Side::Upstream, kind(request(config_type)), data);
            (statuses(&passed.borrow()), state())
        };
        let refused = (6, CompletionStatus::UnsupportedRequest, 0);
        assert_eq!(ask(ConfigType::Type1), (vec![refused], before));
        // The same request of type 0 is for the device.
        let (answers, (command, id)) = ask(ConfigType::Type0);
        assert_eq!(answers[1..], [(6, CompletionStatus::Successful, u16::from(data.is_empty()))]);
        assert_eq!((command != before.0, id), (!data.is_empty(), captured));
    }
}

/// Tags, statuses and lengths of the completions that a device has sent.
fn statuses(passed: &[Passed]) -> Vec<(u16, CompletionStatus, u16)> {
    let of = |packet: &Passed| match &packet.packet {
        Packet::Tlp { bytes, .. } if packet.from == Side::Downstream => {
            match Tlp::parse(bytes).ok()?.0.kind {
                TlpKind::Completion(header) | TlpKind::CompletionData(header) => {
                    Some((header.tag, header.status, header.length_dw))
                }
                _ => None,
            }
        }
        _ => None,
    };
    passed.iter().filter_map(of).collect()
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

/// With source validation, a root port accepts only requests whose requester is on a bus below it: reads are aborted,
/// writes dropped, and memory stays unchanged.
#[test]
fn a_root_port_with_access_control_takes_nothing_in_anothers_name() {
    const SECRET: HostPhysical = HostPhysical::new(0x1000);
    let port = Bdf::new(0, 1, 0);
    let (simulation, _) = pair(RootPortParams { access_control: true, ..RootPortParams::ideal() });
    let violations = || simulation.with(|fabric, _| fabric.host(HostId(0)).counters().acs_violations);
    let read_line = || {
        let mut line = [0; 4];
        simulation.with(|fabric, _| {
            fabric.host(HostId(0)).memory.bytes().read(SECRET, &mut line).expect("it is installed");
        });
        u32::from_le_bytes(line)
    };
    let register = |at: u16, value: Option<u32>| {
        let access = simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(HostId(0), scheduler);
            match value {
                Some(value) => host.config_write(&mut cx, CoreId(0), port, at, value, 0xf),
                None => host.config_read(&mut cx, CoreId(0), port, at),
            }
        });
        let data = simulation.block_on(access.data).unwrap().unwrap();
        u32::from_le_bytes(data.try_into().expect("a doubleword"))
    };
    let write_as = |bus: u8, value: u32| {
        let request = MemoryRequest::for_bytes(Bdf::new(bus, 0, 0), 0, SECRET.get(), 4);
        send(&simulation, Side::Downstream, TlpKind::MemoryWrite(request), &value.to_le_bytes());
    };
    write_as(9, 1);
    assert_eq!((read_line(), violations()), (1, 0), "nothing is validated before somebody asks for it");
    let read = |at: u16| register(at, None);
    let at = caps::find_extended(&read, caps::extended_id::ACS).expect("the port has access control");
    let able = register(at + acs::CAPABILITY, None) as u16;
    assert_eq!(able, acs::USUAL & !acs::DIRECT_TRANSLATED);
    register(at + acs::CAPABILITY, Some(u32::from(acs::SOURCE_VALIDATION) << 16));
    write_as(9, 2);
    assert_eq!((read_line(), violations()), (1, 1));
    let request = MemoryRequest::for_bytes(Bdf::new(9, 0, 0), 0, SECRET.get(), 4);
    send(&simulation, Side::Downstream, TlpKind::MemoryRead(request), &[]);
    assert_eq!(violations(), 2);
    let answers = simulation.with(|fabric, _| {
        fabric.wires.link(LinkId(0)).counters(Side::Upstream).tlps[FlowClass::Completion.index()]
    });
    assert_eq!(answers, 1, "the read is completed");
    write_as(1, 3);
    assert_eq!((read_line(), violations()), (3, 2));
}
