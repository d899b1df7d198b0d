//! Trees of switches and devices, set up by configuration requests alone, as firmware does.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Completion, Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use hardware::link::{ErrorInjector, LinkId, LinkParams, LinkState, Side};
use hardware::memory::{CoreId, MemoryParams, MemorySystem};
use hardware::root::{HostId, RootPortParams};
use hardware::switch::{SwitchId, SwitchParams};
use platform::device::{BarAccess, Device, DeviceBus, Dma, DmaError, Function, Reset, Token};
use units::{Duration, HostPhysical, Iova, Time};
use wire::pcie::config::{acs, caps, header};
use wire::pcie::{Bdf, FlowClass};

use crate::common::{config, dma, function};

/// First device address; each device has 1 MiB, of which its BAR takes the first `BAR` bytes.
pub const DEVICES: u64 = 0xe000_0000;
const MIB: u64 = 1 << 20;
pub const BAR: u64 = 64 << 10;
/// Host memory that devices read and write.
pub const MEMORY: u64 = 0x10_0000;

/// The component below a link.
#[derive(Clone, Debug)]
pub enum Node {
    Device { tags: u16 },
    Switch(SwitchParams, Vec<(LinkParams, Node)>),
}

/// Events that a device recorded.
#[derive(Default)]
pub struct Journal {
    /// Writes to its BAR: time, address, first eight bytes, length.
    pub writes: Vec<(Time, u64, u64, usize)>,
    /// Results of its own DMA: token, success, time.
    pub outcomes: Vec<(u64, bool, Time)>,
    /// First eight bytes returned by each of its reads.
    pub data: Vec<u64>,
}

pub type Notes = Rc<RefCell<Journal>>;

/// A device with memory behind a BAR.
struct Peer {
    memory: Vec<u8>,
    notes: Notes,
}

fn first(data: &[u8]) -> u64 {
    data.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Device for Peer {
    fn functions(&self) -> Vec<Function> {
        function(config(512).bar32(0, BAR, false))
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
    fn bar_read(&mut self, _: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        let offset = at.offset.get() as usize;
        data.copy_from_slice(&self.memory[offset..offset + data.len()]);
        Duration::ZERO
    }
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let offset = at.offset.get() as usize;
        self.memory[offset..offset + data.len()].copy_from_slice(data);
        self.notes.borrow_mut().writes.push((bus.now(), at.offset.get(), first(data), data.len()));
    }
    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        let mut notes = self.notes.borrow_mut();
        notes.data.push(outcome.map_or(0, first));
        notes.outcomes.push((token.0, outcome.is_ok(), bus.now()));
    }
    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        self.notes.borrow_mut().outcomes.push((token.0, true, bus.now()));
    }
}

/// A device and its position in the tree.
pub struct Leaf {
    pub id: EndpointId,
    pub bdf: Bdf,
    pub bar: u64,
    /// Links from the root to the device, and the switches between them.
    pub links: Vec<LinkId>,
    pub switches: Vec<SwitchId>,
    pub notes: Notes,
}

pub struct Tree {
    pub simulation: Simulation<Fabric>,
    pub host: HostId,
    pub leaves: Vec<Leaf>,
    pub switches: Vec<SwitchId>,
    /// Downstream ports of switches.
    pub ports: Vec<Bdf>,
    /// All bridges: root ports and the ports of switches.
    pub bridges: Vec<Bdf>,
    roots: Vec<(LinkId, Node)>,
    next_bus: u8,
    next_mib: u64,
}

/// Builds everything below a link; leaves are collected from left to right.
fn build(
    fabric: &mut Fabric,
    (link, node): (LinkId, &Node),
    path: (&[LinkId], &[SwitchId]),
    leaves: &mut Vec<Leaf>,
    switches: &mut Vec<SwitchId>,
) {
    let links = [path.0, &[link]].concat();
    match node {
        &Node::Device { tags } => {
            let notes = Notes::default();
            let device = Peer { memory: vec![0; BAR as usize], notes: Rc::clone(&notes) };
            let id = fabric.add_endpoint(EndpointParams::ideal(tags), &[link], Box::new(device));
            let place = (Bdf::new(0, 0, 0), 0);
            leaves.push(Leaf { id, bdf: place.0, bar: place.1, links, switches: path.1.to_vec(), notes });
        }
        Node::Switch(params, below) => {
            let switch = fabric.add_switch(params.clone(), link);
            switches.push(switch);
            let above = [path.1, &[switch]].concat();
            for (number, (params, node)) in (1..).zip(below) {
                let link = fabric.add_switch_slot(switch, number, params.clone());
                build(fabric, (link, node), (&links, &above), leaves, switches);
            }
        }
    }
}

