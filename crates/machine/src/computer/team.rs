//! Stacked network devices.

use std::collections::BTreeSet;

use super::place::{LinkSetup, SlotSetup};
use super::setup::{HostSetup, InterfaceSetup, TeamSetup};
use crate::diagnostic::Diagnostic;
use crate::names;
use crate::network::{NetworkSetup, PortSetup};
use crate::placed::Placed;
use crate::read::{Check, record};
use settings::{HashPolicy, TeamMode};

record! {
    /// A stacked network device.
    pub struct TeamEntry {
        /// Kernel name of the network device, such as `team0`.
        name: Placed<String>,
        /// How it uses its members.
        mode: Placed<TeamMode>,
        /// What chooses the member that transmits a packet, for `bond-802.3ad`; `layer2` if not given, as in Linux.
        xmit_hash_policy: Option<Placed<HashPolicy>>,
        /// Its members: `octo:1` is the function behind link 1 of device `octo`, links counted from 0.
        members: Vec<Placed<String>>,
    }
    check |team: &TeamEntry, check: &mut Check<'_>| {
        let many = team.members.len();
        check.require(many > 0, "members", "a team of nobody", "`members = [\"octo:0\", \"octo:1\"]`");
        let is_bond = team.mode.value == TeamMode::Bond;
        check.require(
            is_bond || team.xmit_hash_policy.is_none(),
            "xmit_hash_policy",
            "members of this mode transmit what local cores send",
            "leave it out, or `mode = \"bond-802.3ad\"`",
        );
    }
}

/// Resolves the members of each host's teams, and replaces them by the team among the host's network devices.
pub(super) fn find(
    entries: &[&[TeamEntry]],
    hosts: &mut [HostSetup],
    wrong: &mut Vec<Diagnostic>,
    doubts: &mut Vec<Diagnostic>,
) {
    for (number, entries) in entries.iter().enumerate() {
        let mut taken = BTreeSet::new();
        let teams: Vec<_> = entries
            .iter()
            .filter_map(|team| {
                let mode = team.mode.value;
                let found = |member| match find_member(hosts, number, mode, member) {
                    Ok(found) if taken.insert(found.name.clone()) => Some(found),
                    Ok(_) => {
                        let message = format!("`{}` is a member already", member.value);
                        wrong.push(Diagnostic::new(&member.place, message).help("each function once"));
                        None
                    }
                    Err(diagnostic) => {
                        wrong.push(*diagnostic);
                        None
                    }
                };
                let found: Vec<_> = team.members.iter().map(found).collect::<Vec<_>>();
                let found = found.into_iter().collect::<Option<Vec<_>>>()?;
                doubts.extend(at_one_socket(&hosts[number], team, &found));
                let ports = found.iter().map(|member| PortSetup::Host(number, member.device, 0)).collect();
                let hash_policy =
                    team.xmit_hash_policy.as_ref().map_or(HashPolicy::default(), |policy| policy.value);
                let name = team.name.value.clone();
                let team_setup = TeamSetup { name, mode, hash_policy, members: Vec::new(), ports };
                Some((team_setup, &team.name, found))
            })
            .collect();
        let host = &mut hosts[number];
        for (count, (team, name, found)) in (0u8..).zip(teams) {
            if team.mode == TeamMode::Bond {
                share_address(host, &found, [0x02, 0xb0, 0, number as u8, 0, count], name);
            }
            join(host, team, &found, name, wrong);
        }
    }
}

/// Reports channels unknown to the other end: the cables of all members must lead to one channel of a switch, or to
/// the members of another host's team. A member without a cable is a link that is down.
pub(super) fn check_channels(
    entries: &[&[TeamEntry]],
    hosts: &[HostSetup],
    network: &NetworkSetup,
    wrong: &mut Vec<Diagnostic>,
) {
    let channels = || hosts.iter().flat_map(|host| &host.teams).filter(|team| team.mode == TeamMode::Bond);
    let is_channel = |[one, other]: [PortSetup; 2]| match (one, other) {
        (PortSetup::Switch(one, port), PortSetup::Switch(switch, second)) if one == switch => {
            let lag = &network.switches[switch].0.lag;
            let both = |group: &&Vec<u32>| [port, second].iter().all(|&port| group.contains(&port.into()));
            lag.iter().flat_map(|lag| lag.value.iter()).any(|group| both(&group))
        }
        (one, other) => channels().any(|team| team.ports.contains(&one) && team.ports.contains(&other)),
    };
    for (entries, host) in entries.iter().zip(hosts) {
        for team in host.teams.iter().filter(|team| team.mode == TeamMode::Bond) {
            let ends: Vec<_> = team.ports.iter().filter_map(|&port| network.other_end(port)).collect();
            let Some(apart) = ends.iter().skip(1).position(|&end| !is_channel([ends[0], end])) else {
                continue;
            };
            let Some(said) = entries.iter().find(|said| said.name.value == team.name) else { continue };
            let message = format!("the cables of `{}` do not lead to one channel", team.name);
            let help = match (ends[0], ends[apart + 1]) {
                (PortSetup::Switch(one, port), PortSetup::Switch(switch, other)) if one == switch => {
                    let name = &network.switches[switch].0.name.value;
                    format!("the `[[switch]]` `{name}` makes one of them by `lag = [[{port}, {other}]]`")
                }
                _ => "all of them to one switch, whose `lag` has their ports, or to a team of another host"
                    .to_owned(),
            };
            wrong.push(Diagnostic::new(&said.name.place, message).help(help));
        }
    }
}

