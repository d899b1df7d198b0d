//! What a scenario says of a host, resolved: plain data that everything else reads.

use std::net::Ipv4Addr;
use std::ops::Range;

use super::device::DeviceSetup;
use super::hypervisor::HypervisorSetup;
use super::place::{LinkSetup, PassedSetup};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::host::Machine;
use crate::kernel::KernelFile;
use crate::network::PortSetup;
use crate::nic_driver::NicDriverEntry;
use crate::nvme_driver::NvmeDriverEntry;
use crate::pcie_switch::PcieSwitch;
use crate::placed::Placed;
use crate::source::Place;
use settings::{DmaMode, HashPolicy, TeamMode};
use units::Bytes;

/// A host of a scenario with the files that it refers to.
#[derive(Debug, Clone)]
pub struct HostSetup {
    /// Name in the scenario.
    pub name: String,
    /// The machine, with the scenario's changes.
    pub machine: Machine,
    /// The kernel, with the scenario's changes.
    pub kernel: KernelFile,
    /// Whether it is a virtual machine with a real Linux.
    pub live: bool,
    /// IOMMU mode of the kernel.
    pub iommu: DmaMode,
    /// Size of the IOMMU address range that each borrowed function can reach.
    pub dma_window: Bytes,
    /// Parameters of the NIC's driver.
    pub nic_driver: Option<NicDriverEntry>,
    /// Parameters of the NVMe driver.
    pub nvme_driver: Option<NvmeDriverEntry>,
    /// PCIe switches in its slots.
    pub switches: Vec<PcieSwitchSetup>,
    /// Devices in its slots.
    pub devices: Vec<DeviceSetup>,
    /// Stacked network devices.
    pub teams: Vec<TeamSetup>,
    /// Its virtual machines.
    pub vms: Vec<VmSetup>,
    /// Scheduling of the virtual machines, if any.
    pub hypervisor: Option<HypervisorSetup>,
    /// Routes beyond those to the networks of its own addresses.
    pub routes: Vec<RouteSetup>,
    /// Network devices that its kernel will find.
    pub interfaces: Vec<InterfaceSetup>,
    pub(super) place: Place,
}

impl HostSetup {
    /// Whether its NIC driver makes one network device of a card's functions.
    pub(super) fn combines(&self, nic: &crate::Nic) -> bool {
        let driver = self.nic_driver.as_ref().and_then(|driver| driver.multi_pf.as_ref());
        driver.is_some_and(|multi_pf| multi_pf.value) && nic.functions_are_one_station()
    }

    /// Whether a whole device is passed through to one of its virtual machines.
    pub fn passes(&self, device: usize) -> bool {
        self.passes_function(PassedSetup { device, vf: None })
    }

    /// Whether a device or one of its virtual functions is passed through.
    pub(crate) fn passes_function(&self, passed: PassedSetup) -> bool {
        self.vms.iter().any(|vm| vm.devices.contains(&passed))
    }

    /// Whether a device backs virtual NICs or virtual disks.
    pub fn serves_vms(&self, device: usize) -> bool {
        let uplink = |vm: &VmSetup| vm.nic.is_some_and(|nic| nic.uplink == device);
        self.vms.iter().any(|vm| uplink(vm) || vm.disk.as_ref().is_some_and(|disk| disk.drive == device))
    }

    /// Whether its IOMMU translates.
    pub fn translates(&self) -> bool {
        self.iommu.translates()
    }

    /// Whether its drives are reserved for programs.
    pub fn has_user_drives(&self) -> bool {
        self.nvme_driver.as_ref().is_some_and(|driver| driver.user_space == Some(true))
    }

    /// Whether its NICs are reserved for programs.
    pub fn has_user_nics(&self) -> bool {
        let given = self.nic_driver.as_ref().and_then(|driver| driver.user_space.as_ref());
        given.is_some_and(|given| given.value)
    }

    /// Number of cores that its kernel uses.
    pub fn cores(&self) -> u32 {
        let all = self.machine.host.sockets.value.get() * self.machine.host.core.count.value.get();
        self.kernel.scheduler.maxcpus.as_ref().map_or(all, |most| most.value.get().min(all))
    }

    /// The node of a core: sockets have the same number each, in order.
    pub fn node_of(&self, core: u16) -> u8 {
        (u32::from(core) / self.machine.host.core.count.value.get()) as u8
    }

