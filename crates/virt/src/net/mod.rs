//! Virtual NICs, and the I/O threads that serve them ("contexts").
//!
//! | file | subject |
//! |---|---|
//! | `mod` | the switch between uplink and virtual NICs |
//! | `context` | an I/O thread: what it polls, and what waits for it |
//! | `buffers` | memory for packets that guests send |
//! | `vnic` | a virtual NIC: copies, notifications, interrupts |
//!
//! The uplink is a host NIC with a queue pair per I/O thread. It sorts frames by Ethernet address (VMDq), so that the
//! packets of a virtual NIC arrive on the queue of its thread. The thread polls its queues itself: receive, copy into
//! the guest, copy out of it and transmit happen in one task, whose core decides what is local.
//!
//! **Order.** When a virtual NIC moves to another thread, its packets arrive on another queue. Packets on the new
//! queue are held until the old queue has been found empty after the first of them, or has delivered as many as it
//! can have held then. This is safe because the NIC reports the old queue's packets first. Packets sent by the guest
//! wait until those in the old queue have left.

mod buffers;
mod context;
mod vnic;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use kernel::Kernel;
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::irq::NapiHandle;
use platform::kernel::{TaskId, TaskParams};
use platform::net::{MacAddr, NetDriver, NetUpper, Packet, PacketDevice};
use platform::virtio::VirtualNic;
use units::Duration;

use crate::costs::VhostCosts;
use crate::placement::{Client, IoThreads};
use crate::vm::Vm;
pub use context::Context;
use vnic::GuestNic;
pub use vnic::{Vnic, VnicCounters};

/// Packets taken from one guest before other guests get their turn (Linux: `VHOST_NET_PKT_WEIGHT` is 256, a poll's
/// weight 64).
const BUDGET: usize = 64;
/// Packets copied between syncs with the simulation clock.
const TURN: usize = 4;

/// Virtual NICs above one uplink.
pub struct Network {
    me: Weak<Self>,
    kernel: Weak<Kernel>,
    uplink: Rc<dyn PacketDevice>,
    contexts: Vec<Context>,
    /// Node of each thread's rings: that of its interrupt's core when the driver was loaded.
    rings: Vec<Node>,
    costs: VhostCosts,
    /// Running virtual NICs.
    vnics: RefCell<BTreeMap<MacAddr, Rc<Vnic>>>,
}

