//! A network device, between the stack and its driver.

mod driver;
mod program;
mod send;
mod watchdog;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::net::{FlowKey, NetCounters, NetDriver, NetFeatures, NetLimits, NetUpper, PacketQueue, RuleId};
use platform::sync::WaitQueue;
use units::{Duration, Time};
use wire::ethernet::MacAddr;

use super::Protocols;
use super::queue::TxQueue;
use crate::base::Base;
use crate::net::Net;

/// MTU without jumbo frames (IEEE 802.3).
const USUAL_MTU: u16 = 1500;

/// A network device.
pub struct NetDevice {
    base: Base,
    /// Registry of all devices.
    net: Weak<Net>,
    me: Weak<Self>,
    name: String,
    number: u32,
    limits: NetLimits,
    driver: RefCell<Option<Rc<dyn NetDriver>>>,
    features: RefCell<NetFeatures>,
    mtu: Cell<u16>,
    up: Cell<bool>,
    carrier: Cell<bool>,
    queues: Vec<TxQueue>,
    listeners: RefCell<Vec<Weak<PacketQueue>>>,
    counters: Cell<NetCounters>,
    /// The watchdog waits here while no queue is full.
    stuck: WaitQueue,
    /// Stacked device above, in place of the stack.
    upper: RefCell<Option<Weak<dyn NetUpper>>>,
    /// The namespace that the device was moved to.
    namespace: RefCell<Option<Weak<dyn Protocols>>>,
}

impl NetDevice {
    pub(super) fn new(net: &Net, number: u32, name: String, driver: Rc<dyn NetDriver>) -> Rc<Self> {
        let limits = driver.limits();
        Rc::new_cyclic(|me| Self {
            base: net.base.clone(),
            net: Weak::clone(&net.me),
            me: me.clone(),
            name,
            number,
            features: RefCell::new(limits.features.clone()),
            mtu: Cell::new(limits.max_mtu.min(USUAL_MTU)),
            up: Cell::new(false),
            carrier: Cell::new(false),
            queues: (0..limits.tx_queues.max(1)).map(|_| TxQueue::default()).collect(),
            limits,
            driver: RefCell::new(Some(driver)),
            listeners: RefCell::default(),
            counters: Cell::default(),
            stuck: WaitQueue::new(),
            upper: RefCell::new(None),
            namespace: RefCell::new(None),
        })
    }

    /// Stacked device above, in place of the stack.
    fn upper(&self) -> Option<Rc<dyn NetUpper>> {
        self.upper.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// The protocols above.
    pub(super) fn protocols(&self) -> Option<Rc<dyn Protocols>> {
        let namespace = self.namespace.borrow().as_ref().and_then(Weak::upgrade);
        namespace.or_else(|| self.net.upgrade()?.protocols())
    }

    /// Moves the device to other protocols.
    pub(super) fn move_to(&self, to: &Rc<dyn Protocols>) {
        let Some(me) = self.me.upgrade() else { return };
        let from = self.protocols();
        if from.as_ref().is_some_and(|from| Rc::ptr_eq(from, to)) {
            return;
        }
        *self.namespace.borrow_mut() = Some(Rc::downgrade(to));
        if let Some(from) = from {
            from.device_removed(&me);
        }
        to.device_added(&me);
    }

    /// Name as in `ip link`, such as `eth0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number, never reused by the kernel.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Limits set by the driver: address, queues, features.
    pub const fn limits(&self) -> &NetLimits {
        &self.limits
    }

    /// Ethernet address.
    pub const fn mac(&self) -> MacAddr {
        self.limits.mac
    }

    /// Features that are on.
    pub fn features(&self) -> NetFeatures {
        self.features.borrow().clone()
    }

    /// Turns features on or off. Returns those that are on afterwards.
    pub fn set_features(&self, cpu: &Cpu, wanted: &NetFeatures) -> NetFeatures {
        if let Some(driver) = self.driver() {
            *self.features.borrow_mut() = driver.set_features(cpu, wanted);
        }
        self.features()
    }

    /// MTU: largest packet without its Ethernet header.
    pub fn mtu(&self) -> u16 {
        self.mtu.get()
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// If it is below IPv4's minimum (68, RFC 791) or above the device's limit.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), Error> {
        if !(68..=self.limits.max_mtu).contains(&mtu) {
            return Err(Error::Invalid);
        }
        self.mtu.set(mtu);
        Ok(())
    }

    /// Whether it is open.
    pub fn is_up(&self) -> bool {
        self.up.get()
    }

    /// Whether its link is up.
    pub fn has_carrier(&self) -> bool {
        self.carrier.get()
    }

    fn can_send(&self) -> bool {
        self.up.get() && self.carrier.get()
    }

    /// Packet counters.
    pub fn counters(&self) -> NetCounters {
        self.counters.get()
    }

    /// How long each TX queue's ring has been full, up to `now`.
    pub fn queues_full(&self, now: Time) -> Vec<Duration> {
        self.queues.iter().map(|queue| queue.stopped_until(now)).collect()
    }

    /// The driver; `None` if the device is gone.
    pub fn driver(&self) -> Option<Rc<dyn NetDriver>> {
        self.driver.borrow().clone()
    }

    /// Steers a flow to an RX queue.
    ///
    /// # Errors
    /// The driver's; [`Error::NoDevice`] if the device is gone.
    pub fn steer(&self, cpu: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        self.driver().ok_or(Error::NoDevice)?.steer(cpu, flow, queue)
    }

    /// Removes a flow rule.
    pub fn unsteer(&self, cpu: &Cpu, rule: RuleId) {
        if let Some(driver) = self.driver() {
            driver.unsteer(cpu, rule);
        }
    }

    /// The TX queue of a core (XPS).
    pub fn tx_queue_for(&self, cpu: CpuId) -> u16 {
        let last = self.queues.len() as u16 - 1;
        self.driver().map_or(0, |driver| driver.tx_queue_for(cpu).min(last))
    }

    /// The RX queue polled on a core, or near it.
    pub fn rx_queue_for(&self, cpu: CpuId) -> u16 {
        let last = self.limits.rx_queues.saturating_sub(1);
        self.driver().map_or(0, |driver| driver.rx_queue_for(cpu).min(last))
    }

    /// Polls an RX queue on this core, even without an interrupt.
    pub(super) fn poll_queue(&self, cpu: &Cpu, queue: u16) {
        if let Some(poll) = self.driver().and_then(|driver| driver.poll_of(queue)) {
            poll.schedule(cpu);
        }
    }

    fn count(&self, change: impl FnOnce(&mut NetCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Opens the device.
    ///
    /// # Errors
    /// If the driver fails; [`Error::NoDevice`] if it is gone.
    pub async fn open(&self, cpu: &Cpu) -> Result<(), Error> {
        let driver = self.driver().ok_or(Error::NoDevice)?;
        if self.up.get() {
            return Ok(());
        }
        driver.open(cpu).await?;
        self.up.set(true);
        self.start_watchdog();
        Ok(())
    }

    /// Closes the device (`ip link set down`): the driver frees rings, buffers and interrupts.
    pub async fn stop(&self, cpu: &Cpu) {
        if !self.up.replace(false) {
            return;
        }
        self.stuck.wake_all();
        if let Some(driver) = self.driver() {
            driver.stop(cpu).await;
        }
        if let (Some(protocols), Some(me)) = (self.protocols(), self.me.upgrade()) {
            protocols.device_stopped(cpu, &me);
        }
        self.drop_waiting(cpu);
    }

    pub(super) fn forget_driver(&self) {
        self.up.set(false);
        self.driver.borrow_mut().take();
    }
}
