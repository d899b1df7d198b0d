//! What is in a host's slots.

use std::collections::BTreeSet;

use super::{HostEntry, HostSetup, file};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::drive::Drive;
use crate::host::Machine;
use crate::library::Library;
use crate::nic::Nic;
use crate::part::Part;
use crate::placed::{Placed, Several};
use crate::read::{Check, record};
use crate::scenario::Changes;
use crate::source::Place;
use units::Bytes;

record! {
    /// A device in a slot: one of `drive`, `nic` and `card`.
    pub struct DeviceEntry {
        /// The slot that it is in, or is like; the machine's first if not given. Each device has a link of its own.
        slot: Option<Placed<String>>,
        /// An NVMe drive: a name, or the path of a file.
        drive: Option<Placed<String>>,
        /// The slot of a drive's second port, by which it is reached as well; it has one port if not given.
        second_slot: Option<Placed<String>>,
        /// The host whose slot that is; the same one if not given.
        second_host: Option<Placed<String>>,
        /// The file that holds the drive's blocks, from the folder in which the program runs. It is made if there is
        /// none, stays after the run, and belongs to one run at a time. If not given, a temporary one.
        backing: Option<Placed<String>>,
        /// Bytes of each of the drive's namespaces, as an operator has made them; one of its whole capacity if not given.
        namespaces: Option<Placed<Several<Bytes>>>,
        /// A NIC: a name, or the path of a file.
        nic: Option<Placed<String>>,
        /// A card with a DMA engine: a name, or the path of a file.
        card: Option<Placed<String>>,
        /// Whether a drive's flash has been overwritten at random for long, wherever there are namespaces, so that it collects
        /// garbage; fresh if not given. What no namespace has is spare: a drive of few bytes has next to no garbage.
        worn_in: Option<Placed<bool>>,
        /// Virtual functions of each of a NIC's ports that are enabled; none if not given.
        vfs: Option<Placed<u32>>,
        /// IPv4 address of a NIC's port with its network's prefix, such as `10.1.2.3/24`, or a list with one for each port. If
        /// not given, device `n` of host `h`, counted from 0, gets 10.0.`n`.`h`+1.
        address: Option<Placed<Several<String>>>,
        /// Ethernet address of a NIC's port, such as `02:00:00:00:00:01`, or a list with one for each port.
        mac: Option<Placed<Several<String>>>,
        /// What to change in the device, as its file spells it.
        change: Option<Changes>,
    }
    check |entry: &DeviceEntry, check: &mut Check<'_>| {
        let kinds = [entry.drive.is_some(), entry.nic.is_some(), entry.card.is_some()];
        check.require(
            kinds.iter().filter(|&&there| there).count() == 1,
            "device",
            "a slot holds one device",
            "give one of `drive`, `nic` and `card`",
        );
        let for_drives = [
            ("backing", entry.backing.is_some()),
            ("namespaces", entry.namespaces.is_some()),
            ("second_slot", entry.second_slot.is_some()),
            ("worn_in", entry.worn_in.is_some()),
        ];
        for (key, given) in for_drives {
            let message = format!("`{key}` is for drives");
            check.require(!given || entry.drive.is_some(), key, message, "leave it out, or give a `drive`");
        }
        check.require(
            entry.second_host.is_none() || entry.second_slot.is_some(),
            "second_host",
            "it says whose slot `second_slot` is",
            "give both, or neither",
        );
    }
}

/// A device with its slot.
#[derive(Debug, Clone)]
pub struct DeviceSetup {
    /// The slot's name.
    pub slot: String,
    /// Where its second port leads: the number of the host, and its slot.
    pub second: Option<(usize, String)>,
    /// What it is.
    pub kind: DeviceFile,
    /// Virtual functions that are enabled, for each port.
    pub vfs: u16,
    /// What the scenario says of its Ethernet ports.
    pub ports: Vec<crate::port::PortAddress>,
}

/// A device's file: one variant for each kind of device.
#[derive(Debug, Clone)]
pub enum DeviceFile {
    /// An NVMe drive.
    Drive(Box<DriveSetup>),
    /// A NIC.
    Nic(Box<Nic>),
    /// A card with a DMA engine.
    Card(Box<Part>),
}

/// A drive as a scenario has it.
#[derive(Debug, Clone)]
pub struct DriveSetup {
    /// Its file, with the scenario's changes.
    pub file: Drive,
    /// The file that holds its blocks; a temporary one if there is none.
    pub backing: Option<Placed<String>>,
    /// Bytes of each namespace.
    pub namespaces: Vec<Bytes>,
    /// Its flash has been overwritten at random for long.
    pub worn_in: bool,
}

impl DeviceEntry {
    /// Where it names what it is.
    pub(super) fn place(&self) -> &Place {
        let name = self.drive.as_ref().or(self.nic.as_ref()).or(self.card.as_ref());
        &name.expect("the entry's check asks for one").place
    }
}

