//! One network device for all functions of a card that share an Ethernet address (Linux: multi-PF netdev; the driver that
//! IOctopus, 4.2, considered and did not build).
//!
//! Its queues are those of the functions, one after the other, so that a packet goes straight to its ring: there is no
//! choice of a device per packet, as in a [team](crate::team). A core's queues are those of the function at its node.
//! Flow rules go to the function that owns the queue, then the former function's rule is removed.
//!
//! If a function is being reset, or is gone, the others take its packets and flows until it is back. The network device
//! exists from the first function's probe to the last one's removal, with queues for as many functions as the card says
//! share the address.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::irq::{Irq, NapiHandle};
use platform::kernel::{Kernel, TaskParams};
use platform::net::{
    Coalescing, DeviceStatistics, FlowKey, MacAddr, NetCore, NetDriver, NetFeatures, NetLimits, Packet,
    Rings, RuleId, TxStatistics,
};
use wire::pcie::FunctionAddress;

use super::adapter::Adapter;
use super::params::NicCosts;
use crate::flows::SteeredFlows;
use crate::members::{self, FormerMembers, Member as _};

/// Place of a function.
struct Slot {
    adapter: RefCell<Option<Rc<Adapter>>>,
    /// Number within the card of the function that was here last.
    function: Cell<Option<u8>>,
    has_carrier: Cell<bool>,
    /// Rank among the functions by when their carrier came up.
    rank: Cell<u64>,
    /// Its first queues, and how many there are.
    first: u16,
    queues: u16,
}

impl Slot {
    fn adapter(&self) -> Option<Rc<Adapter>> {
        self.adapter.borrow().clone()
    }
}

impl members::Member for Slot {
    fn driver(&self) -> Option<Rc<dyn NetDriver>> {
        Some(self.adapter()? as Rc<dyn NetDriver>)
    }

    fn is_usable(&self) -> bool {
        self.has_carrier.get() && self.adapter.borrow().as_ref().is_some_and(|adapter| adapter.is_up())
    }

    fn first_tx(&self) -> u16 {
        self.first
    }

    fn first_rx(&self) -> u16 {
        self.first
    }

    fn queues(&self) -> (u16, u16) {
        (self.queues, self.queues)
    }
}

/// Settings, for functions that come back.
#[derive(Default)]
struct Settings {
    features: Option<NetFeatures>,
    promiscuous: bool,
    indirection: Vec<u16>,
    coalescing: BTreeMap<u16, Coalescing>,
    rings: Option<Rings>,
    addresses: BTreeMap<MacAddr, u16>,
}

/// The network device of several functions.
pub(super) struct Combined {
    kernel: Rc<dyn Kernel>,
    limits: NetLimits,
    costs: NicCosts,
    /// Interrupt moderation of a queue for which none was set.
    coalescing: Coalescing,
    slots: Vec<Slot>,
    core: RefCell<Option<Rc<dyn NetCore>>>,
    is_open: Cell<bool>,
    flows: Rc<SteeredFlows>,
    settings: RefCell<Settings>,
    /// Functions that are being removed, which still count.
    leaving: RefCell<Vec<Rc<Adapter>>>,
    former: FormerMembers,
}

