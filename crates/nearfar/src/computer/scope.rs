//! What a program's work goes through: hosts, cores, devices, and what connects them. Nothing else can bind it.
//!
//! The devices are those that its process has opened, and the NICs that lead to the addresses that its command line
//! names; the cores are its own, those of the servers there, and those that handle the interrupts of these devices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use machine::{
    Action, ComputerSetup, DeviceFile, HostSetup, InterfaceSetup, LinkSetup, MemoryPolicy, PortSetup,
    ProgramSetup, SlotSetup, adapter,
};

use super::found::drive_of;
use crate::counters::{Kind, Resource};

/// A core that a device's interrupts arrive at.
pub(super) struct InterruptCore {
    pub host: usize,
    /// Index of the device on its host; `None` if it is another host's, or a virtual function.
    pub device: Option<usize>,
    pub core: u16,
}

/// What is used of one host.
#[derive(Default)]
struct OfHost {
    /// Cores; `None` for all.
    cores: Option<BTreeSet<u16>>,
    devices: BTreeSet<usize>,
    switches: BTreeSet<usize>,
    /// Sockets with memory or devices in use.
    sockets: BTreeSet<u32>,
}

/// What a program's work goes through.
pub(super) struct Scope<'a> {
    setup: &'a ComputerSetup,
    /// By host; those that are missing are not concerned.
    hosts: BTreeMap<usize, OfHost>,
    /// Hosts that are concerned only as their NICs pause a sender: by what takes frames out of them, not by who reads them.
    pausing: BTreeSet<usize>,
}

impl<'a> Scope<'a> {
    /// The scope of a program by its number; `None` for a traffic source, which is no program. `serves` tells the servers
    /// among the programs, and `opened` the devices that its process has opened, if it came to its end.
    pub fn new(
        setup: &'a ComputerSetup,
        serves: &[bool],
        program: usize,
        opened: Option<&BTreeSet<String>>,
        interrupts: &[InterruptCore],
    ) -> Option<Self> {
        let entry = setup.programs.get(program)?;
        let mut own = Self { setup, hosts: BTreeMap::new(), pausing: BTreeSet::new() };
        own.add_program(program, entry);
        match opened {
            Some(names) => names.iter().for_each(|name| own.add_opened(entry, name)),
            None => own.add_all_devices(entry.host),
        }
        // Its addresses are those of rules.
        let is_setting = entry.command.split_whitespace().any(|word| word == "ethtool");
        for address in addresses(&entry.command).filter(|_| !is_setting) {
            own.add_way_to(entry, address);
            own.add_peer(serves, address);
        }
        own.add_pausing();
        own.add_lenders();
        own.add_paths();
        own.add_interrupts(interrupts);
        Some(own)
    }

    fn host(&mut self, host: usize) -> &mut OfHost {
        let none = || OfHost { cores: Some(BTreeSet::new()), ..OfHost::default() };
        self.hosts.entry(host).or_insert_with(none)
    }

    fn add_cores(&mut self, host: usize, cores: Option<&[u16]>) {
        let own = &mut self.host(host).cores;
        match (own, cores) {
            (Some(own), Some(cores)) => own.extend(cores),
            (own, None) => *own = None,
            (None, Some(_)) => {}
        }
    }