impl DeviceSetup {
    /// Reads the file that the entry names.
    pub(super) fn load(
        library: &Library,
        machine: &Machine,
        entry: &DeviceEntry,
    ) -> Result<Self, Diagnostics> {
        let slots = &machine.host.port;
        let slot = match &entry.slot {
            Some(slot) if slots.contains_key(&slot.value) => slot.value.clone(),
            Some(slot) => {
                let names = crate::suggest::list(slots.keys().map(String::as_str));
                let message = format!("{} has no slot `{}`", machine.name, slot.value);
                let diagnostic = Diagnostic::new(&slot.place, message).help(format!("its slots are {names}"));
                return Err(Diagnostics::new(vec![diagnostic]));
            }
            // A machine without slots does not read.
            None => slots.keys().next().cloned().unwrap_or_default(),
        };
        let changes = entry.change.as_ref();
        let kind = match (&entry.drive, &entry.nic, &entry.card) {
            (Some(name), ..) => DeviceFile::Drive(Box::new(drive(file(library, name, changes)?, entry)?)),
            (_, Some(name), _) => DeviceFile::Nic(Box::new(file(library, name, changes)?)),
            (.., Some(name)) => DeviceFile::Card(Box::new(file(library, name, changes)?)),
            (None, None, None) => unreachable!("the entry's check asks for one"),
        };
        let vfs = match &entry.vfs {
            Some(vfs) => virtual_functions(&kind, vfs)?,
            None => 0,
        };
        let ports = match &kind {
            DeviceFile::Nic(nic) => nic.controller.ports.value.get(),
            _ => 0,
        };
        let ports = crate::port::ports(entry, ports)?;
        Ok(Self { slot, second: None, kind, vfs, ports })
    }
}

fn virtual_functions(kind: &DeviceFile, vfs: &Placed<u32>) -> Result<u16, Diagnostics> {
    let most = match kind {
        DeviceFile::Nic(nic) => nic.virtual_functions.as_ref().map_or(0, |own| own.count.value.get()),
        _ => 0,
    };
    if vfs.value <= most {
        return Ok(vfs.value as u16);
    }
    let message = format!("it cannot have {} virtual functions", vfs.value);
    let help = match most {
        0 => "only a NIC whose file has a table `virtual_functions` can have any".to_owned(),
        most => format!("at most {most}"),
    };
    Err(vfs.complaint(message, Some(help)))
}

/// A drive with its namespaces, which its capacity must hold.
fn drive(file: Drive, entry: &DeviceEntry) -> Result<DriveSetup, Diagnostics> {
    let (capacity, block) = (file.controller.capacity.value, file.controller.block.value);
    let namespaces = match &entry.namespaces {
        None => vec![capacity],
        Some(given) => {
            let sizes = given.value.to_vec();
            let total = sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(size.get()));
            if total.is_none_or(|total| total > capacity.get()) {
                let message = format!("{} does not hold so much", file.name);
                return Err(given.complaint(message, Some(format!("{capacity} at most, all together"))));
            }
            if sizes.iter().any(|size| size.get() == 0 || size.get() % block.get() != 0) {
                let message = "a namespace consists of whole blocks";
                return Err(given.complaint(message, Some(format!("multiples of {block}"))));
            }
            // A controller of ours tells all of them in one list.
            if sizes.len() > 1024 {
                return Err(given.complaint("so many namespaces are not supported", Some("1 to 1024".into())));
            }
            sizes
        }
    };
    let worn_in = entry.worn_in.as_ref().is_some_and(|worn_in| worn_in.value);
    if let Some(given) = entry.worn_in.as_ref().filter(|_| worn_in && file.media.flash.is_none()) {
        let message = format!("{} has no flash that collects garbage", file.name);
        return Err(
            given.complaint(message, Some("only a drive whose file has a table `media.flash`".into()))
        );
    }
    Ok(DriveSetup { file, backing: entry.backing.clone(), namespaces, worn_in })
}

/// Finds the slots of drives' second ports.
pub(super) fn second_ports(entries: &[HostEntry], hosts: &mut [HostSetup], wrong: &mut Vec<Diagnostic>) {
    for (own, entry) in entries.iter().enumerate() {
        for (number, device) in entry.device.iter().enumerate() {
            let Some(slot) = &device.second_slot else { continue };
            let name = device.second_host.as_ref();
            let host = name.map_or(Some(own), |name| hosts.iter().position(|host| host.name == name.value));
            let Some(host) = host else {
                let place = name.map_or(&slot.place, |name| &name.place);
                let names = crate::suggest::list(hosts.iter().map(|host| host.name.as_str()));
                wrong
                    .push(Diagnostic::new(place, "there is no such host").help(format!("there are {names}")));
                continue;
            };
            let machine = &hosts[host].machine;
            if !machine.host.port.contains_key(&slot.value) {
                let names = crate::suggest::list(machine.host.port.keys().map(String::as_str));
                let message = format!("{} has no slot `{}`", machine.name, slot.value);
                wrong.push(Diagnostic::new(&slot.place, message).help(format!("its slots are {names}")));
            }
            let setup = &mut hosts[own].devices[number];
            if let DeviceFile::Drive(drive) = &setup.kind
                && drive.file.controller.ports.value.get() < 2
            {
                let message = format!("{} has one port", drive.file.name);
                let help = "a drive with two, such as `pm1725a-dual`, or `change.controller.ports`";
                wrong.push(Diagnostic::new(&slot.place, message).help(help));
            }
            setup.second = Some((host, slot.value.clone()));
        }
    }
}

/// Complains about files that hold the blocks of two drives.
pub(super) fn shared_backings(hosts: &[HostSetup], wrong: &mut Vec<Diagnostic>) {
    let mut seen = BTreeSet::new();
    for device in hosts.iter().flat_map(|host| &host.devices) {
        let DeviceFile::Drive(drive) = &device.kind else { continue };
        let Some(backing) = &drive.backing else { continue };
        if !seen.insert(&backing.value) {
            let message = format!("`{}` already holds the blocks of another drive", backing.value);
            wrong.push(Diagnostic::new(&backing.place, message).help("a file for each drive"));
        }
    }
}
