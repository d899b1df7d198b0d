//! What a kernel does for drivers and programs beside their devices.

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

/// How urgent a task is. Lower nice values get more of a core, a real-time task goes before all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Priority {
    /// Runs only when nothing else wants to.
    Idle,
    /// −20 to 19, fairly among each other.
    Nice(i8),
    /// 1 to 99, first come, first served among equals.
    RealTime(u8),
}

impl Default for Priority {
    fn default() -> Self {
        Self::Nice(0)
    }
}

/// What whoever starts a task says of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskParams {
    /// As ps(1) shows it.
    pub name: String,
    /// How urgent it is.
    pub priority: Priority,
    /// The cores that it may run on; empty for all.
    pub cpus: Vec<CpuId>,
    /// Where its memory comes from, user pages and pages of the page cache: whatever it asks for by [`Policy::Task`].
    pub policy: Policy,
    /// It is a thread or child of the task that starts it: it belongs to that one's process, and runs where that one may unless
    /// it has cores of its own.
    pub is_child: bool,
}

impl TaskParams {
    /// A task that may run anywhere.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Only on one core.
    #[must_use]
    pub fn on(mut self, cpu: CpuId) -> Self {
        self.cpus = vec![cpu];
        self
    }

    /// A thread or child of the task on `parent`: its memory comes from where that one's does, and it runs where that one
    /// may unless it has cores of its own.
    #[must_use]
    pub fn of(mut self, parent: &Cpu) -> Self {
        self.policy = parent.policy();
        self.is_child = true;
        self
    }
}

/// A task's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TaskId(pub u32);

/// What a task runs.
pub type Program = Box<dyn FnOnce(Cpu) -> Async<'static, ()>>;

/// A program that leaves what `work` gives, and where that comes.
pub fn giving<T: 'static>(work: impl AsyncFnOnce(Cpu) -> T + 'static) -> (Completion<T>, Program) {
    let done = Completion::new();
    let told = done.clone();
    (done, Box::new(move |cpu| Box::pin(async move { told.complete(work(cpu).await) })))
}

impl dyn Kernel {
    /// Starts a task that gives something when it ends.
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

/// A task, as ps(1) and `/proc/PID/stat` tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskState {
    /// Its number.
    pub id: TaskId,
    /// As ps(1) shows it.
    pub name: String,
    /// How urgent it is.
    pub priority: Priority,
    /// The core that it is on, or was on last.
    pub cpu: CpuId,
    /// The cores that it may run on; empty for all.
    pub cpus: Vec<CpuId>,
    /// Where its memory comes from.
    pub policy: Policy,
    /// How long it has had a core.
    pub busy: Duration,
    /// How often it went to another core.
    pub migrations: u64,
    /// It has ended.
    pub ended: bool,
}

/// An interrupt, as `/proc/interrupts` and `/proc/irq` tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IrqState {
    /// Its number.
    pub irq: Irq,
    /// Whose it is.
    pub name: String,
    /// The core at which it arrives.
    pub cpu: CpuId,
    /// How often it has.
    pub count: u64,
}

/// Services of a kernel.
pub trait Kernel {
    /// How many cores there are.
    fn cpus(&self) -> u16;
    /// How many nodes there are.
    fn nodes(&self) -> u8;
    /// The node of a core.
    fn node_of(&self, cpu: CpuId) -> Node;
    /// The simulated time.
    fn now(&self) -> Time;
    /// Starts a task.
    fn spawn(&self, params: TaskParams, program: Program) -> TaskId;
    /// Lets a task run on these cores only, from its next wait on.
    ///
    /// # Errors
    /// If there is no such task or core.
    fn set_affinity(&self, task: TaskId, cpus: &[CpuId]) -> Result<(), Error>;
    /// Makes a task more or less urgent (setpriority(2), sched_setscheduler(2)), from its next turn on.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such task, or no such priority.
    fn set_priority(&self, task: TaskId, priority: Priority) -> Result<(), Error>;
    /// Lets the memory that a task asks for from now on come from elsewhere (set_mempolicy(2)); what it has stays.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such task, or no such node.
    fn set_policy(&self, task: TaskId, policy: Policy) -> Result<(), Error>;
    /// The last tasks that ended, and then those that have not, by number.
    fn tasks(&self) -> Vec<TaskState>;
    /// Interrupts, by number.
    fn interrupts(&self) -> Vec<IrqState>;
    /// Lets an interrupt arrive at another core (writing to `smp_affinity`): its driver's queue and thread follow.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such interrupt or core, [`Error::NoSpace`] if the core has no vector left.
    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>>;
    /// The node of memory at an address (get_mempolicy(2) with `MPOL_F_ADDR`); `None` if there is no memory.
    fn node_of_address(&self, address: PhysAddr) -> Option<Node>;
    /// Takes pages.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn alloc_pages(&self, cpu: &Cpu, order: u8, policy: Policy) -> Result<Pages, Error>;
    /// Gives pages back.
    fn free_pages(&self, cpu: &Cpu, pages: Pages);
    /// Moves a task's pages to another node, as move_pages(2): gives where they are now. Nobody may use them meanwhile.
    ///
    /// # Errors
    /// [`Error::Busy`] if a device reaches any of them or a request holds it, [`Error::NoMemory`]; they then stay.
    fn move_pages(&self, cpu: &Cpu, pages: Pages, to: Node) -> Result<Pages, Error>;
    /// Announces deferred work, disabled at first.
    fn napi(&self, napi: Rc<dyn Napi>) -> NapiHandle;
    /// Calls `work` in a worker task on the core of `cpu`.
    fn queue_work(&self, cpu: &Cpu, work: Program);
    /// Announces a block device; gives its name.
    fn register_block(&self, driver: Rc<dyn BlockDriver>) -> String;
    /// A block device, for programs: by its name, with or without `/dev/`.
    fn open_block(&self, name: &str) -> Option<Rc<dyn BlockFile>>;
    /// Takes a block device back; requests that come after fail.
    fn unregister_block(&self, name: &str);
    /// Announces what programs can open and the kernel need not know: a GPU's [`GpuFile`](crate::gpu::GpuFile). Gives its name, which
    /// begins as told and ends with the first number that is free.
    fn register_file(&self, kind: &str, file: Rc<dyn Any>) -> String;
    /// What was announced by a name, with or without `/dev/`.
    fn open_file(&self, name: &str) -> Option<Rc<dyn Any>>;
    /// Takes back what was announced.
    fn unregister_file(&self, name: &str);
    /// Announces a network device; gives what it hands received frames to.
    fn register_net(&self, driver: Rc<dyn NetDriver>) -> Rc<dyn crate::net::NetCore>;
    /// A network device, for programs that make their own frames.
    fn packet_device(&self, name: &str) -> Option<Rc<dyn crate::packet::PacketDevice>>;
    /// The Internet protocols.
    fn network(&self) -> Rc<dyn Network>;
    /// How long a core has been busy, by [part](crate::cpu::Part::ALL).
    fn busy(&self, cpu: CpuId) -> [Duration; crate::cpu::Part::ALL.len()];
    /// Writes a line into the kernel's log.
    fn log(&self, line: String);
}
