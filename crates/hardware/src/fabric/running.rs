//! What happens in the fabric at the current time: events, and what is pulled, plugged and reset from outside.

use platform::device::{Device, DeviceBus, PortIndex, Reset};

use super::components::{Attached, Components};
use crate::detected::Detected;
use crate::endpoint::{EndpointEvent, EndpointId};
use crate::ethernet::{CableId, EthernetEvent};
use crate::event::Event;
use crate::link::{LinkEnd, LinkId, LinkState, Side};
use crate::ntb::{ClusterSwitch, NtbCableEnd};
use crate::packet::PacketId;
use crate::root::RootEvent;
use crate::switch::{SwitchEvent, SwitchId, UPSTREAM};
use crate::wires::Context;

/// The fabric with the clock and the event queue, see [`Fabric::running`](super::Fabric::running).
pub struct Running<'a> {
    pub(super) components: &'a mut Components,
    pub(super) cx: Context<'a>,
}

impl Running<'_> {
    /// Takes a cable between adapters down or up. TLPs in flight on it are lost, and the adapters at its ends notice.
    ///
    /// # Panics
    /// If it is not such a cable.
    pub fn set_ntb_cable_up(&mut self, cable: LinkId, up: bool) {
        let is_up = self.cx.wires.link(cable).state() == LinkState::Up;
        if is_up == up {
            return;
        }
        self.cx.with(cable, |link, cx| match up {
            true => link.bring_up(cx),
            false => link.take_down(cx),
        });
        let (_, ends) = self
            .components
            .cables
            .iter()
            .find(|(link, _)| *link == cable)
            .expect("it is a cable of adapters");
        for end in *ends {
            if let NtbCableEnd::Adapter(adapter) = end {
                self.components.endpoint_mut(adapter).heed_cables(&mut self.cx);
            }
        }
    }

    /// Takes an Ethernet cable down or up; devices at its ends notice.
    pub fn set_ethernet_up(&mut self, cable: CableId, up: bool) {
        for (device, port) in self.cx.wires.ethernet.set_up(cable, up) {
            self.with_device(device, |device, bus| device.carrier_changed(bus, port, up));
        }
    }

    fn ethernet_event(&mut self, event: EthernetEvent) {
        if let Some(delivery) = self.cx.wires.ethernet.handle(self.cx.scheduler, event) {
            self.with_device(delivery.endpoint, |device, bus| {
                device.frame_received(bus, delivery.port, &delivery.frame);
            });
            self.cx.wires.ethernet.recycle(delivery.frame);
        }
    }

    /// Runs `act` on a device model as if from inside: it may start DMA.
    pub fn with_device<R>(
        &mut self,
        id: EndpointId,
        act: impl FnOnce(&mut dyn Device, &mut dyn DeviceBus) -> R,
    ) -> R {
        self.components.endpoint_mut(id).with_device(&mut self.cx, act)
    }

    /// Surprise removal of a device: its links go down.
    pub fn remove_device(&mut self, id: EndpointId) {
        let links: Vec<LinkId> = self.components.endpoint(id).links().collect();
        for link in links {
            self.lose(link);
        }
        self.reset_device(id, Reset::Fundamental);
    }

    /// Reinserts a removed device into its slots.
    pub fn insert_device(&mut self, id: EndpointId) {
        let links: Vec<LinkId> = self.components.endpoint(id).links().collect();
        for link in links {
            self.plug(link);
        }
    }

    /// Surprise removal of one of a device's links; its other ports continue.
    ///
    /// # Panics
    /// If the device has no such port.
    pub fn remove_path(&mut self, id: EndpointId, port: PortIndex) {
        self.pull(self.path(id, port));
    }

    /// Restores the link of a device's port.
    ///
    /// # Panics
    /// If the device has no such port.
    pub fn insert_path(&mut self, id: EndpointId, port: PortIndex) {
        self.plug(self.path(id, port));
    }

    /// Moves one of a device's ports to another slot, as a programmable switch does: it is removed from its slot, which
    /// stays empty, and then inserted into the other. A link that is down stays down.
    ///
    /// # Panics
    /// If the device has no such port, or a device is attached to `to` already.
    pub fn assign_path(&mut self, id: EndpointId, port: PortIndex, to: LinkId) {
        let from = self.path(id, port);
        if from == to {
            return;
        }
        let was_up = self.cx.wires.link(from).state() == LinkState::Up;
        if was_up {
            self.pull(from);
        }
        let below = |link| LinkEnd { link, side: Side::Downstream };
        self.components.attach(below(from), Attached::Nothing);
        self.components.occupy(below(to), Attached::Endpoint(id));
        self.components.endpoint_mut(id).set_link(port, to);
        if was_up {
            self.plug(to);
        }
    }

    fn path(&self, id: EndpointId, port: PortIndex) -> LinkId {
        self.components.endpoint(id).links().nth(port.0.into()).expect("the device has the port")
    }

    /// Surprise removal of what is below a link: a device's port, or a switch with everything below.
    pub fn pull(&mut self, link: LinkId) {
        self.lose(link);
        self.reset_below(link);
    }

    /// Reinserts what was below a link.
    pub fn plug(&mut self, link: LinkId) {
        let Self { components, cx } = self;
        match components.attached(LinkEnd { link, side: Side::Upstream }) {
            Attached::RootPort(host, port) => components.host_mut(host).port_mut(port).plug(cx),
            Attached::SwitchPort(switch, port) => components.switch_mut(switch).plug(cx, port),
            _ => {}
        }
    }

    /// Notifies the port above a link that its slot is empty.
    fn lose(&mut self, link: LinkId) {
        let Self { components, cx } = self;
        match components.attached(LinkEnd { link, side: Side::Upstream }) {
            Attached::RootPort(host, port) => {
                let host = components.host_mut(host);
                host.link_lost(cx, port);
                host.port_mut(port).pull(cx);
            }
            Attached::SwitchPort(switch, port) => components.switch_mut(switch).pull(cx, port),
            _ => {}
        }
    }

    /// The link went down, or a reset below it was requested.
    fn reset_below(&mut self, link: LinkId) {
        match self.components.attached(LinkEnd { link, side: Side::Downstream }) {
            Attached::Endpoint(id) => {
                self.retrain_cables(id);
                let end = LinkEnd { link, side: Side::Downstream };
                self.components.endpoint_mut(id).reset_port(&mut self.cx, end);
            }
            Attached::SwitchPort(id, _) => self.reset_switch(id, true),
            _ => {}
        }
    }

    /// An adapter that is reset loses its cables for a moment, and the adapters at their other ends notice.
    fn retrain_cables(&mut self, adapter: EndpointId) {
        let is_own = |ends: &[NtbCableEnd; 2]| ends.contains(&NtbCableEnd::Adapter(adapter));
        let own = self.components.cables.iter().filter(|(_, ends)| is_own(ends)).map(|(cable, _)| *cable);
        let is_up = |cable: &LinkId| self.cx.wires.link(*cable).state() == LinkState::Up;
        let up: Vec<LinkId> = own.filter(is_up).collect();
        for cable in up {
            self.set_ntb_cable_up(cable, false);
            self.set_ntb_cable_up(cable, true);
        }
    }

    /// Resets everything below a switch, and its own registers: all, or those of its downstream ports.
    fn reset_switch(&mut self, id: SwitchId, all: bool) {
        let below: Vec<LinkId> =
            self.components.switch(id).ports()[1..].iter().map(|port| port.end().link).collect();
        for &link in &below {
            self.cx.with(link, |link, cx| link.take_down(cx));
            self.reset_below(link);
        }
        self.components.switch_mut(id).reset(&mut self.cx, all);
    }

    /// Surprise removal of a device, replaced at once by one that is in no slot.
    ///
    /// # Panics
    /// If the other device is in a slot, or has more ports.
    pub fn exchange_device(&mut self, out: EndpointId, into: EndpointId) {
        self.remove_device(out);
        let ends = self.components.endpoint_mut(out).core.take_links();
        for end in &ends {
            self.components.attach(*end, Attached::Endpoint(into));
        }
        self.components.endpoint_mut(into).core.give_links(ends);
        self.insert_device(into);
    }

    /// Resets a device, or one of its functions: how far, `reset` says.
    pub fn reset_device(&mut self, id: EndpointId, reset: Reset) {
        self.components.endpoint_mut(id).reset(&mut self.cx, reset);
    }

    /// Lets the component at an end of a link record and report a link layer error.
    fn link_error(&mut self, end: LinkEnd, error: Detected) {
        let Self { components, cx } = self;
        match components.attached(end) {
            Attached::RootPort(host, port) => {
                components.host_mut(host).port_mut(port).detect(cx, error, None)
            }
            Attached::Endpoint(id) => components.endpoint_mut(id).link_error(cx, end, error),
            Attached::SwitchPort(id, port) => components.switch_mut(id).report(cx, port.into(), error, None),
            Attached::Bridge(_) | Attached::ClusterSwitch(_) | Attached::Nothing => {}
        }
    }

    /// An event inside an endpoint.
    #[inline(always)]
    pub(super) fn endpoint_event(&mut self, id: EndpointId, event: EndpointEvent) {
        self.components.endpoint_mut(id).handle(&mut self.cx, event);
    }

    /// A TLP arrived at an end of a link.
    #[inline(never)]
    pub(super) fn deliver(&mut self, end: LinkEnd, packet: PacketId) {
        let Self { components, cx } = self;
        if !cx.receive(end, packet) {
            return;
        }
        match components.attached(end) {
            Attached::RootPort(host, port) => components.host_mut(host).deliver(cx, port, packet),
            Attached::Endpoint(id) => components.endpoint_mut(id).deliver(cx, end, packet),
            Attached::SwitchPort(id, port) => components.switch_mut(id).deliver(cx, port, packet),
            Attached::Bridge(id) => components.endpoint_mut(id).deliver_from_cable(cx, end, packet),
            Attached::ClusterSwitch(id) => components.cluster_switch_mut(id).deliver(cx, end, packet),
            Attached::Nothing => {
                let now = cx.now();
                cx.consume(packet, now);
            }
        }
    }

    /// Any other event.
    #[inline(never)]
    pub(super) fn handle_other(&mut self, event: Event) {
        match event {
            Event::LinkWake(end) => {
                self.cx.with(end.link, |link, cx| link.on_wake(cx, end.side));
                match self.components.attached(end) {
                    Attached::Endpoint(id) => {
                        self.components.endpoint_mut(id).link_drained(&mut self.cx, end);
                    }
                    Attached::RootPort(host, port) => {
                        self.components.host_mut(host).link_drained(&mut self.cx, port);
                    }
                    Attached::SwitchPort(..)
                    | Attached::Bridge(_)
                    | Attached::ClusterSwitch(_)
                    | Attached::Nothing => {}
                }
            }
            Event::Replay(end) => self.cx.with(end.link, |link, cx| link.replay(cx, end.side)),
            Event::ReplayTimer(end) => {
                self.cx.with(end.link, |link, cx| link.on_replay_timer(cx, end.side));
            }
            Event::LinkError(end, error) => self.link_error(end, error),
            Event::Deliver { .. } | Event::Endpoint(..) => unreachable!("handled before"),
            Event::Ethernet(event) => self.ethernet_event(event),
            Event::Cluster(_, send) => ClusterSwitch::handle(&mut self.cx, send),
            Event::Root(host, RootEvent::HotReset { port }) => {
                let end = self.components.host(host).port(port).end();
                self.reset_below(end.link);
            }
            Event::Switch(id, SwitchEvent::HotReset { port }) if usize::from(port) == UPSTREAM => {
                self.reset_switch(id, false);
            }
            Event::Switch(id, SwitchEvent::HotReset { port }) => {
                let link = self.components.switch(id).ports()[usize::from(port)].end().link;
                self.reset_below(link);
            }
            Event::Switch(id, event) => self.components.switch_mut(id).handle(&mut self.cx, event),
            Event::Root(id, event) => self.components.host_mut(id).handle(&mut self.cx, event),
        }
    }
}
