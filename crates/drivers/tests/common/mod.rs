//! Two hosts with kernels and a NIC each, a cable between them.
#![allow(dead_code)]

pub mod spoilt;
pub mod streams;

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use devices::nic::{Nic, NicFunctionParams, NicHandle, NicParams};
use drivers::nic::{NicDriver, NicDriverParams};
use engine::Simulation;
use hardware::Fabric;
use hardware::core::StoreParams;
use hardware::endpoint::EndpointId;
use hardware::ethernet::{CableId, CableParams, EthernetSwitchParams, FaultParams};
use hardware::link::LinkParams;
use hardware::memory::NodeId;
use hardware::root::{HostId, RootPortParams};
use kernel::{DmaMode, EcnMode, InetParams, Kernel, KernelCosts, KernelParams, SteeringParams};
use platform::cpu::{Async, Cpu, CpuId};
use platform::device::PortIndex;
use platform::ethernet::EthernetPort;
use platform::kernel::TaskParams;
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::mmio::{MemoryType, Mmio};
use platform::net::{Fragment, Packet, PacketDevice, PacketOwner};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use platform::sync::Completion;
use units::{BitRate, Bytes, Duration};
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::nic::registers::{WINDOW_BAR, feature};
use wire::pcie::{Generation, Width};

use crate::ground::board::{self, Board};
use crate::ground::{self, Computer};

/// Addresses of the hosts, where a suite gives them some.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// Memory of each node.
const MEMORY: Bytes = Bytes::gib(1);
/// Class of network controllers (PCI Code and ID Assignment Specification).
const NETWORK: u32 = 0x02;

pub struct Setup {
    /// How the IOMMU is used where the drivers are; a guest finds none.
    pub mode: DmaMode,
    pub rate: BitRate,
    pub driver: NicDriverParams,
    pub costs: KernelCosts,
    pub faults: Option<FaultParams>,
    pub steering: SteeringParams,
    pub ecn: EcnMode,
    pub autocorking: bool,
    /// Puts a switch that marks at so many waiting bytes between the hosts, its second port of this speed.
    pub marking_switch: Option<(u32, BitRate)>,
    pub nic: fn(&mut NicParams),
    /// How cores store to devices, and the root ports that they do it through.
    pub stores: StoreParams,
    pub root: RootPortParams,
    /// The way from there to the NIC.
    pub link: LinkParams,
    /// The second host's first link, if it differs.
    pub first_link: Option<LinkParams>,
    /// Drivers that are asked before the NIC's.
    pub others: Vec<Rc<dyn PciDriver>>,
    /// Links of the second host's NIC, to both sockets in turn, with functions that share its address.
    pub links: u8,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mode: DmaMode::Off,
            rate: BitRate::gbit_per_s(40),
            driver: NicDriverParams { channels: Some(2), ..NicDriverParams::default() },
            costs: KernelCosts::linux(),
            faults: None,
            steering: SteeringParams::linux(),
            ecn: EcnMode::Accept,
            autocorking: true,
            marking_switch: None,
            nic: |_| {},
            stores: StoreParams::ideal(),
            root: RootPortParams::ideal(),
            link: link(),
            first_link: None,
            others: Vec::new(),
            links: 1,
        }
    }
}

impl Setup {
    fn kernel(&self) -> KernelParams {
        let inet = InetParams {
            steering: self.steering,
            ecn: self.ecn,
            autocorking: self.autocorking,
            ..InetParams::linux()
        };
        KernelParams { costs: self.costs, inet, ..board::kernel(self.mode) }
    }
}

/// The NIC's driver, and its device's window of lines for who writes there beside it.
pub struct Beside {
    driver: Rc<NicDriver>,
    window: RefCell<Option<Mmio>>,
}

impl Beside {
    /// The window, if the device has one.
    pub fn window(&self) -> Option<Mmio> {
        self.window.borrow().clone()
    }
}

impl PciDriver for Beside {
    fn name(&self) -> &'static str {
        self.driver.name()
    }

    fn ids(&self) -> &[PciMatch] {
        self.driver.ids()
    }

    fn probe<'a>(
        &'a self,
        cpu: &'a Cpu,
        device: PciDevice,
    ) -> Async<'a, Result<Rc<dyn PciBinding>, platform::Error>> {
        *self.window.borrow_mut() = device.ioremap_bar(WINDOW_BAR, MemoryType::WriteCombining).ok();
        self.driver.probe(cpu, device)
    }
}

