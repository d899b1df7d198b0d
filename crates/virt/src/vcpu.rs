//! A vCPU: a task of the host. The guest computes while the task has a core, and the task handles the guest's exits.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use engine::{Notify, either};
use kernel::{GuestMode, POSTED_VECTOR, POSTED_WAKEUP_VECTOR, TaskWatcher};
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::TaskId;
use platform::sync::Completion;
use units::{Duration, Time};

use crate::exits::Exit;
use crate::interrupts::{InterruptSupport, Postbox};
use crate::vm::{Machine, Wanted};

/// Longest time a vCPU computes before it checks whether to yield its core, like Linux's tick.
const TICK: Duration = Duration::from_ms(1);

/// An exit that the hypervisor has to handle.
pub struct Request {
    /// Cause.
    pub exit: Exit,
    /// The hypervisor's action.
    pub work: Box<dyn FnOnce(Cpu) -> Async<'static, ()>>,
}

/// A host task that runs one of the guest's cores.
pub struct Vcpu {
    pub task: Cell<Option<TaskId>>,
    /// The first host core that it may use.
    home: CpuId,
    /// The CPU handle of its task.
    cpu: RefCell<Option<Cpu>>,
    /// Whether the guest has work for it.
    busy: Cell<bool>,
    /// Whether it has left the guest and released its core.
    halted: Cell<bool>,
    /// Whether it is in guest mode.
    in_guest: Cell<bool>,
    /// Whether a host interrupt has forced an exit.
    left: Cell<bool>,
    requests: RefCell<VecDeque<Request>>,
    pub postbox: Postbox,
    /// Registered with its host core while it is in guest mode.
    pub mode: OnceCell<Rc<dyn GuestMode>>,
    /// Woken when an interrupt is posted in guest mode.
    posted: Rc<Notify>,
    notify: Notify,
    /// Its clock when last read.
    pub clock: Cell<Time>,
    /// Since when it has been runnable without a core.
    put_aside: Cell<Option<Time>>,
    stolen: Cell<Duration>,
    /// How long the guest has polled, by the host core that it did on.
    polled: RefCell<BTreeMap<CpuId, Duration>>,
    /// Of the guest's current kernel, what is among these.
    polled_before: Cell<Duration>,
    /// Resolves when its task has ended.
    pub ended: Completion<()>,
}

impl Vcpu {
    pub fn new(home: CpuId, postbox: Postbox) -> Self {
        Self {
            task: Cell::new(None),
            home,
            cpu: RefCell::new(None),
            busy: Cell::new(false),
            halted: Cell::new(true),
            in_guest: Cell::new(false),
            left: Cell::new(false),
            requests: RefCell::default(),
            postbox,
            mode: OnceCell::new(),
            posted: Rc::default(),
            notify: Notify::new(),
            clock: Cell::new(Time::ZERO),
            put_aside: Cell::new(None),
            stolen: Cell::new(Duration::ZERO),
            polled: RefCell::default(),
            polled_before: Cell::default(),
            ended: Completion::new(),
        }
    }

    /// Current or last host core.
    pub fn core(&self) -> CpuId {
        self.cpu.borrow().as_ref().map_or(self.home, |cpu| cpu.id())
    }

    /// The first host core that it may use.
    pub fn home(&self) -> CpuId {
        self.home
    }

    /// Whether it is in guest mode.
    pub fn is_in_guest(&self) -> bool {
        self.in_guest.get()
    }

    /// Whether it has released its core.
    pub fn is_halted(&self) -> bool {
        self.halted.get()
    }

    /// Time spent runnable without a core (steal time).
    pub fn stolen(&self) -> Duration {
        self.stolen.get()
    }

    /// The guest's kernel has polled so long.
    pub fn note_polled(&self, all: Duration) {
        let before = self.polled_before.replace(all);
        // A new kernel counts from zero.
        let new = if all < before { all } else { all - before };
        if !new.is_zero() {
            *self.polled.borrow_mut().entry(self.core()).or_default() += new;
        }
    }

    /// How long the guest has polled on each host core.
    pub fn polled(&self) -> BTreeMap<CpuId, Duration> {
        self.polled.borrow().clone()
    }

    /// Sets whether the guest has work for it.
    pub fn set_busy(&self, busy: bool) {
        if self.busy.replace(busy) != busy {
            self.notify.notify_one();
        }
    }

    /// Queues an exit.
    pub fn ask(&self, request: Request) {
        self.requests.borrow_mut().push_back(request);
        self.notify.notify_one();
    }

    /// Makes it check for work.
    pub fn kick(&self) {
        self.notify.notify_one();
    }

    /// A host interrupt forces an exit.
    pub fn leave(&self) {
        self.left.set(true);
        self.notify.notify_one();
    }

    /// Drops pending exits, as the guest was reset.
    pub fn forget(&self) {
        self.requests.borrow_mut().clear();
        self.postbox.take();
        self.busy.set(false);
    }

    fn next_request(&self) -> Option<Request> {
        self.requests.borrow_mut().pop_front()
    }

    fn set_in_guest(&self, machine: &Rc<Machine>, number: usize, inside: bool) {
        if self.in_guest.replace(inside) != inside {
            machine.set_guest(number, self.core(), inside);
        }
    }

