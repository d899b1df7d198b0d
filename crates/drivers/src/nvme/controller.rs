//! An NVMe controller: life cycle, interrupts, namespaces, and recovery if it misbehaves.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::dma::DmaCounters;
use platform::irq::{Affinity, Irq, IrqReturn};
use platform::kernel::Program;
use platform::pci::{ChannelState, PciBinding, PciDevice, Recovery};
use platform::sync::Semaphore;
use units::Duration;
use wire::nvme::{AsyncEvent, event};
use wire::pcie::FunctionAddress;

use super::admin::{Abilities, Admin};
use super::counters::NvmeCounters;
use super::io::IoQueues;
use super::means::Means;
use super::memory_buffer::MemoryBuffer;
use super::multipath::Heads;
use super::namespace::Namespace;
use super::options::NvmeOptions;
use super::registers::Registers;

/// Poll interval while requests drain before a shutdown.
const LOOK: Duration = Duration::from_us(20);

/// Stage of a controller's life, which decides what becomes of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControllerState {
    /// First initialisation.
    Starting,
    /// Accepts commands.
    Live,
    /// In reset; requests wait.
    Resetting,
    /// Gone or given up; requests fail.
    Dead,
}

/// An NVMe controller and all that its driver keeps of it, from probe to removal.
pub struct Controller {
    me: Weak<Controller>,
    /// Index among the driver's controllers.
    instance: u32,
    means: Rc<Means>,
    admin: Admin,
    io: IoQueues,
    buffer: OnceCell<MemoryBuffer>,
    irqs: RefCell<Vec<Irq>>,
    abilities: OnceCell<Abilities>,
    namespaces: RefCell<BTreeMap<u32, Rc<Namespace>>>,
    /// Multipath heads of namespaces that other controllers may reach too.
    heads: Rc<Heads>,
    state: Cell<ControllerState>,
    /// Serialises reset and removal.
    change: Semaphore,
    /// A bus error occurred: the function is about to be reset.
    frozen: Cell<bool>,
}

