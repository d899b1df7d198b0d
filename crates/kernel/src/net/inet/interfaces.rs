//! Interfaces: devices with addresses, the ways that lead by them, and the neighbours behind them.

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

/// Interface (beyond all of them: this host itself), own address, next hop.
pub type Way = (usize, Ipv4Addr, Ipv4Addr);

/// Whether packets for an address come to a socket that is bound to another.
pub fn is_for(bound: Ipv4Addr, address: Ipv4Addr) -> bool {
    bound.is_unspecified() || bound == address
}

/// A device with an address.
struct Interface {
    /// Gone if the device is.
    device: Option<Rc<NetDevice>>,
    name: String,
    address: Ipv4Addr,
    prefix: u8,
    neighbours: Neighbours,
}

/// All interfaces, by the order in which they were configured.
#[derive(Default)]
pub struct Interfaces {
    all: RefCell<Vec<Interface>>,
    routes: RefCell<Routes>,
}

impl Interfaces {
    /// Those whose devices are there.
    pub fn infos(&self) -> Vec<InterfaceInfo> {
        let all = self.all.borrow();
        let there = all.iter().filter(|i| i.device.is_some());
        there
            .map(|i| InterfaceInfo { device: i.name.clone(), address: i.address, prefix: i.prefix })
            .collect()
    }

    /// Gives a device an address, and the way to the network that this is in.
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

    /// Adds a way to a network.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it names neither device nor gateway, or no network; [`Error::NoDevice`] if there is no such
    /// interface; [`Error::Unreachable`] if the gateway is not behind it.
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

    /// A device has gone, and with it the ways by it.
    pub fn remove(&self, device: &Rc<NetDevice>) {
        for (number, interface) in self.all.borrow_mut().iter_mut().enumerate() {
            if interface.device.as_ref().is_some_and(|own| Rc::ptr_eq(own, device)) {
                interface.device = None;
                self.routes.borrow_mut().remove_interface(number);
            }
        }
    }

    /// The device of an interface; none for this host itself.
    pub fn device(&self, interface: usize) -> Option<Rc<NetDevice>> {
        self.all.borrow().get(interface)?.device.clone()
    }

    /// The longest packet that goes by an interface.
    pub fn mtu(&self, interface: usize) -> Option<u16> {
        self.all.borrow().get(interface)?.device.as_ref().map(|device| device.mtu())
    }

    /// A device by its own number.
    pub fn device_numbered(&self, number: u32) -> Option<Rc<NetDevice>> {
        let all = self.all.borrow();
        all.iter().filter_map(|i| i.device.as_ref()).find(|d| d.number() == number).cloned()
    }

    /// The interface of a device.
    pub fn of(&self, device: &Rc<NetDevice>) -> Option<usize> {
        let same = |own: &Option<Rc<NetDevice>>| own.as_ref().is_some_and(|own| Rc::ptr_eq(own, device));
        self.all.borrow().iter().position(|i| same(&i.device))
    }

    /// The address of an interface.
    pub fn address(&self, interface: usize) -> Ipv4Addr {
        self.all.borrow()[interface].address
    }

    /// Whether an address is this host's.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        address.is_loopback() || self.all.borrow().iter().any(|i| i.address == address && i.device.is_some())
    }

    /// The way to a destination.
    pub fn way(&self, to: Ipv4Addr) -> Option<Way> {
        if self.is_own(to) {
            return Some((usize::MAX, to, to));
        }
        let (interface, hop) = self.routes.borrow().lookup(to)?;
        let all = self.all.borrow();
        let address = all.get(interface).filter(|i| i.device.is_some())?.address;
        Some((interface, address, hop))
    }

    /// A neighbour's address, or what to do about it.
    pub fn resolve(&self, now: Time, interface: usize, hop: Ipv4Addr) -> Resolution {
        self.all.borrow_mut()[interface].neighbours.resolve(now, hop)
    }

    /// A neighbour says its address; whether that is believed.
    pub fn learn(&self, now: Time, interface: usize, (hop, mac): (Ipv4Addr, MacAddr), unasked: bool) -> bool {
        self.all.borrow_mut()[interface].neighbours.learn(now, hop, mac, unasked)
    }

    /// When the first neighbour is to be asked again.
    pub fn deadline(&self) -> Option<Time> {
        self.all.borrow().iter().filter_map(|i| i.neighbours.deadline()).min()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.borrow().len()
    }

    /// The neighbours of an interface that are to be asked again, and those that are given up.
    pub fn timer(&self, now: Time, interface: usize) -> (Vec<Ipv4Addr>, Vec<Ipv4Addr>) {
        self.all.borrow_mut()[interface].neighbours.timer(now)
    }

    pub fn clear(&self) {
        self.all.borrow_mut().clear();
    }
}
