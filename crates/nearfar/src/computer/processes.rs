//! The processes of a scenario's programs. A program that starts after its host has rebooted runs on the new kernel.

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use ::kernel::Kernel;
use engine::Seed;
use machine::{ComputerSetup, MemoryPolicy, ProgramPriority, ProgramSetup};
use platform::cpu::{CpuId, Node};
use platform::kernel::{Priority, TaskId, TaskParams};
use platform::memory::Policy;
use units::Time;
use workloads::{Environment, Failure, MeasuredSpan, Program};

use super::computers::Computers;
use super::finished::{Ended, FinishedProgram, Subject};
use super::host::Computer;
use super::rogue::Functions;

/// The first task of a program, and the kernel that it belongs to.
struct Process {
    kernel: Weak<Kernel>,
    task: TaskId,
}

/// The processes of all programs, in the scenario's order.
pub(super) struct Processes<'a> {
    setup: &'a ComputerSetup,
    programs: &'a [Rc<dyn Program>],
    /// From when on the programs' start times are counted.
    started: Time,
    all: Vec<Process>,
    ended: Rc<Ended>,
}

impl<'a> Processes<'a> {
    /// Starts all programs. Each reports to `ended`.
    pub fn start(
        setup: &'a ComputerSetup,
        programs: &'a [Rc<dyn Program>],
        computers: &Computers,
        ended: &Rc<Ended>,
    ) -> Self {
        let started = computers.simulation().now();
        let mut own = Self { setup, programs, started, all: Vec::new(), ended: Rc::clone(ended) };
        own.all = (0..programs.len()).map(|n| own.run(n, computers).expect("its guest has booted")).collect();
        own
    }

    /// Kernel and first task of a program; `None` if its kernel was stopped.
    pub fn of(&self, program: usize) -> Option<(Rc<Kernel>, TaskId)> {
        let Process { kernel, task } = &self.all[program];
        let kernel = kernel.upgrade().filter(|kernel| !kernel.is_halted())?;
        Some((kernel, *task))
    }

    /// Names of the devices that a program that runs has opened so far.
    pub fn opened(&self, program: usize) -> BTreeSet<String> {
        self.of(program).map_or_else(BTreeSet::new, |(kernel, task)| kernel.opened(Some(task)))
    }

    /// When a program starts.
    pub fn start_of(&self, program: usize) -> Time {
        self.started + self.setup.programs[program].start
    }

    /// Programs of a host itself that have not started yet.
    pub fn to_come(&self, host: usize, now: Time) -> Vec<usize> {
        let programs = self.setup.programs.iter().enumerate();
        let own = programs.filter(|(_, entry)| entry.host == host && entry.vm.is_none());
        own.map(|(n, _)| n).filter(|&n| now < self.start_of(n) && !self.has_ended(n)).collect()
    }

    /// Reports programs that match `such` and have started as stopped. A guest's end with it, since it is not started again.
    pub fn stop(&self, such: impl Fn(usize, &ProgramSetup) -> bool, now: Time, why: &str) {
        for (n, entry) in self.setup.programs.iter().enumerate().filter(|(n, entry)| such(*n, entry)) {
            let has_started = entry.vm.is_some() || self.start_of(n) <= now;
            if !has_started || self.has_ended(n) {
                continue;
            }
            let took = now.since(self.start_of(n).min(now));
            let (host, run) = (place(self.setup, entry), entry.run.value.clone());
            let why = (why, now.since(self.started));
            self.ended.tell(FinishedProgram::stopped(Subject::Program(n), host, run, took, why));
        }
    }

    /// Starts what has not run yet on a host that has booted again; what should have started meanwhile begins at once.
    pub fn start_again(&mut self, host: usize, computers: &Computers) {
        for (n, entry) in self.setup.programs.iter().enumerate() {
            let is_left = entry.host == host && entry.vm.is_none() && !self.has_ended(n);
            if is_left && let Some(process) = self.run(n, computers) {
                self.all[n] = process;
            }
        }
    }

