//! Events of a scenario.
//!
//! An event happens between two simulation events: when its time has come, or when its counter is found to exceed the
//! given number.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use engine::Seed;
use hardware::Fabric;
use hardware::link::ErrorInjector;
use hardware::switch::UPSTREAM;
use kernel::Kernel;
use machine::{
    Action, ComputerSetup, Condition, EventCounter, LinkErrors, LinkPlace, NetCounter, Placed, ProgramSetup,
    Setting, Trigger,
};
use platform::Error;
use platform::cpu::CpuId;
use platform::device::PortIndex;
use platform::irq::Irq;
use units::{Duration, Time};
use wire::pcie::{FunctionAddress, Segment};
use workloads::{Failure, Report};

use super::computers::Computers;
use super::connections::{self, Medium};
use super::error::ComputerError;
use super::finished::{Ended, FinishedProgram, Subject};
use super::processes::{Processes, has_ended};
use super::reading::reading;
use super::rogue::{Attacker, attack};
use super::settings;

/// Interval between checks of counters: as fast as a script could react.
const LOOK: Duration = Duration::from_us(1);
/// The same beside virtual machines, which are slower to react.
const SESSION_LOOK: Duration = Duration::from_us(200);

/// Reported as the host of an event.
const EVENT: &str = "event";

/// What has to happen, by the scenario's numbers.
enum Due {
    Event {
        event: usize,
    },
    /// Power returns to a host, as part of an event.
    PowerReturns {
        event: usize,
        host: usize,
    },
    /// A host has booted again, as part of an event.
    Booted {
        event: usize,
        host: usize,
        outcome: Result<(), ComputerError>,
    },
    /// A program starts whose host was stopped before.
    ProgramStarts {
        program: usize,
    },
    LoanBegins {
        loan: usize,
    },
    LoanEnds {
        loan: usize,
    },
}

/// An event that waits for a counter.
struct Waiting<'a> {
    /// The event's number.
    event: usize,
    condition: &'a Condition,
    /// Value of the counter when all hosts had booted.
    began: f64,
}

/// The events of a scenario.
pub(super) struct Events<'a> {
    setup: &'a ComputerSetup,
    processes: Processes<'a>,
    started: Time,
    /// What has to happen now, in order.
    due: Rc<RefCell<Vec<Due>>>,
    /// Events that wait for a counter.
    conditions: RefCell<Vec<Waiting<'a>>>,
    next_look: Cell<Time>,
    look: Duration,
    /// Start time of each event.
    began: Vec<Option<Time>>,
    /// The event by which each host is rebooting now.
    reboots: Vec<Option<usize>>,
    ended: Rc<Ended>,
}

