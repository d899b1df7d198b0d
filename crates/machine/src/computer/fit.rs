//! Checks drivers' settings against a host's devices. A driver is loaded once for all devices of a host, so a setting
//! is valid if one of them supports it.

use super::entry::HostEntry;
use super::setup::HostSetup;
use super::slot::links_found;
use crate::cluster::ClusterSetup;
use crate::diagnostic::Diagnostic;
use crate::drive::Drive;
use crate::kpio::KpioSelect;
use crate::nic::Nic;
use crate::nic_driver::NicDriverEntry;
use crate::nvme_driver::NvmeDriverEntry;
use crate::placed::Placed;

/// Reports settings that no device of the host supports.
pub(super) fn check(
    entry: &HostEntry,
    (hosts, number): (&[HostSetup], usize),
    cluster: &ClusterSetup,
    wrong: &mut Vec<Diagnostic>,
) {
    let host = &hosts[number];
    if let Some(driver) = &entry.nic_driver {
        check_nics(driver, host, wrong);
    }
    if let Some(driver) = &entry.nvme_driver {
        // A drive of another host may have a port here, or be lent.
        let borrowed = cluster.borrows.iter().filter(|borrow| borrow.is_by_host(number));
        let borrowed = borrowed.map(|borrow| (borrow.lender, borrow.function.device));
        let mut others =
            links_found(hosts, number).into_iter().map(|at| (at.host, at.device)).chain(borrowed);
        let is_drive =
            |(of, device): (usize, usize)| of != number && hosts[of].devices[device].kind.drive().is_some();
        check_drives(driver, host, others.any(is_drive), wrong);
    }
}

/// Adds an error about a value, with a remedy.
fn complain<T>(wrong: &mut Vec<Diagnostic>, given: &Placed<T>, message: String, help: impl Into<String>) {
    wrong.push(Diagnostic::new(&given.place, message).help(help));
}

fn check_nics(driver: &Placed<NicDriverEntry>, host: &HostSetup, wrong: &mut Vec<Diagnostic>) {
    let nics: Vec<&Nic> = host.devices.iter().filter_map(|device| device.kind.nic()).collect();
    let name = &host.name;
    if nics.is_empty() {
        let help = "leave `nic_driver` out, or add a `[[host.device]]` with `nic`";
        return complain(wrong, driver, format!("host `{name}` has no NIC"), help);
    }
    if let Some(given) = driver.user_space.as_ref().filter(|given| given.value)
        && host.vms.iter().any(|vm| vm.nic.is_some())
    {
        let what = "an `uplink` of its virtual machines";
        let message = format!("`user_space`: the kernel of host `{name}` needs its NICs for {what}");
        complain(wrong, given, message, "leave `user_space` out");
    }
    let most = nics.iter().map(|nic| most_channels(nic, host.cores())).max().unwrap_or(1);
    if let Some(channels) = driver.channels.as_ref().filter(|channels| channels.value.get() > most) {
        let message = format!("`channels`: no NIC of host `{name}` gets {} pairs of queues", channels.value);
        let help = format!("1 to {most}: as many as it has queues and interrupts, and the host cores");
        complain(wrong, channels, message, help);
    }
    let can = |has: fn(&Nic) -> bool| nics.iter().any(|nic| has(nic));
    if let Some(given) =
        driver.multi_pf.as_ref().filter(|given| given.value && !can(Nic::functions_are_one_station))
    {
        let message =
            format!("`multi_pf`: no NIC of host `{name}` has functions with one address and flow rules");
        complain(wrong, given, message, "a card such as `connectx4-octo`");
    }
    if let Some(rss) = &driver.rss {
        check_rss(rss, driver.channels.as_ref().map_or(most, |own| own.value.get().min(most)), &nics, wrong);
    }
    let has_kpio: fn(&Nic) -> bool = |nic| nic.kpio.is_some();
    if let Some(kpio) = driver.kpio.as_ref().filter(|kpio| kpio.value != KpioSelect::Off && !can(has_kpio)) {
        let message = format!("no NIC of host `{name}` has queues for programmed I/O");
        let help = "a NIC whose file has a table `[kpio]`, such as `kpio-fpga`, or `kpio = \"off\"`";
        complain(wrong, kpio, message, help);
    }
    if let Some(held) = driver.held_up_to.as_ref().filter(|_| !can(has_kpio)) {
        let message =
            format!("`held_up_to`: no NIC of host `{name}` keeps received frames for the core to fetch");
        complain(wrong, held, message, "a NIC whose file has a table `[kpio]`, such as `kpio-fpga`");
    }
    let has_inline: fn(&Nic) -> bool =
        |nic| nic.controller.inline.as_ref().is_some_and(|inline| inline.value);
    if let Some(inline) = driver.inline_up_to.as_ref().filter(|_| !can(has_inline)) {
        let message = format!("`inline_up_to`: no NIC of host `{name}` takes packets inside descriptors");
        complain(wrong, inline, message, "a NIC with `controller.inline`, which `change` can give it");
    }
}

