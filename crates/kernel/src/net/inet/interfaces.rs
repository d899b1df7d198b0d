//! Interfaces: devices with addresses, their routes and their neighbours.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use inet::arp::{Neighbours, Resolution};
use inet::route::{Route, Routes};
use platform::Error;
use platform::socket::InterfaceInfo;
use units::Time;
use wire::ethernet::MacAddr;

use crate::net::NetDevice;

/// A resolved route: interface (out of range for this host itself), source address, next hop.
pub type ResolvedRoute = (usize, Ipv4Addr, Ipv4Addr);

/// Whether a socket bound to `bound` gets packets for `address`.
pub fn is_for(bound: Ipv4Addr, address: Ipv4Addr) -> bool {
    bound.is_unspecified() || bound == address
}

/// A device with an address.
struct Interface {
    /// `None` if the device is gone.
    device: Option<Rc<NetDevice>>,
    name: String,
    address: Ipv4Addr,
    prefix: u8,
    neighbours: Neighbours,
}

impl Interface {
    /// `None` if the device is gone.
    fn info(&self) -> Option<InterfaceInfo> {
        let mtu = self.device.as_ref()?.mtu();
        Some(InterfaceInfo { device: self.name.clone(), address: self.address, prefix: self.prefix, mtu })
    }
}

/// All interfaces in order of configuration.
#[derive(Default)]
pub struct Interfaces {
    all: RefCell<Vec<Interface>>,
    routes: RefCell<Routes>,
}

impl Interfaces {
    /// Interfaces whose devices exist.
    pub fn infos(&self) -> Vec<InterfaceInfo> {
        self.all.borrow().iter().filter_map(Interface::info).collect()
    }

    /// The interface by which packets to a host leave.
    pub fn info_towards(&self, to: Ipv4Addr) -> Option<InterfaceInfo> {
        let (interface, ..) = self.way(to)?;
        self.all.borrow().get(interface)?.info()
    }

    /// Assigns an address to a device, and adds a route to its network.
    pub fn configure(&self, device: Rc<NetDevice>, address: Ipv4Addr, prefix: u8) {
        let mut all = self.all.borrow_mut();
        let (name, neighbours) = (device.name().to_owned(), Neighbours::default());
        let number = all.iter().position(|i| i.name == name).unwrap_or(all.len());
        let interface = Interface { device: Some(device), name, address, prefix, neighbours };
        match all.get_mut(number) {
            Some(old) => *old = interface,
            None => all.push(interface),
        }
        let mut routes = self.routes.borrow_mut();
        routes.remove_interface(number);
        routes.add(Route { network: address, prefix, gateway: None, interface: number });
    }

    /// Adds a route.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it names neither device nor gateway, or no network; [`Error::NoDevice`] if there is no
    /// such interface; [`Error::Unreachable`] if the gateway is not reachable through it.
    pub fn add_route(&self, route: &platform::socket::Route) -> Result<(), Error> {
        let named = match &route.device {
            Some(name) => {
                let all = self.all.borrow();
                Some(all.iter().position(|i| i.name == *name).ok_or(Error::NoDevice)?)
            }
            None => None,
        };
        let mut routes = self.routes.borrow_mut();
        let (interface, is_near) = match (route.gateway, named) {
            (None, Some(interface)) => (interface, true),
            (None, None) => return Err(Error::Invalid),
            (Some(gateway), named) => {
                let (interface, hop) = routes.lookup(gateway).ok_or(Error::Unreachable)?;
                (interface, hop == gateway && named.is_none_or(|named| named == interface))
            }
        };
        if route.prefix > 32 {
            return Err(Error::Invalid);
        }
        if !is_near {
            return Err(Error::Unreachable);
        }
        let (network, prefix, gateway) = (route.network, route.prefix, route.gateway);
        routes.add(Route { network, prefix, gateway, interface });
        Ok(())
    }

    /// Removes a device and its routes.
    pub fn remove(&self, device: &Rc<NetDevice>) {
        for (number, interface) in self.all.borrow_mut().iter_mut().enumerate() {
            if interface.device.as_ref().is_some_and(|own| Rc::ptr_eq(own, device)) {
                interface.device = None;
                self.routes.borrow_mut().remove_interface(number);
            }
        }
    }

    /// The device of an interface; `None` for this host itself.
    pub fn device(&self, interface: usize) -> Option<Rc<NetDevice>> {
        self.all.borrow().get(interface)?.device.clone()
    }

    /// MTU of an interface; `None` for this host itself.
    pub fn mtu(&self, interface: usize) -> Option<u16> {
        self.all.borrow().get(interface)?.device.as_ref().map(|device| device.mtu())
    }

    pub fn device_numbered(&self, number: u32) -> Option<Rc<NetDevice>> {
        let all = self.all.borrow();
        all.iter().filter_map(|i| i.device.as_ref()).find(|d| d.number() == number).cloned()
    }

    pub fn of(&self, device: &Rc<NetDevice>) -> Option<usize> {
        let same = |own: &Option<Rc<NetDevice>>| own.as_ref().is_some_and(|own| Rc::ptr_eq(own, device));
        self.all.borrow().iter().position(|i| same(&i.device))
    }

    pub fn address(&self, interface: usize) -> Ipv4Addr {
        self.all.borrow()[interface].address
    }

    /// Whether an address belongs to this host.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        address.is_loopback() || self.all.borrow().iter().any(|i| i.address == address && i.device.is_some())
    }

    /// Looks up the route to a destination.
    pub fn way(&self, to: Ipv4Addr) -> Option<ResolvedRoute> {
        if self.is_own(to) {
            return Some((usize::MAX, to, to));
        }
        let (interface, hop) = self.routes.borrow().lookup(to)?;
        let all = self.all.borrow();
        let address = all.get(interface).filter(|i| i.device.is_some())?.address;
        Some((interface, address, hop))
    }

    /// A neighbour's Ethernet address, or what to do to get it.
    pub fn resolve(&self, now: Time, interface: usize, hop: Ipv4Addr) -> Resolution {
        self.all.borrow_mut()[interface].neighbours.resolve(now, hop)
    }

    /// Learns a neighbour's address. Returns whether it was accepted.
    pub fn learn(&self, now: Time, interface: usize, (hop, mac): (Ipv4Addr, MacAddr), unasked: bool) -> bool {
        self.all.borrow_mut()[interface].neighbours.learn(now, hop, mac, unasked)
    }

    /// When the next ARP request has to be repeated.
    pub fn deadline(&self) -> Option<Time> {
        self.all.borrow().iter().filter_map(|i| i.neighbours.deadline()).min()
    }

    /// Number of interfaces.
    pub fn count(&self) -> usize {
        self.all.borrow().len()
    }

    /// Neighbours of an interface to ask again, and those given up.
    pub fn timer(&self, now: Time, interface: usize) -> (Vec<Ipv4Addr>, Vec<Ipv4Addr>) {
        self.all.borrow_mut()[interface].neighbours.timer(now)
    }

    pub fn clear(&self) {
        self.all.borrow_mut().clear();
    }
}