impl Controller {
    /// Initialises a controller.
    pub(super) async fn probe(
        cpu: &Cpu,
        device: PciDevice,
        instance: u32,
        options: NvmeOptions,
        heads: &Rc<Heads>,
    ) -> Result<Rc<Self>, Error> {
        let registers = Registers::new(cpu, &device).await?;
        let means = Rc::new(Means {
            dma: device.dma(),
            kernel: device.kernel(),
            device,
            registers,
            sgl_threshold: Cell::new(options.sgl_threshold),
            options,
            counters: Cell::default(),
        });
        let queue = Admin::allocate(cpu, &means)?;
        let controller = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            instance,
            admin: Admin::new(Rc::clone(&means), queue, {
                let me = me.clone();
                move |cpu, told| {
                    if let Some(controller) = me.upgrade() {
                        controller.event(cpu, told);
                    }
                }
            }),
            io: IoQueues::new(Rc::clone(&means)),
            means,
            buffer: OnceCell::new(),
            irqs: RefCell::default(),
            abilities: OnceCell::new(),
            namespaces: RefCell::default(),
            heads: Rc::clone(heads),
            state: Cell::new(ControllerState::Starting),
            change: Semaphore::new(1),
            frozen: Cell::new(false),
        });
        let done = controller.first_start(cpu).await;
        if let Err(error) = done {
            controller.end(cpu, error).await;
            return Err(error);
        }
        Ok(controller)
    }

    async fn first_start(self: &Rc<Self>, cpu: &Cpu) -> Result<(), Error> {
        let Means { device, options, .. } = &*self.means;
        let cpus = self.means.kernel.cpus();
        let wanted = options.queues.unwrap_or(cpus).clamp(1, cpus);
        // Interrupts: the admin queue's, then one per I/O queue at the first core of its group.
        let places = std::iter::once(CpuId(0)).chain((0..wanted).map(|n| first_of(n, wanted, cpus)));
        let affinity = Affinity::Cpus(places.collect());
        let irqs = match options.legacy_interrupt {
            true => vec![device.alloc_intx(cpu, affinity).await?],
            false => device.alloc_irqs(cpu, 1, wanted + 1, affinity).await?,
        };
        let least = if irqs.len() == 1 { 1 } else { irqs.len() as u16 - 1 };
        self.irqs.borrow_mut().extend(&irqs);
        for (vector, &irq) in (0..).zip(&irqs) {
            let me = self.me.clone();
            let handler = Rc::new(move |cpu: &Cpu| match me.upgrade() {
                Some(controller) => controller.interrupt(cpu, vector),
                None => IrqReturn::None,
            });
            device.request_irq(irq, &format!("nvme-q{vector}"), handler, None)?;
        }
        self.disable(cpu).await?;
        self.enable(cpu).await?;
        let abilities = self.admin.identify(cpu).await?;
        let _ = self.abilities.set(abilities);
        if let Some(buffer) = MemoryBuffer::find(cpu, &self.means).await {
            let _ = self.buffer.set(buffer);
        }
        let count = self.admin.ask_for_queues(cpu, wanted.min(least)).await?;
        if count < wanted {
            for n in 0..count.min(irqs.len() as u16 - 1) {
                let at = first_of(n, count, cpus);
                device.set_irq_affinity(cpu, irqs[usize::from(n) + 1], at).await?;
            }
        }
        self.io.allocate(cpu, count, self.buffer.get())?;
        self.io.create(cpu, &self.admin, |queue| self.vector_of(queue)).await?;
        self.state.set(ControllerState::Live);
        self.admin.listen(cpu).await;
        self.scan(cpu).await
    }

    /// Event counters.
    pub fn counters(&self) -> NvmeCounters {
        self.means.counters.get()
    }

    /// Current state.
    pub fn state(&self) -> ControllerState {
        self.state.get()
    }

    /// Number of I/O queue pairs.
    pub fn queues(&self) -> u16 {
        self.io.count()
    }

    /// Whether its submission queues are in the controller memory buffer.
    pub fn uses_memory_buffer(&self) -> bool {
        self.io.uses_memory_buffer()
    }

    /// DMA mappings and allocations of the function.
    pub fn dma_counters(&self) -> DmaCounters {
        self.means.dma.counters()
    }

    pub(super) fn instance(&self) -> u32 {
        self.instance
    }

    pub(super) fn set_sgl_threshold(&self, bytes: u32) {
        self.means.sgl_threshold.set(bytes);
    }

    pub(super) fn options(&self) -> &NvmeOptions {
        &self.means.options
    }

    pub(super) fn address(&self) -> FunctionAddress {
        self.means.device.address()
    }

    pub(super) fn node(&self) -> Node {
        self.means.device.node()
    }

    pub(super) fn admin(&self) -> &Admin {
        &self.admin
    }

    pub(super) fn io(&self) -> &IoQueues {
        &self.io
    }

    /// Interrupt vector of a queue.
    fn vector_of(&self, queue: u16) -> u16 {
        if self.irqs.borrow().len() == 1 { 0 } else { queue }
    }

    fn interrupt(&self, cpu: &Cpu, vector: u16) -> IrqReturn {
        self.means.count(|c| c.interrupts += 1);
        let is_shared = self.irqs.borrow().len() == 1;
        let mut found = 0;
        if vector == 0 {
            found += self.admin.reap(cpu);
        }
        if is_shared || vector > 0 {
            found += self.io.interrupt(cpu, (!is_shared).then_some(vector));
        }
        if found == 0 {
            self.means.count(|c| c.idle_interrupts += 1);
            return IrqReturn::None;
        }
        IrqReturn::Handled
    }

    // Namespaces and events.

    /// Registers new namespaces and removes those that are gone.
    async fn scan(&self, cpu: &Cpu) -> Result<(), Error> {
        let (Some(me), Some(abilities)) = (self.me.upgrade(), self.abilities.get()) else { return Ok(()) };
        let ids = self.admin.namespace_ids(cpu, abilities).await?;
        let gone: Vec<_> = {
            let mut known = self.namespaces.borrow_mut();
            let gone: Vec<u32> = known.keys().copied().filter(|id| !ids.contains(id)).collect();
            gone.iter().filter_map(|id| known.remove(id)).collect()
        };
        gone.iter().for_each(|namespace| self.withdraw(namespace));
        for id in ids {
            if self.namespaces.borrow().contains_key(&id) {
                continue;
            }
            let says = self.admin.namespace(cpu, id).await?;
            let format = says.current_format();
            if says.size == 0 || !(9..=12).contains(&format.block_shift) || format.metadata > 0 {
                self.means.log(&format!("namespace {id} has an unsupported format"));
                continue;
            }
            self.check()?;
            let namespace = Namespace::new(&me, id, abilities, &says);
            self.namespaces.borrow_mut().insert(id, Rc::clone(&namespace));
            namespace.register(&*self.means.kernel, &self.heads, abilities);
        }
        Ok(())
    }

    /// Removes all block devices.
    fn unregister(&self) {
        let all = self.namespaces.take();
        all.values().for_each(|namespace| self.withdraw(namespace));
    }

    fn withdraw(&self, namespace: &Rc<Namespace>) {
        namespace.unregister(&*self.means.kernel, &self.heads);
    }

    /// Handles an asynchronous event, in a new task since it takes time.
    fn event(self: Rc<Self>, cpu: &Cpu, told: AsyncEvent) {
        let kernel = Rc::clone(&self.means.kernel);
        let work: Program = Box::new(move |cpu| {
            Box::pin(async move {
                let _part = cpu.book(Part::Driver);
                self.means.log(&format!("event {}/{}", told.kind, told.information));
                self.admin.read_log(&cpu, told.log).await;
                let changed = AsyncEvent::NAMESPACE_CHANGED.information;
                if told.kind == event::NOTICE && told.information == changed {
                    let _ = self.scan(&cpu).await;
                }
                if told == AsyncEvent::PERSISTENT_ERROR {
                    self.reset(&cpu).await;
                }
                self.admin.await_event(&cpu);
            })
        });
        kernel.queue_work(cpu, work);
    }

    // Recovery.

    /// Handles a request timeout, in a new task since it takes time.
    pub(super) fn overdue(&self, cpu: &Cpu, namespace: u32, queue: u16, tag: u16) {
        let Some(me) = self.me.upgrade() else { return };
        let work: Program = Box::new(move |cpu| {
            Box::pin(async move {
                let _part = cpu.book(Part::Driver);
                me.rescue(&cpu, namespace, queue, tag).await;
            })
        });
        self.means.kernel.queue_work(cpu, work);
    }

    /// Like Linux's `nvme_timeout`: first checks for a lost interrupt, then aborts, then resets.
    async fn rescue(&self, cpu: &Cpu, namespace: u32, queue: u16, tag: u16) {
        let Some(id) = self.io.in_flight(namespace, queue, tag) else { return };
        self.means.count(|c| c.timeouts += 1);
        cpu.sync().await;
        self.io.poll(cpu, queue);
        if self.io.in_flight(namespace, queue, tag).is_none() {
            self.means.count(|c| c.lost_interrupts += 1);
            return;
        }
        match self.means.registers.status(cpu).await {
            // No answer during a bus reset; the controller is restarted afterwards.
            None if self.frozen.get() => return,
            None => return self.abandon(cpu, Error::NoDevice).await,
            Some(status) if status.fatal => {
                self.means.log("fatal error");
                return self.reset(cpu).await;
            }
            Some(_) => {}
        }
        match self.io.abort(namespace, queue, tag) {
            Some((command, false)) => {
                self.means.log(&format!("queue {id} command {command:#x} timed out"));
                if matches!(self.admin.abort(cpu, id, command).await, Err(Error::TimedOut)) {
                    self.reset(cpu).await;
                }
            }
            Some((_, true)) => self.reset(cpu).await,
            None => {}
        }
    }

    /// Resets the controller and resumes the requests in flight; gives it up on failure. Does nothing if a reset or
    /// removal is already under way.
    async fn reset(&self, cpu: &Cpu) {
        if self.state.get() != ControllerState::Live || !self.change.try_acquire() {
            return;
        }
        self.means.log("reset");
        self.freeze();
        match self.restart(cpu).await {
            // A bus reset is in progress; whoever does it restarts the controller.
            Err(_) if self.frozen.get() => {}
            Err(error) => {
                self.means.log(&format!("reset failed: {error}"));
                self.abandon(cpu, error).await;
                self.unregister();
            }
            Ok(()) => {}
        }
        self.change.release();
    }

    /// Called after the function was reset, when the controller has lost all state.
    async fn after_reset(&self, cpu: &Cpu) -> Result<(), Error> {
        // A restart in progress would wait for answers that never come.
        self.admin.cancel(Error::Cancelled);
        self.change.acquire().await;
        self.frozen.set(false);
        let done = self.restart(cpu).await;
        self.change.release();
        done
    }

    /// Stops accepting commands; requests wait.
    fn freeze(&self) {
        if self.state.get() != ControllerState::Dead {
            self.state.set(ControllerState::Resetting);
        }
        self.close();
    }

    fn close(&self) {
        self.admin.set_live(false);
        self.io.freeze();
    }

    /// Fails if the controller was removed or a bus reset began meanwhile.
    fn check(&self) -> Result<(), Error> {
        match () {
            () if self.state.get() == ControllerState::Dead => Err(Error::NoDevice),
            () if self.frozen.get() => Err(Error::Cancelled),
            () => Ok(()),
        }
    }

    /// Disables the controller, which drops all its queues.
    async fn disable(&self, cpu: &Cpu) -> Result<(), Error> {
        self.close();
        self.means.registers.disable(cpu).await
    }

    /// Enables the controller with its admin queue.
    async fn enable(&self, cpu: &Cpu) -> Result<(), Error> {
        self.admin.enable_controller(cpu).await?;
        self.check()?;
        self.admin.set_live(true);
        Ok(())
    }

    /// Initialises the controller again and resubmits waiting requests. The caller holds `change`.
    async fn restart(&self, cpu: &Cpu) -> Result<(), Error> {
        self.check()?;
        self.means.count(|c| c.resets += 1);
        self.freeze();
        // Only a disabled controller is known not to access memory.
        self.disable(cpu).await?;
        self.check()?;
        self.admin.cancel(Error::Cancelled);
        self.io.take_back(cpu);
        if let Some(buffer) = self.buffer.get() {
            buffer.set_address(cpu, &self.means);
        }
        self.enable(cpu).await?;
        let queues = self.queues();
        if self.admin.ask_for_queues(cpu, queues).await? < queues {
            return Err(Error::Io);
        }
        self.io.create(cpu, &self.admin, |queue| self.vector_of(queue)).await?;
        self.check()?;
        self.state.set(ControllerState::Live);
        self.admin.listen(cpu).await;
        self.check()?;
        self.io.resume(cpu);
        Ok(())
    }

    /// Marks the controller as dead and fails all its requests with `error`.
    fn give_up(&self, cpu: &Cpu, error: Error) {
        self.state.set(ControllerState::Dead);
        self.admin.lose(error);
        self.io.lose(cpu, error);
    }

    /// Like [`give_up`](Self::give_up), but first stops a controller that may still access memory.
    async fn abandon(&self, cpu: &Cpu, error: Error) {
        // The read inside returns after all requests that the device has sent.
        self.means.device.set_master(cpu, false).await;
        self.give_up(cpu, error);
    }

    /// Shuts down, cleanly if the controller still responds.
    async fn shut_down(&self, cpu: &Cpu) {
        // Users with open block devices see the removal.
        self.unregister();
        let device = &self.means.device;
        let deadline = cpu.now() + self.means.options.admin_timeout;
        // A controller in reset may still complete them.
        let hopes = || self.state.get() == ControllerState::Live || self.change.available() == 0;
        while self.io.is_busy() && cpu.now() < deadline && device.is_present() && hopes() {
            cpu.sleep(LOOK).await;
        }
        self.change.acquire().await;
        if self.state.get() == ControllerState::Live && device.is_present() {
            let _ = self.means.registers.shut_down(cpu).await;
        }
        self.end(cpu, Error::NoDevice).await;
        self.change.release();
    }

    /// Stops the controller and frees its resources.
    async fn end(&self, cpu: &Cpu, error: Error) {
        let device = &self.means.device;
        if device.is_present() {
            let _ = self.disable(cpu).await;
        }
        self.abandon(cpu, error).await;
        self.unregister();
        for irq in self.irqs.take() {
            device.free_irq(irq);
        }
        device.free_irqs(cpu).await;
        self.io.free(cpu);
        self.admin.free(cpu);
    }
}

/// First core of a group.
fn first_of(group: u16, groups: u16, cpus: u16) -> CpuId {
    CpuId((u32::from(group) * u32::from(cpus)).div_ceil(u32::from(groups)) as u16)
}

impl PciBinding for Controller {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            self.shut_down(cpu).await;
        })
    }

    fn error_detected(&self, cpu: &Cpu, state: ChannelState) -> Recovery {
        match state {
            ChannelState::Normal => Recovery::CanRecover,
            ChannelState::Frozen => {
                // Outstanding commands are submitted again after the reset.
                self.frozen.set(true);
                self.freeze();
                Recovery::NeedReset
            }
            ChannelState::Gone => {
                self.give_up(cpu, Error::NoDevice);
                Recovery::Disconnect
            }
        }
    }

    fn slot_reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Recovery> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            match self.after_reset(cpu).await {
                Ok(()) => Recovery::CanRecover,
                Err(_) => Recovery::Disconnect,
            }
        })
    }
}
