//! Backlog of a core: packets from other cores, processed as deferred work after an IPI (Linux: `enqueue_to_backlog`,
//! `process_backlog`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::{Napi, NapiOps as _};

use super::super::upward::{Sockets, Upward};
use crate::irq::{NapiState, Softirqs};

/// Most packets in a backlog (Linux: `net.core.netdev_max_backlog`).
const MOST: usize = 1000;
/// Packets handled between syncs with the simulation clock.
const TURN: usize = 4;

/// Backlog of a core.
pub struct Backlog {
    stack: Weak<dyn Sockets>,
    core: CpuId,
    packets: RefCell<VecDeque<Upward>>,
    /// Counts of packets queued and processed.
    came: Cell<u64>,
    done: Cell<u64>,
    napi: RefCell<Option<Rc<NapiState>>>,
}

impl Backlog {
    /// Queues a packet, or drops it if the backlog is full. Returns the count including it.
    pub fn put(&self, cpu: &Cpu, up: Upward) -> Option<u64> {
        if self.packets.borrow().len() >= MOST {
            up.release(cpu);
            return None;
        }
        self.packets.borrow_mut().push_back(up);
        self.came.set(self.came.get() + 1);
        let napi = self.napi.borrow().clone();
        if let Some(napi) = napi {
            napi.schedule_on(cpu, self.core);
        }
        Some(self.came.get())
    }

    /// Whether the first `count` packets have been processed.
    pub fn has_done(&self, count: u64) -> bool {
        self.done.get() >= count
    }
}

impl Napi for Backlog {
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let mut done = 0;
            while done < budget {
                let Some(up) = self.packets.borrow_mut().pop_front() else { break };
                match self.stack.upgrade() {
                    Some(stack) => stack.hand_up(cpu, up),
                    None => up.release(cpu),
                }
                self.done.set(self.done.get() + 1);
                done += 1;
                if done % TURN == 0 {
                    cpu.sync().await;
                }
            }
            if done < budget
                && let Some(napi) = self.napi.borrow().clone()
            {
                platform::irq::NapiOps::complete(&*napi, cpu);
            }
            done
        })
    }
}

/// Backlogs of all cores.
pub struct Backlogs {
    stack: Weak<dyn Sockets>,
    softirqs: Rc<Softirqs>,
    all: RefCell<BTreeMap<CpuId, Rc<Backlog>>>,
}

impl Backlogs {
    pub fn new(stack: Weak<dyn Sockets>, softirqs: Rc<Softirqs>) -> Self {
        Self { stack, softirqs, all: RefCell::default() }
    }

    /// The backlog of a core, if it was ever used.
    pub fn of(&self, core: CpuId) -> Option<Rc<Backlog>> {
        self.all.borrow().get(&core).cloned()
    }

    /// The backlog of a core, created on first use.
    pub fn get(&self, core: CpuId) -> Rc<Backlog> {
        let make = || {
            let backlog = Rc::new(Backlog {
                stack: self.stack.clone(),
                core,
                packets: RefCell::default(),
                came: Cell::new(0),
                done: Cell::new(0),
                napi: RefCell::default(),
            });
            let napi = self.softirqs.napi(Rc::clone(&backlog) as Rc<dyn Napi>);
            napi.enable();
            *backlog.napi.borrow_mut() = Some(napi);
            backlog
        };
        Rc::clone(self.all.borrow_mut().entry(core).or_insert_with(make))
    }

    pub fn clear(&self) {
        for (_, backlog) in core::mem::take(&mut *self.all.borrow_mut()) {
            backlog.packets.borrow_mut().clear();
            backlog.napi.borrow_mut().take();
        }
    }
}
