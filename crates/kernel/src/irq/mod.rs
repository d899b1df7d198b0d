//! Interrupts: from a message to the handler of a driver.
//!
//! Every core has its vectors; an interrupt number has a place in one core's table, its handler, and a message that
//! its function was told to send. Deferred work ([`softirq`]) runs behind the handlers.

mod guest;
mod line;
mod softirq;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use engine::Notify;
use platform::Error;
use platform::cpu::{Barrier, Cpu, CpuId, CpuOps as _, Part};
use platform::irq::{Irq, IrqHandler, IrqReturn, IrqThread};
use platform::kernel::TaskParams;
use platform::sync::WaitQueue;

pub use guest::{GuestMode, POSTED_VECTOR, POSTED_WAKEUP_VECTOR};
pub(crate) use line::{Line, Vectors};
pub(crate) use softirq::{NapiState, Softirq};

use guest::Guests;

use crate::cpu::{Context, Level};
use crate::ground::InterruptSink;
use crate::kernel::Inner;

/// Vectors below are the processor's exceptions (Intel SDM, volume 3, 6.2).
const FIRST_VECTOR: u8 = 32;
/// By which cores ask each other to look at deferred work; those above are the kernel's too (Linux:
/// `CALL_FUNCTION_SINGLE_VECTOR`, arch/x86/include/asm/irq_vectors.h).
const IPI_VECTOR: u8 = 0xfb;

/// What has arrived at one core and not been taken.
#[derive(Default)]
pub(crate) struct Inbox {
    pending: RefCell<VecDeque<u8>>,
    /// Accepted, its handler about to run (the bit of the in-service register).
    serving: Cell<Option<u8>>,
    notify: Notify,
}

impl Inbox {
    fn put(&self, vector: u8) {
        let mut pending = self.pending.borrow_mut();
        // A vector that is pending already stays pending once (the bit of the request register).
        if !pending.contains(&vector) {
            pending.push_back(vector);
        }
        self.notify.notify_one();
    }
}

/// Counts of interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IrqCounters {
    /// Handled by a driver's handler.
    pub handled: u64,
    /// No handler found anything to do.
    pub unhandled: u64,
    /// Vectors without an interrupt number.
    pub spurious: u64,
    /// Messages to cores that do not exist.
    pub lost: u64,
    /// From one core to another.
    pub between_cores: u64,
}

/// All interrupts of a kernel.
pub(crate) struct Irqs {
    inboxes: Vec<Rc<Inbox>>,
    lines: RefCell<BTreeMap<Irq, Rc<Line>>>,
    vectors: RefCell<Vec<Vectors>>,
    next: Cell<u32>,
    counters: Cell<IrqCounters>,
    lost: Rc<Cell<u64>>,
    /// By core: the guest that it is in.
    guests: Rc<Guests>,
    /// Told when a guest's core is to be woken.
    wakeups: RefCell<Vec<guest::Wakeup>>,
}

impl Irqs {
    pub fn new(cores: usize) -> Self {
        Self {
            inboxes: (0..cores).map(|_| Rc::default()).collect(),
            lines: RefCell::default(),
            vectors: RefCell::new((0..cores).map(|_| Vectors::default()).collect()),
            next: Cell::new(1),
            counters: Cell::default(),
            lost: Rc::default(),
            guests: Rc::new(Guests::new(cores)),
            wakeups: RefCell::default(),
        }
    }

    /// The cores' interrupt controllers, as those see them who send interrupts.
    pub fn controller(&self) -> InterruptSink {
        let (inboxes, lost) = (self.inboxes.clone(), Rc::clone(&self.lost));
        let guests = Rc::clone(&self.guests);
        Box::new(move |core, vector| match inboxes.get(core as usize) {
            Some(_) if guests.takes(core as usize, vector) => {}
            Some(inbox) => inbox.put(vector),
            None => lost.set(lost.get() + 1),
        })
    }

    pub fn counters(&self) -> IrqCounters {
        IrqCounters { lost: self.lost.get(), ..self.counters.get() }
    }