impl Combined {
    /// Registers a network device for a function and the others with its address that will come.
    pub fn register(adapter: &Rc<Adapter>) -> Rc<Self> {
        let own = adapter.limits();
        let (queues, number) = (own.tx_queues, u16::from(adapter.limits.sharing));
        let slot = |n: u16| Slot {
            adapter: RefCell::new(None),
            function: Cell::new(None),
            has_carrier: Cell::new(false),
            rank: Cell::new(0),
            first: n * queues,
            queues,
        };
        let combined = Rc::new_cyclic(|me: &Weak<Self>| {
            let me = me.clone();
            let driver_of = Box::new(move |slot: usize| me.upgrade()?.slots[slot].driver());
            Self {
                kernel: Rc::clone(&adapter.kernel),
                limits: NetLimits { tx_queues: number * queues, rx_queues: number * queues, ..own },
                costs: adapter.params.costs,
                coalescing: adapter.params.coalescing(),
                slots: (0..number).map(slot).collect(),
                core: RefCell::new(None),
                is_open: Cell::new(false),
                flows: SteeredFlows::new(Rc::clone(&adapter.kernel), driver_of),
                settings: RefCell::default(),
                leaving: RefCell::default(),
                former: FormerMembers::default(),
            }
        });
        combined.place(adapter);
        let core = adapter.kernel.register_net(Rc::clone(&combined) as Rc<dyn NetDriver>);
        *combined.core.borrow_mut() = Some(core);
        combined
    }

    /// Whether a function is one of this device's, which still exists.
    pub fn takes(&self, adapter: &Adapter) -> bool {
        self.core().is_some() && self.adapters().iter().all(|other| other.is_same_station(adapter))
    }

    /// Adds a function, which opens if the device is open.
    pub async fn add(self: &Rc<Self>, cpu: &Cpu, adapter: &Rc<Adapter>) {
        let number = self.place(adapter);
        let slot = &self.slots[number];
        {
            let settings = self.settings.borrow();
            if let Some(features) = &settings.features {
                adapter.set_features(cpu, features);
            }
            adapter.set_promiscuous(cpu, settings.promiscuous);
            self.set_table_of(cpu, slot, &settings.indirection);
            for (&queue, &coalescing) in settings.coalescing.range(slot.first..slot.first + slot.queues) {
                // It may have come back with fewer queues.
                let _ = adapter.set_coalescing(cpu, queue - slot.first, coalescing);
            }
        }
        let rings = self.settings.borrow().rings;
        if let Some(rings) = rings {
            // One that cannot keeps its own.
            let _ = adapter.set_rings(cpu, rings).await;
        }
        if !self.is_open.get() {
            return;
        }
        if let Err(error) = adapter.open(cpu).await {
            self.kernel.log(format!("{}: {error}", adapter.name()));
            return;
        }
        let addresses = self.settings.borrow().addresses.clone();
        let own = addresses.iter().filter(|&(_, queue)| members::rx_place(&self.slots, *queue).0 == number);
        for (&mac, &queue) in own {
            let _ = adapter.set_address(cpu, mac, Some(queue - slot.first));
        }
    }

    /// Gives a function its place, and makes it report here.
    fn place(self: &Rc<Self>, adapter: &Rc<Adapter>) -> usize {
        let own = Some(adapter.limits.function);
        let free = |was: Option<u8>| {
            let is_free = |slot: &Slot| slot.function.get() == was && slot.adapter.borrow().is_none();
            self.slots.iter().position(is_free)
        };
        // One that comes back gets the place that it had.
        let number = free(own).or_else(|| free(None)).expect("there is a place for each function");
        self.slots[number].function.set(own);
        adapter.set_core(Some(Rc::new(FunctionCore { of: Rc::downgrade(self), slot: number })));
        *self.slots[number].adapter.borrow_mut() = Some(Rc::clone(adapter));
        number
    }

    /// A function goes. The network device goes with the last one.
    async fn remove(&self, cpu: &Cpu, number: usize) {
        let slot = &self.slots[number];
        let Some(adapter) = slot.adapter.take() else { return };
        slot.has_carrier.set(false);
        self.show_carrier();
        self.leaving.borrow_mut().push(Rc::clone(&adapter));
        adapter.stop(cpu).await;
        let (tx, others) = (adapter.statistics(cpu).await, adapter.device_statistics(cpu).await);
        self.leaving.borrow_mut().retain(|other| !Rc::ptr_eq(other, &adapter));
        self.former.add(&tx, &others);
        self.flows.lose(number);
        if self.slots.iter().all(|slot| slot.adapter.borrow().is_none()) {
            let core = self.core.take();
            if let Some(core) = core {
                core.unregister(cpu).await;
            }
        } else if let Some(core) = self.core() {
            self.skip_lost_functions(cpu, &*core);
        }
    }

