//! Hosts that are virtual machines with a real Linux: what a scenario can say of them, and what only that Linux can.

use super::entry::{ComputerScenario, HostEntry};
use super::setup::HostSetup;
use crate::diagnostic::Diagnostic;
use crate::event::Deed;
use crate::placed::Placed;

/// Takes from live hosts what their own Linux does, and reports what a scenario cannot ask of it.
pub(super) fn settle(scenario: &ComputerScenario, hosts: &mut [HostSetup], wrong: &mut Vec<Diagnostic>) {
    for (entry, host) in scenario.host.iter().zip(&mut *hosts).filter(|(_, host)| host.live) {
        // Its Linux names and starts them.
        host.interfaces.clear();
        for (place, key) in simulated_only(entry) {
            let message = format!("`{key}`: host `{}` is live, and its own Linux decides that", host.name);
            wrong.push(Diagnostic::new(place, message).help(format!("leave `{key}` or `live` out")));
        }
    }
    let named = |host: &Option<Placed<String>>| match host {
        Some(name) => hosts.iter().find(|host| host.name == name.value),
        None => hosts.first().filter(|_| hosts.len() == 1),
    };
    for program in &scenario.program {
        if let Some(host) = named(&program.host).filter(|host| host.live) {
            let message = format!("host `{}` is live: its own Linux starts its programs", host.name);
            let help = "run it in the guest, or leave `live` out";
            wrong.push(Diagnostic::new(&program.run.place, message).help(help));
        }
    }
    let is_live = |what: &str| {
        let name = what.split([':', '/']).next().unwrap_or(what);
        hosts.iter().any(|host| host.live && host.name == name)
    };
    for event in scenario.event.iter().filter(|event| OF_A_KERNEL.contains(&event.deed.value)) {
        if is_live(&event.what.value) {
            let message = format!("`{}` is of a live host, whose own Linux decides that", event.what.value);
            let help = "do it in the guest, or leave `live` out; links and devices can have events";
            wrong.push(Diagnostic::new(&event.what.place, message).help(help));
        }
    }
    for borrow in &scenario.borrow {
        if let Some(end) = [&borrow.by, &borrow.function].into_iter().find(|end| is_live(&end.value)) {
            let message = format!("`{}`: a live host neither lends nor borrows", end.value);
            let help = "lend between simulated hosts, or leave `live` out";
            wrong.push(Diagnostic::new(&end.place, message).help(help));
        }
    }
}

/// Events that a simulated kernel takes part in.
const OF_A_KERNEL: [Deed; 8] = [
    Deed::MoveTask,
    Deed::SetAffinity,
    Deed::Mask,
    Deed::Unmask,
    Deed::Contain,
    Deed::Crash,
    Deed::PowerOff,
    Deed::Reboot,
];

/// Keys of a host that concern a simulated kernel, with their places.
fn simulated_only(entry: &HostEntry) -> Vec<(&crate::source::Place, &'static str)> {
    let keys = [
        (entry.iommu.as_ref().map(|given| &given.place), "iommu"),
        (entry.nic_driver.as_ref().map(|given| &given.place), "nic_driver"),
        (entry.nvme_driver.as_ref().map(|given| &given.place), "nvme_driver"),
        (entry.team.first().map(|_| &entry.name.place), "team"),
        (entry.vm.first().map(|_| &entry.name.place), "vm"),
        (entry.route.first().map(|_| &entry.name.place), "route"),
    ];
    keys.into_iter().filter_map(|(place, key)| Some((place?, key))).collect()
}