/// A member: its kernel name and its port.
struct Member {
    name: String,
    device: usize,
    port: usize,
    /// Sockets that its link leads to, now or after an event.
    sockets: BTreeSet<u32>,
}

/// Sockets that a link leads to, or can be moved to.
pub(crate) fn sockets_of(hosts: &[HostSetup], link: &LinkSetup) -> BTreeSet<u32> {
    let of = |link: &LinkSetup| match &link.slot {
        SlotSetup::Root(name) => {
            hosts[link.host].machine.host.port.get(name).map(|port| port.socket.value).into_iter().collect()
        }
        SlotSetup::Switch(switch, _) => {
            let up = &hosts[link.host].switches[*switch].links;
            up.iter().flat_map(|link| sockets_of(hosts, link)).collect::<BTreeSet<_>>()
        }
    };
    std::iter::once(link).chain(&link.others).flat_map(of).collect()
}

/// A doubt about a team whose members are all at one of several sockets.
fn at_one_socket(host: &HostSetup, team: &TeamEntry, members: &[Member]) -> Option<Diagnostic> {
    let sockets: BTreeSet<u32> = members.iter().flat_map(|member| &member.sockets).copied().collect();
    let (all, mode) = (host.machine.host.sockets.value.get(), team.mode.value);
    let &socket = sockets.first().filter(|_| sockets.len() == 1 && all > 1 && mode == TeamMode::Octo)?;
    let message = format!("all members of `{}` are at socket {socket}", team.name.value);
    let help = "links to slots of each socket: to the cores of the others, the team is as remote as one NIC";
    Some(Diagnostic::new(&team.name.place, message).help(help).doubt())
}

/// Gives all members one MAC address, like Linux's bonding: that of the first member, or `otherwise`.
fn share_address(host: &mut HostSetup, members: &[Member], otherwise: [u8; 6], name: &Placed<String>) {
    let of = |member: &Member| host.devices[member.device].ports.get(member.port);
    let given = members.first().and_then(of).and_then(|port| port.mac.clone());
    let mac = given.unwrap_or_else(|| Placed { value: otherwise, place: name.place.clone() });
    for member in members {
        if let Some(port) = host.devices[member.device].ports.get_mut(member.port) {
            (port.mac, port.in_channel) = (Some(mac.clone()), true);
        }
    }
}

/// Replaces members by their team.
fn join(
    host: &mut HostSetup,
    mut team: TeamSetup,
    members: &[Member],
    name: &Placed<String>,
    wrong: &mut Vec<Diagnostic>,
) {
    let place = |member: &Member| host.interfaces.iter().position(|interface| interface.name == member.name);
    let Some(places) = members.iter().map(place).collect::<Option<Vec<_>>>() else { return };
    team.members = places.iter().map(|&at| host.interfaces[at].clone()).collect();
    let own = InterfaceSetup { name: team.name.clone(), is_virtual: true, ..team.members[0].clone() };
    host.interfaces[places[0]] = own;
    host.interfaces.retain(|interface| team.members.iter().all(|member| member.name != interface.name));
    let others = host.interfaces.iter().filter(|interface| interface.name == team.name).count();
    if others > 1 || name.value.starts_with("eth") || name.value == "lo" {
        let message = format!("the kernel may call another device `{}`", name.value);
        wrong.push(Diagnostic::new(&name.place, message).help("such as `team0`"));
    }
    host.teams.push(team);
}

/// Resolves a function.
fn find_member(
    hosts: &[HostSetup],
    number: usize,
    mode: TeamMode,
    member: &Placed<String>,
) -> Result<Member, Box<Diagnostic>> {
    let complain =
        |message: String, help: &str| Err(Box::new(Diagnostic::new(&member.place, message).help(help)));
    let (name, link) = match member.value.split_once(':') {
        None => (member.value.as_str(), Some(0)),
        Some((name, link)) => (name, link.parse().ok()),
    };
    let devices = &hosts[number].devices;
    let device = names::find_device(&hosts[number], name);
    let (Some(device), Some(link)) = (device, link) else {
        let message = format!("there is no `{}`", member.value);
        return complain(message, "a NIC's `name`, and behind a colon the number of its link");
    };
    let Some(nic) = devices[device].kind.nic() else {
        return complain(format!("`{name}` is not a NIC"), "members are network devices");
    };
    if hosts[number].has_user_nics() {
        let message = format!("`{name}` is a program's, as all NICs of host `{}`", hosts[number].name);
        return complain(message, "leave `user_space` of `[host.nic_driver]` out");
    }
    if hosts[number].combines(nic) {
        let message = format!("the functions of {} are one network device already", nic.name);
        return complain(message, "either a team or `multi_pf` of `[host.nic_driver]`");
    }
    if mode != TeamMode::Bond && !nic.shares_address() {
        let message = format!("the functions of {} have addresses of their own", nic.name);
        return complain(message, "a card whose functions share one, such as `connectx4-octo`");
    }
    let is_it =
        |own: &&InterfaceSetup| own.port == (number, device, 0) && own.links == [link] && !own.is_virtual;
    if let Some(own) = hosts[number].interfaces.iter().find(is_it) {
        let port = link * nic.controller.ports.value.get() as usize;
        let sockets = sockets_of(hosts, &devices[device].links[link]);
        return Ok(Member { name: own.name.clone(), device, port, sockets });
    }
    complain(
        format!("`{name}` has no link {link} to this host"),
        "links are counted from 0; what is lent or passed through is not the host's",
    )
}
