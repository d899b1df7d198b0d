//! Local interrupt controllers: vectors that have arrived at a core and were not taken yet.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use engine::Notify;
use platform::cpu::{Cpu, CpuId};

use super::guest::{GuestMode, Guests};
use crate::cpu::Cores;
use crate::ground::InterruptSink;

/// Interrupt controller of a core.
#[derive(Default)]
struct Apic {
    pending: RefCell<VecDeque<u8>>,
    /// Accepted vector whose handler is about to run (in-service register).
    serving: Cell<Option<u8>>,
    notify: Notify,
}

impl Apic {
    fn put(&self, vector: u8) {
        let mut pending = self.pending.borrow_mut();
        // A pending vector stays pending once (request register).
        if !pending.contains(&vector) {
            pending.push_back(vector);
        }
        self.notify.notify_one();
    }
}

/// Interrupt controllers of all cores.
pub(crate) struct Apics {
    cores: Rc<Cores>,
    all: Rc<[Apic]>,
    guests: Rc<Guests>,
    /// Messages to cores that do not exist.
    lost: Rc<Cell<u64>>,
}

impl Apics {
    pub fn new(cores: Rc<Cores>) -> Self {
        let count = cores.all.len();
        Self {
            cores,
            all: (0..count).map(|_| Apic::default()).collect(),
            guests: Rc::new(Guests::new(count)),
            lost: Rc::default(),
        }
    }

    /// Entry point for senders of interrupts.
    pub fn sink(&self) -> InterruptSink {
        let (all, lost) = (Rc::clone(&self.all), Rc::clone(&self.lost));
        let guests = Rc::clone(&self.guests);
        Box::new(move |core, vector| match all.get(core as usize) {
            Some(_) if guests.takes(core as usize, vector) => {}
            Some(apic) => apic.put(vector),
            None => lost.set(lost.get() + 1),
        })
    }

    /// A core interrupts itself.
    pub fn raise(&self, core: CpuId, vector: u8) {
        if !self.guests.takes(core.0.into(), vector) {
            self.of(core).put(vector);
        }
    }

    fn of(&self, core: CpuId) -> &Apic {
        &self.all[usize::from(core.0)]
    }

    /// Interrupts another core.
    pub fn send(&self, cpu: &Cpu, to: CpuId, vector: u8) {
        let costs = &self.cores.costs;
        cpu.work(costs.ipi_send);
        let arrives = cpu.now() + self.cores.time_for(costs.ipi_transit);
        let (cores, all) = (Rc::clone(&self.cores), Rc::clone(&self.all));
        let guests = Rc::clone(&self.guests);
        self.cores.hw.spawn(async move {
            cores.hw.sleep_until(arrives).await;
            if !guests.takes(to.0.into(), vector) {
                all[usize::from(to.0)].put(vector);
            }
        });
    }

    /// Waits until an interrupt arrives at a core.
    pub async fn arrival(&self, core: CpuId) {
        self.of(core).notify.notified().await;
    }

    /// Takes the next vector of a core, and ends the previous one.
    pub fn accept(&self, core: CpuId) -> Option<u8> {
        let apic = self.of(core);
        let next = apic.pending.borrow_mut().pop_front();
        apic.serving.set(next);
        next
    }

    /// Whether a vector is pending at a core or being served there.
    pub fn holds(&self, core: CpuId, vector: u8) -> bool {
        let apic = self.of(core);
        apic.pending.borrow().contains(&vector) || apic.serving.get() == Some(vector)
    }

    /// A core has entered or left a guest.
    pub fn set_guest(&self, core: CpuId, guest: Option<Rc<dyn GuestMode>>) {
        self.guests.set(core, guest);
    }

    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    pub fn clear(&self) {
        self.guests.clear();
    }
}
