//! Names of the scenario's hosts where a network program's command line takes an address, as `/etc/hosts` would have them.

use std::net::Ipv4Addr;

use crate::computer::{HostSetup, InterfaceSetup};
use crate::names;

/// Options that take the address of a host, by program; `""` for words that belong to no option.
const TAKE_ADDRESSES: [(&[&str], &[&str]); 5] = [
    (&["netperf"], &["-H", "-L"]),
    (&["iperf", "iperf3"], &["-c", "--client", "-B", "--bind"]),
    (&["sockperf"], &["-i", "--ip"]),
    (&["memaslap"], &["-s", "--servers"]),
    (&["ping"], &[""]),
];
/// Options of ping that take a value.
const OF_PING: [&str; 11] = ["-c", "-i", "-s", "-w", "-W", "-I", "-M", "-l", "-p", "-Q", "-t"];

/// A command line of a program at `place` (a host, and a guest of it) with addresses for names of hosts.
pub(crate) fn resolved(hosts: &[HostSetup], place: (usize, Option<usize>), command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    let Some((_, options)) = TAKE_ADDRESSES.iter().find(|(programs, _)| programs.contains(&program)) else {
        return command.to_owned();
    };
    let mut changed = false;
    let mut all = vec![words[0].to_owned()];
    for pair in words.windows(2) {
        let (before, word) = (pair[0], pair[1]);
        let is_alone = !word.starts_with('-') && !OF_PING.contains(&before);
        let joined = options.iter().filter(|option| !option.is_empty()).find_map(|option| {
            let rest = word.strip_prefix(option)?;
            match option.starts_with("--") {
                true => rest.strip_prefix('=').map(|name| (word.len() - name.len(), name)),
                false => (!rest.is_empty()).then_some((option.len(), rest)),
            }
        });
        let named = match joined {
            Some(found) => Some(found),
            None if options.contains(&before) || options.contains(&"") && is_alone => Some((0, word)),
            None => None,
        };
        let address = named.and_then(|(at, name)| {
            // As in `b,inet` and `b:11211`.
            let end = name.find([',', ':']).unwrap_or(name.len());
            let address = address(hosts, place, &name[..end])?;
            Some(format!("{}{address}{}", &word[..at], &name[end..]))
        });
        changed |= address.is_some();
        all.push(address.unwrap_or_else(|| word.to_owned()));
    }
    // A line that goes on ends in a backslash.
    all.retain(|word| word != "\\");
    if changed { all.join(" ") } else { command.to_owned() }
}

/// The address of a host or a guest by its name: in the asking one's network, or its first.
fn address(hosts: &[HostSetup], (from, guest): (usize, Option<usize>), name: &str) -> Option<Ipv4Addr> {
    if name == "localhost" {
        return Some(Ipv4Addr::LOCALHOST);
    }
    let of = |(host, vm): (usize, Option<usize>)| -> &[InterfaceSetup] {
        match vm {
            Some(vm) => &hosts[host].vms[vm].interfaces,
            None => &hosts[host].interfaces,
        }
    };
    let (own, its) = (of((from, guest)), of(names::place(hosts, name).ok()?));
    let network = |address: Ipv4Addr, prefix: u8| u64::from(u32::from(address)) >> (32 - prefix.min(32));
    let is_near = |one: &&InterfaceSetup| {
        own.iter().any(|own| network(own.address, own.prefix) == network(one.address, own.prefix))
    };
    its.iter().find(is_near).or(its.first()).map(|one| one.address)
}
