//! Resolves the names that a scenario gives to hosts, virtual machines, devices, their functions and network devices.

use crate::computer::{DeviceSetup, HostSetup, InterfaceSetup, PassedSetup};
use crate::suggest;

/// Why a name is nobody's, and what there is.
pub(crate) type NotFound = (String, String);

/// Index of the host called `name`.
pub(crate) fn host(hosts: &[HostSetup], name: &str) -> Result<usize, NotFound> {
    hosts.iter().position(|host| host.name == name).ok_or_else(|| {
        let help = suggest::among(name, hosts.iter().map(|host| host.name.as_str()), "the hosts are");
        (format!("there is no host `{name}`"), help)
    })
}

/// A host, or a virtual machine of one as in `a/x`: indices of both.
pub(crate) fn place(hosts: &[HostSetup], name: &str) -> Result<(usize, Option<usize>), NotFound> {
    let (of, guest) = name.split_once('/').map_or((name, None), |(of, guest)| (of, Some(guest)));
    let number = host(hosts, of)?;
    Ok((number, guest.map(|guest| vm(&hosts[number], guest)).transpose()?))
}

/// Index of a host's virtual machine.
pub(crate) fn vm(host: &HostSetup, name: &str) -> Result<usize, NotFound> {
    host.vms.iter().position(|vm| vm.name == name).ok_or_else(|| {
        let names = || host.vms.iter().map(|vm| vm.name.as_str());
        let help = match names().next() {
            None => "give the host a `[[host.vm]]`".to_owned(),
            Some(_) => suggest::among(name, names(), "there are"),
        };
        (format!("host `{}` has no virtual machine `{name}`", host.name), help)
    })
}

/// Takes `a:what` apart: index of the host, and what it is to have.
pub(crate) fn on_host<'t>(
    hosts: &[HostSetup],
    text: &'t str,
    such_as: &str,
) -> Result<(usize, &'t str), NotFound> {
    let Some((of, name)) = text.split_once(':') else {
        let names = suggest::list(hosts.iter().map(|host| host.name.as_str()));
        let help = format!("`{such_as}`; the hosts are {names}");
        return Err((format!("`{text}` does not say on which host"), help));
    };
    Ok((host(hosts, of)?, name))
}

/// Index of a host's device.
pub(crate) fn device(host: &HostSetup, name: &str) -> Result<usize, NotFound> {
    find_device(host, name)
        .ok_or_else(|| no_device(name, host.devices.iter().filter_map(|d| d.name.as_deref())))
}

/// As [`device`], without a reason.
pub(crate) fn find_device(host: &HostSetup, name: &str) -> Option<usize> {
    host.devices.iter().position(|device| device.name.as_deref() == Some(name))
}

/// That no device has a name, beside those that some have.
pub(crate) fn no_device<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> NotFound {
    let help = match known.clone().next() {
        None => "give a `[[host.device]]` a `name`".to_owned(),
        Some(_) => suggest::among(name, known, "there are") + "; other devices need a `name`",
    };
    (format!("there is no device `{name}`"), help)
}

/// A host's device, `nic`, or one of its virtual functions, `nic:vf0`, that can go to another kernel.
pub(crate) fn function(host: &HostSetup, text: &str) -> Result<PassedSetup, NotFound> {
    let (name, vf) = text.split_once(':').map_or((text, None), |(name, vf)| (name, Some(vf)));
    let number = device(host, name)?;
    function_of(&host.devices[number], number, (name, vf))
}

/// Resolves `name` or `name:vf0` on the host's device `number`; else returns an error and its remedy.
pub(crate) fn function_of(
    device: &DeviceSetup,
    number: usize,
    (name, function): (&str, Option<&str>),
) -> Result<PassedSetup, NotFound> {
    let all = device.vfs * device.ports.len() as u16;
    let vf = function.map(|text| text.strip_prefix("vf").and_then(|n| n.parse().ok()).filter(|&n| n < all));
    let refused = |message: &str, help: String| Err((message.to_owned(), help));
    match vf {
        _ if device.links.len() != 1 => refused("it has several links", "a device with one".to_owned()),
        Some(None) if all == 0 => refused("it has no virtual functions", "give the NIC `vfs`".to_owned()),
        Some(None) => {
            let last = all - 1;
            refused("it has no such virtual function", format!("`{name}:vf0` to `{name}:vf{last}`"))
        }
        None if all > 0 => refused(
            "it has virtual functions, which hosts enable",
            format!("those, such as `{name}:vf0`, or a NIC without `vfs`"),
        ),
        vf => Ok(PassedSetup { device: number, vf: vf.flatten() }),
    }
}

/// Index of a network device.
pub(crate) fn interface(interfaces: &[InterfaceSetup], name: &str) -> Result<usize, NotFound> {
    interfaces.iter().position(|interface| interface.name == name).ok_or_else(|| {
        let help = match suggest::list(interfaces.iter().map(|interface| interface.name.as_str())) {
            names if names.is_empty() => "the host has none: add a `[[host.device]]` with `nic`".to_owned(),
            names => format!("the host's network devices are {names}"),
        };
        (format!("there is no network device `{name}`"), help)
    })
}
