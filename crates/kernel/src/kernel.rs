//! A kernel on a host: what it is booted with, what it runs, what it knows.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use engine::{Handle, Notify, Trace};
use hardware::Fabric;
use hardware::root::HostId;
use platform::Error;
use platform::block::BlockDriver;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::irq::{Irq, Napi, NapiHandle};
use platform::kernel::{IrqState, Kernel as KernelFace, Priority, Program, TaskId, TaskParams, TaskState};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::net::{NetCore, NetDriver, PacketDevice};
use platform::pci::PciDriver;
use platform::socket::Network;
use platform::storage::BlockFile;
use platform::sync::Completion;
use units::{Duration, Time};
use wire::pcie::Bdf;

use crate::account::{Ran, Times};
use crate::block::{Block, BlockParams};
use crate::costs::{CoreParams, KernelCosts, SchedParams};
use crate::cpu::{Context, Cores, Level};
use crate::dma::{Dma, DmaParams};
use crate::irq::{IrqCounters, Irqs, NapiState, Softirq};
use crate::mm::{NodeMemory, PageAllocator, Pins};
use crate::net::inet::Stack;
use crate::net::namespace::Namespace;
use crate::net::{InetParams, Net};
use crate::pci::{ErrorCounters, FunctionInfo, Pci, PciParams, TreeText};
use crate::sched::{Task, TaskFuture};
use crate::tasks::{TaskInfo, TaskTimes, Tasks};

/// What a kernel is booted with.
#[derive(Clone, Debug)]
pub struct KernelParams {
    /// The cores.
    pub core: CoreParams,
    /// What kernel code costs.
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

/// What the kernel's parts share.
pub(crate) struct Inner {
    pub me: Weak<Inner>,
    pub cores: Rc<Cores>,
    pub irqs: Irqs,
    pub softirqs: Vec<Softirq>,
    pub pages: RefCell<PageAllocator>,
    pub pci: Pci,
    pub dma: Dma,
    pub net: Net,
    pub inet: Rc<Stack>,
    /// Protocols of network namespaces beside the first.
    namespaces: RefCell<Vec<Rc<Stack>>>,
    pub block: Block,
    pub pins: Pins,
    pub tasks: Tasks,
    log: RefCell<VecDeque<(Time, String)>>,
}

/// Lines that the log keeps (assumed: Linux's ring of 256 KiB holds some thousand).
const LOG_LINES: usize = 4096;

impl Inner {
    /// Starts a task.
    pub fn spawn_program(&self, params: TaskParams, program: Program) -> TaskId {
        let id = self.tasks.next_id();
        let first = params.cpus.first().copied().unwrap_or_default();
        let cores = Rc::clone(&self.cores);
        let context = Context::with_policy(cores, Level::Task, first, Part::User, params.policy);
        let task = Task::new(id, params.name, params.priority, params.cpus, context);
        let cpu = task.context.cpu();
        self.tasks.add(Rc::clone(&task));
        let (me, future) = (self.me.clone(), TaskFuture::new(task, program(cpu)));
        self.cores.hw.spawn(async move {
            future.await;
            if let Some(kernel) = me.upgrade() {
                kernel.tasks.ended(id);
            }
        });
        id
    }

    /// Writes a line into the log.
    pub fn log(&self, line: String) {
        let mut log = self.log.borrow_mut();
        if log.len() == LOG_LINES {
            log.pop_front();
        }
        log.push_back((self.cores.now(), line));
    }

    /// The node of a root port.
    pub fn node_of_root(&self, root: Bdf) -> Node {
        self.cores.with(|host, _, _| {
            let ports = host.ports();
            let port = ports.iter().find(|port| port.id == root);
            port.map_or(Node(0), |port| crate::convert::node(port.params.node))
        })
    }

    /// Takes pages.
    pub fn take_pages(&self, cpu: &Cpu, order: u8, policy: Policy) -> Result<Pages, Error> {
        let _part = cpu.book(Part::Memory);
        let policy = if policy == Policy::Task { cpu.policy() } else { policy };
        let taken = self.pages.borrow_mut().take(cpu.id(), order, policy);
        let costs = self.cores.costs;
        match taken {
            Ok((pages, listed)) => {
                cpu.work(if listed { costs.page } else { costs.page_slow });
                Ok(pages)
            }
            Err(error) => {
                cpu.work(costs.page_slow);
                Err(error)
            }
        }
    }

