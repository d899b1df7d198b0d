//! Hosts with NTB adapters, each with copiers (see the kernel's tests) that it lends, and a service.
#![allow(dead_code)]

#[path = "../../../kernel/tests/common/mod.rs"]
pub mod copiers;
pub mod host;

use std::cell::Cell;
use std::rc::Rc;

use copiers::{Copier, CopierBinding, CopierDriver, Model, reg};
use drivers::nic::{NicDriver, NicDriverParams};
use drivers::ntb::NtbAdapter;
use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::iommu::{Iommu, IommuParams};
use hardware::link::{LinkId, LinkState};
use hardware::memory::{MemoryParams, MemorySystem, NodeId};
use hardware::ntb::{NtbCableEnd, NtbParams};
use hardware::root::{HostId, PeerReads, RootPortParams};
use host::Host;
use kernel::{DmaMode, Kernel};
use lending::{LendingParams, Service};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::device::{BarAccess, Device, Dma};
use platform::kernel::TaskParams;
use platform::pci::PciDriver;
use platform::sync::{Completion, until};
use units::{BarOffset, Duration, HostPhysical, Iova};
use wire::pcie::config::{ConfigSpace, PcieParams};
use wire::pcie::{Bdf, FunctionAddress, Generation, Width};

pub struct Side {
    pub kernel: Rc<Kernel>,
    pub driver: Rc<CopierDriver>,
    pub copiers: Vec<EndpointId>,
    pub adapter: EndpointId,
    pub host: HostId,
    mode: DmaMode,
    /// So many of its copiers are its own, which it does not lend.
    keeps: usize,
    lends: Host,
}

pub struct Cluster {
    // Dropped first: tasks hold what the kernels hold.
    pub simulation: Simulation<Fabric>,
    pub hosts: Vec<Side>,
    /// Each pair has one.
    pub cables: Vec<(usize, usize, LinkId)>,
    forward: u64,
}

/// How hosts differ from others, and the first from the rest.
pub struct Hosts {
    /// Places in the tables of the first host's adapter, and of the others'.
    pub requesters: [u32; 2],
    /// So many of its copiers the first does not lend.
    pub first_keeps: usize,
    /// Most bytes of a payload that pass its adapter.
    pub first_payload: u32,
    /// Cycles of handlers that pass interrupts of guests' functions on.
    pub forward: u64,
}

impl Default for Hosts {
    fn default() -> Self {
        let forward = LendingParams::default().forward;
        Self { requesters: [32; 2], first_keeps: 0, first_payload: 256, forward }
    }
}

/// A copy that a driver has begun.
pub struct Flight {
    pub copier: Rc<CopierBinding>,
    outcome: Rc<Cell<Outcome>>,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Not over, or its host has crashed.
    UnderWay,
    /// The device has failed it, or has not answered for too long.
    Failed,
    /// The device says that all has been copied, and that is so.
    Copied,
    /// The device says so, and it is not.
    Wrong,
}

impl Flight {
    /// Bytes of one.
    const LENGTH: u64 = 4096;

    pub fn outcome(&self) -> Outcome {
        self.outcome.get()
    }
}

fn node(host: usize) -> u8 {
    host as u8 + 1
}

fn params() -> LendingParams {
    LendingParams {
        patience: Duration::from_ms(300),
        heartbeat: Duration::from_ms(50),
        ..LendingParams::default()
    }
}

/// A kernel with all drivers, and what of lending belongs to it.
fn side(
    simulation: &Simulation<Fabric>,
    (host, mode): (HostId, DmaMode),
    adapter: EndpointId,
    (copiers, keeps): (Vec<EndpointId>, usize),
) -> Side {
    let lent = copiers[keeps..].to_vec();
    let lends = Host::new(simulation, host, copiers::params(mode), lent);
    let (kernel, driver) = (Rc::clone(&lends.kernel), Rc::new(CopierDriver::default()));
    kernel.add_driver(Rc::clone(&driver) as Rc<dyn PciDriver>);
    kernel.add_driver(NicDriver::new(NicDriverParams { channels: Some(1), ..NicDriverParams::default() }));
    Side { kernel, driver, copiers, adapter, host, mode, keeps, lends }
}

impl Cluster {
    /// Hosts whose IOMMUs are used so, each with so many copiers, joined pair by pair.
    pub fn new(modes: &[DmaMode], copiers: usize) -> Self {
        Self::of(modes, copiers, Hosts::default())
    }

