//! The fabric: all simulated hardware, as the world of the simulation.

use engine::{Scheduler, World};
use platform::device::{Device, DeviceBus, PortIndex, Reset};
use platform::ethernet::EthernetPort;
use wire::pcie::config::ConfigError;

use crate::detected::Detected;
use crate::endpoint::{Endpoint, EndpointId, EndpointParams};
use crate::ethernet::{CableId, CableParams, EthernetEvent, EthernetSwitchId, Plug};
use crate::event::Event;
use crate::iommu::Iommu;
use crate::link::{LinkEnd, LinkId, LinkParams, LinkState, Side};
use crate::memory::MemorySystem;
use crate::ntb::{self, Bridge, ClusterSwitch, ClusterSwitchId, ClusterSwitchParams, NtbCableEnd, NtbParams};
use crate::packet::PacketId;
use crate::root::{Host, HostId, RootEvent, RootPortParams};
use crate::switch::{Switch, SwitchEvent, SwitchId, SwitchParams, UPSTREAM};
use crate::wires::{Context, Wires};

/// What an end of a link is attached to.
#[derive(Clone, Copy, Debug)]
enum Attached {
    Nothing,
    RootPort(HostId, u8),
    Endpoint(EndpointId),
    SwitchPort(SwitchId, u8),
    /// An adapter with a bridge, through one of its cables.
    Bridge(EndpointId),
    /// A cluster switch, through one of its cables.
    ClusterSwitch(ClusterSwitchId),
}

/// Hosts, devices and the links between them.
#[derive(Default)]
pub struct Fabric {
    /// Links and the TLPs on them.
    pub wires: Wires,
    hosts: Vec<Host>,
    endpoints: Vec<Endpoint>,
    switches: Vec<Switch>,
    cluster_switches: Vec<ClusterSwitch>,
    /// Cables between adapters and cluster switches, in order of connection.
    cables: Vec<(LinkId, [NtbCableEnd; 2])>,
    attached: Vec<[Attached; 2]>,
}

impl Fabric {
    /// Creates an empty fabric.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host without root ports.
    pub fn add_host(&mut self, memory: MemorySystem, iommus: Vec<Iommu>) -> HostId {
        let id = HostId(self.hosts.len() as u16);
        self.hosts.push(Host::new(id, memory, iommus));
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
        let number = self.hosts[usize::from(host.0)].add_port(port, end, speed, buses);
        self.attached.push([Attached::RootPort(host, number), Attached::Nothing]);
        id
    }

    /// Attaches the upstream port of a switch to the downstream end of a link.
    ///
    /// # Panics
    /// If something is attached to the link already.
    pub fn add_switch(&mut self, params: SwitchParams, link: LinkId) -> SwitchId {
        let id = SwitchId(self.switches.len() as u16);
        self.attach(link, Attached::SwitchPort(id, UPSTREAM as u8));
        let end = LinkEnd { link, side: Side::Downstream };
        self.wires.set_cut_through(end, params.cut_through);
        let speed = (self.wires.link(link).params().generation, self.wires.link(link).params().width);
        self.switches.push(Switch::new(id, params, end, speed));
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
        let switch_there = &mut self.switches[usize::from(switch.0)];
        self.wires.set_cut_through(end, switch_there.params().cut_through);
        let port = switch_there.add_port(end, number, speed);
        self.attached.push([Attached::SwitchPort(switch, port), Attached::Nothing]);
        id
    }

