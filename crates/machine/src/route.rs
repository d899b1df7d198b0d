//! Routes to networks beyond a host's links.

use std::net::Ipv4Addr;

use crate::computer::{InterfaceSetup, RouteSetup};
use crate::diagnostic::Diagnostic;
use crate::names;
use crate::placed::Placed;
use crate::port::is_host;
use crate::read::{Check, record};

record! {
    /// A route, like `ip route add TO [via GATEWAY] [dev DEVICE]`.
    pub struct RouteEntry {
        /// The network with prefix length, such as `10.1.2.0/24`; `0.0.0.0/0` for all others.
        to: Placed<String>,
        /// The network device, such as `eth0`; the gateway's if not given.
        device: Option<Placed<String>>,
        /// The next hop, on a link of the host; the network is directly connected if not given.
        gateway: Option<Placed<String>>,
    }
    check |entry: &RouteEntry, check: &mut Check<'_>| {
        check.require(
            entry.device.is_some() || entry.gateway.is_some(),
            "to",
            "nothing says where it leads",
            "give a `device`, a `gateway`, or both",
        );
    }
}

/// The routes of a host; reports those that lead nowhere or duplicate another.
pub(crate) fn routes(
    entries: &[RouteEntry],
    interfaces: &[InterfaceSetup],
    wrong: &mut Vec<Diagnostic>,
) -> Vec<RouteSetup> {
    let mut tables = Tables::new(interfaces);
    let mut found = Vec::new();
    for entry in entries {
        match tables.add(entry) {
            Ok(route) => found.push(route),
            Err(diagnostic) => wrong.push(*diagnostic),
        }
    }
    found
}

/// A network reachable through a network device.
#[derive(Clone, Copy)]
struct Reached {
    network: (Ipv4Addr, u8),
    /// Index of the device.
    by: usize,
    /// Whether it is directly connected.
    is_near: bool,
}

impl Reached {
    fn covers(&self, address: Ipv4Addr) -> bool {
        let behind = behind(self.network.1);
        u32::from(address) & !behind == u32::from(self.network.0) & !behind
    }
}

/// The routing tables of a host: one per namespace.
struct Tables<'a> {
    interfaces: &'a [InterfaceSetup],
    reached: Vec<Reached>,
}

impl<'a> Tables<'a> {
    fn new(interfaces: &'a [InterfaceSetup]) -> Self {
        let own = |(by, interface): (usize, &InterfaceSetup)| {
            let network = u32::from(interface.address) & !behind(interface.prefix);
            Reached { network: (network.into(), interface.prefix), by, is_near: true }
        };
        Self { interfaces, reached: interfaces.iter().enumerate().map(own).collect() }
    }

    /// Adds a route, in the order of the kernel.
    fn add(&mut self, entry: &RouteEntry) -> Result<RouteSetup, Box<Diagnostic>> {
        let help =
            "the network's address with the length of its prefix and zeros behind it, such as `10.1.2.0/24`";
        let parsed = network(&entry.to.value);
        let network = parsed.ok_or_else(|| complaint(&entry.to, "`{}` is not a network", help))?;
        let device = entry.device.as_ref().map(|device| self.device(device)).transpose()?;
        // A device alone in its namespace has its own table.
        let alone = device.filter(|&device| self.interfaces[device].alone);
        let gateway =
            entry.gateway.as_ref().map(|gateway| self.gateway(gateway, device, alone)).transpose()?;
        let by = gateway.map_or(device, |(_, by)| Some(by)).unwrap_or_default();
        if let Some(other) = self.table(alone).find(|reached| reached.network == network) {
            let name = &self.interfaces[other.by].name;
            let help = format!("one route to a network; that by {name} counts");
            return Err(complaint(&entry.to, "a route to `{}` is there already", &help));
        }
        self.reached.push(Reached { network, by, is_near: gateway.is_none() });
        Ok(RouteSetup {
            network: Placed { value: network, place: entry.to.place.clone() },
            device: entry.device.as_ref().map(|device| device.value.clone()),
            gateway: gateway.map(|(gateway, _)| gateway),
        })
    }

    /// The table of the namespace of device `alone`, or else of the host.
    fn table(&self, alone: Option<usize>) -> impl Iterator<Item = &Reached> {
        self.reached.iter().filter(move |reached| match alone {
            Some(device) => reached.by == device,
            None => !self.interfaces[reached.by].alone,
        })
    }

    fn device(&self, given: &Placed<String>) -> Result<usize, Box<Diagnostic>> {
        let told = |(message, help)| Box::new(Diagnostic::new(&given.place, message).help(help));
        names::interface(self.interfaces, &given.value).map_err(told)
    }

    /// The gateway's address, and the device through which it is reached.
    fn gateway(
        &self,
        given: &Placed<String>,
        device: Option<usize>,
        alone: Option<usize>,
    ) -> Result<(Ipv4Addr, usize), Box<Diagnostic>> {
        let help = "the IPv4 address of another host, such as `10.1.2.3`";
        let parsed = given.value.parse().ok().filter(|&address| is_host(address));
        let gateway: Ipv4Addr =
            parsed.ok_or_else(|| complaint(given, "`{}` is not a host's address", help))?;
        if self.interfaces.iter().any(|interface| interface.address == gateway) {
            return Err(complaint(
                given,
                "`{}` is the host's own address: it does not pass packets on",
                help,
            ));
        }
        // The longest prefix wins; of equal ones, the later.
        let covering = self.table(alone).filter(|reached| reached.covers(gateway));
        let by = covering.max_by_key(|reached| reached.network.1).filter(|reached| reached.is_near);
        if let Some(by) = by.filter(|reached| device.is_none_or(|device| device == reached.by)) {
            return Ok((gateway, by.by));
        }
        let near = self.table(alone).filter(|reached| reached.is_near);
        let near = near.filter(|reached| device.is_none_or(|device| device == reached.by));
        let near = near.map(|Reached { network: (address, prefix), by, .. }| {
            format!("{address}/{prefix} ({})", self.interfaces[*by].name)
        });
        let near: Vec<String> = near.collect();
        let help = match near.is_empty() {
            true => "no network is: add a NIC, or a route by `device` before".to_owned(),
            false => format!("these are: {}", near.join(", ")),
        };
        Err(complaint(given, "`{}` is at no link by which it could be reached", &help))
    }
}

/// An error about a value, which replaces `{}` in the message.
fn complaint(given: &Placed<String>, message: &str, help: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(&given.place, message.replace("{}", &given.value)).help(help))
}

/// Mask of the address bits after the prefix.
fn behind(prefix: u8) -> u32 {
    u32::MAX.checked_shr(prefix.into()).unwrap_or(0)
}

fn network(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix): (Ipv4Addr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    (prefix <= 32 && u32::from(address) & behind(prefix) == 0).then_some((address, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_zeros_behind_its_prefix() {
        for (text, expected) in [
            ("10.1.2.0/24", Some(([10, 1, 2, 0].into(), 24))),
            ("0.0.0.0/0", Some(([0, 0, 0, 0].into(), 0))),
            ("10.1.2.3/32", Some(([10, 1, 2, 3].into(), 32))),
            ("10.1.2.3/24", None),
            ("10.1.2.0", None),
            ("10.1.2.0/33", None),
            ("10.1.2.0/200", None),
            ("net/24", None),
        ] {
            assert_eq!(network(text), expected, "{text}");
        }
    }
}
