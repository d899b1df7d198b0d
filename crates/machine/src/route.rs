//! Ways to networks that are not at a host's own link, as a scenario gives them.

use std::net::Ipv4Addr;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::placed::Placed;
use crate::read::{Check, record};

record! {
    /// A route of a host's, as `ip route add TO [via GATEWAY] [dev DEVICE]`.
    pub struct RouteEntry {
        /// The network with the length of its prefix, such as `10.1.2.0/24`; `0.0.0.0/0` for all others.
        to: Placed<String>,
        /// The network device that it is reached by, such as `eth0`; the gateway's if not given.
        device: Option<Placed<String>>,
        /// Who passes packets on, at a link of the host's; the network is right at the device's link if not given.
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

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSetup {
    /// The network, and the bits of it that count.
    pub network: (Ipv4Addr, u8),
    /// The network device.
    pub device: Option<String>,
    /// Who passes packets on.
    pub gateway: Option<Ipv4Addr>,
}

/// The routes of a host.
///
/// # Errors
/// What is no network, or no address.
pub(crate) fn routes(entries: &[RouteEntry]) -> Result<Vec<RouteSetup>, Diagnostics> {
    let route = |entry: &RouteEntry| {
        let wrong = |given: &Placed<String>, what: &str, help: &str| {
            let message = format!("`{}` is no {what}", given.value);
            Diagnostics::new(vec![Diagnostic::new(&given.place, message).help(help)])
        };
        let help =
            "the network's address with the length of its prefix and zeros behind it, such as `10.1.2.0/24`";
        let network = network(&entry.to.value).ok_or_else(|| wrong(&entry.to, "network", help))?;
        let gateway = entry.gateway.as_ref().map(|given| {
            given.value.parse().map_err(|_| wrong(given, "address", "an IPv4 address, such as `10.1.2.3`"))
        });
        let device = entry.device.as_ref().map(|given| given.value.clone());
        Ok(RouteSetup { network, device, gateway: gateway.transpose()? })
    };
    entries.iter().map(route).collect()
}

fn network(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix): (Ipv4Addr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    let behind = u64::from(u32::MAX).checked_shr(prefix.into())?;
    (prefix <= 32 && u64::from(u32::from(address)) & behind == 0).then_some((address, prefix))
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
