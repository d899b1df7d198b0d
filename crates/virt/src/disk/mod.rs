//! Virtual disks, and the I/O threads that serve them.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | a drive shared by guests, and its I/O threads |
//! | `vdisk` | a virtual disk: requests and completions of its ring |
//!
//! Each virtual disk is a part of the drive. An I/O thread takes requests from the guests' rings and passes them to
//! the host's block layer together with the guest's memory, which the drive accesses directly without a copy (QEMU:
//! an I/O thread with direct I/O). Requests are submitted on the thread's core, so they use that core's queue and
//! interrupt.

mod vdisk;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::{Rc, Weak};

use kernel::{BlockDevice, Kernel};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::kernel::{TaskId, TaskParams};
use platform::storage::{BlockFile, IoCompletions};
use platform::virtio::VirtualDisk;

use crate::costs::VhostCosts;
use crate::placement::IoThreads;
use crate::vm::Vm;
use vdisk::GuestDisk;
pub use vdisk::{ServedDisk, Vdisk, VdiskCounters};

/// Requests taken from one guest before other guests get their turn (assumed: as many as packets in a poll of
/// vhost-net).
const BUDGET: usize = 64;

/// A task of the host that serves virtual disks.
struct IoThread {
    task: Cell<Option<TaskId>>,
    /// The node that its cores' queues belong to.
    node: Node,
    /// Virtual disks with pending requests.
    kicked: RefCell<VecDeque<Rc<Vdisk>>>,
    /// Completed requests.
    ended: Rc<IoCompletions>,
}

/// A drive of the host shared by guests.
pub struct Storage {
    me: Weak<Self>,
    kernel: Weak<Kernel>,
    device: Rc<BlockDevice>,
    file: Rc<dyn BlockFile>,
    contexts: Vec<IoThread>,
    costs: VhostCosts,
    disks: RefCell<Vec<Rc<Vdisk>>>,
}