    /// Attaches something to the downstream end of a link before power-on.
    fn attach(&mut self, link: LinkId, what: Attached) {
        let [above, below] = &mut self.attached[usize::from(link.0)];
        assert!(matches!(below, Attached::Nothing), "a link has one device at its end");
        *below = what;
        match *above {
            Attached::RootPort(host, port) => self.hosts[usize::from(host.0)].port_mut(port).attach(),
            Attached::SwitchPort(switch, port) => self.switches[usize::from(switch.0)].attach(port),
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
        let id = EndpointId(self.endpoints.len() as u16);
        let ends = links.iter().map(|&link| LinkEnd { link, side: Side::Downstream }).collect();
        for &link in links {
            self.attach(link, Attached::Endpoint(id));
        }
        let endpoint = Endpoint::new(id, params, ends, device);
        assert!(endpoint.has_its_links(), "a function of the device names a port without a link");
        self.endpoints.push(endpoint);
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
        let id = ClusterSwitchId(self.cluster_switches.len() as u16);
        self.cluster_switches.push(ClusterSwitch::new(id, params));
        id
    }

    /// A cluster switch, for its counters.
    ///
    /// # Panics
    /// If there is no switch with this number.
    pub fn cluster_switch(&self, id: ClusterSwitchId) -> &ClusterSwitch {
        &self.cluster_switches[usize::from(id.0)]
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
                    let switch_there = &mut self.cluster_switches[usize::from(switch.0)];
                    switch_there.add_cable(end);
                    self.wires.set_cut_through(end, switch_there.params().cut_through);
                    Attached::ClusterSwitch(switch)
                }
            }
        });
        self.attached.push(attached);
        self.cables.push((id, ends));
        self.route_cables();
        id
    }

    /// Computes the routes of adapters and cluster switches over the cables.
    fn route_cables(&mut self) {
        let cables: Vec<[NtbCableEnd; 2]> = self.cables.iter().map(|(_, ends)| *ends).collect();
        let node_of = |adapter| self.endpoint(adapter).bridge().map_or(0, |bridge| bridge.params.node);
        for (at, routes) in ntb::routes(&cables, node_of) {
            match at {
                NtbCableEnd::Adapter(adapter) => {
                    let endpoint = &mut self.endpoints[usize::from(adapter.0)];
                    if let Some(bridge) = endpoint.bridge_mut() {
                        let nodes = routes.keys().fold(0, |all, node| all | 1u64 << (node % 64));
                        bridge.reach.borrow_mut().set_up(nodes);
                        bridge.routes = routes;
                    }
                }
                NtbCableEnd::Switch(switch) => self.cluster_switches[usize::from(switch.0)].routes = routes,
            }
        }
    }

    /// Takes a cable between adapters down or up. TLPs in flight on it are lost, and the adapters at its ends notice.
    ///
    /// # Panics
    /// If it is not such a cable.
    pub fn set_ntb_cable_up(&mut self, scheduler: &mut Scheduler<Event>, cable: LinkId, up: bool) {
        let is_up = self.wires.link(cable).state() == LinkState::Up;
        if is_up == up {
            return;
        }
        self.context(scheduler).with(cable, |link, cx| match up {
            true => link.bring_up(cx),
            false => link.take_down(cx),
        });
        let (_, ends) =
            self.cables.iter().find(|(link, _)| *link == cable).expect("it is a cable of adapters");
        for end in *ends {
            if let NtbCableEnd::Adapter(adapter) = end {
                self.endpoints[usize::from(adapter.0)]
                    .heed_cables(&mut Context::new(&mut self.wires, scheduler));
            }
        }
    }

    /// Adds a device without a slot; [`exchange_device`](Self::exchange_device) puts it into one.
    pub fn add_spare(&mut self, params: EndpointParams, device: Box<dyn Device>) -> EndpointId {
        let id = EndpointId(self.endpoints.len() as u16);
        self.endpoints.push(Endpoint::new(id, params, Vec::new(), device));
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

    /// Takes an Ethernet cable down or up; devices at its ends notice.
    pub fn set_ethernet_up(&mut self, scheduler: &mut Scheduler<Event>, cable: CableId, up: bool) {
        for (device, port) in self.wires.ethernet.set_up(cable, up) {
            self.with_device(scheduler, device, |device, bus| device.carrier_changed(bus, port, up));
        }
    }

    fn ethernet_event(&mut self, scheduler: &mut Scheduler<Event>, event: EthernetEvent) {
        if let Some(delivery) = self.wires.ethernet.handle(scheduler, event) {
            self.with_device(scheduler, delivery.endpoint, |device, bus| {
                device.frame_received(bus, delivery.port, &delivery.frame);
            });
            self.wires.ethernet.recycle(delivery.frame);
        }
    }

    /// Returns a host.
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[usize::from(id.0)]
    }

    /// Returns a host mutably.
    pub fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[usize::from(id.0)]
    }

    /// A host and its context, for accesses of a core to a device.
    #[inline]
    pub fn host_in<'a>(
        &'a mut self,
        id: HostId,
        scheduler: &'a mut Scheduler<Event>,
    ) -> (&'a mut Host, Context<'a>) {
        (&mut self.hosts[usize::from(id.0)], Context::new(&mut self.wires, scheduler))
    }

    /// The links at the current time.
    #[inline]
    pub fn context<'a>(&'a mut self, scheduler: &'a mut Scheduler<Event>) -> Context<'a> {
        Context::new(&mut self.wires, scheduler)
    }

    /// Returns a device.
    pub fn endpoint(&self, id: EndpointId) -> &Endpoint {
        &self.endpoints[usize::from(id.0)]
    }

    /// Returns a device mutably.
    pub fn endpoint_mut(&mut self, id: EndpointId) -> &mut Endpoint {
        &mut self.endpoints[usize::from(id.0)]
    }

    /// Returns a switch.
    pub fn switch(&self, id: SwitchId) -> &Switch {
        &self.switches[usize::from(id.0)]
    }

    /// Runs `act` on a device model as if from inside: it may start DMA.
    pub fn with_device<R>(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        id: EndpointId,
        act: impl FnOnce(&mut dyn Device, &mut dyn DeviceBus) -> R,
    ) -> R {
        self.endpoints[usize::from(id.0)].with_device(&mut Context::new(&mut self.wires, scheduler), act)
    }

    /// Surprise removal of a device: its links go down.
    pub fn remove_device(&mut self, scheduler: &mut Scheduler<Event>, id: EndpointId) {
        let links: Vec<LinkId> = self.endpoint(id).links().collect();
        for link in links {
            self.lose(scheduler, link);
        }
        self.reset_device(scheduler, id, Reset::Fundamental);
    }

    /// Reinserts a removed device into its slots.
    pub fn insert_device(&mut self, scheduler: &mut Scheduler<Event>, id: EndpointId) {
        let links: Vec<LinkId> = self.endpoint(id).links().collect();
        for link in links {
            self.plug(scheduler, link);
        }
    }

    /// Surprise removal of one of a device's links; its other ports continue.
    ///
    /// # Panics
    /// If the device has no such port.
    pub fn remove_path(&mut self, scheduler: &mut Scheduler<Event>, id: EndpointId, port: PortIndex) {
        self.pull(scheduler, self.path(id, port));
    }

    /// Restores the link of a device's port.
    ///
    /// # Panics
    /// If the device has no such port.
    pub fn insert_path(&mut self, scheduler: &mut Scheduler<Event>, id: EndpointId, port: PortIndex) {
        self.plug(scheduler, self.path(id, port));
    }

    /// Moves one of a device's ports to another slot, as a programmable switch does: it is removed from its slot, which
    /// stays empty, and then inserted into the other. A link that is down stays down.
    ///
    /// # Panics
    /// If the device has no such port, or a device is attached to `to` already.
    pub fn assign_path(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        id: EndpointId,
        port: PortIndex,
        to: LinkId,
    ) {
        let from = self.path(id, port);
        if from == to {
            return;
        }
        let was_up = self.wires.link(from).state() == LinkState::Up;
        if was_up {
            self.pull(scheduler, from);
        }
        self.attached[usize::from(from.0)][Side::Downstream as usize] = Attached::Nothing;
        let below = &mut self.attached[usize::from(to.0)][Side::Downstream as usize];
        assert!(matches!(below, Attached::Nothing), "a link has one device at its end");
        *below = Attached::Endpoint(id);
        self.endpoint_mut(id).set_link(port, to);
        if was_up {
            self.plug(scheduler, to);
        }
    }

    fn path(&self, id: EndpointId, port: PortIndex) -> LinkId {
        self.endpoint(id).links().nth(port.0.into()).expect("the device has the port")
    }

    /// Surprise removal of what is below a link: a device's port, or a switch with everything below.
    pub fn pull(&mut self, scheduler: &mut Scheduler<Event>, link: LinkId) {
        self.lose(scheduler, link);
        self.reset_below(scheduler, link);
    }

    /// Reinserts what was below a link.
    pub fn plug(&mut self, scheduler: &mut Scheduler<Event>, link: LinkId) {
        let cx = &mut Context::new(&mut self.wires, scheduler);
        match self.attached[usize::from(link.0)][Side::Upstream as usize] {
            Attached::RootPort(host, port) => {
                let port = self.hosts[usize::from(host.0)].port_mut(port);
                port.plug(cx);
            }
            Attached::SwitchPort(switch, port) => {
                let switch = &mut self.switches[usize::from(switch.0)];
                switch.plug(cx, port);
            }
            _ => {}
        }
    }

    /// Notifies the port above a link that its slot is empty.
    fn lose(&mut self, scheduler: &mut Scheduler<Event>, link: LinkId) {
        let cx = &mut Context::new(&mut self.wires, scheduler);
        match self.attached[usize::from(link.0)][Side::Upstream as usize] {
            Attached::RootPort(host, port) => {
                let host = &mut self.hosts[usize::from(host.0)];
                host.link_lost(cx, port);
                host.port_mut(port).pull(cx);
            }
            Attached::SwitchPort(switch, port) => {
                let switch = &mut self.switches[usize::from(switch.0)];
                switch.pull(cx, port);
            }
            _ => {}
        }
    }

    /// The link went down, or a reset below it was requested.
    fn reset_below(&mut self, scheduler: &mut Scheduler<Event>, link: LinkId) {
        match self.attached[usize::from(link.0)][Side::Downstream as usize] {
            Attached::Endpoint(id) => {
                let end = LinkEnd { link, side: Side::Downstream };
                self.endpoints[usize::from(id.0)]
                    .reset_port(&mut Context::new(&mut self.wires, scheduler), end);
            }
            Attached::SwitchPort(id, _) => self.reset_switch(scheduler, id, true),
            _ => {}
        }
    }

    /// Resets everything below a switch, and its own registers: all, or those of its downstream ports.
    fn reset_switch(&mut self, scheduler: &mut Scheduler<Event>, id: SwitchId, all: bool) {
        let below: Vec<LinkId> = self.switch(id).ports()[1..].iter().map(|port| port.end().link).collect();
        for &link in &below {
            self.context(scheduler).with(link, |link, cx| link.take_down(cx));
            self.reset_below(scheduler, link);
        }
        self.switches[usize::from(id.0)].reset(&mut Context::new(&mut self.wires, scheduler), all);
    }

    /// Surprise removal of a device, replaced at once by one that is in no slot.
    ///
    /// # Panics
    /// If the other device is in a slot, or has more ports.
    pub fn exchange_device(&mut self, scheduler: &mut Scheduler<Event>, out: EndpointId, into: EndpointId) {
        self.remove_device(scheduler, out);
        let ends = self.endpoint_mut(out).take_links();
        for end in &ends {
            self.attached[usize::from(end.link.0)][end.side as usize] = Attached::Endpoint(into);
        }
        self.endpoint_mut(into).give_links(ends);
        self.insert_device(scheduler, into);
    }

    /// Resets a device, or one of its functions: how far, `reset` says.
    pub fn reset_device(&mut self, scheduler: &mut Scheduler<Event>, id: EndpointId, reset: Reset) {
        self.endpoints[usize::from(id.0)].reset(&mut Context::new(&mut self.wires, scheduler), reset);
    }

    /// Lets the component at an end of a link record and report a link layer error.
    fn link_error(&mut self, scheduler: &mut Scheduler<Event>, end: LinkEnd, error: Detected) {
        let cx = &mut Context::new(&mut self.wires, scheduler);
        match self.attached[usize::from(end.link.0)][end.side as usize] {
            Attached::RootPort(host, port) => {
                self.hosts[usize::from(host.0)].port_mut(port).detect(cx, error, None);
            }
            Attached::Endpoint(id) => {
                self.endpoints[usize::from(id.0)].link_error(cx, end, error);
            }
            Attached::SwitchPort(id, port) => {
                let switch = &mut self.switches[usize::from(id.0)];
                switch.report(cx, port.into(), error, None);
            }
            Attached::Bridge(_) | Attached::ClusterSwitch(_) | Attached::Nothing => {}
        }
    }

    #[inline(never)]
    fn deliver(&mut self, scheduler: &mut Scheduler<Event>, end: LinkEnd, packet: PacketId) {
        let cx = &mut Context::new(&mut self.wires, scheduler);
        if !cx.receive(end, packet) {
            return;
        }
        match self.attached[usize::from(end.link.0)][end.side as usize] {
            Attached::RootPort(host, port) => {
                self.hosts[usize::from(host.0)].deliver(cx, port, packet);
            }
            Attached::Endpoint(id) => {
                self.endpoints[usize::from(id.0)].deliver(cx, end, packet);
            }
            Attached::SwitchPort(id, port) => {
                self.switches[usize::from(id.0)].deliver(cx, port, packet);
            }
            Attached::Bridge(id) => {
                self.endpoints[usize::from(id.0)].deliver_from_cable(cx, end, packet);
            }
            Attached::ClusterSwitch(id) => {
                self.cluster_switches[usize::from(id.0)].deliver(cx, end, packet);
            }
            Attached::Nothing => {
                let now = cx.now();
                cx.consume(packet, now);
            }
        }
    }
}