    fn core(&self) -> Option<Rc<dyn NetCore>> {
        self.core.borrow().clone()
    }

    fn adapters(&self) -> Vec<Rc<Adapter>> {
        self.slots.iter().filter_map(Slot::adapter).collect()
    }

    /// Functions whose counters are not among those of former ones.
    fn counting(&self) -> Vec<Rc<Adapter>> {
        let leaving = self.leaving.borrow();
        self.slots.iter().filter_map(Slot::adapter).chain(leaving.iter().cloned()).collect()
    }

    /// The function behind a queue, if it is usable and has such a queue, and the queue's number there.
    fn at(&self, queue: u16) -> Option<(Rc<Adapter>, u16)> {
        let (slot, own) = members::tx_place(&self.slots, queue);
        let slot = Some(&self.slots[slot]).filter(|slot| slot.is_usable())?;
        let adapter = slot.adapter()?;
        adapter.channels.get(own)?;
        Some((adapter, own))
    }

    /// The link is up if any function says so.
    fn show_carrier(&self) {
        if let Some(core) = self.core() {
            core.set_carrier(self.slots.iter().any(|slot| slot.has_carrier.get()));
        }
    }

    fn skip_lost_functions(&self, cpu: &Cpu, core: &dyn NetCore) {
        if !self.slots.iter().all(Slot::is_usable) {
            members::skip_lost(&self.slots, cpu, core, |slot, queue| self.slots[slot].first + queue);
        }
    }

    /// Sets a function's RSS table to its own queues among those of the whole. If none is its own, it keeps its table,
    /// as it may have to take the others' flows.
    fn set_table_of(&self, cpu: &Cpu, slot: &Slot, table: &[u16]) {
        let own = |&queue: &u16| queue.checked_sub(slot.first).filter(|&own| own < slot.queues);
        let table: Vec<u16> = table.iter().filter_map(own).collect();
        if let Some(adapter) = slot.adapter() {
            // Empty, or it has come back with fewer queues.
            let _ = adapter.set_indirection(cpu, &table);
        }
    }
}

