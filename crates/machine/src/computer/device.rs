//! The devices in a host's slots.

use std::collections::BTreeSet;

use super::slot::{LinkEntry, LinkSetup};
use super::{HostSetup, file};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::drive::Drive;
use crate::gpu::Gpu;
use crate::library::Library;
use crate::nic::Nic;
use crate::ntb::Ntb;
use crate::part::{LinkCapability, Part};
use crate::placed::{Placed, Several};
use crate::read::{Check, record};
use crate::scenario::Changes;
use crate::source::Place;
use files::Folder;
use units::Bytes;

record! {
    /// A device in a slot: one of `drive`, `nic`, `gpu`, `card` and `ntb`.
    pub struct DeviceEntry {
        /// Name, for references; unique on the host.
        name: Option<Placed<String>>,
        /// The slot; the machine's first free one that has its generation and lanes if not given. If none has, the one
        /// that carries most, with a warning.
        slot: Option<Placed<String>>,
        /// Its upstream links, if there are several: `links = [{ slot = "slot", lanes = 8 }, { slot = "slot-socket1",
        /// lanes = 8 }]`.
        links: Option<Placed<Vec<LinkEntry>>>,
        /// Whether it is in its slot when the host boots (the default); otherwise, an event plugs it in.
        plugged: Option<bool>,
        /// An NVMe drive: a name, or the path of a file. A device has exactly one of `drive`, `nic`, `gpu`, `card`
        /// and `ntb`.
        drive: Option<Placed<String>>,
        /// Removed: use `links`.
        second_slot: Option<Placed<String>>,
        /// Removed: use `links`.
        second_host: Option<Placed<String>>,
        /// File for the drive's blocks, below the scenario's folder or that of `--folder`. It is created if it does not
        /// exist, persists after the run, and can be used by one run at a time. Any other file is refused, unless its
        /// last line says that it holds a drive of this size. A temporary file if not given.
        backing: Option<Placed<String>>,
        /// Sizes of the drive's namespaces in bytes; a single one with the whole capacity if not given.
        namespaces: Option<Placed<Several<Bytes>>>,
        /// A NIC, like `drive`.
        nic: Option<Placed<String>>,
        /// A GPU, like `drive`.
        gpu: Option<Placed<String>>,
        /// A card with a DMA engine, like `drive`.
        card: Option<Placed<String>>,
        /// An NTB adapter, like `drive`.
        ntb: Option<Placed<String>>,
        /// Whether a drive's namespaces have been overwritten at random for long, so that its flash collects garbage;
        /// fresh if not given. Capacity outside namespaces is spare, so small namespaces cause almost no garbage
        /// collection.
        worn_in: Option<Placed<bool>>,
        /// Enabled virtual functions per port of a NIC; none if not given.
        vfs: Option<Placed<u32>>,
        /// IPv4 address and prefix length of a NIC's port, such as `10.1.2.3/24`, or a list with one per port. If not
        /// given, device `n` of host `h`, counted from 0, gets 10.0.`n`.`h`+1.
        address: Option<Placed<Several<String>>>,
        /// MAC address of a NIC's port, such as `02:00:00:00:00:01`, or a list with one per port; generated if not
        /// given.
        mac: Option<Placed<Several<String>>>,
        /// Changes to the device, with the keys of its file.
        change: Option<Changes>,
    }
    check |entry: &DeviceEntry, check: &mut Check<'_>| {
        check.require(
            entry.files().into_iter().flatten().count() == 1,
            "device",
            "a slot holds one device",
            "give one of `drive`, `nic`, `gpu`, `card` and `ntb`",
        );
        let for_drives = [
            ("backing", entry.backing.is_some()),
            ("namespaces", entry.namespaces.is_some()),
            ("worn_in", entry.worn_in.is_some()),
        ];
        for (key, given) in for_drives {
            let message = format!("`{key}` is for drives");
            check.require(!given || entry.drive.is_some(), key, message, "leave it out, or give a `drive`");
        }
        for (key, given) in [("second_slot", &entry.second_slot), ("second_host", &entry.second_host)] {
            let help = "`links` has an entry for each port: `links = [{ slot = \"slot\" }, { host = \"b\", slot = \"slot\" }]`";
            check.require(given.is_none(), key, "this key is gone", help);
        }
        check.require(
            entry.links.is_none() || entry.slot.is_none(),
            "slot",
            "`links` says where the device is",
            "give one of `slot` and `links`",
        );
        check.require(
            entry.links.as_ref().is_none_or(|links| !links.value.is_empty()),
            "links",
            "a device has at least one link",
            "an entry such as `{ slot = \"slot\" }`",
        );
    }
}