    /// Gives pages back.
    pub fn give_pages(&self, cpu: &Cpu, pages: Pages) {
        let _part = cpu.book(Part::Memory);
        cpu.work(self.cores.costs.page);
        self.pages.borrow_mut().give(cpu.id(), pages);
    }
}

impl KernelFace for Inner {
    fn cpus(&self) -> u16 {
        self.cores.all.len() as u16
    }

    fn nodes(&self) -> u8 {
        self.pages.borrow().usage().len() as u8
    }

    fn node_of(&self, cpu: CpuId) -> Node {
        self.cores.get(cpu).node
    }

    fn now(&self) -> Time {
        self.cores.now()
    }

    fn spawn(&self, params: TaskParams, program: Program) -> TaskId {
        self.spawn_program(params, program)
    }

    fn set_affinity(&self, task: TaskId, cpus: &[CpuId]) -> Result<(), Error> {
        let task = self.tasks.get(task).ok_or(Error::Invalid)?;
        if cpus.iter().any(|cpu| usize::from(cpu.0) >= self.cores.all.len()) {
            return Err(Error::Invalid);
        }
        self.cores.set_affinity(&task, cpus.to_vec());
        Ok(())
    }

    fn set_priority(&self, task: TaskId, priority: Priority) -> Result<(), Error> {
        let known = match priority {
            Priority::Idle => true,
            Priority::Nice(nice) => (-20..=19).contains(&nice),
            Priority::RealTime(priority) => (1..=99).contains(&priority),
        };
        let task = self.tasks.get(task).filter(|_| known).ok_or(Error::Invalid)?;
        self.cores.set_priority(&task, priority);
        Ok(())
    }

    fn set_policy(&self, task: TaskId, policy: Policy) -> Result<(), Error> {
        let known = match policy {
            Policy::Preferred(node) | Policy::Bind(node) => node.0 < self.nodes(),
            _ => true,
        };
        let task = self.tasks.get(task).filter(|_| known).ok_or(Error::Invalid)?;
        task.context.set_policy(policy);
        Ok(())
    }

    fn tasks(&self) -> Vec<TaskState> {
        self.cores.settle_accounts();
        self.tasks.states()
    }

    fn interrupts(&self) -> Vec<IrqState> {
        let state = |line: &Rc<crate::irq::Line>| IrqState {
            irq: line.irq,
            name: line.name.borrow().clone(),
            cpu: line.cpu.get(),
            count: line.count.get(),
        };
        self.irqs.lines().iter().map(state).collect()
    }

    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Kernel);
            cpu.work(self.cores.costs.syscall);
            let me = self.me.upgrade().ok_or(Error::NoDevice)?;
            me.move_irq(cpu, irq, to).await
        })
    }

    fn node_of_address(&self, address: PhysAddr) -> Option<Node> {
        self.pages.borrow().node_of(address)
    }

    fn alloc_pages(&self, cpu: &Cpu, order: u8, policy: Policy) -> Result<Pages, Error> {
        self.take_pages(cpu, order, policy)
    }

    fn free_pages(&self, cpu: &Cpu, pages: Pages) {
        self.give_pages(cpu, pages);
    }

    fn move_pages(&self, cpu: &Cpu, pages: Pages, to: Node) -> Result<Pages, Error> {
        let _part = cpu.book(Part::Memory);
        cpu.work(self.cores.costs.syscall);
        self.move_task_pages(cpu, pages, to)
    }

    fn napi(&self, napi: Rc<dyn Napi>) -> NapiHandle {
        NapiState::new(self.me.clone(), napi)
    }

    fn queue_work(&self, cpu: &Cpu, work: Program) {
        let id = cpu.id();
        self.spawn_program(TaskParams::named(format!("kworker/{}", id.0)).on(id), work);
    }

    fn register_block(&self, driver: Rc<dyn BlockDriver>) -> String {
        self.block.add(driver)
    }

    fn open_block(&self, name: &str) -> Option<Rc<dyn BlockFile>> {
        self.block.device(name).map(|device| device as _)
    }

    fn unregister_block(&self, name: &str) {
        self.block.remove(name);
    }

    fn register_net(&self, driver: Rc<dyn NetDriver>) -> Rc<dyn NetCore> {
        self.net.add(driver)
    }

    fn packet_device(&self, name: &str) -> Option<Rc<dyn PacketDevice>> {
        self.net.device(name).map(|device| device as _)
    }

    fn network(&self) -> Rc<dyn Network> {
        Rc::clone(&self.inet) as _
    }

    fn busy(&self, cpu: CpuId) -> [Duration; Part::ALL.len()] {
        let times = self.cores.times(cpu);
        Part::ALL.map(|part| times.of(part))
    }

    fn log(&self, line: String) {
        Inner::log(self, line);
    }
}

