//! Network devices, and the path of packets between drivers and protocols.
//!
//! ```text
//! program ─▶ protocols ─▶ NetDevice::transmit ─▶ queue ─▶ driver        (its own queue for every core)
//! driver's poll ─▶ NetCore::receive ─▶ listeners, else Protocols::receive ─▶ program
//! ```

mod device;
pub(crate) mod inet;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::cpu::Cpu;
use platform::net::{NetCounters, NetDriver, Packet};
use units::{Duration, Time};
use wire::pcie::FunctionAddress;

pub use device::NetDevice;
pub use inet::{EcnMode, FragmentParams, InetParams, SteeringParams};

use crate::base::Base;

/// Protocols above the devices.
pub trait Protocols {
    /// A packet was received, in deferred work. The receiver must release it.
    fn receive(&self, cpu: &Cpu, device: &Rc<NetDevice>, queue: u16, packet: Packet);
    /// The poll ends: pass on everything held back. `emptied` if the ring is empty.
    fn poll_end(&self, cpu: &Cpu, device: &Rc<NetDevice>, queue: u16, emptied: bool) {
        let _ = (cpu, device, queue, emptied);
    }
    /// A device was stopped: packets in its queues are lost.
    fn device_stopped(&self, cpu: &Cpu, device: &Rc<NetDevice>) {
        let _ = (cpu, device);
    }
    /// A TX queue that was full has room again.
    fn queue_woken(&self, cpu: &Cpu, device: &Rc<NetDevice>, queue: u16) {
        let _ = (cpu, device, queue);
    }
    /// A device was added.
    fn device_added(&self, device: &Rc<NetDevice>) {
        let _ = device;
    }
    /// A device was removed: nothing is received any more, and packets to send are dropped.
    fn device_removed(&self, device: &Rc<NetDevice>) {
        let _ = device;
    }
    /// A device's link went up or down.
    fn carrier_changed(&self, device: &Rc<NetDevice>, up: bool) {
        let _ = (device, up);
    }
}

/// Naming rules for new network devices (udev rules).
pub trait NetRules {
    /// The name for a function's device, if a rule gives one.
    fn name(&self, of: FunctionAddress) -> Option<String>;
    /// Whether a name is reserved for a certain device.
    fn is_kept(&self, name: &str) -> bool;
    /// A device of that name was added.
    fn added(&self, name: &str);
}

/// What the devices of one name have counted, also those that are gone.
#[derive(Clone, Debug)]
pub struct NetTotals {
    /// The devices' name.
    pub name: String,
    /// Packets.
    pub counters: NetCounters,
    /// How long each TX queue's ring was full.
    pub queues_full: Vec<Duration>,
}

/// Adds what a device has counted to the totals of its name.
fn add_device(totals: &mut Vec<NetTotals>, device: &NetDevice, now: Time) {
    let full = device.queues_full(now);
    let Some(known) = totals.iter_mut().find(|known| known.name == device.name()) else {
        let (name, counters) = (device.name().to_owned(), device.counters());
        return totals.push(NetTotals { name, counters, queues_full: full });
    };
    known.counters.add(&device.counters());
    let queues = known.queues_full.len().max(full.len());
    known.queues_full.resize(queues, Duration::ZERO);
    known.queues_full.iter_mut().zip(full).for_each(|(sum, more)| *sum += more);
}

/// All network devices of a kernel, and the protocols above.
pub struct Net {
    me: Weak<Self>,
    base: Base,
    devices: RefCell<Vec<Rc<NetDevice>>>,
    /// Of devices that are gone.
    departed: RefCell<Vec<NetTotals>>,
    rules: RefCell<Option<Rc<dyn NetRules>>>,
    next: Cell<u32>,
    protocols: RefCell<Option<Rc<dyn Protocols>>>,
}

impl Net {
    pub(crate) fn new(base: Base) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            base,
            devices: RefCell::default(),
            departed: RefCell::default(),
            rules: RefCell::new(None),
            next: Cell::new(0),
            protocols: RefCell::new(None),
        })
    }

    /// Puts protocols above all devices, present and future.
    pub fn connect(&self, protocols: Rc<dyn Protocols>) {
        *self.protocols.borrow_mut() = Some(Rc::clone(&protocols));
        self.devices().iter().for_each(|device| protocols.device_added(device));
    }

    /// Devices in order of registration.
    pub fn devices(&self) -> Vec<Rc<NetDevice>> {
        self.devices.borrow().clone()
    }

    /// What has been counted up to `now` under each name. Devices that return go on from where they left.
    pub fn totals(&self, now: Time) -> Vec<NetTotals> {
        let mut totals = self.departed.borrow().clone();
        self.devices().iter().for_each(|device| add_device(&mut totals, device, now));
        totals
    }

    /// The device that has this name now, such as `eth0`.
    pub fn device(&self, name: &str) -> Option<Rc<NetDevice>> {
        self.devices.borrow().iter().find(|device| device.name() == name).cloned()
    }

    /// Sets the naming rules for future devices.
    pub fn set_rules(&self, rules: Rc<dyn NetRules>) {
        *self.rules.borrow_mut() = Some(rules);
    }

    /// Registers a device.
    pub(crate) fn add(&self, driver: Rc<dyn NetDriver>) -> Rc<NetDevice> {
        let number = self.next.replace(self.next.get() + 1);
        let name = self.name_for(&*driver);
        let device = NetDevice::new(self, number, name.clone(), driver);
        self.devices.borrow_mut().push(Rc::clone(&device));
        if let Some(protocols) = self.protocols() {
            protocols.device_added(&device);
        }
        let rules = self.rules.borrow().clone();
        if let Some(rules) = rules {
            rules.added(&name);
        }
        device
    }

    /// The name for a new device: the one that it asks for; if it asks for a number, by rule, or with the first free one.
    fn name_for(&self, driver: &dyn NetDriver) -> String {
        let wanted = driver.limits().name;
        let Some((before, after)) = wanted.split_once("%d") else { return wanted.into_owned() };
        let rules = self.rules.borrow().clone();
        let given = rules.as_ref().zip(driver.function()).and_then(|(rules, at)| rules.name(at));
        let is_kept = |name: &str| rules.as_ref().is_some_and(|rules| rules.is_kept(name));
        let is_free = |name: &String| self.device(name).is_none();
        let mut others = (0..).map(|n| format!("{before}{n}{after}")).filter(|name| !is_kept(name));
        given.filter(is_free).or_else(|| others.find(is_free)).unwrap_or_default()
    }

    fn remove(&self, device: &Rc<NetDevice>, now: Time) {
        add_device(&mut self.departed.borrow_mut(), device, now);
        self.devices.borrow_mut().retain(|other| !Rc::ptr_eq(other, device));
        if let Some(protocols) = device.protocols() {
            protocols.device_removed(device);
        }
    }

    fn protocols(&self) -> Option<Rc<dyn Protocols>> {
        self.protocols.borrow().clone()
    }

    /// Drops drivers and protocols, which hold references to the kernel.
    pub(crate) fn clear(&self) {
        self.rules.borrow_mut().take();
        self.devices.borrow_mut().drain(..).for_each(|device| device.forget_driver());
        self.protocols.borrow_mut().take();
    }
}