/// A device and its slot.
#[derive(Debug, Clone)]
pub struct DeviceSetup {
    /// Name in the scenario, if something else refers to it.
    pub name: Option<String>,
    /// Whether it is in its slot when the host boots.
    pub is_plugged: bool,
    /// Its upstream links, port 0 first.
    pub links: Vec<LinkSetup>,
    /// What its file says, with the scenario's changes.
    pub kind: DeviceFile,
    /// Enabled virtual functions per port.
    pub vfs: u16,
    /// Addresses of its network functions: one per Ethernet port of the first link, then those of the next link.
    pub ports: Vec<crate::port::PortAddress>,
}

/// A device's file: one variant for each kind of device.
#[derive(Debug, Clone)]
pub enum DeviceFile {
    /// An NVMe drive.
    Drive(Box<DriveSetup>),
    /// A NIC, which may have several PCIe and Ethernet ports.
    Nic(Box<Nic>),
    /// A GPU with its own memory.
    Gpu(Box<Gpu>),
    /// A card with a DMA engine.
    Card(Box<Part>),
    /// An NTB adapter.
    Ntb(Box<Ntb>),
}

/// A drive of a scenario.
#[derive(Debug, Clone)]
pub struct DriveSetup {
    /// Its file, with the scenario's changes.
    pub file: Drive,
    /// File for its blocks; a temporary one if `None`.
    pub backing: Option<Placed<String>>,
    /// Sizes of the namespaces.
    pub namespaces: Vec<Bytes>,
    /// Serial number, at most 20 characters.
    pub serial: String,
    /// Whether its flash has been overwritten at random for long.
    pub worn_in: bool,
}

impl DeviceFile {
    /// Name of the device's model, from its file.
    pub fn name(&self) -> &str {
        match self {
            Self::Drive(drive) => &drive.file.name,
            Self::Nic(nic) => &nic.name,
            Self::Gpu(gpu) => &gpu.name,
            Self::Card(part) => &part.name,
            Self::Ntb(ntb) => &ntb.name,
        }
    }

    /// Its kind, as the key in scenarios.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Drive(_) => "drive",
            Self::Nic(_) => "nic",
            Self::Gpu(_) => "gpu",
            Self::Card(_) => "card",
            Self::Ntb(_) => "ntb",
        }
    }

    /// Capability of its port.
    pub fn link(&self) -> &LinkCapability {
        match self {
            Self::Drive(drive) => &drive.file.link,
            Self::Nic(nic) => &nic.link,
            Self::Gpu(gpu) => &gpu.link,
            Self::Card(part) => &part.link,
            Self::Ntb(ntb) => &ntb.link,
        }
    }

    /// Maximum number of links.
    fn most_links(&self) -> u32 {
        match self {
            Self::Drive(drive) => drive.file.controller.ports.value.get(),
            // As many hosts as multi-host adapters support.
            Self::Nic(_) => 4,
            Self::Gpu(_) | Self::Card(_) | Self::Ntb(_) => 1,
        }
    }

    /// Maximum lanes of one link, and of all links together.
    pub(super) fn lanes(&self) -> (u32, u32) {
        let each = self.link().width.value.get();
        match self {
            Self::Drive(drive) => (each, each * drive.file.controller.ports.value.get()),
            _ => (each, each),
        }
    }
}

impl DeviceEntry {
    /// The file reference for each kind of device.
    fn files(&self) -> [&Option<Placed<String>>; 5] {
        [&self.drive, &self.nic, &self.gpu, &self.card, &self.ntb]
    }

    /// The place of its file reference.
    pub(super) fn place(&self) -> &Place {
        let name = self.files().into_iter().flatten().next();
        &name.expect("the entry's check asks for one").place
    }
}

