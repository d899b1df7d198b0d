//! The devices in a host's slots.

use std::collections::BTreeSet;

use super::place::{LinkEntry, LinkSetup};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc::{Doc, Kindred, Listed};
use crate::drive::Drive;
use crate::figure::AnyFigure;
use crate::file_kind::FileKind;
use crate::gpu::Gpu;
use crate::library::Library;
use crate::nic::Nic;
use crate::ntb::Ntb;
use crate::part::{LinkCapability, Part};
use crate::placed::{Placed, Several};
use crate::read::{Check, Read, record};
use crate::scenario::Changes;
use crate::source::Place;
use files::Folder;
use units::Bytes;

record! {
    /// A device in a slot, of one of the kinds that have a key for their file.
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
        /// An NVMe drive: a name, or the path of a file. A device has exactly one key for its file.
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
            format!("give one of {}", DeviceFile::words()),
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

/// What a scenario needs to know of any device.
pub trait DeviceModel {
    /// Loads the file that the entry of a host's device names.
    ///
    /// # Errors
    /// If the file, a change or another key of the entry is wrong.
    fn load(
        library: &Library,
        name: &Placed<String>,
        entry: &DeviceEntry,
        at: DevicePlace<'_>,
    ) -> Result<Self, Diagnostics>
    where
        Self: Sized;

    /// Name of the model, from its file.
    fn name(&self) -> &str;

    /// What pictures call it.
    fn what(&self) -> &'static str;

    /// Capability of its port.
    fn link(&self) -> &LinkCapability;

    /// Maximum number of links.
    fn most_links(&self) -> u32 {
        1
    }

    /// Maximum lanes of one link, and of all links together.
    fn lanes(&self) -> (u32, u32) {
        let each = self.link().width.value.get();
        (each, each)
    }

    /// Calls `visit` for each of its figures, with the figure's path.
    fn visit(&self, visit: &mut dyn FnMut(&str, &dyn AnyFigure));

