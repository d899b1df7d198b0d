//! Interrupts, from a message to the driver's handler.
//!
//! Each core has its own vector table. An interrupt has a vector on one core, a handler, and a message that its
//! function sends. Deferred work ([`softirq`]) runs after the handlers.
//!
//! | file | subject |
//! |---|---|
//! | `line` | an interrupt: its vectors (the old ones while messages may be pending there), handler and thread |
//! | `apic` | what arrives at the cores |
//! | `intx` | functions that share a legacy line |
//! | `guest` | interrupts of guests |
//! | `softirq` | deferred work |
//!
//! The entries by which IOMMUs remap interrupts are in `dma/remapping`.

mod apic;
mod guest;
mod intx;
mod line;
mod softirq;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Barrier, Cpu, CpuId, CpuOps as _, Part};
use platform::irq::{Irq, IrqHandler, IrqThread};
use wire::pcie::IntxLine;

pub(crate) use apic::Apics;
pub use guest::{GuestMode, POSTED_VECTOR, POSTED_WAKEUP_VECTOR};
pub(crate) use intx::Intx;
pub(crate) use line::Line;
pub(crate) use softirq::{NapiState, Softirqs};

use line::Vectors;

use crate::cpu::{Context, CoreTimers, Cores, Expiry, Level};
use crate::tasks::Tasks;

/// Lower vectors are exceptions (Intel SDM, volume 3, 6.2).
const FIRST_VECTOR: u8 = 32;
/// Vector by which cores ask each other to run deferred work. Higher vectors are reserved for the kernel, too (Linux:
/// `CALL_FUNCTION_SINGLE_VECTOR`, arch/x86/include/asm/irq_vectors.h).
const IPI_VECTOR: u8 = 0xfb;
/// Vector of a core's timer (Linux: `LOCAL_TIMER_VECTOR`).
const TIMER_VECTOR: u8 = 0xec;

/// Interrupt counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IrqCounters {
    /// Interrupts handled by a driver.
    pub handled: u64,
    /// Interrupts without work for any handler.
    pub unhandled: u64,
    /// Vectors without an interrupt.
    pub spurious: u64,
    /// Messages to cores that do not exist.
    pub lost: u64,
    /// Interrupts between cores.
    pub between_cores: u64,
    /// Interrupts of the cores' timers (/proc/interrupts: LOC).
    pub timer: u64,
}

/// All interrupts of a kernel.
pub(crate) struct Irqs {
    cores: Rc<Cores>,
    apics: Rc<Apics>,
    softirqs: Rc<Softirqs>,
    tasks: Rc<Tasks>,
    lines: RefCell<BTreeMap<Irq, Rc<Line>>>,
    /// Legacy lines in use, by the interrupt of their vector.
    intx: RefCell<BTreeMap<Irq, Rc<Intx>>>,
    vectors: RefCell<Vec<Vectors>>,
    next: Cell<u32>,
    counters: Cell<IrqCounters>,
    /// Called when a vCPU has to be woken.
    wakeups: RefCell<Vec<guest::Wakeup>>,
}

impl Irqs {
    pub fn new(cores: Rc<Cores>, apics: Rc<Apics>, softirqs: Rc<Softirqs>, tasks: Rc<Tasks>) -> Self {
        let vectors = RefCell::new(cores.all.iter().map(|_| Vectors::default()).collect());
        Self {
            cores,
            apics,
            softirqs,
            tasks,
            lines: RefCell::default(),
            intx: RefCell::default(),
            vectors,
            next: Cell::new(1),
            counters: Cell::default(),
            wakeups: RefCell::default(),
        }
    }

    pub fn counters(&self) -> IrqCounters {
        IrqCounters { lost: self.apics.lost(), ..self.counters.get() }
    }

    /// Allocates an interrupt with a vector on `cpu`.
    pub fn allocate(&self, cpu: CpuId) -> Result<Rc<Line>, Error> {
        let line = self.take(cpu)?;
        self.lines.borrow_mut().insert(line.irq, Rc::clone(&line));
        Ok(line)
    }

