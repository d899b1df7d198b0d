//! A network device, between the stack and its driver.

mod below;
mod driver;
mod program;
mod queue;
mod transmit;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::net::{
    FlowKey, NetCounters, NetDriver, NetFeatures, NetLimits, NetUpper, Packet, PacketQueue, RuleId,
};
use units::{Duration, Time};
use wire::ethernet::{HEADER_LEN, MacAddr};

use super::Protocols;
use crate::net::Net;
use below::Below;
use transmit::TxQueues;

/// MTU without jumbo frames (IEEE 802.3).
const USUAL_MTU: u16 = 1500;

/// A network device.
pub struct NetDevice {
    below: Rc<Below>,
    tx: Rc<TxQueues>,
    /// Registry of all devices.
    net: Weak<Net>,
    me: Weak<Self>,
    number: u32,
    limits: NetLimits,
    features: RefCell<NetFeatures>,
    mtu: Cell<u16>,
    listeners: RefCell<Vec<Weak<PacketQueue>>>,
    /// Whether the stack coalesces received segments (GRO).
    gro: Cell<bool>,
    /// Stacked device above, in place of the stack.
    upper: RefCell<Option<Weak<dyn NetUpper>>>,
    /// The namespace that the device was moved to.
    namespace: RefCell<Option<Weak<dyn Protocols>>>,
}

impl NetDevice {
    pub(super) fn new(net: &Net, number: u32, name: String, driver: Rc<dyn NetDriver>) -> Rc<Self> {
        let limits = driver.limits();
        let below = Rc::new(Below::new(net.base.clone(), name, driver));
        Rc::new_cyclic(|me| Self {
            tx: Rc::new(TxQueues::new(Rc::clone(&below), limits.tx_queues)),
            below,
            net: Weak::clone(&net.me),
            me: me.clone(),
            number,
            features: RefCell::new(limits.features.clone()),
            mtu: Cell::new(limits.max_mtu.min(USUAL_MTU)),
            limits,
            gro: Cell::new(true),
            listeners: RefCell::default(),
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
        &self.below.name
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

    /// Features that are on, as in `ethtool -k`.
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

    /// Whether the stack coalesces received segments, as `generic-receive-offload` of `ethtool -k`.
    pub fn coalesces_segments(&self) -> bool {
        self.gro.get()
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
        self.below.up.get()
    }

    /// Whether its link is up.
    pub fn has_carrier(&self) -> bool {
        self.below.carrier.get()
    }

    /// Packet counters.
    pub fn counters(&self) -> NetCounters {
        self.below.counters()
    }

    /// How long each TX queue's ring has been full, up to `now`.
    pub fn queues_full(&self, now: Time) -> Vec<Duration> {
        self.tx.full(now)
    }

    /// The driver; `None` if the device is gone.
    pub fn driver(&self) -> Option<Rc<dyn NetDriver>> {
        self.below.driver()
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
        self.tx.queue_for(cpu)
    }

    /// Sends a packet. With `more`, others follow at once and the doorbell may be delayed.
    ///
    /// # Errors
    /// If the packet was dropped, for lack of a link or of room. It has been released.
    pub fn transmit(&self, cpu: &Cpu, packet: Packet, more: bool) -> Result<(), Error> {
        self.tx.transmit(cpu, packet, more)
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

    /// Opens the device.
    ///
    /// # Errors
    /// If the driver fails; [`Error::NoDevice`] if it is gone.
    pub async fn open(&self, cpu: &Cpu) -> Result<(), Error> {
        let driver = self.driver().ok_or(Error::NoDevice)?;
        if self.below.up.get() {
            return Ok(());
        }
        driver.open(cpu).await?;
        self.below.up.set(true);
        self.tx.start_watchdog();
        Ok(())
    }

    /// Closes the device (`ip link set down`): the driver frees rings, buffers and interrupts.
    pub async fn stop(&self, cpu: &Cpu) {
        if !self.below.up.replace(false) {
            return;
        }
        self.tx.stop_watchdog();
        if let Some(driver) = self.driver() {
            driver.stop(cpu).await;
        }
        if let (Some(protocols), Some(me)) = (self.protocols(), self.me.upgrade()) {
            protocols.device_stopped(cpu, &me);
        }
        self.tx.drop_waiting(cpu);
    }

    pub(super) fn forget_driver(&self) {
        self.below.up.set(false);
        self.below.driver.borrow_mut().take();
    }

    fn listener_for(&self, cpu: &Cpu, packet: &Packet) -> Option<Rc<PacketQueue>> {
        if self.listeners.borrow().is_empty() {
            return None;
        }
        self.listeners.borrow_mut().retain(|listener| listener.strong_count() > 0);
        let mut header = [0; HEADER_LEN];
        packet.load(cpu, &mut header);
        let ether_type = u16::from_be_bytes([header[12], header[13]]);
        let listeners = self.listeners.borrow();
        listeners.iter().filter_map(Weak::upgrade).find(|listener| listener.wants(ether_type))
    }
}