impl Storage {
    /// Takes a block device of the host for virtual machines, with an I/O thread for each node, the device's node
    /// first. Threads may run on any core at first.
    pub fn new(kernel: &Rc<Kernel>, device: Rc<BlockDevice>, costs: VhostCosts) -> Rc<Self> {
        let near = node_of(kernel, &device);
        let mut nodes: Vec<Node> = (0..kernel.face().nodes()).map(Node).collect();
        nodes.sort_by_key(|&node| Some(node) != near);
        let context = |node| IoThread {
            task: Cell::new(None),
            node,
            kicked: RefCell::default(),
            ended: IoCompletions::new(),
        };
        let storage = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            kernel: Rc::downgrade(kernel),
            file: device.open(),
            device,
            contexts: nodes.into_iter().map(context).collect(),
            costs,
            disks: RefCell::default(),
        });
        for (number, context) in storage.contexts.iter().enumerate() {
            let own = storage.me.clone();
            let task = TaskParams::named(format!("io-{}-{number}", storage.device.name()));
            let task = kernel.spawn(task, move |cpu| {
                Box::pin(async move {
                    if let Some(own) = own.upgrade() {
                        own.run(&own.contexts[number], cpu).await;
                    }
                })
            });
            context.task.set(Some(task));
        }
        storage
    }

    /// Adds a virtual disk to a guest: `part` (bytes) of the drive, served by the first thread. Returns its interface
    /// for the guest's driver. The disk is stopped together with the guest.
    pub fn add(&self, vm: &Vm, part: Range<u64>) -> (Rc<Vdisk>, Rc<dyn VirtualDisk>) {
        let mut disks = self.disks.borrow_mut();
        let vdisk = Vdisk::new(Rc::clone(vm.machine()), disks.len() as u64, part);
        disks.push(Rc::clone(&vdisk));
        let disk = Rc::downgrade(&vdisk);
        vm.at_end(move |_| {
            let disk = disk.clone();
            Box::pin(async move {
                if let Some(disk) = disk.upgrade() {
                    disk.stop().await;
                }
            })
        });
        let way = GuestDisk {
            vdisk: Rc::clone(&vdisk),
            storage: self.me.clone(),
            block_bytes: self.file.block_bytes(),
        };
        (vdisk, Rc::new(way))
    }

    /// A guest reports new requests.
    fn kick(&self, vdisk: &Rc<Vdisk>, cpu: &Cpu) {
        cpu.work(self.costs.kick);
        self.list(vdisk, cpu);
    }

    fn list(&self, vdisk: &Rc<Vdisk>, cpu: &Cpu) {
        if !vdisk.listed.replace(true) {
            vdisk.set_notify(cpu, false);
            let context = &self.contexts[vdisk.context.get()];
            context.kicked.borrow_mut().push_back(Rc::clone(vdisk));
            context.ended.stir();
        }
    }

    /// Main loop of an I/O thread.
    async fn run(&self, context: &IoThread, cpu: Cpu) {
        let _part = cpu.book(Part::Virt);
        loop {
            let has_work = || !context.ended.is_empty() || !context.kicked.borrow().is_empty();
            context.ended.wait_until(has_work).await;
            cpu.work(self.costs.turn);
            let mut answered: Vec<Rc<Vdisk>> = Vec::new();
            while let Some(done) = context.ended.try_next() {
                let vdisk = self.disks.borrow().get(vdisk::number_of(done.token)).cloned();
                let Some(vdisk) = vdisk else { continue };
                cpu.work(self.costs.answer);
                vdisk.answer(&cpu, done);
                if !answered.iter().any(|other| Rc::ptr_eq(other, &vdisk)) {
                    answered.push(vdisk);
                }
            }
            answered.iter().for_each(|vdisk| vdisk.tell(&cpu, &self.costs));
            cpu.sync().await;
            let waiting = context.kicked.borrow().len();
            for _ in 0..waiting {
                let next = context.kicked.borrow_mut().pop_front();
                if let Some(vdisk) = next {
                    self.serve(context, &vdisk, &cpu).await;
                }
            }
        }
    }

    /// Takes some requests of a virtual disk.
    async fn serve(&self, context: &IoThread, vdisk: &Rc<Vdisk>, cpu: &Cpu) {
        vdisk.listed.set(false);
        if vdisk.is_held() {
            return;
        }
        if !std::ptr::eq(context, &self.contexts[vdisk.context.get()]) {
            return self.list(vdisk, cpu);
        }
        let mut requests = Vec::new();
        while requests.len() < BUDGET
            && let Some(next) = vdisk.next(cpu)
        {
            cpu.work(self.costs.request);
            requests.extend(next);
        }
        vdisk.tell(cpu, &self.costs);
        if !requests.is_empty() {
            self.file.submit(cpu, requests, &context.ended);
        }
        cpu.sync().await;
        let mut more = vdisk.has_more(cpu);
        if !more {
            vdisk.set_notify(cpu, true);
            cpu.sync().await;
            more = vdisk.has_more(cpu);
        }
        if more {
            self.list(vdisk, cpu);
        }
    }

    /// Lets a virtual disk take requests again.
    fn release(&self, vdisk: &Rc<Vdisk>, cpu: &Cpu) {
        vdisk.release();
        self.list(vdisk, cpu);
    }
}

/// The node of a block device; `None` if it has no function or is gone.
fn node_of(kernel: &Kernel, device: &BlockDevice) -> Option<Node> {
    let at = device.function()?;
    let found = kernel.pci().into_iter().find(|found| (found.segment, found.bdf) == (at.segment, at.bdf));
    found.map(|function| Node(function.node))
}

impl IoThreads for Storage {
    fn nodes(&self) -> Vec<Node> {
        self.kernel.upgrade().and_then(|kernel| node_of(&kernel, &self.device)).into_iter().collect()
    }

    fn threads(&self) -> Vec<(TaskId, Node)> {
        self.contexts.iter().filter_map(|context| Some((context.task.get()?, context.node))).collect()
    }

    fn pin<'a>(&'a self, _: &'a Cpu, thread: usize, cpus: &'a [CpuId]) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let kernel = self.kernel.upgrade().ok_or(Error::NoDevice)?;
            kernel.face().set_affinity(self.contexts[thread].task.get().ok_or(Error::Invalid)?, cpus)
        })
    }
}