    /// A program's cores and memory.
    fn add_program(&mut self, number: usize, entry: &ProgramSetup) {
        let moves = |event: &machine::EventSetup| matches!(&event.action, Action::MoveTask { program, .. } if *program == number);
        let is_moved = self.setup.events.iter().any(moves);
        let (host, described) = (entry.host, &self.setup.hosts[entry.host]);
        let nodes = described.machine.host.nodes();
        match entry.vm.map(|vm| &described.vms[vm]) {
            Some(vm) => {
                // Its vCPUs may be moved, and threads of the host serve its virtual devices.
                let is_alone = described.hypervisor.is_none() && vm.nic.is_none() && vm.disk.is_none();
                self.add_cores(host, is_alone.then_some(&vm.vcpus));
                self.host(host).sockets.insert(vm.node.into());
                let devices = vm.devices.iter().map(|passed| passed.device);
                let below = vm.nic.iter().map(|nic| nic.uplink).chain(vm.disk.iter().map(|disk| disk.drive));
                let devices: Vec<usize> = devices.chain(below).collect();
                self.host(host).devices.extend(devices);
            }
            None => {
                let all = entry.cpus.is_empty() || is_moved;
                self.add_cores(host, (!all).then_some(&entry.cpus));
                match entry.memory {
                    MemoryPolicy::Local => {}
                    MemoryPolicy::Bind(node) | MemoryPolicy::Preferred(node) => {
                        self.host(host).sockets.insert(node.into());
                    }
                    MemoryPolicy::Interleave => self.host(host).sockets.extend(0..nodes),
                }
            }
        }
    }

    /// A device by the name under which a program has opened it.
    fn add_opened(&mut self, entry: &ProgramSetup, name: &str) {
        let host = &self.setup.hosts[entry.host];
        let interfaces = match entry.vm {
            Some(vm) => &host.vms[vm].interfaces,
            None => &host.interfaces,
        };
        let drive = drive_of(self.setup, name);
        if let Some(interface) = interfaces.iter().find(|interface| interface.name == name) {
            self.add_interface(entry.host, interface);
        } else if let Some((host, device)) = drive {
            self.host(host).devices.insert(device);
        } else {
            // Files have no device of their own: all that are no network devices of the kernel.
            let is_other = |device: &DeviceFile| match device {
                DeviceFile::Nic(_) => host.has_user_nics() && name.starts_with("uio"),
                DeviceFile::Ntb(_) => false,
                _ => true,
            };
            let devices = host.devices.iter().enumerate().filter(|(_, device)| is_other(&device.kind));
            let own: Vec<(usize, usize)> = devices.map(|(n, _)| (entry.host, n)).collect();
            let borrows = self.setup.cluster.borrows.iter().filter(|borrow| borrow.by == entry.host);
            let borrowed: Vec<_> = borrows.map(|borrow| (borrow.lender, borrow.function.device)).collect();
            for (host, device) in own.into_iter().chain(borrowed) {
                self.host(host).devices.insert(device);
            }
        }
    }

    fn add_all_devices(&mut self, host: usize) {
        let count = self.setup.hosts[host].devices.len();
        self.host(host).devices.extend(0..count);
    }

    /// The devices of a network device: those of a team's members, too.
    fn add_interface(&mut self, host: usize, interface: &InterfaceSetup) {
        let teams = self.setup.hosts[host].teams.iter().filter(|team| team.name == interface.name);
        let members: Vec<_> = teams.flat_map(|team| &team.members).map(|member| member.port).collect();
        for (host, device, _) in members.into_iter().chain([interface.port]) {
            self.host(host).devices.insert(device);
        }
    }

    /// The network devices through which a program reaches an address: that of the address's network, or all.
    fn add_way_to(&mut self, entry: &ProgramSetup, address: Ipv4Addr) {
        let host = &self.setup.hosts[entry.host];
        let interfaces = match entry.vm {
            Some(vm) => &host.vms[vm].interfaces,
            None => &host.interfaces,
        };
        let is_near = |interface: &&InterfaceSetup| {
            let network =
                |address: Ipv4Addr| u64::from(u32::from(address)) >> (32 - interface.prefix.min(32));
            network(interface.address) == network(address)
        };
        let near: Vec<_> = interfaces.iter().filter(is_near).collect();
        let ways = if near.is_empty() { interfaces.iter().collect() } else { near };
        ways.into_iter().for_each(|interface| self.add_interface(entry.host, interface));
    }

