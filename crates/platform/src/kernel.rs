//! Services of the kernel for drivers and programs.

use std::any::Any;
use std::rc::Rc;

use units::{Duration, Time};

use crate::block::BlockDriver;
use crate::cpu::{Async, Cpu, CpuId, Node};
use crate::error::Error;
use crate::irq::{Irq, Napi, NapiHandle};
use crate::memory::{Pages, PhysAddr, Policy};
use crate::net::NetDriver;
use crate::socket::Network;
use crate::storage::BlockFile;
use crate::sync::Completion;

/// Priority of a task. Lower nice values get more CPU time; real-time tasks go before all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Priority {
    /// Runs only when nothing else does.
    Idle,
    /// −20 to 19, sharing time fairly.
    Nice(i8),
    /// 1 to 99; first come, first served among equals.
    RealTime(u8),
}

impl Default for Priority {
    fn default() -> Self {
        Self::Nice(0)
    }
}

/// Parameters of a new task.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskParams {
    /// Name as shown by ps(1).
    pub name: String,
    /// Initial priority; the default is nice 0.
    pub priority: Priority,
    /// Cores that it may run on; empty for all.
    pub cpus: Vec<CpuId>,
    /// NUMA policy of its memory requested with [`Policy::Task`], including page cache pages.
    pub policy: Policy,
    /// A thread or child of the task that starts it: belongs to the same process, and runs on the same cores and at the
    /// same priority unless it has its own.
    pub is_child: bool,
}

impl TaskParams {
    /// A task that may run anywhere.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Restricts it to one core.
    #[must_use]
    pub fn on(mut self, cpu: CpuId) -> Self {
        self.cpus = vec![cpu];
        self
    }

    /// Makes it a thread or child of the task on `parent`: same memory policy, and the same cores and priority unless it
    /// has its own.
    #[must_use]
    pub fn of(mut self, parent: &Cpu) -> Self {
        self.policy = parent.policy();
        self.is_child = true;
        self
    }
}

/// Number of a task, as shown by ps(1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TaskId(pub u32);

/// The code of a task.
pub type Program = Box<dyn FnOnce(Cpu) -> Async<'static, ()>>;

/// A program that completes the returned completion with the result of `work`.
pub fn giving<T: 'static>(work: impl AsyncFnOnce(Cpu) -> T + 'static) -> (Completion<T>, Program) {
    let done = Completion::new();
    let told = done.clone();
    (done, Box::new(move |cpu| Box::pin(async move { told.complete(work(cpu).await) })))
}

impl dyn Kernel {
    /// Starts a task that returns a value.
    pub fn run<T: 'static>(
        &self,
        params: TaskParams,
        work: impl AsyncFnOnce(Cpu) -> T + 'static,
    ) -> Completion<T> {
        let (done, program) = giving(work);
        self.spawn(params, program);
        done
    }
}

/// State of a task, as in ps(1) and `/proc/PID/stat`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskState {
    /// Number of the task.
    pub id: TaskId,
    /// Name as shown by ps(1).
    pub name: String,
    /// Current priority.
    pub priority: Priority,
    /// Current or last core.
    pub cpu: CpuId,
    /// Cores that it may run on; empty for all.
    pub cpus: Vec<CpuId>,
    /// NUMA memory policy.
    pub policy: Policy,
    /// CPU time.
    pub busy: Duration,
    /// Migrations to another core.
    pub migrations: u64,
    /// Whether it has ended.
    pub ended: bool,
}

/// State of an interrupt, as in `/proc/interrupts` and `/proc/irq`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IrqState {
    /// Interrupt number.
    pub irq: Irq,
    /// Name of its owner.
    pub name: String,
    /// Core that it goes to.
    pub cpu: CpuId,
    /// Number of occurrences.
    pub count: u64,
}

