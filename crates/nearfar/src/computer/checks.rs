//! What a scenario says of its kernels, checked when these have booted: command lines, and names that only kernels give.

use std::rc::Rc;

use ::kernel::NetDevice;
use machine::{ComputerSetup, Diagnostics, KernelDevices, KernelNet};
use workloads::{Disk, Program};

use super::computers::Computers;
use super::error::ComputerError;
use super::found;
use super::host::Computer;
use super::programs::{check_all, parse};

/// Checks all that a scenario says of its kernels, which boot for it.
///
/// # Errors
/// Everything wrong with it, or why the hosts do not boot.
pub fn check(setup: &ComputerSetup) -> Result<(), ComputerError> {
    checked(setup).map(drop)
}

/// As [`check`]: the hosts, which have booted.
///
/// # Errors
/// As there.
pub(super) fn checked(setup: &ComputerSetup) -> Result<Computers, ComputerError> {
    let setup = &setup.without_files();
    let programs = parse(setup)?;
    let computers = booted(setup)?;
    check_booted(setup, &computers, &programs)?;
    Ok(computers)
}

/// As [`check`], when the hosts have booted.
///
/// # Errors
/// Everything wrong with it.
pub(super) fn check_booted(
    setup: &ComputerSetup,
    computers: &Computers,
    programs: &[Rc<dyn Program>],
) -> Result<(), ComputerError> {
    let kernel = |(host, vm): (usize, Option<usize>)| computers.hosts()[host].kernel_of(vm);
    let wrong = [check_all(setup, kernel, programs), check_names(setup, computers)];
    match Diagnostics::together(wrong.into_iter().filter_map(Result::err)) {
        Some(wrong) => Err(wrong.into()),
        None => Ok(()),
    }
}

/// Checks the names in events that only kernels give.
fn check_names(setup: &ComputerSetup, computers: &Computers) -> Result<(), Diagnostics> {
    let of_host = |(number, host): (usize, &Computer)| {
        let net = |device: &Rc<NetDevice>| KernelNet {
            name: device.name().to_owned(),
            max_mtu: device.limits().max_mtu,
            rx_queues: device.limits().rx_queues,
        };
        let disks = found::disks(setup, Some(&host.kernel), (number, None));
        KernelDevices {
            nets: host.kernel.net().devices().iter().map(net).collect(),
            awaits_drives: disks.iter().any(|disk| disk.name.is_none()),
            disks: disks.into_iter().filter_map(|disk| Some((disk.name?, disk.id))).collect(),
        }
    };
    setup.check_kernel_names(&computers.hosts().iter().enumerate().map(of_host).collect::<Vec<_>>())
}

/// The block devices of a host or guest, after a boot for it.
///
/// # Errors
/// If the computers cannot be assembled or do not boot.
pub(crate) fn disks_of(
    setup: &ComputerSetup,
    place: (usize, Option<usize>),
) -> Result<Vec<Disk>, ComputerError> {
    let computers = booted(setup)?;
    Ok(found::disks(setup, computers.hosts()[place.0].kernel_of(place.1).as_deref(), place))
}

/// A scenario's hosts without its programs.
fn booted(setup: &ComputerSetup) -> Result<Computers, ComputerError> {
    let computers = Computers::new(setup)?;
    computers.boot()?;
    Ok(computers)
}
