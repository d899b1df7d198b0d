//! What runs a vCPU.

use std::rc::{Rc, Weak};

use engine::either;
use kernel::{POSTED_VECTOR, POSTED_WAKEUP_VECTOR, TaskWatcher};
use platform::cpu::{Cpu, Part};
use units::Duration;

use super::{Request, Vcpu};
use crate::exits::Exit;
use crate::interrupts::InterruptSupport;
use crate::machine::{Machine, Wanted};

/// Longest time a vCPU computes before it checks whether to yield its core, like Linux's tick.
const TICK: Duration = Duration::from_ms(1);

impl Vcpu {
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
