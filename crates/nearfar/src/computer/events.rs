//! What a scenario lets happen while its programs run.
//!
//! An event happens between two events of the simulation: when its time has come, or when the counter that it waits for is found to
//! have passed its number.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ::kernel::Kernel;
use machine::{Action, ComputerSetup, Condition, NetCounter, Trigger};
use platform::Error;
use platform::cpu::CpuId;
use platform::kernel::TaskId;
use units::{Duration, Time};
use workloads::{Failure, Report};

use super::Computers;
use super::run::{Done, Ended};

/// Between two looks at the counters that events wait for: as soon as any script could tell.
const LOOK: Duration = Duration::from_us(1);

/// The events of a scenario.
pub(super) struct Events<'a> {
    setup: &'a ComputerSetup,
    computers: &'a Computers,
    /// The first task of each program.
    tasks: Vec<TaskId>,
    started: Time,
    /// Those whose time has come, in order.
    due: Rc<RefCell<Vec<usize>>>,
    /// Those that wait for a counter.
    conditions: RefCell<Vec<(usize, &'a Condition)>>,
    next_look: Cell<Time>,
    has_begun: RefCell<Vec<bool>>,
    ended: Rc<Ended>,
}

impl<'a> Events<'a> {
    /// Begins to wait for all of them; programs are known by their first task.
    pub fn new(
        setup: &'a ComputerSetup,
        computers: &'a Computers,
        tasks: Vec<TaskId>,
        ended: &Rc<Ended>,
    ) -> Self {
        let started = computers.simulation().now();
        let due: Rc<RefCell<Vec<usize>>> = Rc::default();
        let mut conditions = Vec::new();
        for (n, event) in setup.events.iter().enumerate() {
            match &event.trigger {
                Trigger::At(at) => {
                    let (clock, due, at) = (computers.simulation().handle(), Rc::clone(&due), started + *at);
                    computers.simulation().spawn(async move {
                        clock.sleep_until(at).await;
                        due.borrow_mut().push(n);
                    });
                }
                Trigger::Counter(condition) => conditions.push((n, condition)),
            }
        }
        Self {
            setup,
            computers,
            tasks,
            started,
            due,
            conditions: RefCell::new(conditions),
            next_look: Cell::new(started),
            has_begun: RefCell::new(vec![false; setup.events.len()]),
            ended: Rc::clone(ended),
        }
    }

    /// Whether something is to happen now.
    pub fn are_due(&self) -> bool {
        let now = self.computers.simulation().now();
        if now >= self.next_look.get() && !self.conditions.borrow().is_empty() {
            self.next_look.set(now + LOOK);
            let mut due = self.due.borrow_mut();
            self.conditions.borrow_mut().retain(|&(n, condition)| {
                let holds = self.value(condition) > condition.more_than;
                if holds {
                    due.push(n);
                }
                !holds
            });
        }
        !self.due.borrow().is_empty()
    }

    /// What a counter says; nothing if there is no such device any more.
    fn value(&self, condition: &Condition) -> f64 {
        let Some(device) = self.kernel(condition.host).net().device(&condition.device) else { return 0.0 };
        let counters = device.counters();
        let value = match condition.counter {
            NetCounter::TxPackets => counters.tx_packets,
            NetCounter::TxBytes => counters.tx_bytes,
            NetCounter::RxPackets => counters.rx_packets,
            NetCounter::RxBytes => counters.rx_bytes,
        };
        value as f64
    }

    fn kernel(&self, host: usize) -> &'a Kernel {
        &self.computers.hosts()[host].kernel
    }

    /// Lets happen what is due.
    pub fn happen(&self) {
        for n in self.due.take() {
            self.has_begun.borrow_mut()[n] = true;
            let cpus = |cpus: &[u16]| cpus.iter().copied().map(CpuId).collect::<Vec<_>>();
            match &self.setup.events[n].action {
                Action::MoveTask { program, cpus: to } => {
                    let kernel = self.kernel(self.setup.programs[*program].host);
                    let moved = kernel.move_process(self.tasks[*program], cpus(to));
                    self.tell(n, async move {
                        moved.await.map_err(|_| Failure("the program has ended".to_owned()))
                    });
                }
                Action::SetAffinity { host, device, number, cpus: to } => {
                    self.set_affinity(n, (*host, device), *number, &cpus(to));
                }
                Action::Cable { cable, up } => {
                    let cable = self.computers.cables[*cable];
                    let fabric = self.computers.simulation();
                    fabric.with(|fabric, scheduler| fabric.set_ethernet_up(scheduler, cable, *up));
                    self.tell(n, async { Ok(()) });
                }
            }
        }
    }

    /// Moves one or all interrupts of a device, in turn to each core.
    fn set_affinity(&self, n: usize, (host, device): (usize, &str), number: Option<usize>, to: &[CpuId]) {
        let kernel = self.kernel(host);
        let all = kernel.interrupts_of(device);
        let chosen: Vec<_> = match number {
            Some(number) => all.get(number).copied().into_iter().collect(),
            None => all.clone(),
        };
        let moves = chosen.iter().zip(to.iter().cycle()).map(|(&irq, &to)| kernel.set_irq_affinity(irq, to));
        let moves: Vec<_> = moves.collect();
        let device = device.to_owned();
        self.tell(n, async move {
            if moves.is_empty() {
                let why = match number.filter(|_| !all.is_empty()) {
                    Some(number) => {
                        format!("{device} has no interrupt {number}: it has 0 to {}", all.len() - 1)
                    }
                    None => format!("{device} has no interrupts now"),
                };
                return Err(Failure(why));
            }
            for moved in moves {
                moved.await.map_err(|error: Error| Failure::about(&device, error))?;
            }
            Ok(())
        });
    }

    /// Reports an event when `outcome` is known.
    fn tell(&self, n: usize, outcome: impl Future<Output = Result<(), Failure>> + 'static) {
        let (clock, ended) = (self.computers.simulation().handle(), Rc::clone(&self.ended));
        let (number, run, started) = (self.number(n), self.setup.events[n].text.clone(), self.started);
        let at = clock.now();
        self.computers.simulation().spawn(async move {
            let outcome = outcome.await.map(|()| {
                let mut report = Report::default();
                report.add("happened", "us", at.since(started).as_ns_f64() / 1e3);
                report
            });
            let took = clock.now().since(at);
            ended.done.borrow_mut().push((number, Done { host: EVENT.to_owned(), run, took, outcome }));
        });
    }

    /// The number of an event among all that is reported.
    fn number(&self, n: usize) -> usize {
        self.setup.programs.len() + self.setup.sources.len() + n
    }

    /// Reports those that have not happened.
    pub fn tell_missing(&self) {
        let mut done = self.ended.done.borrow_mut();
        for (n, event) in self.setup.events.iter().enumerate().filter(|(n, _)| !self.has_begun.borrow()[*n]) {
            let why = match &event.trigger {
                Trigger::At(_) => "the run was over before",
                Trigger::Counter(_) => "its condition was never met",
            };
            let outcome = Err(Failure(format!("it did not happen: {why}")));
            let done_ =
                Done { host: EVENT.to_owned(), run: event.text.clone(), took: Duration::ZERO, outcome };
            done.push((self.number(n), done_));
        }
    }
}

/// Who is reported as the host of an event.
const EVENT: &str = "event";
