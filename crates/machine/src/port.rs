//! Addresses of Ethernet ports in a scenario.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::placed::{Placed, Several};

/// Addresses of a NIC's port.
#[derive(Debug, Clone, Default)]
pub struct PortAddress {
    /// MAC address; a generated, locally administered one if `None`.
    pub mac: Option<Placed<[u8; 6]>>,
    /// IPv4 address and prefix length.
    pub address: Option<Placed<(Ipv4Addr, u8)>>,
    /// Whether it is a link of a channel and shares the channel's MAC address.
    pub in_channel: bool,
}

/// The addresses of a NIC with `count` ports.
///
/// # Errors
/// If an address is invalid, or if there are more than ports.
pub(crate) fn ports(
    macs: Option<&Placed<Several<String>>>,
    addresses: Option<&Placed<Several<String>>>,
    count: u32,
) -> Result<Vec<PortAddress>, Diagnostics> {
    let macs = each(macs, count, mac)?;
    let addresses = each(addresses, count, ipv4)?;
    let all = macs.into_iter().zip(addresses);
    Ok(all.map(|(mac, address)| PortAddress { mac, address, in_channel: false }).collect())
}

fn each<T>(
    given: Option<&Placed<Several<String>>>,
    count: u32,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<Option<Placed<T>>>, Diagnostics> {
    let mut found: Vec<_> = (0..count).map(|_| None).collect();
    let Some(given) = given else { return Ok(found) };
    if given.value.len() > count as usize {
        let help = "one for each Ethernet port; drives and cards have none".to_owned();
        return Err(given
            .complaint(format!("{} addresses for {count} Ethernet ports", given.value.len()), Some(help)));
    }
    for (place, text) in found.iter_mut().zip(given.value.iter()) {
        let value =
            parse(text).map_err(|help| given.complaint(format!("`{text}` is not an address"), Some(help)))?;
        *place = Some(Placed { value, place: given.place.clone() });
    }
    Ok(found)
}

/// Parses an address with prefix length.
///
/// # Errors
/// The remedy.
pub(crate) fn ipv4(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let help = "an IPv4 address with the length of its network's prefix, such as `10.1.2.3/24`";
    let (address, prefix) = text.split_once('/').ok_or(help)?;
    let address: Ipv4Addr = address.parse().map_err(|_| help)?;
    let prefix: u8 = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix)).ok_or(help)?;
    let host = u32::from(address) & (u64::from(u32::MAX) >> prefix) as u32;
    let is_end = prefix < 31 && (host == 0 || host == (u64::from(u32::MAX) >> prefix) as u32);
    if !is_host(address) {
        return Err("no host on a network has such an address".to_owned());
    }
    if is_end {
        return Err("the first and the last address of a network are not for hosts".to_owned());
    }
    Ok((address, prefix))
}

/// Whether the address is valid for a host.
pub(crate) fn is_host(address: Ipv4Addr) -> bool {
    !(address.is_loopback() || address.is_multicast() || address.is_broadcast() || address.octets()[0] == 0)
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let help = "six bytes, such as `02:00:00:00:00:01`";
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2).ok_or(help))
        .collect::<Result<_, _>>()?;
    let mac: [u8; 6] = bytes.try_into().map_err(|_| help)?;
    if mac[0] & 1 == 1 || mac == [0; 6] {
        return Err("a port has no group's address, nor zero".to_owned());
    }
    Ok(mac)
}

/// Reports addresses that two ports of so many hosts have, or that a port without an address may get.
pub(crate) fn check(ports: &[&PortAddress], hosts: usize, wrong: &mut Vec<Diagnostic>) {
    let some_without = ports.iter().any(|port| port.address.is_none());
    let (mut macs, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    for port in ports {
        if let Some(mac) = &port.mac
            && macs.insert(mac.value, ()).is_some()
            && !port.in_channel
        {
            let text = mac.value.map(|byte| format!("{byte:02x}")).join(":");
            wrong.push(Diagnostic::new(&mac.place, format!("two ports have the address {text}")));
        }
        let Some(given) = &port.address else { continue };
        let address = given.value.0;
        if addresses.insert(address, ()).is_some() {
            wrong.push(Diagnostic::new(&given.place, format!("two ports have the address {address}")));
        }
        let [a, b, _, host] = address.octets();
        if some_without && (a, b) == (10, 0) && (1..=hosts).contains(&usize::from(host)) {
            let message = format!("a port for which none is given may get the address {address} as well");
            let help = "give all ports one, or take another network than 10.0.0.0/16";
            wrong.push(Diagnostic::new(&given.place, message).help(help));
        }
    }
}
