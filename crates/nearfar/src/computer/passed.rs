//! Devices and functions that are passed through or lent.

use ::kernel::{FunctionInfo, Kernel};
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use machine::{HostSetup, PassedSetup};
use platform::device::{FunctionIndex, PortIndex};
use wire::pcie::{Bdf, FunctionAddress};

/// A passed-through or lent device or function.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Passed {
    /// The whole device.
    Device(EndpointId),
    /// A virtual function: device, index of the physical function, and number.
    Virtual(EndpointId, usize, u16),
}

impl Passed {
    pub fn new(host: &HostSetup, devices: &[EndpointId], PassedSetup { device, vf }: PassedSetup) -> Self {
        let each = host.devices[device].vfs.max(1);
        match vf {
            None => Self::Device(devices[device]),
            Some(n) => Self::Virtual(devices[device], usize::from(n / each), n % each),
        }
    }

    /// The device, and its first function there; `None` for a virtual one that is not enabled.
    pub fn function(self, fabric: &Fabric) -> Option<(EndpointId, FunctionIndex)> {
        match self {
            Self::Device(device) => Some((device, FunctionIndex(0))),
            Self::Virtual(device, physical, n) => {
                let registers = &fabric.endpoint(device).core.registers;
                let of = registers.physical_below(PortIndex(0)).nth(physical)?;
                registers.config(of).virtual_functions().filter(|all| all.has(n))?;
                Some((device, registers.virtual_functions(of).nth(usize::from(n))?))
            }
        }
    }

    /// Its functions that exist; a virtual one exists while enabled.
    pub fn functions(self, fabric: &Fabric) -> Vec<Bdf> {
        match self {
            Self::Device(device) => functions(fabric, device, PortIndex(0)),
            Self::Virtual(device, physical, n) => {
                let registers = &fabric.endpoint(device).core.registers;
                let of = registers.physical_below(PortIndex(0)).nth(physical);
                let found = of.and_then(|of| {
                    let all = registers.config(of).virtual_functions().filter(|all| all.has(n))?;
                    Some(all.id(registers.id(of), n))
                });
                found.into_iter().collect()
            }
        }
    }
}

/// Physical functions behind a device's link.
pub(super) fn functions(fabric: &Fabric, device: EndpointId, link: PortIndex) -> Vec<Bdf> {
    let registers = &fabric.endpoint(device).core.registers;
    registers.physical_below(link).map(|function| registers.id(function)).collect()
}

/// What to do about a function whose IOMMU group is in use for something else than `user`; `None` if it is alone in its group.
pub(super) fn help_with_group(kernel: &Kernel, at: FunctionAddress, user: &str) -> Option<String> {
    let others = kernel.group_of(at);
    let name =
        |other: &FunctionInfo| format!("{} ({})", other.address(), other.driver.unwrap_or("no driver"));
    let names: Vec<String> = others.iter().map(name).collect();
    (!others.is_empty()).then(|| {
        format!(
            "its IOMMU group also has {}; all devices of a group go to one {user}, and a switch with `access_control` \
             or a slot of its own gives a device a group of its own",
            names.join(", ")
        )
    })
}