pub struct HostSide {
    pub kernel: Rc<Kernel>,
    pub beside: Rc<Beside>,
    pub driver: Rc<NicDriver>,
    pub nic: EndpointId,
    pub handle: NicHandle,
    /// Of the NIC.
    pub functions: u8,
    /// Whose memory the kernel has.
    pub host: HostId,
    computer: Computer,
}

pub struct Pair {
    // Dropped first: tasks hold what the kernels hold.
    pub simulation: Simulation<Fabric>,
    pub hosts: [HostSide; 2],
    pub cable: CableId,
}

pub fn link() -> LinkParams {
    LinkParams::example(Generation::Gen3, Width::X8)
}

impl Pair {
    /// Boots both hosts.
    pub fn new(setup: &Setup) -> Self {
        let pair = Self::off(setup);
        (0..2).for_each(|host| pair.boot(host));
        pair
    }

    /// Boots one.
    pub fn boot(&self, host: usize) {
        self.hosts[host].computer.boot(&self.simulation);
    }

    /// Puts the NIC of one in again.
    pub fn plug(&self, host: usize) {
        self.hosts[host].computer.plug(&self.simulation);
    }

    /// Until nothing happens any more.
    pub fn settle(&self) {
        ground::settle(&self.simulation);
    }

    /// Both hosts before they boot.
    pub fn off(setup: &Setup) -> Self {
        let mut fabric = Fabric::new();
        let mut plug = |n: u32| {
            let mut params = NicParams::modern(MacAddr::local(n));
            params.rate = setup.rate;
            if n == 2 {
                // One of the two tells by event queues why it interrupts.
                params.features |= feature::EVENT_QUEUES;
            }
            (setup.nic)(&mut params);
            let links = if n == 2 { setup.links } else { 1 };
            params.functions = (0..links)
                .map(|port| NicFunctionParams { pcie_port: PortIndex(port), ..params.functions[0] })
                .collect();
            let (nic, handle) = Nic::new(params).unwrap();
            let port = |n| RootPortParams { node: NodeId(n % 2), ..setup.root.clone() };
            let board = Board {
                memory: MEMORY,
                stores: setup.stores.clone(),
                kernel: setup.kernel(),
                ports: (0..links).map(port).collect(),
                link: setup.link.clone(),
                first_link: setup.first_link.clone().filter(|_| n == 2),
            };
            (ground::parts(&mut fabric, board, Box::new(nic)), (handle, links))
        };
        let (a, b) = (plug(1), plug(2));
        let ports = [&a, &b].map(|(parts, _)| fabric.ethernet_port(parts.device, EthernetPort(0)));
        let params = CableParams {
            rate: setup.rate,
            propagation: Duration::from_ns(10),
            faults: setup.faults.clone(),
        };
        let cable = match setup.marking_switch {
            None => fabric.connect_ethernet(ports, params),
            Some((bytes, rate)) => {
                let mut switch = EthernetSwitchParams::generic(2);
                switch.mark_bytes = Some(bytes);
                // Less than the streams of one host have under way when nothing holds them back.
                switch.queue_bytes = 192 << 10;
                let switch = fabric.wires.ethernet.add_switch(switch);
                let plugs = [0, 1].map(|port| fabric.switch_port(switch, port));
                fabric.connect_ethernet([plugs[1], ports[1]], CableParams { rate, ..params.clone() });
                fabric.connect_ethernet([ports[0], plugs[0]], params)
            }
        };
        let simulation = Simulation::new(fabric);
        let hosts = [a, b].map(|(parts, (handle, functions))| {
            let computer = Computer::new(&simulation, parts);
            let (kernel, nic, host) = (Rc::clone(&computer.kernel), computer.device, computer.host);
            setup.others.iter().for_each(|other| kernel.add_driver(Rc::clone(other)));
            let driver = NicDriver::new(setup.driver.clone());
            let beside = Rc::new(Beside { driver: Rc::clone(&driver), window: RefCell::default() });
            kernel.add_driver(Rc::clone(&beside) as _);
            HostSide { kernel, beside, driver, nic, handle, functions, host, computer }
        });
        Self { simulation, hosts, cable }
    }

    /// Boots and opens both devices.
    pub fn up(setup: &Setup) -> Self {
        let pair = Self::new(setup);
        for n in 0..2 {
            let device = pair.device(n);
            pair.run(n, 0, move |cpu| Box::pin(async move { device.open(&cpu).await })).unwrap();
        }
        pair
    }

