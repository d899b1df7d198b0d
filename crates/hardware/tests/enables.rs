//! A device sees the enabled bytes of a write to a BAR, each run at its place (base spec 2.2.5).

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{config, function};
use engine::Simulation;
use hardware::endpoint::EndpointParams;
use hardware::link::{LinkEnd, LinkParams, Side};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::RootPortParams;
use hardware::{Fabric, HostFirmware};
use platform::device::{BarAccess, Device, DeviceBus, Function, Reset};
use units::HostPhysical;
use wire::pcie::tlp::MemoryRequest;
use wire::pcie::{Bdf, Generation, Tlp, TlpKind, Width};

const BAR: u64 = 0x8000_0000;

/// Address and data of each write.
type Written = Rc<RefCell<Vec<(u64, Vec<u8>)>>>;

struct Slate(Written);

impl Device for Slate {
    fn functions(&self) -> Vec<Function> {
        function(config(256).bar64(0, 4096, false))
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
    fn bar_write(&mut self, _: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        self.0.borrow_mut().push((at.offset.get(), data.to_vec()));
    }
}

#[test]
fn runs_of_enabled_bytes_are_written_where_they_are() {
    let written = Written::default();
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let link = LinkParams::example(Generation::Gen3, Width::X8);
    let link = fabric.add_root_port(host, RootPortParams::ideal(), link, 1..=1);
    fabric.add_endpoint(EndpointParams::ideal(8), &[link], Box::new(Slate(Rc::clone(&written))));
    let simulation = Simulation::new(fabric);
    let firmware = HostFirmware::new(simulation.handle(), host, CoreId(0));
    let bar = [(0, HostPhysical::new(BAR))];
    simulation.block_on(async move { firmware.enable(Bdf::new(1, 0, 0), &bar).await }).unwrap();
    let data: Vec<u8> = (1..=8).collect();
    for (enables, expected) in [
        ((0xf, 0xf), vec![(0x20, vec![1, 2, 3, 4, 5, 6, 7, 8])]),
        ((0b1110, 0b0011), vec![(0x21, vec![2, 3, 4, 5, 6])]),
        ((0b0001, 0b1000), vec![(0x20, vec![1]), (0x27, vec![8])]),
        ((0b1010, 0b0101), vec![(0x21, vec![2]), (0x23, vec![4, 5]), (0x26, vec![7])]),
    ] {
        let request = MemoryRequest {
            requester: Bdf::new(0, 0, 0),
            tag: 0,
            address: BAR + 0x20,
            length_dw: 2,
            first_be: enables.0,
            last_be: enables.1,
        };
        simulation.with(|fabric, scheduler| {
            let packet = fabric.wires.packets.encode(&Tlp::new(TlpKind::MemoryWrite(request)), &data);
            fabric.context(scheduler).send(LinkEnd { link, side: Side::Upstream }, packet);
        });
        simulation.run();
        assert_eq!(written.take(), expected, "{enables:?}");
    }
}
