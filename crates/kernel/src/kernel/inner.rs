//! What the parts of a kernel share, and what they ask of it.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Cpu, Node, Part};
use platform::kernel::{Program, TaskId, TaskParams};
use platform::memory::{Pages, Policy};
use units::Time;
use wire::pcie::Bdf;

use crate::block::Block;
use crate::cpu::{Context, Cores, Level};
use crate::dma::Dma;
use crate::irq::{Irqs, Softirq};
use crate::mm::{PageAllocator, Pins};
use crate::net::Net;
use crate::net::inet::Stack;
use crate::pci::Pci;
use crate::sched::{Task, TaskFuture};
use crate::tasks::Tasks;

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
    pub namespaces: RefCell<Vec<Rc<Stack>>>,
    pub block: Block,
    /// What drivers offer to programs beside block and network devices.
    pub files: RefCell<BTreeMap<String, Rc<dyn Any>>>,
    pub pins: Pins,
    pub tasks: Tasks,
    pub log: RefCell<VecDeque<(Time, String)>>,
}

/// Lines that the log keeps (assumed: Linux's ring of 256 KiB holds some thousand).
const LOG_LINES: usize = 4096;

impl Inner {
    /// Starts a task.
    pub fn spawn_program(&self, params: TaskParams, program: Program) -> TaskId {
        let id = self.tasks.next_id();
        let parent = self.tasks.current().filter(|_| params.is_child);
        let cpus = match &parent {
            Some(parent) if params.cpus.is_empty() => parent.cpus.borrow().clone(),
            _ => params.cpus,
        };
        let process = parent.map_or(id, |parent| parent.process);
        let first = cpus.first().copied().unwrap_or_default();
        let cores = Rc::clone(&self.cores);
        let context = Context::with_policy(cores, Level::Task, first, Part::User, params.policy);
        let task = Task::new((id, process), params.name, params.priority, cpus, context);
        let cpu = task.context.cpu();
        self.tasks.add(Rc::clone(&task));
        let (me, future) = (self.me.clone(), TaskFuture::new(task, program(cpu), self.tasks.polled()));
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
        self.cores.ground.node_of_port(root).unwrap_or(Node(0))
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