    /// A new interrupt number with a vector on `cpu`.
    pub fn allocate(&self, cpu: CpuId) -> Result<Rc<Line>, Error> {
        let irq = Irq(self.next.replace(self.next.get() + 1));
        let vector = self.vectors.borrow_mut()[usize::from(cpu.0)].take(irq).ok_or(Error::NoSpace)?;
        let line = Rc::new(Line::new(irq, cpu, vector));
        self.lines.borrow_mut().insert(irq, Rc::clone(&line));
        Ok(line)
    }

    /// Gives an interrupt number and its vector back.
    pub fn release(&self, irq: Irq) {
        if let Some(line) = self.lines.borrow_mut().remove(&irq) {
            let mut vectors = self.vectors.borrow_mut();
            let now = (line.cpu.get(), line.vector.get());
            for (cpu, vector) in line.before.take().into_iter().chain([now]) {
                vectors[usize::from(cpu.0)].give(vector);
            }
        }
    }

    /// Gives a line a vector on another core; the message must be changed by the caller.
    pub fn move_line(&self, line: &Line, cpu: CpuId) -> Result<(), Error> {
        let mut vectors = self.vectors.borrow_mut();
        let vector = vectors[usize::from(cpu.0)].take(line.irq).ok_or(Error::NoSpace)?;
        line.before.borrow_mut().push((line.cpu.get(), line.vector.get()));
        line.cpu.set(cpu);
        line.vector.set(vector);
        Ok(())
    }

    /// A line's interrupt has arrived at its new place: none can still be on its way to the old ones, though it may
    /// not have been taken there.
    fn settle(&self, line: &Line, cpu: CpuId, vector: u8) {
        if (line.cpu.get(), line.vector.get()) != (cpu, vector) {
            return;
        }
        line.before.borrow_mut().retain(|&(cpu, vector)| {
            let inbox = &self.inboxes[usize::from(cpu.0)];
            let waits = inbox.pending.borrow().contains(&vector) || inbox.serving.get() == Some(vector);
            if !waits {
                self.vectors.borrow_mut()[usize::from(cpu.0)].give(vector);
            }
            waits
        });
    }

    pub fn line(&self, irq: Irq) -> Option<Rc<Line>> {
        self.lines.borrow().get(&irq).cloned()
    }

    pub fn lines(&self) -> Vec<Rc<Line>> {
        self.lines.borrow().values().cloned().collect()
    }

    pub fn clear(&self) {
        self.guests.clear();
        self.wakeups.take();
        self.lines.borrow_mut().clear();
    }

