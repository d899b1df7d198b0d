//! A function's channels, and its interrupts: one per channel, and one for other events.

use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::irq::{Affinity, Irq, IrqReturn};
use platform::kernel::Kernel;
use platform::pci::PciDevice;
use wire::nic::registers::feature;

use super::channel::{Channel, Owner};
use super::limits::Limits;
use super::params::NicDriverParams;

/// The channels, in the order of their queues.
pub(super) struct Channels {
    device: PciDevice,
    kernel: Rc<dyn Kernel>,
    list: RefCell<Vec<Rc<Channel>>>,
    /// Interrupt for events other than packets, with its vector.
    event: Cell<Option<(Irq, u16)>>,
}

impl Channels {
    pub fn new(device: PciDevice) -> Self {
        Self { kernel: device.kernel(), device, list: RefCell::default(), event: Cell::new(None) }
    }

    /// Creates the channels with their interrupts, and takes one more interrupt for the `owner`'s events.
    pub async fn prepare(
        &self,
        cpu: &Cpu,
        params: &NicDriverParams,
        limits: &Limits,
        owner: &Weak<dyn Owner>,
    ) -> Result<(), Error> {
        let all = self.kernel.cpus();
        let wanted = params.channels.unwrap_or(all).min(all);
        let wanted = wanted.min(limits.queues).min(limits.vectors - 1).max(1);
        let mut cores = self.cores(params.over_nodes);
        cores.truncate(usize::from(wanted));
        let irqs = self.interrupts(cpu, &cores, params.legacy_interrupt).await?;
        let has_own = irqs.len() > 1;
        let number = if has_own { irqs.len() - 1 } else { 1 };
        for (n, (&cpu, &irq)) in (0u16..).zip(cores.iter().zip(&irqs[..number])) {
            let channel = Channel::new(n, cpu, irq, owner.clone(), &self.kernel, params.coalescing());
            let name = format!("nic-{}-{n}", self.device.address());
            if has_own {
                self.device.request_irq(irq, &name, channel.handler(params.costs), None)?;
            }
            let moved = Rc::downgrade(&channel);
            let moved =
                Rc::new(move |to| moved.upgrade().into_iter().for_each(|channel| channel.cpu.set(to)));
            self.device.on_irq_moved(irq, moved);
            self.list.borrow_mut().push(channel);
        }
        let vector = irqs.len() - 1;
        let owner = owner.clone();
        let thread = Rc::new(move |cpu: Cpu| -> Async<'static, ()> {
            let owner = owner.clone();
            Box::pin(async move {
                if let Some(owner) = owner.upgrade() {
                    owner.events(&cpu).await;
                }
            })
        });
        let name = format!("nic-{}-events", self.device.address());
        self.device.request_irq(irqs[vector], &name, Rc::new(|_| IrqReturn::WakeThread), Some(thread))?;
        self.event.set(Some((irqs[vector], vector as u16)));
        Ok(())
    }

    /// All cores: those of the device's node come first, or those of all nodes take turns.
    fn cores(&self, over_nodes: bool) -> Vec<CpuId> {
        let (kernel, home) = (&self.kernel, self.device.node());
        let mut cores: Vec<CpuId> = (0..kernel.cpus()).map(CpuId).collect();
        let place =
            |cpu: CpuId| (0..cpu.0).filter(|&n| kernel.node_of(CpuId(n)) == kernel.node_of(cpu)).count();
        cores.sort_by_key(|&cpu| (if over_nodes { place(cpu) } else { 0 }, kernel.node_of(cpu) != home, cpu));
        cores
    }

    /// Requests one interrupt per channel and one for events. Falls back to one legacy interrupt if there are not
    /// even two messages.
    async fn interrupts(&self, cpu: &Cpu, cores: &[CpuId], legacy: bool) -> Result<Vec<Irq>, Error> {
        let mut places = cores.to_vec();
        places.push(cores[0]);
        let most = places.len() as u16;
        if !legacy {
            match self.device.alloc_irqs(cpu, 2, most, Affinity::Cpus(places)).await {
                Err(Error::NoSpace) => {}
                given => return given,
            }
        }
        Ok(vec![self.device.alloc_intx(cpu, Affinity::Cpu(cores[0])).await?])
    }

    /// Frees channels and interrupts.
    pub async fn free(&self, cpu: &Cpu) {
        for channel in self.list.take() {
            self.device.free_irq(channel.irq);
            channel.forget_napi();
        }
        if let Some((irq, _)) = self.event.take() {
            self.device.free_irq(irq);
        }
        self.device.free_irqs(cpu).await;
    }

    pub fn all(&self) -> Ref<'_, [Rc<Channel>]> {
        Ref::map(self.list.borrow(), Vec::as_slice)
    }

    pub fn number(&self) -> u16 {
        self.list.borrow().len() as u16
    }

    pub fn get(&self, number: u16) -> Option<Rc<Channel>> {
        self.list.borrow().get(usize::from(number)).cloned()
    }

    /// The channel of this core, or else one of the same node.
    pub fn of(&self, cpu: CpuId) -> u16 {
        let channels = self.list.borrow();
        if let Some(own) = channels.iter().find(|c| c.cpu.get() == cpu) {
            return own.number;
        }
        let near = self.on_node(self.kernel.node_of(cpu));
        match near.len() {
            0 => cpu.0 % (channels.len().max(1) as u16),
            n => near[usize::from(cpu.0) % n],
        }
    }

    fn on_node(&self, node: Node) -> Vec<u16> {
        let channels = self.list.borrow();
        let on_node = channels.iter().filter(|channel| self.kernel.node_of(channel.cpu.get()) == node);
        on_node.map(|channel| channel.number).collect()
    }

    /// Channels for flows without a rule. Normally all of them; if functions share an address, each takes only the
    /// channels of its own node and leaves the rest to the others.
    pub fn by_hash(&self, features: u32) -> Vec<u16> {
        let near = self.on_node(self.device.node());
        let takes_near = features & feature::STATION != 0 && !near.is_empty();
        if takes_near { near } else { (0..self.number()).collect() }
    }

    /// The vector for events other than packets.
    pub fn event_vector(&self) -> Option<u16> {
        self.event.get().map(|(_, vector)| vector)
    }

    /// Polls all of them even if no interrupt came.
    pub fn kick(&self, cpu: &Cpu) {
        self.list.borrow().iter().for_each(|channel| channel.kick(cpu));
    }
}
