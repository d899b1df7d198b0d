//! A core of a guest: a task of the host, in which the guest computes while the task has a core, and which deals with the guest's
//! exits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use engine::Notify;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::TaskId;
use platform::sync::Completion;
use units::{Duration, Time};

use crate::exits::Exit;
use crate::vm::{Machine, Wanted};

/// For how long a vCPU computes before it looks whether others want its core: as Linux's tick.
const TICK: Duration = Duration::from_ms(1);

/// What a guest cannot do itself.
pub struct Request {
    /// Why.
    pub exit: Exit,
    /// What the hypervisor does about it.
    pub work: Box<dyn FnOnce(Cpu) -> Async<'static, ()>>,
}

/// A core of a guest.
pub struct Vcpu {
    pub task: Cell<Option<TaskId>>,
    /// The first of the host's cores that it may use.
    home: CpuId,
    /// Its task's hold on a core.
    cpu: RefCell<Option<Cpu>>,
    /// The guest has something for it to do.
    busy: Cell<bool>,
    /// It has left the guest and given its core away.
    halted: Cell<bool>,
    /// It is in the guest, which computes.
    in_guest: Cell<bool>,
    requests: RefCell<VecDeque<Request>>,
    /// Vectors that the guest is to be interrupted with.
    interrupts: RefCell<VecDeque<u8>>,
    notify: Notify,
    /// What its clock said last.
    pub clock: Cell<Time>,
    /// Its task has ended.
    pub ended: Completion<()>,
}

impl Vcpu {
    pub fn new(home: CpuId) -> Self {
        Self {
            task: Cell::new(None),
            home,
            cpu: RefCell::new(None),
            busy: Cell::new(false),
            halted: Cell::new(true),
            in_guest: Cell::new(false),
            requests: RefCell::default(),
            interrupts: RefCell::default(),
            notify: Notify::new(),
            clock: Cell::new(Time::ZERO),
            ended: Completion::new(),
        }
    }

    /// The host's core that it is on, or was on last.
    pub fn core(&self) -> CpuId {
        self.cpu.borrow().as_ref().map_or(self.home, |cpu| cpu.id())
    }

    /// The first of the host's cores that it may use.
    pub fn home(&self) -> CpuId {
        self.home
    }

    /// Whether it is in the guest.
    pub fn is_in_guest(&self) -> bool {
        self.in_guest.get()
    }

    /// Whether it has given its core away.
    pub fn is_halted(&self) -> bool {
        self.halted.get()
    }

    /// The guest has something for it to do, or not.
    pub fn set_busy(&self, busy: bool) {
        if self.busy.replace(busy) != busy {
            self.notify.notify_one();
        }
    }

    /// The guest needs the hypervisor.
    pub fn ask(&self, request: Request) {
        self.requests.borrow_mut().push_back(request);
        self.notify.notify_one();
    }

    /// The guest is to be interrupted; [`kick`](Self::kick) lets it notice.
    pub fn interrupt(&self, vector: u8) {
        let mut interrupts = self.interrupts.borrow_mut();
        // One that is pending stays pending once.
        if !interrupts.contains(&vector) {
            interrupts.push_back(vector);
        }
    }

    /// Lets it look what there is to do.
    pub fn kick(&self) {
        self.notify.notify_one();
    }

    /// What it had to do is nobody's any more: the guest has been reset.
    pub fn forget(&self) {
        self.requests.borrow_mut().clear();
        self.interrupts.borrow_mut().clear();
        self.busy.set(false);
    }

    fn next_request(&self) -> Option<Request> {
        self.requests.borrow_mut().pop_front()
    }

    /// Runs a guest's core until the machine ends.
    pub async fn run(machine: Rc<Machine>, number: usize, cpu: Cpu) {
        let own = &machine.vcpus[number];
        *own.cpu.borrow_mut() = Some(cpu.clone());
        own.halted.set(false);
        let costs = machine.costs;
        loop {
            match machine.wanted.get() {
                Wanted::Run => {}
                Wanted::Pause => {
                    own.halted.set(true);
                    own.notify.notified().await;
                    own.halted.set(false);
                    continue;
                }
                Wanted::End => break,
            }
            while let Some(Request { exit, work }) = own.next_request() {
                let _virt = cpu.book(Part::Virt);
                machine.exits.count(exit);
                cpu.cycles(costs.exit).await;
                work(cpu.clone()).await;
                cpu.sync().await;
            }
            if !own.interrupts.borrow().is_empty() {
                let _virt = cpu.book(Part::Virt);
                // One exit brings all that wait, and each is ended by another one.
                let vectors: Vec<u8> = own.interrupts.borrow_mut().drain(..).collect();
                machine.exits.count(Exit::Interrupt);
                cpu.work(costs.exit);
                for vector in vectors {
                    machine.exits.count(Exit::EndOfInterrupt);
                    cpu.cycles(costs.inject + costs.exit).await;
                    machine.deliver(number, vector);
                }
                // The guest takes them before it is looked whether it has something to do.
                own.in_guest.set(true);
                engine::yield_now().await;
                own.in_guest.set(false);
            }
            if own.busy.get() {
                own.in_guest.set(true);
                machine.entered(number);
                let wait = own.notify.notified();
                let tick = machine.hw.sleep(TICK);
                cpu.stall_on(either(wait, tick)).await;
                own.in_guest.set(false);
                // Others may want the core.
                cpu.sync().await;
            } else {
                let virt = cpu.book(Part::Virt);
                machine.exits.count(Exit::Halt);
                cpu.cycles(costs.exit).await;
                drop(virt);
                own.halted.set(true);
                own.notify.notified().await;
                own.halted.set(false);
                cpu.sync().await;
            }
        }
        own.halted.set(true);
        own.ended.complete(());
    }
}

/// Waits for one of two.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        match one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}
