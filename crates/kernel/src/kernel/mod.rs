//! A kernel on a host: parameters, boot, tasks, inspection, administration.

mod face;
mod files;
mod guest;
mod inner;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use engine::{Handle, Notify, Trace};
use hardware::Fabric;
use hardware::root::HostId;
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::{Irq, IrqHandler};
use platform::kernel::{Kernel as KernelFace, TaskId, TaskParams, giving};
use platform::memory::{PhysAddr, Policy};
use platform::pci::PciDriver;
use platform::sync::Completion;
use units::{Duration, Time};
use wire::pcie::{Bdf, FunctionAddress};

use crate::account::{Ran, Times};
use crate::base::Base;
use crate::block::{Block, BlockParams};
use crate::costs::{CoreParams, KernelCosts, SchedParams};
use crate::cpu::Cores;
use crate::dma::{Dma, DmaMode, DmaParams, Iommu};
use crate::ground::{Ground, HostGround, LineWaits};
use crate::irq::{Apics, IrqCounters, Irqs, Softirqs};
use crate::mm::{NodeMemory, Pins};
use crate::net::inet::Stack;
use crate::net::{InetParams, Net};
use crate::pci::{Backend, ErrorCounters, FunctionInfo, Pci, PciParams, TreeText};
use crate::sched::TaskWatcher;
use crate::sys::{self, SysNode};
use crate::tasks::{TaskInfo, TaskTimes};

use face::Face;
use files::Files;
pub use guest::GuestInterrupts;
pub(crate) use inner::Inner;

/// Boot parameters of a kernel.
#[derive(Clone, Debug)]
pub struct KernelParams {
    /// Core parameters; all cores are alike.
    pub core: CoreParams,
    /// CPU costs of kernel code.
    pub costs: KernelCosts,
    /// The scheduler.
    pub sched: SchedParams,
    /// The PCI core.
    pub pci: PciParams,
    /// The DMA API.
    pub dma: DmaParams,
    /// The block layer.
    pub block: BlockParams,
    /// The Internet protocols.
    pub inet: InetParams,
}

impl KernelParams {
    /// Linux's defaults, for such cores and this IOMMU mode.
    pub fn linux(core: CoreParams, dma: DmaMode) -> Self {
        Self {
            core,
            costs: KernelCosts::linux(),
            sched: SchedParams::linux(),
            pci: PciParams::default(),
            dma: DmaParams::linux(dma),
            block: BlockParams::default(),
            inet: InetParams::linux(),
        }
    }
}

/// A kernel on a simulated host.
pub struct Kernel {
    inner: Rc<Inner>,
    face: Rc<Face>,
    halted: Cell<bool>,
}

impl Kernel {
    /// Puts a kernel on a host. Its cores take interrupts from now on; [`boot`](Self::boot) does the rest.
    pub fn new(hw: &Handle<Fabric>, host: HostId, params: KernelParams) -> Self {
        let ground = HostGround::new(hw.clone(), host, &params.core);
        Self::on(hw, Rc::new(ground), params)
    }

    /// As [`new`](Self::new), on any ground. Tasks run in the simulation of `hw`.
    pub fn on(hw: &Handle<Fabric>, ground: Rc<dyn Ground>, params: KernelParams) -> Self {
        let hw = hw.scoped();
        let mut inventory = ground.inventory();
        inventory.cores.truncate(params.sched.cores);
        let cores = Cores::new(hw.clone(), ground, &inventory.cores, params.core, params.costs, params.sched);
        let base = Base::new(cores, &inventory);
        let Base { cores, log, memory, tasks } = base.clone();
        let apics = Rc::new(Apics::new(Rc::clone(&cores)));
        let softirqs = Softirqs::new(Rc::clone(&cores), Rc::clone(&apics));
        let irqs = Irqs::new(Rc::clone(&cores), Rc::clone(&apics), Rc::clone(&softirqs), Rc::clone(&tasks));
        let irqs = Rc::new(irqs);
        let dma = Rc::new(Dma::new(params.dma, base.clone()));
        let pins = Rc::new(Pins::default());
        let net = Net::new(base.clone());
        let inet = Stack::new(base.clone(), Rc::clone(&softirqs), Rc::downgrade(&net), params.inet);
        let block = Block::new(base.clone(), Rc::clone(&pins), params.block);
        let face = Rc::new_cyclic(|me: &Weak<Face>| {
            let me = Weak::<Face>::clone(me);
            let pci = Pci::new(params.pci, &inventory, base, Rc::clone(&irqs), Rc::clone(&dma), me);
            let kernel = Inner {
                cores,
                log,
                memory,
                tasks,
                apics,
                softirqs,
                irqs,
                dma,
                pci,
                pins,
                files: Files::default(),
                net,
                inet,
                namespaces: RefCell::default(),
                block,
            };
            Face { stack: Rc::clone(&kernel.inet), kernel: Rc::new(kernel) }
        });
        let inner = Rc::clone(&face.kernel);
        inner.net.connect(Rc::clone(&inner.inet) as _);
        inner.cores.ground.connect_interrupts(Some(inner.apics.sink()));
        for core in &inner.cores.all {
            hw.spawn(Rc::clone(&inner.irqs).serve(core.id));
            hw.spawn(Rc::clone(&inner.irqs).run_timer(core.id));
            hw.spawn(Rc::clone(&inner.softirqs).serve(core.id));
            inner.softirqs.start_task(&inner.tasks, core.id);
        }
        Self { inner, face, halted: Cell::new(false) }
    }

