//! The routing table: the next hop for an address.

use std::net::Ipv4Addr;

/// A route to a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network's address.
    pub network: Ipv4Addr,
    /// Prefix length, 0 to 32.
    pub prefix: u8,
    /// The next hop, unless the network is directly connected.
    pub gateway: Option<Ipv4Addr>,
    /// The owner's index of the interface.
    pub interface: usize,
}

impl Route {
    /// Whether it covers `address`.
    pub fn covers(&self, address: Ipv4Addr) -> bool {
        let mask = mask(self.prefix);
        u32::from(address) & mask == u32::from(self.network) & mask
    }
}

/// Network mask of a prefix of this length; lengths above 32 count as 32.
pub const fn mask(prefix: u8) -> u32 {
    if prefix == 0 { 0 } else { u32::MAX << (32 - if prefix > 32 { 32 } else { prefix }) }
}

/// A host's routes, of which the longest matching prefix decides.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// Ordered by prefix length, longest first.
    routes: Vec<Route>,
}

impl Routes {
    /// Adds a route, replacing an equal one.
    pub fn add(&mut self, route: Route) {
        let at = self.routes.partition_point(|other| other.prefix > route.prefix);
        self.routes.insert(at, route);
    }

    /// Removes the routes of an interface.
    pub fn remove_interface(&mut self, interface: usize) {
        self.routes.retain(|route| route.interface != interface);
    }

    /// The interface and the next hop for an address.
    pub fn lookup(&self, address: Ipv4Addr) -> Option<(usize, Ipv4Addr)> {
        let route = self.routes.iter().find(|route| route.covers(address))?;
        Some((route.interface, route.gateway.unwrap_or(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(network: [u8; 4], prefix: u8, gateway: Option<[u8; 4]>, interface: usize) -> Route {
        Route { network: network.into(), prefix, gateway: gateway.map(Into::into), interface }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut routes = Routes::default();
        routes.add(route([0, 0, 0, 0], 0, Some([10, 0, 0, 254]), 0));
        routes.add(route([10, 0, 0, 0], 24, None, 0));
        routes.add(route([10, 0, 0, 128], 25, None, 1));
        assert_eq!(routes.lookup([10, 0, 0, 7].into()), Some((0, [10, 0, 0, 7].into())));
        assert_eq!(routes.lookup([10, 0, 0, 200].into()), Some((1, [10, 0, 0, 200].into())));
        assert_eq!(routes.lookup([8, 8, 8, 8].into()), Some((0, [10, 0, 0, 254].into())));
        routes.remove_interface(0);
        assert_eq!(routes.lookup([8, 8, 8, 8].into()), None);
    }
}
