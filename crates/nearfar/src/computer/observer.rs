//! What watches computers while programs run.

use std::collections::BTreeSet;

use units::Time;

use super::computers::Computers;

/// An observer of computers while programs run.
pub trait Observer {
    /// All hosts have booted; no program has started.
    fn booted(&mut self, computers: &Computers);
    /// Programs start, by their numbers in the scenario; not called for servers. Traffic sources follow after the
    /// programs.
    fn began(&mut self, _programs: &[usize], _computers: &Computers) {}
    /// Names of the devices that a program has opened; called before it is done.
    fn opened(&mut self, _program: usize, _devices: &BTreeSet<String>) {}
    /// A program ends to measure, when it had begun to within its run.
    fn measured(&mut self, _program: usize, _computers: &Computers) {}
    /// The programs have ended.
    fn done(&mut self, _programs: &[usize], _computers: &Computers) {}
    /// Reads counters between events; returns when it wants to do so again. Called at that time, or earlier.
    fn look(&mut self, _computers: &Computers) -> Option<Time> {
        None
    }
    /// Whether to stop the run; called after each event.
    fn has_enough(&self) -> bool;
    /// The programs have ended, or the run was stopped.
    fn ended(&mut self, computers: &Computers);
}

/// Two observers; stops as soon as either wants to.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn booted(&mut self, computers: &Computers) {
        self.0.booted(computers);
        self.1.booted(computers);
    }

    fn began(&mut self, programs: &[usize], computers: &Computers) {
        self.0.began(programs, computers);
        self.1.began(programs, computers);
    }

    fn opened(&mut self, program: usize, devices: &BTreeSet<String>) {
        self.0.opened(program, devices);
        self.1.opened(program, devices);
    }

    fn measured(&mut self, program: usize, computers: &Computers) {
        self.0.measured(program, computers);
        self.1.measured(program, computers);
    }

    fn done(&mut self, programs: &[usize], computers: &Computers) {
        self.0.done(programs, computers);
        self.1.done(programs, computers);
    }

    fn look(&mut self, computers: &Computers) -> Option<Time> {
        let (one, other) = (self.0.look(computers), self.1.look(computers));
        one.into_iter().chain(other).min()
    }

    fn has_enough(&self) -> bool {
        self.0.has_enough() || self.1.has_enough()
    }

    fn ended(&mut self, computers: &Computers) {
        self.0.ended(computers);
        self.1.ended(computers);
    }
}