impl Tree {
    /// Builds and sets up root ports, each with its link and the tree below.
    pub fn new(roots: &[(RootPortParams, LinkParams, Node)]) -> Self {
        let mut fabric = Fabric::new();
        let host = fabric.add_host(MemorySystem::new(&MemoryParams::example()), Vec::new());
        let (mut leaves, mut switches, mut tops) = (Vec::new(), Vec::new(), Vec::new());
        for (port, link, node) in roots {
            let link = fabric.add_root_port(host, port.clone(), link.clone(), 0..=0);
            build(&mut fabric, (link, node), (&[], &[]), &mut leaves, &mut switches);
            tops.push((link, node.clone()));
        }
        let simulation = Simulation::new(fabric);
        let mut tree = Self {
            simulation,
            host,
            leaves,
            switches,
            ports: Vec::new(),
            bridges: Vec::new(),
            roots: tops,
            next_bus: 1,
            next_mib: 0,
        };
        tree.set_up();
        tree
    }

    /// Enumerates buses and assigns addresses.
    pub fn set_up(&mut self) {
        (self.next_bus, self.next_mib) = (1, 0);
        self.ports.clear();
        self.bridges.clear();
        let roots = self.roots.clone();
        let mut leaf = 0;
        for (number, (_, node)) in (1..).zip(&roots) {
            self.set_up_bridge(Bdf::new(0, number, 0), node, &mut leaf);
        }
    }

    fn set_up_bridge(&mut self, bridge: Bdf, node: &Node, leaf: &mut usize) {
        let bus = self.enter(bridge);
        let first = self.next_mib;
        match node {
            Node::Device { .. } => {
                let (bdf, bar) = (Bdf::new(bus, 0, 0), DEVICES + self.next_mib * MIB);
                self.next_mib += 1;
                self.write(bdf, header::BAR0, bar as u32);
                let on = header::COMMAND_MEMORY | header::COMMAND_BUS_MASTER;
                self.write(bdf, header::COMMAND, on.into());
                (self.leaves[*leaf].bdf, self.leaves[*leaf].bar) = (bdf, bar);
                *leaf += 1;
            }
            Node::Switch(_, below) => {
                let upstream = Bdf::new(bus, 0, 0);
                let inside = self.enter(upstream);
                for (number, (_, node)) in (1..).zip(below) {
                    let port = Bdf::new(inside, number, 0);
                    self.ports.push(port);
                    self.set_up_bridge(port, node, leaf);
                }
                self.leave(upstream, inside, first);
            }
        }
        self.leave(bridge, bus, first);
    }

    /// Assigns the bus below a bridge; its subordinate bus number stays at the maximum until the bus is enumerated.
    fn enter(&mut self, bridge: Bdf) -> u8 {
        self.bridges.push(bridge);
        let bus = self.next_bus;
        self.next_bus += 1;
        let numbers = u32::from(bridge.bus()) | u32::from(bus) << 8 | 0xff << 16;
        self.write(bridge, header::BUS_NUMBERS, numbers);
        bus
    }

    fn leave(&mut self, bridge: Bdf, bus: u8, first_mib: u64) {
        let numbers = u32::from(bridge.bus()) | u32::from(bus) << 8 | u32::from(self.next_bus - 1) << 16;
        self.write(bridge, header::BUS_NUMBERS, numbers);
        let base = DEVICES + first_mib * MIB;
        let window = header::Window { base, limit: DEVICES + self.next_mib * MIB - 1 };
        self.write(bridge, header::MEMORY_WINDOW, window.to_memory());
        let on = header::COMMAND_MEMORY | header::COMMAND_BUS_MASTER;
        self.write(bridge, header::COMMAND, on.into());
    }

