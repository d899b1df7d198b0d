//! What a host has counted so far.

use std::collections::BTreeMap;

use hardware::Fabric;
use machine::{DeviceFile, DeviceSetup, HostSetup};
use units::Time;

use super::host::Computer;
use crate::counters::{CountedDevice, CountedSwitch, Reading};
use crate::topology;

/// Names of a host's devices, as counters have them: what the scenario calls them, or their kind and a number.
pub(crate) fn device_names(host: &HostSetup) -> Vec<String> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let name = |device: &machine::DeviceSetup| {
        let kind = device.kind.kind();
        let number = numbers.entry(kind).or_default();
        *number += 1;
        device.name.clone().unwrap_or_else(|| format!("{kind}{}", *number - 1))
    };
    host.devices.iter().map(name).collect()
}

/// What a host has counted so far, with all kernels that it has had.
pub(super) fn reading(fabric: &Fabric, now: Time, host: &Computer, setup: &HostSetup) -> Reading {
    let names = device_names(setup);
    let handle = |endpoint| host.nics.iter().find(|(of, _)| *of == endpoint).map(|(_, handle)| handle);
    let places: Vec<CountedDevice<'_>> = names
        .iter()
        .zip(host.devices.iter().zip(&setup.devices))
        .map(|(name, (&endpoint, device))| {
            let nic = device.kind.nic().and_then(|nic| Some((handle(endpoint)?, nic)));
            let sends_at_wire_speed = match &device.kind {
                DeviceFile::Card(part) => topology::sends_at_wire_speed(part),
                _ => false,
            };
            CountedDevice { name, endpoint, nic, sends_at_wire_speed }
        })
        .collect();
    let switches = setup.switches.iter().zip(&host.switches);
    let switches: Vec<CountedSwitch<'_>> =
        switches.map(|(setup, &(_, uplink))| CountedSwitch { name: &setup.name, uplink }).collect();
    let mut reading = Reading::of_hardware(fabric, host.host, &places, &switches, now);
    reading.add_kernel(&host.kernel, now);
    for disk in host.kernel.block().devices() {
        let path = disk.lasting_name();
        let is_its = |device: &DeviceSetup| {
            device.kind.drive().is_some_and(|drive| drive.disks().any(|one| one.is_at(&path)))
        };
        // A borrowed drive is another host's.
        let own = setup.devices.iter().position(is_its);
        reading.add_disk(own.map_or(disk.name(), |device| &names[device]), &disk, now);
    }
    for (vm, setup) in host.vms().iter().zip(&setup.vms) {
        reading.add_vm(&setup.name, vm);
    }
    let with_nic = setup.vms.iter().filter(|vm| vm.nic.is_some());
    for (nic, vm) in host.vnics().iter().zip(with_nic) {
        reading.add_virtual_nic(&vm.name, nic);
    }
    let with_disk = setup.vms.iter().filter(|vm| vm.disk.is_some());
    for (disk, vm) in host.vdisks().iter().zip(with_disk) {
        reading.add_virtual_disk(&vm.name, disk);
    }
    if let Some(manager) = host.manager() {
        reading.add_scheduler(manager.done());
    }
    for (name, network) in host.uplinks() {
        reading.add_uplink(&name, &network);
    }
    reading.include(&host.earlier.counts);
    reading
}