/// A kernel that runs on a host of the simulation.
pub struct Kernel {
    inner: Rc<Inner>,
}

impl Kernel {
    /// Puts a kernel on a host: its cores take interrupts from now on. [`boot`](Self::boot) does the rest.
    pub fn new(hw: &Handle<Fabric>, host: HostId, params: KernelParams) -> Self {
        let cores = Rc::new(Cores::new(hw.clone(), host, params.core, params.costs, params.sched));
        let memory = cores.with(|host, _, _| host.memory.params().clone());
        let homes = cores.all.iter().map(|core| core.node).collect();
        let count = cores.all.len();
        let inner = Rc::new_cyclic(|me| Inner {
            me: me.clone(),
            irqs: Irqs::new(count),
            softirqs: (0..count).map(|_| Softirq::default()).collect(),
            pages: RefCell::new(PageAllocator::new(&memory, homes)),
            pci: Pci::new(params.pci, &memory),
            dma: Dma::new(params.dma, count),
            net: Net::new(me.clone()),
            inet: Stack::new(me, memory.sockets.len(), params.inet),
            namespaces: RefCell::default(),
            block: Block::new(me.clone(), params.block),
            cores,
            pins: Pins::default(),
            tasks: Tasks::default(),
            log: RefCell::default(),
        });
        inner.net.connect(Rc::clone(&inner.inet) as _);
        let controller = inner.irqs.controller();
        inner.cores.with(|host, _, _| host.connect_interrupts(Box::new(controller)));
        for core in &inner.cores.all {
            hw.spawn(Rc::clone(&inner).serve_interrupts(core.id));
            hw.spawn(Rc::clone(&inner).serve_softirqs(core.id));
            inner.start_softirq_task(core.id);
        }
        Self { inner }
    }

    pub(crate) fn inner(&self) -> Rc<Inner> {
        Rc::clone(&self.inner)
    }

    /// Network devices and what is above them.
    pub fn net(&self) -> &Net {
        &self.inner.net
    }

    /// Records what the cores do from now on.
    pub fn watch(&self, trace: Trace<Ran>) {
        self.inner.cores.is_watched.set(trace.is_on());
        *self.inner.cores.trace.borrow_mut() = trace;
    }

    /// Block devices.
    pub fn block(&self) -> &Block {
        &self.inner.block
    }

    /// What drivers and programs see of it.
    pub fn face(&self) -> Rc<dyn KernelFace> {
        Rc::clone(&self.inner) as _
    }

    /// Makes a network namespace: what programs in it see of the kernel. It has the devices that they configure.
    pub fn namespace(&self) -> Rc<dyn KernelFace> {
        let inner = &self.inner;
        let nodes = inner.pages.borrow().usage().len();
        let stack = inner.inet.another(nodes);
        inner.namespaces.borrow_mut().push(Rc::clone(&stack));
        Namespace::new(Rc::clone(inner), stack)
    }

    /// Offers a driver to all functions, now and later.
    pub fn add_driver(&self, driver: Rc<dyn PciDriver>) {
        self.inner.pci.drivers.borrow_mut().push(driver);
    }

    /// Boots: prepares IOMMUs, finds the PCI functions and binds drivers, as a task of core 0. The future ends when
    /// that is done, and need not be polled for it to happen.
    pub fn boot(&self) -> impl Future<Output = ()> + use<> {
        let booted = Rc::new(Notify::new());
        let (inner, done) = (Rc::clone(&self.inner), Rc::clone(&booted));
        self.inner.spawn_program(
            TaskParams::named("init"),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Kernel);
                    inner.start_iommus(&cpu);
                    inner.enumerate(&cpu).await;
                    inner.start_ports(&cpu).await;
                    inner.bind_all(&cpu).await;
                    inner.log("booted".into());
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
        self.inner.spawn_program(params, Box::new(program))
    }