    pub fn write(&self, target: Bdf, register: u16, value: u32) {
        let host = self.host;
        let access = self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(host, scheduler);
            host.config_write(&mut cx, CoreId(0), target, register, value, 0xf)
        });
        self.simulation.block_on(access.data).unwrap().unwrap();
    }

    pub fn read(&self, target: Bdf, register: u16) -> u32 {
        let host = self.host;
        let access = self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(host, scheduler);
            host.config_read(&mut cx, CoreId(0), target, register)
        });
        let data = self.simulation.block_on(access.data).unwrap().unwrap();
        u32::from_le_bytes(data.try_into().unwrap())
    }

    /// Starts a core's read of eight bytes of a leaf's BAR.
    pub fn core_read(&self, leaf: &Leaf, offset: u64) -> Completion<Vec<u8>> {
        self.simulation.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            let address = HostPhysical::new(leaf.bar + offset);
            host.mmio_read(&mut cx, CoreId(0), address, 8).expect("a port leads there").data
        })
    }

    /// Enables access control services on the downstream ports, in turn.
    pub fn control(&self, services: &[u16]) {
        for (&port, services) in self.ports.iter().zip(services.iter().cycle()) {
            let read = |at: u16| self.read(port, at);
            let at = caps::find_extended(&read, caps::extended_id::ACS).expect("a downstream port has ACS");
            self.write(port, at + acs::CAPABILITY, u32::from(*services) << 16);
        }
    }

    /// Access control services of the downstream port above a leaf's link at `level`, 0 being below the root port.
    pub fn services(&self, leaf: &Leaf, level: usize) -> u16 {
        self.simulation.with(|fabric, _| {
            let mut ports = fabric.switch(leaf.switches[level - 1]).ports().iter();
            let port = ports.find(|port| port.end().link == leaf.links[level]);
            port.expect("the link is below the switch").config().acs_control()
        })
    }

    /// Whether a leaf is below a bridge.
    pub fn is_below(&self, leaf: &Leaf, bridge: Bdf) -> bool {
        let [_, secondary, subordinate, _] = self.read(bridge, header::BUS_NUMBERS).to_le_bytes();
        (secondary..=subordinate).contains(&leaf.bdf.bus())
    }

    pub fn is_down(&self, link: LinkId) -> bool {
        self.simulation.with(|fabric, _| fabric.wires.link(link).state() == LinkState::Down)
    }

    /// Number of the root port above a leaf.
    pub fn root_port(&self, leaf: &Leaf) -> u8 {
        let number = self.roots.iter().position(|(link, _)| *link == leaf.links[0]);
        number.expect("a leaf is below a root port") as u8
    }

    /// Starts a DMA write of `data`, as request `number` of a device.
    pub fn dma_write(&self, leaf: usize, number: u64, address: u64, data: &[u8]) {
        let request = Dma { address: Iova::new(address), ..dma(0, data.len() as u32, number) };
        self.simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(self.leaves[leaf].id, |_, bus| bus.write(request, data));
        });
    }

    /// Starts a DMA read of a device.
    pub fn dma_read(&self, leaf: usize, number: u64, address: u64, length: u32) {
        self.simulation.with(|fabric, scheduler| {
            fabric
                .running(scheduler)
                .with_device(self.leaves[leaf].id, |_, bus| bus.read(dma(address, length, number)));
        });
    }

    pub fn run_for(&self, time: Duration) {
        self.simulation.run_until(self.simulation.now() + time);
    }

    /// Makes links damage and lose packets: those whose bit (link number modulo 16) is set.
    pub fn damage(&self, links: u16) {
        self.simulation.with(|fabric, scheduler| {
            for id in (0..fabric.wires.len() as u16).filter(|id| links >> (id % 16) & 1 == 1) {
                let rng = Seed::new(id.into()).component("damage");
                let injector = ErrorInjector::new(2e-5, 0.02, Duration::from_us(20), rng);
                fabric.context(scheduler).with(LinkId(id), |link, _| link.inject_errors(Some(injector)));
            }
        });
    }

    /// Checks that nothing is in flight: no tag, credit or buffer is in use.
    pub fn check_clean(&self) {
        self.simulation.with(|fabric, scheduler| {
            // Acks are only processed on demand.
            fabric.context(scheduler).report_dllps();
            for leaf in &self.leaves {
                let requester = fabric.endpoint(leaf.id).core.requester(Default::default());
                assert_eq!(requester.tags_in_use(), 0, "{}", leaf.bdf);
            }
            for link in (0..fabric.wires.len() as u16).map(LinkId) {
                for side in [Side::Upstream, Side::Downstream] {
                    let link = fabric.wires.link(link);
                    assert_eq!(link.waiting(side), 0, "{side:?} end of {:?}", link.params());
                    for class in FlowClass::ALL {
                        let limit = link.params().receivers[side.opposite() as usize].credits.of(class);
                        assert_eq!(link.credits_in_all_places(&fabric.wires.packets, side, class), limit);
                    }
                }
            }
            assert_eq!(fabric.wires.packets.in_flight(), 0);
            assert_eq!(fabric.host(self.host).requests_under_way(), 0);
        });
    }
}