    fn has_ended(&self, program: usize) -> bool {
        self.ended.has(Subject::Program(program))
    }

    /// Creates a program's task, which sleeps until the program starts. `None` if its guest does not run.
    fn run(&self, n: usize, computers: &Computers) -> Option<Process> {
        let entry = &self.setup.programs[n];
        let (at, host) = (self.start_of(n), &computers.hosts()[entry.host]);
        let kernel = host.kernel_of(entry.vm)?;
        let seed = Seed::new(self.setup.seed).part(&format!("program{n}")).get();
        let firmware = Rc::new(Functions::new(self.setup, computers, entry));
        let span = MeasuredSpan { marks: Rc::clone(&self.ended.marks), program: n };
        let environment =
            Environment { firmware: Some(firmware), span, ..environment(host, &kernel, entry, seed) };
        self.ended.so_far.borrow_mut().insert(n, environment.so_far.clone());
        let run = entry.run.value.clone();
        let name = entry.command.split_whitespace().next().unwrap_or_default();
        let policy = policy(entry.memory);
        let priority = match entry.priority {
            ProgramPriority::Idle => Priority::Idle,
            ProgramPriority::Nice(nice) => Priority::Nice(nice),
            ProgramPriority::RealTime(priority) => Priority::RealTime(priority),
        };
        let cpus = environment.cpus.clone();
        let params = TaskParams { cpus, policy, priority, ..TaskParams::named(name) };
        let place = place(self.setup, entry);
        let (program, ended) = (Rc::clone(&self.programs[n]), Rc::clone(&self.ended));
        let own = Rc::downgrade(&kernel);
        let task = kernel.spawn(params, move |cpu| {
            Box::pin(async move {
                if cpu.now() < at {
                    cpu.sleep_until(at).await;
                }
                let began: Time = cpu.now();
                let mut outcome = Rc::clone(&program).run(cpu.clone(), environment).await;
                if let Ok(report) = &mut outcome {
                    report.notes.extend(program.notes().iter().cloned());
                }
                cpu.sync().await;
                let took = cpu.now().since(began);
                if let Some(kernel) = own.upgrade() {
                    ended.opened.borrow_mut().insert(n, kernel.opened(None));
                }
                ended.tell(FinishedProgram::new(Subject::Program(n), place, run, took, outcome));
            })
        });
        Some(Process { kernel: Rc::downgrade(&kernel), task })
    }
}

/// Name of the host or guest that a program runs on, as in the scenario.
pub(super) fn place(setup: &ComputerSetup, entry: &ProgramSetup) -> String {
    let host = &setup.hosts[entry.host];
    match entry.vm {
        None => host.name.clone(),
        Some(vm) => format!("{}/{}", host.name, host.vms[vm].name),
    }
}

/// What the program of an entry gets: its kernel, a guest's or a namespace's if the entry says so, and its cores.
fn environment(host: &Computer, kernel: &Kernel, entry: &ProgramSetup, seed: u64) -> Environment {
    let kernel = match entry.vm {
        None => host.face(entry.namespace.as_ref().map(|name| name.value.as_str())),
        Some(_) => kernel.face(),
    };
    let cpus = match entry.cpus.is_empty() {
        true => (0..kernel.cpus()).map(CpuId).collect(),
        false => entry.cpus.iter().copied().map(CpuId).collect(),
    };
    let (so_far, span) = Default::default();
    Environment { kernel, cpus, seed, firmware: None, so_far, span }
}

/// Converts a scenario's memory policy.
pub(super) fn policy(memory: MemoryPolicy) -> Policy {
    match memory {
        MemoryPolicy::Local => Policy::Local,
        MemoryPolicy::Bind(node) => Policy::Bind(Node(node)),
        MemoryPolicy::Preferred(node) => Policy::Preferred(Node(node)),
        MemoryPolicy::Interleave => Policy::Interleave,
    }
}

/// Why nothing can be done to a program.
pub(super) fn has_ended() -> Failure {
    Failure("the program has ended".to_owned())
}