/// Services of a kernel.
pub trait Kernel {
    /// Number of cores.
    fn cpus(&self) -> u16;
    /// Number of nodes.
    fn nodes(&self) -> u8;
    /// The node of a core.
    fn node_of(&self, cpu: CpuId) -> Node;
    /// Bytes that the caches of a node's cores hold together (`/sys/devices/system/cpu`); zero if it is not known.
    fn caches(&self, node: Node) -> u64;
    /// Simulated time.
    fn now(&self) -> Time;
    /// Starts a task.
    fn spawn(&self, params: TaskParams, program: Program) -> TaskId;
    /// Sets the cores that a task may run on, from its next wait on.
    ///
    /// # Errors
    /// If there is no such task or core.
    fn set_affinity(&self, task: TaskId, cpus: &[CpuId]) -> Result<(), Error>;
    /// Sets a task's priority (setpriority(2), sched_setscheduler(2)), from its next turn on.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such task or priority.
    fn set_priority(&self, task: TaskId, priority: Priority) -> Result<(), Error>;
    /// Sets a task's memory policy for future allocations (set_mempolicy(2)).
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such task or node.
    fn set_policy(&self, task: TaskId, policy: Policy) -> Result<(), Error>;
    /// Tasks by ID: recently ended ones first, then running ones.
    fn tasks(&self) -> Vec<TaskState>;
    /// Interrupts by number.
    fn interrupts(&self) -> Vec<IrqState>;
    /// Moves an interrupt to another core (writing to `smp_affinity`), with its driver's queue and handler thread.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such interrupt or core, [`Error::NoSpace`] if the core has no free vector.
    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>>;
    /// Node of the memory at an address (get_mempolicy(2) with `MPOL_F_ADDR`); `None` if it is not memory.
    fn node_of_address(&self, address: PhysAddr) -> Option<Node>;
    /// Allocates `2^order` contiguous pages.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn alloc_pages(&self, cpu: &Cpu, order: u8, policy: Policy) -> Result<Pages, Error>;
    /// Returns pages to the node that they are of.
    fn free_pages(&self, cpu: &Cpu, pages: Pages);
    /// Moves a task's pages to another node, like move_pages(2), and returns the new ones. They may not be in use
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Busy`] if a device can access them or a request pins them, [`Error::NoMemory`]. The pages then stay.
    fn move_pages(&self, cpu: &Cpu, pages: Pages, to: Node) -> Result<Pages, Error>;
    /// Registers deferred work, initially disabled.
    fn napi(&self, napi: Rc<dyn Napi>) -> NapiHandle;
    /// Runs `work` in a worker task on the core of `cpu`.
    fn queue_work(&self, cpu: &Cpu, work: Program);
    /// Registers a block device. Returns its name.
    fn register_block(&self, driver: Rc<dyn BlockDriver>) -> String;
    /// Opens a block device by name, with or without `/dev/`.
    fn open_block(&self, name: &str) -> Option<Rc<dyn BlockFile>>;
    /// Removes a block device; later requests fail.
    fn unregister_block(&self, name: &str);
    /// Registers a file of a type that the kernel does not know, such as a [`GpuFile`](crate::gpu::GpuFile). Returns
    /// its name: `kind` and the first free number.
    fn register_file(&self, kind: &str, file: Rc<dyn Any>) -> String;
    /// Opens a registered file by name, with or without `/dev/`.
    fn open_file(&self, name: &str) -> Option<Rc<dyn Any>>;
    /// Removes a registered file.
    fn unregister_file(&self, name: &str);
    /// Registers a network device. Returns the receiver of its frames.
    fn register_net(&self, driver: Rc<dyn NetDriver>) -> Rc<dyn crate::net::NetCore>;
    /// A network device by name, for programs that make their own frames.
    fn packet_device(&self, name: &str) -> Option<Rc<dyn crate::packet::PacketDevice>>;
    /// The Internet protocols.
    fn network(&self) -> Rc<dyn Network>;
    /// Busy time of a core by [part](crate::cpu::Part::ALL).
    fn busy(&self, cpu: CpuId) -> [Duration; crate::cpu::Part::ALL.len()];
    /// Writes a line to the kernel log.
    fn log(&self, line: String);
}