    fn number(&self) -> Irq {
        Irq(self.next.replace(self.next.get() + 1))
    }

    fn take(&self, cpu: CpuId) -> Result<Rc<Line>, Error> {
        let irq = self.number();
        Ok(Rc::new(Line::new(irq, (cpu, self.take_vector(irq, cpu)?))))
    }

    fn take_vector(&self, irq: Irq, cpu: CpuId) -> Result<u8, Error> {
        self.vectors.borrow_mut()[usize::from(cpu.0)].take(irq).ok_or(Error::NoSpace)
    }

    /// Number of a core's vectors that are free.
    pub fn free_vectors(&self, cpu: CpuId) -> usize {
        self.vectors.borrow()[usize::from(cpu.0)].free()
    }

    /// Allocates an interrupt for a function on a legacy line. For the first function, the line gets a vector on
    /// `cpu`, and the flag is true.
    pub fn join(&self, line: IntxLine, cpu: CpuId) -> Result<(Rc<Line>, bool), Error> {
        let known = self.intx.borrow().values().find(|intx| intx.line == line).cloned();
        let is_new = known.is_none();
        let intx = match known {
            Some(intx) => intx,
            None => Rc::new(Intx::new(line, self.take(cpu)?, Rc::clone(&self.cores))),
        };
        self.intx.borrow_mut().insert(intx.own.irq, Rc::clone(&intx));
        let member = Rc::new(Line::on(&intx, self.number()));
        intx.join(&member);
        self.lines.borrow_mut().insert(member.irq, Rc::clone(&member));
        Ok((member, is_new))
    }

    /// Removes a legacy line that is no longer in use.
    pub fn forget(&self, intx: &Intx) {
        self.intx.borrow_mut().remove(&intx.own.irq);
        self.give_vectors(&intx.own);
    }

    /// Frees an interrupt and its vector.
    pub fn release(&self, irq: Irq) {
        let line = self.lines.borrow_mut().remove(&irq);
        if let Some(line) = line.filter(|line| line.intx().is_none()) {
            self.give_vectors(&line);
        }
    }

    fn give_vectors(&self, line: &Line) {
        let mut vectors = self.vectors.borrow_mut();
        for (cpu, vector) in line.take_destinations() {
            vectors[usize::from(cpu.0)].give(vector);
        }
    }

    /// Gives an interrupt a vector on another core. The caller changes the message, and then calls
    /// [`moved`](Self::moved).
    pub fn move_line(&self, line: &Line, cpu: CpuId) -> Result<(), Error> {
        line.redirect((cpu, self.take_vector(line.irq, cpu)?));
        Ok(())
    }

    /// The interrupt goes to another core from now on. Moves its handler thread and calls the observer.
    pub fn moved(&self, line: &Line) {
        if let Some(task) = line.task().and_then(|task| self.tasks.get(task)) {
            self.cores.scheduler().set_affinity(&task, vec![line.arrives_at().0]);
        }
        line.tell_moved();
    }

    /// Like [`moved`](Self::moved), for a function on a legacy line.
    pub fn move_member(&self, line: &Line, cpu: CpuId) {
        line.follow(cpu);
        self.moved(line);
    }

