//! Hosts, devices and switches, and the ends of links that they are at.

use crate::endpoint::{Endpoint, EndpointId};
use crate::link::{LinkEnd, LinkId};
use crate::ntb::{self, ClusterSwitch, ClusterSwitchId, NtbCableEnd};
use crate::root::{Host, HostId};
use crate::switch::{Switch, SwitchId};

/// What an end of a link is attached to.
#[derive(Clone, Copy, Debug)]
pub enum Attached {
    Nothing,
    RootPort(HostId, u8),
    Endpoint(EndpointId),
    SwitchPort(SwitchId, u8),
    /// An adapter with a bridge, through one of its cables.
    Bridge(EndpointId),
    /// A cluster switch, through one of its cables.
    ClusterSwitch(ClusterSwitchId),
}

/// Everything in a fabric but its links.
#[derive(Default)]
pub struct Components {
    pub hosts: Vec<Host>,
    pub endpoints: Vec<Endpoint>,
    pub switches: Vec<Switch>,
    pub cluster_switches: Vec<ClusterSwitch>,
    /// Cables between adapters and cluster switches, in order of connection.
    pub cables: Vec<(LinkId, [NtbCableEnd; 2])>,
    /// By link and side.
    attached: Vec<[Attached; 2]>,
}

impl Components {
    #[inline]
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[usize::from(id.0)]
    }

    #[inline]
    pub fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[usize::from(id.0)]
    }

    pub fn endpoint(&self, id: EndpointId) -> &Endpoint {
        &self.endpoints[usize::from(id.0)]
    }

    #[inline]
    pub fn endpoint_mut(&mut self, id: EndpointId) -> &mut Endpoint {
        &mut self.endpoints[usize::from(id.0)]
    }

    pub fn switch(&self, id: SwitchId) -> &Switch {
        &self.switches[usize::from(id.0)]
    }

    #[inline]
    pub fn switch_mut(&mut self, id: SwitchId) -> &mut Switch {
        &mut self.switches[usize::from(id.0)]
    }

    pub fn cluster_switch_mut(&mut self, id: ClusterSwitchId) -> &mut ClusterSwitch {
        &mut self.cluster_switches[usize::from(id.0)]
    }

    /// What is at an end of a link.
    #[inline]
    pub fn attached(&self, end: LinkEnd) -> Attached {
        self.attached[usize::from(end.link.0)][end.side as usize]
    }

    /// Replaces what is at an end of a link.
    pub fn attach(&mut self, end: LinkEnd, what: Attached) {
        self.attached[usize::from(end.link.0)][end.side as usize] = what;
    }

    /// Puts something at an end of a link.
    ///
    /// # Panics
    /// If there is something.
    pub fn occupy(&mut self, end: LinkEnd, what: Attached) {
        assert!(matches!(self.attached(end), Attached::Nothing), "a link has one device at its end");
        self.attach(end, what);
    }

    /// Puts something at the ends of a new link.
    pub fn attach_ends(&mut self, ends: [Attached; 2]) {
        self.attached.push(ends);
    }

    /// Computes the routes of adapters and cluster switches over the cables.
    pub fn route_cables(&mut self) {
        let cables: Vec<[NtbCableEnd; 2]> = self.cables.iter().map(|(_, ends)| *ends).collect();
        let node_of = |adapter| self.endpoint(adapter).bridge().map_or(0, |bridge| bridge.params.node);
        for (at, routes) in ntb::routes(&cables, node_of) {
            match at {
                NtbCableEnd::Adapter(adapter) => {
                    if let Some(bridge) = self.endpoint_mut(adapter).bridge_mut() {
                        let nodes = routes.keys().fold(0, |all, node| all | 1u64 << (node % 64));
                        bridge.reach.borrow_mut().set_up(nodes);
                        bridge.routes = routes;
                    }
                }
                NtbCableEnd::Switch(switch) => self.cluster_switch_mut(switch).routes = routes,
            }
        }
    }
}
