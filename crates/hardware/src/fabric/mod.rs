//! The fabric: all simulated hardware, as the world of the simulation.
//!
//! It is built from components (hosts, devices, switches) and from wires (links, cables). Running, it is both with the
//! clock and the event queue, which components get with each event.
//!
//! | file | subject |
//! |---|---|
//! | `components` | hosts, devices and switches, and the ends of links that they are at |
//! | `running` | events, and what is pulled, plugged and reset from outside |
//! | `ends` | where requests of devices end: what they reach, and what stops them |

mod components;
mod ends;
mod running;

use engine::{Scheduler, World};
use platform::device::Device;
use platform::ethernet::EthernetPort;
use wire::pcie::config::ConfigError;

pub use ends::{HostEnds, RequestEnd, RequestEnds, RequestStop};
pub use running::Running;

use crate::endpoint::{Endpoint, EndpointId, EndpointParams};
use crate::ethernet::{CableId, CableParams, EthernetSwitchId, Plug};
use crate::event::Event;
use crate::iommu::Iommu;
use crate::link::{LinkEnd, LinkId, LinkParams, Side};
use crate::memory::MemorySystem;
use crate::ntb::{Bridge, ClusterSwitch, ClusterSwitchId, ClusterSwitchParams, NtbCableEnd, NtbParams};
use crate::root::{Host, HostId, RootPortParams};
use crate::switch::{Switch, SwitchId, SwitchParams, UPSTREAM};
use crate::wires::{Context, Wires};
use components::{Attached, Components};

/// Hosts, devices and the links between them.
#[derive(Default)]
pub struct Fabric {
    /// Links and the TLPs on them.
    pub wires: Wires,
    components: Components,
}

impl Fabric {
    /// Creates an empty fabric.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host without root ports.
    pub fn add_host(&mut self, memory: MemorySystem, iommus: Vec<Iommu>) -> HostId {
        let id = HostId(self.components.hosts.len() as u16);
        self.components.hosts.push(Host::new(id, memory, iommus));
        id
    }

    /// Adds a root port of `host` that forwards to `buses`, with a link to an empty slot.
    pub fn add_root_port(
        &mut self,
        host: HostId,
        port: RootPortParams,
        link: LinkParams,
        buses: std::ops::RangeInclusive<u8>,
    ) -> LinkId {
        let speed = (link.generation, link.width);
        let id = self.wires.add(link);
        let end = LinkEnd { link: id, side: Side::Upstream };
        let number = self.components.host_mut(host).add_port(port, end, speed, buses);
        self.components.attach_ends([Attached::RootPort(host, number), Attached::Nothing]);
        id
    }

    /// Attaches the upstream port of a switch to the downstream end of a link.
    ///
    /// # Panics
    /// If something is attached to the link already.
    pub fn add_switch(&mut self, params: SwitchParams, link: LinkId) -> SwitchId {
        let id = SwitchId(self.components.switches.len() as u16);
        self.attach(link, Attached::SwitchPort(id, UPSTREAM as u8));
        let end = LinkEnd { link, side: Side::Downstream };
        self.wires.set_cut_through(end, params.cut_through);
        let speed = (self.wires.link(link).params().generation, self.wires.link(link).params().width);
        self.components.switches.push(Switch::new(id, params, end, speed));
        id
    }

    /// Adds a downstream port to a switch, device `number` of its internal bus, with a link to an empty slot.
    ///
    /// # Panics
    /// If the switch already has this port.
    pub fn add_switch_slot(&mut self, switch: SwitchId, number: u8, link: LinkParams) -> LinkId {
        let speed = (link.generation, link.width);
        let id = self.wires.add(link);
        let end = LinkEnd { link: id, side: Side::Upstream };
        let switch_there = self.components.switch_mut(switch);
        self.wires.set_cut_through(end, switch_there.params().cut_through);
        let port = switch_there.add_port(end, number, speed);
        self.components.attach_ends([Attached::SwitchPort(switch, port), Attached::Nothing]);
        id
    }

    /// Attaches something to the downstream end of a link before power-on.
    fn attach(&mut self, link: LinkId, what: Attached) {
        let [above, below] = [Side::Upstream, Side::Downstream].map(|side| LinkEnd { link, side });
        self.components.occupy(below, what);
        match self.components.attached(above) {
            Attached::RootPort(host, port) => self.host_mut(host).port_mut(port).attach(),
            Attached::SwitchPort(switch, port) => self.components.switch_mut(switch).attach(port),
            _ => {}
        }
    }

    /// Attaches a device to the downstream ends of `links`, port 0 to the first.
    ///
    /// # Panics
    /// If a device is attached to one of the links already, or the device has more ports than there are links.
    pub fn add_endpoint(
        &mut self,
        params: EndpointParams,
        links: &[LinkId],
        device: Box<dyn Device>,
    ) -> EndpointId {
        let id = EndpointId(self.components.endpoints.len() as u16);
        let ends = links.iter().map(|&link| LinkEnd { link, side: Side::Downstream }).collect();
        for &link in links {
            self.attach(link, Attached::Endpoint(id));
        }
        let endpoint = Endpoint::new(id, params, ends, device);
        assert!(endpoint.core.has_its_links(), "a function of the device names a port without a link");
        self.components.endpoints.push(endpoint);
        id
    }

    /// Attaches an adapter with a non-transparent bridge to the downstream end of a link.
    ///
    /// # Errors
    /// If its capabilities conflict.
    ///
    /// # Panics
    /// If a device is attached to the link already.
    pub fn add_ntb(
        &mut self,
        core: EndpointParams,
        params: NtbParams,
        link: LinkId,
    ) -> Result<EndpointId, ConfigError> {
        let cut_through = params.cut_through;
        let (bridge, device) = Bridge::new(params)?;
        let id = self.add_endpoint(core, &[link], Box::new(device));
        self.endpoint_mut(id).set_bridge(bridge);
        self.wires.set_cut_through(LinkEnd { link, side: Side::Downstream }, cut_through);
        Ok(id)
    }

