//! Gathers from the kernels' logs what is lacking, and drivers that failed.

use ::kernel::Kernel;
use machine::{Action, ComputerSetup};
use platform::device::PortIndex;
use units::Time;

use super::computers::Computers;
use super::finished::{FinishedProgram, Warning};
use super::observer::Observer;
use super::passed::functions;

/// Gathers the kernels' warnings when the programs have ended.
pub(super) struct Warnings<'a> {
    setup: &'a ComputerSetup,
    started: Time,
    /// The warnings, by host.
    pub seen: Vec<Warning>,
    /// Events that plugged in a device to which no driver is bound, and why.
    unbound: Vec<(&'a str, String)>,
}

impl<'a> Warnings<'a> {
    pub fn new(setup: &'a ComputerSetup) -> Self {
        Self { setup, started: Time::ZERO, seen: Vec::new(), unbound: Vec::new() }
    }

    fn of(&mut self, host: String, kernel: &Kernel) {
        let warning = |(at, line): (Time, String)| {
            let at_ps = (at > self.started).then(|| at.since(self.started).as_ps());
            Warning { host: host.clone(), at_ps, line }
        };
        self.seen.extend(kernel.warnings().into_iter().map(warning));
    }

    /// Why no driver is bound to a device that an event plugged in; `None` if one is, or the kernel has not found it.
    fn unbound(&self, computers: &Computers, (host, device): (usize, usize)) -> Option<String> {
        let entry = &self.setup.hosts[host].devices[device];
        if entry.kind.card().is_some() {
            return None;
        }
        let id = computers.hosts()[host].devices[device];
        (0..).zip(&entry.links).find_map(|(port, link)| {
            let of = &computers.hosts()[link.host];
            let own = computers.simulation().with(|fabric, _| functions(fabric, id, PortIndex(port)));
            let all = of.kernel.pci();
            let is_own = |f: &&::kernel::FunctionInfo| f.segment.0 == 0 && own.contains(&f.bdf);
            let function = all.iter().filter(is_own).find(|function| function.driver.is_none())?;
            let about = format!("pci {}: ", function.bdf);
            let of_it = self.seen.iter().filter(|seen| seen.host == of.name);
            let why: Vec<&str> = of_it.filter_map(|seen| seen.line.strip_prefix(&about)).collect();
            Some(why.join("; "))
        })
    }

    /// Adds to the reports of events what came of them.
    pub fn explain(&self, done: &mut [FinishedProgram]) {
        for (event, why) in &self.unbound {
            let of = done.iter_mut().filter(|done| done.run == *event);
            for report in of.filter_map(|done| done.outcome.as_mut().ok()) {
                report.notes.push(match why.is_empty() {
                    true => "no driver is bound to it".to_owned(),
                    false => format!("no driver is bound to it: {why}"),
                });
            }
        }
    }
}

impl Observer for Warnings<'_> {
    fn booted(&mut self, computers: &Computers) {
        self.started = computers.simulation().now();
    }

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, computers: &Computers) {
        for (host, setup) in computers.hosts().iter().zip(&self.setup.hosts) {
            self.of(host.name.clone(), &host.kernel);
            for (vm, setup) in host.vms().iter().zip(&setup.vms) {
                self.of(format!("{}/{}", host.name, setup.name), &vm.kernel());
            }
        }
        let setup = self.setup;
        for event in &setup.events {
            if let Action::Device { device, present: true } = event.action
                && let Some(why) = self.unbound(computers, device)
            {
                self.unbound.push((&event.text, why));
            }
        }
    }
}