    fn count(&self, change: impl FnOnce(&mut IrqCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}

impl Inner {
    /// Calls `handler` when `irq` arrives.
    pub fn request_irq(
        &self,
        irq: Irq,
        name: &str,
        handler: IrqHandler,
        thread: Option<IrqThread>,
    ) -> Result<(), Error> {
        let line = self.irqs.line(irq).ok_or(Error::Invalid)?;
        if line.handler.borrow().is_some() {
            return Err(Error::Busy);
        }
        name.clone_into(&mut line.name.borrow_mut());
        *line.handler.borrow_mut() = Some(handler);
        if let Some(thread) = thread {
            self.start_thread(&line, thread);
        }
        Ok(())
    }

    /// The task in which the slow part of a handler runs.
    fn start_thread(&self, line: &Rc<Line>, thread: IrqThread) {
        let queue = Rc::new(WaitQueue::new());
        *line.thread.borrow_mut() = Some(Rc::clone(&queue));
        let params = TaskParams {
            name: format!("irq/{}-{}", line.irq.0, line.name.borrow()),
            priority: platform::kernel::Priority::RealTime(50),
            cpus: vec![line.cpu.get()],
            ..TaskParams::default()
        };
        let of = Rc::clone(line);
        let line = Rc::downgrade(line);
        let task = self.spawn_program(
            params,
            Box::new(move |cpu| {
                Box::pin(async move {
                    loop {
                        let asked = queue
                            .wait_for(|| match line.upgrade() {
                                Some(line) if line.handler.borrow().is_some() => {
                                    line.wanted.replace(false).then_some(true)
                                }
                                _ => Some(false),
                            })
                            .await;
                        if !asked {
                            return;
                        }
                        thread(cpu.clone()).await;
                    }
                })
            }),
        );
        of.task.set(Some(task));
    }

    /// A line arrives at another core from now on: its thread follows, and who wants to know is told.
    pub fn line_moved(&self, line: &Line) {
        let to = line.cpu.get();
        if let Some(task) = line.task.get().and_then(|task| self.tasks.get(task)) {
            self.cores.set_affinity(&task, vec![to]);
        }
        let moved = line.moved.borrow().clone();
        if let Some(moved) = moved {
            moved(to);
        }
    }

    /// Calls no handler for `irq` any more.
    pub fn free_irq(&self, irq: Irq) {
        if let Some(line) = self.irqs.line(irq) {
            *line.handler.borrow_mut() = None;
            *line.moved.borrow_mut() = None;
            if let Some(thread) = line.thread.borrow_mut().take() {
                thread.wake_all();
            }
        }
    }

    /// What a core does about interrupts, for ever.
    pub async fn serve_interrupts(self: Rc<Self>, id: CpuId) {
        let cores = Rc::clone(&self.cores);
        let costs = cores.costs;
        let context = Context::new(Rc::clone(&cores), Level::Hardirq, id, Part::Irq);
        let cpu = context.cpu();
        let inbox = Rc::clone(&self.irqs.inboxes[usize::from(id.0)]);
        loop {
            inbox.notify.notified().await;
            let core = cores.get(id);
            if core.is_idle() && core.running().is_none() {
                context.cycles(Part::Irq, costs.idle_exit);
            }
            core.raise(&context);
            cores.note_busy(core);
            loop {
                let next = inbox.pending.borrow_mut().pop_front();
                inbox.serving.set(next);
                let Some(vector) = next else { break };
                // It serialises the core: what write combining holds leaves.
                context.barrier(Barrier::Serialising);
                context.cycles(Part::Irq, costs.irq_entry);
                cpu.sync().await;
                self.handle(&cpu, id, vector);
                context.cycles(Part::Irq, costs.irq_exit);
                cpu.sync().await;
            }
            core.lower(Level::Hardirq);
            cores.note_busy(core);
        }
    }

    /// Interrupts another core.
    pub fn send_ipi(&self, cpu: &Cpu, to: CpuId) {
        self.send_vector(cpu, to, IPI_VECTOR);
    }

    /// Interrupts another core with a vector.
    pub fn send_vector(&self, cpu: &Cpu, to: CpuId, vector: u8) {
        let costs = self.cores.costs;
        cpu.work(costs.ipi_send);
        let arrives = cpu.now() + self.cores.time_for(costs.ipi_transit);
        let (cores, inbox) = (Rc::clone(&self.cores), Rc::clone(&self.irqs.inboxes[usize::from(to.0)]));
        let guests = Rc::clone(&self.irqs.guests);
        self.cores.hw.spawn(async move {
            cores.hw.sleep_until(arrives).await;
            if !guests.takes(to.0.into(), vector) {
                inbox.put(vector);
            }
        });
    }

    fn handle(&self, cpu: &Cpu, id: CpuId, vector: u8) {
        if self.handle_posted(cpu, vector) {
            return;
        }
        if vector == IPI_VECTOR {
            self.irqs.count(|c| c.between_cores += 1);
            return self.take_asked(cpu, id);
        }
        let irq = self.irqs.vectors.borrow()[usize::from(id.0)].of(vector);
        let Some(line) = irq.and_then(|irq| self.irqs.line(irq)) else {
            self.irqs.count(|c| c.spurious += 1);
            return;
        };
        self.irqs.settle(&line, id, vector);
        line.count.set(line.count.get() + 1);
        let handler = line.handler.borrow().clone();
        let outcome = handler.map_or(IrqReturn::None, |handler| {
            let _driver = cpu.book(Part::Driver);
            handler(cpu)
        });
        match outcome {
            IrqReturn::None => self.irqs.count(|c| c.unhandled += 1),
            IrqReturn::Handled => self.irqs.count(|c| c.handled += 1),
            IrqReturn::WakeThread => {
                self.irqs.count(|c| c.handled += 1);
                line.wanted.set(true);
                if let Some(thread) = &*line.thread.borrow() {
                    thread.wake_all();
                }
            }
        }
    }
}