    /// Lets an interrupt arrive at another core (Linux: writing to `smp_affinity`), in a task of its own. The future ends when
    /// that is done, and need not be polled for it to happen: with an error if there is no such interrupt or core, or the
    /// core has no vector left.
    pub fn set_irq_affinity(&self, irq: Irq, to: CpuId) -> impl Future<Output = Result<(), Error>> + use<> {
        let done = Completion::new();
        let (inner, told) = (Rc::clone(&self.inner), done.clone());
        self.inner.spawn_program(
            TaskParams::named("smp_affinity"),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Kernel);
                    told.complete(inner.move_irq(&cpu, irq, to).await);
                })
            }),
        );
        async move { done.wait().await }
    }

    /// Gives a function `count` virtual functions, or takes all with 0 (Linux: writing to `sriov_numvfs`), in a task of its
    /// own. The future ends when that is done, and need not be polled for it to happen: with [`Error::NoDevice`] if
    /// there is no such function or no driver has it, or with what its driver says.
    pub fn set_virtual_functions(
        &self,
        of: Bdf,
        count: u16,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        let done = Completion::new();
        let (inner, told) = (Rc::clone(&self.inner), done.clone());
        self.inner.spawn_program(
            TaskParams::named("sriov_numvfs"),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Kernel);
                    let binding = inner.pci.function(of).and_then(|function| function.binding());
                    told.complete(match binding {
                        Some(binding) => binding.configure_sriov(&cpu, count).await,
                        None => Err(Error::NoDevice),
                    });
                })
            }),
        );
        async move { done.wait().await }
    }

    /// Functions, by address.
    pub fn pci(&self) -> Vec<FunctionInfo> {
        self.inner.inspect()
    }

    /// The PCI tree as text.
    pub fn pci_text(&self) -> String {
        TreeText(&self.pci()).to_string()
    }

    /// The last tasks that ended, and then those that have not, by number.
    pub fn tasks(&self) -> Vec<TaskInfo> {
        self.inner.cores.settle_accounts();
        self.inner.tasks.all()
    }

    /// What all tasks have used, ended or not, together for each name.
    pub fn task_times(&self) -> BTreeMap<String, TaskTimes> {
        self.inner.cores.settle_accounts();
        self.inner.tasks.by_name()
    }

    /// Busy time of a core by part.
    pub fn core_times(&self, cpu: CpuId) -> Times {
        self.inner.cores.times(cpu)
    }

    /// Interrupts: number, name, core, and how often.
    pub fn interrupts(&self) -> Vec<(Irq, String, CpuId, u64)> {
        let lines = self.inner.irqs.lines();
        lines.iter().map(|l| (l.irq, l.name.borrow().clone(), l.cpu.get(), l.count.get())).collect()
    }

    /// Requests that IOMMUs have refused: by whom, and how many.
    pub fn iommu_faults(&self) -> Vec<(Bdf, u64)> {
        let mut faults = BTreeMap::new();
        self.inner.cores.with(|host, _, _| {
            for (requester, _, count) in host.iommus.iter().flat_map(|iommu| iommu.faults().counts()) {
                *faults.entry(requester).or_default() += count;
            }
        });
        faults.into_iter().collect()
    }

    /// Counts of errors that PCI functions reported.
    pub fn pci_errors(&self) -> ErrorCounters {
        self.inner.pci.errors()
    }

    /// Counts of interrupts.
    pub fn irq_counters(&self) -> IrqCounters {
        self.inner.irqs.counters()
    }

    /// Memory by node.
    pub fn memory(&self) -> Vec<NodeMemory> {
        self.inner.pages.borrow().usage()
    }

    /// How often memory came from another node than the policy preferred.
    pub fn memory_fallbacks(&self) -> u64 {
        self.inner.pages.borrow().fallbacks()
    }

    /// The last lines of the log with their times.
    pub fn log(&self) -> Vec<(Time, String)> {
        self.inner.log.borrow().iter().cloned().collect()
    }

    /// How long the cores have been busy, all together.
    pub fn busy(&self) -> Duration {
        let cores = &self.inner.cores;
        cores.all.iter().map(|core| cores.times(core.id).total()).sum()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // Drivers hold the kernel, and the kernel the drivers.
        for function in self.inner.pci.all() {
            function.driver.borrow_mut().take();
        }
        self.inner.pci.functions.borrow_mut().clear();
        self.inner.pci.drivers.borrow_mut().clear();
        self.inner.net.clear();
        self.inner.inet.clear();
        self.inner.namespaces.take().iter().for_each(|stack| stack.clear());
        self.inner.irqs.clear();
        self.inner.softirqs.iter().for_each(Softirq::clear);
        self.inner.block.clear();
    }
}
