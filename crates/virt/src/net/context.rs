//! An I/O thread: a host task that copies packets between an uplink queue pair and the virtual NICs that it serves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::irq::{NapiHandle, Pollers};
use platform::kernel::{Kernel, TaskId};
use platform::net::{Packet, PacketDevice};

use super::buffers::Buffers;
use super::vnic::Vnic;
use crate::costs::VhostCosts;

/// An I/O thread.
pub struct Context {
    /// Its number, and that of its queue pair.
    pub number: usize,
    task: Cell<Option<TaskId>>,
    /// Queues to poll.
    pollers: Rc<Pollers>,
    /// Virtual NICs with packets to send.
    kicked: RefCell<VecDeque<Rc<Vnic>>>,
    /// Virtual NICs that got packets and were not notified yet.
    given: RefCell<Vec<Rc<Vnic>>>,
    received: Cell<u64>,
    /// A packet that found the TX queue full, while that is still so.
    stuck: RefCell<Option<Packet>>,
    full: Cell<bool>,
    buffers: Rc<Buffers>,
}

impl Context {
    pub(super) fn new(kernel: &Rc<dyn Kernel>, number: usize) -> Self {
        Self {
            number,
            task: Cell::new(None),
            pollers: Rc::default(),
            kicked: RefCell::default(),
            given: RefCell::default(),
            received: Cell::new(0),
            stuck: RefCell::new(None),
            full: Cell::new(false),
            buffers: Buffers::new(Rc::clone(kernel)),
        }
    }

    /// Its queue pair.
    pub(super) fn queue(&self) -> u16 {
        self.number as u16
    }

    /// Packets received on its queue.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    pub(super) fn note_received(&self) {
        self.received.set(self.received.get() + 1);
    }

    /// Its task, once it runs.
    pub(super) fn task(&self) -> Option<TaskId> {
        self.task.get()
    }

    /// Runs as this task, which polls the queue in place of interrupts.
    pub(super) fn run_as(&self, task: TaskId) {
        self.task.set(Some(task));
    }

    /// Polls a queue from now on.
    pub(super) fn poll_for(&self, queue: &NapiHandle) {
        queue.set_thread(&self.pollers);
    }

    /// Buffers for packets of guests.
    pub(super) fn buffers(&self) -> &Rc<Buffers> {
        &self.buffers
    }

    fn has_work(&self) -> bool {
        let may_send = || self.is_stuck() || !self.kicked.borrow().is_empty();
        !self.pollers.is_empty() || !self.full.get() && may_send()
    }

    /// Waits for something to poll or to send.
    pub(super) async fn work(&self) {
        self.pollers.arrived.wait_for(|| self.has_work().then_some(())).await;
    }

    /// Polls the next queue that has asked for it.
    pub(super) async fn poll(&self, cpu: &Cpu) {
        if let Some(queue) = self.pollers.take() {
            queue.poll(cpu).await;
        }
    }

    /// Sends a packet through the uplink; it waits if there is no room.
    pub(super) fn send(&self, cpu: &Cpu, uplink: &dyn PacketDevice, packet: Packet) {
        if let Err(packet) = uplink.send_directly(cpu, self.queue(), packet, true) {
            if uplink.has_carrier() {
                self.full.set(true);
                *self.stuck.borrow_mut() = Some(packet);
            } else {
                packet.release(cpu);
            }
        }
    }

    /// Sends the packet that waits, unless the queue is still full. Returns whether others can follow.
    pub(super) fn send_stuck(&self, cpu: &Cpu, uplink: &dyn PacketDevice) -> bool {
        if self.full.get() {
            return false;
        }
        let stuck = self.stuck.borrow_mut().take();
        if let Some(packet) = stuck {
            self.send(cpu, uplink, packet);
        }
        !self.is_stuck()
    }

    /// Whether a packet waits for room.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.borrow().is_some()
    }

    /// The TX queue may have room again.
    pub(super) fn unstick(&self) {
        self.full.set(false);
        self.pollers.arrived.wake_one();
    }

    /// A guest has packets to send.
    pub(super) fn put(&self, vnic: Rc<Vnic>) {
        self.kicked.borrow_mut().push_back(vnic);
        self.pollers.arrived.wake_one();
    }

    /// Number of virtual NICs with packets to send.
    pub(super) fn kicked(&self) -> usize {
        self.kicked.borrow().len()
    }

    /// Takes the first of them.
    pub(super) fn take_kicked(&self) -> Option<Rc<Vnic>> {
        self.kicked.borrow_mut().pop_front()
    }

    /// A virtual NIC got a packet.
    pub(super) fn note_given(&self, vnic: &Rc<Vnic>) {
        let mut given = self.given.borrow_mut();
        if !given.iter().any(|other| Rc::ptr_eq(other, vnic)) {
            given.push(Rc::clone(vnic));
        }
    }

    /// Notifies all that got packets.
    pub(super) fn tell_given(&self, cpu: &Cpu, costs: &VhostCosts) {
        let given = self.given.take();
        given.iter().for_each(|vnic| vnic.tell(cpu, costs));
    }
}
