//! Loopback: a backlog per core, processed as deferred work (Linux: `process_backlog`).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use platform::cpu::{Async, Cpu, CpuId};
use platform::irq::{Napi, NapiHandle};
use platform::net::Packet;

use crate::irq::Softirqs;

/// What receives loopback packets.
pub trait Looped {
    /// A packet of the host to itself, on the core that sent it.
    fn looped(&self, cpu: &Cpu, packet: Packet);
}

/// Loopback packets of a core.
struct LoopbackBacklog {
    stack: Weak<dyn Looped>,
    packets: RefCell<VecDeque<Packet>>,
    napi: RefCell<Option<NapiHandle>>,
}

impl Napi for LoopbackBacklog {
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize> {
        Box::pin(async move {
            let mut done = 0;
            while done < budget {
                let Some(packet) = self.packets.borrow_mut().pop_front() else { break };
                match self.stack.upgrade() {
                    Some(stack) => stack.looped(cpu, packet),
                    None => packet.release(cpu),
                }
                done += 1;
                cpu.sync().await;
            }
            if done < budget
                && let Some(napi) = self.napi.borrow().clone()
            {
                napi.complete(cpu);
            }
            done
        })
    }
}

/// Loopback packets of all cores.
pub(super) struct Loopback {
    stack: Weak<dyn Looped>,
    softirqs: Rc<Softirqs>,
    backlogs: RefCell<BTreeMap<CpuId, Rc<LoopbackBacklog>>>,
}

impl Loopback {
    pub fn new(stack: Weak<dyn Looped>, softirqs: Rc<Softirqs>) -> Self {
        Self { stack, softirqs, backlogs: RefCell::default() }
    }

    /// Queues a packet for this host.
    pub fn put(&self, cpu: &Cpu, packet: Packet) {
        let backlog = Rc::clone(self.backlogs.borrow_mut().entry(cpu.id()).or_insert_with(|| {
            let stack = self.stack.clone();
            let backlog =
                Rc::new(LoopbackBacklog { stack, packets: RefCell::default(), napi: RefCell::default() });
            let napi = self.softirqs.napi(Rc::clone(&backlog) as Rc<dyn Napi>) as NapiHandle;
            napi.enable();
            *backlog.napi.borrow_mut() = Some(napi);
            backlog
        }));
        backlog.packets.borrow_mut().push_back(packet);
        let napi = backlog.napi.borrow().clone();
        if let Some(napi) = napi {
            napi.schedule(cpu);
        }
    }

    pub fn clear(&self) {
        for (_, backlog) in core::mem::take(&mut *self.backlogs.borrow_mut()) {
            backlog.packets.borrow_mut().clear();
            backlog.napi.borrow_mut().take();
        }
    }
}