impl Network {
    /// Takes a network device of the host for virtual machines, with an I/O thread per queue pair. Threads may run on
    /// any core at first.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no such device, [`Error::Busy`] if it is in use.
    pub fn new(kernel: &Rc<Kernel>, uplink: &str, costs: VhostCosts) -> Result<Rc<Self>, Error> {
        let face = kernel.face();
        let device = face.packet_device(uplink).ok_or(Error::NoDevice)?;
        let number = usize::from(device.limits().rx_queues.min(device.limits().tx_queues));
        let driver = device.driver().ok_or(Error::NoDevice)?;
        let interrupts = face.interrupts();
        let core = |context: usize| {
            let irq = driver.interrupt_of(context as u16);
            interrupts.iter().find(|state| Some(state.irq) == irq).map_or(CpuId(0), |state| state.cpu)
        };
        let rings = (0..number).map(|context| face.node_of(core(context))).collect();
        let network = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            kernel: Rc::downgrade(kernel),
            contexts: (0..number).map(|number| Context::new(&face, number)).collect(),
            rings,
            uplink: Rc::clone(&device),
            costs,
            vnics: RefCell::default(),
        });
        device.set_upper(Rc::downgrade(&network) as Weak<dyn NetUpper>)?;
        for context in &network.contexts {
            if let Some(queue) = driver.poll_of(context.queue()) {
                context.poll_for(&queue);
            }
            let (own, number) = (network.me.clone(), context.number);
            let task = TaskParams::named(format!("io-{uplink}-{number}"));
            let task = kernel.spawn(task, move |cpu| {
                Box::pin(async move {
                    if let Some(own) = own.upgrade() {
                        own.run(number, cpu).await;
                    }
                })
            });
            context.run_as(task);
        }
        Ok(network)
    }

    /// Its I/O threads.
    pub fn contexts(&self) -> &[Context] {
        &self.contexts
    }

    /// CPU time of an I/O thread.
    pub fn busy(&self, context: usize) -> Duration {
        let task = self.contexts[context].task();
        task.zip(self.kernel.upgrade()).map_or(Duration::ZERO, |(task, kernel)| kernel.task_busy(task))
    }

    /// Adds a virtual NIC to a guest, served by an I/O thread. Returns its interface for the guest's driver. The NIC
    /// is stopped together with the guest.
    pub fn add(&self, vm: &Vm, mac: MacAddr, context: usize) -> (Rc<Vnic>, Rc<dyn VirtualNic>) {
        let vnic = Vnic::new(Rc::clone(vm.machine()), mac, context);
        let (network, nic) = (self.me.clone(), Rc::downgrade(&vnic));
        vm.at_end(move |cpu| {
            if let Some((network, vnic)) = network.upgrade().zip(nic.upgrade()) {
                network.stopped(&vnic, cpu);
            }
            Box::pin(async {})
        });
        let way = GuestNic { vnic: Rc::clone(&vnic), network: self.me.clone() };
        (vnic, Rc::new(way))
    }

    fn driver(&self) -> Option<Rc<dyn NetDriver>> {
        self.uplink.driver()
    }

    /// A guest's driver has started.
    fn started(&self, vnic: &Rc<Vnic>, cpu: &Cpu) {
        self.vnics.borrow_mut().insert(vnic.mac, Rc::clone(vnic));
        vnic.set_notify(cpu, true);
        self.sort(cpu, vnic);
    }

    /// A guest's driver stops.
    fn stopped(&self, vnic: &Vnic, cpu: &Cpu) {
        let ran = self.vnics.borrow_mut().remove(&vnic.mac).is_some();
        if let Some(driver) = self.driver().filter(|_| ran) {
            // A device that is gone sorts nothing.
            let _ = driver.set_address(cpu, vnic.mac, None);
        }
        vnic.stop(cpu);
    }

    /// Lets the uplink sort a virtual NIC's frames to its thread's queue. Without free rules, they arrive on the
    /// first queue.
    fn sort(&self, cpu: &Cpu, vnic: &Vnic) {
        if let Some(driver) = self.driver()
            && driver.set_address(cpu, vnic.mac, Some(vnic.context() as u16)).is_err()
        {
            self.uplink.set_promiscuous(cpu, true);
        }
    }

    /// Moves a virtual NIC to another I/O thread.
    ///
    /// # Errors
    /// [`Error::Busy`] while packets of an earlier move are in flight, [`Error::Invalid`] if there is no such thread.
    pub fn assign(&self, cpu: &Cpu, vnic: &Rc<Vnic>, context: usize) -> Result<(), Error> {
        if context >= self.contexts.len() {
            return Err(Error::Invalid);
        }
        if self.driver().is_none() {
            // No more packets will arrive.
            vnic.wait_no_more(cpu, &self.costs);
        }
        if vnic.is_moving(cpu.now()) {
            return Err(Error::Busy);
        }
        let old = vnic.serve_by(context);
        if old != context && self.vnics.borrow().contains_key(&vnic.mac) {
            vnic.left_queue(old as u16, cpu.now());
            self.sort(cpu, vnic);
        }
        Ok(())
    }

    /// Restricts an I/O thread to these cores, and sends its interrupt to the first of them.
    ///
    /// # Errors
    /// As of the kernel.
    pub async fn pin(&self, cpu: &Cpu, context: usize, cpus: &[CpuId]) -> Result<(), Error> {
        let kernel = self.kernel.upgrade().ok_or(Error::NoDevice)?;
        let face = kernel.face();
        let task = self.contexts[context].task().ok_or(Error::Invalid)?;
        face.set_affinity(task, cpus)?;
        let irq = self.driver().and_then(|driver| driver.interrupt_of(context as u16));
        match (irq, cpus.get(context % cpus.len().max(1))) {
            (Some(irq), Some(&core)) => face.set_irq_affinity(cpu, irq, core).await,
            _ => Ok(()),
        }
    }

    /// A guest reports packets to send.
    fn kick(&self, vnic: &Rc<Vnic>, cpu: &Cpu) {
        cpu.work(self.costs.kick);
        self.list(vnic, cpu);
    }

    fn list(&self, vnic: &Rc<Vnic>, cpu: &Cpu) {
        if vnic.list() {
            vnic.set_notify(cpu, false);
            self.contexts[vnic.context()].put(Rc::clone(vnic));
        }
    }

    /// Main loop of an I/O thread.
    async fn run(&self, number: usize, cpu: Cpu) {
        let context = &self.contexts[number];
        let _part = cpu.book(Part::Virt);
        loop {
            context.work().await;
            cpu.work(self.costs.turn);
            context.poll(&cpu).await;
            self.serve(context, &cpu).await;
            cpu.sync().await;
        }
    }

    /// Sends packets of guests, some of each guest in turn.
    async fn serve(&self, context: &Context, cpu: &Cpu) {
        if !context.send_stuck(cpu, &*self.uplink) {
            return;
        }
        for _ in 0..context.kicked() {
            if context.is_stuck() {
                return;
            }
            let Some(vnic) = context.take_kicked() else { return };
            vnic.unlist();
            if vnic.context() != context.number || vnic.is_behind(context.queue()) {
                self.pass_on(&vnic, cpu);
                continue;
            }
            let mut taken = 0;
            while taken < BUDGET && !context.is_stuck() {
                let Some(packet) = vnic.next(cpu, context.buffers(), &self.costs) else { break };
                taken += 1;
                if let Some(packet) = packet {
                    vnic.sends_by(context.queue());
                    self.forward(context, cpu, vnic.mac, packet);
                }
                if taken % TURN == 0 {
                    cpu.sync().await;
                }
            }
            if let Some(driver) = self.driver() {
                driver.flush(cpu, context.queue());
            }
            vnic.tell(cpu, &self.costs);
            context.tell_given(cpu, &self.costs);
            cpu.sync().await;
            let mut more = vnic.has_more(cpu);
            if !more {
                vnic.set_notify(cpu, true);
                cpu.sync().await;
                more = vnic.has_more(cpu);
            }
            if more {
                self.list(&vnic, cpu);
            }
        }
    }

    /// Defers a virtual NIC that has moved to another thread, or waits for packets in another queue.
    fn pass_on(&self, vnic: &Rc<Vnic>, cpu: &Cpu) {
        if !vnic.waits_for_other_queue() {
            self.list(vnic, cpu);
        }
    }

    /// Forwards a guest's packet to its destination: other guests or the uplink.
    fn forward(&self, context: &Context, cpu: &Cpu, from: MacAddr, packet: Packet) {
        cpu.work(self.costs.switch);
        let mut to = [0; 6];
        packet.load(cpu, &mut to);
        let own = self.vnics.borrow().get(&MacAddr(to)).cloned();
        if let Some(other) = own {
            other.deliver(cpu, None, packet, &self.costs);
            context.note_given(&other);
            return;
        }
        if MacAddr(to).is_broadcast() {
            self.broadcast(context, cpu, &packet, Some(from));
        }
        context.send(cpu, &*self.uplink, packet);
    }

    /// Copies a packet to all guests except its sender.
    fn broadcast(&self, context: &Context, cpu: &Cpu, packet: &Packet, from: Option<MacAddr>) {
        for vnic in self.vnics.borrow().values().filter(|vnic| Some(vnic.mac) != from) {
            vnic.put(cpu, packet, &self.costs);
            context.note_given(vnic);
        }
    }
}

