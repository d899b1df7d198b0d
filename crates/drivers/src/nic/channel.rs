//! A channel: one interrupt with a TX and an RX queue, polled together on the interrupt's core.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::{Irq, IrqHandler, IrqReturn, Napi, NapiHandle};
use platform::kernel::Kernel;
use platform::net::{Coalescing, NetCore};
use units::Duration;

use super::counters::Counters;
use super::events::EventQueue;
use super::params::NicCosts;
use super::rx::RxQueue;
use super::tx::TxQueue;

/// Sent packets that one poll may free before it counts as having used its budget.
const MOST_SENT: u32 = 256;
/// Polls in a row without any work after which the driver asks the device whether there should be some (assumed:
/// cheap enough, and more than a late interrupt causes).
const MOST_EMPTY: u8 = 16;
/// How long to wait for memory when an RX queue has no buffer left.
const MEMORY_WAIT: Duration = Duration::from_ms(1);

/// What a channel needs of the function that it belongs to.
pub(super) trait Owner {
    fn kernel(&self) -> &dyn Kernel;

    /// The network stack, once one is attached.
    fn core(&self) -> Option<Rc<dyn NetCore>>;

    fn counters(&self) -> &Counters;

    /// Fixed cost of a poll, in cycles.
    fn poll_cost(&self) -> u64;

    /// Polls the second TX path of this channel, if there is one.
    fn poll_beside<'a>(&'a self, cpu: &'a Cpu, channel: u16, core: &'a dyn NetCore) -> Option<Async<'a, ()>>;

    /// Called when packets have moved.
    fn has_worked(&self);

    /// Restarts the device.
    fn recover(&self, why: &str);

    /// Handles an interrupt that is not about packets.
    fn events<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
}

pub(super) struct Channel {
    pub number: u16,
    /// The core that its interrupt goes to.
    pub cpu: Cell<CpuId>,
    pub irq: Irq,
    owner: Weak<dyn Owner>,
    napi: RefCell<Option<NapiHandle>>,
    pub tx: RefCell<Option<Rc<TxQueue>>>,
    pub rx: RefCell<Option<Rc<RxQueue>>>,
    /// The event queue of its interrupt, if the device has such.
    pub events: Rc<RefCell<Option<EventQueue>>>,
    /// A task is waiting for memory.
    starved: Cell<bool>,
    /// Consecutive polls that found no work.
    empty: Cell<u8>,
    /// Interrupt moderation.
    pub coalescing: Cell<Coalescing>,
}

/// The channel as the kernel polls it. Holds it weakly, since the channel owns the kernel's poll handle.
struct ChannelNapi(Weak<Channel>);

impl Channel {
    pub fn new(
        number: u16,
        cpu: CpuId,
        irq: Irq,
        owner: Weak<dyn Owner>,
        kernel: &Rc<dyn Kernel>,
        coalescing: Coalescing,
    ) -> Rc<Self> {
        Rc::new_cyclic(|me| {
            let napi = kernel.napi(Rc::new(ChannelNapi(me.clone())));
            Self {
                number,
                cpu: Cell::new(cpu),
                irq,
                owner,
                napi: RefCell::new(Some(napi)),
                tx: RefCell::new(None),
                rx: RefCell::new(None),
                events: Rc::default(),
                starved: Cell::new(false),
                empty: Cell::new(0),
                coalescing: Cell::new(coalescing),
            }
        })
    }

    pub fn napi(&self) -> Option<NapiHandle> {
        self.napi.borrow().clone()
    }

    /// The channel's interrupt handler.
    pub fn handler(&self, costs: NicCosts) -> IrqHandler {
        let (napi, events) = (self.napi(), Rc::clone(&self.events));
        Rc::new(move |cpu: &Cpu| {
            cpu.work(costs.handler);
            if let Some(events) = &*events.borrow() {
                events.take(cpu);
            }
            match &napi {
                Some(napi) => {
                    napi.schedule(cpu);
                    IrqReturn::Handled
                }
                None => IrqReturn::None,
            }
        })
    }

    /// Schedules a poll even if no interrupt came.
    pub fn kick(&self, cpu: &Cpu) {
        if let Some(napi) = self.napi() {
            napi.schedule(cpu);
        }
    }

    /// Enables the interrupts of both queues.
    pub fn arm(&self, cpu: &Cpu) {
        if let Some(rx) = &*self.rx.borrow() {
            rx.arm(cpu);
        }
        if let Some(tx) = &*self.tx.borrow() {
            tx.arm(cpu);
        }
    }