    /// Who has an address: its servers and its network device.
    fn add_peer(&mut self, serves: &[bool], address: Ipv4Addr) {
        for (host, described) in self.setup.hosts.iter().enumerate() {
            let guests = described.vms.iter().enumerate().map(|(vm, guest)| (Some(vm), &guest.interfaces));
            let all = guests.chain([(None, &described.interfaces)]);
            for (vm, interfaces) in all {
                let Some(interface) = interfaces.iter().find(|one| one.address == address) else { continue };
                self.add_interface(host, interface);
                let programs = self.setup.programs.iter().enumerate().zip(serves);
                for ((number, program), _) in programs.filter(|(_, serves)| **serves) {
                    if (program.host, program.vm) == (host, vm) {
                        self.add_program(number, program);
                    }
                }
            }
        }
    }

    /// NICs at the other ends of cables that ask those in use to pause (IEEE 802.3, 31B).
    fn add_pausing(&mut self) {
        let pauses = |host: usize, device: usize| {
            self.setup.hosts[host].devices[device].kind.nic().is_some_and(|nic| nic.flow_control.is_some())
        };
        let is_used = |host, device| {
            self.hosts.get(&host).is_some_and(|own: &OfHost| own.devices.contains(&device))
                && pauses(host, device)
        };
        let mut found = Vec::new();
        for cable in &self.setup.network.cables {
            let [PortSetup::Host(a, own, _), PortSetup::Host(b, other, _)] = cable.ends else { continue };
            for ((near, used), (far, peer)) in [((a, own), (b, other)), ((b, other), (a, own))] {
                if is_used(near, used) && pauses(far, peer) {
                    found.push((far, peer));
                }
            }
        }
        for (host, device) in found {
            if !self.hosts.contains_key(&host) {
                self.pausing.insert(host);
            }
            self.host(host).devices.insert(device);
        }
    }

    /// The adapters between borrowers and the lenders of devices in use.
    fn add_lenders(&mut self) {
        for borrow in &self.setup.cluster.borrows {
            let is_used = self
                .hosts
                .get(&borrow.lender)
                .is_some_and(|own| own.devices.contains(&borrow.function.device));
            if !is_used || !self.hosts.contains_key(&borrow.by) {
                continue;
            }
            for host in [borrow.lender, borrow.by] {
                let described = &self.setup.hosts[host];
                let adapters = (0..described.devices.len()).filter(|&n| adapter(described, n).is_some());
                self.host(host).devices.extend(adapters);
            }
        }
    }

    /// Switches above the devices, and their sockets.
    fn add_paths(&mut self) {
        let all = self.hosts.iter().flat_map(|(&host, own)| own.devices.iter().map(move |&n| (host, n)));
        let mut links: Vec<&LinkSetup> =
            all.flat_map(|(host, device)| &self.setup.hosts[host].devices[device].links).collect();
        while let Some(link) = links.pop() {
            links.extend(&link.others);
            match &link.slot {
                SlotSetup::Switch(switch, _) => {
                    self.host(link.host).switches.insert(*switch);
                    links.extend(&self.setup.hosts[link.host].switches[*switch].links);
                }
                SlotSetup::Root(slot) => {
                    let port = self.setup.hosts[link.host].machine.host.port.get(slot);
                    self.host(link.host).sockets.extend(port.map(|port| port.socket.value));
                }
            }
        }
    }

    /// Cores at which interrupts of the devices arrive, and the sockets of all cores.
    fn add_interrupts(&mut self, interrupts: &[InterruptCore]) {
        for interrupt in interrupts {
            let Some(own) = self.hosts.get_mut(&interrupt.host) else { continue };
            if self.pausing.contains(&interrupt.host) {
                continue;
            }
            let is_used = interrupt.device.is_none_or(|device| own.devices.contains(&device));
            if let Some(cores) = own.cores.as_mut().filter(|_| is_used) {
                cores.insert(interrupt.core);
            }
        }
        for (&host, own) in &mut self.hosts {
            let host = &self.setup.hosts[host].machine.host;
            match &own.cores {
                Some(cores) => {
                    let a_socket = host.core.count.value.get().max(1);
                    own.sockets.extend(cores.iter().map(|&core| u32::from(core) / a_socket));
                }
                None => own.sockets.extend(0..host.nodes()),
            }
        }
    }