    /// With other devices of each host behind its copiers, which it lends too.
    pub fn with_devices(modes: &[DmaMode], others: impl Fn(usize) -> Vec<Box<dyn Device>>) -> Self {
        Self::build(modes, 0, Hosts::default(), others)
    }

    pub fn of(modes: &[DmaMode], copiers: usize, shape: Hosts) -> Self {
        Self::build(modes, copiers, shape, |_| Vec::new())
    }

    /// Both of these: hosts of a shape, with copiers and others.
    pub fn build(
        modes: &[DmaMode],
        copiers: usize,
        shape: Hosts,
        others: impl Fn(usize) -> Vec<Box<dyn Device>>,
    ) -> Self {
        let mut fabric = Fabric::new();
        let port = RootPortParams {
            peer_reads: Some(PeerReads { largest: 64, places: 32 }),
            completion_timeout: Duration::from_ms(5),
            ..RootPortParams::ideal()
        };
        let mut parts = Vec::new();
        for (n, &mode) in modes.iter().enumerate() {
            let memory = MemorySystem::new(&MemoryParams::example());
            let iommu = |node| Iommu::new(IommuParams::default(), NodeId(node), Seed::new(7)).unwrap();
            let iommus = if mode == DmaMode::Off { Vec::new() } else { vec![iommu(0), iommu(1)] };
            let host = fabric.add_host(memory, iommus);
            let slot = fabric.add_root_port(host, port.clone(), copiers::link(), 0..=0);
            let mut pcie = PcieParams::endpoint(Generation::Gen3, Width::X8);
            if n == 0 {
                pcie.max_payload = shape.first_payload;
            }
            let params = NtbParams {
                latency: Duration::from_ns(150),
                window: 64 << 30,
                segments: 256,
                requesters: shape.requesters[usize::from(n > 0)],
                ..NtbParams::ideal(node(n), pcie)
            };
            let adapter = fabric.add_ntb(EndpointParams::ideal(8), params, slot).unwrap();
            let own = (0..copiers).map(|_| {
                let slot = fabric.add_root_port(host, port.clone(), copiers::link(), 0..=0);
                let copier = Copier::of(Model { bar: 64 << 10, ..Model::default() });
                let core =
                    EndpointParams { completion_timeout: Duration::from_ms(20), ..EndpointParams::ideal(64) };
                fabric.add_endpoint(core, &[slot], Box::new(copier))
            });
            let mut own: Vec<EndpointId> = own.collect();
            for other in others(n) {
                let slot = fabric.add_root_port(host, port.clone(), copiers::link(), 0..=0);
                own.push(fabric.add_endpoint(EndpointParams::ideal(8), &[slot], other));
            }
            parts.push((host, mode, adapter, own));
        }
        let mut cables = Vec::new();
        for a in 0..modes.len() {
            for b in a + 1..modes.len() {
                let ends = [NtbCableEnd::Adapter(parts[a].2), NtbCableEnd::Adapter(parts[b].2)];
                cables.push((a, b, fabric.add_ntb_cable(ends, copiers::link())));
            }
        }
        let simulation = Simulation::new(fabric);
        let hosts = parts
            .into_iter()
            .enumerate()
            .map(|(n, (host, mode, adapter, own))| {
                side(&simulation, (host, mode), adapter, (own, if n == 0 { shape.first_keeps } else { 0 }))
            })
            .collect();
        let mut cluster = Self { simulation, hosts, cables, forward: shape.forward };
        (0..modes.len()).for_each(|host| cluster.boot(host));
        (0..modes.len()).for_each(|host| cluster.start(host).expect("the service starts"));
        cluster
    }

    fn boot(&self, host: usize) {
        self.simulation.block_on(self.hosts[host].kernel.boot()).expect("the kernel boots");
    }

    fn start(&mut self, host: usize) -> Result<(), Error> {
        let params = LendingParams { forward: self.forward, ..params() };
        self.hosts[host].lends.start(&self.simulation, params)
    }