    /// Posts RX buffers. Returns whether the device has any.
    pub fn fill(&self, cpu: &Cpu, counters: &Counters) -> bool {
        let _part = cpu.book(Part::Driver);
        self.rx.borrow().as_ref().is_none_or(|rx| rx.fill(cpu, cpu.node(), counters) || rx.given() > 0)
    }

    async fn poll(self: &Rc<Self>, cpu: &Cpu, budget: usize) -> usize {
        let (Some(owner), Some(napi)) = (self.owner.upgrade(), self.napi()) else { return 0 };
        let (tx, rx) = (self.tx.borrow().clone(), self.rx.borrow().clone());
        let (Some(core), Some(tx), Some(rx)) = (owner.core(), tx, rx) else {
            napi.complete(cpu);
            return 0;
        };
        let _part = cpu.book(Part::Driver);
        cpu.work(owner.poll_cost());
        let counters = owner.counters();
        let sent = tx.reap(cpu, self.number, &*core, counters);
        if let Some(polled) = owner.poll_beside(cpu, self.number, &*core) {
            polled.await;
        }
        let received = rx.poll(cpu, self.number, budget, (&*core, &napi), counters).await;
        core.poll_end(cpu, self.number, received.as_ref().is_ok_and(|&received| received < budget));
        let (Ok(sent), Ok(received)) = (sent, received) else {
            counters.malformed.add(1);
            napi.complete(cpu);
            owner.recover("malformed completion");
            return 0;
        };
        if !self.fill(cpu, counters) {
            self.wait_for_memory(cpu, owner.kernel());
        }
        if received > 0 || sent > 0 {
            self.empty.set(0);
            owner.has_worked();
        } else {
            counters.empty_polls.add(1);
            self.empty.set(self.empty.get() + 1);
        }
        if self.empty.get() >= MOST_EMPTY {
            self.empty.set(0);
            // A wrong owner bit hides this completion and all behind it from the driver, but the device still
            // interrupts.
            if tx.misses_completion(cpu).await || rx.misses_completion(cpu).await {
                counters.malformed.add(1);
                napi.complete(cpu);
                owner.recover("missing completion");
                return 0;
            }
        }
        if received >= budget || sent >= MOST_SENT {
            return budget;
        }
        // Sync before the interrupt is armed: the device then sees work that arrived while this core was ahead of the
        // clock, and interrupts at once.
        cpu.sync().await;
        if napi.complete(cpu) {
            self.arm(cpu);
        }
        received
    }

    /// Retries later. Without a buffer there are no frames, and so no interrupt that would start a poll.
    fn wait_for_memory(self: &Rc<Self>, cpu: &Cpu, kernel: &dyn Kernel) {
        if self.starved.replace(true) {
            return;
        }
        let me = Rc::downgrade(self);
        kernel.queue_work(
            cpu,
            Box::new(move |cpu| {
                Box::pin(async move {
                    cpu.sleep(MEMORY_WAIT).await;
                    if let Some(me) = me.upgrade() {
                        me.starved.set(false);
                        me.kick(&cpu);
                    }
                })
            }),
        );
    }

    /// Drops the poll handle: rings and interrupt are about to be freed.
    pub fn forget_napi(&self) {
        self.napi.borrow_mut().take();
    }

    /// Waits until no poll of this channel is running.
    pub async fn quiet(&self) {
        if let Some(napi) = self.napi() {
            napi.disable().await;
        }
    }

    /// Drops all unsent packets and tells the network stack.
    pub fn give_up_sending(&self, cpu: &Cpu, core: &dyn NetCore) -> u32 {
        let Some(tx) = self.tx.borrow_mut().take() else { return 0 };
        let lost = tx.abandon(cpu);
        tx.ring.free(cpu);
        if lost.packets > 0 {
            core.sent(cpu, self.number, lost.packets, lost.bytes);
        }
        lost.packets
    }

    /// Takes all buffers back from the RX queue.
    pub fn give_up_receiving(&self, cpu: &Cpu) {
        if let Some(rx) = self.rx.borrow_mut().take() {
            rx.abandon(cpu);
            rx.ring.free(cpu);
        }
    }
}

impl Napi for ChannelNapi {
    fn poll<'a>(&'a self, cpu: &'a Cpu, budget: usize) -> Async<'a, usize> {
        Box::pin(async move {
            match self.0.upgrade() {
                Some(channel) => channel.poll(cpu, budget).await,
                None => 0,
            }
        })
    }
}