impl<'a> Events<'a> {
    /// The programs that events act on.
    pub fn processes(&self) -> &Processes<'a> {
        &self.processes
    }

    /// Arms all events.
    ///
    /// # Errors
    /// If an event waits for a counter that its host does not have.
    pub fn new(
        setup: &'a ComputerSetup,
        computers: &Computers,
        processes: Processes<'a>,
        ended: &Rc<Ended>,
    ) -> Result<Self, ComputerError> {
        let started = computers.simulation().now();
        let events = Self {
            setup,
            processes,
            started,
            due: Rc::default(),
            conditions: RefCell::default(),
            next_look: Cell::new(started),
            look: if setup.hosts.iter().any(|host| host.live) { SESSION_LOOK } else { LOOK },
            began: vec![None; setup.events.len()],
            reboots: vec![None; setup.hosts.len()],
            ended: Rc::clone(ended),
        };
        for (n, event) in setup.events.iter().enumerate() {
            match &event.trigger {
                Trigger::At(at) => events.wait(computers, started + *at, Due::Event { event: n }),
                Trigger::Counter(condition) => {
                    let began = match &condition.counter {
                        EventCounter::Net(..) => 0.0,
                        EventCounter::Published(name) => {
                            events.first_amount(computers, condition.host, name)?
                        }
                    };
                    events.conditions.borrow_mut().push(Waiting { event: n, condition, began });
                }
            }
        }
        for (loan, borrow) in setup.cluster.borrows.iter().enumerate() {
            if !borrow.from.is_zero() {
                events.wait(computers, started + borrow.from, Due::LoanBegins { loan });
            }
            if let Some(until) = borrow.until {
                events.wait(computers, started + until, Due::LoanEnds { loan });
            }
        }
        Ok(events)
    }

    /// Initial value of a counter: 0 if its device comes later.
    fn first_amount(
        &self,
        computers: &Computers,
        host: usize,
        name: &Placed<String>,
    ) -> Result<f64, ComputerError> {
        let setup = &self.setup.hosts[host];
        let (own, now) = (&computers.hosts()[host], computers.simulation().now());
        let reading = computers.simulation().with(|fabric, _| reading(fabric, now, own, setup));
        if let Some(amount) = reading.amount(&name.value) {
            return Ok(amount);
        }
        let place = name.value.split('/').next().unwrap_or_default();
        let all = reading.counters();
        let mut known: Vec<&str> =
            all.iter().filter(|counter| counter.place() == place).map(|c| &*c.name).collect();
        if known.is_empty() && setup.interfaces.iter().any(|interface| interface.name == place) {
            return Ok(0.0);
        }
        if known.is_empty() {
            known = all.iter().map(|counter| counter.place()).collect();
            known.dedup();
        }
        // Most similar names first.
        let alike = |known: &&str| known.chars().zip(name.value.chars()).take_while(|(a, b)| a == b).count();
        known.sort_by_key(|known| std::cmp::Reverse(alike(known)));
        known.truncate(8);
        let message = format!("host `{}` has no counter `{}`", setup.name, name.value);
        let help = format!("there are {} and others; `--counters` shows all that change", known.join(", "));
        Err(ComputerError::Files(name.complaint(message, Some(help))))
    }

    /// Schedules something.
    fn wait(&self, computers: &Computers, at: Time, what: Due) {
        let (clock, due) = (computers.simulation().handle(), Rc::clone(&self.due));
        computers.simulation().spawn(async move {
            clock.sleep_until(at).await;
            due.borrow_mut().push(what);
        });
    }

    /// Whether something has to happen now.
    pub fn are_due(&self, computers: &Computers, fabric: &Fabric) -> bool {
        let now = computers.simulation().now();
        if now >= self.next_look.get() && !self.conditions.borrow().is_empty() {
            self.next_look.set(now + self.look);
            let mut due = self.due.borrow_mut();
            self.conditions.borrow_mut().retain(|waiting| {
                let holds = self.value(computers, fabric, waiting) > waiting.condition.more_than;
                if holds {
                    due.push(Due::Event { event: waiting.event });
                }
                !holds
            });
        }
        !self.due.borrow().is_empty()
    }

    /// Value of a counter: 0 if its device is gone.
    fn value(&self, computers: &Computers, fabric: &Fabric, waiting: &Waiting<'_>) -> f64 {
        let Condition { host, counter, .. } = waiting.condition;
        let own = &computers.hosts()[*host];
        match counter {
            EventCounter::Net(device, counter) => {
                let counters = own.kernel.net().device(device).map(|device| device.counters());
                let counters = counters.unwrap_or_default();
                let value = match counter {
                    NetCounter::TxPackets => counters.tx_packets,
                    NetCounter::TxBytes => counters.tx_bytes,
                    NetCounter::RxPackets => counters.rx_packets,
                    NetCounter::RxBytes => counters.rx_bytes,
                };
                value as f64
            }
            EventCounter::Published(name) => {
                let now = computers.simulation().now();
                let amount = reading(fabric, now, own, &self.setup.hosts[*host]).amount(&name.value);
                amount.unwrap_or_default() - waiting.began
            }
        }
    }

    /// Carries out what is due.
    ///
    /// # Errors
    /// If a rebooted host cannot be assembled.
    pub fn happen(&mut self, computers: &mut Computers) -> Result<(), ComputerError> {
        for due in self.due.take() {
            match due {
                Due::Event { event } => {
                    self.began[event] = Some(computers.simulation().now());
                    self.begin(event, computers);
                }
                Due::LoanBegins { loan } => {
                    let borrowed = computers.cluster().borrow(loan);
                    self.tell_loan(
                        loan,
                        false,
                        computers,
                        async move { borrowed.await.map_err(Failure::from) },
                    );
                }
                Due::LoanEnds { loan } => {
                    let returned = computers.cluster().give_back(loan);
                    let returned = async move {
                        returned.await.map_err(|error| match error {
                            Error::Invalid => Failure("it is no longer borrowed".to_owned()),
                            error => error.into(),
                        })
                    };
                    self.tell_loan(loan, true, computers, returned);
                }
                Due::ProgramStarts { program } => {
                    let host = self.setup.programs[program].host;
                    if self.reboots[host].is_none() && computers.hosts()[host].kernel.is_halted() {
                        let now = computers.simulation().now();
                        self.processes.stop(|n, _| n == program, now, "host was off");
                    }
                }
                Due::PowerReturns { event, host } if self.reboots[host] == Some(event) => {
                    computers.connections.get_mut().off.remove(&host);
                    let booted = computers.boot_again(self.setup, host)?;
                    computers.settle();
                    let due = Rc::clone(&self.due);
                    computers.simulation().spawn(async move {
                        let outcome = booted.await;
                        due.borrow_mut().push(Due::Booted { event, host, outcome });
                    });
                }
                Due::Booted { event, host, outcome } if self.reboots[host] == Some(event) => {
                    self.reboots[host] = None;
                    match &outcome {
                        Ok(()) => self.processes.start_again(host, computers),
                        Err(_) => {
                            let (own, now) = (self.of_host(host), computers.simulation().now());
                            self.processes.stop(own, now, "host did not boot again");
                        }
                    }
                    self.tell(event, computers, async move {
                        outcome.map_err(|problem| Failure(format!("it does not boot again: {problem}")))
                    });
                }
                // The host has been stopped in between.
                Due::PowerReturns { .. } | Due::Booted { .. } => {}
            }
        }
        Ok(())
    }

    /// Whether an event has begun and is not done.
    pub fn are_under_way(&self) -> bool {
        self.under_way().next().is_some()
    }

    fn under_way(&self) -> impl Iterator<Item = usize> {
        (0..self.began.len()).filter(|&n| self.began[n].is_some() && !self.ended.has(Subject::Event(n)))
    }

    /// The host whose software carries out an action; `None` for actions on hardware, which need none.
    fn actor(&self, action: &Action) -> Option<usize> {
        match *action {
            Action::Revoke(borrow) => Some(self.setup.cluster.borrows[borrow].lender),
            Action::MoveTask { program, .. } | Action::Set(Setting::Memory(program, _)) => {
                Some(self.setup.programs[program].host)
            }
            Action::SetAffinity { host, .. }
            | Action::PowerOffVm(host, _)
            | Action::Mask { host, .. }
            | Action::Contain { host, .. }
            | Action::Set(
                Setting::Net(host, ..)
                | Setting::IoTimeout(host, ..)
                | Setting::SglThreshold(host, _)
                | Setting::Packets(host, _)
                | Setting::Placement(host, _),
            ) => Some(host),
            Action::Link { .. }
            | Action::Assign { .. }
            | Action::ErrorRate { .. }
            | Action::Device { .. }
            | Action::Rogue { .. }
            | Action::Crash(_)
            | Action::PowerOff(_)
            | Action::Reboot(..) => None,
        }
    }

    fn begin(&mut self, n: usize, computers: &mut Computers) {
        let setup = self.setup;
        let actor = self.actor(&setup.events[n].action);
        if let Some(host) = actor.filter(|&host| computers.hosts()[host].kernel.is_halted()) {
            let is_off = computers.connections.get_mut().off.contains(&host);
            let why = if is_off { "its host is off" } else { "its host has crashed" };
            return self.tell(n, computers, async { Err(Failure(why.to_owned())) });
        }
        match &setup.events[n].action {
            Action::MoveTask { program, cpus } => {
                let moved =
                    self.processes.of(*program).map(|(kernel, task)| kernel.move_process(task, cores(cpus)));
                self.tell(n, computers, async move {
                    moved.ok_or_else(has_ended)?.await.map_err(|_| has_ended())
                });
            }
            Action::SetAffinity { host, device, number, cpus } => {
                self.set_affinity(n, computers, (*host, device), *number, &cores(cpus));
            }
            Action::Mask { host, device, number, masked } => {
                self.mask(n, computers, (*host, device), *number, *masked);
            }
            Action::Contain { host, link } => self.contain(n, computers, *host, *link),
            Action::Set(setting) => self.set(n, computers, setting),
            Action::ErrorRate { link, errors, rate } => {
                self.set_error_rate(computers, *link, (*errors, *rate), n);
                self.tell(n, computers, async { Ok(()) });
            }
            Action::Link { link, up } => {
                let cut = &mut computers.connections.get_mut().cut;
                match up {
                    true => cut.remove(link),
                    false => cut.insert(*link),
                };
                computers.settle();
                self.tell(n, computers, async { Ok(()) });
            }
            Action::Assign { link, slot } => {
                computers.assign(*link, *slot);
                self.tell(n, computers, async { Ok(()) });
            }
            Action::Device { device, present } => {
                computers.set_present(*device, *present);
                self.tell(n, computers, async { Ok(()) });
            }
            Action::Rogue { host, function, tries, seed } => {
                let own = Attacker::new(setup, computers, (*host, *function));
                let rng = match seed {
                    Some(seed) => Seed::new(*seed).component("rogue"),
                    None => Seed::new(setup.seed).part(&format!("event{n}")).component("rogue"),
                };
                self.tell_report(n, computers, attack(own, *tries, rng));
            }
            Action::Revoke(borrow) => {
                let taken = computers.cluster().take_back(*borrow);
                self.tell(n, computers, async move {
                    taken.await.map_err(|problem| Failure(format!("it cannot be taken back: {problem}")))
                });
            }
            Action::Crash(host) => {
                self.stop(computers, *host, "crashed");
                self.tell(n, computers, async { Ok(()) });
            }
            Action::PowerOff(host) => {
                self.power_off(computers, *host, "lost its power");
                self.tell(n, computers, async { Ok(()) });
            }
            Action::PowerOffVm(host, vm) => {
                let of = |_, entry: &ProgramSetup| entry.host == *host && entry.vm == Some(*vm);
                self.processes.stop(of, computers.simulation().now(), "virtual machine lost its power");
                let running = computers.hosts()[*host].vms().get(*vm).cloned();
                let ended = running.filter(|vm| !vm.kernel().is_halted()).map(|vm| vm.kill());
                self.tell(n, computers, async move {
                    ended.ok_or_else(|| Failure("it is off already".to_owned()))?.await;
                    Ok(())
                });
            }
            Action::Reboot(host, takes) => {
                self.power_off(computers, *host, "rebooted");
                self.reboots[*host] = Some(n);
                let returns = Due::PowerReturns { event: n, host: *host };
                self.wait(computers, computers.simulation().now() + *takes, returns);
            }
        }
    }

    fn power_off(&mut self, computers: &mut Computers, host: usize, why: &str) {
        self.stop(computers, host, why);
        computers.connections.get_mut().off.insert(host);
        computers.settle();
    }

    /// Stops a host's cores, which ends its programs and a reboot under way.
    fn stop(&mut self, computers: &Computers, host: usize, why: &str) {
        let (stopped, now) = (&computers.hosts()[host], computers.simulation().now());
        let why = format!("host {why}");
        let reboot = self.reboots[host].take();
        let is_its = |&n: &usize| reboot == Some(n) || self.actor(&self.setup.events[n].action) == Some(host);
        for n in self.under_way().filter(is_its).collect::<Vec<_>>() {
            let took = now.since(self.began[n].expect("it has begun"));
            let (host, run) = (EVENT.to_owned(), self.setup.events[n].text.clone());
            let why = (&*why, now.since(self.started));
            self.ended.tell(FinishedProgram::stopped(Subject::Event(n), host, run, took, why));
        }
        if !stopped.kernel.is_halted() {
            stopped.halt();
        }
        self.processes.stop(self.of_host(host), now, &why);
        for program in self.processes.to_come(host, now) {
            self.wait(computers, self.processes.start_of(program), Due::ProgramStarts { program });
        }
    }

    /// Selects the programs of a host and its guests.
    fn of_host(&self, host: usize) -> impl Fn(usize, &ProgramSetup) -> bool + use<> {
        move |_, entry| entry.host == host
    }

    /// Moves one or all interrupts of a device to the cores, in turn.
    fn set_affinity(
        &self,
        n: usize,
        computers: &Computers,
        (host, device): (usize, &str),
        number: Option<usize>,
        to: &[CpuId],
    ) {
        let kernel = &computers.hosts()[host].kernel;
        let (chosen, lacking) = interrupts_of(kernel, device, number);
        let moves = chosen.iter().zip(to.iter().cycle()).map(|(&irq, &to)| kernel.set_irq_affinity(irq, to));
        let moves: Vec<_> = moves.collect();
        let device = device.to_owned();
        self.tell(n, computers, async move {
            if moves.is_empty() {
                return Err(lacking);
            }
            for moved in moves {
                moved.await.map_err(|error: Error| Failure::about(&device, error))?;
            }
            Ok(())
        });
    }

    /// Masks or unmasks one or all interrupts of a device in its function.
    fn mask(
        &self,
        n: usize,
        computers: &Computers,
        (host, device): (usize, &str),
        number: Option<usize>,
        masked: bool,
    ) {
        let kernel = &computers.hosts()[host].kernel;
        let (chosen, lacking) = interrupts_of(kernel, device, number);
        let is_none = chosen.is_empty();
        let masking = kernel.mask_irqs(chosen, masked);
        let device = device.to_owned();
        self.tell(n, computers, async move {
            if is_none {
                return Err(lacking);
            }
            masking.await.map_err(|error| match error {
                Error::NotSupported => Failure(format!("{device} has no MSI-X vectors to mask")),
                error => Failure::about(&device, error),
            })
        });
    }

    /// Has the port above a link contain what is below it.
    fn contain(&self, n: usize, computers: &Computers, host: usize, link: LinkPlace) {
        let hosts = computers.hosts();
        let below = computers.simulation().with(|fabric, _| match link {
            LinkPlace::Switch(owner, switch) => {
                let (id, _) = hosts[owner].switches[switch];
                Some(fabric.switch(id).id(UPSTREAM))
            }
            LinkPlace::Device(owner, device, port) => {
                let registers = &fabric.endpoint(hosts[owner].devices[device]).core.registers;
                registers.physical_below(PortIndex(port)).next().map(|function| registers.id(function))
            }
            LinkPlace::Cable(_) | LinkPlace::NtbCable(_) => None,
        });
        let contained =
            below.map(|bdf| hosts[host].kernel.contain(FunctionAddress { segment: Segment(0), bdf }));
        self.tell(n, computers, async move {
            let gone = || Failure("nothing is below the port now".to_owned());
            contained.ok_or_else(gone)?.await.map_err(|error| match error {
                Error::NoDevice => gone(),
                error => error.into(),
            })
        });
    }

    fn set(&self, n: usize, computers: &Computers, setting: &Setting) {
        let set = settings::set(computers.hosts(), setting, |program| self.processes.of(program));
        self.tell(n, computers, set);
    }

    fn set_error_rate(
        &self,
        computers: &Computers,
        link: LinkPlace,
        (errors, rate): (LinkErrors, f64),
        n: usize,
    ) {
        let seed = Seed::new(self.setup.seed).part(&format!("event{n}"));
        let Computers { simulation, hosts, cables, ntb_cables, .. } = computers;
        simulation.with(|fabric, scheduler| {
            match connections::at(fabric, hosts, (cables, ntb_cables), link) {
                Medium::Cable(cable) => fabric.wires.ethernet.set_bit_error_rate(cable, rate, seed),
                Medium::Link(link) | Medium::NtbCable(link) => {
                    let generation = fabric.wires.link(link).params().generation;
                    let rng = seed.component("errors");
                    let wire = |rate| ErrorInjector::of_wire(rate, generation, rng);
                    let injector = (rate > 0.0).then(|| match errors {
                        LinkErrors::Bits => wire(rate),
                        LinkErrors::Poisoned => wire(0.0).poisoning(rate),
                        LinkErrors::LostCompletions => wire(0.0).losing_completions(rate),
                        LinkErrors::DamagedData => wire(0.0).damaging_unseen(rate),
                        LinkErrors::DamagedHeaders => wire(0.0).damaging_headers(rate),
                    });
                    fabric.context(scheduler).with(link, |link, _| link.inject_errors(injector));
                }
            }
        });
    }

    /// Reports an event once `outcome` is known.
    fn tell(
        &self,
        n: usize,
        computers: &Computers,
        outcome: impl Future<Output = Result<(), Failure>> + 'static,
    ) {
        self.tell_report(n, computers, async { outcome.await.map(|()| Report::default()) });
    }

    /// Reports an event with what it has counted, once that is known.
    fn tell_report(
        &self,
        n: usize,
        computers: &Computers,
        outcome: impl Future<Output = Result<Report, Failure>> + 'static,
    ) {
        let what = (Subject::Event(n), EVENT.to_owned(), self.setup.events[n].text.clone());
        self.tell_later(computers, what, self.began[n].expect("it has begun"), outcome);
    }

    /// Reports the start of a borrowing, or its end, once `outcome` is known.
    fn tell_loan(
        &self,
        number: usize,
        ends: bool,
        computers: &Computers,
        outcome: impl Future<Output = Result<(), Failure>> + 'static,
    ) {
        let borrow = &self.setup.cluster.borrows[number];
        let host = self.setup.hosts[borrow.by].name.clone();
        let run = format!("{} {}", if ends { "return" } else { "borrow" }, borrow.name.value);
        let what = (Subject::Loan { number, ends }, host, run);
        let outcome = async { outcome.await.map(|()| Report::default()) };
        self.tell_later(computers, what, computers.simulation().now(), outcome);
    }

    /// Reports something that began at a time, once `outcome` is known.
    fn tell_later(
        &self,
        computers: &Computers,
        (subject, host, run): (Subject, String, String),
        began: Time,
        outcome: impl Future<Output = Result<Report, Failure>> + 'static,
    ) {
        let (clock, ended) = (computers.simulation().handle(), Rc::clone(&self.ended));
        let happened = began.since(self.started);
        computers.simulation().spawn(async move {
            let outcome = outcome.await.map(|counted| {
                let mut report = Report::default();
                report.add("happened", "us", happened.as_ns_f64() / 1e3);
                report.readings.extend(counted.readings);
                report.notes.extend(counted.notes);
                report
            });
            // Another event may have stopped its host.
            if !ended.has(subject) {
                let took = clock.now().since(began);
                ended.tell(FinishedProgram::new(subject, host, run, took, outcome));
            }
        });
    }

    /// Reports events that did not happen.
    pub fn tell_missing(&self) {
        for (n, event) in self.setup.events.iter().enumerate() {
            let subject = Subject::Event(n);
            if self.ended.has(subject) {
                continue;
            }
            let why = match &event.trigger {
                _ if self.began[n].is_some() => "the run was over before it was done",
                Trigger::At(_) => "it did not happen: the run was over before",
                Trigger::Counter(_) => "it did not happen: its condition was never met",
            };
            let (host, run) = (EVENT.to_owned(), event.text.clone());
            let outcome = Err(Failure(why.to_owned()));
            self.ended.tell(FinishedProgram::new(subject, host, run, Duration::ZERO, outcome));
        }
    }
}

/// One or all interrupts of a device, and why there are none if so.
fn interrupts_of(kernel: &Kernel, device: &str, number: Option<usize>) -> (Vec<Irq>, Failure) {
    let disk = kernel.block().device(device);
    let device = disk.as_ref().map_or(device, |disk| disk.name());
    let all = kernel.interrupts_of(device);
    let why = match number.filter(|_| !all.is_empty()) {
        Some(number) => format!("{device} has no interrupt {number}: it has 0 to {}", all.len() - 1),
        None => format!("{device} has no interrupts now"),
    };
    let chosen = match number {
        Some(number) => all.get(number).copied().into_iter().collect(),
        None => all,
    };
    (chosen, Failure(why))
}

fn cores(cpus: &[u16]) -> Vec<CpuId> {
    cpus.iter().copied().map(CpuId).collect()
}