    /// Size of the address range that a borrowed function reaches.
    pub fn reached_by_borrowed(&self) -> Bytes {
        match self.iommu {
            DmaMode::Strict | DmaMode::Lazy => self.dma_window,
            DmaMode::Off | DmaMode::PassThrough => self.machine.host.memory_end(),
        }
    }

    /// An error about this host, at its name in the scenario.
    pub fn complaint(&self, message: impl Into<String>, help: Option<String>) -> Diagnostics {
        let mut diagnostic = Diagnostic::new(&self.place, message);
        diagnostic.help = help;
        Diagnostics::new(vec![diagnostic])
    }
}

/// A PCIe switch of a host and its location.
#[derive(Debug, Clone)]
pub struct PcieSwitchSetup {
    /// Name in the scenario; its ports are `NAME:1` and so on.
    pub name: String,
    /// Its file, with the scenario's changes.
    pub file: PcieSwitch,
    /// Its upstream link; empty until its slot is resolved.
    pub links: Vec<LinkSetup>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceSetup {
    /// Name, such as `eth0`.
    pub name: String,
    /// Host of the device, index of the device on that host, and its Ethernet port.
    pub port: (usize, usize, u8),
    /// The upstream links through which it is reached: one, or those of all its functions.
    pub links: Vec<usize>,
    /// PCI segment in the kernel: 0 for the host's own fabric, others for borrowed devices.
    pub segment: u16,
    /// Whether it belongs to a virtual function or is a stacked device.
    pub is_virtual: bool,
    /// Whether it is the only device of a network namespace.
    pub alone: bool,
    /// IPv4 address: the scenario's, or the default that follows from the device's number.
    pub address: Ipv4Addr,
    /// Prefix length.
    pub prefix: u8,
}

/// A team with its members resolved.
#[derive(Debug, Clone)]
pub struct TeamSetup {
    /// Kernel name of the network device.
    pub name: String,
    /// How it uses its members.
    pub mode: TeamMode,
    /// What a channel hashes to choose the member that transmits.
    pub hash_policy: HashPolicy,
    /// Its members, which the host's programs do not see.
    pub members: Vec<InterfaceSetup>,
    /// Their Ethernet ports: the first one of each member's device.
    pub(super) ports: Vec<PortSetup>,
}

/// A virtual NIC, served through a NIC of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualNicSetup {
    /// Index of the uplink among the host's devices.
    pub uplink: usize,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Whether a program polls it.
    pub polled: bool,
    /// Its index among the guest's network devices.
    pub number: usize,
}

/// A virtual disk, kept in a part of a drive of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualDiskSetup {
    /// Index of the drive among the host's devices.
    pub drive: usize,
    /// Its range of bytes on the drive.
    pub part: Range<u64>,
}

/// A virtual machine and its placement.
#[derive(Debug, Clone)]
pub struct VmSetup {
    /// Name in the scenario.
    pub name: String,
    /// The host core of each vCPU.
    pub vcpus: Vec<u16>,
    /// Size of its memory.
    pub memory: Bytes,
    /// Node of its memory.
    pub node: u8,
    /// Devices passed through, in order of discovery.
    pub devices: Vec<PassedSetup>,
    /// The part of a host's drive that it gets as `/dev/vda`, if any.
    pub disk: Option<VirtualDiskSetup>,
    /// Network devices that its kernel will find.
    pub interfaces: Vec<InterfaceSetup>,
    /// Its virtual NIC, if it has an uplink.
    pub nic: Option<VirtualNicSetup>,
    /// Configured address of its first network device.
    pub(super) address: Option<(Ipv4Addr, u8)>,
    pub(super) place: Placed<String>,
}

impl VmSetup {
    /// Its virtual NIC and the corresponding network device.
    pub fn virtual_nic(&self) -> Option<(&VirtualNicSetup, &InterfaceSetup)> {
        let nic = self.nic.as_ref()?;
        Some((nic, self.interfaces.get(nic.number)?))
    }

    /// An error about this virtual machine, at its name in the scenario.
    pub fn complaint(
        &self,
        message: impl Into<String>,
        help: Option<String>,
    ) -> crate::diagnostic::Diagnostics {
        self.place.complaint(message, help)
    }
}

/// A route of a host, checked to lead somewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteSetup {
    /// The network and its prefix length.
    pub network: Placed<(Ipv4Addr, u8)>,
    /// The network device.
    pub device: Option<String>,
    /// The next hop.
    pub gateway: Option<Ipv4Addr>,
}