impl IoThreads for Network {
    fn nodes(&self) -> Vec<Node> {
        let Some(driver) = self.driver() else { return Vec::new() };
        let mut nodes = Vec::new();
        for node in (0..self.contexts.len() as u16).filter_map(|queue| driver.node_of(queue)) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }

    fn threads(&self) -> Vec<(TaskId, Node)> {
        let tasks = self.contexts.iter().filter_map(Context::task);
        tasks.zip(self.rings.iter().copied()).collect()
    }

    fn pin<'a>(&'a self, cpu: &'a Cpu, thread: usize, cpus: &'a [CpuId]) -> Async<'a, Result<(), Error>> {
        Box::pin(self.pin(cpu, thread, cpus))
    }
}

/// A virtual NIC and its network.
pub struct ServedNic {
    /// The network above its uplink, whose I/O threads serve it.
    pub network: Rc<Network>,
    /// The virtual NIC.
    pub vnic: Rc<Vnic>,
}

impl Client for ServedNic {
    fn thread(&self) -> usize {
        self.vnic.context()
    }

    fn passed(&self) -> u64 {
        let counters = self.vnic.counters();
        counters.received + counters.sent + counters.dropped
    }

    fn serve_by(&self, cpu: &Cpu, thread: usize) -> Result<(), Error> {
        self.network.assign(cpu, &self.vnic, thread)
    }
}

impl NetUpper for Network {
    fn receive(&self, cpu: &Cpu, _: &NapiHandle, queue: u16, packet: Packet) {
        let _part = cpu.book(Part::Virt);
        let context = &self.contexts[usize::from(queue)];
        context.note_received();
        cpu.work(self.costs.switch);
        let mut to = [0; 6];
        packet.load(cpu, &mut to);
        let vnic = self.vnics.borrow().get(&MacAddr(to)).cloned();
        let Some(vnic) = vnic else {
            if MacAddr(to).is_broadcast() {
                self.broadcast(context, cpu, &packet, None);
            }
            return packet.release(cpu);
        };
        let first_of_new = vnic.deliver(cpu, Some(queue), packet, &self.costs);
        if let Some((old, driver)) = first_of_new.zip(self.driver()) {
            if let Some(there) = driver.rx_outstanding(old) {
                vnic.is_through_at(self.contexts[usize::from(old)].received() + u64::from(there));
            }
            if let Some(napi) = driver.poll_of(old) {
                napi.schedule(cpu);
            }
        }
        context.note_given(&vnic);
    }

    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool) {
        let _part = cpu.book(Part::Virt);
        let context = &self.contexts[usize::from(queue)];
        for vnic in self.vnics.borrow().values() {
            if vnic.queue_polled(cpu, queue, emptied, context.received(), &self.costs) {
                context.note_given(vnic);
            }
        }
        context.tell_given(cpu, &self.costs);
    }

    fn sent(&self, cpu: &Cpu, queue: u16, _: u32, _: u64) {
        for vnic in self.vnics.borrow().values() {
            if vnic.may_go_on(queue) {
                self.list(vnic, cpu);
            }
        }
    }

    fn queue_woken(&self, _: &Cpu, queue: u16) {
        let context = &self.contexts[usize::from(queue)];
        context.unstick();
    }

    fn changed(&self) {
        self.contexts.iter().for_each(Context::unstick);
    }
}
