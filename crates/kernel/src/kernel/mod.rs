//! A kernel on a host: parameters, boot, tasks.

mod admin;
mod face;
mod files;
mod inner;
mod inspect;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use engine::{Handle, Notify, Trace};
use hardware::Fabric;
use hardware::root::HostId;
use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::kernel::{Kernel as KernelFace, TaskId, TaskParams, giving};
use platform::pci::PciDriver;
use platform::sync::Completion;
use wire::pcie::FunctionAddress;

use crate::account::Ran;
use crate::base::Base;
use crate::block::{Block, BlockParams};
use crate::costs::{CoreParams, KernelCosts, SchedParams};
use crate::cpu::Cores;
use crate::dma::{Dma, DmaMode, DmaParams};
use crate::ground::{Ground, HostGround};
use crate::irq::{Apics, Irqs, Softirqs};
use crate::mm::Pins;
use crate::net::inet::Stack;
use crate::net::namespace::Namespace;
use crate::net::{InetParams, Net};
use crate::pci::{Pci, PciParams};

use files::Files;
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
        let inner = Rc::new_cyclic(|me: &Weak<Inner>| {
            let face = Weak::<Inner>::clone(me);
            let pci = Pci::new(params.pci, &inventory, base, Rc::clone(&irqs), Rc::clone(&dma), face);
            Inner {
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
            }
        });
        inner.net.connect(Rc::clone(&inner.inet) as _);
        inner.cores.ground.connect_interrupts(Some(inner.apics.sink()));
        for core in &inner.cores.all {
            hw.spawn(Rc::clone(&inner.irqs).serve(core.id));
            hw.spawn(Rc::clone(&inner.irqs).run_timer(core.id));
            hw.spawn(Rc::clone(&inner.softirqs).serve(core.id));
            inner.softirqs.start_task(&inner.tasks, core.id);
        }
        Self { inner, halted: Cell::new(false) }
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

    pub(crate) fn inner(&self) -> Rc<Inner> {
        Rc::clone(&self.inner)
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
        Rc::clone(&self.inner) as _
    }

    /// Creates a network namespace and returns the kernel interface for programs in it. The namespace has the devices
    /// that they configure.
    pub fn namespace(&self) -> Rc<dyn KernelFace> {
        let inner = &self.inner;
        let stack = inner.inet.another();
        inner.namespaces.borrow_mut().push(Rc::clone(&stack));
        Namespace::new(Rc::clone(inner), stack)
    }

    /// Adds a driver and offers it to all functions, present and future.
    pub fn add_driver(&self, driver: Rc<dyn PciDriver>) {
        self.inner.pci.add_driver(driver);
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
