//! A virtual machine.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use engine::Handle;
use hardware::Fabric;
use kernel::{Ground, InterruptSink, IommuDomain, Kernel, KernelParams};
use platform::Error;
use platform::cpu::{Cpu, CpuId, Node, Part};
use platform::dma::Direction;
use platform::irq::{Affinity, IrqReturn};
use platform::kernel::TaskParams;
use platform::pci::PciDevice;
use platform::sync::Completion;
use units::{Bytes, Iova, Time};
use wire::pcie::Bdf;

use crate::costs::VirtCosts;
use crate::function::Passed;
use crate::ground::GuestGround;
use crate::memory::GuestMemory;
use crate::vcpu::Vcpu;

/// The guest's first function: those below are a PC's own.
const FIRST_SLOT: u8 = 3;

/// What a virtual machine is made of.
#[derive(Clone, Debug)]
pub struct VmParams {
    /// What its tasks are called after.
    pub name: String,
    /// Its cores: for each, the host's cores that it may use.
    pub vcpus: Vec<Vec<CpuId>>,
    /// Its memory, a multiple of 2 MiB.
    pub memory: Bytes,
    /// The node of the host that the memory is from.
    pub node: Node,
    /// What exits cost.
    pub costs: VirtCosts,
    /// What its kernel is booted with.
    pub kernel: KernelParams,
}

/// Why a virtual machine cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VmError {
    /// There is not so much memory at the node.
    Memory(Error),
    /// A function cannot be passed through: without an IOMMU that translates, nothing keeps it from the host's memory.
    Function(wire::pcie::FunctionAddress, Error),
}

impl std::fmt::Display for VmError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(error) => write!(f, "its memory: {error}"),
            Self::Function(at, Error::NotSupported) => {
                write!(f, "{at} cannot be passed through: the host's IOMMU does not translate")
            }
            Self::Function(at, error) => write!(f, "{at} cannot be passed through: {error}"),
        }
    }
}

impl std::error::Error for VmError {}

/// Why a guest was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// An access to configuration space.
    Config,
    /// An access to an MSI-X table.
    Table,
    /// Nothing to do.
    Halt,
    /// A device's interrupt.
    Interrupt,
    /// The end of one.
    EndOfInterrupt,
}

/// How often a guest was left, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exits {
    /// For accesses to configuration space.
    pub config: u64,
    /// For accesses to MSI-X tables.
    pub table: u64,
    /// As a core had nothing to do.
    pub halt: u64,
    /// For devices' interrupts.
    pub interrupt: u64,
    /// For the ends of interrupts.
    pub end_of_interrupt: u64,
}

/// What the parts of a virtual machine share.
pub struct Board {
    pub hw: Handle<Fabric>,
    pub host: Rc<dyn Ground>,
    host_kernel: Weak<Kernel>,
    pub costs: VirtCosts,
    pub memory: GuestMemory,
    pub vcpus: Vec<Vcpu>,
    pub functions: RefCell<Vec<Rc<Passed>>>,
    pub sink: RefCell<Option<InterruptSink>>,
    exits: Cell<Exits>,
}

impl Board {
    /// The function that the guest finds at an address.
    pub fn function(&self, at: Bdf) -> Option<Rc<Passed>> {
        self.functions.borrow().iter().find(|function| function.at == at).cloned()
    }

    pub fn count(&self, exit: Exit) {
        let mut exits = self.exits.get();
        match exit {
            Exit::Config => exits.config += 1,
            Exit::Table => exits.table += 1,
            Exit::Halt => exits.halt += 1,
            Exit::Interrupt => exits.interrupt += 1,
            Exit::EndOfInterrupt => exits.end_of_interrupt += 1,
        }
        self.exits.set(exits);
    }

    /// For how long a vCPU has computed.
    pub fn clock(&self, number: usize) -> Time {
        let vcpu = &self.vcpus[number];
        if let Some((kernel, task)) = self.host_kernel.upgrade().zip(vcpu.task.get()) {
            let now = Time::ZERO + kernel.task_time(task, Part::User);
            vcpu.clock.set(now.max(vcpu.clock.get()));
        }
        vcpu.clock.get()
    }

    /// The guest's core is interrupted.
    pub fn deliver(&self, number: usize, vector: u8) {
        if let Some(sink) = &mut *self.sink.borrow_mut() {
            sink(number as u32, vector);
        }
    }

    /// A function's interrupt has come to the host's core `cpu`: the guest's core that it is for is told, if the guest wants it.
    pub fn raise(self: &Rc<Self>, function: &Passed, vector: u16, cpu: &Cpu) {
        let Some((core, vector)) = function.message(vector) else { return };
        let number = usize::from(core);
        let Some(vcpu) = self.vcpus.get(number) else { return };
        vcpu.interrupt(vector);
        if vcpu.is_halted() || vcpu.core() == cpu.id() {
            return vcpu.kick();
        }
        // It runs elsewhere: that core is interrupted, and leaves the guest.
        let (board, arrives) = (Rc::clone(self), cpu.now() + self.costs.kick);
        self.hw.spawn(async move {
            board.hw.sleep_until(arrives).await;
            board.vcpus[number].kick();
        });
    }
}

/// A virtual machine.
pub struct Vm {
    board: Rc<Board>,
    kernel: Rc<Kernel>,
    /// Where its functions' requests lead.
    domains: RefCell<Vec<IommuDomain>>,
}