impl DeviceSetup {
    /// Loads the file of a host's device `number`. The host is given by number and name.
    pub(super) fn load(
        library: &Library,
        entry: &DeviceEntry,
        host: (usize, &str),
        number: usize,
    ) -> Result<Self, Diagnostics> {
        let changes = entry.change.as_ref();
        let kind = match (&entry.drive, &entry.nic, &entry.gpu, &entry.card, &entry.ntb) {
            (Some(name), ..) => {
                let file: Drive = file(library, name, changes)?;
                let serial = serial(&file, entry, host, number);
                DeviceFile::Drive(Box::new(drive(file, entry, serial)?))
            }
            (_, Some(name), ..) => DeviceFile::Nic(Box::new(file(library, name, changes)?)),
            (_, _, Some(name), ..) => DeviceFile::Gpu(Box::new(file(library, name, changes)?)),
            (.., Some(name), _) => DeviceFile::Card(Box::new(file(library, name, changes)?)),
            (.., Some(name)) => DeviceFile::Ntb(Box::new(file(library, name, changes)?)),
            (None, None, None, None, None) => unreachable!("the entry's check asks for one"),
        };
        let vfs = match &entry.vfs {
            Some(vfs) => virtual_functions(&kind, vfs)?,
            None => 0,
        };
        let ports = match &kind {
            DeviceFile::Nic(nic) => nic.controller.ports.value.get(),
            _ => 0,
        };
        let links = entry.links.as_ref().map_or(1, |links| links.value.len() as u32);
        if let Some(given) = entry.links.as_ref().filter(|_| links > kind.most_links()) {
            let (name, most) = (kind.name(), kind.most_links());
            let message = match most {
                1 => format!("{name} has one port"),
                most => format!("{name} has at most {most} ports"),
            };
            let help = match kind {
                DeviceFile::Drive(_) => {
                    "a drive with more, such as `pm1725a-dual`, or `change.controller.ports`".into()
                }
                _ => format!("{most} links at most"),
            };
            return Err(given.complaint(message, Some(help)));
        }
        if let (Some(given), DeviceFile::Nic(nic)) = (&entry.links, &kind) {
            let own = nic.virtual_functions.as_ref().map_or(0, |own| own.count.value.get());
            let functions = ports * links * (1 + own);
            if functions > 256 {
                let message = format!("{} would have {functions} functions", nic.name);
                return Err(
                    given.complaint(message, Some("at most 256; `change.virtual_functions.count`".into()))
                );
            }
        }
        let ports = crate::port::ports(entry, ports * links)?;
        let name = entry.name.as_ref().map(|name| name.value.clone());
        let is_plugged = entry.plugged.unwrap_or(true);
        Ok(Self { name, is_plugged, links: Vec::new(), kind, vfs, ports })
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

/// Creates a drive and checks that its capacity holds the namespaces.
fn drive(file: Drive, entry: &DeviceEntry, serial: String) -> Result<DriveSetup, Diagnostics> {
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
            // The simulated controller lists all of them in one list.
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
    Ok(DriveSetup { file, backing: entry.backing.clone(), namespaces, serial, worn_in })
}

/// Characters of a serial number (NVM Express Base 1.4, 5.15.2.2).
const SERIAL: usize = 20;

/// Serial number of a host's device `number`. No two drives have the same, as it is part of their subsystem's name. A
/// drive with a name has it as its number, `b:ssd`, so that programs can tell drives apart whenever they appear.
fn serial(file: &Drive, entry: &DeviceEntry, (host, host_name): (usize, &str), number: usize) -> String {
    let named = entry.name.as_ref().map(|name| format!("{host_name}:{}", name.value));
    named
        .filter(|name| name.is_ascii() && name.len() <= SERIAL)
        .unwrap_or_else(|| format!("{:.12}-{host}-{number}", file.name.to_uppercase()))
}

/// Reports files used for two drives.
pub(super) fn shared_backings(hosts: &[HostSetup], wrong: &mut Vec<Diagnostic>) {
    let mut seen = BTreeSet::new();
    for device in hosts.iter().flat_map(|host| &host.devices) {
        let DeviceFile::Drive(drive) = &device.kind else { continue };
        let Some(backing) = &drive.backing else { continue };
        if !seen.insert(Folder::default().path(&backing.value)) {
            let message = format!("`{}` already holds the blocks of another drive", backing.value);
            wrong.push(Diagnostic::new(&backing.place, message).help("a file for each drive"));
        }
    }
}