    pub fn device(&self, host: usize) -> Rc<dyn PacketDevice> {
        self.hosts[host].kernel.face().packet_device("eth0").expect("the NIC was found")
    }

    /// Starts a program on a core.
    pub fn spawn<T: 'static>(
        &self,
        host: usize,
        on: u16,
        program: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
    ) -> Completion<T> {
        let result = Completion::new();
        let end = result.clone();
        self.hosts[host].kernel.spawn(TaskParams::named("test").on(CpuId(on)), move |cpu| {
            Box::pin(async move {
                let value = program(cpu).await;
                end.complete(value);
            })
        });
        result
    }

    /// Runs a program on a core to its end.
    pub fn run<T: 'static>(
        &self,
        host: usize,
        on: u16,
        program: impl FnOnce(Cpu) -> Async<'static, T> + 'static,
    ) -> T {
        let result = self.spawn(host, on, program);
        self.simulation.block_on(async move { result.wait().await }).expect("the program ends")
    }

    pub fn run_for(&self, time: Duration) {
        let end = self.simulation.now() + time;
        self.simulation.run_until(end);
    }

    /// A counter of a driver's.
    pub fn counters(&self, host: usize) -> Rc<drivers::nic::Counters> {
        Rc::clone(&self.hosts[host].driver.functions()[0].1)
    }

    /// Mappings that a NIC's driver has.
    pub fn mapped(&self, host: usize) -> u64 {
        let all = self.hosts[host].kernel.pci();
        all.iter().filter(|f| f.identity.class >> 16 == NETWORK).map(|f| f.mapped_pages).sum()
    }
}

/// Pages for frames, one each; counts those that are out.
pub struct Buffers {
    kernel: Rc<dyn platform::kernel::Kernel>,
    free: RefCell<Vec<Pages>>,
    pub out: Cell<u64>,
    pub released: Cell<u64>,
}

impl Buffers {
    pub fn new(kernel: &Kernel) -> Rc<Self> {
        Rc::new(Self {
            kernel: kernel.face(),
            free: RefCell::default(),
            out: Cell::new(0),
            released: Cell::new(0),
        })
    }

    /// A packet with these bytes, in pieces of at most `piece`.
    pub fn packet(self: &Rc<Self>, cpu: &Cpu, bytes: &[u8], piece: usize) -> Packet {
        let mut packet = Packet { owner: Some(Rc::clone(self) as _), ..Packet::default() };
        for chunk in bytes.chunks(piece.min(PAGE as usize)) {
            let free = self.free.borrow_mut().pop();
            let pages = free.unwrap_or_else(|| self.kernel.alloc_pages(cpu, 0, Policy::Local).unwrap());
            cpu.store(pages.start, chunk);
            self.out.set(self.out.get() + 1);
            let length = chunk.len() as u32;
            packet.fragments.push(Fragment { pages: Some(pages), at: pages.start, length });
        }
        packet
    }
}

impl PacketOwner for Buffers {
    fn released(&self, _: &Cpu, packet: &mut Packet) {
        self.released.set(self.released.get() + 1);
        for fragment in &packet.fragments {
            self.out.set(self.out.get() - 1);
            self.free.borrow_mut().push(fragment.pages.expect("they were given with their pages"));
        }
    }
}

pub const TYPE: EtherType = EtherType::EXPERIMENTAL;

/// A frame from host `from` to the other, without check sequence.
pub fn frame(from: u32, length: usize, number: u32) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|n| (n as u32 ^ number) as u8).collect();
    EthernetHeader::new(MacAddr::local(from), MacAddr::local(3 - from), TYPE).emit(&mut frame);
    frame[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&number.to_le_bytes());
    frame
}

/// The number of a frame, and whether its bytes are those that were sent.
pub fn check(frame_bytes: &[u8], from: u32) -> u32 {
    let number = u32::from_le_bytes(frame_bytes[HEADER_LEN..HEADER_LEN + 4].try_into().unwrap());
    assert!(frame_bytes == frame(from, frame_bytes.len(), number), "frame {number} is damaged");
    number
}

/// All of a packet's bytes.
pub fn bytes_of(cpu: &Cpu, packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0; packet.length() as usize];
    packet.load(cpu, &mut bytes);
    bytes
}

pub const NOWHERE: PhysAddr = PhysAddr(0);