impl NetDriver for Combined {
    fn limits(&self) -> NetLimits {
        self.limits.clone()
    }

    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut opened = Err(Error::NoDevice);
            for adapter in self.adapters() {
                let own = adapter.open(cpu).await;
                opened = opened.or(own);
            }
            self.is_open.set(opened.is_ok());
            opened
        })
    }

    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.is_open.set(false);
            for adapter in self.adapters() {
                adapter.stop(cpu).await;
            }
        })
    }

    fn transmit(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        if let Some((adapter, own)) = self.at(queue) {
            return adapter.transmit(cpu, own, packet, more);
        }
        // Its function is gone or being reset: another one's queue for this core takes the packet.
        let _part = cpu.book(Part::Driver);
        cpu.work(self.costs.reroute);
        let stand_in = members::stand_in_for(&self.slots, cpu);
        let stand_in = stand_in.and_then(|(slot, own)| Some((self.slots[slot].adapter()?, own)));
        let Some((adapter, own)) = stand_in else { return Err(packet) };
        let bytes = packet.length();
        adapter.transmit(cpu, own, packet, false)?;
        if let Some(core) = self.core() {
            // The completion is reported for the other queue, which never saw this packet.
            core.sent(cpu, queue, 1, bytes.into());
        }
        Ok(())
    }

    fn flush(&self, cpu: &Cpu, queue: u16) {
        if let Some((adapter, own)) = self.at(queue) {
            adapter.flush(cpu, own);
        }
    }

    fn timed_out<'a>(&'a self, cpu: &'a Cpu, queue: u16) -> Async<'a, ()> {
        Box::pin(async move {
            if let Some((adapter, own)) = self.at(queue) {
                adapter.timed_out(cpu, own).await;
            }
        })
    }

    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics> {
        Box::pin(async move {
            let mut sum = self.former.tx();
            for adapter in self.counting() {
                sum.add(&adapter.statistics(cpu).await);
            }
            sum
        })
    }

    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics> {
        Box::pin(async move {
            let mut sum = self.former.others();
            for adapter in self.counting() {
                sum.add(&adapter.device_statistics(cpu).await);
            }
            sum
        })
    }

    fn tx_queue_for(&self, cpu: CpuId) -> u16 {
        let place = members::tx_queue_for(&self.slots, cpu, self.kernel.node_of(cpu));
        place.map_or(0, |(slot, own)| self.slots[slot].first + own)
    }

    fn rx_queue_for(&self, cpu: CpuId) -> u16 {
        members::rx_queue_for(&self.slots, cpu, self.kernel.node_of(cpu)).unwrap_or(0)
    }

    fn node_of(&self, queue: u16) -> Option<Node> {
        let (adapter, own) = self.at(queue)?;
        adapter.node_of(own)
    }

    fn set_features(&self, cpu: &Cpu, wanted: &NetFeatures) -> NetFeatures {
        self.settings.borrow_mut().features = Some(wanted.clone());
        let own = self.adapters().into_iter().map(|adapter| adapter.set_features(cpu, wanted));
        own.fold(self.limits.features.clone(), |all, own| all.of_both(&own))
    }

    fn rx_outstanding(&self, queue: u16) -> Option<u32> {
        let (driver, own) = members::receiver(&self.slots, queue)?;
        driver.rx_outstanding(own)
    }

    fn set_indirection(&self, cpu: &Cpu, table: &[u16]) -> Result<(), Error> {
        if table.is_empty() || table.iter().any(|&queue| queue >= self.limits.rx_queues) {
            return Err(Error::Invalid);
        }
        self.settings.borrow_mut().indirection = table.to_vec();
        self.slots.iter().for_each(|slot| self.set_table_of(cpu, slot, table));
        Ok(())
    }

    fn indirection(&self) -> Vec<u16> {
        // Flows without a rule go to the function that has been running longest.
        let usable = self.slots.iter().filter(|slot| slot.is_usable());
        let Some(slot) = usable.min_by_key(|slot| slot.rank.get()) else { return Vec::new() };
        let table = slot.adapter().map(|adapter| adapter.indirection()).unwrap_or_default();
        table.into_iter().map(|queue| slot.first + queue).collect()
    }

    fn set_promiscuous(&self, cpu: &Cpu, on: bool) {
        self.settings.borrow_mut().promiscuous = on;
        self.adapters().iter().for_each(|adapter| adapter.set_promiscuous(cpu, on));
    }

    fn steer(&self, _: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        if !self.limits.features.flow_steering {
            return Err(Error::NotSupported);
        }
        self.flows.steer(flow, members::rx_place(&self.slots, queue))
    }

    fn unsteer(&self, _: &Cpu, rule: RuleId) {
        self.flows.unsteer(rule);
    }

    fn set_address(&self, cpu: &Cpu, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        members::set_address(&self.slots, cpu, mac, queue)?;
        let mut settings = self.settings.borrow_mut();
        match queue {
            Some(queue) => settings.addresses.insert(mac, queue),
            None => settings.addresses.remove(&mac),
        };
        Ok(())
    }

    fn poll_of(&self, queue: u16) -> Option<NapiHandle> {
        let (driver, own) = members::receiver(&self.slots, queue)?;
        driver.poll_of(own)
    }

    fn interrupt_of(&self, queue: u16) -> Option<Irq> {
        let (driver, own) = members::receiver(&self.slots, queue)?;
        driver.interrupt_of(own)
    }

    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error> {
        if queue >= self.limits.rx_queues {
            return Err(Error::Invalid);
        }
        self.settings.borrow_mut().coalescing.insert(queue, wanted);
        match members::receiver(&self.slots, queue) {
            Some((driver, own)) => driver.set_coalescing(cpu, own, wanted),
            None => Ok(()),
        }
    }

    fn coalescing(&self, queue: u16) -> Option<Coalescing> {
        match members::receiver(&self.slots, queue) {
            Some((driver, own)) => driver.coalescing(own),
            None => self.settings.borrow().coalescing.get(&queue).copied().or(Some(self.coalescing)),
        }
    }

    fn set_rings<'a>(&'a self, cpu: &'a Cpu, wanted: Rings) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let adapters = self.adapters();
            if adapters.iter().any(|adapter| !adapter.takes_rings(wanted)) {
                return Err(Error::Invalid);
            }
            self.settings.borrow_mut().rings = Some(wanted);
            let mut set = Ok(());
            for adapter in adapters {
                let own = adapter.set_rings(cpu, wanted).await;
                set = set.and(own);
            }
            set
        })
    }

    fn rings(&self) -> Option<Rings> {
        Some(self.adapters().first()?.rings())
    }

    fn function(&self) -> Option<FunctionAddress> {
        self.adapters().first()?.function()
    }
}