impl Vm {
    /// Puts a virtual machine together on a host that has booted, in a task of the host, with functions that [`Vfio`](crate::Vfio)
    /// has claimed. Its kernel has not booted yet, and has no drivers. The future need not be polled for that to happen.
    ///
    /// # Errors
    /// [`VmError`].
    pub fn start(
        hw: &Handle<Fabric>,
        host: &Rc<Kernel>,
        params: VmParams,
        functions: Vec<PciDevice>,
    ) -> impl Future<Output = Result<Rc<Self>, VmError>> + use<> {
        let done = Completion::new();
        let (hw, told, kernel) = (hw.clone(), done.clone(), Rc::downgrade(host));
        let task = TaskParams {
            cpus: params.vcpus.iter().flatten().copied().collect(),
            ..TaskParams::named(format!("qemu-{}", params.name))
        };
        host.spawn(task, move |cpu| {
            Box::pin(async move {
                let _part = cpu.book(Part::Virt);
                let Some(host) = kernel.upgrade() else { return };
                told.complete(Self::build(&hw, &host, &cpu, params, functions).await);
            })
        });
        async move { done.wait().await }
    }

    async fn build(
        hw: &Handle<Fabric>,
        host: &Rc<Kernel>,
        cpu: &Cpu,
        params: VmParams,
        functions: Vec<PciDevice>,
    ) -> Result<Rc<Self>, VmError> {
        let ground = host.ground();
        let memory = GuestMemory::new(&*host.face(), &*ground, cpu, params.memory, params.node);
        let board = Rc::new(Board {
            hw: hw.clone(),
            host: ground,
            host_kernel: Rc::downgrade(host),
            costs: params.costs,
            memory: memory.map_err(VmError::Memory)?,
            vcpus: params.vcpus.iter().map(|_| Vcpu::new(params.costs.tlb)).collect(),
            functions: RefCell::default(),
            sink: RefCell::default(),
            exits: Cell::default(),
        });
        let mut domains = Vec::new();
        for (n, device) in (FIRST_SLOT..).zip(functions) {
            let at = device.address();
            let passed = pass_through(host, cpu, &board, Bdf::new(0, n, 0), device, &params.vcpus);
            domains.push(passed.await.map_err(|error| VmError::Function(at, error))?);
        }
        let kernel = Kernel::on(hw, Rc::new(GuestGround(Rc::clone(&board))), params.kernel);
        for (n, cpus) in params.vcpus.into_iter().enumerate() {
            let task = TaskParams { cpus, ..TaskParams::named(format!("{}-vcpu{n}", params.name)) };
            let own = Rc::clone(&board);
            let id = host.spawn(task, move |cpu| Box::pin(Vcpu::run(own, n, cpu)));
            board.vcpus[n].task.set(Some(id));
        }
        Ok(Rc::new(Self { board, kernel: Rc::new(kernel), domains: RefCell::new(domains) }))
    }

    /// Its kernel.
    pub fn kernel(&self) -> &Rc<Kernel> {
        &self.kernel
    }

    /// How often it was left, and why.
    pub fn exits(&self) -> Exits {
        self.board.exits.get()
    }

    /// Misses of its cores' TLBs.
    pub fn tlb_misses(&self) -> u64 {
        self.board.vcpus.iter().map(|vcpu| vcpu.tlb.misses()).sum()
    }

    /// Bytes of the host's memory that stay where they are because its functions reach them.
    pub fn pinned(&self) -> Bytes {
        let is_reached = !self.domains.borrow().is_empty();
        let all = self.board.memory.blocks().iter().map(|block| block.host.len()).sum();
        Bytes::new(if is_reached { all } else { 0 })
    }
}

/// Lets a guest have a function: its requests lead to the guest's memory at the guest's addresses, and its interrupts to the guest.
async fn pass_through(
    host: &Rc<Kernel>,
    cpu: &Cpu,
    board: &Rc<Board>,
    at: Bdf,
    device: PciDevice,
    vcpus: &[Vec<CpuId>],
) -> Result<IommuDomain, Error> {
    let domain = host.iommu_domain(device.node())?;
    for block in board.memory.blocks() {
        let iova = Iova::new(block.guest.get());
        domain.map_at(cpu, iova, block.host.start, block.host.len(), Direction::Bidirectional)?;
    }
    domain.attach(cpu, device.address())?;
    let passed = Rc::new(Passed::new(cpu, at, device.clone()).await?);
    if passed.vectors() > 0 {
        // One for each core and one more, as drivers want.
        let most = passed.vectors().min(vcpus.len() as u16 + 1);
        let affinity = Affinity::Cpus(vcpus.iter().filter_map(|cpus| cpus.first().copied()).collect());
        let irqs = device.alloc_irqs(cpu, 1, most, affinity).await?;
        for (vector, irq) in (0u16..).zip(irqs) {
            let (board, function) = (Rc::downgrade(board), Rc::downgrade(&passed));
            let handler = Rc::new(move |cpu: &Cpu| {
                if let Some((board, function)) = board.upgrade().zip(function.upgrade()) {
                    cpu.work(board.costs.eventfd);
                    board.raise(&function, vector, cpu);
                }
                IrqReturn::Handled
            });
            device.request_irq(irq, "vfio-msix", handler, None)?;
        }
    }
    board.functions.borrow_mut().push(passed);
    Ok(domain)
}