    /// Stops all cores at once, as in a panic or power loss: no task runs and no interrupt is taken. Devices are not
    /// told.
    pub fn halt(&self) {
        self.halted.set(true);
        self.inner.cores.settle_accounts();
        self.inner.cores.ground.connect_interrupts(None);
        self.inner.cores.hw.end_all();
    }

    /// Whether the kernel was [halted](Self::halt).
    pub fn is_halted(&self) -> bool {
        self.halted.get()
    }

    /// The machine that it runs on.
    pub fn ground(&self) -> Rc<dyn Ground> {
        Rc::clone(&self.inner.cores.ground)
    }

    /// Network devices and protocols.
    pub fn net(&self) -> &Net {
        &self.inner.net
    }

    /// Records the activity of the cores from now on.
    pub fn watch(&self, trace: Trace<Ran>) {
        self.inner.cores.is_watched.set(trace.is_on());
        *self.inner.cores.trace.borrow_mut() = trace;
    }

    /// Block devices.
    pub fn block(&self) -> &Block {
        &self.inner.block
    }

    /// The interface for drivers and programs.
    pub fn face(&self) -> Rc<dyn KernelFace> {
        Rc::clone(&self.face) as _
    }

    /// Creates a network namespace and returns the kernel interface for programs in it. The namespace has the devices
    /// that they configure.
    pub fn namespace(&self) -> Rc<dyn KernelFace> {
        let inner = &self.inner;
        let stack = inner.inet.another();
        inner.namespaces.borrow_mut().push(Rc::clone(&stack));
        Rc::new(Face { kernel: Rc::clone(inner), stack })
    }

    /// Adds a driver and offers it to all functions, present and future.
    pub fn add_driver(&self, driver: Rc<dyn PciDriver>) {
        self.inner.pci.drivers.add(driver);
    }