    /// Adds a switch for cables between adapters.
    pub fn add_cluster_switch(&mut self, params: ClusterSwitchParams) -> ClusterSwitchId {
        let id = ClusterSwitchId(self.components.cluster_switches.len() as u16);
        self.components.cluster_switches.push(ClusterSwitch::new(id, params));
        id
    }

    /// A cluster switch, for its counters.
    ///
    /// # Panics
    /// If there is no switch with this number.
    pub fn cluster_switch(&self, id: ClusterSwitchId) -> &ClusterSwitch {
        &self.components.cluster_switches[usize::from(id.0)]
    }

    /// Whether a cluster switch is at this end of a cable.
    pub fn is_cluster_switch(&self, end: LinkEnd) -> bool {
        matches!(self.components.attached(end), Attached::ClusterSwitch(_))
    }

    /// Connects adapters and cluster switches with a cable, before power-on.
    ///
    /// # Panics
    /// If one of the devices has no bridge.
    pub fn add_ntb_cable(&mut self, ends: [NtbCableEnd; 2], params: LinkParams) -> LinkId {
        let id = self.wires.add(params);
        let attached = [(ends[0], Side::Upstream), (ends[1], Side::Downstream)].map(|(at, side)| {
            let end = LinkEnd { link: id, side };
            match at {
                NtbCableEnd::Adapter(adapter) => {
                    let bridge = self.endpoint_mut(adapter).bridge_mut().expect("an adapter has a bridge");
                    bridge.add_cable(end);
                    let cut_through = bridge.params.cut_through;
                    self.wires.set_cut_through(end, cut_through);
                    Attached::Bridge(adapter)
                }
                NtbCableEnd::Switch(switch) => {
                    let switch_there = self.components.cluster_switch_mut(switch);
                    switch_there.add_cable(end);
                    self.wires.set_cut_through(end, switch_there.params().cut_through);
                    Attached::ClusterSwitch(switch)
                }
            }
        });
        self.components.attach_ends(attached);
        self.components.cables.push((id, ends));
        self.components.route_cables();
        id
    }

    /// Adds a device without a slot; [`exchange_device`](Running::exchange_device) puts it into one.
    pub fn add_spare(&mut self, params: EndpointParams, device: Box<dyn Device>) -> EndpointId {
        let id = EndpointId(self.components.endpoints.len() as u16);
        self.components.endpoints.push(Endpoint::new(id, params, Vec::new(), device));
        id
    }

    /// An Ethernet port of a device, to connect.
    ///
    /// # Panics
    /// If the device has no such port.
    pub fn ethernet_port(&self, device: EndpointId, port: EthernetPort) -> Plug {
        let ports = self.endpoint(device).device().ethernet_ports();
        Plug::Device(device, port, ports[usize::from(port.0)].receive_latency)
    }

    /// A port of an Ethernet switch, to connect.
    pub fn switch_port(&self, switch: EthernetSwitchId, port: u8) -> Plug {
        Plug::Switch(switch, port)
    }

    /// Connects two Ethernet ports. Captures, counters and switches are in [`Wires::ethernet`].
    ///
    /// # Panics
    /// If one of them is connected already.
    pub fn connect_ethernet(&mut self, ends: [Plug; 2], params: CableParams) -> CableId {
        self.wires.ethernet.connect(ends, params)
    }

    /// Returns a host.
    pub fn host(&self, id: HostId) -> &Host {
        self.components.host(id)
    }

    /// Returns a host mutably.
    pub fn host_mut(&mut self, id: HostId) -> &mut Host {
        self.components.host_mut(id)
    }

    /// A host and its context, for accesses of a core to a device.
    #[inline]
    pub fn host_in<'a>(
        &'a mut self,
        id: HostId,
        scheduler: &'a mut Scheduler<Event>,
    ) -> (&'a mut Host, Context<'a>) {
        (self.components.host_mut(id), Context::new(&mut self.wires, scheduler))
    }

    /// The fabric at the current time, for what happens in it.
    #[inline(always)]
    pub fn running<'a>(&'a mut self, scheduler: &'a mut Scheduler<Event>) -> Running<'a> {
        Running { components: &mut self.components, cx: Context::new(&mut self.wires, scheduler) }
    }

    /// The links at the current time.
    #[inline]
    pub fn context<'a>(&'a mut self, scheduler: &'a mut Scheduler<Event>) -> Context<'a> {
        Context::new(&mut self.wires, scheduler)
    }

    /// Returns a device.
    pub fn endpoint(&self, id: EndpointId) -> &Endpoint {
        self.components.endpoint(id)
    }

    /// Returns a device mutably.
    pub fn endpoint_mut(&mut self, id: EndpointId) -> &mut Endpoint {
        self.components.endpoint_mut(id)
    }

    /// Returns a switch.
    pub fn switch(&self, id: SwitchId) -> &Switch {
        self.components.switch(id)
    }
}

impl World for Fabric {
    type Event = Event;

    // Events of every TLP come first; others are out of line.
    #[inline(always)]
    fn handle(&mut self, event: Event, scheduler: &mut Scheduler<Event>) {
        let mut running = self.running(scheduler);
        match event {
            Event::Deliver { end, packet } => running.deliver(end, packet),
            Event::Endpoint(id, event) => running.endpoint_event(id, event),
            other => running.handle_other(other),
        }
    }
}