    /// The power of a host goes, and comes again after a while: its devices are reset, and a new kernel boots.
    pub fn reboot(&mut self, host: usize) {
        self.hosts[host].kernel.halt();
        let own = |cluster: &Self| {
            let side = &cluster.hosts[host];
            side.copiers.iter().copied().chain([side.adapter]).collect::<Vec<_>>()
        };
        let is_up =
            |link: LinkId| self.simulation.with(|fabric, _| fabric.wires.link(link).state()) == LinkState::Up;
        let cables = self.cables.iter().filter(|(a, b, link)| (*a == host || *b == host) && is_up(*link));
        let cables: Vec<LinkId> = cables.map(|(.., link)| *link).collect();
        self.simulation.with(|fabric, scheduler| {
            cables.iter().for_each(|&cable| fabric.running(scheduler).set_ntb_cable_up(cable, false));
            own(self).into_iter().for_each(|device| fabric.running(scheduler).remove_device(device));
        });
        self.run_for(Duration::from_ms(100));
        let Side { host: id, mode, adapter, keeps, ref copiers, .. } = self.hosts[host];
        let copiers = copiers.clone();
        self.simulation.with(|fabric, scheduler| {
            fabric.host_mut(id).reset();
            own(self).into_iter().for_each(|device| fabric.running(scheduler).insert_device(device));
        });
        self.hosts[host] = side(&self.simulation, (id, mode), adapter, (copiers, keeps));
        self.boot(host);
        self.simulation.with(|fabric, scheduler| {
            cables.iter().for_each(|&cable| fabric.running(scheduler).set_ntb_cable_up(cable, true));
        });
        self.start(host).expect("the service starts again");
    }

    pub fn service(&self, host: usize) -> &Rc<Service> {
        self.hosts[host].lends.service.as_ref().expect("it has started")
    }

    /// The driver of a host's adapter.
    pub fn adapter(&self, host: usize) -> Rc<NtbAdapter> {
        self.hosts[host].lends.adapter()
    }

    /// The `n`th copier of a host, as its own kernel calls it.
    pub fn function(&self, host: usize, n: usize) -> Bdf {
        self.simulation.with(|fabric, _| {
            fabric.endpoint(self.hosts[host].copiers[n]).core.registers.id(Default::default())
        })
    }

    pub fn borrow(&self, by: usize, of: usize, n: usize) -> Result<FunctionAddress, Error> {
        let asked = self.service(by).borrow(node(of), self.function(of, n));
        self.simulation.block_on(asked).expect("it ends")
    }

    pub fn give_back(&self, by: usize, of: usize, n: usize) -> Result<(), Error> {
        let asked = self.service(by).give_back(node(of), self.function(of, n));
        self.simulation.block_on(asked).expect("it ends")
    }

    pub fn node(&self, host: usize) -> u8 {
        node(host)
    }

    /// The last copier that a host's driver was given.
    pub fn copier(&self, host: usize) -> Rc<CopierBinding> {
        Rc::clone(self.hosts[host].driver.bound.borrow().last().expect("a driver has one"))
    }