    /// Boots as a task of core 0: enables IOMMUs, enumerates PCI functions, binds drivers. The task goes on even if
    /// the future is dropped.
    pub fn boot(&self) -> impl Future<Output = ()> + use<> {
        let booted = Rc::new(Notify::new());
        let (inner, done) = (Rc::clone(&self.inner), Rc::clone(&booted));
        self.inner.tasks.spawn(
            TaskParams::named("init"),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Kernel);
                    inner.dma.start_iommus(&cpu);
                    inner.pci.start(&cpu).await;
                    inner.log.write("booted".into());
                    done.notify_one();
                })
            }),
        );
        async move { booted.notified().await }
    }

    /// Starts a program as a task.
    pub fn spawn(
        &self,
        params: TaskParams,
        program: impl FnOnce(Cpu) -> Async<'static, ()> + 'static,
    ) -> TaskId {
        self.inner.tasks.spawn(params, Box::new(program))
    }

    /// Starts a task that returns a value.
    pub fn run<T: 'static>(
        &self,
        params: TaskParams,
        work: impl AsyncFnOnce(Cpu) -> T + 'static,
    ) -> Completion<T> {
        let (done, program) = giving(work);
        self.inner.tasks.spawn(params, program);
        done
    }

    /// Unbinds a function and offers it to all drivers again. Fails with [`Error::NoDevice`] if there is no such
    /// function.
    pub fn rebind(&self, at: FunctionAddress) -> Completion<Result<(), Error>> {
        let pci = Rc::clone(&self.inner.pci);
        self.run(TaskParams::named("rebind"), async move |cpu| pci.rebind(&cpu, at).await)
    }

    /// Delivery of interrupts to guests, for hypervisors.
    pub fn guest_interrupts(&self) -> GuestInterrupts<'_> {
        GuestInterrupts(&self.inner)
    }

    /// Mappings beside those of drivers.
    pub fn iommu(&self) -> Iommu<'_> {
        Iommu(&self.inner)
    }

    // Inspection.

    /// PCI functions by address.
    pub fn pci(&self) -> Vec<FunctionInfo> {
        self.inner.pci.inspect()
    }

    /// The root port above a function.
    pub fn root_port_of(&self, at: FunctionAddress) -> Option<Bdf> {
        self.inner.pci.topology.function(at).map(|function| function.root())
    }

    /// The other functions in a function's IOMMU group.
    pub fn group_of(&self, at: FunctionAddress) -> Vec<FunctionInfo> {
        self.inner
            .pci
            .topology
            .function(at)
            .map_or_else(Vec::new, |function| self.inner.pci.group_of(&function))
    }

    /// End of the highest memory range.
    pub fn memory_end(&self) -> PhysAddr {
        let inventory = self.inner.cores.ground.inventory();
        PhysAddr(inventory.memory.iter().flatten().map(|&(base, bytes)| base.0 + bytes).max().unwrap_or(0))
    }

    /// The PCI tree as text.
    pub fn pci_text(&self) -> String {
        TreeText(&self.pci()).to_string()
    }

    /// Tasks by ID: recently ended ones first, then running ones.
    pub fn tasks(&self) -> Vec<TaskInfo> {
        self.inner.cores.settle_accounts();
        self.inner.tasks.all()
    }

    /// CPU time of all tasks, ended or not, by name.
    pub fn task_times(&self) -> BTreeMap<String, TaskTimes> {
        self.inner.cores.settle_accounts();
        self.inner.tasks.by_name()
    }

    /// CPU time of a running task for one part.
    pub fn task_time(&self, task: TaskId, part: Part) -> Duration {
        let Some(task) = self.inner.tasks.get(task) else { return Duration::ZERO };
        task.context.settle_account();
        task.times().of(part)
    }

    /// CPU time of a running task.
    pub fn task_busy(&self, task: TaskId) -> Duration {
        Part::ALL.iter().map(|&part| self.task_time(task, part)).sum()
    }

    /// Time that a running task spent runnable without a core.
    pub fn task_waited(&self, task: TaskId) -> Duration {
        self.inner.tasks.get(task).map_or(Duration::ZERO, |task| task.turns.waited(self.inner.cores.now()))
    }

    /// Core on which a running task runs or last ran.
    pub fn core_of(&self, task: TaskId) -> Option<CpuId> {
        self.inner.tasks.get(task).map(|task| task.context.cpu().id())
    }

    /// Time that interrupts took on a core (Linux: `irq` and `softirq` of /proc/stat).
    pub fn interrupt_time(&self, cpu: CpuId) -> Duration {
        self.inner.cores.interrupt_time(cpu)
    }

    /// Busy time of a core by part.
    pub fn core_times(&self, cpu: CpuId) -> Times {
        self.inner.cores.times(cpu)
    }

    /// The part of a core's time in which it switched to the idle loop and back.
    pub fn idling(&self, cpu: CpuId) -> Duration {
        self.inner.cores.idling(cpu)
    }

    /// How long a core has waited for devices: for what its loads read, and for room for its stores.
    pub fn waited_for_devices(&self, cpu: CpuId) -> Duration {
        self.inner.cores.stalled(cpu)
    }

    /// How long a core has waited for lines that its own caches did not have.
    pub fn waited_for_lines(&self, cpu: CpuId) -> LineWaits {
        self.inner.cores.ground.waited(cpu)
    }

    /// How long cores have held the invalidation queue of each IOMMU.
    pub fn invalidation_queues_held(&self) -> Vec<Duration> {
        self.inner.dma.queues_held()
    }

    /// How long a core has waited for invalidations: for the queue, and for the IOMMU's answer.
    pub fn waited_for_invalidations(&self, cpu: CpuId) -> Duration {
        self.inner.dma.waited(cpu)
    }

    /// Names of the devices that a process, by its first task, or else that of the running task has opened.
    pub fn opened(&self, process: Option<TaskId>) -> BTreeSet<String> {
        self.inner.tasks.opened(process)
    }

    /// Interrupts: number, name, core and count.
    pub fn interrupts(&self) -> Vec<(Irq, String, CpuId, u64)> {
        let states = self.inner.irqs.lines().into_iter().map(|line| line.state());
        states.map(|line| (line.irq, line.name, line.cpu, line.count)).collect()
    }

    /// Requests blocked by IOMMUs: requester and count.
    pub fn iommu_faults(&self) -> Vec<(Bdf, u64)> {
        let mut faults = BTreeMap::new();
        for (requester, count) in self.inner.cores.ground.iommu_faults() {
            *faults.entry(requester).or_default() += count;
        }
        faults.into_iter().collect()
    }

    /// Errors reported by PCI functions.
    pub fn pci_errors(&self) -> ErrorCounters {
        self.inner.pci.errors()
    }

    /// Interrupt counters.
    pub fn irq_counters(&self) -> IrqCounters {
        self.inner.irqs.counters()
    }

    /// Installed and free memory of each node.
    pub fn memory(&self) -> Vec<NodeMemory> {
        self.inner.memory.usage()
    }

    /// Allocations from another node than the policy prefers.
    pub fn memory_fallbacks(&self) -> u64 {
        self.inner.memory.fallbacks()
    }

    /// Recent log lines with their times.
    pub fn log(&self) -> Vec<(Time, String)> {
        self.inner.log.lines()
    }

    /// The lines of the [log](Self::log) that tell what is lacking or fails.
    pub fn warnings(&self) -> Vec<(Time, String)> {
        self.inner.log.warnings()
    }

    /// Total busy time of all cores.
    pub fn busy(&self) -> Duration {
        let cores = &self.inner.cores;
        cores.all.iter().map(|core| cores.times(core.id).total()).sum()
    }

    /// Reads the state as a tree of attributes, in a task of core 0.
    pub fn sys(&self) -> impl Future<Output = SysNode> + use<> {
        let inner = Rc::clone(&self.inner);
        let tree =
            self.run(TaskParams::named("tree").on(CpuId(0)), async move |cpu| sys::tree(&inner, &cpu).await);
        async move { tree.wait().await }
    }

    // Administration. Operations that take time run in a task of their own; dropping the returned future does not stop
    // it.

    /// Moves an interrupt to another core (Linux: writing to `smp_affinity`). Fails if there is no such interrupt or
    /// core, or the core has no free vector.
    pub fn set_irq_affinity(&self, irq: Irq, to: CpuId) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("smp_affinity", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            inner.pci.move_irq(cpu, irq, to).await
        })
    }

    /// Masks or unmasks the interrupts of one function in the function itself, which keeps them pending meanwhile: all by the
    /// function mask of MSI-X, some in its table. Fails with [`Error::NotSupported`] if the function has no MSI-X, or
    /// [`Error::Invalid`] if these are not interrupts of one function.
    pub fn mask_irqs(&self, irqs: Vec<Irq>, masked: bool) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("mask", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            inner.pci.mask_irqs(cpu, &irqs, masked).await
        })
    }

    /// Lets the port above a function take its link down, as after an error (downstream port containment by software). Fails with
    /// [`Error::NotSupported`] if the port cannot.
    pub fn contain(&self, at: FunctionAddress) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("contain", async move |inner: &Rc<Inner>, cpu: &Cpu| inner.pci.contain(cpu, at).await)
    }

    /// Moves a program and all its tasks to other cores (`taskset -ap`). Fails if no task of the program is left, or
    /// there is no such core.
    pub fn move_process(
        &self,
        process: TaskId,
        to: Vec<CpuId>,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let face = Rc::clone(&self.face);
        self.as_task("taskset", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            let tasks = inner.tasks.of_process(process);
            if tasks.is_empty() {
                return Err(Error::Invalid);
            }
            for task in tasks {
                cpu.work(inner.cores.costs.syscall);
                face.set_affinity(task.id, &to)?;
            }
            Ok(())
        })
    }

    /// Sets the memory policy of a program and all its tasks, for future allocations.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no task of the program is left, or there is no such node.
    pub fn set_process_policy(&self, process: TaskId, policy: Policy) -> Result<(), Error> {
        let tasks = self.inner.tasks.of_process(process);
        if tasks.is_empty() {
            return Err(Error::Invalid);
        }
        tasks.iter().try_for_each(|task| self.face.set_policy(task.id, policy))
    }

    /// Interrupts of a network or block device, in vector order; empty if there is no such device.
    pub fn interrupts_of(&self, device: &str) -> Vec<Irq> {
        let inner = &self.inner;
        let net = inner.net.device(device).and_then(|device| device.driver()?.function());
        let at = net.or_else(|| inner.block.device(device)?.function());
        let function = at.and_then(|at| inner.pci.topology.function(at));
        function.map_or_else(Vec::new, |function| inner.pci.interrupts.of(&function))
    }

    /// Creates `count` virtual functions, or removes all with 0 (Linux: writing to `sriov_numvfs`). Fails with
    /// [`Error::NoDevice`] if there is no such function or it has no driver, or with the driver's error.
    pub fn set_virtual_functions(
        &self,
        of: FunctionAddress,
        count: u16,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("sriov_numvfs", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            let binding =
                inner.pci.topology.function(of).and_then(|function| inner.pci.drivers.binding_of(&function));
            match binding {
                Some(binding) => binding.configure_sriov(cpu, count).await,
                None => Err(Error::NoDevice),
            }
        })
    }

    /// Adds a function reached through `way`, at an address outside the fabric's own segment, and offers it to the
    /// drivers. Fails with [`Error::Invalid`] if the segment is the fabric's own, [`Error::Busy`] if the address is
    /// in use, [`Error::NoDevice`] if nothing answers.
    pub fn add_function(
        &self,
        at: FunctionAddress,
        way: Rc<dyn Backend>,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("pci", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            inner.pci.add_function(cpu, at, way).await
        })
    }

    /// Unbinds and removes a function that was added. With `gone`, the function was removed without notice and is not
    /// accessed. Fails with [`Error::NoDevice`] if no such function was added.
    pub fn remove_function(
        &self,
        at: FunctionAddress,
        gone: bool,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task("pci", async move |inner: &Rc<Inner>, cpu: &Cpu| {
            inner.pci.remove_function(cpu, at, gone).await
        })
    }

    /// Reports when a task gets and loses a core.
    pub fn watch_task(&self, task: TaskId, watcher: Rc<dyn TaskWatcher>) {
        if let Some(task) = self.inner.tasks.get(task) {
            task.watch(watcher);
        }
    }

    /// A core of a [ground whose cores do not always run](crate::CoreClocks) starts to run.
    pub fn core_runs(&self, core: CpuId) {
        if let Some(context) = self.inner.cores.get(core).running() {
            context.wake();
        }
    }

    /// Allocates an interrupt that no PCI function sends, and returns the vector for the hypervisor to raise.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the core has no free vector.
    pub fn add_interrupt(&self, cpu: CpuId, name: &str, handler: IrqHandler) -> Result<u8, Error> {
        let line = self.inner.irqs.allocate(cpu)?;
        self.inner.irqs.request(line.irq, name, handler, None)?;
        Ok(line.arrives_at().1)
    }

    /// Runs `work` in a task; the future resolves to its result.
    fn as_task<W>(&self, name: &str, work: W) -> impl Future<Output = Result<(), Error>> + use<W>
    where
        W: AsyncFnOnce(&Rc<Inner>, &Cpu) -> Result<(), Error> + 'static,
    {
        let inner = Rc::clone(&self.inner);
        let done = self.run(TaskParams::named(name), async move |cpu: Cpu| {
            let _part = cpu.book(Part::Kernel);
            work(&inner, &cpu).await
        });
        async move { done.wait().await }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.inner.pci.clear();
        self.inner.net.clear();
        self.inner.inet.clear();
        self.inner.namespaces.take().iter().for_each(|stack| stack.clear());
        self.inner.apics.clear();
        self.inner.irqs.clear();
        self.inner.softirqs.clear();
        self.inner.block.clear();
    }
}