/// The kernel as a function of the device sees it: queue numbers are shifted to those of the whole.
struct FunctionCore {
    of: Weak<Combined>,
    slot: usize,
}

impl FunctionCore {
    /// The device, the kernel, and the function's first queue.
    fn whole(&self) -> Option<(Rc<Combined>, Rc<dyn NetCore>, u16)> {
        let whole = self.of.upgrade()?;
        let (core, first) = (whole.core()?, whole.slots[self.slot].first);
        Some((whole, core, first))
    }
}

impl NetCore for FunctionCore {
    fn name(&self) -> String {
        self.whole().map_or_else(String::new, |(_, core, _)| format!("{}:{}", core.name(), self.slot))
    }

    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet) {
        match self.whole() {
            Some((_, core, first)) => core.receive(cpu, napi, first + queue, packet),
            None => packet.release(cpu),
        }
    }

    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool) {
        let Some((whole, core, first)) = self.whole() else { return };
        core.poll_end(cpu, first + queue, emptied);
        whole.skip_lost_functions(cpu, &*core);
    }

    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64) {
        if let Some((_, core, first)) = self.whole() {
            core.sent(cpu, first + queue, packets, bytes);
        }
    }

    fn wake_queue(&self, cpu: &Cpu, queue: u16) {
        let Some((whole, core, first)) = self.whole() else { return };
        core.wake_queue(cpu, first + queue);
        whole.skip_lost_functions(cpu, &*core);
    }

    fn set_carrier(&self, up: bool) {
        let Some(whole) = self.of.upgrade() else { return };
        let slot = &whole.slots[self.slot];
        let had_carrier = slot.has_carrier.replace(up);
        if up && !had_carrier {
            slot.rank.set(1 + whole.slots.iter().map(|slot| slot.rank.get()).max().unwrap_or(0));
        }
        whole.show_carrier();
        let (kernel, slot) = (Rc::clone(&whole.kernel), self.slot);
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                if up {
                    whole.flows.retry(slot);
                }
                if let Some(core) = whole.core() {
                    // Packets that waited for one function may take another now.
                    (0..whole.limits.tx_queues).for_each(|queue| core.wake_queue(&cpu, queue));
                    whole.skip_lost_functions(&cpu, &*core);
                }
                cpu.sync().await;
            })
        };
        kernel.spawn(TaskParams::named("nic/carrier"), Box::new(program));
    }

    fn unregister<'a>(self: Rc<Self>, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            if let Some(whole) = self.of.upgrade() {
                whole.remove(cpu, self.slot).await;
            }
        })
    }
}