/// Checks that the receive queues of `rss` exist and fit into the table.
fn check_rss(rss: &Placed<crate::Several<u32>>, channels: u32, nics: &[&Nic], wrong: &mut Vec<Diagnostic>) {
    if let Some(queue) = rss.value.iter().find(|&&queue| queue >= channels) {
        let message = format!("`rss`: there is no receiving queue {queue}");
        complain(wrong, rss, message, format!("0 to {}", channels - 1));
    }
    let entries = nics.iter().map(|nic| nic.controller.rss_entries.value.get()).max().unwrap_or(0);
    if rss.value.len() > entries as usize {
        let message = format!("`rss`: {} queues for a table of {entries} entries", rss.value.len());
        complain(wrong, rss, message, format!("at most {entries}"));
    }
}

/// Maximum pairs of queues of a NIC on a number of cores: each needs an interrupt, and one more is for events.
fn most_channels(nic: &Nic, cores: u32) -> u32 {
    let controller = &nic.controller;
    let queues = controller.tx_queues.value.get().min(controller.rx_queues.value.get());
    queues.min(controller.vectors.value.get().saturating_sub(1)).min(cores)
}

fn check_drives(
    driver: &Placed<NvmeDriverEntry>,
    host: &HostSetup,
    has_others: bool,
    wrong: &mut Vec<Diagnostic>,
) {
    let drives = host.devices.iter().filter_map(|device| device.kind.drive());
    let drives: Vec<&Drive> = drives.map(|drive| &drive.file).collect();
    let name = &host.name;
    if drives.is_empty() {
        if !has_others && !host.has_user_drives() {
            let help = "leave `nvme_driver` out, or add a `[[host.device]]` with `drive`";
            complain(wrong, driver, format!("host `{name}` has no drive"), help);
        }
        return;
    }
    let most = |of: fn(&Drive) -> u32| drives.iter().map(|drive| of(drive)).max().unwrap_or(0);
    let pairs = most(|drive| drive.controller.queue_pairs.value.get()).min(host.cores());
    if let Some(queues) = driver.queues.as_ref().filter(|queues| queues.value.get() > pairs) {
        let message = format!("`queues`: no drive of host `{name}` gets {} queue pairs", queues.value);
        complain(wrong, queues, message, format!("1 to {pairs}: as many as it has, and the host cores"));
    }
    let entries = most(|drive| drive.controller.queue_entries.value.get());
    if let Some(own) = driver.queue_entries.as_ref().filter(|own| own.value.get() > entries) {
        let message =
            format!("`queue_entries`: no drive of host `{name}` has queues of {} entries", own.value);
        complain(wrong, own, message, format!("2 to {entries}"));
    }
    let has_buffer = drives.iter().any(|drive| drive.controller.memory_buffer.is_some());
    if let Some(buffer) = driver.memory_buffer.as_ref().filter(|buffer| buffer.value && !has_buffer) {
        let message = format!("`memory_buffer`: no drive of host `{name}` has a controller memory buffer");
        let help = "`change.controller.memory_buffer = \"64 KiB\"` in its `[[host.device]]`, or `false`";
        complain(wrong, buffer, message, help);
    }
}
