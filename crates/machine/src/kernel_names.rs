//! Names that only kernels give to devices, such as `nvme0n1`: a scenario may use them, and they are checked when the
//! kernels have booted.

use crate::computer::HostSetup;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::event::{Action, EventEntry, EventSetup, Setting};
use crate::placed::Placed;
use crate::setting::{NetSetting, cannot_be};
use crate::suggest;
use settings::is_disk;

/// The devices of a host's kernel.
#[derive(Debug, Clone, Default)]
pub struct KernelDevices {
    /// Network devices.
    pub nets: Vec<KernelNet>,
    /// Block devices: name, and name below `/dev/disk/by-id`, if it has one.
    pub disks: Vec<(String, Option<String>)>,
    /// Whether drives may appear later, under names that are not known yet.
    pub awaits_drives: bool,
}

/// A network device of a kernel.
#[derive(Debug, Clone)]
pub struct KernelNet {
    /// Name.
    pub name: String,
    /// Largest MTU.
    pub max_mtu: u16,
    /// RX queues that its driver uses.
    pub rx_queues: u16,
}

/// A name that a scenario uses of a host's kernel.
#[derive(Debug, Clone)]
pub struct KernelName {
    host: usize,
    name: String,
    /// The whole text in the scenario.
    said: Placed<String>,
    of: NamedDevice,
}

/// What it must be the name of.
#[derive(Debug, Clone)]
enum NamedDevice {
    Disk,
    /// A network or block device.
    WithInterrupts,
    /// A network device that can have a setting, whose value is written there.
    Net(NetSetting, Placed<String>),
}

impl KernelName {
    /// The name in an event.
    pub(crate) fn of_event((entry, event): (&EventEntry, &EventSetup)) -> Option<Self> {
        let (host, name, of) = match &event.action {
            Action::SetAffinity { host, device, .. } | Action::Mask { host, device, .. } => {
                (host, device, NamedDevice::WithInterrupts)
            }
            Action::Set(Setting::IoTimeout(host, name, _)) => (host, name, NamedDevice::Disk),
            Action::Set(Setting::Net(host, name, setting)) => {
                (host, name, NamedDevice::Net(setting.clone(), entry.value.clone()?))
            }
            _ => return None,
        };
        Some(Self { host: *host, name: name.clone(), said: entry.what.clone(), of })
    }

    /// What is wrong with it, if anything.
    fn fault(&self, host: &HostSetup, devices: &KernelDevices) -> Option<Diagnostic> {
        let name = self.name.as_str();
        let is_disk = devices.disks.iter().any(|(own, id)| is_disk(name, own, id.as_deref()));
        let may_be = is_disk || devices.awaits_drives && name.starts_with("nvme");
        let disks = devices.disks.iter().map(|(name, _)| name.as_str());
        let (place, message, help) = match &self.of {
            NamedDevice::Disk if !may_be => {
                let help = match disks.clone().next() {
                    Some(_) => format!("the host's block devices are {}", suggest::list(disks)),
                    None => "the host has no block device".to_owned(),
                };
                (&self.said.place, format!("there is no block device `{name}`"), help)
            }
            NamedDevice::WithInterrupts => {
                let members = host.teams.iter().flat_map(|team| &team.members);
                let nets = host.interfaces.iter().chain(members).map(|interface| interface.name.as_str());
                if may_be || nets.clone().any(|own| own == name) {
                    return None;
                }
                let all = nets.chain(disks);
                let help = match all.clone().next() {
                    Some(_) => suggest::among(name, all, "the host's are"),
                    None => "the host has no device with interrupts that has a name".to_owned(),
                };
                (&self.said.place, format!("there is no device `{name}`"), help)
            }
            NamedDevice::Net(setting, value) => {
                // One that comes later refuses what it cannot be itself.
                let net = devices.nets.iter().find(|net| net.name == name)?;
                let help = setting.check((net.max_mtu, net.rx_queues)).err()?;
                (&value.place, cannot_be(setting.name(), value), help)
            }
            NamedDevice::Disk => return None,
        };
        Some(Diagnostic::new(place, message).help(help))
    }
}

/// Checks the names that a scenario uses. `devices` are those of each host's kernel.
///
/// # Errors
/// All names that are wrong.
pub(crate) fn check(
    names: &[KernelName],
    hosts: &[HostSetup],
    devices: &[KernelDevices],
) -> Result<(), Diagnostics> {
    let fault = |name: &KernelName| name.fault(&hosts[name.host], &devices[name.host]);
    match names.iter().filter_map(fault).collect::<Vec<_>>() {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(Diagnostics::new(wrong)),
    }
}
