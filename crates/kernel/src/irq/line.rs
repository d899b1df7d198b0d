//! An interrupt, and the vector table of a core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, CpuId, Part};
use platform::irq::{Irq, IrqHandler, IrqMoved, IrqReturn, IrqThread};
use platform::kernel::{IrqState, Priority, TaskId, TaskParams};
use platform::sync::WaitQueue;

use super::{FIRST_VECTOR, Intx, TIMER_VECTOR};
use crate::tasks::Tasks;

/// An interrupt: its destination, its handler and the handler's thread.
pub(crate) struct Line {
    pub irq: Irq,
    name: RefCell<String>,
    to: Cell<Destination>,
    /// Previous destinations: messages in flight still go there.
    before: RefCell<Vec<Destination>>,
    handler: RefCell<Option<IrqHandler>>,
    /// Called when the destination changes.
    observer: RefCell<Option<IrqMoved>>,
    thread: RefCell<Option<Rc<WaitQueue>>>,
    /// Task of the handler thread.
    task: Cell<Option<TaskId>>,
    /// Whether the handler asked for its thread, which has not begun.
    wanted: Cell<bool>,
    /// Whether its handler thread is due or running.
    in_thread: Cell<bool>,
    count: Cell<u64>,
    /// The legacy line, for a function's INTx interrupt.
    intx: Option<Rc<Intx>>,
}

/// Core and vector.
pub(super) type Destination = (CpuId, u8);

impl Line {
    pub(super) fn new(irq: Irq, to: Destination) -> Self {
        Self {
            irq,
            name: RefCell::default(),
            to: Cell::new(to),
            before: RefCell::default(),
            handler: RefCell::new(None),
            observer: RefCell::new(None),
            thread: RefCell::new(None),
            task: Cell::new(None),
            wanted: Cell::new(false),
            in_thread: Cell::new(false),
            count: Cell::new(0),
            intx: None,
        }
    }

    /// The INTx interrupt of a function on a line.
    pub(super) fn on(intx: &Rc<Intx>, irq: Irq) -> Self {
        Self { intx: Some(Rc::clone(intx)), ..Self::new(irq, intx.own.arrives_at()) }
    }

    /// The legacy line, for a function's INTx interrupt.
    pub fn intx(&self) -> Option<Rc<Intx>> {
        self.intx.clone()
    }

    /// Core and vector of its destination.
    pub fn arrives_at(&self) -> Destination {
        self.to.get()
    }

    /// State for display.
    pub fn state(&self) -> IrqState {
        let Self { irq, name, to, count, .. } = self;
        IrqState { irq: *irq, name: name.borrow().clone(), cpu: to.get().0, count: count.get() }
    }

    /// Messages go to another destination from now on.
    pub(super) fn redirect(&self, to: Destination) {
        self.before.borrow_mut().push(self.to.replace(to));
    }

    /// The legacy line's interrupt goes to this core from now on.
    pub(super) fn follow(&self, cpu: CpuId) {
        self.to.set((cpu, self.to.get().1));
    }

    /// Forgets the previous destinations at which no message may be pending.
    pub(super) fn settle(&self, may_be_pending: impl FnMut(&Destination) -> bool) {
        self.before.borrow_mut().retain(may_be_pending);
    }

    /// All destinations, when it ends.
    pub(super) fn take_destinations(&self) -> impl Iterator<Item = Destination> {
        self.before.take().into_iter().chain([self.to.get()])
    }

    /// Sets the function called when the destination changes.
    pub fn on_moved(&self, observer: IrqMoved) {
        *self.observer.borrow_mut() = Some(observer);
    }

    /// Tells the observer where it goes.
    pub(super) fn tell_moved(&self) {
        let observer = self.observer.borrow().clone();
        if let Some(observer) = observer {
            observer(self.to.get().0);
        }
    }

    /// Sets the handler.
    ///
    /// # Errors
    /// [`Error::Busy`] if it has one.
    pub(super) fn set_handler(&self, name: &str, handler: IrqHandler) -> Result<(), Error> {
        if self.handler.borrow().is_some() {
            return Err(Error::Busy);
        }
        name.clone_into(&mut self.name.borrow_mut());
        *self.handler.borrow_mut() = Some(handler);
        Ok(())
    }

    /// Whether it has a handler.
    pub(super) fn has_handler(&self) -> bool {
        self.handler.borrow().is_some()
    }

    /// Removes the handler.
    pub(super) fn free(&self) {
        *self.handler.borrow_mut() = None;
        *self.observer.borrow_mut() = None;
        if let Some(thread) = self.thread.borrow_mut().take() {
            thread.wake_all();
        }
    }

    /// Calls the handler and starts its thread if requested. Returns whether there was work.
    pub(super) fn call(&self, cpu: &Cpu) -> bool {
        self.count.set(self.count.get() + 1);
        let handler = self.handler.borrow().clone();
        let outcome = handler.map_or(IrqReturn::None, |handler| {
            let _driver = cpu.book(Part::Driver);
            handler(cpu)
        });
        if outcome == IrqReturn::WakeThread
            && let Some(thread) = &*self.thread.borrow()
        {
            self.in_thread.set(true);
            self.wanted.set(true);
            thread.wake_all();
        }
        outcome != IrqReturn::None
    }

    /// Task of the handler thread.
    pub(super) fn task(&self) -> Option<TaskId> {
        self.task.get()
    }

    /// Whether its handler thread is due or running.
    pub(super) fn is_in_thread(&self) -> bool {
        self.in_thread.get()
    }

    /// Starts the handler thread, for the slow part of a handler.
    pub(super) fn start_thread(self: &Rc<Self>, tasks: &Tasks, thread: IrqThread) {
        let queue = Rc::new(WaitQueue::new());
        *self.thread.borrow_mut() = Some(Rc::clone(&queue));
        let params = TaskParams {
            name: format!("irq/{}-{}", self.irq.0, self.name.borrow()),
            priority: Priority::RealTime(50),
            cpus: vec![self.to.get().0],
            ..TaskParams::default()
        };
        let line = Rc::downgrade(self);
        let task = tasks.spawn(
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
                        if asked {
                            let _part = cpu.book(Part::Irq);
                            thread(cpu.clone()).await;
                        }
                        if let Some(line) = line.upgrade() {
                            line.thread_ended(&cpu).await;
                        }
                        if !asked {
                            return;
                        }
                    }
                })
            }),
        );
        self.task.set(Some(task));
    }

    /// The handler thread has finished.
    async fn thread_ended(&self, cpu: &Cpu) {
        self.in_thread.set(false);
        if let Some(intx) = &self.intx {
            cpu.sync().await;
            intx.end_if_done(cpu.id());
        }
    }
}

/// The interrupt of each vector of a core.
pub(super) struct Vectors([Option<Irq>; 256]);

impl Default for Vectors {
    fn default() -> Self {
        Self([None; 256])
    }
}

impl Vectors {
    pub fn take(&mut self, irq: Irq) -> Option<u8> {
        let free = self.all_free().next()?;
        self.0[usize::from(free)] = Some(irq);
        Some(free)
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.all_free().count()
    }

    /// From the timer's vector on, they are the kernel's own (Linux: `FIRST_SYSTEM_VECTOR`).
    fn all_free(&self) -> impl Iterator<Item = u8> {
        (FIRST_VECTOR..TIMER_VECTOR).filter(|&v| self.0[usize::from(v)].is_none())
    }

    pub fn give(&mut self, vector: u8) {
        self.0[usize::from(vector)] = None;
    }

    pub fn of(&self, vector: u8) -> Option<Irq> {
        self.0[usize::from(vector)]
    }
}
