//! Which of a scenario's hardware is connected and powered, as changed by events.
//!
//! A link is up if it is not cut, and the devices at its ends are in their slots and have power. Events change these
//! causes, and [`settle`](Connections::settle) applies the consequences.

use std::collections::BTreeSet;

use engine::Simulation;
use hardware::Fabric;
use hardware::ethernet::CableId;
use hardware::link::LinkId;
use machine::{ClusterEnd, ComputerSetup, LinkPlace, PortSetup};
use platform::device::Reset;

use super::host::Computer;

/// A device: host number and device number.
type Device = (usize, usize);

/// Kind of a link.
pub(super) enum Medium {
    Cable(CableId),
    NtbCable(LinkId),
    Link(LinkId),
}

/// The hardware at a link place of the scenario.
pub(super) fn at(
    fabric: &Fabric,
    hosts: &[Computer],
    (cables, ntb_cables): (&[CableId], &[LinkId]),
    place: LinkPlace,
) -> Medium {
    match place {
        LinkPlace::Cable(cable) => Medium::Cable(cables[cable]),
        LinkPlace::NtbCable(cable) => Medium::NtbCable(ntb_cables[cable]),
        LinkPlace::Switch(host, switch) => Medium::Link(hosts[host].switches[switch].1),
        LinkPlace::Device(host, device, port) => {
            let link = fabric.endpoint(hosts[host].devices[device]).links().nth(port.into());
            Medium::Link(link.expect("the scenario's device has the link"))
        }
    }
}

/// A link, and what must have power for it to be up.
struct Needs {
    place: LinkPlace,
    devices: Vec<Device>,
    hosts: Vec<usize>,
}

/// What is cut, unplugged or without power, and which links are up.
pub(super) struct Connections {
    links: Vec<Needs>,
    devices: Vec<Device>,
    /// Hosts without power.
    pub off: BTreeSet<usize>,
    /// Devices out of their slots.
    pub out: BTreeSet<Device>,
    /// Links that were cut.
    pub cut: BTreeSet<LinkPlace>,
    /// Links that are down, for whatever reason.
    down: BTreeSet<LinkPlace>,
    /// Devices that have lost their power.
    dark: BTreeSet<Device>,
}

impl Connections {
    /// All that a scenario connects; devices that are to come later are out.
    pub fn new(setup: &ComputerSetup) -> Self {
        let hosts = || setup.hosts.iter().enumerate();
        let devices: Vec<Device> = hosts()
            .flat_map(|(host, entry)| (0..entry.devices.len()).map(move |device| (host, device)))
            .collect();
        let device = |&(host, device): &Device| &setup.hosts[host].devices[device];
        let cables = setup.network.cables.iter().enumerate().map(|(n, cable)| {
            let station = |end: &PortSetup| match *end {
                PortSetup::Host(host, device, _) => Some((host, device)),
                PortSetup::Switch(..)
                | PortSetup::Source(_)
                | PortSetup::Sink(_)
                | PortSetup::Generator(_) => None,
            };
            let devices = cable.ends.iter().filter_map(station).collect();
            Needs { place: LinkPlace::Cable(n), devices, hosts: Vec::new() }
        });
        let switches = hosts().flat_map(|(host, entry)| {
            let places = (0..entry.switches.len()).map(move |switch| LinkPlace::Switch(host, switch));
            places.map(move |place| Needs { place, devices: Vec::new(), hosts: vec![host] })
        });
        let slots = devices.iter().flat_map(|own| {
            (0u8..).zip(&device(own).links).map(|(n, link)| Needs {
                place: LinkPlace::Device(own.0, own.1, n),
                devices: vec![*own],
                hosts: vec![link.host],
            })
        });
        let ntb_cables = setup.cluster.cables.iter().enumerate().map(|(n, cable)| {
            let adapter = |end: &ClusterEnd| match *end {
                ClusterEnd::Adapter(host, device) => Some((host, device)),
                ClusterEnd::Switch(_) => None,
            };
            let devices = cable.ends.iter().filter_map(adapter).collect();
            Needs { place: LinkPlace::NtbCable(n), devices, hosts: Vec::new() }
        });
        let links = cables.chain(ntb_cables).chain(switches).chain(slots).collect();
        let out = devices.iter().copied().filter(|own| !device(own).is_plugged).collect();
        Self {
            links,
            devices,
            off: BTreeSet::new(),
            out,
            cut: BTreeSet::new(),
            down: BTreeSet::new(),
            dark: BTreeSet::new(),
        }
    }

    /// Whether a device, which its host feeds, has power.
    pub fn has_power(&self, device: Device) -> bool {
        !self.off.contains(&device.0) && !self.out.contains(&device)
    }

    /// Whether a PCIe link inside a host is cut, so that devices with power may be out of reach.
    pub fn has_cut_slots(&self) -> bool {
        self.cut.iter().any(|place| matches!(place, LinkPlace::Switch(..) | LinkPlace::Device(..)))
    }

    /// Lets links go down and come up, and devices lose their power, as it follows from what is cut, out or off.
    pub fn settle(
        &mut self,
        simulation: &Simulation<Fabric>,
        hosts: &[Computer],
        cables: (&[CableId], &[LinkId]),
    ) {
        let is_up = |link: &Needs| {
            link.devices.iter().all(|&device| self.has_power(device))
                && !link.hosts.iter().any(|host| self.off.contains(host))
                && !self.cut.contains(&link.place)
        };
        let changed = |link: &&Needs| is_up(link) == self.down.contains(&link.place);
        let changed: Vec<(LinkPlace, bool)> =
            self.links.iter().filter(changed).map(|link| (link.place, is_up(link))).collect();
        let dark: BTreeSet<Device> =
            self.devices.iter().copied().filter(|&device| !self.has_power(device)).collect();
        simulation.with(|fabric, scheduler| {
            for &(place, is_up) in &changed {
                match at(fabric, hosts, cables, place) {
                    Medium::Cable(cable) => fabric.running(scheduler).set_ethernet_up(cable, is_up),
                    Medium::NtbCable(cable) => fabric.running(scheduler).set_ntb_cable_up(cable, is_up),
                    Medium::Link(link) if is_up => fabric.running(scheduler).plug(link),
                    Medium::Link(link) => fabric.running(scheduler).pull(link),
                }
            }
            for &(host, device) in dark.difference(&self.dark) {
                fabric.running(scheduler).reset_device(hosts[host].devices[device], Reset::Fundamental);
            }
        });
        self.dark = dark;
        for (place, is_up) in changed {
            match is_up {
                true => self.down.remove(&place),
                false => self.down.insert(place),
            };
        }
    }
}