    pub fn run<T: 'static>(
        &self,
        host: usize,
        program: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
    ) -> T {
        let result = Completion::new();
        let end = result.clone();
        self.hosts[host].kernel.spawn(TaskParams::named("test").on(CpuId(1)), move |cpu| {
            Box::pin(async move { end.complete(program(cpu).await) })
        });
        self.simulation.block_on(async move { result.wait().await }).expect("the program ends")
    }

    /// Copies through the last copier that a host's driver has; whether what is there is what was to be copied.
    pub fn copies(&self, host: usize, value: u64) -> bool {
        let copier = self.copier(host);
        self.run(host, move |cpu| {
            Box::pin(async move {
                cpu.store_u64(copier.memory.cpu, value);
                let to = Iova::new(copier.memory.bus.get() + 4096);
                let copied = copier.copy(&cpu, copier.memory.bus, to, 512, 3).await;
                copied.is_ok() && cpu.load_u64(copier.memory.cpu + 4096) == value
            })
        })
    }

    /// Begins a copy of every byte of a page through a copier that a host's driver has.
    pub fn begin(&self, host: usize, copier: &Rc<CopierBinding>, value: u8) -> Flight {
        let outcome = Rc::new(Cell::new(Outcome::UnderWay));
        let flight = Flight { copier: Rc::clone(copier), outcome: Rc::clone(&outcome) };
        let copier = Rc::clone(copier);
        self.hosts[host].kernel.spawn(TaskParams::named("flight").on(CpuId(1)), move |cpu| {
            Box::pin(async move {
                let (from, to) = (copier.memory, copier.memory.cpu + Flight::LENGTH);
                cpu.store(from.cpu, &[value; Flight::LENGTH as usize]);
                cpu.store(to, &[!value; Flight::LENGTH as usize]);
                copier.done.try_take();
                copier.start(&cpu, from.bus, from.bus + Flight::LENGTH, Flight::LENGTH, 3);
                let told = until(&cpu, cpu.now() + Duration::from_ms(30), copier.done.wait()).await;
                let mut there = [0; Flight::LENGTH as usize];
                cpu.load(to, &mut there);
                outcome.set(match told {
                    Some((3, _)) if there.iter().all(|&byte| byte == value) => Outcome::Copied,
                    Some((3, _)) => Outcome::Wrong,
                    _ => Outcome::Failed,
                });
            })
        });
        flight
    }

    /// A device does nothing more until it is reset.
    pub fn hang(&self, host: usize, n: usize) {
        let device = self.hosts[host].copiers[n];
        let at = BarAccess { function: Default::default(), bar: 0, offset: BarOffset::new(reg::HANG) };
        self.simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(device, |device, bus| device.bar_write(bus, at, &[1; 8]));
        });
    }

    /// A device is taken out of its slot, or put back.
    pub fn set_there(&self, host: usize, n: usize, there: bool) {
        let device = self.hosts[host].copiers[n];
        self.simulation.with(|fabric, scheduler| match there {
            true => fabric.running(scheduler).insert_device(device),
            false => fabric.running(scheduler).remove_device(device),
        });
    }

    /// A copier of a host as fabric and registers know it.
    pub fn with_registers<T>(&self, host: usize, n: usize, look: impl FnOnce(&ConfigSpace) -> T) -> T {
        self.simulation.with(|fabric, _| {
            look(fabric.endpoint(self.hosts[host].copiers[n]).core.registers.config(Default::default()))
        })
    }

    pub fn set_cable(&self, a: usize, b: usize, up: bool) {
        let (.., cable) = self.cables.iter().find(|(x, y, _)| (*x, *y) == (a.min(b), a.max(b))).unwrap();
        self.simulation.with(|fabric, scheduler| fabric.running(scheduler).set_ntb_cable_up(*cable, up));
    }

    pub fn run_for(&self, time: Duration) {
        self.simulation.run_until(self.simulation.now() + time);
    }

    /// Functions of other hosts that a kernel has.
    pub fn foreign(&self, host: usize) -> usize {
        let all = self.hosts[host].kernel.pci();
        all.iter().filter(|f| f.segment != FunctionAddress::default().segment).count()
    }

    /// Functions of a host that its IOMMU lets reach the windows of a lease.
    pub fn isolated(&self, host: usize) -> usize {
        self.service(host).counters().isolated
    }

    /// Lets the first copier of a host write a line to an address of its own choice, or read one there.
    pub fn reaches_for(&self, host: usize, at: u64, writes: bool) {
        let device = self.hosts[host].copiers[0];
        self.simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(device, |_, bus| {
                let request = Dma {
                    function: Default::default(),
                    address: Iova::new(at),
                    length: 64,
                    token: Default::default(),
                    attributes: Default::default(),
                };
                match writes {
                    true => bus.write(request, &[0xee; 64]),
                    false => bus.read(request),
                }
            });
        });
    }

    /// Bytes that devices have read from the memory of all hosts.
    pub fn read(&self) -> u64 {
        let of =
            |host: HostId| self.simulation.with(|fabric, _| fabric.host(host).counters().device_read_bytes);
        self.hosts.iter().map(|side| of(side.host)).sum()
    }

    /// Bytes that devices have written to the memory of all hosts, but for messages between services.
    pub fn written(&self) -> u64 {
        let of = |host: usize| {
            let id = self.hosts[host].host;
            let bytes = self.simulation.with(|fabric, _| fabric.host(id).counters().device_write_bytes);
            (bytes, 128 * self.service(host).counters().messages)
        };
        let all: Vec<(u64, u64)> = (0..self.hosts.len()).map(of).collect();
        all.iter().map(|(bytes, _)| bytes).sum::<u64>() - all.iter().map(|(_, sent)| sent).sum::<u64>()
    }

    pub fn word(&self, host: usize, at: u64) -> u64 {
        self.simulation.with(|fabric, _| {
            fabric.host(self.hosts[host].host).memory.bytes().read_u64(HostPhysical::new(at)).unwrap()
        })
    }
}
