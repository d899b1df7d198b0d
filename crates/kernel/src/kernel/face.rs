//! The kernel interface for drivers and programs.
//!
//! Programs of a network namespace have a protocol stack and devices of their own. A device is in one namespace at a time. Virtual
//! functions of one NIC in two namespaces talk through the NIC, like those of two containers; in one namespace, both
//! addresses would be the host's own.

use std::any::Any;
use std::rc::Rc;

use platform::Error;
use platform::block::BlockDriver;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::irq::{Irq, Napi, NapiHandle};
use platform::kernel::{IrqState, Kernel as KernelFace, Priority, Program, TaskId, TaskParams, TaskState};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::net::{NetCore, NetDriver, PacketDevice};
use platform::socket::Network;
use platform::storage::BlockFile;
use units::{Duration, Time};

use super::Inner;
use crate::net::inet::Stack;

/// A kernel as drivers and the programs of one namespace see it.
pub(super) struct Face {
    pub kernel: Rc<Inner>,
    pub stack: Rc<Stack>,
}

impl KernelFace for Face {
    fn cpus(&self) -> u16 {
        self.kernel.cores.all.len() as u16
    }

    fn nodes(&self) -> u8 {
        self.kernel.memory.usage().len() as u8
    }

    fn node_of(&self, cpu: CpuId) -> Node {
        self.kernel.cores.get(cpu).node
    }

    fn caches(&self, node: Node) -> u64 {
        self.kernel.cores.ground.caches(node)
    }

    fn now(&self) -> Time {
        self.kernel.cores.now()
    }

    fn spawn(&self, params: TaskParams, program: Program) -> TaskId {
        self.kernel.tasks.spawn(params, program)
    }

    fn set_affinity(&self, task: TaskId, cpus: &[CpuId]) -> Result<(), Error> {
        let task = self.kernel.tasks.get(task).ok_or(Error::Invalid)?;
        if cpus.iter().any(|cpu| usize::from(cpu.0) >= self.kernel.cores.all.len()) {
            return Err(Error::Invalid);
        }
        self.kernel.cores.scheduler().set_affinity(&task, cpus.to_vec());
        Ok(())
    }

    fn set_priority(&self, task: TaskId, priority: Priority) -> Result<(), Error> {
        let known = match priority {
            Priority::Idle => true,
            Priority::Nice(nice) => (-20..=19).contains(&nice),
            Priority::RealTime(priority) => (1..=99).contains(&priority),
        };
        let task = self.kernel.tasks.get(task).filter(|_| known).ok_or(Error::Invalid)?;
        self.kernel.cores.scheduler().set_priority(&task, priority);
        Ok(())
    }

    fn set_policy(&self, task: TaskId, policy: Policy) -> Result<(), Error> {
        let known = match policy {
            Policy::Preferred(node) | Policy::Bind(node) => node.0 < self.nodes(),
            _ => true,
        };
        let task = self.kernel.tasks.get(task).filter(|_| known).ok_or(Error::Invalid)?;
        task.context.set_policy(policy);
        Ok(())
    }

    fn tasks(&self) -> Vec<TaskState> {
        self.kernel.cores.settle_accounts();
        self.kernel.tasks.states()
    }

    fn interrupts(&self) -> Vec<IrqState> {
        self.kernel.irqs.lines().iter().map(|line| line.state()).collect()
    }

    fn set_irq_affinity<'a>(&'a self, cpu: &'a Cpu, irq: Irq, to: CpuId) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Kernel);
            cpu.work(self.kernel.cores.costs.syscall);
            self.kernel.pci.move_irq(cpu, irq, to).await
        })
    }

    fn node_of_address(&self, address: PhysAddr) -> Option<Node> {
        self.kernel.memory.node_of(address)
    }

    fn alloc_pages(&self, cpu: &Cpu, order: u8, policy: Policy) -> Result<Pages, Error> {
        self.kernel.memory.take(cpu, order, policy)
    }

    fn free_pages(&self, cpu: &Cpu, pages: Pages) {
        self.kernel.memory.give(cpu, pages);
    }

    fn move_pages(&self, cpu: &Cpu, pages: Pages, to: Node) -> Result<Pages, Error> {
        let _part = cpu.book(Part::Memory);
        cpu.work(self.kernel.cores.costs.syscall);
        let (at, length) = (pages.start, pages.len());
        if self.kernel.memory.node_of(at) == Some(to) {
            return Ok(pages);
        }
        // Pages pinned by a request, or mapped for DMA, cannot move.
        if self.kernel.pins.hold(at, length) || self.kernel.pci.topology.reach(at, length) {
            return Err(Error::Busy);
        }
        let moved = self.kernel.memory.replace(cpu, pages, to)?;
        // Other cores may hold the old translation in their TLBs. The cost of the IPI on those cores is not modelled.
        cpu.work(self.kernel.cores.costs.tlb_shootdown);
        Ok(moved)
    }

    fn napi(&self, napi: Rc<dyn Napi>) -> NapiHandle {
        self.kernel.softirqs.napi(napi)
    }

    fn queue_work(&self, cpu: &Cpu, work: Program) {
        let id = cpu.id();
        self.kernel.tasks.spawn(TaskParams::named(format!("kworker/{}", id.0)).on(id), work);
    }

    fn register_block(&self, driver: Rc<dyn BlockDriver>) -> String {
        self.kernel.block.add(driver)
    }

    fn open_block(&self, name: &str) -> Option<Rc<dyn BlockFile>> {
        let device = self.kernel.block.device(name)?;
        self.kernel.tasks.opens(&device.lasting_name());
        Some(device.open())
    }

    fn unregister_block(&self, name: &str) {
        self.kernel.block.remove(name);
    }

    fn register_file(&self, kind: &str, file: Rc<dyn Any>) -> String {
        self.kernel.files.add(kind, file)
    }

    fn open_file(&self, name: &str) -> Option<Rc<dyn Any>> {
        let file = self.kernel.files.open(name)?;
        self.kernel.tasks.opens(name.strip_prefix("/dev/").unwrap_or(name));
        Some(file)
    }

    fn unregister_file(&self, name: &str) {
        self.kernel.files.remove(name);
    }

    fn register_net(&self, driver: Rc<dyn NetDriver>) -> Rc<dyn NetCore> {
        self.kernel.net.add(driver)
    }

    fn packet_device(&self, name: &str) -> Option<Rc<dyn PacketDevice>> {
        let device = self.kernel.net.device(name)?;
        self.kernel.tasks.opens(name);
        Some(device as _)
    }

    fn network(&self) -> Rc<dyn Network> {
        Rc::clone(&self.stack) as _
    }

    fn busy(&self, cpu: CpuId) -> [Duration; Part::ALL.len()] {
        let times = self.kernel.cores.times(cpu);
        Part::ALL.map(|part| times.of(part))
    }

    fn log(&self, line: String) {
        self.kernel.log.write(line);
    }
}