    /// The interrupt has arrived at its new destination, so no message is in flight to the old ones. It may still be
    /// pending there.
    fn settle(&self, line: &Line, cpu: CpuId, vector: u8) {
        if line.arrives_at() != (cpu, vector) {
            return;
        }
        line.settle(|&(cpu, vector)| {
            let waits = self.apics.holds(cpu, vector);
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

    /// Adds a handler for interrupts posted to a vCPU that is not running.
    pub fn on_posted_wakeup(&self, handler: guest::Wakeup) {
        self.wakeups.borrow_mut().push(handler);
    }

    pub fn clear(&self) {
        self.wakeups.take();
        self.lines.borrow_mut().clear();
        self.intx.take().into_values().for_each(|intx| intx.clear());
    }

    fn count(&self, change: impl FnOnce(&mut IrqCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Sets the handler of `irq`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such interrupt, [`Error::Busy`] if it has a handler.
    pub fn request(
        &self,
        irq: Irq,
        name: &str,
        handler: IrqHandler,
        thread: Option<IrqThread>,
    ) -> Result<(), Error> {
        let line = self.line(irq).ok_or(Error::Invalid)?;
        line.set_handler(name, handler)?;
        if let Some(thread) = thread {
            line.start_thread(&self.tasks, thread);
        }
        // The line may have waited for it.
        if let Some(intx) = line.intx() {
            intx.end_if_done(line.arrives_at().0);
        }
        Ok(())
    }

    /// Removes the handler of `irq`.
    pub fn free(&self, irq: Irq) {
        if let Some(line) = self.line(irq) {
            line.free();
        }
    }

    /// A core's interrupt loop.
    pub async fn serve(self: Rc<Self>, id: CpuId) {
        let cores = Rc::clone(&self.cores);
        let costs = &cores.costs;
        let context = Context::new(Rc::clone(&cores), Level::Hardirq, id, Part::Irq);
        let cpu = context.cpu();
        loop {
            self.apics.arrival(id).await;
            let core = cores.get(id);
            cores.leave_idle(core, &context, Part::Irq);
            core.raise(&context);
            cores.note_busy(core);
            while let Some(vector) = self.apics.accept(id) {
                // Interrupt entry is serialising, so the write-combining buffers drain.
                context.barrier(Barrier::Serialising);
                context.cycles(Part::Irq, costs.irq_entry);
                cpu.sync().await;
                let served = self.handle(&cpu, id, vector);
                context.cycles(Part::Irq, costs.irq_exit);
                cpu.sync().await;
                if let Some(intx) = served {
                    intx.end_if_done(id);
                }
            }
            core.lower(Level::Hardirq);
            cores.note_busy(core);
        }
    }

    /// A core's timer: interrupts the core whenever a deadline has passed.
    pub async fn run_timer(self: Rc<Self>, id: CpuId) {
        loop {
            CoreTimers::expiry(&self.cores, id).await;
            self.apics.raise(id, TIMER_VECTOR);
            self.cores.get(id).timers.handled().await;
        }
    }

    /// Handles a vector. Returns its legacy line, if it has one.
    fn handle(&self, cpu: &Cpu, id: CpuId, vector: u8) -> Option<Rc<Intx>> {
        match vector {
            // The core has left the guest meanwhile; posted interrupts are checked at the next entry.
            POSTED_VECTOR => {}
            POSTED_WAKEUP_VECTOR => {
                let handlers = self.wakeups.borrow().clone();
                handlers.iter().for_each(|handler| handler(cpu));
            }
            TIMER_VECTOR => {
                self.count(|c| c.timer += 1);
                for expiry in self.cores.get(id).timers.take_expired(self.cores.now()) {
                    cpu.work(self.cores.costs.timer);
                    match expiry {
                        Expiry::Wake(waker) => waker.wake(),
                        Expiry::Call(call) => call(cpu),
                    }
                }
            }
            IPI_VECTOR => {
                self.count(|c| c.between_cores += 1);
                self.softirqs.take_asked(cpu, id);
            }
            _ => return self.handle_line(cpu, id, vector),
        }
        None
    }

    fn handle_line(&self, cpu: &Cpu, id: CpuId, vector: u8) -> Option<Rc<Intx>> {
        let irq = self.vectors.borrow()[usize::from(id.0)].of(vector);
        let intx = irq.and_then(|irq| self.intx.borrow().get(&irq).cloned());
        let line = intx.as_ref().map(|intx| Rc::clone(&intx.own)).or_else(|| self.line(irq?));
        let Some(line) = line else {
            self.count(|c| c.spurious += 1);
            return None;
        };
        self.settle(&line, id, vector);
        let is_handled = match &intx {
            None => line.call(cpu),
            Some(intx) => intx.serve(cpu),
        };
        self.count(|c| if is_handled { c.handled += 1 } else { c.unhandled += 1 });
        intx
    }
}
