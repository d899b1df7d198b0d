//! Hosts that run beside virtual machines: the simulation advances as far as it is told, with the scenario's programs and
//! events.

use std::rc::Rc;

use ::kernel::Kernel;
use engine::Simulation;
use hardware::Fabric;
use hardware::root::{HostId, OutsideMemory};
use machine::{ComputerSetup, HostSetup};
use platform::pci::PciDriver;
use units::Time;
use wire::pcie::FunctionAddress;

use super::checks::check_booted;
use super::events::Events;
use super::finished::{Ended, FinishedProgram};
use super::processes::Processes;
use super::programs::parse;
use crate::counters::{Moment, Window};
use crate::trace::Span;
use crate::trace::computers::{Observed, Watch};

use super::computers::Computers;
use super::device;
use super::error::ComputerError;
use super::reading::device_names;

/// A scenario's hosts while virtual machines run beside them.
pub struct Session<'a> {
    setup: &'a ComputerSetup,
    computers: Computers,
    events: Events<'a>,
    ended: Rc<Ended>,
    /// How many programs have been reported.
    told: usize,
    /// Counters at the beginning.
    began: Moment,
}

/// Boots a scenario's hosts, starts its programs and events, and lets `work` advance them. The hosts for which `drivers`
/// returns some have these instead of the usual ones.
///
/// # Errors
/// If the computers cannot be assembled or do not boot, or a command line is invalid.
pub fn in_session<R>(
    setup: &ComputerSetup,
    drivers: impl Fn(&HostSetup) -> Option<Vec<Rc<dyn PciDriver>>>,
    work: impl FnOnce(&mut Session<'_>) -> R,
) -> Result<R, ComputerError> {
    let programs = parse(setup)?;
    let own = |host: &HostSetup| drivers(host).unwrap_or_else(|| device::drivers(host));
    let computers = Computers::with_drivers(setup, own)?;
    computers.boot()?;
    check_booted(setup, &computers, &programs)?;
    let ended = Rc::new(Ended::default());
    let processes = Processes::start(setup, &programs, &computers, &ended);
    computers.generators().iter().for_each(|generator| generator.start(computers.simulation()));
    let events = Events::new(setup, &computers, processes, &ended)?;
    let began = computers.moment(setup);
    let mut session = Session { setup, computers, events, ended, told: 0, began };
    let done = work(&mut session);
    session.computers.finish_captures()?;
    Ok(done)
}

impl Session<'_> {
    /// Records the packets of the links of some slots, or of all.
    ///
    /// # Errors
    /// If a slot has no device; with those that have one.
    pub fn watch(&self, span: Span, slots: &[String]) -> Result<Watch, String> {
        Watch::new(&self.computers, self.setup, span, slots)
    }

    /// What was recorded.
    pub fn observed(&self, watch: Watch) -> Observed {
        watch.finish(&self.computers)
    }

    /// What all counters have counted since the beginning.
    pub fn counted(&self) -> Window {
        self.began.until(&self.computers.moment(self.setup))
    }

    /// The simulation.
    pub fn simulation(&self) -> &Simulation<Fabric> {
        self.computers.simulation()
    }

    /// The kernel of a host, in the scenario's order.
    pub fn kernel(&self, host: usize) -> Rc<Kernel> {
        Rc::clone(&self.computers.hosts()[host].kernel)
    }

    /// Gives a host's devices other memory than the host's own.
    pub fn use_memory(&self, host: usize, memory: Rc<dyn OutsideMemory>) {
        let id: HostId = self.computers.hosts()[host].host;
        self.simulation().with(|fabric, _| fabric.host_mut(id).use_outside_memory(memory));
    }

    /// Name of the device that has a function of a host.
    pub fn device_name(&self, host: usize, at: FunctionAddress) -> Option<String> {
        let device =
            self.computers.device_of(host, at).or_else(|| self.computers.device_of_virtual(host, at))?;
        device_names(&self.setup.hosts[host]).into_iter().nth(device)
    }

    /// Runs everything due at or before `time`, with the scenario's events.
    ///
    /// # Errors
    /// If a file with a drive's blocks has failed, or a host does not boot again.
    pub fn run_until(&mut self, time: Time) -> Result<(), ComputerError> {
        loop {
            self.events.happen(&mut self.computers)?;
            let (computers, events) = (&self.computers, &self.events);
            let stop = |fabric: &Fabric| events.are_due(computers, fabric) || computers.have_blocks_failed();
            let is_there = computers.simulation().run_until_unless(time, stop);
            computers.check_blocks()?;
            let are_due = || computers.simulation().with(|fabric, _| events.are_due(computers, fabric));
            if is_there && !are_due() {
                return Ok(());
            }
        }
    }

    /// Runs until a task has finished, and returns its output; `None` if it never will.
    pub fn complete<F: Future + 'static>(&self, task: F) -> Option<F::Output> {
        self.simulation().block_on(task).ok()
    }

    /// Tells programs and events that have ended since the last call.
    pub fn ended(&mut self, tell: impl FnMut(&FinishedProgram)) {
        let done = self.ended.done.borrow();
        done[self.told..].iter().for_each(tell);
        self.told = done.len();
    }
}