impl World for Fabric {
    type Event = Event;

    // Events of every TLP come first; others are out of line.
    #[inline(always)]
    fn handle(&mut self, event: Event, scheduler: &mut Scheduler<Event>) {
        match event {
            Event::Deliver { end, packet } => self.deliver(scheduler, end, packet),
            Event::Endpoint(id, event) => {
                self.endpoints[usize::from(id.0)]
                    .handle(&mut Context::new(&mut self.wires, scheduler), event);
            }
            other => self.handle_other(other, scheduler),
        }
    }
}

impl Fabric {
    #[inline(never)]
    fn handle_other(&mut self, event: Event, scheduler: &mut Scheduler<Event>) {
        match event {
            Event::LinkWake(end) => {
                self.context(scheduler).with(end.link, |link, cx| link.on_wake(cx, end.side));
                match self.attached[usize::from(end.link.0)][end.side as usize] {
                    Attached::Endpoint(id) => {
                        self.endpoints[usize::from(id.0)]
                            .link_drained(&mut Context::new(&mut self.wires, scheduler), end);
                    }
                    Attached::RootPort(host, port) => {
                        self.hosts[usize::from(host.0)]
                            .link_drained(&mut Context::new(&mut self.wires, scheduler), port);
                    }
                    Attached::SwitchPort(..)
                    | Attached::Bridge(_)
                    | Attached::ClusterSwitch(_)
                    | Attached::Nothing => {}
                }
            }
            Event::Replay(end) => {
                self.context(scheduler).with(end.link, |link, cx| link.replay(cx, end.side))
            }
            Event::ReplayTimer(end) => {
                self.context(scheduler).with(end.link, |link, cx| link.on_replay_timer(cx, end.side));
            }
            Event::LinkError(end, error) => self.link_error(scheduler, end, error),
            Event::Deliver { .. } | Event::Endpoint(..) => unreachable!("handled before"),
            Event::Ethernet(event) => self.ethernet_event(scheduler, event),
            Event::Cluster(_, send) => {
                ClusterSwitch::handle(&mut Context::new(&mut self.wires, scheduler), send)
            }
            Event::Root(host, RootEvent::HotReset { port }) => {
                let end = self.hosts[usize::from(host.0)].port(port).end();
                self.reset_below(scheduler, end.link);
            }
            Event::Switch(id, SwitchEvent::HotReset { port }) if usize::from(port) == UPSTREAM => {
                self.reset_switch(scheduler, id, false);
            }
            Event::Switch(id, SwitchEvent::HotReset { port }) => {
                let link = self.switch(id).ports()[usize::from(port)].end().link;
                self.reset_below(scheduler, link);
            }
            Event::Switch(id, event) => {
                self.switches[usize::from(id.0)].handle(&mut Context::new(&mut self.wires, scheduler), event);
            }
            Event::Root(id, event) => {
                self.hosts[usize::from(id.0)].handle(&mut Context::new(&mut self.wires, scheduler), event);
            }
        }
    }
}
