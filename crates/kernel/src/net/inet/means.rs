//! State shared by all parts of the stack: memory, tasks, costs, counters and free ports.

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;
use platform::socket::InetCounters;

use crate::base::Base;
use crate::costs::KernelCosts;
use crate::mm::Memory;

/// First ephemeral port (Linux: `ip_local_port_range`).
const FIRST_PORT: u16 = 32_768;
/// Last ephemeral port.
const LAST_PORT: u16 = 60_999;

/// Shared by all parts of a [`Stack`](super::Stack).
pub struct Means {
    base: Base,
    counters: Cell<InetCounters>,
    next_port: Cell<u16>,
}

impl Means {
    pub fn new(base: Base) -> Rc<Self> {
        Rc::new(Self { base, counters: Cell::default(), next_port: Cell::new(FIRST_PORT) })
    }

    pub fn base(&self) -> &Base {
        &self.base
    }

    pub fn memory(&self) -> &Rc<Memory> {
        &self.base.memory
    }

    pub fn costs(&self) -> &KernelCosts {
        self.base.costs()
    }

    /// Starts a kernel task.
    pub fn spawn(&self, name: &str, program: impl FnOnce(Cpu) -> Async<'static, ()> + 'static) {
        self.base.tasks.spawn(TaskParams::named(name), Box::new(program));
    }

    pub fn counters(&self) -> InetCounters {
        self.counters.get()
    }

    pub fn count(&self, change: impl FnOnce(&mut InetCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Finds a free ephemeral port. TCP and UDP share the search position.
    pub fn free_port(&self, is_free: impl Fn(u16) -> bool) -> Option<u16> {
        for _ in FIRST_PORT..=LAST_PORT {
            let port = self.next_port.get();
            self.next_port.set(if port == LAST_PORT { FIRST_PORT } else { port + 1 });
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }
}