    /// All its figures.
    fn list(&self) -> Vec<Listed> {
        let mut all = Vec::new();
        self.visit(&mut |path, figure| all.push(Listed::of(path, figure)));
        all
    }
}

/// A device's place in a scenario.
#[derive(Debug, Clone, Copy)]
pub struct DevicePlace<'a> {
    /// Its host, by number and name.
    pub host: (usize, &'a str),
    /// Its number there.
    pub number: usize,
}

/// The kinds of devices, one line each: the key of the file in a scenario, its type, and what it becomes.
macro_rules! devices {
    ($($(#[$about:meta])* $key:ident: $variant:ident($model:ty) of $file:ty,)+) => {
        /// The kinds of their files.
        pub(crate) fn device_kinds() -> impl Iterator<Item = FileKind> {
            [$(FileKind::of::<$file>()),+].into_iter()
        }

        /// A device's file: one variant for each kind of device.
        #[derive(Debug, Clone)]
        pub enum DeviceFile {
            $($(#[$about])* $variant(Box<$model>),)+
        }

        impl DeviceFile {
            fn load(library: &Library, entry: &DeviceEntry, at: DevicePlace<'_>) -> Result<Self, Diagnostics> {
                $(if let Some(name) = &entry.$key {
                    return Ok(Self::$variant(Box::new(<$model>::load(library, name, entry, at)?)));
                })+
                unreachable!("the entry's check asks for one")
            }

            /// What the kinds have in common.
            pub fn model(&self) -> &dyn DeviceModel {
                match self {
                    $(Self::$variant(model) => &**model,)+
                }
            }

            $(
                #[doc = concat!("What the file of a `", stringify!($key), "` says; `None` for other kinds.")]
                pub fn $key(&self) -> Option<&$model> {
                    match self {
                        Self::$variant(model) => Some(&**model),
                        _ => None,
                    }
                }
            )+

            /// Its kind, as the key in scenarios.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($key),)+
                }
            }

            /// The keys of all kinds, for messages.
            fn words() -> String {
                let words = [$(concat!("`", stringify!($key), "`")),+];
                format!("{} and {}", words[..words.len() - 1].join(", "), words[words.len() - 1])
            }
        }

        impl DeviceEntry {
            /// The file reference for each kind of device.
            fn files(&self) -> impl IntoIterator<Item = &Option<Placed<String>>> {
                [$(&self.$key),+]
            }
        }
    };
}

devices! {
    /// A card with a DMA engine.
    card: Card(Part) of Part,
    /// An NVMe drive.
    drive: Drive(DriveSetup) of Drive,
    /// A NIC, which may have several PCIe and Ethernet ports.
    nic: Nic(Nic) of Nic,
    /// A GPU with its own memory.
    gpu: Gpu(Gpu) of Gpu,
    /// An NTB adapter.
    ntb: Ntb(Ntb) of Ntb,
}

/// Devices of which a scenario says nothing but their file.
macro_rules! plain_devices {
    ($($model:ty $(: $most:literal links)?;)+) => {$(
        impl DeviceModel for $model {
            fn load(
                library: &Library,
                name: &Placed<String>,
                entry: &DeviceEntry,
                _: DevicePlace<'_>,
            ) -> Result<Self, Diagnostics> {
                file(library, name, entry.change.as_ref())
            }

            fn name(&self) -> &str {
                &self.name
            }

            fn what(&self) -> &'static str {
                <$model>::LISTED
            }

            fn link(&self) -> &LinkCapability {
                &self.link
            }

            $(fn most_links(&self) -> u32 {
                $most
            })?

            fn visit(&self, visit: &mut dyn FnMut(&str, &dyn AnyFigure)) {
                self.figures("", visit);
            }
        }
    )+};
}

plain_devices! {
    // As many hosts as multi-host adapters support.
    Nic: 4 links;
    Gpu;
    Part;
    Ntb;
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

/// A block device that a drive's namespace is to a kernel, which gives it a name besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSetup {
    /// Name below `/dev/disk/by-id`, see [`settings::disk_id`].
    pub id: String,
    /// Capacity.
    pub size: Bytes,
    /// Block size.
    pub block: Bytes,
}

impl DiskSetup {
    /// Whether it is meant by a path below `/dev` that says its drive.
    pub fn is_at(&self, path: &str) -> bool {
        settings::is_disk(path, "", Some(&self.id))
    }
}

impl DriveSetup {
    /// Its block devices, one per namespace.
    pub fn disks(&self) -> impl Iterator<Item = DiskSetup> {
        let block = self.file.controller.block.value;
        (1..).zip(&self.namespaces).map(move |(number, &size)| DiskSetup {
            id: settings::disk_id(&self.serial, number),
            size,
            block,
        })
    }
}

impl DeviceModel for DriveSetup {
    fn load(
        library: &Library,
        name: &Placed<String>,
        entry: &DeviceEntry,
        at: DevicePlace<'_>,
    ) -> Result<Self, Diagnostics> {
        let file: Drive = file(library, name, entry.change.as_ref())?;
        let serial = serial(&file, entry, at);
        drive(file, entry, serial)
    }

    fn name(&self) -> &str {
        &self.file.name
    }

    fn what(&self) -> &'static str {
        "NVMe drive"
    }

    fn link(&self) -> &LinkCapability {
        &self.file.link
    }

    fn most_links(&self) -> u32 {
        self.file.controller.ports.value.get()
    }

    fn lanes(&self) -> (u32, u32) {
        let each = self.file.link.width.value.get();
        (each, each * self.most_links())
    }

    fn visit(&self, visit: &mut dyn FnMut(&str, &dyn AnyFigure)) {
        self.file.figures("", visit);
    }
}

impl DeviceEntry {
    /// The place of its file reference.
    pub(super) fn place(&self) -> &Place {
        let name = self.files().into_iter().flatten().next();
        &name.expect("the entry's check asks for one").place
    }
}

impl DeviceSetup {
    /// Loads the file of a host's device.
    pub(super) fn load(
        library: &Library,
        entry: &DeviceEntry,
        at: DevicePlace<'_>,
    ) -> Result<Self, Diagnostics> {
        let kind = DeviceFile::load(library, entry, at)?;
        let model = kind.model();
        let vfs = match &entry.vfs {
            Some(vfs) => virtual_functions(&kind, vfs)?,
            None => 0,
        };
        let ports = kind.nic().map_or(0, |nic| nic.controller.ports.value.get());
        let links = entry.links.as_ref().map_or(1, |links| links.value.len() as u32);
        if let Some(given) = entry.links.as_ref().filter(|_| links > model.most_links()) {
            let (name, most) = (model.name(), model.most_links());
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
        if let (Some(given), Some(nic)) = (&entry.links, kind.nic()) {
            let own = nic.virtual_functions.as_ref().map_or(0, |own| own.count.value.get());
            let functions = ports * links * (1 + own);
            if functions > 256 {
                let message = format!("{} would have {functions} functions", nic.name);
                return Err(
                    given.complaint(message, Some("at most 256; `change.virtual_functions.count`".into()))
                );
            }
        }
        let ports = crate::port::ports(entry.mac.as_ref(), entry.address.as_ref(), ports * links)?;
        let name = entry.name.as_ref().map(|name| name.value.clone());
        let is_plugged = entry.plugged.unwrap_or(true);
        Ok(Self { name, is_plugged, links: Vec::new(), kind, vfs, ports })
    }
}

fn virtual_functions(kind: &DeviceFile, vfs: &Placed<u32>) -> Result<u16, Diagnostics> {
    let own = kind.nic().and_then(|nic| nic.virtual_functions.as_ref());
    let most = own.map_or(0, |own| own.count.value.get());
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
fn serial(file: &Drive, entry: &DeviceEntry, at: DevicePlace<'_>) -> String {
    let DevicePlace { host: (host, host_name), number } = at;
    let named = entry.name.as_ref().map(|name| format!("{host_name}:{}", name.value));
    named
        .filter(|name| name.is_ascii() && name.len() <= SERIAL)
        .unwrap_or_else(|| format!("{:.12}-{host}-{number}", file.name.to_uppercase()))
}

/// Reports files used for two drives.
pub(super) fn shared_backings<'a>(
    devices: impl IntoIterator<Item = &'a DeviceSetup>,
    wrong: &mut Vec<Diagnostic>,
) {
    let mut seen = BTreeSet::new();
    for device in devices {
        let Some(backing) = device.kind.drive().and_then(|drive| drive.backing.as_ref()) else { continue };
        if !seen.insert(Folder::default().path(&backing.value)) {
            let message = format!("`{}` already holds the blocks of another drive", backing.value);
            wrong.push(Diagnostic::new(&backing.place, message).help("a file for each drive"));
        }
    }
}

/// Drives keep nothing: their blocks are in temporary files.
pub(super) fn keep_nothing<'a>(devices: impl IntoIterator<Item = &'a mut DeviceSetup>) {
    for device in devices {
        if let DeviceFile::Drive(drive) = &mut device.kind {
            drive.backing = None;
        }
    }
}

/// Loads the file `name` and applies changes.
pub(super) fn file<T: Kindred>(
    library: &Library,
    name: &Placed<String>,
    changes: Option<&Changes>,
) -> Result<T, Diagnostics> {
    let mut doc = Doc::<T>::load_at(library, &name.value, &name.place)?;
    for changed in changes.iter().flat_map(|changes| &changes.0) {
        doc.lay(changed)?;
    }
    doc.read()
}
