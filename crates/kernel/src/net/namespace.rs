//! Network namespaces: programs with a protocol stack and devices of their own.
//!
//! A device is in one namespace at a time. Virtual functions of one NIC in two namespaces talk through the NIC, like
//! those of two containers; in one namespace, both addresses would be the host's own.

use std::any::Any;
use std::rc::Rc;

use platform::Error;
use platform::block::BlockDriver;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::irq::{Irq, Napi, NapiHandle};
use platform::kernel::{IrqState, Kernel, Priority, Program, TaskId, TaskParams, TaskState};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::net::{NetCore, NetDriver};
use platform::packet::PacketDevice;
use platform::socket::Network;
use platform::storage::BlockFile;
use units::{Duration, Time};

use super::inet::Stack;
use crate::kernel::Inner;

/// The kernel interface for programs of a namespace.
pub struct Namespace {
    kernel: Rc<Inner>,
    stack: Rc<Stack>,
}

impl Namespace {
    pub fn new(kernel: Rc<Inner>, stack: Rc<Stack>) -> Rc<Self> {
        Rc::new(Self { kernel, stack })
    }
}

impl Kernel for Namespace {
    fn network(&self) -> Rc<dyn Network> {
        Rc::clone(&self.stack) as _
    }

    fn cpus(&self) -> u16 {
        self.kernel.cpus()
    }

    fn nodes(&self) -> u8 {
        self.kernel.nodes()
    }

    fn node_of(&self, cpu: CpuId) -> Node {
        self.kernel.node_of(cpu)
    }

    fn caches(&self, node: Node) -> u64 {
        self.kernel.caches(node)
    }

    fn now(&self) -> Time {
        self.kernel.now()
    }

    fn spawn(&self, params: TaskParams, program: Program) -> TaskId {
        self.kernel.spawn(params, program)
    }

    fn set_affinity(&self, task: TaskId, cpus: &[CpuId]) -> Result<(), Error> {
        self.kernel.set_affinity(task, cpus)
    }

    fn set_priority(&self, task: TaskId, priority: Priority) -> Result<(), Error> {
        self.kernel.set_priority(task, priority)
    }

    fn set_policy(&self, task: TaskId, policy: Policy) -> Result<(), Error> {
        self.kernel.set_policy(task, policy)
    }

    fn tasks(&self) -> Vec<TaskState> {
        self.kernel.tasks()
    }

    fn interrupts(&self) -> Vec<IrqState> {
        self.kernel.interrupts()
    }

    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>> {
        self.kernel.set_irq_affinity(cpu, irq, to)
    }

    fn node_of_address(&self, address: PhysAddr) -> Option<Node> {
        self.kernel.node_of_address(address)
    }

    fn alloc_pages(&self, cpu: &Cpu, order: u8, policy: Policy) -> Result<Pages, Error> {
        self.kernel.alloc_pages(cpu, order, policy)
    }

    fn free_pages(&self, cpu: &Cpu, pages: Pages) {
        self.kernel.free_pages(cpu, pages);
    }

    fn move_pages(&self, cpu: &Cpu, pages: Pages, to: Node) -> Result<Pages, Error> {
        self.kernel.move_pages(cpu, pages, to)
    }

    fn napi(&self, napi: Rc<dyn Napi>) -> NapiHandle {
        self.kernel.napi(napi)
    }

    fn queue_work(&self, cpu: &Cpu, work: Program) {
        self.kernel.queue_work(cpu, work);
    }

    fn register_block(&self, driver: Rc<dyn BlockDriver>) -> String {
        self.kernel.register_block(driver)
    }

    fn open_block(&self, name: &str) -> Option<Rc<dyn BlockFile>> {
        self.kernel.open_block(name)
    }

    fn unregister_block(&self, name: &str) {
        self.kernel.unregister_block(name);
    }

    fn register_file(&self, kind: &str, file: Rc<dyn Any>) -> String {
        self.kernel.register_file(kind, file)
    }

    fn open_file(&self, name: &str) -> Option<Rc<dyn Any>> {
        self.kernel.open_file(name)
    }

    fn unregister_file(&self, name: &str) {
        self.kernel.unregister_file(name);
    }

    fn register_net(&self, driver: Rc<dyn NetDriver>) -> Rc<dyn NetCore> {
        self.kernel.register_net(driver)
    }

    fn packet_device(&self, name: &str) -> Option<Rc<dyn PacketDevice>> {
        self.kernel.packet_device(name)
    }

    fn busy(&self, cpu: CpuId) -> [Duration; Part::ALL.len()] {
        self.kernel.busy(cpu)
    }

    fn log(&self, line: String) {
        Kernel::log(&*self.kernel, line);
    }
}