    /// Runs the vCPU until the machine ends.
    pub async fn run(machine: Rc<Machine>, number: usize, cpu: Cpu) {
        let own = &machine.vcpus[number];
        *own.cpu.borrow_mut() = Some(cpu.clone());
        own.halted.set(false);
        let (costs, in_software) = (machine.costs, machine.support == InterruptSupport::Software);
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
            let is_injected = in_software && own.postbox.is_pending();
            if own.left.take() || is_injected {
                let _virt = cpu.book(Part::Virt);
                machine.exits.count(Exit::Interrupt);
                cpu.cycles(costs.exit).await;
            }
            if is_injected {
                let _virt = cpu.book(Part::Virt);
                // One exit delivers all pending vectors. Each end of interrupt is another exit; for line interrupts,
                // the guest requests it itself.
                for vector in machine.take_posted(number) {
                    let end = if machine.is_line(number, vector) {
                        0
                    } else {
                        machine.exits.count(Exit::EndOfInterrupt);
                        costs.exit
                    };
                    cpu.cycles(costs.inject + end).await;
                    machine.deliver(number, vector);
                }
            }
            own.set_in_guest(&machine, number, true);
            if !in_software {
                machine.take_posted(number).into_iter().for_each(|vector| machine.deliver(number, vector));
            }
            // Let the guest take the interrupts before checking whether it has work.
            cpu.stall_on(engine::yield_now()).await;
            if own.busy.get() {
                machine.entered(number);
                let wait = own.notify.notified();
                let tick = machine.hw.sleep(TICK);
                cpu.stall_on(either(wait, tick)).await;
                own.set_in_guest(&machine, number, false);
                // Others may want the core.
                cpu.sync().await;
            } else {
                own.set_in_guest(&machine, number, false);
                own.halt(&machine, &cpu).await;
            }
        }
        own.halted.set(true);
        own.ended.complete(());
    }

    /// Delivers interrupts posted in guest mode, as the processor does without an exit.
    pub async fn serve_posted(machine: Weak<Machine>, number: usize) {
        let Some(posted) = machine.upgrade().map(|machine| Rc::clone(&machine.vcpus[number].posted)) else {
            return;
        };
        loop {
            posted.notified().await;
            let Some(machine) = machine.upgrade() else { return };
            // If it has left guest mode meanwhile, it takes them at the next entry.
            if machine.vcpus[number].is_in_guest() {
                machine.take_posted(number).into_iter().for_each(|vector| machine.deliver(number, vector));
            }
        }
    }

    /// Releases the core until the guest has work.
    async fn halt(&self, machine: &Machine, cpu: &Cpu) {
        let virt = cpu.book(Part::Virt);
        machine.exits.count(Exit::Halt);
        cpu.cycles(machine.costs.exit).await;
        if machine.support != InterruptSupport::Software {
            let core = cpu.id();
            self.postbox.change(cpu, |descriptor| {
                descriptor.notification_vector = POSTED_WAKEUP_VECTOR;
                descriptor.destination = core.0.into();
                descriptor.suppressed = false;
            });
            cpu.sync().await;
        }
        drop(virt);
        if self.postbox.is_pending() || self.busy.get() || machine.wanted.get() != Wanted::Run {
            return;
        }
        self.halted.set(true);
        self.notify.notified().await;
        self.halted.set(false);
        cpu.sync().await;
    }
}

/// Maintains a vCPU's posted-interrupt descriptor and steal time as its task gets and loses a core.
pub struct Watcher(pub Weak<Machine>, pub usize);

impl TaskWatcher for Watcher {
    fn waits(&self) {
        if let Some(machine) = self.0.upgrade() {
            machine.vcpus[self.1].put_aside.set(Some(machine.hw.now()));
        }
    }

    fn runs(&self, cpu: &Cpu) {
        let Some(machine) = self.0.upgrade() else { return };
        let vcpu = &machine.vcpus[self.1];
        if let Some(since) = vcpu.put_aside.take() {
            vcpu.stolen.set(vcpu.stolen.get() + machine.hw.now().since(since));
        }
        if machine.support != InterruptSupport::Software {
            let _part = cpu.book(Part::Virt);
            vcpu.postbox.change(cpu, |descriptor| {
                descriptor.suppressed = false;
                descriptor.destination = cpu.id().0.into();
                descriptor.notification_vector = POSTED_VECTOR;
            });
        }
    }

    fn stops(&self, cpu: &Cpu, preempted: bool) {
        let Some(machine) = self.0.upgrade() else { return };
        machine.note_polled(self.1);
        if !preempted {
            return;
        }
        let vcpu = &machine.vcpus[self.1];
        vcpu.put_aside.set(Some(machine.hw.now()));
        if machine.support != InterruptSupport::Software {
            let _part = cpu.book(Part::Virt);
            vcpu.postbox.change(cpu, |descriptor| descriptor.suppressed = true);
        }
    }
}

/// A vCPU in guest mode, as its host core sees it.
pub struct InGuest(pub Weak<Machine>, pub usize);

impl GuestMode for InGuest {
    fn interrupt(&self, vector: u8) -> bool {
        let Some(machine) = self.0.upgrade() else { return false };
        if vector == POSTED_VECTOR && machine.support != InterruptSupport::Software {
            machine.vcpus[self.1].posted.notify_one();
            return true;
        }
        machine.vcpus[self.1].leave();
        false
    }
}
