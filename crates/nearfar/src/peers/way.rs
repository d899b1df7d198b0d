//! Where GPUs are below a host's root ports, and what lies between two of them.

use std::fmt;

use machine::{ComputerSetup, HostSetup, LinkSetup, SlotSetup, links_found};

/// Where a GPU is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerPlace {
    /// Name in the scenario, or its slot.
    pub name: String,
    /// The switches above it, nearest first.
    pub switches: Vec<String>,
    /// The slot of the root port above it.
    pub slot: String,
    /// The root port's node.
    pub node: u32,
    /// The root port's quadrant of the I/O die, if it belongs to one.
    pub quadrant: Option<u32>,
}

/// The GPUs of a host, in the kernel's order.
pub(super) fn places(setup: &ComputerSetup, host: usize) -> Vec<PeerPlace> {
    let own = &setup.hosts[host];
    let found = links_found(&setup.hosts, host).into_iter().filter(|at| at.host == host && at.link == 0);
    let gpus = found.map(|at| &own.devices[at.device]).filter(|device| device.kind.gpu().is_some());
    gpus.map(|device| place(own, device.name.as_deref(), &device.links[0])).collect()
}

fn place(host: &HostSetup, name: Option<&str>, link: &LinkSetup) -> PeerPlace {
    let (mut switches, mut above) = (Vec::new(), link);
    let port = loop {
        match &above.slot {
            SlotSetup::Root(port) => break port,
            SlotSetup::Switch(number, _) => {
                let switch = &host.switches[*number];
                switches.push(switch.name.clone());
                above = &switch.links[0];
            }
        }
    };
    // A port of several slots has its number behind its name.
    let table = port.split('.').next().unwrap_or(port);
    let file = host.machine.host.port.get(port).or_else(|| host.machine.host.port.get(table));
    PeerPlace {
        name: name.unwrap_or(&link.name).to_owned(),
        switches,
        slot: above.name.clone(),
        node: file.map_or(0, |port| port.socket.value),
        quadrant: file.and_then(|port| Some(port.quadrant.as_ref()?.value)),
    }
}

impl PeerPlace {
    /// What a packet passes to another GPU: up to the first switch that is above both, unless switches redirect all requests to the
    /// root, and down from there.
    pub fn way_to(&self, to: &Self, is_redirected: bool) -> Vec<String> {
        let meets = self.switches.iter().position(|switch| to.switches.contains(switch));
        let up = |number: usize| self.switches[..number].iter().cloned();
        let down = |number: usize| to.switches[..number].iter().rev().cloned();
        if let Some(meets) = meets.filter(|_| !is_redirected) {
            let there = to.switches.iter().position(|switch| *switch == self.switches[meets]);
            return up(meets + 1).chain(down(there.unwrap_or_default())).collect();
        }
        let mut way: Vec<String> = up(self.switches.len()).collect();
        way.push(self.root_port());
        if self.node != to.node {
            way.push(format!("node {} to node {}", self.node, to.node));
        }
        if to.slot != self.slot {
            way.push(to.root_port());
        }
        way.extend(down(to.switches.len()));
        way
    }

    fn root_port(&self) -> String {
        let quadrant = self.quadrant.map_or(String::new(), |quadrant| format!(", quadrant {quadrant}"));
        format!("root port {} (node {}{quadrant})", self.slot, self.node)
    }
}

impl fmt::Display for PeerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        self.switches.iter().try_for_each(|switch| write!(f, "{switch}, "))?;
        f.write_str(&self.root_port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(switches: &[&str], slot: &str, node: u32) -> PeerPlace {
        let switches = switches.iter().map(|name| (*name).to_owned()).collect();
        PeerPlace { name: String::new(), switches, slot: slot.into(), node, quadrant: Some(node + 1) }
    }

    #[test]
    fn a_way_turns_at_the_first_switch_above_both_or_at_the_root() {
        let (a, b) = (place(&["leaf0", "top"], "slot", 0), place(&["leaf1", "top"], "slot", 0));
        let far = place(&["s"], "slot-b", 1);
        assert_eq!(a.way_to(&b, false), ["leaf0", "top", "leaf1"]);
        assert_eq!(a.way_to(&place(&["leaf0", "top"], "slot", 0), false), ["leaf0"]);
        let root = "root port slot (node 0, quadrant 1)";
        assert_eq!(a.way_to(&b, true), ["leaf0", "top", root, "top", "leaf1"]);
        let other = "root port slot-b (node 1, quadrant 2)";
        assert_eq!(a.way_to(&far, false), ["leaf0", "top", root, "node 0 to node 1", other, "s"]);
        assert_eq!(far.way_to(&place(&[], "slot", 0), false), ["s", other, "node 1 to node 0", root]);
    }
}
