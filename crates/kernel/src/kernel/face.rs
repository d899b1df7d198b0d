//! The kernel as drivers and programs see it.

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
use crate::irq::NapiState;

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
        self.block.device(name).map(|device| device.open())
    }

    fn unregister_block(&self, name: &str) {
        self.block.remove(name);
    }

    fn register_file(&self, kind: &str, file: Rc<dyn Any>) -> String {
        let mut files = self.files.borrow_mut();
        let mut numbered = (0u32..).map(|number| format!("{kind}{number}"));
        let name = numbered.find(|name| !files.contains_key(name)).unwrap_or_default();
        files.insert(name.clone(), file);
        name
    }

    fn open_file(&self, name: &str) -> Option<Rc<dyn Any>> {
        self.files.borrow().get(name.strip_prefix("/dev/").unwrap_or(name)).cloned()
    }

    fn unregister_file(&self, name: &str) {
        self.files.borrow_mut().remove(name);
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
