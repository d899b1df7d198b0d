//! The project's own devices as the PCI core finds them: a drive with two ports, one on each node, and a NIC of two
//! functions.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common;
use devices::nic::{Nic, NicParams};
use devices::nvme::{MemoryMedia, Nvme, NvmeParams};
use engine::Simulation;
use hardware::Fabric;
use hardware::endpoint::EndpointParams;
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::root::RootPortParams;
use kernel::{DmaMode, Kernel};
use platform::Error;
use platform::cpu::{Async, Cpu, Node};
use platform::irq::Affinity;
use platform::mmio::MemoryType;
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use wire::ethernet::MacAddr;

/// Reads each function's first registers and takes two interrupts.
#[derive(Default)]
struct Look {
    seen: RefCell<Vec<(u32, Node, u64, usize)>>,
}

struct Nothing(PciDevice);

impl PciBinding for Nothing {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        self.0.free_irqs(cpu)
    }
}

impl PciDriver for Look {
    fn name(&self) -> &'static str {
        "look"
    }
    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 2] = [PciMatch::class(0x01_0802), PciMatch::class(0x02_0000)];
        &IDS
    }
    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
            let first = registers.read_u64(cpu, 0).await;
            let irqs = device.alloc_irqs(cpu, 2, 2, Affinity::Spread).await?;
            self.seen.borrow_mut().push((device.identity().class, device.node(), first, irqs.len()));
            Ok(Rc::new(Nothing(device)) as Rc<dyn PciBinding>)
        })
    }
}

#[test]
fn drives_and_nics_are_found_by_what_they_say() {
    let mut fabric = Fabric::new();
    let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
    let port = |node| RootPortParams { node: NodeId(node), ..RootPortParams::ideal() };
    let links = [0, 1, 1].map(|node| fabric.add_root_port(host, port(node), common::link(), 0..=0));
    let drive = Nvme::new(NvmeParams { ports: 2, ..NvmeParams::example() }, Box::new(MemoryMedia::default()))
        .unwrap();
    fabric.add_endpoint(EndpointParams::ideal(256), &links[..2], Box::new(drive));
    let mut params = NicParams::modern(MacAddr([2, 0, 0, 0, 0, 1]));
    let second = params.functions[0];
    params.functions.push(second);
    let (nic, _handle) = Nic::new(params).unwrap();
    fabric.add_endpoint(EndpointParams::ideal(256), &links[2..], Box::new(nic));

    let simulation = Simulation::new(fabric);
    let kernel = Kernel::new(&simulation.handle(), host, common::params(DmaMode::Off));
    let look = Rc::new(Look::default());
    kernel.add_driver(Rc::clone(&look) as Rc<dyn PciDriver>);
    simulation.block_on(kernel.boot()).unwrap();

    let seen = look.seen.borrow();
    let classes: Vec<_> = seen.iter().map(|s| (s.0, s.1, s.3)).collect();
    let (nvme, nic) = (0x01_0802, 0x02_0000);
    assert_eq!(
        classes,
        [(nvme, Node(0), 2), (nvme, Node(1), 2), (nic, Node(1), 2), (nic, Node(1), 2)],
        "{}",
        kernel.pci_text()
    );
    // The capabilities of a controller: at least its largest queue is there.
    assert!(seen[..2].iter().all(|s| s.2 != u64::MAX && s.2 & 0xffff > 0));
    drop(seen);
    drop(simulation);
}