    /// Whether a NIC is at the other end of a cable in use: it has the same wire.
    fn has_far_end(&self, host: usize, nic: &str) -> bool {
        let is_it = |end: &PortSetup| match *end {
            PortSetup::Host(at, device, _) if at == host => {
                super::reading::device_names(&self.setup.hosts[at])[device] == nic
            }
            _ => false,
        };
        let is_used = |end: &PortSetup| match *end {
            PortSetup::Host(at, device, _) => {
                self.hosts.get(&at).is_some_and(|own| own.devices.contains(&device))
            }
            _ => false,
        };
        let is_its = |[a, b]: &[PortSetup; 2]| is_it(a) && is_used(b) || is_it(b) && is_used(a);
        self.setup.network.cables.iter().any(|cable| is_its(&cable.ends))
    }

    /// Whether a resource of a host is part of it.
    pub fn has(&self, host: &str, resource: &Resource) -> bool {
        let number = self.setup.hosts.iter().position(|described| described.name == host);
        if resource.kind == Kind::Wire
            && number.is_some_and(|number| {
                self.has_far_end(number, resource.owner().split(':').next().unwrap_or_default())
            })
        {
            return true;
        }
        let Some((number, own)) = number.and_then(|number| Some((number, self.hosts.get(&number)?))) else {
            return false;
        };
        let of_reader = matches!(
            resource.kind,
            Kind::Core | Kind::Lines | Kind::Data | Kind::Invalidations | Kind::Ring | Kind::Moderation
        );
        if of_reader && self.pausing.contains(&number) {
            return false;
        }
        let described = &self.setup.hosts[number];
        let owner = resource.place.split(['/', ':']).next().unwrap_or_default();
        let numbered = |prefix: &str| owner.strip_prefix(prefix).and_then(|number| number.parse().ok());
        let sockets = |one: &str| one.strip_prefix("socket").and_then(|number| number.parse().ok());
        match resource.kind {
            Kind::Core | Kind::Lines | Kind::Data | Kind::Invalidations => own
                .cores
                .as_ref()
                .is_none_or(|cores| numbered("core").is_none_or(|core: u32| cores.contains(&(core as u16)))),
            Kind::Dram | Kind::Llc => numbered("socket").is_none_or(|socket| own.sockets.contains(&socket)),
            Kind::Lookups | Kind::Walkers | Kind::Translations => {
                numbered("iommu").is_none_or(|socket| own.sockets.contains(&socket))
            }
            Kind::Interconnect => {
                owner.split('-').filter_map(sockets).any(|socket| own.sockets.contains(&socket))
            }
            Kind::RootPort => true,
            Kind::Tags if owner == "root" => true,
            Kind::Ring => Self::has_ring(own, described, owner),
            _ => {
                let names = super::reading::device_names(described);
                let device = names.iter().position(|name| name == owner);
                let switch = described.switches.iter().position(|switch| switch.name == owner);
                device.is_some_and(|device| own.devices.contains(&device))
                    || switch.is_some_and(|switch| own.switches.contains(&switch))
            }
        }
    }

    /// Whether a network device of a host is above one of the devices in use, or a drive is one of them.
    fn has_ring(own: &OfHost, described: &HostSetup, name: &str) -> bool {
        let names = super::reading::device_names(described);
        if let Some(drive) = names.iter().position(|device| device == name) {
            return own.devices.contains(&drive);
        }
        let members = described.teams.iter().flat_map(|team| &team.members);
        let known = described.interfaces.iter().chain(members).find(|interface| interface.name == name);
        known.is_none_or(|interface| own.devices.contains(&interface.port.1))
    }
}

/// The IPv4 addresses in a command line.
pub(super) fn addresses(run: &str) -> impl Iterator<Item = Ipv4Addr> + '_ {
    run.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| word.parse().ok())
}
